//! Runs a sidecar: a configuration in, a running `Daemon` out.
//!
//! The daemon consists of rooms. A room is a folder with one struct that owns its state, and that names everything it
//! uses in its fields. A room imports only rooms above it in this table; `tests/rooms.rs` enforces this.
//!
//! | layer | room | owns |
//! |---|---|---|
//! | 0 | `context` | identity, clock, random, tasks, shutdown; how it seals, answers, refuses |
//! | 1 | `journal` | what a room wants on disk, under a tag of that room's own |
//! | 1 | `account` | audit records, access lines, counters, what was warned of once |
//! | 1 | `asks` | our own questions to peers, and their answers |
//! | 2 | `directory` | peers, registry, schemas: who serves what, where |
//! | 2 | `fleet` | memberships, whom the registry names, what it is told of us |
//! | 3 | `door` | admission, signatures, permissions, policy; yields a `Permit` |
//! | 4 | `executor` | calls that run here: ledger, providers, rates, sessions that we accepted |
//! | 4 | `caller` | calls of our agent: choice, drift, whom each was given to, pins, what is out |
//! | 5 | `desk` | read-only answers: metrics, calls, audit pages, what the policy decides, lists |
//! | 6 | `sidecar` | dispatch, what links see, workers |
//!
//! `start` is above them all. It starts the parts in this order: key, declaration and schemas, rooms, listeners,
//! dialling. The order down is the reverse: accept no new work, let calls end, close links, leave.
//!
//! A peer's call takes one path through the rooms: `sidecar` receives its bytes, `door` checks envelope and signature
//! and permits it, `executor` runs it and sends its one result. A call of the agent enters through the same door;
//! `caller` chooses its peer, and gives the agent its one answer. A message for a higher room goes there as a return
//! value (`Taken::Again`), through an argument, or through a trait that the lower room owns (`Here`).
//!
//! All rooms run on one thread, but they hardly depend on it: each sequence of check and act is one critical section of
//! its room's lock, so links on several threads would see the same rooms. A panic of any task ends the process (see
//! `fault`).

mod account;
mod asks;
mod caller;
mod context;
mod desk;
mod directory;
mod door;
mod executor;
mod fault;
mod fleet;
#[cfg(feature = "test-hooks")]
mod hooks;
mod journal;
mod sidecar;
mod start;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capd_proto::identity::{Did, Identity};
pub use door::policy::warnings as policy_warnings;
pub use fault::Watch;
#[cfg(feature = "test-hooks")]
pub use hooks::Rule;
use serde_json::json;
use sidecar::Sidecar;
use sidecar::operate::Operator as _;
pub use sidecar::operate::{Changed, Misread, Reload, ReloadError};
pub use start::{Hashed, Hashes, StartError, hashes, rules};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::{self, Config};
use crate::declaration::Declaration;
use crate::fault::Faults;
use crate::log::Lines;
use crate::net::{Host, Seed, System, local};
use crate::store::{Medium, Thread};

/// A running sidecar.
pub struct Daemon {
    sidecar: Arc<Sidecar>,
    host: Arc<Host>,
    bound: Bound,
    /// Write the journal and the audit log.
    threads: Vec<Thread>,
    faults: Faults,
    reloader: Arc<start::Reloader>,
}

/// Where a sidecar listens.
#[derive(Clone, Debug, Default)]
struct Bound {
    dir: PathBuf,
    quic: Option<SocketAddr>,
    tcp: Option<SocketAddr>,
    socket: Option<PathBuf>,
    local_tcp: Option<SocketAddr>,
    health: Option<SocketAddr>,
}

impl Daemon {
    /// Starts everything in `config`; every listener is bound when this returns.
    ///
    /// `helper` is the program that confines the commands of process providers: `capd`. Without it, commands have the
    /// daemon's own rights, and the log says so.
    ///
    /// **Errors:** [`StartError`], with what to do about it.
    pub async fn start(config: Config, helper: Option<PathBuf>) -> Result<Self, StartError> {
        start::start(config, helper).await
    }

    /// As [`Daemon::start`], on `system` and with everything given that it reads from files.
    ///
    /// It reads and writes no file of its own, unless `config` names DID documents or a token file, or `declaration`
    /// commands.
    ///
    /// **Errors:** [`StartError`].
    pub async fn start_on(
        system: System,
        config: Config,
        seed: &Seed,
        declaration: Option<&Declaration>,
        journal: &impl Medium,
    ) -> Result<Self, StartError> {
        start::start_on(system, config, seed, declaration, journal, None).await
    }

