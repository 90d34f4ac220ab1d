//! The agent's calls in; to a provider here or to a peer, and one answer each back: the caller's side of a call.
//!
//! [`choose`] finds the peer, [`among`] one of several that serve alike, [`here`] an agent that serves it after all.
//! [`given`] remembers the peer where a call may run only once, [`reserved`] does so for many calls at once, each of
//! which has its [`owner`], [`memory`]
//! sees to it that the peer remembers it as well. [`drive`] tells
//! the call's machine what happened and does what it says, [`answers`] takes what comes back, [`deliver`] gives the agent
//! its one answer.

mod among;
mod answers;
mod choose;
mod deliver;
mod drive;
mod given;
mod here;
mod listing;
mod memory;
mod owner;
mod reserved;
mod retry;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_proto::call::caller::Caller;
use capd_proto::cbor;
use capd_proto::code::Code;
use capd_proto::envelope::{Encoded, MessageId};
use capd_proto::identity::Did;
use capd_proto::ledger::JournalId;
use capd_proto::message::{Descriptor, ErrorBody, Identity, Invoke, Type};
use capd_proto::negotiate::Want;
use smallvec::{SmallVec, smallvec};
use tokio::sync::Notify;

use super::access::TraceId;
use super::audit::Audited;
use super::executor::{Incoming, refused_artifact};
use super::gate::{Barrier, held_against};
use super::inbound::Inbound;
use super::meter::CallLimit;
use super::node::{Node, Refusal, lock};
use super::permission::Permit;
use super::relay::Added;
use crate::net::{Link, Route, Service as _};
use crate::registry::snapshot::Entry;
use crate::router::{self, Scope};
use crate::schema::{Artifact, ArtifactError, Side};
use crate::store::Replica;

pub(super) use deliver::not_final;
pub(super) use given::Gifts;
pub(super) use listing::PastCall;

/// A call of the agent's that goes to a peer.
pub(super) struct RelayedCall {
    /// The agent's id for it, which is also the id it first goes out under.
    id: MessageId,
    invoked: Mutex<Invoked>,
    name: String,
    want: Want,
    to: Option<Did>,
    ext: Option<Bytes>,
    thread_id: Option<Bytes>,
    expires_at_ms: u64,
    /// The time that the invoke names, in milliseconds.
    timeout_ms: Option<u64>,
    /// When waiting for a provider ends. **Units:** monotonic milliseconds.
    deadline_ms: u64,
    /// When it came. **Units:** monotonic milliseconds.
    started_ms: u64,
    trace: TraceId,
    /// Set with the agent's answer, so that nothing is sent that nobody waits for.
    ended: Ended,
    progress: Mutex<Progress>,
}

/// Whether a call has had its answer. Nearly always nobody waits for that, so it is less than a token.
#[derive(Default)]
struct Ended {
    is_set: AtomicBool,
    told: Notify,
}

impl Ended {
    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// What `work` comes to, unless the call ends before; it is not begun then.
    async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let told = self.told.notified();
        if self.is_set() {
            return None;
        }
        tokio::select! {
            biased;
            () = told => None,
            done = work => Some(done),
        }
    }
}

/// A call's CAP_INVOKE body, and the params within.
#[derive(Clone)]
pub(super) struct Invoked {
    body: Bytes,
    params: Range<usize>,
}

impl Invoked {
    fn new(inbound: &Inbound<'_>, invoke: &Invoke<'_>) -> Self {
        let start = invoke.params.as_ptr().addr() - inbound.body.as_ptr().addr();
        let body = Encoded::item_of(inbound.payload, inbound.body);
        Self { body, params: start..start + invoke.params.len() }
    }

    pub(super) fn params(&self) -> &[u8] {
        &self.body[self.params.clone()]
    }
}

struct Progress {
    waiters: SmallVec<[(Arc<Link>, Route); 1]>,
    /// The peer that is being written down before the call may leave.
    given: Option<Chosen>,
    /// Set once the call may go to its peer.
    chosen: Option<Chosen>,
}

