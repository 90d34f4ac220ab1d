//! Serves capabilities: declarations and a handler in; CAP_INVOKE to the handler, its result as CAP_RESULT out.

use std::collections::hash_map::Entry;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::HashMap;
use bytes::Bytes;
use capd_proto::capability::CapabilityId;
use capd_proto::cbor::json::to_json;
use capd_proto::code::Code;
use capd_proto::envelope::{Envelope, MessageId};
use capd_proto::identity::Did;
use capd_proto::limits;
use capd_proto::message::{CancelState, Descriptor, Identity, Invoke, Request, Type};
use capd_proto::negotiate::choose;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dispatch::Waiting;
use super::outgoing::{self, Body, Outgoing};
use super::{Client, ClientError, Trace, WireError, bodies};
use capd_net::{Now, Route, System};

/// One call to be served.
#[derive(Debug)]
pub struct Invocation {
    /// The call's id.
    pub id: MessageId,
    /// Who calls.
    pub from: Did,
    /// Which of the declared capabilities serves it.
    pub capability: CapabilityId,
    /// **Shape:** one CBOR item, already checked against the input schema by the sidecar.
    pub params: Bytes,
    /// The conversation that the caller says it belongs to.
    pub thread_id: Option<Vec<u8>>,
    /// The trace that it belongs to.
    pub trace: Trace,
    /// When the caller's time runs out.
    pub deadline: Instant,
    /// Cancelled when the call is, or when the link closes: nobody waits for the result then.
    pub cancelled: CancellationToken,
    /// Tells the caller how it goes.
    pub reporter: Reporter,
}

impl Invocation {
    /// The params as JSON.
    ///
    /// **Errors:** 4004 for params that JSON has no form for, to answer the call with. A capability with an input schema
    /// never meets them: its sidecar refuses such params.
    pub fn json(&self) -> Result<Value, WireError> {
        to_json(&self.params)
            .map_err(|error| WireError::new(Code::SCHEMA_VIOLATION, format!("params: {error}")))
    }
}

/// What serves calls. A function from an [`Invocation`] to a future is one.
pub trait Handler: Send + Sync + 'static {
    /// Serves one call: the result as one CBOR item, or the error that becomes the CAP_RESULT.
    ///
    /// Each call runs in a task of its own. A handler that panics has answered with 5001.
    fn invoke(
        &self,
        invocation: Invocation,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, WireError>> + Send>>;
}

