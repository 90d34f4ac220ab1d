//! Keeps imported capabilities declared: lists and a lock file in; calls passed to whoever makes them, out.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use capd_client::proto::capability::CapabilityId;
use capd_client::proto::message::{Descriptor, DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use capd_client::{Client, ClientError, Handler, Invocation, WireError, to_cbor};
use capd_proto::code::Code;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::drift::{Reconciled, reconcile};
use super::kind::Kind;
use super::lock::{Entry, Lock, LockError};
use super::tool::{Listed, Tool};
use crate::sidecar::Sidecar;

/// What is served of an import, and how.
#[derive(Clone, Debug)]
pub struct ServedOptions {
    /// What its capabilities' names begin with.
    pub namespace: String,
    /// The lock file.
    pub lock: PathBuf,
    /// What callers must have been granted.
    pub permissions: Vec<String>,
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
    /// What is imported is not what was approved.
    #[error("{0}")]
    Peer(String),
}

/// A tool as it is served.
#[derive(Debug)]
pub struct Served {
    /// The capability.
    pub id: CapabilityId,
    /// The tool.
    pub tool: Tool,
    /// Whether its owner says that running a call twice does no harm.
    pub is_idempotent: bool,
    /// Why its calls are refused, if they are.
    unserved: Option<String>,
}

/// A call under way, and its one outcome.
pub type Outcome = Pin<Box<dyn Future<Output = Result<Bytes, WireError>> + Send>>;

/// Makes the calls of imported tools.
pub trait Caller: Send + Sync + 'static {
    /// Makes one call of a tool that is served.
    fn call(&self, served: Arc<Served>, invocation: Invocation) -> Outcome;
}

/// What is served at the moment, by the names of the capabilities.
type Tools = Arc<Mutex<HashMap<String, Arc<Served>>>>;

/// The capabilities of one import.
pub struct Import<'a> {
    kind: &'static Kind,
    sidecar: &'a Sidecar,
    options: ServedOptions,
    caller: Arc<dyn Caller>,
    tools: Tools,
    /// What was listed last.
    listed: Option<Listed>,
    /// Who signed the list, where lists are signed.
    signer: Option<String>,
    /// The link that has our declarations.
    link: Option<Client>,
    /// When the lock file was written that we know.
    lock_read: Option<SystemTime>,
    /// The news that were told last.
    told: Vec<String>,
}

impl Served {
    /// The tool of an entry of the lock; none for an entry that was not checked.
    fn of(entry: &Entry, unserved: Option<String>) -> Option<Self> {
        Some(Self {
            id: format!("{}:{}", entry.capability, entry.version).parse().ok()?,
            tool: entry.tool().ok()?,
            is_idempotent: entry.idempotent,
            unserved,
        })
    }
}

/// Serves the calls of one link.
struct Calls {
    kind: &'static Kind,
    tools: Tools,
    caller: Arc<dyn Caller>,
}

impl Handler for Calls {
    fn invoke(&self, invocation: Invocation) -> Outcome {
        let served = locked(&self.tools).get(invocation.capability.name.as_str()).cloned();
        let refused = |why: String| -> Outcome { Box::pin(std::future::ready(Err(not_executed(why)))) };
        match served {
            None => refused(format!("the {} is not imported any more", self.kind.item)),
            Some(served) => match &served.unserved {
                Some(why) => refused(format!("{} {:?}: {why}", self.kind.item, served.tool.name)),
                None => self.caller.call(served, invocation),
            },
        }
    }
}

impl<'a> Import<'a> {
    /// An import of which nothing is declared yet.
    pub fn new(
        kind: &'static Kind,
        sidecar: &'a Sidecar,
        options: ServedOptions,
        caller: Arc<dyn Caller>,
    ) -> Self {
        Self {
            kind,
            sidecar,
            options,
            caller,
            tools: Tools::default(),
            listed: None,
            signer: None,
            link: None,
            lock_read: None,
            told: Vec::new(),
        }
    }

    /// Declares what was approved before anything is listed: its calls wait, or are refused with a reason. A wrong socket is told
    /// at once; a sidecar that is being started is waited for.
    ///
    /// **Errors:** [`ImportError`].
    pub async fn declare_known(&mut self) -> Result<(), ImportError> {
        self.sidecar.client_by(Instant::now() + SIDECAR_WAIT).await?;
        if let Some(lock) = Lock::read(&self.options.lock)? {
            self.keep(&lock, &Reconciled::default());
            self.declare().await?;
        }
        Ok(())
    }

    /// Takes a list, holds it against the lock file, and declares what came of it.
    ///
    /// **Errors:** [`ImportError`].
    pub async fn take(&mut self, listed: Listed, signer: Option<String>) -> Result<(), ImportError> {
        (self.listed, self.signer) = (Some(listed), signer);
        self.reconcile()?;
        self.declare().await
    }

    /// How many tools are served.
    pub fn tools_len(&self) -> usize {
        locked(&self.tools).len()
    }

    /// Ready when the link to the sidecar has closed, or somebody else has written the lock file, as `approve` does. What that
    /// asks for is done by [`renew`](Self::renew).
    pub async fn changed(&self) {
        let link_closed = async {
            match &self.link {
                Some(link) => drop(link.closed().await),
                None => std::future::pending().await,
            }
        };
        let lock_changed = async {
            loop {
                sleep(LOCK_EVERY).await;
                if self.written_at() != self.lock_read {
                    return;
                }
            }
        };
        tokio::select! {
            () = link_closed => tracing::warn!("the link to the sidecar closed"),
            () = lock_changed => {}
        }
    }