    /// Accepts a local link of the agent over a byte stream, such as a pipe within this process.
    pub fn serve_stream<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        local::serve_stream(&self.host, stream);
    }

    /// The agent's DID.
    pub fn did(&self) -> &Did {
        self.sidecar.ctx.did()
    }

    /// One line of JSON: the DID and the bound addresses.
    ///
    /// **Shape:** `{"did", "dir", "quic", "tcp", "socket", "local_tcp", "health"}`; an absent listener is null.
    pub fn announcement(&self) -> String {
        let text = |address: Option<SocketAddr>| address.map(|address| address.to_string());
        let Bound { dir, quic, tcp, socket, local_tcp, health } = &self.bound;
        json!({
            "did": self.did().as_str(),
            "dir": dir,
            "quic": text(*quic),
            "tcp": text(*tcp),
            "socket": socket,
            "local_tcp": text(*local_tcp),
            "health": text(*health),
        })
        .to_string()
    }

    /// Counts in the sidecar's metrics what `log` drops.
    pub fn meter_log(&self, log: Lines) {
        // A sidecar has one log.
        let _first = self.sidecar.desk.log.set(log);
    }

    /// Awaits a panic of any part of this sidecar, also while it shuts down. The program must then end the sidecar and
    /// restart it, because others wait for the missing part.
    pub fn watch(&self) -> Watch {
        Watch::new(self)
    }

    /// Reads the configuration again from its sources and applies it as a whole, without a restart. A mistake, or a
    /// change that needs a restart, changes nothing.
    ///
    /// **Errors:** [`ReloadError`], with every mistake.
    pub async fn reload(&self) -> Result<Reload, ReloadError> {
        Arc::clone(&self.reloader).reload(false).await
    }

    /// Has `apply` called with the log's settings of each configuration that is reloaded. Only the first call counts.
    pub fn on_log(&self, apply: impl Fn(&config::Log) + Send + Sync + 'static) {
        let apply = Arc::new(apply);
        // Nobody else sets it.
        let _first = self.sidecar.desk.apply_log.set(Arc::clone(&apply) as _);
        self.reloader.on_log(Box::new(move |log| apply(log)));
    }

    /// Accepts no new work, lets calls in flight end within the drain timeout, closes every link, and returns.
    pub async fn shutdown(mut self) {
        // An operator may have asked for it before.
        let is_first = self.sidecar.begin_drain();
        // Others learn from the registry, too, that calls which have not begun go elsewhere.
        if let Some(registry) = self.sidecar.fleet.registry() {
            registry.leave().await;
        }
        // PROTOCOL 4: peers are told first, so that their next calls go elsewhere. Agents here may still be needed.
        if is_first {
            self.sidecar.directory.peers.drain();
        }
        let drain_timeout = Duration::from_millis(self.sidecar.ctx.config().timeouts.drain_ms);
        if tokio::time::timeout(drain_timeout, self.sidecar.executor.table.idle()).await.is_err() {
            tracing::warn!("calls were still in flight when the time for draining ran out");
        }
        self.sidecar.executor.interrupt_calls();
        // Results that are on their way to the disk are sent once they are there.
        if tokio::time::timeout(CONCLUDE_TIMEOUT, self.sidecar.executor.table.idle()).await.is_err() {
            tracing::warn!(
                "results could not be written to the journal; their calls have an unknown outcome"
            );
        }
        // Links close once nothing is in flight on them, the agent's own calls to peers included.
        self.host.shut_down();
        self.host.ended().await;
        self.sidecar.account.spans.close().await;
        self.sidecar.ctx.shutdown.cancel();
        self.sidecar.ctx.tasks.close();
        self.sidecar.ctx.tasks.wait().await;
        self.sidecar.account.tell_denials();
        self.sidecar.journal.close().await;
        self.sidecar.account.audit.close().await;
        for thread in std::mem::take(&mut self.threads) {
            // It only writes what is queued up, but a disk may take its time.
            let _joined = tokio::task::spawn_blocking(|| thread.join()).await;
        }
    }
}

impl Drop for Daemon {
    /// A sidecar whose tasks were stopped from outside leaves nothing behind either.
    fn drop(&mut self) {
        // Tasks hold their rooms: they end first.
        self.sidecar.ctx.shutdown.cancel();
        self.sidecar.executor.let_go();
    }
}

/// Checks everything that a start would read: the declaration, its schemas and the DID documents. Returns warnings.
///
/// **Errors:** as [`Daemon::start`].
pub fn check(config: &Config) -> Result<Vec<String>, StartError> {
    start::check(config)
}

/// Checks a declaration's schemas against their profiles, as a start does. Without this, they are read for inspection
/// only.
///
/// **Errors:** [`StartError::Schema`] for the first that would not be enforced.
pub fn check_schemas(declaration: &Declaration) -> Result<(), StartError> {
    start::check_schemas(declaration)
}

/// The agent's identity; makes the key file if no earlier identity left anything.
///
/// **Errors:** the key file cannot be used; [`StartError::NewIdentity`] if it is missing but existed before.
pub fn identity(config: &Config) -> Result<Identity, StartError> {
    start::identity(config)
}

/// The agent's identity; makes the key file if there is none, whatever an earlier identity left.
///
/// **Errors:** the key file cannot be used.
pub fn new_identity(config: &Config) -> Result<Identity, StartError> {
    start::new_identity(config)
}

/// How long a shutdown waits for the journal to take the last results.
const CONCLUDE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