impl<F, A> Handler for F
where
    F: Fn(Invocation) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Bytes, WireError>> + Send + 'static,
{
    fn invoke(
        &self,
        invocation: Invocation,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, WireError>> + Send>> {
        Box::pin(self(invocation))
    }
}

impl Client {
    /// Serves what is [`declare`](Self::declare)d with `handler`, at most `calls_max` calls at once; one more is
    /// refused with 5004. A client serves with one handler: a second one is not taken.
    ///
    /// ```no_run
    /// use capd_client::proto::message::DescriptorDraft;
    /// use capd_client::{Client, Invocation};
    ///
    /// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// // Answers with the params that came.
    /// client.serve(8, async |invocation: Invocation| Ok(invocation.params))?;
    /// let descriptor = DescriptorDraft::new("org.example.echo:1.0.0".parse()?).finish()?;
    /// client.declare(&[descriptor]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **Errors:** [`ClientError::Invalid`] for the second one.
    pub fn serve(&self, calls_max: usize, handler: impl Handler) -> Result<(), ClientError> {
        let serving = Serving::new(Arc::new(handler), calls_max);
        let refused = self.core.dispatch.serving.set(serving);
        refused.map_err(|_| ClientError::Invalid("this client already serves".to_owned()))
    }

    /// Registers what this agent offers on this link, in place of what it registered before.
    ///
    /// **Errors:** [`ClientError::Refused`] with the sidecar's reason, and nothing is registered; the others.
    pub async fn declare(&self, descriptors: &[Descriptor]) -> Result<(), ClientError> {
        if descriptors.is_empty() {
            // PROTOCOL 7.2: `capabilities` has one descriptor or more; closing the link withdraws them.
            return Err(ClientError::Invalid("nothing to declare".to_owned()));
        }
        let Some(serving) = self.core.dispatch.serving.get() else {
            return Err(ClientError::Invalid("call serve before declare".to_owned()));
        };
        serving.declare(descriptors);
        let body = bodies::declare(descriptors);
        let message = Outgoing::new(Type::CapDeclare, &self.core.did, &body);
        let wait = self.core.request_timeout;
        let (sender, mut refusal) = oneshot::channel();
        // No message answers a CAP_DECLARE that is taken, so only an ERROR can come here.
        let id = self.send(&message, Waiting::request(Type::CapDeclare, sender, wait), wait)?;
        // Messages of one link are handled in order: when the PONG is here, a refusal would have come before it.
        let pong = self.ping(&self.core.did, wait).await;
        self.core.dispatch.forget(&id);
        match refusal.try_recv() {
            Ok(Err(refused)) => Err(refused),
            Ok(Ok(_)) => Err(ClientError::Answer("a CAP_DECLARE came in reply to one".to_owned())),
            Err(_) => pong.map(drop),
        }
    }
}

/// Tells the caller of one call how it goes. Each message may be skipped on the way; none of them ends the call.
#[derive(Clone)]
pub struct Reporter {
    way: Arc<Way>,
}

/// How what answers one message goes back.
pub(super) struct Way {
    id: MessageId,
    did: Did,
    to: Did,
    thread_id: Option<Vec<u8>>,
    trace: Trace,
    ttl_ms: u64,
    /// When the message came. **Units:** monotonic milliseconds.
    came_ms: u64,
    route: Route,
    system: Arc<System>,
}

impl Reporter {
    /// PROCESSING: it has been taken up; **units:** `eta_ms` in milliseconds from here.
    ///
    /// **Errors:** [`ClientError::Unsent`] and [`ClientError::Closed`], as for all of them.
    pub fn processing(&self, status_text: Option<&str>, eta_ms: Option<u64>) -> Result<(), ClientError> {
        self.way.send(Type::Processing, &bodies::processing(status_text, eta_ms))
    }

    /// PROGRESS: so many percent are done; more than 100 is told as 100.
    pub fn progress(&self, pct: u8) -> Result<(), ClientError> {
        self.way.send(Type::Progress, &bodies::progress(pct.min(100)))
    }

    /// INPUT_REQUIRED: it waits for somebody.
    pub fn input_required(&self, prompt: &str) -> Result<(), ClientError> {
        self.way.send(Type::InputRequired, &bodies::input_required(prompt))
    }
}

impl std::fmt::Debug for Reporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reporter({})", self.way.id)
    }
}

impl Way {
    /// The way back from `envelope`, which the agent `to` sent and which came at `now`.
    pub(super) fn new(
        now: Now,
        envelope: &Envelope<'_>,
        to: Did,
        did: Did,
        route: Route,
        system: Arc<System>,
    ) -> Self {
        let expires_at_ms = envelope.ts.saturating_add(envelope.ttl);
        Self {
            id: envelope.id,
            did,
            to,
            thread_id: envelope.thread_id.as_deref().map(<[u8]>::to_vec),
            trace: Trace::of(envelope),
            // PROTOCOL 8: the result is valid as long as the invoke is.
            ttl_ms: expires_at_ms.saturating_sub(now.wall_ms).max(TTL_MS_MIN),
            came_ms: now.monotonic_ms,
            route,
            system,
        }
    }

    fn send(&self, typ: Type, body: &Body) -> Result<(), ClientError> {
        let message = Outgoing {
            to: &self.to,
            reply_to: Some(self.id),
            thread_id: self.thread_id.as_deref(),
            ttl_ms: self.ttl_ms,
            ..Outgoing::new(typ, &self.did, body)
        };
        let (_, bytes) = message.seal(&self.system)?;
        self.route.send(bytes).map_err(outgoing::unsent)
    }
}

/// The handler of a client, and its calls.
pub(super) struct Serving {
    handler: Arc<dyn Handler>,
    calls_max: usize,
    declared: Mutex<Declared>,
    calls: Arc<Mutex<HashMap<MessageId, CancellationToken>>>,
}

/// What is declared: a call is found among thousands of them as fast as among few.
#[derive(Default)]
struct Declared {
    by_name: HashMap<String, Vec<Descriptor>>,
    by_id: HashMap<String, Offered>,
}

