//! Represents a call of the agent to a peer: its request, its waiters, and its progress.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_proto::call::caller::{Caller as Machine, Generation, Input};
use capd_proto::code::Code;
use capd_proto::envelope::{Encoded, MessageId};
use capd_proto::identity::Did;
use capd_proto::ledger::JournalId;
use capd_proto::message::{Descriptor, ErrorBody, Invoke, Type};
use capd_proto::negotiate::Want;
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::daemon::account::audit::Audited;
use crate::daemon::account::timeline::Timeline;
use crate::daemon::account::trace::Traced;
use crate::daemon::context::judge::Judged;
use crate::daemon::context::seal::{Sealed, Unsealed};
use crate::daemon::context::wire::fits_deeper;
use crate::daemon::context::{Inbound, Refusal, lock};
use crate::net::{Link, Route};
use crate::registry::latency::Latency;
use crate::schema::Artifact;
use crate::store::Replica;

/// A call of the agent's that goes to a peer.
pub(super) struct RelayedCall {
    /// The agent's id for it, which is also the id it first goes out under.
    pub(super) id: MessageId,
    pub(super) invoked: Mutex<Invoked>,
    pub(super) name: String,
    pub(super) want: Want,
    pub(super) destination: Destination,
    pub(super) head: Head,
    pub(super) moments: Moments,
    pub(super) traced: Traced,
    /// Whether its timeline is kept.
    pub(super) is_timed: bool,
    /// Set with the agent's answer, so that nothing is sent that nobody waits for.
    pub(super) ended: Ended,
    pub(super) progress: Mutex<Progress>,
    pub(super) precomputed: Precomputed,
}

/// Where a call of the agent's is to go.
pub(in crate::daemon) struct Destination {
    /// The one peer that may have it.
    pub(in crate::daemon) to: Option<Did>,
    /// Whether the agent, or its session, names that peer, so that no other may have it even on proof.
    pub(in crate::daemon) is_named: bool,
    /// The journal of the process that agreed on the call's session, if it is in one.
    pub(in crate::daemon) journal: Option<JournalId>,
    /// What its agent wants to be kept together at one peer, if it says.
    pub(in crate::daemon) affinity: Option<Box<str>>,
    /// Whether an agent beside this sidecar may have run it, and that was forgotten: it goes nowhere if it may run only once.
    pub(in crate::daemon) may_have_run_here: bool,
}

/// Optional fields of the agent's envelope, which every copy of the call repeats.
pub(super) struct Head {
    pub(super) ext: Option<Bytes>,
    pub(super) thread_id: Option<Bytes>,
}

/// Results of work that takes long, kept until the call comes back for them.
#[derive(Default)]
pub(super) struct Precomputed {
    /// The last verdict over its params that took long.
    pub(super) judged: Mutex<Option<Judged>>,
    /// The last copy of it that took long to sign, until it leaves.
    pub(super) sealed: Mutex<Option<(Unsealed, Sealed)>>,
}

/// When a call came, and until when it lasts.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    /// Its `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub(super) expires_at_ms: u64,
    /// The time that the invoke names, in milliseconds.
    pub(super) timeout_ms: Option<u64>,
    /// When waiting for a provider ends. **Units:** monotonic milliseconds.
    pub(super) deadline_ms: u64,
    /// When it came. **Units:** monotonic microseconds.
    pub(super) started_us: u64,
}

/// Whether a call has had its answer. Nearly always nobody waits for that, so it is less than a token.
#[derive(Default)]
pub(super) struct Ended {
    pub(super) is_set: AtomicBool,
    pub(super) told: Notify,
}

