//! Requests to other sidecars out, their answers back to whoever asked: the agent, a relayed call, or ourselves.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_proto::call::caller::Generation;
use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Encoded, Ext, MessageId};
use capd_proto::identity::Did;
use capd_proto::message::{Declare, ErrorBody, Message, Type};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::calls::{PastCall, RelayedCall};
use super::inbound::Inbound;
use super::meter::CallLimit;
use super::node::{ANSWER_TTL_MS, Node, Outbound, Refusal, lock};
use crate::net::pending::Pending;
use crate::net::{Link, LinkId, Route, SendError};

/// Requests that wait for an answer, by the id they went out under.
pub(super) struct Relay {
    pub(super) pending: Mutex<Pending<Waiting>>,
    /// The agent's calls on their way, by the agent's id.
    calls: Mutex<BTreeMap<MessageId, Arc<RelayedCall>>>,
    /// Ids of calls that have ended, for cancels that come too late; the oldest goes.
    ended: Mutex<VecDeque<PastCall>>,
    calls_max: usize,
    /// Wakes the task that ends what nobody answered, when an earlier deadline came in.
    wake: Notify,
}

/// What waits for an answer.
pub(super) struct Waiting {
    /// Who alone may answer.
    pub(super) peer: Did,
    pub(super) who: Waiter,
    /// The link it went out on.
    pub(super) link: LinkId,
    /// Counts the request as in flight there.
    pub(super) route: Option<Route>,
}

impl Waiting {
    /// Whether the request went out on this link.
    fn is_on(&self, link: &Link) -> bool {
        self.link == link.id()
    }
}

pub(super) enum Waiter {
    /// A call of the agent's, under its id of this generation.
    Call(Arc<RelayedCall>, Generation),
    /// A cancel of such a call.
    Cancel(Arc<RelayedCall>),
    /// Another request of the agent's, passed on as it is.
    Agent { link: Arc<Link>, route: Route },
    /// A request of this sidecar's own.
    Us(oneshot::Sender<Answer>),
}

/// What became of a call that was to be taken in.
pub(super) enum Added {
    New,
    /// There is one of its id.
    Running(Arc<RelayedCall>),
    /// There are too many.
    Full,
}

/// What a peer answered to a request of our own.
pub(super) struct Answer {
    pub(super) typ: Type,
    pub(super) body: Bytes,
}

/// A request of our own that is on its way.
pub(super) struct Asked(oneshot::Receiver<Answer>);

impl Asked {
    /// Waits for the answer. **Errors:** the refusal that the peer or its absence gave.
    pub(super) async fn answer(self) -> Result<Answer, Refusal> {
        let answer = self.0.await.map_err(|_| {
            Refusal::new(Code::TIMEOUT, "the peer did not answer in time, or its link closed")
        })?;
        if answer.typ == Type::Error {
            let error = ErrorBody::decode(&answer.body)
                .map_err(|error| Refusal::new(Code::INVALID_MESSAGE, error.to_string()))?;
            return Err(Refusal::new(error.code, error.message.into_owned()));
        }
        Ok(answer)
    }
}

impl Relay {
    pub(super) fn new(pending_max: usize) -> Self {
        Self {
            pending: Mutex::new(Pending::new(pending_max)),
            calls: Mutex::default(),
            ended: Mutex::default(),
            calls_max: pending_max,
            wake: Notify::new(),
        }
    }

    /// Remembers a request; `false` when the table is full or the id waits already.
    pub(super) fn wait(&self, id: MessageId, deadline_ms: u64, waiting: Waiting) -> bool {
        let mut pending = lock(&self.pending);
        let is_earliest = pending.next_deadline_ms().is_none_or(|earliest| deadline_ms < earliest);
        let is_taken = pending.insert(id, deadline_ms, waiting).is_ok();
        drop(pending);
        if is_taken && is_earliest {
            self.wake.notify_one();
        }
        is_taken
    }

    /// Takes out what waits for `id`, if `peer` is the one to answer it.
    pub(super) fn take(&self, id: &MessageId, peer: &Did) -> Option<Waiting> {
        lock(&self.pending).take_if(id, |waiting| waiting.peer == *peer)
    }

    /// Where the request `id` to `peer` went that waits for its answer.
    pub(super) fn route_of(&self, id: &MessageId, peer: &Did) -> Option<(LinkId, Route)> {
        let mut pending = lock(&self.pending);
        let waiting = pending.peek(id).filter(|waiting| waiting.peer == *peer)?;
        waiting.route.clone().map(|route| (waiting.link, route))
    }

