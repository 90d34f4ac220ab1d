//! Starts and stops a bridge's program: its command line in; an exit code, and one clear error, out.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use capd_client::proto::capability::{CapabilityName, CapabilityPattern};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::import::kind::Kind;
use crate::import::lock::Lock;
use crate::import::served::ImportError;
use crate::import::show;
use crate::{log, text};

/// What ends a program other than well.
#[derive(Debug)]
pub struct Failure {
    message: String,
    exit_code: u8,
}

impl Failure {
    /// A mistake in the command line or a file: exit code 2.
    pub fn mistake(error: impl ToString) -> Self {
        Self { message: error.to_string(), exit_code: 2 }
    }

    /// Anything else: exit code 1.
    pub fn runtime(error: impl ToString) -> Self {
        Self { message: error.to_string(), exit_code: 1 }
    }
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Lock(_) | ImportError::Peer(_) => Self::mistake(error),
            ImportError::Sidecar(_) | ImportError::Descriptor(..) => Self::runtime(error),
        }
    }
}

/// Runs the program `name` to its end.
pub fn program(name: &str, run: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    log::start();
    let failed = |failure: &Failure| {
        // There is nobody else to tell.
        let _ = writeln!(io::stderr().lock(), "{name}: {}", text::shown(&failure.message));
        ExitCode::from(failure.exit_code)
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&Failure::runtime(format!("the runtime cannot be started: {error}"))),
    };
    let outcome = runtime.block_on(run);
    // A read of stdin that nobody waits for any more would keep the process.
    runtime.shutdown_background();
    outcome.map_or_else(|failure| failed(&failure), |()| ExitCode::SUCCESS)
}

/// Writes text to stdout. **Errors:** those of the system.
pub fn print(text: &str) -> Result<(), Failure> {
    io::stdout().lock().write_all(text.as_bytes()).map_err(Failure::runtime)
}

/// Cancelled by SIGINT or SIGTERM. **Errors:** those of the system.
pub fn stop_signal() -> Result<CancellationToken, Failure> {
    let stopped = CancellationToken::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).map_err(Failure::runtime)?;
        let stopped = stopped.clone();
        tokio::spawn(async move {
            signals.recv().await;
            stopped.cancel();
        });
    }
    Ok(stopped)
}

/// A name, or a namespace with or without its `.*`.
///
/// **Errors:** what is wrong with it.
pub fn pattern(text: &str) -> Result<CapabilityPattern, String> {
    let namespace = || format!("{text}.*").parse();
    text.parse().or_else(|error: capd_proto::capability::Error| namespace().map_err(|_| error.to_string()))
}

/// Every name.
pub fn everything() -> CapabilityPattern {
    "*".parse().expect("a pattern that a test parses")
}

/// Two words or more, before the name of each capability.
///
/// **Errors:** what is wrong with it.
pub fn namespace(text: &str) -> Result<String, String> {
    match format!("{text}.tool").parse::<CapabilityName>() {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("{error}; accepted: two words or more, such as com.example.files")),
    }
}

/// What a person asks about a lock file.
#[derive(clap::Subcommand, Debug)]
pub enum LockCommand {
    /// Show what is served, and which changes wait for approval.
    Status(LockArgs),
    /// Show each change that waits for approval.
    Diff(LockArgs),
    /// Approve changes that wait; an import that runs serves them at once.
    Approve(ApproveArgs),
}

/// Where the lock file is.
#[derive(clap::Args, Debug)]
pub struct LockArgs {
    /// The lock file; by default mcp.lock or a2a.lock, as the protocol is.
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
}

/// What is approved.
#[derive(clap::Args, Debug)]
pub struct ApproveArgs {
    #[command(flatten)]
    lock: LockArgs,
    /// What to approve, by the names that the lock file has.
    #[arg(required_unless_present = "all")]
    names: Vec<String>,
    /// Approve everything that waits.
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

impl LockArgs {
    /// The file.
    pub fn path(&self, kind: &Kind) -> PathBuf {
        self.lock.clone().unwrap_or_else(|| format!("{}.lock", kind.category).into())
    }

    fn read(&self, kind: &Kind) -> Result<Lock, Failure> {
        let path = self.path(kind);
        let lock = Lock::read(&path).map_err(Failure::mistake)?;
        lock.ok_or_else(|| {
            Failure::mistake(format!(
                "{}: there is no such file; {} import writes it, --lock names another one",
                path.display(),
                kind.program
            ))
        })
    }
}

impl LockCommand {
    /// Answers it on stdout.
    ///
    /// **Errors:** no lock file, or a name that it has not.
    pub fn run(&self, kind: &Kind) -> Result<(), Failure> {
        match self {
            Self::Status(args) => print(&show::status(&args.read(kind)?, kind)),
            Self::Diff(args) => print(&show::diff(&args.read(kind)?, kind)),
            Self::Approve(args) => approve(args, kind),
        }
    }
}

fn approve(args: &ApproveArgs, kind: &Kind) -> Result<(), Failure> {
    let (path, mut lock) = (args.lock.path(kind), args.lock.read(kind)?);
    if let Some(unknown) = args.names.iter().find(|name| lock.entry(name).is_none()) {
        let (place, Kind { item, program, .. }) = (path.display(), kind);
        return Err(Failure::mistake(format!(
            "{place} has no {item} {unknown:?}; {program} status lists them"
        )));
    }
    let approved = lock.approve(|name| args.all || args.names.iter().any(|wanted| wanted == name));
    if approved.is_empty() {
        return print("nothing of this waits for approval\n");
    }
    lock.write(&path, kind).map_err(Failure::runtime)?;
    approved.iter().try_for_each(|name| print(&format!("approved {}\n", text::line(name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_for_everything_parses() {
        assert_eq!(everything().to_string(), "*");
    }
}
