//! Connects Rust programs to a sidecar: typed requests in, typed answers out. `capctl`, tests and other programs use
//! it.
//!
//! A [`Client`] is one local link to a sidecar. It speaks as that sidecar's agent: it calls and queries, and it can
//! [`serve`](Client::serve) what it [`declare`](Client::declare)s. The sidecar already checked times and signatures, so
//! the client only matches answers by `reply_to` and reads their bodies. Read in this order: `call` describes a call and
//! its answer, `handle` is a call in flight, `notices` passes on its progress and end, `calls` lists calls, `audit` reads
//! the audit log, `query` and `schema` find capabilities, `provide` is the other side, `validated` checks payloads there.
//! `typed` makes calls over serde's types with its `options`; `attempts` repeats them where that cannot run them twice,
//! `again` opens the link anew, and `outcome` tells what an error says of a call's effect. `tools` does the same for
//! language models, `agent` is a typed provider, `dispatch` delivers incoming messages, `outgoing` builds messages.

mod again;
mod agent;
mod attempts;
mod audit;
mod bodies;
mod call;
mod calls;
mod dispatch;
mod document;
mod endpoint;
mod error;
mod handle;
mod json;
mod metrics;
mod notices;
mod operate;
mod options;
mod outcome;
mod outgoing;
mod policy;
mod provide;
mod query;
mod schema;
mod tools;
mod typed;
mod validated;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::capability::CapabilityName;
use capd_proto::cbor::json::from_json;
use capd_proto::code::Code;
use capd_proto::envelope::{Ext, MessageId};
use capd_proto::identity::Did;
use capd_proto::limits;
use capd_proto::message::Type;
use capd_proto::negotiate::Negotiate;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use capd_net::dial::ConnectError;
use capd_net::local::{self, Token};
use capd_net::{CloseReason, Host, Link, Settings, System};

/// The transport under the link: clocks, randomness and tasks for [`Client::connect_stream`].
pub use capd_net as net;
/// The protocol's own types: names, versions, codes, descriptors.
pub use capd_proto as proto;

pub use agent::{Agent, Capability};
pub use call::{Answer, CallRequest, Progress, Session, Target, Trace};
pub use calls::{CallFilter, CallList};
pub use capd_proto::message::{
    CallPhase, CallSide, CallState, CallTimeline, CallTry, CancelState, JournalCounters, ListedCall, Order,
    ResultStatus, Role, TryOutcome, WantedState,
};
pub use document::{call_json, descriptor_hashes, descriptor_json, peer_json};
pub use endpoint::Endpoint;
pub use error::{ClientError, Violation, WireError};
pub use handle::CallHandle;
pub use json::{JsonFault, cbor_of_json, value_of_json};
pub use options::{BuiltAgainst, CallOptions, Schema};
pub use outcome::Outcome;
pub use provide::{Handler, Invocation, Reporter};
pub use query::{Offer, Page, Query};
pub use schema::{Description, SchemaSide};
pub use tools::{ToolFormat, ToolList, newest};
pub use typed::{Event, TypedCall};
pub use validated::{Sides, Validated, Validator};

use again::Again;
use dispatch::{Dispatch, Reply, Waiting};
use outgoing::Outgoing;

/// What a client may choose; every field has a default.
#[derive(Clone, Debug)]
pub struct Options {
    /// Time for connecting, handshake and HELLO.
    pub connect_timeout: Duration,
    /// Time for the answer to anything but a call.
    pub request_timeout: Duration,
    /// How long typed calls, and [`Client::connect_within`], wait for a sidecar that cannot be reached, where a call has no
    /// timeout of its own.
    pub wait: Duration,
    /// Most requests that wait for an answer at once.
    pub pending_max: usize,
    /// The name shown in HELLO.
    pub agent_name: String,
    /// Whether the unix socket may be anybody's; without it, it must be this user's or root's.
    pub any_owner: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_millis(limits::HANDSHAKE_TIMEOUT_MS_DEFAULT),
            request_timeout: Duration::from_secs(10),
            wait: Duration::from_secs(30),
            pending_max: 65_536,
            agent_name: "capd-client".to_owned(),
            any_owner: false,
        }
    }
}

