//! Holds the agent's requests to other sidecars and their answers: calls, cancels, and relayed messages.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_proto::call::caller::{Generation, Input};
use capd_proto::code::Code;
use capd_proto::envelope::{Encoded, Ext, MessageId};
use capd_proto::identity::Did;
use capd_proto::message::{Declare, Type};

use super::listing::PastCall;
use super::{Caller, Handed, RelayedCall};
use crate::daemon::account::meter::CallLimit;
use crate::daemon::context::requests::{Requests, Slots, Unsent, Waiting};
use crate::daemon::context::{Inbound, Outbound, Refusal, lock};
use crate::net::{Link, Route, SendError};

/// What is out.
pub(in crate::daemon) struct Outgoing {
    /// Requests that wait for an answer.
    pub(super) requests: Requests<Waiter>,
    /// The agent's calls on their way, by the agent's id.
    calls: Mutex<BTreeMap<MessageId, Arc<RelayedCall>>>,
    /// Ids of calls that have ended, for cancels that come too late; the oldest goes.
    ended: Mutex<VecDeque<PastCall>>,
    calls_max: usize,
    /// Counts the calls that wait for a provider: each holds it.
    pub(super) waiting: Arc<()>,
}

/// Who waits for an answer.
pub(super) enum Waiter {
    /// A call of the agent's, under its id of this generation.
    Call(Arc<RelayedCall>, Generation),
    /// A cancel of such a call.
    Cancel(Arc<RelayedCall>),
    /// Such a call, which its peer was asked to release.
    Release(Arc<RelayedCall>),
    /// Another request of the agent's, passed on as it is.
    Agent { link: Arc<Link>, route: Route },
}

/// What became of a call that was to be taken in.
pub(super) enum Added {
    New,
    /// There is one of its id.
    Running(Arc<RelayedCall>),
    /// There are too many.
    Full,
}

impl Outgoing {
    pub(in crate::daemon) fn new(slots: Arc<Slots>) -> Self {
        let calls_max = slots.slots_max();
        let requests = Requests::new(slots);
        Self {
            requests,
            calls: Mutex::default(),
            ended: Mutex::default(),
            calls_max,
            waiting: Arc::default(),
        }
    }

    /// Stops waiting for what a call's ids, and its cancel, were to be answered with: it has ended.
    pub(super) fn release(&self, ids: impl Iterator<Item = MessageId>) {
        self.requests.release(ids, |who| match who {
            Waiter::Call(..) | Waiter::Cancel(_) | Waiter::Release(_) => true,
            Waiter::Agent { .. } => false,
        });
    }

    /// The call that waits for `id`, if `peer` is the one to answer it; it goes on waiting.
    pub(super) fn call_awaiting(&self, id: &MessageId, peer: &Did) -> Option<(Arc<RelayedCall>, Generation)> {
        self.requests.peek(id, peer, |who| match who {
            Waiter::Call(call, generation) => Some((Arc::clone(call), *generation)),
            Waiter::Cancel(_) | Waiter::Release(_) | Waiter::Agent { .. } => None,
        })
    }

    /// The agent's call of this id.
    pub(in crate::daemon) fn call(&self, id: &MessageId) -> Option<Arc<RelayedCall>> {
        lock(&self.calls).get(id).cloned()
    }

    /// The agent's calls with ids in `range`, in their order.
    pub(super) fn calls_in(&self, range: (Bound<MessageId>, Bound<MessageId>)) -> Vec<Arc<RelayedCall>> {
        lock(&self.calls).range(range).map(|(_, call)| Arc::clone(call)).collect()
    }

    /// The earliest `ts + ttl` of a call that has not ended. **Units:** milliseconds since the Unix epoch.
    pub(super) fn earliest_expiry_ms(&self) -> Option<u64> {
        lock(&self.calls).values().map(|call| call.moments.expires_at_ms).min()
    }

    /// The agent's calls that have not ended.
    pub(in crate::daemon) fn calls_in_flight(&self) -> usize {
        lock(&self.calls).len()
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

    /// The agent's call of this id that has ended not long ago; of one that ended twice the last end.
    pub(super) fn past_call(&self, id: &MessageId) -> Option<PastCall> {
        lock(&self.ended).iter().rev().find(|past| past.id() == id).cloned()
    }

    /// Takes a call out that has not ended: it begins anew elsewhere.
    pub(super) fn withdraw_call(&self, id: &MessageId) {
        lock(&self.calls).remove(id);
    }

    /// Whether a call of the agent's with this id has ended not long ago.
    pub(in crate::daemon) fn has_ended(&self, id: &MessageId) -> bool {
        lock(&self.ended).iter().any(|past| past.id() == id)
    }
}

impl Caller {
    /// Whether a call of the agent's with this id has ended not long ago.
    pub(in crate::daemon) fn has_ended(&self, id: &MessageId) -> bool {
        self.outgoing.has_ended(id)
    }

    /// The agent's calls that have not ended.
    pub(in crate::daemon) fn calls_in_flight(&self) -> usize {
        self.outgoing.calls_in_flight()
    }

    /// Passes a request of the agent's on to the peer it names. **Errors:** 2001 when it names nobody we know.
    pub(in crate::daemon) fn forward(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        typ: Type,
    ) -> Result<(), Refusal> {
        let to = self.peer_named(inbound)?;
        self.forward_to(inbound, typ, to)
    }

