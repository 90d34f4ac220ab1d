//! Implements `capd run`: runs a sidecar from its configuration until a signal or a fault, and logs to stderr.

use std::fs::File;
use std::future::pending;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use capd::config::{Config, LogFormat};
use capd::daemon::{Daemon, Watch};
use capd::fault::{self, Fault};
use capd::log::Lines;
use capd::provider::process::orphans;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use super::notify::Manager;
use super::{Failure, IdentityArgs, SourceArgs, start_failure};

/// How a sidecar is started and stopped by a program.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    /// One JSON line says that everything listens.
    pub(super) announce: bool,
    /// The end of standard input ends it.
    pub(super) stop_with_stdin: bool,
}

/// Runs `capd run`.
pub(super) fn run(sources: SourceArgs, identity: IdentityArgs, ways: Ways) -> Result<(), Failure> {
    keep_to_itself();
    let config = sources.load()?;
    let (log, levels) = log_to_stderr(&config).map_err(Failure::runtime)?;
    let outcome = identity.of(&config).and_then(|_made| run_logged(config, ways, &log, levels));
    if let Err(failure) = &outcome {
        log.push(failure.line().as_bytes());
    }
    log.flush(LOG_TIMEOUT);
    outcome.map_err(|failure| Failure { message: String::new(), ..failure })
}

fn run_logged(config: Config, ways: Ways, log: &Lines, levels: Levels) -> Result<(), Failure> {
    let watch: Arc<OnceLock<Watch>> = Arc::default();
    let (watched, lines) = (Arc::clone(&watch), log.clone());
    let within = FLUSH_TIMEOUT + 2 * LOG_TIMEOUT;
    fault::end_process(EXIT_FAULT, within, move |fault| save(watched.get(), fault, &lines));
    let busy_poll = Duration::from_micros(config.runtime.busy_poll_us);
    let runtime = capd::net::runtime(busy_poll).map_err(Failure::runtime)?;
    let ended = runtime.block_on(stay(config, ways, (log, levels), &watch));
    // A read of standard input cannot be called off, and must not be waited for.
    runtime.shutdown_background();
    ended
}

async fn stay(
    config: Config,
    ways: Ways,
    (log, levels): (&Lines, Levels),
    watch: &OnceLock<Watch>,
) -> Result<(), Failure> {
    // Before the announcement: whoever reads it may send a signal.
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::runtime)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::runtime)?;
    let daemon = Daemon::start(config, Some(THIS_PROGRAM.into())).await.map_err(start_failure)?;
    watch.get_or_init(|| daemon.watch());
    daemon.meter_log(log.clone());
    daemon.on_log(move |log| {
        // The subscriber is there for as long as the process.
        let _there = levels.reload(log.targets.clone());
    });
    if ways.announce {
        writeln!(std::io::stdout(), "{}", daemon.announcement()).map_err(Failure::runtime)?;
    }
    let manager = Manager::of_environment();
    manager.ready();
    #[cfg(feature = "test-hooks")]
    if let Ok(text) = std::env::var("TEST_HOOK_PANIC") {
        daemon.panic(text);
    }
    let reloading = async {
        while hangup.recv().await.is_some() {
            // What came of it stands in the log.
            let _told = daemon.reload().await;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = stdin_ended(ways.stop_with_stdin) => {}
        () = reloading => {}
        () = manager.stay_alive() => {}
    }
    manager.stopping();
    tracing::info!("draining; a second signal stops capd at once");
    tokio::select! {
        () = daemon.shutdown() => Ok(()),
        () = manager.stay_alive() => Ok(()),
        _ = terminate.recv() => Err(Failure::runtime("stopped by a second signal while calls were in flight")),
        _ = interrupt.recv() => Err(Failure::runtime("stopped by a second signal while calls were in flight")),
    }
}

/// Saves what can be saved before the process ends because a part of it panicked.
///
/// ARCHITECTURE, *A fault ends the process*: whatever waits for that part would wait for ever; started again, the sidecar
/// knows from its journal which calls it has executed.
fn save(watch: Option<&Watch>, fault: &Fault, log: &Lines) {
    // The sidecar's own runtime may stand still.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let flush = |watch: &Watch| runtime.is_ok_and(|runtime| runtime.block_on(watch.flush(FLUSH_TIMEOUT)));
    let is_flushed = watch.is_none_or(flush);
    orphans::end_commands();
    let Fault { text, location, thread } = fault;
    tracing::error!(
        panic = ?text,
        location,
        thread = ?thread,
        journal_flushed = is_flushed,
        exit_code = EXIT_FAULT,
        "capd stops: a part of it panicked; please report this line as a bug"
    );
    log.flush(LOG_TIMEOUT);
}

/// Keeps other processes of the same user, commands among them, from reading this one's memory, which holds the key; a
/// core would hold it too.
fn keep_to_itself() {
    // A kernel that refuses leaves things as they were, which is no reason not to run.
    let _refused = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
}

/// Has the log written by a thread of its own, which alone waits where nobody reads.
fn log_to_stderr(config: &Config) -> std::io::Result<(Lines, Levels)> {
    // Not by way of the standard library's handle: whoever else prints would wait for its lock.
    let stderr = File::from(std::io::stderr().as_fd().try_clone_to_owned()?);
    let lines = Lines::start(stderr, |dropped| {
        tracing::warn!(dropped, "log lines were dropped while stderr was blocked");
    })?;
    #[cfg(feature = "test-hooks")]
    if std::env::var_os("TEST_HOOK_LOG_IN_STEP").is_some() {
        lines.keep_in_step();
    }
    // What no module logs is dropped before it is looked at.
    let (targets, levels) = reload::Layer::new(config.log.targets.clone());
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(lines.clone())
        // Where a line cannot be written, as on a full disk, a report of that cannot either, and would panic.
        .log_internal_errors(false);
    let filtered = tracing_subscriber::registry().with(targets);
    match config.log.format {
        LogFormat::Human => filtered
            .with(
                layer
                    .fmt_fields(capd::log::Fields)
                    .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())),
            )
            .init(),
        LogFormat::Json => {
            filtered.with(layer.json().flatten_event(true).map_event_format(capd::log::Json)).init()
        }
    }
    Ok((lines, levels))
}

/// The levels by module, which a reload replaces.
type Levels = reload::Handle<Targets, Registry>;

/// Resolves when standard input ends; never, unless asked for.
async fn stdin_ended(wanted: bool) {
    if !wanted {
        return pending().await;
    }
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0u8; 256];
    while matches!(stdin.read(&mut ignored).await, Ok(1..)) {}
}

/// The running program's own file, also where another has taken its name since.
const THIS_PROGRAM: &str = "/proc/self/exe";
/// The exit code of a fault: EX_SOFTWARE of sysexits.h, an internal error.
const EXIT_FAULT: i32 = 70;
/// How long a process that has a fault waits for its journal and audit log.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a process that ends waits for whoever reads its log.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);