/// One local link to a sidecar, spoken over as its agent. Clones share the link; it closes with the last of them.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
    /// How a link is opened in place of this one; none over a byte stream.
    again: Option<Arc<Again>>,
}

struct Core {
    link: Arc<Link>,
    dispatch: Arc<Dispatch>,
    system: Arc<System>,
    did: Did,
    request_timeout: Duration,
    /// Keeps the link's tasks going.
    _host: Arc<Host>,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.link.close(CloseReason::Local("the client was dropped".to_owned()));
    }
}

impl Client {
    /// Opens a link and learns whose sidecar it is.
    ///
    /// ```no_run
    /// use capd_client::{Client, Endpoint, Options};
    ///
    /// # async fn run() -> Result<(), capd_client::ClientError> {
    /// let client = Client::connect(Endpoint::Unix("/run/capd/agent.sock".into()), Options::default()).await?;
    /// println!("this link speaks as {}", client.did());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **Errors:** [`ClientError::Connect`]; [`ClientError::Owner`] before anything was sent.
    pub async fn connect(endpoint: Endpoint, options: Options) -> Result<Self, ClientError> {
        let any_owner = options.any_owner;
        let again = Again::new(endpoint.clone(), options.clone());
        let opening = Opening::new(options, System::real());
        let connected = match &endpoint {
            Endpoint::Unix(path) => local::connect_unix(&opening.host, path, any_owner).await,
            Endpoint::Tcp { addr, token } => {
                local::connect_tcp(&opening.host, *addr, Token::new(token.clone())).await
            }
        };
        opening.opened(connected, &endpoint, Some(again))
    }