    /// The peer that the agent addressed a message to.
    pub(in crate::daemon) fn peer_named(&self, inbound: &Inbound<'_>) -> Result<Did, Refusal> {
        let mut named = inbound.envelope.to.iter().filter_map(|did| Did::parse(did).ok());
        named.find(|did| inbound.link.kind().is_local() && self.directory.peers.is_reachable(did)).ok_or_else(
            || {
                Refusal::new(
                    Code::RECIPIENT_NOT_FOUND,
                    "the recipient is neither this agent nor one of its peers",
                )
            },
        )
    }

    pub(in crate::daemon) fn forward_to(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        typ: Type,
        to: Did,
    ) -> Result<(), Refusal> {
        let caller = Arc::clone(self);
        let deadline_ms = inbound.now.deadline_ms(inbound.expires_at_ms(), self.ctx.call_timeout_ms());
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
                self.ctx.spawn(async move { caller.forward_later(forwarded).await });
                Ok(())
            }
        }
    }

    /// Sends it if the peer has a link; gives it back otherwise.
    fn try_forward(&self, request: Forwarded) -> Result<Result<(), Refusal>, Forwarded> {
        let Some(link) = self.directory.peers.link(&request.to) else { return Err(request) };
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
        let envelope = self.ctx.seal(&message, &link);
        let who = Waiter::Agent { link: request.link, route: request.route };
        Ok(self.request(&link, request.id, envelope, request.deadline_ms, who))
    }

    async fn forward_later(&self, mut request: Forwarded) {
        let mut changes = self.directory.peers.watch();
        let deadline = self.ctx.clock.moment(request.deadline_ms);
        let (link, route, id) = (Arc::clone(&request.link), request.route.clone(), request.id);
        let refusal = loop {
            request = match self.try_forward(request) {
                Ok(Ok(())) => return,
                Ok(Err(refusal)) => break refusal,
                Err(request) => request,
            };
            // What an owner has to change is not waited for.
            if self.directory.unlinked.lasting(&request.to).is_some()
                || tokio::time::timeout_at(deadline, changes.changed()).await.is_err()
            {
                break self.directory.unreachable(&request.to);
            }
        };
        self.ctx.refuse(&link, &route, Some(id), &refusal);
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
        self.outgoing.requests.send(link, id, deadline_ms, who, send).map_err(|unsent| {
            if matches!(unsent, Unsent::Full) {
                self.account.meter.refused(CallLimit::RequestsWaiting);
            }
            unsent.refusal()
        })
    }

    /// PONG, CAP_DECLARE, DOC_SEND, RESPONSE: to whoever asked; nobody's are dropped. `is_read` says whether it can be read.
    pub(in crate::daemon) fn on_answer(self: &Arc<Self>, inbound: &Inbound<'_>, typ: Type, is_read: bool) {
        let id = inbound.envelope.reply_id();
        let waiting = id.and_then(|id| self.outgoing.requests.take(&id, inbound.link.principal()));
        match (waiting, is_read) {
            (Some(waiting), true) => self.deliver(waiting, inbound, typ),
            // Nothing better will come: who waits for it learns so at once.
            (Some(Waiting { who: Waiter::Agent { link, route }, .. }), false) => {
                let refusal = Refusal::new(Code::CONTRACT_ERROR, "the peer's answer is malformed");
                self.ctx.refuse(&link, &route, id, &refusal);
            }
            // Unreadable, it proves nothing.
            (Some(Waiting { who: Waiter::Release(call), .. }), false) => {
                self.drive_call(&call, Some(Input::Unreleased), Handed::Nothing);
            }
            (Some(_), false) | (None, _) => {}
        }
    }

    pub(super) fn deliver(self: &Arc<Self>, waiting: Waiting<Waiter>, inbound: &Inbound<'_>, typ: Type) {
        match waiting.who {
            Waiter::Agent { link, route } => {
                if typ == Type::Response {
                    self.learn_session(inbound.link, inbound.body);
                }
                if typ == Type::CapDeclare
                    && let Err(refusal) = check_format(inbound.body)
                {
                    return self.ctx.refuse(&link, &route, inbound.envelope.reply_id(), &refusal);
                }
                self.ctx.send(&link, &route, self.ctx.for_agent(inbound));
            }
            Waiter::Cancel(call) => self.on_cancel_answer(&call, typ, inbound.body),
            Waiter::Release(call) => {
                self.on_release_answer(&call, inbound.link.principal(), typ, inbound.body);
            }
            // A call's answers are CAP_RESULT and ERROR, which come another way.
            Waiter::Call(..) => {}
        }
    }

    /// Ends what nobody answered in time, until shutdown.
    pub(in crate::daemon) async fn expire_requests(self: &Arc<Self>) {
        loop {
            let (id, waiting) = self.outgoing.requests.expired(&self.ctx.clock).await;
            self.on_request_expired(id, waiting);
        }
    }

    fn on_request_expired(self: &Arc<Self>, id: MessageId, waiting: Waiting<Waiter>) {
        match waiting.who {
            Waiter::Agent { link, route } => {
                let refusal = Refusal::new(Code::TIMEOUT, "the peer did not answer in time");
                self.ctx.refuse(&link, &route, Some(id), &refusal);
            }
            Waiter::Call(call, _) => self.on_call_deadline(&call),
            Waiter::Release(call) => self.drive_call(&call, Some(Input::Unreleased), Handed::Nothing),
            Waiter::Cancel(_) => {}
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

/// Ended calls that are remembered by their id.
const ENDED_MAX: usize = 1_024;