    /// Stops waiting for what a call's ids, and its cancel, were to be answered with: it has ended.
    pub(super) fn release(&self, ids: impl Iterator<Item = MessageId>) {
        // Routes count as calls in flight until they are dropped, which wakes links: not under the lock.
        let released: Vec<_> = {
            let mut pending = lock(&self.pending);
            let is_calls = |waiting: &Waiting| match &waiting.who {
                Waiter::Call(..) | Waiter::Cancel(_) => true,
                Waiter::Agent { .. } | Waiter::Us(_) => false,
            };
            ids.filter_map(|id| pending.take_if(&id, is_calls)).collect()
        };
        drop(released);
    }

    /// The call that waits for `id`, if `peer` is the one to answer it; it goes on waiting.
    pub(super) fn call_awaiting(&self, id: &MessageId, peer: &Did) -> Option<(Arc<RelayedCall>, Generation)> {
        let mut pending = lock(&self.pending);
        let waiting = pending.peek(id).filter(|waiting| waiting.peer == *peer)?;
        match &waiting.who {
            Waiter::Call(call, generation) => Some((Arc::clone(call), *generation)),
            Waiter::Cancel(_) | Waiter::Agent { .. } | Waiter::Us(_) => None,
        }
    }

    /// Takes out everything that went out on a link.
    pub(super) fn lost(&self, link: &Link) -> Vec<(MessageId, Waiting)> {
        lock(&self.pending).take_where(|waiting| waiting.is_on(link))
    }

    /// The agent's call of this id.
    pub(super) fn call(&self, id: &MessageId) -> Option<Arc<RelayedCall>> {
        lock(&self.calls).get(id).cloned()
    }

    /// The agent's calls with ids in `range`, in their order.
    pub(super) fn calls_in(&self, range: (Bound<MessageId>, Bound<MessageId>)) -> Vec<Arc<RelayedCall>> {
        lock(&self.calls).range(range).map(|(_, call)| Arc::clone(call)).collect()
    }

    /// The agent's calls that have not ended.
    pub(super) fn calls_in_flight(&self) -> usize {
        lock(&self.calls).len()
    }

    /// Requests that wait for an answer, or calls, whichever are more.
    pub(super) fn waiting(&self) -> usize {
        let pending = lock(&self.pending).len();
        pending.max(self.calls_in_flight())
    }

    /// Takes a call in, in one look.
    pub(super) fn add_call(&self, call: &Arc<RelayedCall>) -> Added {
        let mut calls = lock(&self.calls);
        if let Some(running) = calls.get(call.id()) {
            return Added::Running(Arc::clone(running));
        }
        if calls.len() >= self.calls_max {
            return Added::Full;
        }
        calls.insert(*call.id(), Arc::clone(call));
        Added::New
    }

    /// Takes a call out that has ended, and remembers what a list says of it.
    pub(super) fn remove_call(&self, past: PastCall) {
        if lock(&self.calls).remove(past.id()).is_none() {
            return;
        }
        let mut ended = lock(&self.ended);
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(past);
    }

    /// The agent's calls that have ended not long ago, by their ids; of one that ended twice the last end.
    pub(super) fn past_calls(&self) -> BTreeMap<MessageId, PastCall> {
        lock(&self.ended).iter().map(|past| (*past.id(), past.clone())).collect()
    }

    /// Takes a call out that has not ended: it begins anew elsewhere.
    pub(super) fn withdraw_call(&self, id: &MessageId) {
        lock(&self.calls).remove(id);
    }

    /// Whether a call of the agent's with this id has ended not long ago.
    pub(super) fn has_ended(&self, id: &MessageId) -> bool {
        lock(&self.ended).iter().any(|past| past.id() == id)
    }
}

impl Node {
    /// Passes a request of the agent's on to the peer it names. **Errors:** 2001 when it names nobody we know.
    pub(super) fn forward(&self, inbound: &Inbound<'_>, typ: Type) -> Result<(), Refusal> {
        let to = self.peer_named(inbound)?;
        self.forward_to(inbound, typ, to)
    }

    /// The peer that the agent addressed a message to.
    pub(super) fn peer_named(&self, inbound: &Inbound<'_>) -> Result<Did, Refusal> {
        let mut named = inbound.envelope.to.iter().filter_map(|did| Did::parse(did).ok());
        named.find(|did| inbound.link.kind().is_local() && self.peers.is_reachable(did)).ok_or_else(|| {
            Refusal::new(
                Code::RECIPIENT_NOT_FOUND,
                "the recipient is neither this agent nor one of its peers",
            )
        })
    }

