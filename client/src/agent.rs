//! Capabilities and functions over types that serde knows in; an agent that serves them, also after its sidecar restarts,
//! out.
//!
//! ```no_run
//! use capd_client::{Agent, Capability, Endpoint, Invocation, Options, WireError};
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//!
//! #[derive(Deserialize)]
//! struct Request {
//!     text: String,
//! }
//!
//! #[derive(Serialize)]
//! struct Response {
//!     words: usize,
//! }
//!
//! # async fn run() -> Result<(), capd_client::ClientError> {
//! let words = Capability::new("org.example.words", "1.0.0")?
//!     .description("Counts the words of a text")
//!     .idempotent(true)
//!     .input_schema(&json!({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}));
//! let agent = Agent::new().capability(words, async |request: Request, _call: Invocation| {
//!     Ok(Response { words: request.text.split_whitespace().count() })
//! })?;
//! agent.serve(Endpoint::from_env()?, Options::default(), std::future::pending()).await
//! # }
//! ```

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::message::{Descriptor, DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::again::{PAUSE_MAX, PAUSE_MIN, is_passing};
use super::{Client, ClientError, Endpoint, Handler, Invocation, Options, WireError, to_cbor};

/// A capability as its provider declares it.
#[derive(Clone, Debug)]
pub struct Capability {
    draft: DescriptorDraft,
}

impl Capability {
    /// A capability of which nothing but its name and version is known: any params, any result, not idempotent.
    ///
    /// **Errors:** [`ClientError::Invalid`] for a name or a version that is none.
    pub fn new(name: &str, version: &str) -> Result<Self, ClientError> {
        let id = format!("{name}:{version}");
        let parsed: Result<CapabilityId, _> = id.parse();
        let id = parsed.map_err(|error| ClientError::Invalid(format!("{id:?}: {error}")))?;
        Ok(Self { draft: DescriptorDraft::new(id) })
    }

    /// What it does, for people and models.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.draft.description = Some(text.into());
        self
    }

    /// Whether running a call twice does no harm: such calls are not journaled, and may move to another provider.
    pub fn idempotent(mut self, is_idempotent: bool) -> Self {
        self.draft.idempotent = Some(is_idempotent);
        self
    }

    /// Says that every provider of this version remembers the ids of calls in one store that all of them share, and answers a
    /// call whose id it has seen with the first outcome. The key is the pair of [`Invocation::from`] and
    /// [`Invocation::id`], the same at each of them. Sidecars then move such a call when its provider is lost, and it still takes
    /// effect once.
    ///
    /// [`Invocation::from`]: super::Invocation::from
    /// [`Invocation::id`]: super::Invocation::id
    pub fn idempotent_by_id(mut self) -> Self {
        self.draft.by_id = true;
        self
    }

    /// How long a call may take that names no time of its own.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.draft.timeout_ms = Some(super::ms(timeout));
        self
    }

    /// The JSON Schema that params must fit; the sidecar enforces it before they come here.
    pub fn input_schema(mut self, schema: &Value) -> Self {
        self.draft.input_schema = Some(inline(schema));
        self
    }

    /// The JSON Schema that results must fit; both sidecars enforce it.
    pub fn output_schema(mut self, schema: &Value) -> Self {
        self.draft.output_schema = Some(inline(schema));
        self
    }

    /// Everything else that a descriptor may say.
    pub const fn draft(&mut self) -> &mut DescriptorDraft {
        &mut self.draft
    }
}

fn inline(schema: &Value) -> SchemaSource {
    SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, schema.to_string().as_bytes())))
}

/// An agent that provides capabilities, each with a function of its own.
pub struct Agent {
    descriptors: Vec<Descriptor>,
    handlers: BTreeMap<CapabilityId, Arc<dyn Handler>>,
    calls_max: usize,
}

impl Default for Agent {
    fn default() -> Self {
        Self::new()
    }
}

impl Agent {
    /// An agent without capabilities.
    pub const fn new() -> Self {
        Self { descriptors: Vec::new(), handlers: BTreeMap::new(), calls_max: CALLS_MAX_DEFAULT }
    }

    /// Most calls that run at once, 64 unless it is set; one more is refused with 5004.
    pub const fn calls_max(mut self, calls_max: usize) -> Self {
        self.calls_max = calls_max;
        self
    }

