//! Invokes for our own providers in, one CAP_RESULT or one ERROR each out: the executor's side of a call.
//!
//! [`drive`] tells a running call's machine what happened and does what it says; [`results`] turns a provider's outcome
//! into the call's one result; [`record`] waits for the journal where a call may run only once; [`recover`] takes over
//! what a former process left there; [`rates`] refuses whoever calls too often, [`room`] what there is no
//! room for.

mod access;
mod drive;
mod listing;
mod rates;
mod record;
mod recover;
mod results;
mod room;

use crate::daemon::journal::Scribe;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ahash::HashMap;
use bytes::Bytes;
use capd_proto::call::executor::{Executor as Machine, Input};
use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::envelope::{Encoded, MessageId};
use capd_proto::identity::Did;
use capd_proto::ledger::{
    Admission, Answerer, BodyDigest, Bound as Full, CancelMarks, Facts, Invoke as Admitted, Kept, Ledger,
    Status,
};
use capd_proto::message::{Descriptor, Invoke, SchemaSide};
use capd_proto::negotiate::{SessionId, Want};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::daemon::account::access::{PAYLOAD_BYTES_MAX, Payload, TraceId};
use crate::daemon::account::audit::Audited;
use crate::daemon::account::meter::CallLimit;
use crate::daemon::context::refusal::{denied, refused_artifact};
use crate::daemon::context::wire::violation_details;
use crate::daemon::context::{Refusal, lock, seal::needs_signature};
use crate::daemon::door::permit::Permit;
use crate::daemon::node::Node;
use crate::net::deadlines::Deadlines;
use crate::net::{Link, Now, Route};
use crate::provider::{CallKey, Invocation, Provider};
use crate::registry::snapshot::{Entry, Origin};
use crate::router::{self, Scope};
use crate::schema::{Artifact, Side, Violation};
use crate::store::{Begun, Row};
use results::Answer;

pub(super) use record::Written;
pub(super) use recover::{Recovered, recover};
pub(super) use room::Bounds;

/// Running calls and the ledger of those that ran.
pub(super) struct Executor {
    /// Writes calls that may run only once.
    scribe: Arc<dyn Scribe<Written>>,
    calls: Mutex<Calls>,
    /// Wakes the task that keeps deadlines, when an earlier one came in.
    wake: Notify,
    /// Wakes those who wait for the last running call to end.
    idle: Notify,
    bounds: Bounds,
}

struct Calls {
    ledger: Ledger<Waiter>,
    /// Behind a pointer each: the map moves its entries about.
    running: HashMap<CallKey, Box<Running>>,
    /// Calls in flight by caller.
    by_caller: BTreeMap<Did, usize>,
    /// The same by capability. One that is not called stays for a while, since it will be.
    by_capability: BTreeMap<CapabilityId, usize>,
    deadlines: Deadlines<CallKey>,
    /// Calls whose results the journal could not take yet.
    unsaved: BTreeSet<CallKey>,
    /// What finished calls were calls of.
    called: listing::Called,
    /// Calls that were cancelled before they came.
    cancelled: CancelMarks,
}

/// Where a result is to go.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    link: Arc<Link>,
    route: Route,
}

/// A call that has no recorded result yet.
pub(super) struct Running {
    machine: Machine,
    stage: Stage,
    /// Its row in the journal; a call that may run again has none.
    row: Option<Row>,
    invocation: Invocation,
    /// How long its params are, or were.
    params_bytes: usize,
    session: Option<SessionId>,
    trace: TraceId,
    provider: Arc<dyn Provider>,
    /// Other providers of the same capability, for an idempotent call whose provider is lost.
    others: Candidates,
    output: Option<Arc<Artifact>>,
    is_deprecated: bool,
    signed: bool,
    expires_at_ms: u64,
    started_ms: u64,
    deadline_ms: u64,
}

/// Those that may run a call: mostly one.
type Candidates = SmallVec<[Arc<dyn Provider>; 1]>;