impl Ended {
    pub(super) fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    /// What `work` comes to, unless the call ends before; it is not begun then.
    pub(super) async fn or<T>(&self, work: impl Future<Output = T>) -> Option<T> {
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
    pub(super) body: Bytes,
    pub(super) params: Range<usize>,
}

impl Invoked {
    pub(super) fn new(inbound: &Inbound<'_>, invoke: &Invoke<'_>) -> Self {
        let start = invoke.params.as_ptr().addr() - inbound.body.as_ptr().addr();
        let body = Encoded::item_of(inbound.payload, inbound.body);
        Self { body, params: start..start + invoke.params.len() }
    }

    /// The params, in memory that is shared with the body.
    pub(super) fn shared_params(&self) -> Bytes {
        self.body.slice(self.params.clone())
    }

    pub(super) fn params(&self) -> &[u8] {
        &self.body[self.params.clone()]
    }
}

pub(super) struct Progress {
    pub(super) waiters: SmallVec<[(Arc<Link>, Route); 1]>,
    /// The peer that is being written down before the call may leave.
    pub(super) given: Option<Chosen>,
    /// Set once the call may go to its peer.
    pub(super) chosen: Option<Chosen>,
    /// Peers that refused the call since its last pause.
    pub(super) refused_by: Vec<Did>,
    pub(super) timeline: Timeline,
}

impl Progress {
    /// It is on disk who gets the call. Where it moves, its machine goes with it: gives the id to send it under.
    pub(super) fn take(&mut self, given: Chosen) -> Option<Generation> {
        let Some(chosen) = &mut self.chosen else {
            self.chosen = Some(given);
            return None;
        };
        chosen.go_to(given);
        chosen.machine.generation()
    }
}

pub(super) struct Chosen {
    pub(super) machine: Machine,
    pub(super) peer: Did,
    /// The peer's journal, where the call is given to that.
    pub(super) journal: Option<JournalId>,
    /// Those that calls like it are shared among, where it may run only once and none has it yet.
    pub(super) among: Vec<Replica>,
    /// What was chosen, where the peer says that it serves it.
    pub(super) descriptor: Option<Arc<Descriptor>>,
    pub(super) idempotent: bool,
    /// Whether it takes effect once under its id wherever its copies run, as those who serve it declare.
    pub(super) by_id: bool,
    pub(super) output: Option<Arc<Artifact>>,
    /// How fast the peer answers such calls, until this one has told: only the first copy of a call that left at once does.
    pub(super) latency: Option<Arc<Latency>>,
    /// The id of each generation.
    pub(super) ids: SmallVec<[MessageId; 1]>,
    /// The id of the request that cancels it, once there is one.
    pub(super) cancel: Option<MessageId>,
    /// The id of the request to release it that is not answered yet.
    pub(super) release: Option<MessageId>,
}

impl Chosen {
    /// Another peer gets the call, with everything that has become of it so far.
    pub(super) fn go_to(&mut self, other: Self) {
        self.peer = other.peer;
        self.journal = other.journal;
        self.descriptor = other.descriptor;
        self.output = other.output;
        self.latency = None;
    }