/// A capability, and how many milliseconds it declares for a call.
type Offered = (CapabilityId, Option<u64>);

impl Serving {
    fn new(handler: Arc<dyn Handler>, calls_max: usize) -> Self {
        Self { handler, calls_max, declared: Mutex::default(), calls: Arc::default() }
    }

    fn declare(&self, descriptors: &[Descriptor]) {
        let mut declared = Declared::default();
        for descriptor in descriptors {
            let of_name = declared.by_name.entry(descriptor.id.name.as_str().to_owned()).or_default();
            of_name.push(descriptor.clone());
            let offered = (descriptor.id.clone(), descriptor.timeout_ms);
            declared.by_id.insert(descriptor.id.to_string(), offered);
        }
        *lock(&self.declared) = declared;
    }

    /// The link is gone, and with it everybody who waits for a result.
    pub(super) fn on_close(&self) {
        let mut calls: Vec<_> = lock(&self.calls).drain().collect();
        // Handlers learn it in an order that is the same each time.
        calls.sort_unstable_by_key(|(id, _)| *id);
        for (_, cancelled) in calls {
            cancelled.cancel();
        }
    }

    /// A REQUEST; the only one that an agent takes is to cancel a call.
    pub(super) fn on_request(&self, request: &Request<'_>, way: &Way) {
        let sent = match *request {
            Request::Cancel { target } => {
                let state = match lock(&self.calls).get(&target) {
                    Some(cancelled) => {
                        cancelled.cancel();
                        CancelState::Cancelling
                    }
                    // Finished calls are not remembered: the sidecar's ledger does that.
                    None => CancelState::Unknown,
                };
                way.send(Type::Response, &bodies::cancel_response(target, state))
            }
            Request::Negotiate(_)
            | Request::Release { .. }
            | Request::Fetched { .. }
            | Request::Calls(_)
            | Request::Audit(_)
            | Request::Metrics
            | Request::Peers
            | Request::Fleet(_)
            | Request::Doctor
            | Request::AuditPrune(_)
            | Request::PolicyWhy(_)
            | Request::PolicyReload
            | Request::Reload(_)
            | Request::Backup
            | Request::Drain { .. }
            | Request::Other { .. } => way.send(
                Type::Error,
                &bodies::error(Code::BAD_REQUEST, "an agent does not answer this request"),
            ),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "an answer was not sent");
        }
    }

    /// A call: it runs in a task of its own, or is refused.
    ///
    /// `chosen` is the capability id that the sidecar chose, where the body leaves the choice to it.
    pub(super) fn on_invoke(&self, invoke: &Invoke<'_>, chosen: Option<&str>, body: &Bytes, way: Way) {
        let way = Arc::new(way);
        let admitted = self.admit(invoke, chosen, body, &way);
        match admitted {
            Ok(invocation) => self.start(invocation, way),
            Err((code, why)) => {
                if let Err(error) = way.send(Type::Error, &bodies::error(code, &why)) {
                    tracing::debug!(%error, call = %way.id, "a refusal was not sent");
                }
            }
        }
    }

    /// Registers a call, or says why it is refused.
    fn admit(
        &self,
        invoke: &Invoke<'_>,
        chosen: Option<&str>,
        body: &Bytes,
        way: &Arc<Way>,
    ) -> Result<Invocation, (Code, String)> {
        let (capability, declared_ms) = match self.offered(chosen.or(invoke.id.as_deref())) {
            Some(offered) => offered,
            None => {
                let identity = invoke.identity().map_err(|error| (error.code(), error.to_string()))?;
                self.choose(&identity).map_err(|code| (code, "this agent does not serve it".to_owned()))?
            }
        };
        let time = invoke.timeout_ms.or(declared_ms).unwrap_or(limits::CALL_TIMEOUT_MS_DEFAULT);
        let cancelled = CancellationToken::new();
        {
            let mut calls = lock(&self.calls);
            let running = calls.len();
            let Entry::Vacant(place) = calls.entry(way.id) else {
                return Err((Code::BAD_REQUEST, "a call with this id runs".to_owned()));
            };
            if running >= self.calls_max {
                return Err((Code::OVERLOADED, "the agent has too many calls in flight".to_owned()));
            }
            place.insert(cancelled.clone());
        }
        Ok(Invocation {
            id: way.id,
            from: way.to.clone(),
            capability,
            params: body.slice_ref(invoke.params),
            thread_id: way.thread_id.clone(),
            trace: way.trace.clone(),
            // PROTOCOL 8: a call's time is capped by the `ttl`.
            deadline: way.system.clock.moment(way.came_ms.saturating_add(time.min(way.ttl_ms))),
            cancelled,
            reporter: Reporter { way: Arc::clone(way) },
        })
    }

    fn start(&self, invocation: Invocation, way: Arc<Way>) {
        let tasks = way.system.tasks.clone();
        let result = ResultDue { way: Some(way), calls: Arc::clone(&self.calls) };
        let started = Instant::now();
        let work = self.handler.invoke(invocation);
        tasks.spawn(async move {
            let outcome = work.await;
            result.send(&outcome, started.elapsed());
        });
    }

    /// What is declared under exactly this id.
    fn offered(&self, id: Option<&str>) -> Option<Offered> {
        id.and_then(|id| lock(&self.declared).by_id.get(id).cloned())
    }

    /// Which declared capability serves a call that names none by its id; the sidecar has chosen before, and this follows
    /// the same rules.
    fn choose(&self, identity: &Identity<'_>) -> Result<Offered, Code> {
        let found = |descriptor: &Descriptor| (descriptor.id.clone(), descriptor.timeout_ms);
        let declared = lock(&self.declared);
        let of_name = declared.by_name.get(&*identity.name).ok_or(Code::CAPABILITY_NOT_FOUND)?;
        // Which version a session pins only the sidecar knows; of one version it is that one.
        let Some(want) = &identity.want else {
            return if let [only] = of_name.as_slice() {
                Ok(found(only))
            } else {
                Err(Code::VERSION_MISMATCH)
            };
        };
        let served: Vec<_> = of_name.iter().map(|descriptor| &descriptor.served).collect();
        let choice = choose(want, &served).map_err(|_| Code::VERSION_MISMATCH)?;
        Ok(found(&of_name[choice.index]))
    }
}

