//! Keeps a server running and its capabilities declared: a program and a lock file in; calls served, out.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use capd_client::proto::message::{Descriptor, DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use capd_client::{Client, ClientError, Handler, Invocation, WireError};
use capd_proto::code::Code;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::call::{self, Served};
use super::child::Program;
use super::drift::{Reconciled, reconcile};
use super::lock::{Lock, LockError};
use super::peer::{Peer, PeerError};
use super::tool::Listed;
use crate::sidecar::Sidecar;

/// What is imported, and how.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// What its capabilities' names begin with.
    pub namespace: String,
    /// The lock file.
    pub lock: PathBuf,
    /// The server.
    pub program: Program,
    /// How long a call may run when its caller says nothing.
    pub timeout: Option<Duration>,
}

/// Why an import ends.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The lock file cannot be used.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The sidecar cannot be reached, or refuses.
    #[error("{0}")]
    Sidecar(#[from] ClientError),
    /// A capability cannot be declared.
    #[error("{0} cannot be declared: {1}")]
    Descriptor(String, String),
}

/// What all calls share.
struct Shared {
    tools: Mutex<HashMap<String, Arc<Served>>>,
    /// The running server; none while there is none.
    peer: watch::Sender<Option<Arc<Peer>>>,
}

impl Shared {
    fn tools(&self) -> MutexGuard<'_, HashMap<String, Arc<Served>>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the calls of one link.
struct Calls(Arc<Shared>);

impl Handler for Calls {
    fn invoke(
        &self,
        invocation: Invocation,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, WireError>> + Send>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let served = shared.tools().get(invocation.capability.name.as_str()).cloned();
            let Some(served) = served else {
                return Err(WireError::new(Code::UNAVAILABLE, "the tool is not imported any more"));
            };
            call::call(&served, shared.peer.subscribe(), invocation).await
        })
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
    let mut bridge = Bridge {
        sidecar,
        options,
        shared: Arc::new(Shared { tools: Mutex::default(), peer: watch::Sender::new(None) }),
        listed: None,
        link: None,
        lock_read: None,
        told: Vec::new(),
    };
    // A wrong socket is told before the server runs; a sidecar that is being started is waited for.
    sidecar.client_by(Instant::now() + SIDECAR_WAIT).await?;
    bridge.declare_known().await?;
    let mut pause = PAUSE_MIN;
    loop {
        let started = Instant::now();
        tokio::select! {
            ended = bridge.run_once() => ended?,
            () = stopped.cancelled() => break,
        }
        bridge.shared.peer.send_replace(None);
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
    sidecar: &'a Sidecar,
    options: &'a ImportOptions,
    shared: Arc<Shared>,
    /// What the server listed last.
    listed: Option<Listed>,
    /// The link that has our declarations.
    link: Option<Client>,
    /// When the lock file was written that we know.
    lock_read: Option<SystemTime>,
    /// The news that were told last.
    told: Vec<String>,
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
        self.shared.peer.send_replace(None);
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
        if let Err(error) = self.list(peer).await {
            tracing::error!(%error, "the server's tools were not listed");
            return Ok(());
        }
        self.reconcile()?;
        self.declare().await?;
        self.shared.peer.send_replace(Some(Arc::clone(peer)));
        tracing::info!(
            tools = self.shared.tools().len(),
            namespace = self.options.namespace,
            "the server's tools are served"
        );
        loop {
            let link = self.link.clone();
            let link_closed = async {
                match &link {
                    Some(link) => drop(link.closed().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = peer.closed() => return Ok(()),
                () = link_closed => {
                    tracing::warn!("the link to the sidecar closed");
                    self.link = None;
                }
                () = peer.list_changed() => match self.list(peer).await {
                    Ok(()) => self.reconcile()?,
                    Err(PeerError::NotSent | PeerError::Broken) => return Ok(()),
                    Err(error) => tracing::error!(%error, "the server's changed tools were not listed"),
                },
                () = self.lock_changed() => self.reconcile()?,
            }
            self.declare().await?;
        }
    }

    async fn list(&mut self, peer: &Peer) -> Result<(), PeerError> {
        self.listed = Some(peer.tools().await?);
        Ok(())
    }

    /// Ready when somebody else has written the lock file, as `capd-mcp approve` does.
    async fn lock_changed(&self) {
        loop {
            sleep(LOCK_EVERY).await;
            if self.written_at() != self.lock_read {
                return;
            }
        }
    }

    fn written_at(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.options.lock).and_then(|found| found.modified()).ok()
    }

    /// Holds the last list against the lock file, and keeps both.
    fn reconcile(&mut self) -> Result<(), ImportError> {
        let Some(listed) = &self.listed else { return Ok(()) };
        let known = Lock::read(&self.options.lock)?;
        let mut lock = known.clone().unwrap_or_default();
        let done = reconcile(&mut lock, known.is_none(), &self.options.namespace, listed);
        if known.as_ref() != Some(&lock) {
            lock.write(&self.options.lock)?;
        }
        self.lock_read = self.written_at();
        for line in done.news.iter().filter(|line| !self.told.contains(line)) {
            tracing::warn!(news = line, "the server's tools differ");
        }
        self.keep(&lock, &done);
        self.told = done.news;
        Ok(())
    }

    fn keep(&self, lock: &Lock, done: &Reconciled) {
        let mut tools = HashMap::new();
        for entry in lock.tools.iter().filter(|entry| entry.approved) {
            let why = done.unserved.get(&entry.name).cloned();
            if let Some(served) = Served::of(entry, why) {
                tools.insert(entry.capability.clone(), Arc::new(served));
            }
        }
        *self.shared.tools() = tools;
    }

    /// Declares what was approved before the server runs: its calls wait, or are refused with a reason.
    async fn declare_known(&mut self) -> Result<(), ImportError> {
        if let Some(lock) = Lock::read(&self.options.lock)? {
            self.keep(&lock, &Reconciled::default());
            self.declare().await?;
        }
        Ok(())
    }

    async fn declare(&mut self) -> Result<(), ImportError> {
        let descriptors = self.descriptors()?;
        if descriptors.is_empty() {
            tracing::warn!("no tool of the server can be served");
            return Ok(());
        }
        let mut pause = PAUSE_MIN;
        loop {
            match self.declare_once(&descriptors).await {
                // A sidecar that is away, or that goes away meanwhile, comes back.
                Err(
                    error @ (ClientError::Connect { .. }
                    | ClientError::Closed(_)
                    | ClientError::Unsent(_)
                    | ClientError::Timeout { .. }),
                ) => {
                    tracing::warn!(%error, "the tools were not declared; trying again");
                    self.link = None;
                    self.sidecar.forget().await;
                    sleep(pause).await;
                    pause = (pause * 2).min(LINK_PAUSE_MAX);
                }
                other => return Ok(other?),
            }
        }
    }

    async fn declare_once(&mut self, descriptors: &[Descriptor]) -> Result<(), ClientError> {
        let client = match self.link.clone().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => {
                let client = self.sidecar.client().await?;
                client.serve(CALLS_MAX, Calls(Arc::clone(&self.shared)))?;
                self.link = Some(client.clone());
                client
            }
        };
        client.declare(descriptors).await
    }