/// What a running call waits for.
enum Stage {
    /// Its row. The first thing that happens meanwhile waits for it too.
    Recording { waiting: Option<Input> },
    /// Its provider.
    Executing,
    /// Its result's row.
    Concluding { concluded: Concluded, by: Answerer },
}

/// A call's one result, made and not yet known to whoever waits for it.
struct Concluded {
    /// Its CAP_RESULT.
    envelope: Encoded,
    /// **Units:** milliseconds since the Unix epoch.
    finished_at_ms: u64,
    ended: Result<(), Code>,
}

/// What became of an invoke that is new as far as its permissions and its params go.
enum Begin {
    /// It runs, or, if it was cancelled before it came, is about to end.
    Runs { is_cancelled: bool },
    /// The ledger knows it by now, or has no room for it.
    Known(Admission<Waiter>),
}

/// A CAP_INVOKE that is to run here.
pub(super) struct Incoming<'a> {
    /// When the turn began in which it came.
    pub(super) now: Now,
    pub(super) link: &'a Arc<Link>,
    pub(super) route: &'a Route,
    pub(super) from: &'a Did,
    pub(super) id: MessageId,
    /// The caller's turn.
    pub(super) thread_id: Option<&'a [u8]>,
    pub(super) trace: TraceId,
    /// The envelope that the provider gets.
    pub(super) envelope: Bytes,
    pub(super) body: &'a Bytes,
    pub(super) invoke: &'a Invoke<'a>,
    pub(super) name: &'a str,
    pub(super) want: Want,
    /// What the caller takes for a result where the provider does not say.
    pub(super) output: Option<Arc<Artifact>>,
    pub(super) expires_at_ms: u64,
    /// What the caller may have.
    pub(super) permit: Permit,
}

impl Incoming<'_> {
    fn waiter(&self) -> Waiter {
        Waiter { link: Arc::clone(self.link), route: self.route.clone() }
    }
}

impl Executor {
    pub(super) fn new(scribe: Arc<dyn Scribe<Written>>, ledger: Ledger<Waiter>, bounds: Bounds) -> Self {
        let calls = Calls {
            ledger,
            running: HashMap::default(),
            by_caller: BTreeMap::new(),
            by_capability: BTreeMap::new(),
            deadlines: Deadlines::default(),
            unsaved: BTreeSet::new(),
            called: listing::Called::default(),
            cancelled: CancelMarks::default(),
        };
        let (wake, idle) = (Notify::new(), Notify::new());
        Self { scribe, calls: Mutex::new(calls), wake, idle, bounds }
    }