    pub(super) fn forward_to(&self, inbound: &Inbound<'_>, typ: Type, to: Did) -> Result<(), Refusal> {
        let Some(node) = self.shared() else { return Ok(()) };
        let deadline_ms = inbound.now.deadline_ms(inbound.expires_at_ms(), self.rules.call_timeout_ms);
        let forwarded = Forwarded {
            id: inbound.envelope.id,
            typ,
            to,
            expires_at_ms: inbound.expires_at_ms(),
            body: inbound.body.clone(),
            link: Arc::clone(inbound.link),
            route: inbound.route.clone(),
            deadline_ms,
        };
        match self.try_forward(forwarded) {
            Ok(outcome) => outcome,
            Err(forwarded) => {
                self.spawn(async move { node.forward_later(forwarded).await });
                Ok(())
            }
        }
    }

    /// Sends it if the peer has a link; gives it back otherwise.
    fn try_forward(&self, request: Forwarded) -> Result<Result<(), Refusal>, Forwarded> {
        let Some(link) = self.peers.link(&request.to) else { return Err(request) };
        let message = Outbound {
            id: request.id,
            typ: request.typ,
            to: request.to.as_str(),
            reply_to: None,
            thread_id: None,
            ttl_ms: request.expires_at_ms.saturating_sub(request.id.ts_ms()),
            body: &request.body,
            ext: Ext::None,
        };
        let envelope = self.seal(&message, &link);
        let who = Waiter::Agent { link: request.link, route: request.route };
        Ok(self.request(&link, request.id, envelope, request.deadline_ms, who))
    }

    async fn forward_later(&self, mut request: Forwarded) {
        let mut changes = self.peers.watch();
        let deadline = self.clock.moment(request.deadline_ms);
        let (link, route, id) = (Arc::clone(&request.link), request.route.clone(), request.id);
        let refusal = loop {
            request = match self.try_forward(request) {
                Ok(Ok(())) => return,
                Ok(Err(refusal)) => break refusal,
                Err(request) => request,
            };
            // What an owner has to change is not waited for.
            if self.unlinked.lasting(&request.to).is_some()
                || tokio::time::timeout_at(deadline, changes.changed()).await.is_err()
            {
                break self.unreachable(&request.to);
            }
        };
        self.refuse(&link, &route, Some(id), &refusal);
    }

    /// Sends a request and remembers who waits for its answer.
    pub(super) fn request(
        &self,
        link: &Arc<Link>,
        id: MessageId,
        envelope: impl Into<Encoded>,
        deadline_ms: u64,
        who: Waiter,
    ) -> Result<(), Refusal> {
        // Calls may overtake each other; other requests keep their order.
        let is_call = matches!(who, Waiter::Call(..));
        let send = |link: &Arc<Link>| {
            if is_call { link.request(envelope) } else { link.request_in_order(envelope) }
        };
        self.request_by(link, id, deadline_ms, who, send)
    }

    /// The same, sent by `send`.
    pub(super) fn request_by(
        &self,
        link: &Arc<Link>,
        id: MessageId,
        deadline_ms: u64,
        who: Waiter,
        send: impl FnOnce(&Arc<Link>) -> Result<Route, SendError>,
    ) -> Result<(), Refusal> {
        let waiting = Waiting { peer: link.principal().clone(), who, link: link.id(), route: None };
        if !self.relay.wait(id, deadline_ms, waiting) {
            self.meter.refused(CallLimit::RequestsWaiting);
            return Err(Refusal::new(
                Code::OVERLOADED,
                "too many requests wait for an answer, or this id does already",
            ));
        }
        match send(link) {
            Ok(route) => {
                if let Some(waiting) = lock(&self.relay.pending).peek(&id) {
                    waiting.route = Some(route);
                }
                Ok(())
            }
            Err(error) => {
                self.relay.take(&id, link.principal());
                let code = match error {
                    SendError::TooLarge { .. } => Code::BAD_REQUEST,
                    SendError::Full => Code::OVERLOADED,
                    SendError::Closed | SendError::Draining => Code::ENDPOINT_UNREACHABLE,
                };
                Err(Refusal::new(code, error.to_string()))
            }
        }
    }

    /// Asks a peer on our own behalf. **Errors:** why nothing was sent.
    pub(super) fn ask(
        &self,
        link: &Arc<Link>,
        typ: Type,
        body: &[u8],
        time_ms: u64,
    ) -> Result<Asked, Refusal> {
        let id = self.fresh_id(self.clock.wall_ms());
        let message = Outbound {
            id,
            typ,
            to: link.principal().as_str(),
            reply_to: None,
            thread_id: None,
            // Not the time we wait: the peer's clock may be further ahead of ours than that.
            ttl_ms: ANSWER_TTL_MS,
            body,
            ext: Ext::None,
        };
        let envelope = self.seal(&message, link);
        let (sender, answered) = oneshot::channel();
        let deadline_ms = self.clock.monotonic_ms().saturating_add(time_ms);
        self.request(link, id, envelope, deadline_ms, Waiter::Us(sender))?;
        Ok(Asked(answered))
    }