    fn descriptors(&self) -> Result<Vec<Descriptor>, ImportError> {
        let mut served: Vec<_> = self.shared.tools().values().cloned().collect();
        served.sort_by(|a, b| a.id.cmp(&b.id));
        let schema = |document: &str| {
            Some(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, document.as_bytes()))))
        };
        let timeout_ms = self.options.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let descriptor = |served: &Arc<Served>| {
            let major = served.id.version.major();
            // Every version of a major one serves the callers of those before it: that was proven.
            let range = format!(">={major}.0.0 <={}", served.id.version).parse().ok();
            DescriptorDraft {
                input_schema: schema(&served.tool.input.to_string()),
                output_schema: schema(&served.tool.result_schema()),
                supported_ranges: range.into_iter().collect(),
                description: served.tool.description.clone(),
                category: Some("mcp".to_owned()),
                idempotent: Some(served.is_idempotent),
                permissions: self.options.program.permissions.clone(),
                timeout_ms,
                ..DescriptorDraft::new(served.id.clone())
            }
            .finish()
            .map_err(|error| ImportError::Descriptor(served.id.to_string(), error.to_string()))
        };
        served.iter().map(descriptor).collect()
    }
}

/// Calls in flight at once.
const CALLS_MAX: usize = 256;
/// Pauses between starts of a server that ends.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
const LINK_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a sidecar may be away when an import starts.
const SIDECAR_WAIT: Duration = Duration::from_secs(10);
/// A server that ran for so long is started again at once.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// How often the lock file is looked at.
const LOCK_EVERY: Duration = Duration::from_millis(250);
