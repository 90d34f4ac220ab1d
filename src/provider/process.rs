//! Runs a command for one call: params as JSON in; the command's JSON, or a typed error, out.
//!
//! Each command runs in its own process group: params on stdin, result on stdout, errors on stderr. However the call
//! ends (exit, timeout, cancel, too much output, the caller's future dropped), the whole group is killed before the
//! outcome is known, so nothing of it keeps running. A process that starts its own session on purpose (`setsid`) leaves
//! the group and is not followed.
//!
//! The group has its leader's number, and the leader is reaped last. Until then the system cannot reuse the number, so
//! a kill never hits another process.

pub mod confine;
mod denials;
mod exchange;
mod message;
pub mod orphans;
pub mod program;
mod provider;
mod script;
#[cfg(test)]
mod tests;
mod warm;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use capd_proto::code::Code;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use confine::Confinement;
pub use denials::Denial;
use denials::Denials;
use exchange::exchange;
pub use provider::{ProcessProvider, Spawn};
pub use warm::{WarmProvider, WarmSpec};

/// How a capability's command is started, and how many may run at once.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    /// The program: a name to look up in PATH, or a path (relative to `dir`).
    pub program: String,
    /// The program's arguments, passed unchanged, without a shell.
    pub args: Vec<String>,
    /// Working directory: the declaration's folder.
    pub dir: PathBuf,
    /// Most processes at once; at least 1 is used.
    pub concurrency: usize,
    /// Most calls waiting for one of them to end.
    pub queue_max: usize,
    /// Most bytes a process may write to stdout.
    pub output_bytes_max: usize,
    /// Whether a caller gets the last line of stderr when a process fails.
    pub tell_stderr: bool,
    /// The rights that it keeps, and the program that drops the others; by default it has those of the daemon.
    pub confined: Option<Confined>,
}

/// How a command is confined to its rights.
#[derive(Clone, Debug)]
pub struct Confined {
    /// The program `capd`.
    pub helper: PathBuf,
    /// What the command may do.
    pub confinement: Confinement,
    /// Where the processes of each call are bounded together.
    pub groups: Option<Arc<confine::Groups>>,
}

/// One call, as the process sees it.
#[derive(Debug)]
pub struct ProcessCall<'a> {
    /// The call's message id, given as `CAPD_CALL_ID`.
    pub id: &'a str,
    /// The capability id, given as `CAPD_CAPABILITY`.
    pub capability: &'a str,
    /// The caller's DID, given as `CAPD_CALLER`.
    pub caller: &'a str,
    /// Params as one JSON document, given on stdin.
    pub input: Vec<u8>,
    /// When the call ends with [`ProcessError::Timeout`], waiting included.
    pub deadline: Instant,
}

/// Why a call of a process has no result. The texts are safe for the caller: bounded, without file paths.
///
/// **Errors:** [`ProcessError::code`] is the code of the CAP_RESULT.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// It ended with an exit code other than 0, or by a signal; the text says which, and with `tell_stderr` has
    /// stderr's last line.
    #[error("{0}")]
    Failed(String),
    /// The call's time ran out while it waited or ran.
    #[error("the provider did not answer in time")]
    Timeout,
    /// The call was cancelled while it waited or ran.
    #[error("the call was cancelled")]
    Cancelled,
    /// The command could not be started.
    #[error("the provider's command could not be started: {0}")]
    Spawn(std::io::ErrorKind),
    /// The allowed number of calls already runs and waits.
    #[error("the provider has no capacity: {running} calls run, {waiting} wait")]
    Overloaded {
        /// The concurrency limit.
        running: usize,
        /// The queue's bound.
        waiting: usize,
    },
    /// It wrote more to stdout than allowed, and was killed.
    #[error("the provider wrote more than {0} bytes")]
    OutputTooLarge(usize),
    /// It exited with 0, but stdout is not one JSON document.
    #[error("the provider's output is not one JSON document: {wrong}")]
    NotJson {
        /// What is wrong and where.
        wrong: String,
        /// How stdout begins, for the log only.
        stdout: String,
    },
    /// Its pipes or its exit could not be observed, which is a bug of capd.
    #[error("the provider's process could not be observed: {0}")]
    Unobservable(std::io::ErrorKind),
}

impl ProcessError {
    /// The code of the CAP_RESULT error. **Source:** PROTOCOL 8, 9.
    pub fn code(&self) -> Code {
        match self {
            Self::Failed(_) | Self::OutputTooLarge(_) | Self::NotJson { .. } | Self::Unobservable(_) => {
                Code::INTERNAL_ERROR
            }
            Self::Timeout => Code::TIMEOUT,
            Self::Cancelled => Code::CANCELLED,
            Self::Spawn(_) => Code::UNAVAILABLE,
            Self::Overloaded { .. } => Code::OVERLOADED,
        }
    }
}