struct Chosen {
    machine: Caller,
    peer: Did,
    /// The peer's journal, where the call is given to that.
    journal: Option<JournalId>,
    /// Those that calls like it are shared among, where it may run only once and none has it yet.
    among: Vec<Replica>,
    /// What was chosen, where the peer says that it serves it.
    descriptor: Option<Arc<Descriptor>>,
    idempotent: bool,
    output: Option<Arc<Artifact>>,
    /// The id of each generation.
    ids: SmallVec<[MessageId; 1]>,
    /// The id of the request that cancels it, once there is one.
    cancel: Option<MessageId>,
}

/// What a machine's output may speak of.
#[derive(Clone, Copy)]
enum Handed<'a> {
    Nothing,
    Message(&'a Inbound<'a>, Type),
    /// A CAP_RESULT, and what it says: a result, which is CBOR, or an error of this code.
    Result(&'a Inbound<'a>, Result<&'a [u8], Code>),
    Refusal(&'a Refusal),
}

impl<'a> Handed<'a> {
    /// The message, if it is one.
    const fn message(self) -> Option<(&'a Inbound<'a>, Type)> {
        match self {
            Self::Message(inbound, typ) => Some((inbound, typ)),
            Self::Result(inbound, _) => Some((inbound, Type::CapResult)),
            Self::Nothing | Self::Refusal(_) => None,
        }
    }

    /// The body of the ERROR that it is, as far as another message can hold it.
    fn error(self) -> Option<Vec<u8>> {
        let error = match self {
            Self::Message(inbound, Type::Error) => ErrorBody::decode(inbound.body).ok()?,
            Self::Refusal(refusal) => {
                let error = ErrorBody::new(refusal.code, refusal.message.as_str());
                ErrorBody { details: refusal.details.as_deref(), ..error }
            }
            Self::Nothing | Self::Message(..) | Self::Result(..) => return None,
        };
        // It stands deeper than it came, and what is too deep for the agent would take the whole answer with it.
        let fits = |details: &&[u8]| cbor::check(&[&[0x81; 8][..], details].concat()).is_ok();
        let mut body = Vec::new();
        ErrorBody { details: error.details.filter(fits), ..error }.encode(&mut body);
        Some(body)
    }
}

impl Node {
    /// CAP_INVOKE: from a peer it runs here; from the agent it runs wherever it is served. **Source:** PROTOCOL 7.3.
    pub(in crate::daemon) fn on_invoke(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let invoke = Invoke::decode_checked(inbound.checked_body()).map_err(Refusal::of)?;
        let identity = invoke.identity().map_err(Refusal::of)?;
        let taken = self.take_invoke(inbound, &invoke, &identity);
        match taken {
            // PROTOCOL 8: an ERROR says that nothing was executed under this id. One about another body is about another call.
            Err(refusal)
                if inbound.link.kind().is_local()
                    && refusal.code != Code::BAD_REQUEST
                    && self.gifts.may_have_run(&inbound.envelope.id, &identity.name) =>
            {
                self.log_refused(inbound.link, inbound.payload, &refusal, true);
                self.answer_unknown(inbound, &refusal);
                Ok(())
            }
            taken => taken,
        }
    }

    fn take_invoke(
        &self,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        identity: &Identity<'_>,
    ) -> Result<(), Refusal> {
        let permit = self.permit_call(inbound, &identity.name)?;
        if invoke.delegation.is_some() {
            // PROTOCOL 7.3: until delegations are supported, none holds.
            return Err(Refusal::new(Code::DELEGATION_INVALID, "delegation is not supported"));
        }
        if !inbound.link.kind().is_local() {
            self.is_for_this_journal(inbound)?;
            let want = self.wanted(inbound, &identity.name, identity.want.clone(), invoke)?;
            return self.execute_inbound(inbound, invoke, &identity.name, want, None, permit);
        }
        let to = if inbound.is_for(self.did()) { None } else { Some(self.peer_named(inbound)?) };
        let pinned = invoke.session.and_then(|session| self.pinned_by(session.session_id, &identity.name));
        let (want, to) = match pinned {
            Some((peer, version)) if to.as_ref().is_none_or(|to| *to == peer) => {
                (Want::Pinned(version), Some(peer))
            }
            _ => (self.wanted(inbound, &identity.name, identity.want.clone(), invoke)?, to),
        };
        let to = self.given_to(&inbound.envelope.id, &identity.name, to)?;
        if to.is_none() || to.as_ref() == Some(self.did()) {
            if self.executes(inbound.envelope.id) {
                return self.execute_inbound(inbound, invoke, &identity.name, want, None, permit);
            }
            let may_call = |entry: &Entry| self.may_call(&permit, entry);
            let local = router::route(&permit.snapshot, &identity.name, &want, Scope::Local, may_call);
            if let Ok(descriptor) = local.map(|choice| Arc::clone(&choice.entry.descriptor)) {
                let Some(output) = self.pass_here(inbound, invoke, &descriptor)? else { return Ok(()) };
                return self.execute_inbound(inbound, invoke, &identity.name, want, output, permit);
            }
        }
        self.relay_call(inbound, invoke, &identity.name, want, to)
    }

    fn execute_inbound(
        &self,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        name: &str,
        want: Want,
        output: Option<Arc<Artifact>>,
        permit: Permit,
    ) -> Result<(), Refusal> {
        self.execute(&Incoming {
            now: inbound.now,
            link: inbound.link,
            route: inbound.route,
            from: inbound.sender,
            id: inbound.envelope.id,
            thread_id: inbound.envelope.thread_id.as_deref(),
            trace: TraceId::of(inbound.envelope),
            envelope: self.for_agent(inbound),
            body: inbound.body,
            invoke,
            name,
            want,
            output,
            expires_at_ms: inbound.expires_at_ms(),
            permit,
        })
    }

    /// The agent's call of what is served here, at the gate and held against what the agent was built against. Gives
    /// the schema that its result is to fit besides the provider's; `None` when the call is met again once its case
    /// is decided.
    fn pass_here(
        &self,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        descriptor: &Descriptor,
    ) -> Result<Option<Option<Arc<Artifact>>>, Refusal> {
        let name = descriptor.id.name.as_str();
        if !self.drift.is_before(name) {
            return Ok(Some(None));
        }
        let (peer, id) = (self.did().as_str(), &inbound.envelope.id);
        let session = invoke.session.map(|session| session.session_id);
        let about = Audited { capability: name, peer, id, session };
        let passed = self
            .offered(descriptor)
            .and_then(|offered| Ok((self.pass(descriptor, &offered, self.did())?, offered)));
        let (requirement, offered) = match passed {
            Ok(passed) => passed,
            Err(Barrier::Schema(hash)) => return Err(refused_artifact(ArtifactError::Missing(hash))),
            Err(Barrier::Refused(shut)) => {
                self.audit_drift(&shut, about);
                return Err(shut.refusal);
            }
            Err(Barrier::Undecided(question)) => {
                let Some(node) = self.shared() else { return Ok(None) };
                let (link, route) = (Arc::clone(inbound.link), inbound.route.clone());
                let payload = inbound.payload.clone();
                self.spawn(async move {
                    node.prove(*question, node.did()).await;
                    node.on_message(&link, &route, payload);
                });
                return Ok(None);
            }
        };
        // The executor holds them against the provider's own schema.
        if let Some(input) = requirement.as_ref().and_then(|requirement| requirement.needed.input.as_ref()) {
            let validator = input.validator().map_err(refused_artifact)?;
            validator.validate(invoke.params, Side::Request).map_err(|violations| {
                self.refused_params(inbound.envelope.thread_id.as_deref(), about, &violations)
            })?;
        }
        let (_, output) = held_against(requirement.as_deref(), &offered);
        Ok(Some(output))
    }

    fn relay_call(
        &self,
        inbound: &Inbound<'_>,
        invoke: &Invoke<'_>,
        name: &str,
        want: Want,
        to: Option<Did>,
    ) -> Result<(), Refusal> {
        if let Some(running) = self.relay.call(&inbound.envelope.id)
            && running.join(inbound)?
        {
            return Ok(());
        }
        if self.draining.is_cancelled() {
            return Err(Refusal::new(Code::UNAVAILABLE, "the sidecar is shutting down"));
        }
        let time_ms = invoke.timeout_ms.unwrap_or(self.rules.call_timeout_ms);
        let call = Arc::new(RelayedCall {
            id: inbound.envelope.id,
            invoked: Mutex::new(Invoked::new(inbound, invoke)),
            name: name.to_owned(),
            want,
            to,
            ext: inbound.envelope.ext.map(Bytes::copy_from_slice),
            thread_id: inbound.envelope.thread_id.as_deref().map(Bytes::copy_from_slice),
            expires_at_ms: inbound.expires_at_ms(),
            timeout_ms: invoke.timeout_ms,
            deadline_ms: inbound.now.deadline_ms(inbound.expires_at_ms(), time_ms),
            started_ms: inbound.now.monotonic_ms,
            trace: TraceId::of(inbound.envelope),
            ended: Ended::default(),
            progress: Mutex::new(Progress {
                waiters: smallvec![(Arc::clone(inbound.link), inbound.route.clone())],
                given: None,
                chosen: None,
            }),
        });
        match self.relay.add_call(&call) {
            Added::New => {}
            // Another ask under the same id came in between.
            Added::Running(running) if running.join(inbound)? => return Ok(()),
            Added::Running(_) | Added::Full => {
                self.meter.refused(CallLimit::RequestsWaiting);
                return Err(Refusal::new(Code::OVERLOADED, "too many calls are in flight"));
            }
        }
        match self.choose_living_peer(&call) {
            Ok(chosen) => self.give(&call, chosen),
            Err(missing) => self.choose_peer_later(call, missing),
        }
        Ok(())
    }
}

/// What is logged of a call.
pub(super) struct Logged<'a> {
    pub(super) name: &'a str,
    pub(super) invoked: Invoked,
    pub(super) trace: TraceId,
    /// **Units:** monotonic milliseconds.
    pub(super) started_ms: u64,
    pub(super) peer: Option<Did>,
    pub(super) descriptor: Option<Arc<Descriptor>>,
}

