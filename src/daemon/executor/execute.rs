//! Takes a CAP_INVOKE for a local provider: begins, joins or replays the call, or refuses it once.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::call::executor::{Executor as Machine, Input};
use capd_proto::code::Code;
use capd_proto::ledger::{Admission, BodyDigest, Bound as Full, Facts, Invoke as Admitted, Kept, Status};
use capd_proto::message::{Descriptor, Invoke, SchemaSide};
use capd_proto::negotiate::Want;
use sha2::{Digest, Sha256};

use super::Executor;
use super::release::released;
use super::results::Answer;
use super::table::{Candidates, Moments, Running, Serving, Stage, Waiter};
use crate::daemon::account::audit::Audited;
use crate::daemon::account::meter::CallLimit;
use crate::daemon::account::phases::Phase;
use crate::daemon::account::trace::Traced;
use crate::daemon::context::judge::verdict;
use crate::daemon::context::refusal::{denied, forgotten, refused_artifact};
use crate::daemon::context::seal::needs_signature;
use crate::daemon::context::wire::violation_details;
use crate::daemon::context::{Inbound, Refusal, Taken, lock};
use crate::daemon::door::permit::Permit;
use crate::provider::{CallKey, Invocation};
use crate::registry::snapshot::{Entry, Origin};
use crate::router::{self, Scope};
use crate::schema::{Artifact, Side, Violation};
use crate::store::{Begun, Row};

/// What became of an invoke that is new as far as its permissions and its params go.
enum Begin {
    /// It runs, or, if it was cancelled before it came, is about to end.
    Runs { is_cancelled: bool },
    /// The ledger knows it by now, or has no room for it.
    Known(Admission<Waiter>),
}

/// A CAP_INVOKE that is to run here.
pub(in crate::daemon) struct Incoming<'a> {
    pub(in crate::daemon) inbound: &'a Inbound<'a>,
    pub(in crate::daemon) invoke: &'a Invoke<'a>,
    pub(in crate::daemon) name: &'a str,
    pub(in crate::daemon) want: Want,
    /// What the caller takes for a result where the provider does not say.
    pub(in crate::daemon) output: Option<Arc<Artifact>>,
    /// What the caller may have.
    pub(in crate::daemon) permit: Permit,
}

impl Incoming<'_> {
    fn waiter(&self) -> Waiter {
        Waiter { link: Arc::clone(self.inbound.link), route: self.inbound.route.clone(), request: None }
    }
}

/// Whether a copy of the call that runs again does no harm. FLEET X9: a provider that remembers ids itself sees to that. What
/// became of a call is remembered by its caller's sidecar, which for our own agent is this one.
fn is_repeatable(call: &Incoming<'_>, descriptor: &Descriptor) -> bool {
    descriptor.idempotent || (descriptor.by_id && !call.inbound.link.kind().is_local())
}