    /// Tells how long the peer took, if this input is its answer to a call that came at `started_us`.
    pub(super) fn measure(&mut self, input: &Input, handed: Handed<'_>, started_us: u64) {
        let has_succeeded = match input {
            Input::Sent | Input::Notice { .. } | Input::Cancel => return,
            Input::Result { error, .. } => error.is_none(),
            Input::Error { .. } => false,
            Input::LinkLost | Input::CancelUnknown | Input::Released | Input::Unreleased | Input::Timeout => {
                self.latency = None;
                return;
            }
        };
        if let Some(latency) = self.latency.take()
            && let Some((inbound, _)) = handed.message()
        {
            latency.take(inbound.now.monotonic_us.saturating_sub(started_us), has_succeeded);
        }
    }
}

/// What a machine's output may speak of.
#[derive(Clone, Copy)]
pub(super) enum Handed<'a> {
    Nothing,
    Message(&'a Inbound<'a>, Type),
    /// A CAP_RESULT, and what it says: a result, which is CBOR, or an error of this code.
    Result(&'a Inbound<'a>, Result<&'a [u8], Code>),
    Refusal(&'a Refusal),
}

impl<'a> Handed<'a> {
    /// The message, if it is one.
    pub(super) const fn message(self) -> Option<(&'a Inbound<'a>, Type)> {
        match self {
            Self::Message(inbound, typ) => Some((inbound, typ)),
            Self::Result(inbound, _) => Some((inbound, Type::CapResult)),
            Self::Nothing | Self::Refusal(_) => None,
        }
    }

    /// The body of the ERROR that it is, as far as another message can hold it.
    pub(super) fn error(self) -> Option<Vec<u8>> {
        let error = match self {
            Self::Message(inbound, Type::Error) => ErrorBody::decode(inbound.body).ok()?,
            Self::Refusal(refusal) => {
                let error = ErrorBody::new(refusal.code, refusal.message.as_str());
                ErrorBody { details: refusal.details.as_deref(), ..error }
            }
            Self::Nothing | Self::Message(..) | Self::Result(..) => return None,
        };
        // It stands deeper than it came, and what is too deep for the agent would take the whole answer with it.
        let details = error.details.filter(|details| fits_deeper(details));
        let mut body = Vec::new();
        ErrorBody { details, ..error }.encode(&mut body);
        Some(body)
    }
}

/// What is logged of a call.
pub(super) struct Logged<'a> {
    pub(super) name: &'a str,
    pub(super) invoked: Invoked,
    pub(super) traced: Traced,
    pub(super) timeline: Timeline,
    pub(super) peer: Option<Did>,
    pub(super) descriptor: Option<Arc<Descriptor>>,
}

impl RelayedCall {
    /// Has another ask for the call wait for its answer; `false` when it has ended meanwhile. **Errors:** 4001 for an ask with
    /// another body.
    pub(super) fn join(&self, inbound: &Inbound<'_>) -> Result<bool, Refusal> {
        if lock(&self.invoked).body != *inbound.body {
            return Err(Refusal::new(Code::BAD_REQUEST, "this id belongs to a call with another body"));
        }
        let mut progress = lock(&self.progress);
        // Whoever ends the call says so before it takes those who wait.
        if self.ended.is_set() {
            return Ok(false);
        }
        progress.timeline.join();
        progress.waiters.push((Arc::clone(inbound.link), inbound.route.clone()));
        Ok(true)
    }

    pub(in crate::daemon) const fn id(&self) -> &MessageId {
        &self.id
    }

    pub(super) fn logged(&self) -> Logged<'_> {
        let progress = lock(&self.progress);
        let chosen = progress.chosen.as_ref();
        Logged {
            name: &self.name,
            invoked: self.invoked(),
            traced: self.traced,
            timeline: progress.timeline.clone(),
            peer: chosen.map(|chosen| chosen.peer.clone()),
            descriptor: chosen.and_then(|chosen| chosen.descriptor.clone()),
        }
    }

    pub(super) fn invoked(&self) -> Invoked {
        lock(&self.invoked).clone()
    }

    /// The signed copy of this, if that is what was signed last.
    pub(super) fn take_sealed(&self, unsealed: &Unsealed) -> Option<Sealed> {
        let (of, sealed) = lock(&self.precomputed.sealed).take()?;
        (of.is_same(unsealed)).then_some(sealed)
    }

    /// Keeps the body where it went out, in place of where it came in: a large one is held once.
    pub(super) fn keep(&self, sent: Bytes) {
        lock(&self.invoked).body = sent;
    }

    /// The call as it is accounted for, with the agent that it is, or was to be, given to.
    pub(super) fn audited<'a>(&'a self, invoked: &'a Invoked, peer: &'a Did) -> Audited<'a> {
        let invoke = Invoke::decode(&invoked.body).ok();
        let session = invoke.and_then(|invoke| invoke.session).map(|session| session.session_id);
        Audited { capability: &self.name, peer: peer.as_str(), id: &self.id, session }
    }
}