    /// As [`connect`](Self::connect), on `system` and over a byte stream whose other end the sidecar was given, such as
    /// a pipe within this process.
    ///
    /// **Errors:** [`ClientError::Connect`].
    pub async fn connect_stream<S>(stream: S, options: Options, system: System) -> Result<Self, ClientError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let opening = Opening::new(options, system);
        let connected = local::connect_stream(&opening.host, stream).await;
        opening.opened(connected, &"a byte stream", None)
    }

    /// The DID of the sidecar's agent, as which this client speaks.
    pub fn did(&self) -> &Did {
        &self.core.did
    }

    /// Makes a call. What comes of it is the handle's to tell.
    ///
    /// ```no_run
    /// use capd_client::{CallRequest, Client, ClientError, Target};
    /// use serde_json::json;
    ///
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let target = Target::newest("org.example.words".parse()?);
    /// let handle = client.call(CallRequest::new(target).params_json(&json!({"text": "one two"})))?;
    /// match handle.outcome().await {
    ///     Ok(answer) => println!("{:?} from {}", answer.json(), answer.from),
    ///     Err(ClientError::Refused(error)) => println!("nothing was executed: {error}"),
    ///     Err(ClientError::Result(error)) => println!("the provider failed: {error}"),
    ///     Err(error) => println!("nobody knows whether it was executed: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **Errors:** [`ClientError::Invalid`] for params that are not one CBOR item, [`ClientError::Unsent`] and
    /// [`ClientError::Closed`]; nothing was sent then.
    pub fn call(&self, request: CallRequest) -> Result<CallHandle, ClientError> {
        bodies::check_payload(&request.params, bodies::PAYLOAD_DEPTH)
            .map_err(|error| ClientError::Invalid(format!("params: {error}")))?;
        let body = bodies::invoke(&request);
        let after = request.timeout.map_or(CALL_WAIT, |time| time.saturating_add(CALL_GRACE));
        let after = request.wait.unwrap_or(after);
        let ttl = request.timeout.map_or(CALL_WAIT, |time| time.saturating_add(CALL_TTL_MARGIN));
        let ttl = request.ttl.unwrap_or(if request.key.is_some() { KEY_TTL } else { ttl });
        let ext = request.ext()?;
        let message = Outgoing {
            id: request.id,
            to: request.to.as_ref().unwrap_or(&self.core.did),
            ttl_ms: ms(ttl),
            thread_id: request.thread_id.as_deref(),
            ext: ext.as_deref().map_or(Ext::None, Ext::Raw),
            ..Outgoing::new(Type::CapInvoke, &self.core.did, &body)
        };
        let (teller, listener) = notices::notices(PROGRESS_MAX);
        let id = self.send(&message, Waiting::call(teller, after), after)?;
        let is_named = request.key.is_some() || request.known_call().is_some();
        Ok(CallHandle::new(id, self.clone(), listener, is_named))
    }

    /// Asks for a call of this agent to be cancelled; once more, when the link is lost and can be opened anew in the time
    /// of a request.
    ///
    /// **Errors:** [`ClientError`]; that there is no such call is no error but [`CancelState::Unknown`].
    pub async fn cancel(&self, id: MessageId) -> Result<CancelState, ClientError> {
        match self.cancel_once(id).await {
            Err(ClientError::Closed(reason)) if self.again.is_some() => {
                let wait = self.core.request_timeout.min(self.wait());
                let live = self.live(again::later(Instant::now(), wait)).await;
                live.map_err(|_| ClientError::Closed(reason))?.cancel_once(id).await
            }
            state => state,
        }
    }

    async fn cancel_once(&self, id: MessageId) -> Result<CancelState, ClientError> {
        let body = bodies::cancel(id);
        let message = Outgoing::new(Type::Request, &self.core.did, &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::cancel_state(&reply.body, id)
    }

    /// Agrees with the sidecar, or with the agent `to`, on one version for a while.
    ///
    /// **Errors:** [`ClientError`]; no version that fits is a refusal with 4003.
    pub async fn negotiate(
        &self,
        name: &CapabilityName,
        wanted: &Negotiate,
        to: Option<&Did>,
    ) -> Result<Session, ClientError> {
        let body = bodies::negotiate(name, wanted);
        let message = Outgoing {
            to: to.unwrap_or(&self.core.did),
            ..Outgoing::new(Type::Request, &self.core.did, &body)
        };
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::accepted(&reply.body, name)
    }

    /// The time that a PING message to `to` and its PONG take.
    ///
    /// **Errors:** [`ClientError`]; [`ClientError::Timeout`] after `wait`.
    pub async fn ping(&self, to: &Did, wait: Duration) -> Result<Duration, ClientError> {
        let sent = Instant::now();
        let body = bodies::ping();
        let message = Outgoing { to, ..Outgoing::new(Type::Ping, &self.core.did, &body) };
        self.request(&message, Type::Pong, wait).await?;
        Ok(sent.elapsed())
    }

    /// Whether the link is closed.
    pub fn is_closed(&self) -> bool {
        self.core.link.is_closed()
    }

    /// Waits until the link is closed, and says why.
    pub async fn closed(&self) -> String {
        self.core.link.closed().await;
        self.core.dispatch.close_reason()
    }

    /// Lets calls in flight end, for a while, then closes the link.
    pub async fn close(&self) {
        self.core.link.drain();
        // The driver closes the link itself when draining takes too long; this is for one that hangs.
        let _ = timeout(CLOSE_WAIT, self.core.link.closed()).await;
    }

    /// Sends a request and waits for the one answer of type `wanted`.
    async fn request(
        &self,
        message: &Outgoing<'_>,
        wanted: Type,
        wait: Duration,
    ) -> Result<Reply, ClientError> {
        let (sender, answer) = oneshot::channel();
        self.send(message, Waiting::request(wanted, sender, wait), wait)?;
        answer.await.unwrap_or_else(|_| Err(ClientError::Closed(self.core.dispatch.close_reason())))
    }

    /// Sends a message, and remembers who waits for its answer before it can come.
    fn send(
        &self,
        message: &Outgoing<'_>,
        waiting: Waiting,
        wait: Duration,
    ) -> Result<MessageId, ClientError> {
        let (id, bytes) = message.seal(&self.core.system)?;
        self.core.dispatch.expect(id, waiting, wait)?;
        let link = &self.core.link;
        // A cancel must not arrive before its call, nor a declaration before an earlier one; calls may overtake each other.
        let is_call = message.typ == Type::CapInvoke;
        let sent = if is_call { link.request(bytes) } else { link.request_in_order(bytes) };
        let mut sent = sent.map_err(outgoing::unsent);
        if self.core.link.is_closed() {
            // Every wait has been ended, so none may begin.
            sent = Err(ClientError::Closed(self.core.dispatch.close_reason()));
        }
        match sent {
            Ok(route) => self.core.dispatch.hold(&id, route),
            Err(error) => {
                self.core.dispatch.forget(&id);
                return Err(error);
            }
        }
        Ok(id)
    }

    /// Forgets who waits for a call and asks for it to be cancelled, without waiting.
    fn forget_and_cancel(&self, id: MessageId) {
        self.core.dispatch.forget(&id);
        let body = bodies::cancel(id);
        let message = Outgoing::new(Type::Request, &self.core.did, &body);
        if let Ok((_, bytes)) = message.seal(&self.core.system) {
            // A link that is gone takes its calls with it.
            let _ = self.core.link.notify(bytes);
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("did", &self.core.did).finish_non_exhaustive()
    }
}

/// A client before its link is open.
struct Opening {
    dispatch: Arc<Dispatch>,
    host: Arc<Host>,
    system: Arc<System>,
    request_timeout: Duration,
}

impl Opening {
    fn new(options: Options, system: System) -> Self {
        let system = Arc::new(system);
        let dispatch = Dispatch::new(Arc::clone(&system), options.pending_max);
        let settings = Settings {
            // A moment that far off may not exist on the system's clock.
            handshake_timeout: options.connect_timeout.min(Duration::from_millis(limits::TTL_MS_MAX)),
            agent_name: options.agent_name,
            ..Settings::default()
        };
        let service = Arc::clone(&dispatch) as Arc<dyn capd_net::Service>;
        let host = Host::agent(settings, service, System::clone(&system));
        Self { dispatch, host, system, request_timeout: options.request_timeout }
    }

    fn opened(
        self,
        connected: Result<Arc<Link>, ConnectError>,
        place: &dyn fmt::Display,
        again: Option<Arc<Again>>,
    ) -> Result<Client, ClientError> {
        let Self { dispatch, host, system, request_timeout } = self;
        let link = connected.map_err(|error| match error {
            ConnectError::Owner { owner, own } => ClientError::Owner { place: place.to_string(), owner, own },
            error => ClientError::Connect {
                place: place.to_string(),
                is_refused: matches!(
                    &error,
                    ConnectError::Closed(CloseReason::Refused(_) | CloseReason::RefusedByPeer(_))
                ),
                is_full: matches!(
                    &error,
                    ConnectError::Closed(CloseReason::PeerFault(fault)) if fault.code == Code::OVERLOADED
                ),
                reason: error.to_string(),
            },
        })?;
        let did = link.principal().clone();
        dispatch.open(did.clone());
        system.tasks.spawn(Arc::clone(&dispatch).expire(Arc::clone(&link)));
        let core = Core { link, dispatch, system, did, request_timeout, _host: host };
        Ok(Client { core: Arc::new(core), again })
    }
}

/// A JSON value as one CBOR item, which is what a [`Handler`] answers with.
pub fn to_cbor(value: &serde_json::Value) -> Bytes {
    let mut bytes = Vec::new();
    from_json(value, &mut bytes);
    bytes.into()
}

/// A duration in milliseconds, capped at what an envelope's `ttl` may be.
fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).min(limits::TTL_MS_MAX)
}

/// How long a call without a timeout of its own is valid and waited for; the capability's own timeout ends it earlier.
const CALL_WAIT: Duration = Duration::from_secs(3_600);
/// How much longer than its timeout a call is waited for: the sidecar answers 5003 itself.
const CALL_GRACE: Duration = Duration::from_secs(5);
/// How much longer than its timeout an invoke is valid, so that clocks may differ.
const CALL_TTL_MARGIN: Duration = Duration::from_secs(60);
/// How long a key is kept unless the call says otherwise.
const KEY_TTL: Duration = Duration::from_secs(24 * 3_600);
/// Progress kept for a reader that is slow; further progress is skipped, the outcome never.
const PROGRESS_MAX: usize = 64;
/// Longest wait for a link to close in good order.
const CLOSE_WAIT: Duration = Duration::from_secs(35);

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
