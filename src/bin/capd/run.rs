//! `capd run`: a sidecar from its configuration until a signal, its log on stderr.

use std::time::Duration;

use capd::config::{Config, LogFormat};
use capd::daemon::Daemon;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, SourceArgs, start_failure};

/// Runs `capd run`.
pub(super) fn run(sources: SourceArgs, announce: bool, stop_with_stdin: bool) -> Result<(), Failure> {
    keep_to_itself();
    let config = sources.load()?;
    log_to_stderr(&config);
    let busy_poll = Duration::from_micros(config.runtime.busy_poll_us);
    let runtime = capd::net::runtime(busy_poll).map_err(Failure::runtime)?;
    let outcome = runtime.block_on(async move {
        // Before the announcement: whoever reads it may send a signal.
        let mut terminate = signal(SignalKind::terminate()).map_err(Failure::runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::runtime)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(Failure::runtime)?;
        let daemon = Daemon::start(config, Some(THIS_PROGRAM.into())).await.map_err(start_failure)?;
        if announce {
            println!("{}", daemon.announcement());
        }
        let reloading = async {
            while hangup.recv().await.is_some() {
                // What came of it stands in the log.
                let _told = daemon.reload_policy().await;
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = stdin_ended(stop_with_stdin) => {}
            () = reloading => {}
        }
        tracing::info!("draining; a second signal ends at once");
        tokio::select! {
            () = daemon.shutdown() => Ok(()),
            _ = terminate.recv() => Err(Failure::runtime("ended by a second signal before all calls had ended")),
            _ = interrupt.recv() => Err(Failure::runtime("ended by a second signal before all calls had ended")),
        }
    });
    // A read of standard input cannot be called off, and must not be waited for.
    runtime.shutdown_background();
    outcome
}

/// Keeps other processes of the same user, commands among them, from reading this one's memory, which holds the key; a
/// core would hold it too.
fn keep_to_itself() {
    // A kernel that refuses leaves things as they were, which is no reason not to run.
    let _refused = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

fn log_to_stderr(config: &Config) {
    let builder = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(config.log.level)
        // Where a line cannot be written, as on a full disk, a report of that cannot either, and would panic.
        .log_internal_errors(false);
    match config.log.format {
        LogFormat::Human => builder
            .fmt_fields(capd::log::Fields)
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
        LogFormat::Json => builder.json().flatten_event(true).map_event_format(capd::log::Json).init(),
    }
}

/// Resolves when standard input ends; never, unless asked for.
async fn stdin_ended(wanted: bool) {
    if !wanted {
        return std::future::pending().await;
    }
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0u8; 256];
    while matches!(stdin.read(&mut ignored).await, Ok(1..)) {}
}

/// The running program's own file, also where another has taken its name since.
const THIS_PROGRAM: &str = "/proc/self/exe";