impl Executor {
    /// Runs a call with one of our own providers, joins it to itself, or replays its result.
    ///
    /// **Errors:** the refusal, in the order of PROTOCOL 7.3.
    pub(in crate::daemon) fn execute(self: &Arc<Self>, call: &Incoming<'_>) -> Result<Taken, Refusal> {
        let key = CallKey { from: call.inbound.sender.clone(), id: call.inbound.envelope.id };
        let digest = digest(call.inbound.body);
        let permit = &call.permit;
        if let Some(known) = self.meet_known(call, &key, digest)? {
            return self.attend(call, known).map(|()| Taken::Done);
        }
        let may_call = |entry: &Entry| permit.may_call(entry);
        let choice = router::route(&permit.snapshot, call.name, &call.want, Scope::Local, may_call)
            .map_err(|refusal| permit.refusal(refusal))?;
        let descriptor = &choice.entry.descriptor;
        self.within_rates(call, descriptor)?;
        if let Some(schema) = self.directory.schema(descriptor.input_schema.as_ref())? {
            let (params, side) = (call.invoke.params, Side::Request);
            match verdict(&schema, params, side, call.inbound.judged).map_err(refused_artifact)? {
                Some(verdict) => verdict.map_err(|violations| self.unfit_params(call, &violations))?,
                None => {
                    let again = call.inbound.again_judged(&self.ctx, &schema, params, side);
                    return Ok(Taken::Again(again));
                }
            }
        }
        let output =
            self.directory.schema(descriptor.output_schema.as_ref())?.or_else(|| call.output.clone());
        let mut others = self.candidates(choice.entry, &choice.alternatives);
        let left = || Refusal::new(Code::UNAVAILABLE, "the provider has just left");
        let provider = others.pop().ok_or_else(left)?;
        let idempotent = is_repeatable(call, descriptor);
        let time_ms = call.invoke.timeout_ms.or(descriptor.timeout_ms).unwrap_or(self.ctx.call_timeout_ms());
        let deadline_ms = call.inbound.now.deadline_ms(call.inbound.expires_at_ms(), time_ms);
        let traced = self.account.traced(call.inbound.envelope);
        let (envelope, params) = self.for_provider(call, &traced);
        let invocation = Invocation {
            key: key.clone(),
            capability: descriptor.id.clone(),
            names_id: call.invoke.id.is_some(),
            envelope,
            params,
            deadline: self.ctx.clock.moment(deadline_ms),
        };
        if !idempotent {
            self.fleet.may_journal()?;
            self.within_ttl(call)?;
        }
        let row = if idempotent { None } else { Some(self.scribe.next_row()) };
        let (link, came_us) = (call.inbound.link, call.inbound.now.monotonic_us);
        let mut timeline = self.account.timeline(&traced, link, came_us);
        if row.is_some() {
            self.account.enter(&mut timeline, Phase::Journal);
        }
        let running = Box::new(Running {
            machine: Machine::new(idempotent, deadline_ms),
            // PROTOCOL 8: a call that may run only once is on disk before its provider sees it.
            stage: if row.is_some() { Stage::Recording { waiting: None } } else { Stage::Executing },
            row,
            invocation,
            params_bytes: call.invoke.params.len(),
            session: call.invoke.session.map(|session| session.session_id),
            traced,
            timeline,
            serving: Serving { provider, others, output },
            is_deprecated: choice.is_deprecated,
            signed: needs_signature(call.inbound.link),
            moments: Moments {
                expires_at_ms: call.inbound.expires_at_ms(),
                started_us: call.inbound.now.monotonic_us,
                deadline_ms,
            },
        });
        let is_cancelled = match self.begin_running(call, &key, digest, descriptor, running)? {
            Begin::Runs { is_cancelled } => is_cancelled,
            Begin::Known(known) => return self.attend(call, known).map(|()| Taken::Done),
        };
        if choice.is_deprecated {
            self.account.warn_deprecated(call.inbound.sender, &descriptor.id);
        }
        let Some(row) = row else {
            if is_cancelled {
                self.on_begun(&key);
            } else {
                self.drive(&key, Input::Accept, Answer::None);
            }
            return Ok(Taken::Done);
        };
        let begun = Begun {
            row,
            key: key.clone(),
            body: digest,
            expires_at_ms: call.inbound.expires_at_ms(),
            started_at_ms: call.inbound.now.wall_ms,
            capability: lock(&self.table.calls).called.text(&descriptor.id),
        };
        self.begin(begun).inspect_err(|_| self.table.take_back(&key))?;
        Ok(Taken::Done)
    }

    /// FLEET X11: a member that goes for good is asked for its results until then.
    ///
    /// **Errors:** 1003 for a call of another member's that would have to be remembered for longer than that.
    fn within_ttl(&self, call: &Incoming<'_>) -> Result<(), Refusal> {
        let (ttl_ms, max_ms) = (call.inbound.envelope.ttl, self.ctx.config().limits.ledger_ttl_max_ms);
        if !self.fleet.is_any() || call.inbound.link.kind().is_local() || ttl_ms <= max_ms {
            return Ok(());
        }
        self.account.meter.refused(CallLimit::LedgerTtl);
        let why = format!(
            "the call's ttl is {ttl_ms} ms, and a provider in a fleet remembers a call that may run only once for {max_ms} ms at most \
             (its limits.ledger_ttl_max_ms); make the call with a shorter ttl"
        );
        Err(Refusal::new(Code::INVALID_TIMESTAMP, why))
    }