impl RelayedCall {
    /// Has another ask for the call wait for its answer; `false` when it has ended meanwhile. **Errors:** 4001 for an ask with
    /// another body.
    fn join(&self, inbound: &Inbound<'_>) -> Result<bool, Refusal> {
        if lock(&self.invoked).body != *inbound.body {
            return Err(Refusal::new(Code::BAD_REQUEST, "this id belongs to a call with another body"));
        }
        let mut progress = lock(&self.progress);
        // Whoever ends the call says so before it takes those who wait.
        if self.ended.is_set() {
            return Ok(false);
        }
        progress.waiters.push((Arc::clone(inbound.link), inbound.route.clone()));
        Ok(true)
    }

    pub(super) const fn id(&self) -> &MessageId {
        &self.id
    }

    pub(super) fn logged(&self) -> Logged<'_> {
        let progress = lock(&self.progress);
        let chosen = progress.chosen.as_ref();
        Logged {
            name: &self.name,
            invoked: self.invoked(),
            trace: self.trace,
            started_ms: self.started_ms,
            peer: chosen.map(|chosen| chosen.peer.clone()),
            descriptor: chosen.and_then(|chosen| chosen.descriptor.clone()),
        }
    }

    fn invoked(&self) -> Invoked {
        lock(&self.invoked).clone()
    }

    /// Keeps the body where it went out, in place of where it came in: a large one is held once.
    fn keep(&self, sent: Bytes) {
        lock(&self.invoked).body = sent;
    }

    /// The call as it is accounted for, with the agent that it is, or was to be, given to.
    fn audited<'a>(&'a self, invoked: &'a Invoked, peer: &'a Did) -> Audited<'a> {
        let invoke = Invoke::decode(&invoked.body).ok();
        let session = invoke.and_then(|invoke| invoke.session).map(|session| session.session_id);
        Audited { capability: &self.name, peer: peer.as_str(), id: &self.id, session }
    }
}