impl ProcessSpec {
    /// Keeps its numbers within what can be counted.
    fn bound(&mut self) {
        self.concurrency = self.concurrency.clamp(1, CONCURRENCY_MAX);
        self.queue_max = self.queue_max.min(CONCURRENCY_MAX);
    }
}

/// A capability's process provider: starts its command once per call, within its concurrency limit.
#[derive(Debug)]
pub struct Process {
    spec: ProcessSpec,
    environment: Vec<(&'static str, OsString)>,
    /// One permit for each call that runs or waits.
    admission: Semaphore,
    /// One permit for each call that runs.
    slots: Semaphore,
    denials: Denials,
}

impl Process {
    /// A provider for `spec`. The inherited part of the environment is read here, once.
    pub fn new(mut spec: ProcessSpec) -> Self {
        spec.bound();
        let admission = Semaphore::new(spec.concurrency + spec.queue_max);
        let slots = Semaphore::new(spec.concurrency);
        Self { environment: inherited_environment(), admission, slots, denials: Denials::default(), spec }
    }

    /// Runs the command for one call and returns what it wrote, verified to be one JSON document; stderr is logged.
    ///
    /// Dropping the future kills the process group at once.
    ///
    /// **Errors:** see [`ProcessError`]; each ends the call, with no process left.
    pub async fn run(
        &self,
        call: ProcessCall<'_>,
        cancel: &CancellationToken,
    ) -> Result<Vec<u8>, ProcessError> {
        let (id, capability) = (call.id, call.capability);
        let mut stderr = Vec::new();
        let result = self.run_with(call, cancel, &mut stderr).await;
        let words = message::log_text(&stderr);
        match &result {
            Ok(_) => self.denials.on_success(),
            Err(ProcessError::Failed(_) | ProcessError::NotJson { .. }) => {
                self.denials.on_failure(capability, &stderr, &self.spec, &self.environment);
            }
            Err(_) => {}
        }
        match &result {
            Err(error @ ProcessError::NotJson { stdout, .. }) => {
                tracing::info!(call = id, capability, %error, stdout, stderr = words, "a command failed")
            }
            Err(error) if words.is_empty() => {
                tracing::info!(call = id, capability, %error, "a command failed")
            }
            Err(error) => tracing::info!(call = id, capability, %error, stderr = words, "a command failed"),
            Ok(_) if words.is_empty() => {}
            Ok(_) => tracing::debug!(call = id, capability, stderr = words, "a command wrote to stderr"),
        }
        result
    }

    /// What confinement kept the command from when it failed last, unless it has succeeded since.
    pub fn denial(&self) -> Option<Denial> {
        self.denials.last()
    }

    /// As [`Process::run`], with the end of stderr in `stderr` instead of the log.
    pub async fn run_with(
        &self,
        call: ProcessCall<'_>,
        cancel: &CancellationToken,
        stderr: &mut Vec<u8>,
    ) -> Result<Vec<u8>, ProcessError> {
        let _admitted = self.admission.try_acquire().map_err(|_| ProcessError::Overloaded {
            running: self.spec.concurrency,
            waiting: self.spec.queue_max,
        })?;
        let _slot = self.slot(call.deadline, cancel).await?;
        // It outlives the processes, and ends those that are left.
        let bounds = bounds(&self.spec, call.id);
        let mut group = Group::spawn(self.command(&call, bounds.as_ref())?)?;
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ProcessError::Cancelled),
            () = sleep_until(call.deadline) => Err(ProcessError::Timeout),
            outcome = exchange(&mut group, call.input, self.spec.output_bytes_max, stderr) => outcome,
        };
        if matches!(ended, Err(ProcessError::Cancelled | ProcessError::Timeout)) {
            group.terminate().await;
        }
        let status = group.reap().await;
        let output = ended?;
        let status = status.map_err(|error| ProcessError::Unobservable(error.kind()))?;
        if !status.success() {
            let mut text = message::of_status(status);
            // What a command complains of may quote what it was given or what it may read.
            if let Some(line) = message::last_line(stderr).filter(|_| self.spec.tell_stderr) {
                text = format!("{text}: {line}");
            }
            return Err(ProcessError::Failed(text));
        }
        let not_json = |wrong| ProcessError::NotJson { wrong, stdout: message::excerpt(&output) };
        message::check_document(&output).map_err(not_json)?;
        Ok(output)
    }

    /// Waits for a place among the running, no longer than the call may take.
    async fn slot(
        &self,
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Result<SemaphorePermit<'_>, ProcessError> {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ProcessError::Cancelled),
            slot = self.slots.acquire() => Ok(slot.expect("the semaphore is never closed")),
            () = sleep_until(deadline) => Err(ProcessError::Timeout),
        }
    }

    fn command(
        &self,
        call: &ProcessCall<'_>,
        bounds: Option<&confine::Group>,
    ) -> Result<Command, ProcessError> {
        let mut command = start(&self.spec, &self.environment, bounds)?;
        command
            .env("CAPD_CALL_ID", call.id)
            .env("CAPD_CAPABILITY", call.capability)
            .env("CAPD_CALLER", call.caller)
            .stdin(Stdio::piped());
        Ok(command)
    }
}