    /// PONG, CAP_DECLARE, DOC_SEND, RESPONSE: to whoever asked; nobody's are dropped.
    pub(super) fn on_answer(&self, inbound: &Inbound<'_>, typ: Type) -> Result<(), Refusal> {
        let shape = Message::decode_checked(typ, inbound.checked_body()).map(drop).map_err(Refusal::of);
        let id = inbound.envelope.reply_id();
        let waiting = id.and_then(|id| self.relay.take(&id, inbound.link.principal()));
        match (waiting, &shape) {
            (Some(waiting), Ok(())) => self.deliver(waiting, inbound, typ),
            // Nothing better will come: who waits for it learns so at once. Dropping our own sender says it too.
            (Some(Waiting { who: Waiter::Agent { link, route }, .. }), Err(_)) => {
                let refusal = Refusal::new(Code::CONTRACT_ERROR, "the peer's answer is malformed");
                self.refuse(&link, &route, id, &refusal);
            }
            (Some(_), Err(_)) | (None, _) => {}
        }
        shape
    }

    pub(super) fn deliver(&self, waiting: Waiting, inbound: &Inbound<'_>, typ: Type) {
        match waiting.who {
            Waiter::Agent { link, route } => {
                if typ == Type::Response {
                    self.learn_session(inbound.link.principal(), inbound.body);
                }
                if typ == Type::CapDeclare
                    && let Err(refusal) = check_format(inbound.body)
                {
                    return self.refuse(&link, &route, inbound.envelope.reply_id(), &refusal);
                }
                self.send(&link, &route, self.for_agent(inbound));
            }
            Waiter::Cancel(call) => self.on_cancel_answer(&call, typ, inbound.body),
            Waiter::Us(sender) => {
                // Whoever asked may have stopped waiting.
                let _gone = sender.send(Answer { typ, body: inbound.body.clone() });
            }
            // A call's answers are CAP_RESULT and ERROR, which come another way.
            Waiter::Call(..) => {}
        }
    }

    /// A peer's message as the agent gets it: the bytes that came, unless the agent could not read them.
    pub(super) fn for_agent(&self, inbound: &Inbound<'_>) -> Bytes {
        if !inbound.is_encrypted {
            return inbound.payload.clone();
        }
        // The agent has no key: it gets the plaintext, which this sidecar has verified.
        let mut out = Vec::with_capacity(inbound.payload.len());
        if let Some(draft) = Draft::of(inbound.envelope) {
            draft.seal(&self.identity, false, &mut out);
        }
        Bytes::from(out)
    }

    /// Ends what nobody answered in time, until shutdown.
    pub(super) async fn expire_requests(&self) {
        loop {
            let expired = lock(&self.relay.pending).take_expired(self.clock.monotonic_ms());
            if let Some((id, waiting)) = expired {
                self.on_request_expired(id, waiting);
                continue;
            }
            let next = lock(&self.relay.pending).next_deadline_ms().map(|next| self.clock.moment(next));
            tokio::select! {
                biased;
                () = sleep_until(next) => {}
                () = self.relay.wake.notified() => {}
            }
        }
    }

    fn on_request_expired(&self, id: MessageId, waiting: Waiting) {
        match waiting.who {
            Waiter::Agent { link, route } => {
                let refusal = Refusal::new(Code::TIMEOUT, "the peer did not answer in time");
                self.refuse(&link, &route, Some(id), &refusal);
            }
            Waiter::Call(call, _) => self.on_call_deadline(&call),
            Waiter::Cancel(_) | Waiter::Us(_) => {}
        }
    }
}

/// A request of the agent's on its way to a peer.
struct Forwarded {
    id: MessageId,
    typ: Type,
    to: Did,
    expires_at_ms: u64,
    body: Bytes,
    link: Arc<Link>,
    route: Route,
    deadline_ms: u64,
}

/// PROTOCOL 7.2: a newer major of the descriptor format is 4905 at the caller's sidecar.
fn check_format(declare: &[u8]) -> Result<(), Refusal> {
    Declare::decode(declare).map_err(Refusal::of)?.check_format().map_err(Refusal::of)
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Ended calls that are remembered.
const ENDED_MAX: usize = 1_024;
