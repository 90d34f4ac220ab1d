//! Keeps a server running and its tools served: a program and a lock file in; calls served, out.

use std::sync::Arc;
use std::time::Duration;

use capd_bridge::import::served::{Caller, Import, ImportError, Outcome, Served, ServedOptions};
use capd_bridge::sidecar::Sidecar;
use capd_client::Invocation;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::KIND;
use super::call;
use super::child::Program;
use super::peer::{Peer, PeerError};

/// What is imported, and how.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// What is served of it.
    pub served: ServedOptions,
    /// The server.
    pub program: Program,
}

/// The running server; none while there is none.
type Running = watch::Sender<Option<Arc<Peer>>>;

/// Calls whichever server runs.
struct Calls(Arc<Running>);

impl Caller for Calls {
    fn call(&self, served: Arc<Served>, invocation: Invocation) -> Outcome {
        let peer = self.0.subscribe();
        Box::pin(async move { call::call(&served, peer, invocation).await })
    }
}

/// Imports until `stopped`.
///
/// **Errors:** [`ImportError`]; a server that fails is started again instead.
pub async fn import(
    sidecar: &Sidecar,
    options: &ImportOptions,
    stopped: &CancellationToken,
) -> Result<(), ImportError> {
    let running = Arc::new(watch::Sender::new(None));
    let calls = Arc::new(Calls(Arc::clone(&running)));
    let import = Import::new(&KIND, sidecar, options.served.clone(), calls);
    let mut bridge = Bridge { options, running, import };
    // A wrong socket is told before the server runs.
    bridge.import.declare_known().await?;
    let mut pause = PAUSE_MIN;
    loop {
        let started = Instant::now();
        tokio::select! {
            ended = bridge.run_once() => ended?,
            () = stopped.cancelled() => break,
        }
        bridge.running.send_replace(None);
        pause = if started.elapsed() > STABLE_AFTER { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tracing::warn!(
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "the server is started again"
        );
        tokio::select! {
            () = sleep(pause) => {}
            () = stopped.cancelled() => break,
        }
    }
    Ok(())
}

struct Bridge<'a> {
    options: &'a ImportOptions,
    running: Arc<Running>,
    import: Import<'a>,
}

impl Bridge<'_> {
    /// Runs the server once, until it ends.
    async fn run_once(&mut self) -> Result<(), ImportError> {
        let (server, output, input) = match self.options.program.start() {
            Ok(started) => started,
            Err(error) => {
                let program = self.options.program.words.first().map(|word| word.display().to_string());
                tracing::error!(program = program.unwrap_or_default(), %error, "the server was not started");
                return Ok(());
            }
        };
        let peer = Peer::new(output, input);
        let served = self.serve(&peer).await;
        peer.close();
        self.running.send_replace(None);
        server.end().await;
        served
    }

    async fn serve(&mut self, peer: &Arc<Peer>) -> Result<(), ImportError> {
        if let Err(error) = peer.begin().await {
            let hint = match self.options.program.permissions.is_empty() {
                true => {
                    "it has no permissions; a program that needs files or the network is given them with --permissions"
                }
                false => "the lines of its stderr above may say why",
            };
            tracing::error!(%error, hint, "the server does not begin a session");
            return Ok(());
        }
        if self.list(peer).await?.is_err() {
            return Ok(());
        }
        self.running.send_replace(Some(Arc::clone(peer)));
        tracing::info!(
            tools = self.import.tools_len(),
            namespace = self.options.served.namespace,
            "the server's tools are served"
        );
        loop {
            tokio::select! {
                biased;
                () = peer.closed() => return Ok(()),
                () = self.import.changed() => self.import.renew().await?,
                () = peer.list_changed() => {
                    if let Err(PeerError::NotSent | PeerError::Broken) = self.list(peer).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes what the server lists.
    async fn list(&mut self, peer: &Peer) -> Result<Result<(), PeerError>, ImportError> {
        match peer.tools().await {
            Ok(listed) => Ok(Ok(self.import.take(listed, None).await?)),
            Err(error) => {
                tracing::error!(%error, "the server's tools were not listed");
                Ok(Err(error))
            }
        }
    }
}

/// Pauses between starts of a server that ends.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A server that ran for so long is started again at once.
const STABLE_AFTER: Duration = Duration::from_secs(30);