/// The group that bounds all processes of a start together, where there can be one; `whose` is for the log.
fn bounds(spec: &ProcessSpec, whose: &str) -> Option<confine::Group> {
    let made = spec.confined.as_ref()?.groups.as_ref()?.of_call();
    let warn = |error: &std::io::Error| {
        tracing::warn!(
            whose,
            %error,
            "the processes of a command are not bounded together: no cgroup was made"
        );
    };
    made.inspect_err(warn).ok()
}

/// A command that is ready to start, in a group of its own, but for its stdin.
fn start(
    spec: &ProcessSpec,
    environment: &[(&'static str, OsString)],
    bounds: Option<&confine::Group>,
) -> Result<Command, ProcessError> {
    let mut command = match &spec.confined {
        None => Command::new(&spec.program),
        Some(Confined { helper, confinement, .. }) => {
            // Looked for here, so that what is not there is told apart from what fails.
            let path = environment.iter().find(|(name, _)| *name == "PATH").map(|(_, path)| path.as_os_str());
            let program = program::find_in(&spec.program, &spec.dir, path);
            let program = program.map_err(|error| ProcessError::Spawn(error.kind()))?;
            let mut command = Command::new(helper);
            command.args(confinement.arguments(bounds)).arg(program).arg(&spec.program);
            command
        }
    };
    command
        .args(&spec.args)
        .current_dir(&spec.dir)
        .env_clear()
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

/// A started command and everything that it started in turn; killed when dropped.
struct Group {
    child: Child,
    /// The leader's pid, which is the group's number; `None` once the leader is reaped.
    leader: Option<Pid>,
}

impl Group {
    fn spawn(mut command: Command) -> Result<Self, ProcessError> {
        let mut leaders = orphans::leaders();
        let child = command.spawn().map_err(|error| ProcessError::Spawn(error.kind()))?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        leaders.extend(leader.map(|leader| leader.as_raw_nonzero().get()));
        Ok(Self { child, leader })
    }

    /// Ready when the leader has exited; it is left unreaped, so that the group keeps its number.
    async fn exited(leader: Option<Pid>) -> std::io::Result<()> {
        let Some(leader) = leader else { return Ok(()) };
        let mut child_changes = signal(SignalKind::child())?;
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(leader), options)?.is_none() {
            child_changes.recv().await;
        }
        Ok(())
    }

    fn signal(&mut self, signal: Signal) {
        let Some(leader) = self.leader else { return };
        // Failing means that nobody is left in the group.
        let _ = kill_process_group(leader, signal);
    }

    /// Kills whatever is left of the group, and the leader even if it moved to another group.
    fn kill(&mut self) {
        self.signal(Signal::KILL);
        if self.leader.is_some() {
            // Failing means that it has exited already.
            let _ = self.child.start_kill();
        }
    }

    /// Asks the group to end, and kills what has not ended after a short grace.
    async fn terminate(&mut self) {
        self.signal(Signal::TERM);
        let _ = timeout(TERM_GRACE, Self::exited(self.leader)).await;
        self.kill();
    }

    /// Kills what is left, then takes the leader's exit status.
    async fn reap(mut self) -> std::io::Result<ExitStatus> {
        self.kill();
        let status = timeout(REAP_WAIT_MAX, self.child.wait()).await??;
        self.forget();
        Ok(status)
    }

    /// The leader is collected, or left to the runtime.
    fn forget(&mut self) {
        if let Some(leader) = self.leader.take() {
            orphans::leaders().remove(&leader.as_raw_nonzero().get());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        self.forget();
    }
}

/// The few variables a process gets of ours, with the daemon's own directory in front of PATH, so that a
/// declaration can name `capd` itself.
fn inherited_environment() -> Vec<(&'static str, OsString)> {
    let own_dir = std::env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_path_buf));
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    let dirs = own_dir.into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(dirs).unwrap_or(path);
    let kept = ["HOME", "LANG", "TMPDIR"].into_iter();
    let kept = kept.filter_map(|name| std::env::var_os(name).map(|value| (name, value)));
    std::iter::once(("PATH", path)).chain(kept).collect()
}

/// Where programs are looked for when the daemon itself has no PATH.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Most processes or waiting calls of one capability; a configuration above it is read as this.
const CONCURRENCY_MAX: usize = 65_536;
/// Time between SIGTERM and SIGKILL for a call that timed out or was cancelled.
const TERM_GRACE: Duration = Duration::from_millis(250);
/// Longest wait for a killed leader to be reaped; a process stuck in the kernel is left to the runtime's reaper.
const REAP_WAIT_MAX: Duration = Duration::from_secs(2);