    /// What a provider gets of a call, and the params in it. With a span of ours, its `traceparent` names that.
    fn for_provider(&self, call: &Incoming<'_>, traced: &Traced) -> (Bytes, Bytes) {
        let (inbound, params) = (call.inbound, call.invoke.params);
        let ext = traced.ext(inbound.envelope.ext);
        let rewritten = ext.and_then(|ext| self.ctx.for_agent_with(inbound, &ext));
        let Some((envelope, body)) = rewritten else {
            return (self.ctx.for_agent(inbound), inbound.body.slice_ref(params));
        };
        let start = params.as_ptr().addr() - inbound.body.as_ptr().addr();
        (envelope, body.slice(start..start + params.len()))
    }

    /// The refusal of params that do not fit: our own agent is told what it may repair, a peer's sidecar should have known.
    fn unfit_params(&self, call: &Incoming<'_>, violations: &[Violation]) -> Refusal {
        let (capability, peer) = (call.name, call.inbound.sender.as_str());
        let session = call.invoke.session.map(|session| session.session_id);
        let about = Audited { capability, peer, id: &call.inbound.envelope.id, session };
        if call.inbound.link.kind().is_local() {
            return self.account.refused_params(
                call.inbound.envelope.thread_id.as_deref(),
                about,
                violations,
            );
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
        let mut calls = lock(&self.table.calls);
        match calls.known(key) {
            (Status::Unknown, _) if calls.ledger.is_released(key) => {
                return Err(released(calls.ledger.is_released_for_good(key)));
            }
            (Status::Unknown, _) => return Ok(None),
            // PROTOCOL 7.3: permission comes first, for what was recorded while there was one too.
            (Status::Finished, Some(called)) if !call.permit.may_recall(&called) => {
                return Err(denied());
            }
            // PROTOCOL 8: a known id is joined or replayed whatever is served by now.
            (Status::Executing | Status::Finished, _) => {}
        }
        let expires_at_ms = call.inbound.expires_at_ms();
        let invoke = Admitted { key: key.clone(), body, expires_at_ms, idempotent: false };
        let admission = calls.ledger.admit_with(invoke, Facts::default(), call.waiter());
        calls.note_copy(key, &admission);
        Ok(Some(admission))
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
        let mut calls = lock(&self.table.calls);
        self.room_for(&calls, call.inbound.sender, &chosen.id)?;
        let (key, expires_at_ms) = (key.clone(), call.inbound.expires_at_ms());
        let invoke =
            Admitted { key: key.clone(), body, expires_at_ms, idempotent: is_repeatable(call, chosen) };
        let facts = Facts { capability: Some(calls.called.shared(&chosen.id)), ..Facts::default() };
        let admission = calls.ledger.admit_with(invoke, facts, call.waiter());
        if !matches!(admission, Admission::New) {
            calls.note_copy(&key, &admission);
            return Ok(Begin::Known(admission));
        }
        // PROTOCOL 7.6: it was cancelled before it came, so it ends with 4901 and does not run.
        let is_cancelled = calls.cancelled.take(&key, call.inbound.now.monotonic_ms);
        if is_cancelled {
            running.stage = Stage::Recording { waiting: Some(Input::Cancel { own: true }) };
        }
        if calls.start(key, running) {
            self.table.wake.notify_one();
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
                self.recall(call.inbound.envelope.id, Row(row), waiter);
                Ok(())
            }
            // It was released while it was being checked.
            Admission::Released(_) => Err(released(false)),
            Admission::Forgotten(_) => Err(forgotten()),
            Admission::Conflict(_) => {
                Err(Refusal::new(Code::BAD_REQUEST, "this id belongs to a call with another body"))
            }
            Admission::Full { bound, .. } => Err(self.full(bound)),
        }
    }

    /// The refusal of what the ledger has no room for.
    pub(super) fn full(&self, bound: Full) -> Refusal {
        self.account.meter.refused(match bound {
            Full::Calls | Full::PeerCalls => CallLimit::LedgerEntries,
            Full::KeptBytes | Full::PeerKeptBytes => CallLimit::LedgerBytes,
        });
        Refusal::new(Code::OVERLOADED, "the memory of calls is full")
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
            let taken =
                router::less_loaded(providers.len(), random, |at| providers[at].in_flight(), |_, _| false);
            let taken = providers.remove(taken);
            providers.sort_by_key(|provider| std::cmp::Reverse(provider.in_flight()));
            providers.push(taken);
        }
        providers
    }
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

/// From here on a body's digest is BLAKE3.
const LARGE_BODY_BYTES: usize = 4 * 1024;