/// The one CAP_RESULT that a call is owed: dropping it, as a panic does, sends 5001.
struct ResultDue {
    way: Option<Arc<Way>>,
    calls: Arc<Mutex<HashMap<MessageId, CancellationToken>>>,
}

impl ResultDue {
    fn send(mut self, outcome: &Result<Bytes, WireError>, took: Duration) {
        self.finish(outcome, took);
    }

    fn finish(&mut self, outcome: &Result<Bytes, WireError>, took: Duration) {
        let Some(way) = self.way.take() else { return };
        lock(&self.calls).remove(&way.id);
        let (item, depth) = match outcome {
            Ok(result) => (Some(result), bodies::PAYLOAD_DEPTH),
            Err(error) => (error.details.as_ref(), bodies::DETAILS_DEPTH),
        };
        let unfit = item.and_then(|item| bodies::check_payload(item, depth).err());
        let unfit = unfit.map(|error| {
            let message = format!("the handler's answer is not one CBOR item: {error}");
            Err(WireError { code: Code::INTERNAL_ERROR, message, details: None })
        });
        let outcome = unfit.as_ref().unwrap_or(outcome);
        let sent = way.send(Type::CapResult, &bodies::result(outcome, took)).or_else(|error| {
            // A result that the link does not carry is an error result, not silence.
            let failure = WireError { code: Code::INTERNAL_ERROR, message: error.to_string(), details: None };
            way.send(Type::CapResult, &bodies::result(&Err(failure), took))
        });
        if let Err(error) = sent {
            tracing::debug!(%error, call = %way.id, "a result was not sent");
        }
    }
}

impl Drop for ResultDue {
    fn drop(&mut self) {
        let message = "the handler ended without an answer".to_owned();
        self.finish(&Err(WireError { code: Code::INTERNAL_ERROR, message, details: None }), Duration::ZERO);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Maps and lists change in single steps, so a panic leaves none half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A result is sent even when the invoke has just expired; the sidecar knows what it is worth.
const TTL_MS_MIN: u64 = 1_000;
