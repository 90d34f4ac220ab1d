//! Runs one process after another: starts it, feeds it calls, reads its answers, ends it, and pauses between two.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, copy, sink};
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::super::denials::Denials;
use super::super::{Group, ProcessError, confine, inherited_environment, message, start};
use super::WarmSpec;
use super::line::{self, Junk};
use super::log::Stderr;
use super::pipe::Input;
use super::table::{Death, Table};

/// Keeps a process for the calls of one capability.
pub(super) struct Worker {
    spec: WarmSpec,
    environment: Vec<(&'static str, OsString)>,
    table: Arc<Table>,
    denials: Arc<Denials>,
    shutdown: CancellationToken,
}

/// A process that runs.
struct Life {
    group: Group,
    input: Input,
    stdout: ChildStdout,
    stderr: ChildStderr,
    log: Stderr,
    answers: Answers,
    /// It outlives the processes, and ends those that are left.
    _bounds: Option<confine::Group>,
}

/// What a process has written to stdout.
struct Answers {
    /// What was read since the last whole line.
    open: Vec<u8>,
    count: u64,
    line_bytes_max: usize,
}

/// Why a process is to end, or has.
enum End {
    /// It exited, or closed its stdout.
    Itself,
    /// It wrote this line, which answers no call.
    Junk(Junk, String),
    /// It did not answer a call in time.
    Hung,
    /// Nobody needs it any more.
    Unneeded,
    /// Its pipes or its exit could not be observed.
    Unobservable(io::Error),
}

impl Worker {
    pub(super) fn new(
        spec: WarmSpec,
        table: Arc<Table>,
        denials: Arc<Denials>,
        shutdown: CancellationToken,
    ) -> Self {
        Self { spec, environment: inherited_environment(), table, denials, shutdown }
    }

    /// Keeps a process until nobody needs it.
    pub(super) async fn run(self) {
        let mut failures = 0;
        while !self.is_unneeded() {
            let is_steady = match self.start() {
                Ok(life) => {
                    self.table.up();
                    self.live(life).await
                }
                Err(error) => {
                    tracing::warn!(capability = self.spec.capability, %error, "a process could not be started");
                    self.table.down(&error.to_string());
                    false
                }
            };
            failures = if is_steady { 0 } else { failures + 1 };
            self.pause(failures).await;
        }
        self.table.end();
    }

    fn is_unneeded(&self) -> bool {
        self.shutdown.is_cancelled() || self.table.is_done()
    }

    /// Waits before the next start: longer after each process that answered nothing.
    async fn pause(&self, failures: u32) {
        let pause = PAUSE_FIRST.saturating_mul(1 << failures.min(PAUSE_STEPS_MAX)).min(PAUSE_MAX);
        let until = Instant::now() + pause;
        while !self.is_unneeded() {
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return,
                () = sleep_until(until) => return,
                () = self.table.changed.notified() => {}
            }
        }
    }

    fn start(&self) -> Result<Life, ProcessError> {
        let spec = &self.spec.process;
        let bounds = super::super::bounds(spec, &self.spec.capability);
        let (input, stdin) = Input::new().map_err(|error| ProcessError::Spawn(error.kind()))?;
        let mut command = start(spec, &self.environment, bounds.as_ref())?;
        command.env("CAPD_CAPABILITY", &self.spec.capability).stdin::<Stdio>(stdin);
        let mut group = Group::spawn(command)?;
        let stdout = group.child.stdout.take().expect("stdout is piped and taken once");
        let stderr = group.child.stderr.take().expect("stderr is piped and taken once");
        tracing::info!(capability = self.spec.capability, pid = group.child.id(), "a process was started");
        let answers = Answers { open: Vec::new(), count: 0, line_bytes_max: spec.output_bytes_max };
        Ok(Life { group, input, stdout, stderr, log: Stderr::default(), answers, _bounds: bounds })
    }

    /// Serves by one process until it has ended. Returns whether it answered anything.
    async fn live(&self, mut life: Life) -> bool {
        let end = self.serve(&mut life).await;
        let Life { mut group, input, mut stdout, mut stderr, mut log, mut answers, _bounds } = life;
        match &end {
            End::Unneeded => {
                // A program that reads to the end of its input ends by itself.
                drop(input);
                self.wind_down(&mut group, &mut stdout, &mut stderr, &mut log).await;
                let _ended = group.reap().await;
                return answers.count > 0;
            }
            End::Junk(junk, _) => {
                self.table.junk(&junk.to_string());
                group.terminate().await;
            }
            End::Hung => group.terminate().await,
            End::Itself | End::Unobservable(_) => {}
        }
        let status = group.reap().await;
        // Every writer in the group is dead, so what stands in the pipes is all there is. A process that left the group may
        // keep them open, and is not waited for.
        let rest = async {
            while stderr.read_buf(&mut log.tail).await.is_ok_and(|read| read > 0) {}
            while !matches!(end, End::Junk(..)) && answers.read(&mut stdout).await.is_ok_and(|read| read > 0)
            {
                if answers.take(&self.table).is_err() {
                    break;
                }
            }
        };
        let _left_open = timeout(DRAIN_WAIT_MAX, rest).await;
        if matches!(end, End::Itself | End::Junk(..)) {
            let (capability, spec) = (&self.spec.capability, &self.spec.process);
            self.denials.on_failure(capability, &log.tail, spec, &self.environment);
        }
        let mut reason = match (&end, status) {
            (End::Junk(..), _) => "the provider was ended for a line that answers no call".to_owned(),
            (End::Hung, _) => "the provider was ended because it did not answer in time".to_owned(),
            (End::Unobservable(error), _) => ProcessError::Unobservable(error.kind()).to_string(),
            (End::Itself | End::Unneeded, Ok(status)) => message::of_status(status),
            (End::Itself | End::Unneeded, Err(error)) => ProcessError::Unobservable(error.kind()).to_string(),
        };
        let read = input.read_by_process();
        let is_started = read > 0 || answers.count > 0;
        self.log_end(&end, &reason, &log.tail, answers.count);
        // What a process complains of may quote what it was given or what it may read.
        if let Some(line) = message::last_line(&log.tail).filter(|_| self.spec.process.tell_stderr) {
            reason = format!("{reason}: {line}");
        }
        self.table.died(&Death { read, reason: &reason, now: Instant::now() });
        if !is_started {
            self.table.down(&reason);
        }
        answers.count > 0
    }