    /// Declares anew after [`changed`](Self::changed).
    ///
    /// **Errors:** [`ImportError`].
    pub async fn renew(&mut self) -> Result<(), ImportError> {
        self.reconcile()?;
        self.declare().await
    }

    fn written_at(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.options.lock).and_then(|found| found.modified()).ok()
    }

    /// Holds the last list against the lock file, and keeps both.
    fn reconcile(&mut self) -> Result<(), ImportError> {
        let Some(listed) = &self.listed else { return Ok(()) };
        let known = Lock::read(&self.options.lock)?;
        let mut lock = known.clone().unwrap_or_default();
        if known.is_none() {
            lock.signer.clone_from(&self.signer);
        } else if lock.signer != self.signer {
            return Err(self.other_signer(lock.signer.as_deref()));
        }
        let done = reconcile(&mut lock, known.is_none(), &self.options.namespace, listed);
        if known.as_ref() != Some(&lock) {
            lock.write(&self.options.lock, self.kind)?;
        }
        self.lock_read = self.written_at();
        for line in done.news.iter().filter(|line| !self.told.contains(line)) {
            tracing::warn!(news = line, "what the {} lists differs", self.kind.peer);
        }
        self.keep(&lock, &done);
        self.told = done.news;
        Ok(())
    }

    fn other_signer(&self, approved: Option<&str>) -> ImportError {
        let named = |signer: Option<&str>| signer.unwrap_or("nobody").to_owned();
        ImportError::Peer(format!(
            "{}: signer is {}, and the {}'s list is signed by {}; if that is right, change signer in the file, or delete the \
             file to approve everything anew",
            self.options.lock.display(),
            named(approved),
            self.kind.peer,
            named(self.signer.as_deref())
        ))
    }

    fn keep(&self, lock: &Lock, done: &Reconciled) {
        let mut tools = HashMap::new();
        for entry in lock.tools.iter().filter(|entry| entry.approved) {
            let why = done.unserved.get(&entry.name).cloned();
            if let Some(served) = Served::of(entry, why) {
                tools.insert(entry.capability.clone(), Arc::new(served));
            }
        }
        *locked(&self.tools) = tools;
    }

    async fn declare(&mut self) -> Result<(), ImportError> {
        let descriptors = self.descriptors()?;
        if descriptors.is_empty() {
            tracing::warn!("no {} of the {} can be served", self.kind.item, self.kind.peer);
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
                    tracing::warn!(%error, "the capabilities were not declared; trying again");
                    self.link = None;
                    self.sidecar.forget().await;
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
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
                let (kind, tools, caller) = (self.kind, Arc::clone(&self.tools), Arc::clone(&self.caller));
                client.serve(CALLS_MAX, Calls { kind, tools, caller })?;
                self.link = Some(client.clone());
                client
            }
        };
        client.declare(descriptors).await
    }

    fn descriptors(&self) -> Result<Vec<Descriptor>, ImportError> {
        let mut served: Vec<_> = locked(&self.tools).values().cloned().collect();
        served.sort_by(|a, b| a.id.cmp(&b.id));
        served.iter().map(|served| self.descriptor(served)).collect()
    }

    fn descriptor(&self, served: &Served) -> Result<Descriptor, ImportError> {
        let schema = |document: &str| {
            Some(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, document.as_bytes()))))
        };
        let timeout = self.options.timeout;
        let major = served.id.version.major();
        // Every version of a major one serves the callers of those before it: that was proven.
        let range = format!(">={major}.0.0 <={}", served.id.version).parse().ok();
        DescriptorDraft {
            input_schema: schema(&served.tool.input.to_string()),
            output_schema: schema(&served.tool.result_schema(self.kind)),
            supported_ranges: range.into_iter().collect(),
            description: served.tool.description.clone(),
            category: Some(self.kind.category.to_owned()),
            idempotent: Some(served.is_idempotent),
            permissions: self.options.permissions.clone(),
            timeout_ms: timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            ..DescriptorDraft::new(served.id.clone())
        }
        .finish()
        .map_err(|error| ImportError::Descriptor(served.id.to_string(), error.to_string()))
    }
}

/// 5002, with the word of its provider that nothing was executed: a sidecar says 5002 as well where a provider left in the middle.
pub fn not_executed(message: impl Into<String>) -> WireError {
    let details = Some(to_cbor(&json!({"executed": false})));
    WireError { details, ..WireError::new(Code::UNAVAILABLE, message) }
}

/// Whether the details of a 5002 are a provider's word that nothing was executed.
pub fn is_not_executed(details: Option<&Value>) -> bool {
    details.is_some_and(|details| details["executed"] == false)
}

fn locked(tools: &Tools) -> MutexGuard<'_, HashMap<String, Arc<Served>>> {
    // The table is replaced as a whole, so a panic leaves none half done.
    tools.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls in flight at once.
const CALLS_MAX: usize = 256;
/// Pauses between tries to declare.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a sidecar may be away when an import starts.
const SIDECAR_WAIT: Duration = Duration::from_secs(10);
/// How often the lock file is looked at.
const LOCK_EVERY: Duration = Duration::from_millis(250);
