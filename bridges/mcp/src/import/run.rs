//! Keeps a server running, or a connection to one, and its tools served: a program or a URL, and a lock file in; calls served,
//! out.

use std::sync::Arc;
use std::time::Duration;

use capd_bridge::http::client::{HttpClient, Place};
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
#[derive(Debug)]
pub struct ImportOptions {
    /// What is served of it.
    pub served: ServedOptions,
    /// The server.
    pub origin: Origin,
}

/// Where a server is.
#[derive(Debug)]
pub enum Origin {
    /// Here: this program, which is started.
    Program(Program),
    /// At a URL.
    Url {
        /// Where.
        place: Place,
        /// Who asks there.
        client: Arc<HttpClient>,
    },
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
    let mut bridge = Bridge { options, stopped, running, import };
    // A wrong socket is told before the server runs.
    bridge.import.declare_known().await?;
    let mut pause = PAUSE_MIN;
    loop {
        let started = Instant::now();
        bridge.run_once().await?;
        if stopped.is_cancelled() {
            break;
        }
        pause = if started.elapsed() > STABLE_AFTER { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tracing::warn!(
            pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "{}",
            match options.origin {
                Origin::Program(_) => "the server is started again",
                Origin::Url { .. } => "the server is asked again",
            }
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
    stopped: &'a CancellationToken,
    running: Arc<Running>,
    import: Import<'a>,
}

impl Bridge<'_> {
    /// Runs the server once, until it ends.
    async fn run_once(&mut self) -> Result<(), ImportError> {
        match &self.options.origin {
            Origin::Program(program) => match program.start() {
                Ok((server, output, input)) => {
                    let served = self.serve_all(Peer::over_streams(output, input)).await;
                    server.end().await;
                    served
                }
                Err(error) => {
                    let name = program.words.first().map(|word| word.display().to_string());
                    let name = name.unwrap_or_default();
                    tracing::error!(program = name, %error, "the server was not started");
                    Ok(())
                }
            },
            Origin::Url { place, client } => {
                self.serve_all(Peer::over_http(Arc::clone(client), place.clone())).await
            }
        }
    }

    async fn serve_all(&mut self, peer: Peer) -> Result<(), ImportError> {
        let peer = Arc::new(peer);
        let stopped = self.stopped.clone();
        let served = tokio::select! {
            served = self.serve(&peer) => served,
            () = stopped.cancelled() => Ok(()),
        };
        self.running.send_replace(None);
        peer.close().await;
        served
    }

    async fn serve(&mut self, peer: &Arc<Peer>) -> Result<(), ImportError> {
        if let Err(error) = peer.begin().await {
            let hint = match &self.options.origin {
                Origin::Program(program) if program.permissions.is_empty() => {
                    "it has no permissions; a program that needs files or the network is given them with --permissions"
                }
                Origin::Program(_) => "the lines of its stderr above may say why",
                Origin::Url { .. } => {
                    "check that the URL is that of the server's MCP endpoint, which often ends with /mcp"
                }
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