    fn log_end(&self, end: &End, reason: &str, stderr: &[u8], answers: u64) {
        let capability = self.spec.capability.as_str();
        let stderr = message::log_text(stderr);
        match end {
            End::Junk(junk, line) => {
                tracing::warn!(capability, answers, %junk, stdout = line, stderr, "a process answered with junk and was ended");
            }
            End::Hung => {
                tracing::warn!(capability, answers, stderr, "a process did not answer in time and was ended");
            }
            End::Itself | End::Unneeded | End::Unobservable(_) => {
                tracing::warn!(
                    capability,
                    answers,
                    reason,
                    stderr,
                    "a process ended and will be started again"
                );
            }
        }
    }

    /// Feeds the process and takes its answers until it ends, or is to.
    async fn serve(&self, life: &mut Life) -> End {
        let Life { group, input, stdout, stderr, log, answers, .. } = life;
        let exited = Group::exited(group.leader);
        tokio::pin!(exited);
        let (mut out, mut sent, mut complaint, mut complains) = (Vec::new(), 0, Vec::new(), true);
        // Once a call has hung, the others have a moment to be answered.
        let mut ends_at: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let wake_at = match ends_at {
                Some(at) if now >= at || self.table.is_all_hung(now) => return End::Hung,
                Some(at) => Some(at),
                None => {
                    self.table.fill(&mut out, &mut sent, now);
                    self.table.next_hung()
                }
            };
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return End::Unneeded,
                observed = &mut exited => {
                    return observed.map_or_else(End::Unobservable, |()| End::Itself);
                }
                read = answers.read(stdout) => match read {
                    Ok(0) => return End::Itself,
                    Err(error) => return End::Unobservable(error),
                    Ok(_) => {
                        if let Err((junk, line)) = answers.take(&self.table) {
                            return End::Junk(junk, line);
                        }
                        self.denials.on_success();
                        if self.table.is_done() {
                            return End::Unneeded;
                        }
                    }
                },
                read = stderr.read_buf(&mut complaint), if complains => {
                    complains = read.is_ok_and(|read| read > 0);
                    let call = self.table.only_call();
                    log.on_read(&complaint, &self.spec.capability, call.as_deref(), now);
                    complaint.clear();
                }
                written = input.write(&out), if !out.is_empty() => match written {
                    Ok(written) => drop(out.drain(..written)),
                    Err(error) => return End::Unobservable(error),
                },
                () = self.table.changed.notified() => {
                    if self.table.is_done() {
                        return End::Unneeded;
                    }
                }
                () = sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => {
                    ends_at.get_or_insert(Instant::now() + HUNG_GRACE);
                }
            }
        }
    }

    /// Waits for a process whose input has ended, and ends it after a while.
    async fn wind_down(
        &self,
        group: &mut Group,
        stdout: &mut ChildStdout,
        stderr: &mut ChildStderr,
        log: &mut Stderr,
    ) {
        let ended = async {
            let _ended = timeout(INPUT_END_WAIT, Group::exited(group.leader)).await;
            group.terminate().await;
        };
        // A full pipe must not keep it from ending.
        let heard = async {
            let mut discarded = sink();
            let _ended = tokio::join!(copy(stdout, &mut discarded), async {
                let mut words = Vec::new();
                while stderr.read_buf(&mut words).await.is_ok_and(|read| read > 0) {
                    log.on_read(&words, &self.spec.capability, None, Instant::now());
                    words.clear();
                }
            });
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = ended => {}
            () = heard => {}
        }
    }
}

impl Answers {
    /// Reads what is there; 0 at the end.
    async fn read(&mut self, stdout: &mut ChildStdout) -> io::Result<usize> {
        self.open.reserve(READ_BYTES);
        stdout.read_buf(&mut self.open).await
    }

    /// Answers the calls of the whole lines. **Errors:** a line that answers none, and its beginning for the log.
    fn take(&mut self, table: &Table) -> Result<(), (Junk, String)> {
        let mut begins = 0;
        while let Some(length) = self.open[begins..].iter().position(|byte| *byte == b'\n') {
            let line = &self.open[begins..begins + length];
            begins += length + 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            table.answered(line).map_err(|junk| (junk, line::shown(line)))?;
            self.count += 1;
        }
        self.open.drain(..begins);
        match self.open.len() > self.line_bytes_max {
            true => Err((Junk::TooLong(self.line_bytes_max), line::shown(&self.open))),
            false => Ok(()),
        }
    }
}

/// Room made for one read.
const READ_BYTES: usize = 16 * 1024;
/// Pause after a process that had answered calls; it doubles with each that did not.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Longest pause between two processes.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Doublings after which the pause is the longest for sure.
const PAUSE_STEPS_MAX: u32 = 16;
/// How long the other calls of a process that has hung may still be answered.
const HUNG_GRACE: Duration = Duration::from_secs(1);
/// How long a process may take to end once its input has.
const INPUT_END_WAIT: Duration = Duration::from_secs(1);
/// Longest wait for the pipes to run empty after the leader has exited and its group was killed.
const DRAIN_WAIT_MAX: Duration = Duration::from_millis(500);