    /// Serves a capability with a function from params, and the call that they came with, to a result.
    ///
    /// Params that are no `Req` are refused with 4004. Each call runs in a task of its own. A call that is cancelled ends by
    /// its future being dropped; a function that must do more looks at [`Invocation::cancelled`] itself. An error of the
    /// function's own is what its caller gets; a panic is 5001, without its text.
    ///
    /// **Errors:** [`ClientError::Invalid`] for a declaration that contradicts itself, or that is there already.
    pub fn capability<Req, Res, F, A>(self, capability: Capability, handler: F) -> Result<Self, ClientError>
    where
        Req: DeserializeOwned + Send + 'static,
        Res: Serialize + Send + 'static,
        F: Fn(Req, Invocation) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Res, WireError>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.handler(capability, move |invocation: Invocation| typed(Arc::clone(&handler), invocation))
    }

    /// As [`capability`](Self::capability), with a handler of CBOR.
    ///
    /// **Errors:** as [`capability`](Self::capability).
    pub fn handler(mut self, capability: Capability, handler: impl Handler) -> Result<Self, ClientError> {
        let descriptor = capability.draft.finish();
        let descriptor =
            descriptor.map_err(|error| ClientError::Invalid(format!("{}: {error}", capability.draft.id)))?;
        let id = descriptor.id.clone();
        if self.handlers.insert(id.clone(), Arc::new(handler)).is_some() {
            return Err(ClientError::Invalid(format!("{id} is provided already")));
        }
        self.descriptors.push(descriptor);
        Ok(self)
    }

    /// Serves until `stop` is done: then no further call is taken, and those that run may end.
    ///
    /// A sidecar that is not there yet is waited for, however long that takes. When it restarts, the link is opened anew
    /// and the same is declared again. What ran over the lost link is cancelled: nobody can take its result.
    ///
    /// **Errors:** what the sidecar refuses for good: the declaration, or this client.
    pub async fn serve(
        self,
        endpoint: Endpoint,
        options: Options,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ClientError> {
        let Self { descriptors, handlers, calls_max } = self;
        let routes = Arc::new(Routes { handlers });
        let options = Options { wait: FOREVER, ..options };
        let mut stop = std::pin::pin!(stop);
        let mut pause = PAUSE_MIN;
        loop {
            let client = tokio::select! {
                () = &mut stop => return Ok(()),
                client = Client::connect_within(endpoint.clone(), options.clone()) => client?,
            };
            let opened = Instant::now();
            client.serve(calls_max, Arc::clone(&routes))?;
            tokio::select! {
                () = &mut stop => {
                    client.close().await;
                    return Ok(());
                }
                ended = session(&client, &descriptors) => ended?,
            }
            // A link that lasted is no reason to wait.
            pause = if opened.elapsed() > PAUSE_MAX { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            tokio::select! {
                () = &mut stop => return Ok(()),
                () = sleep(pause) => {}
            }
        }
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ids = self.descriptors.iter().map(|descriptor| descriptor.id.to_string());
        f.debug_struct("Agent").field("capabilities", &ids.collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// Declares, and waits until the link is gone. **Errors:** a declaration that stays refused.
async fn session(client: &Client, descriptors: &[Descriptor]) -> Result<(), ClientError> {
    loop {
        match client.declare(descriptors).await {
            Ok(()) => {
                let reason = client.closed().await;
                tracing::warn!(reason, "the link to the sidecar closed; declaring again once it is back");
                return Ok(());
            }
            Err(ClientError::Refused(refusal)) => match refusal.retry_after() {
                Some(pause) => sleep(pause).await,
                None => return Err(ClientError::Refused(refusal)),
            },
            Err(ClientError::Closed(_) | ClientError::Timeout { .. }) => return Ok(()),
            Err(error) if is_passing(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Each capability's handler.
struct Routes {
    handlers: BTreeMap<CapabilityId, Arc<dyn Handler>>,
}

impl Handler for Arc<Routes> {
    fn invoke(
        &self,
        invocation: Invocation,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, WireError>> + Send>> {
        match self.handlers.get(&invocation.capability) {
            Some(handler) => handler.invoke(invocation),
            None => Box::pin(async {
                Err(WireError::new(Code::CAPABILITY_NOT_FOUND, "this agent does not serve it"))
            }),
        }
    }
}

async fn typed<Req, Res, F, A>(handler: Arc<F>, invocation: Invocation) -> Result<Bytes, WireError>
where
    Req: DeserializeOwned,
    Res: Serialize,
    F: Fn(Req, Invocation) -> A,
    A: Future<Output = Result<Res, WireError>>,
{
    let params = serde_json::from_value(invocation.json()?);
    let params =
        params.map_err(|error| WireError::new(Code::SCHEMA_VIOLATION, format!("params: {error}")))?;
    let cancelled = invocation.cancelled.clone();
    let result = tokio::select! {
        biased;
        () = cancelled.cancelled() => return Err(WireError::new(Code::CANCELLED, "the call was cancelled")),
        result = handler(params, invocation) => result?,
    };
    Ok(to_cbor(&serde_json::to_value(result).map_err(WireError::internal)?))
}

/// Calls that run at once unless an agent says otherwise.
const CALLS_MAX_DEFAULT: usize = 64;
/// A provider waits for its sidecar however long that takes.
const FOREVER: Duration = Duration::MAX;