    /// Waits until no call runs.
    pub(super) async fn idle(&self) {
        loop {
            let changed = self.idle.notified();
            if lock(&self.calls).running.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Where a call stands.
    pub(super) fn status(&self, key: &CallKey) -> Status {
        lock(&self.calls).ledger.status(key)
    }

    /// Drops every running call; what their providers still say finds none.
    pub(super) fn let_go(&self) {
        let running = std::mem::take(&mut lock(&self.calls).running);
        // What lets go of whom is in one order each time.
        drop(BTreeMap::from_iter(running));
    }

    /// For tests of those who look for mistakes: has the ledger take every call for a new one.
    #[cfg(feature = "test-hooks")]
    pub(super) fn set_blind(&self, is_blind: bool) {
        lock(&self.calls).ledger.set_blind(is_blind);
    }

    /// Takes a call out that the journal did not take in. Its one waiter is told by the refusal.
    fn take_back(&self, key: &CallKey) {
        {
            let mut calls = lock(&self.calls);
            calls.end(key);
            let _told = calls.ledger.withdraw(key);
        }
        self.idle.notify_waiters();
    }

    /// Keys of every running call, in the order of their deadlines.
    fn running(&self) -> Vec<CallKey> {
        let calls = lock(&self.calls);
        calls.deadlines.keys(ends_at(&calls.running))
    }
}

impl Running {
    /// What is logged of it, and when it started in monotonic milliseconds.
    pub(super) fn logged(&self) -> (TraceId, &Invocation, Payload<'_>, u64) {
        let params = Payload { bytes: self.params_bytes, shown: &self.invocation.params };
        (self.trace, &self.invocation, params, self.started_ms)
    }

    /// What its provider is to be given. Large params that nobody else could be given are kept no longer than that takes.
    fn hand_over(&mut self) -> Invocation {
        let invocation = self.invocation.clone();
        if self.others.is_empty() && PAYLOAD_BYTES_MAX < self.params_bytes {
            self.invocation.envelope.clear();
            self.invocation.params.clear();
        }
        invocation
    }
}

impl Calls {
    /// Where a call stands, and what it is a call of once it has ended.
    fn known(&self, key: &CallKey) -> (Status, Option<Arc<CapabilityId>>) {
        let known = self.ledger.known(key);
        known.map_or((Status::Unknown, None), |(status, facts)| (status, facts.capability.clone()))
    }

    /// Takes a call in; `true` when its deadline is the earliest.
    fn start(&mut self, key: CallKey, running: Box<Running>) -> bool {
        *self.by_caller.entry(key.from.clone()).or_default() += 1;
        self.count_capability(&running.invocation.capability);
        let is_earliest = self.deadlines.first().is_none_or(|(at_ms, _)| running.deadline_ms < at_ms);
        self.deadlines.insert(running.deadline_ms, key.clone());
        self.running.insert(key, running);
        is_earliest
    }

    /// Takes out the deadlines that have come.
    fn take_due(&mut self, now_ms: u64) -> Vec<CallKey> {
        std::iter::from_fn(|| self.deadlines.take_due(now_ms, ends_at(&self.running))).collect()
    }

    fn end(&mut self, key: &CallKey) -> Option<Box<Running>> {
        let running = self.running.remove(key)?;
        self.note(key, &running);
        self.deadlines.remove(running.deadline_ms, key, self.running.len(), ends_at(&self.running));
        if let Some(count) = self.by_caller.get_mut(&key.from) {
            *count -= 1;
            if *count == 0 {
                self.by_caller.remove(&key.from);
            }
        }
        if let Some(count) = self.by_capability.get_mut(&running.invocation.capability) {
            *count -= 1;
        }
        Some(running)
    }
}

/// Whether a call still runs that is to end at a moment.
fn ends_at(running: &HashMap<CallKey, Box<Running>>) -> impl Fn(u64, &CallKey) -> bool {
    |at_ms, key| running.get(key).is_some_and(|running| running.deadline_ms == at_ms)
}

/// What tells this body from another. BLAKE3 takes a quarter of SHA-256's time for a large one, and twice it for a small
/// one.
fn digest(body: &[u8]) -> BodyDigest {
    BodyDigest(if body.len() < LARGE_BODY_BYTES {
        Sha256::digest(body).into()
    } else {
        blake3::hash(body).into()
    })
}

impl Node {
    /// Runs a call with one of our own providers, joins it to itself, or replays its result.
    ///
    /// **Errors:** the refusal, in the order of PROTOCOL 7.3.
    pub(in crate::daemon) fn execute(&self, call: &Incoming<'_>) -> Result<(), Refusal> {
        let key = CallKey { from: call.from.clone(), id: call.id };
        let digest = digest(call.body);
        let permit = &call.permit;
        if let Some(known) = self.meet_known(call, &key, digest)? {
            return self.attend(call, known);
        }
        let may_call = |entry: &Entry| permit.may_call(entry);
        let choice = router::route(&permit.snapshot, call.name, &call.want, Scope::Local, may_call)
            .map_err(|refusal| permit.refusal(refusal))?;
        let descriptor = &choice.entry.descriptor;
        self.within_rates(call, descriptor)?;
        if let Some(schema) = self.directory.schema(descriptor.input_schema.as_ref())? {
            let params = schema.validator().map_err(refused_artifact)?;
            params
                .validate(call.invoke.params, Side::Request)
                .map_err(|violations| self.unfit_params(call, &violations))?;
        }
        let output =
            self.directory.schema(descriptor.output_schema.as_ref())?.or_else(|| call.output.clone());
        let mut others = self.candidates(choice.entry, &choice.alternatives);
        let left = || Refusal::new(Code::UNAVAILABLE, "the provider has just left");
        let provider = others.pop().ok_or_else(left)?;
        let idempotent = descriptor.idempotent;
        let time_ms = call.invoke.timeout_ms.or(descriptor.timeout_ms).unwrap_or(self.ctx.call_timeout_ms);
        let deadline_ms = call.now.deadline_ms(call.expires_at_ms, time_ms);
        let invocation = Invocation {
            key: key.clone(),
            capability: descriptor.id.clone(),
            names_id: call.invoke.id.is_some(),
            envelope: call.envelope.clone(),
            params: call.body.slice_ref(call.invoke.params),
            deadline: self.ctx.clock.moment(deadline_ms),
        };
        let row = if idempotent { None } else { Some(self.executor.scribe.next_row()) };
        let running = Box::new(Running {
            machine: Machine::new(idempotent, deadline_ms),
            // PROTOCOL 8: a call that may run only once is on disk before its provider sees it.
            stage: if row.is_some() { Stage::Recording { waiting: None } } else { Stage::Executing },
            row,
            invocation,
            params_bytes: call.invoke.params.len(),
            session: call.invoke.session.map(|session| session.session_id),
            trace: call.trace,
            provider,
            others,
            output,
            is_deprecated: choice.is_deprecated,
            signed: needs_signature(call.link),
            expires_at_ms: call.expires_at_ms,
            started_ms: call.now.monotonic_ms,
            deadline_ms,
        });
        let is_cancelled = match self.begin_running(call, &key, digest, descriptor, running)? {
            Begin::Runs { is_cancelled } => is_cancelled,
            Begin::Known(known) => return self.attend(call, known),
        };
        if choice.is_deprecated {
            self.account.warn_deprecated(call.from, &descriptor.id);
        }
        let Some(row) = row else {
            if is_cancelled {
                self.on_begun(&key);
            } else {
                self.drive(&key, Input::Accept, Answer::None);
            }
            return Ok(());
        };
        let begun = Begun {
            row,
            key: key.clone(),
            body: digest,
            expires_at_ms: call.expires_at_ms,
            started_at_ms: call.now.wall_ms,
            capability: lock(&self.executor.calls).called.text(&descriptor.id),
        };
        self.begin(begun).inspect_err(|_| self.executor.take_back(&key))
    }

    /// The refusal of params that do not fit: our own agent is told what it may repair, a peer's sidecar should have known.
    fn unfit_params(&self, call: &Incoming<'_>, violations: &[Violation]) -> Refusal {
        let (capability, peer) = (call.name, call.from.as_str());
        let session = call.invoke.session.map(|session| session.session_id);
        let about = Audited { capability, peer, id: &call.id, session };
        if call.link.kind().is_local() {
            return self.account.refused_params(call.thread_id, about, violations);
        }
        self.account.audit_violations(SchemaSide::Request, about, violations);
        Refusal::new(Code::SCHEMA_VIOLATION, "the params do not fit the input schema")
            .with_details(violation_details(SchemaSide::Request, violations))
    }

    /// Joins a call that the ledger knows, in one look. **Errors:** 3001 for a recorded result that the caller may not have
    /// any more.
    fn meet_known(
        &self,
        call: &Incoming<'_>,
        key: &CallKey,
        body: BodyDigest,
    ) -> Result<Option<Admission<Waiter>>, Refusal> {
        let mut calls = lock(&self.executor.calls);
        match calls.known(key) {
            (Status::Unknown, _) => return Ok(None),
            // PROTOCOL 7.3: permission comes first, for what was recorded while there was one too.
            (Status::Finished, Some(called)) if !call.permit.may_recall(&called) => {
                return Err(denied());
            }
            // PROTOCOL 8: a known id is joined or replayed whatever is served by now.
            (Status::Executing | Status::Finished, _) => {}
        }
        let (key, expires_at_ms) = (key.clone(), call.expires_at_ms);
        let invoke = Admitted { key, body, expires_at_ms, idempotent: false };
        Ok(Some(calls.ledger.admit_with(invoke, Facts::default(), call.waiter())))
    }

    /// Takes a new call into the ledger and among those that run, in one look. **Errors:** there is no room for it.
    fn begin_running(
        &self,
        call: &Incoming<'_>,
        key: &CallKey,
        body: BodyDigest,
        chosen: &Descriptor,
        mut running: Box<Running>,
    ) -> Result<Begin, Refusal> {
        let mut calls = lock(&self.executor.calls);
        self.room_for(&calls, call.from, &chosen.id)?;
        let (key, expires_at_ms) = (key.clone(), call.expires_at_ms);
        let invoke = Admitted { key: key.clone(), body, expires_at_ms, idempotent: chosen.idempotent };
        let facts = Facts { capability: Some(calls.called.shared(&chosen.id)), ..Facts::default() };
        let admission = calls.ledger.admit_with(invoke, facts, call.waiter());
        if !matches!(admission, Admission::New) {
            return Ok(Begin::Known(admission));
        }
        // PROTOCOL 7.6: it was cancelled before it came, so it ends with 4901 and does not run.
        let is_cancelled = calls.cancelled.take(&key, call.now.monotonic_ms);
        if is_cancelled {
            running.stage = Stage::Recording { waiting: Some(Input::Cancel { own: true }) };
        }
        if calls.start(key, running) {
            self.executor.wake.notify_one();
        }
        Ok(Begin::Runs { is_cancelled })
    }

    /// What the ledger says of a call that is not new.
    fn attend(&self, call: &Incoming<'_>, known: Admission<Waiter>) -> Result<(), Refusal> {
        match known {
            Admission::New | Admission::Attached { displaced: _ } => Ok(()),
            Admission::Replay { kept: Kept::Held(result), waiter } => {
                self.ctx.send(&waiter.link, &waiter.route, result);
                Ok(())
            }
            Admission::Replay { kept: Kept::Journaled { row, .. }, waiter } => {
                self.recall(call.id, Row(row), waiter);
                Ok(())
            }
            Admission::Forgotten(_) => {
                Err(Refusal::new(Code::INVALID_TIMESTAMP, "calls of this age are no longer remembered"))
            }
            Admission::Conflict(_) => {
                Err(Refusal::new(Code::BAD_REQUEST, "this id belongs to a call with another body"))
            }
            Admission::Full { bound, .. } => {
                self.account.meter.refused(match bound {
                    Full::Calls | Full::PeerCalls => CallLimit::LedgerEntries,
                    Full::KeptBytes | Full::PeerKeptBytes => CallLimit::LedgerBytes,
                });
                Err(Refusal::new(Code::OVERLOADED, "the memory of calls is full"))
            }
        }
    }

    /// The providers behind the chosen capability, the one to take last: of two at random the less loaded.
    fn candidates(&self, chosen: &Entry, all: &[&Entry]) -> Candidates {
        let mut providers: Candidates = all
            .iter()
            .filter(|entry| {
                Arc::ptr_eq(&entry.descriptor, &chosen.descriptor) || entry.descriptor == chosen.descriptor
            })
            .filter_map(|entry| match &entry.origin {
                Origin::Local(id) => self.providers.serving(*id),
                Origin::Peer(_) => None,
            })
            .collect();
        if providers.len() > 1 {
            // Without randomness it is the first two, which is safe.
            let random = self.ctx.random.u32().unwrap_or(0);
            let taken = router::less_loaded(providers.len(), random, |at| providers[at].in_flight());
            let taken = providers.remove(taken);
            providers.sort_by_key(|provider| std::cmp::Reverse(provider.in_flight()));
            providers.push(taken);
        }
        providers
    }
}

/// From here on a body's digest is BLAKE3.
const LARGE_BODY_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests;
