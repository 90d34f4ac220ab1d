//! What our agent offers in, its fence and its registrations out: the half of the machine that writes.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::feed::AsOf;
use super::step::Step;
use super::{AskId, Offer, Output};
use crate::capability::CapabilityName;
use crate::fleet::engine::{Ask, EngineError, LeaseId, Revision, Told};
use crate::fleet::{Fence, Key};
use crate::limits::REGISTRATION_LIFE_MS_MAX;

/// Where registering stands.
///
/// ```text
///   Reading ──► Keeping ──► Claiming ──► Claimed ◄── nothing to offer
///      ▲  ▲   on disk first    │            │ something to offer
///      │  └── another claimed ─┘            ▼
///      │   no answer          ┌────────► Registering ──► Held ◄──► Renewing, Replacing
///      │       │              │              │             │
///      │       ▼   time came  │   no answer, │             │ lease gone, key deleted
///      └──── Waiting ─────────┘ ◄────────────┴─────────────┘
///
///   any state ── a later process of this agent stands ─► Fenced (absorbing)
///             ── Leave ─► Left (absorbing)
/// ```
///
/// **Source:** FLEET 5.
#[derive(Debug)]
enum State {
    /// Asked which fence stands.
    Reading,
    /// Waits until the incarnation is on disk, so that no later start takes it again.
    Keeping { fence: Fence, read: Option<Revision> },
    /// Asked to put our fence.
    Claiming { fence: Fence },
    /// Our fence stands, and nothing is registered.
    Claimed,
    /// Asked to register.
    Registering,
    /// Registered.
    Held(Lease),
    /// Asked to renew the lease.
    Renewing(Lease),
    /// Asked to put new values.
    Replacing(Lease),
    /// Waits to try again.
    Waiting { until_ms: u64 },
    /// Another process has this identity.
    Fenced,
    /// Our agent has left.
    Left,
}

/// A lease in our hands.
#[derive(Clone, Copy, Debug)]
struct Lease {
    id: LeaseId,
    /// When the last renewal that was answered was asked for: the lease lives from then on.
    renewed_ms: u64,
    asked_ms: u64,
    due_ms: u64,
    /// When values are to be signed anew.
    resign_ms: u64,
    failures: u32,
    /// Whether nobody has confirmed it for as long as it lives. A registry that was away may have kept it: it is still renewed,
    /// and nothing is put under it.
    is_over: bool,
    /// When we put values under it last. What stood under our keys before does not matter.
    since: Revision,
    since_ms: u64,
}

impl Lease {
    fn is_before(&self, as_of: AsOf) -> bool {
        as_of.revision > self.since || as_of.began_ms > self.since_ms
    }
}

/// What happened to the writing half.
#[derive(Debug)]
pub(super) enum Input {
    Offered(Offer),
    Kept,
    Told(Result<Told, EngineError>),
    /// A key of ours is not there.
    Deleted {
        name: CapabilityName,
        as_of: AsOf,
    },
    /// A key of ours was put, by whomever.
    Put {
        as_of: AsOf,
        value: Bytes,
    },
    Leave,
    Timeout,
}

/// The writing half of the machine.
#[derive(Debug)]
pub(super) struct Own {
    state: State,
    /// The fence that stood last as ours.
    pub(super) claimed: Option<Fence>,
    /// The last incarnation on disk.
    kept: u64,
    pub(super) offer: Offer,
    /// Names that may stand in the registry.
    registered: BTreeSet<CapabilityName>,
    /// A key that we have put, and when; by it a registry that has lost what it had acknowledged is found out.
    stands: Option<(Key, Revision)>,
    /// What was signed last, by which to tell it from what another process signed.
    pub(super) signed: BTreeMap<CapabilityName, Bytes>,
    /// Whether another process registers under our very fence: a copy of this one that began after the registry was wiped.
    pub(super) has_twin: bool,
    /// Whether something was offered since values were signed.
    pub(super) is_changed: bool,
    pub(super) generation: u64,
    /// The last generation that the registry is known to have had.
    pub(super) acknowledged: u64,
    pub(super) signed_ms: Option<u64>,
    registered_ms: Option<u64>,
    failures: u32,
    /// Values that were not taken are not put again before. **Units:** milliseconds.
    retry_ms: u64,
    asked: u64,
}

impl Own {
    pub(super) fn begin(step: &mut Step<'_>) -> Self {
        let mut own = Self {
            state: State::Reading,
            claimed: None,
            kept: step.config.incarnation,
            offer: Offer::default(),
            registered: BTreeSet::new(),
            stands: None,
            signed: BTreeMap::new(),
            has_twin: false,
            is_changed: false,
            generation: 0,
            acknowledged: 0,
            signed_ms: None,
            registered_ms: None,
            failures: 0,
            retry_ms: 0,
            asked: 0,
        };
        own.state = own.read(step);
        own
    }

    /// The fence that stands as ours, once one does.
    pub(super) fn fence(&self) -> Option<Fence> {
        self.claimed
    }

    pub(super) fn is_fenced(&self) -> bool {
        matches!(self.state, State::Fenced)
    }

    /// Whether what our agent offers stands in the registry.
    pub(super) fn is_registered(&self) -> bool {
        match &self.state {
            State::Held(lease) | State::Renewing(lease) | State::Replacing(lease) => !lease.is_over,
            State::Reading
            | State::Keeping { .. }
            | State::Claiming { .. }
            | State::Claimed
            | State::Registering
            | State::Waiting { .. }
            | State::Fenced
            | State::Left => false,
        }
    }

    pub(super) fn state_name(&self) -> &'static str {
        match self.state {
            State::Reading => "Reading",
            State::Keeping { .. } => "Keeping",
            State::Claiming { .. } => "Claiming",
            State::Claimed => "Claimed",
            State::Registering => "Registering",
            State::Held(_) => "Held",
            State::Renewing(_) => "Renewing",
            State::Replacing(_) => "Replacing",
            State::Waiting { .. } => "Waiting",
            State::Fenced => "Fenced",
            State::Left => "Left",
        }
    }

    pub(super) fn deadline_ms(&self, step_ms: u64) -> Option<u64> {
        match &self.state {
            State::Held(lease) if lease.is_over => Some(lease.due_ms),
            State::Held(lease) => {
                let change_ms = self.is_changed.then(|| self.damped_ms(step_ms));
                Some(lease.due_ms.min(lease.resign_ms).min(change_ms.unwrap_or(u64::MAX)))
            }
            State::Waiting { until_ms } => Some(*until_ms),
            State::Reading
            | State::Keeping { .. }
            | State::Claiming { .. }
            | State::Claimed
            | State::Registering
            | State::Renewing(_)
            | State::Replacing(_)
            | State::Fenced
            | State::Left => None,
        }
    }

    /// Takes in what happened; an answer only if it is to the last question.
    pub(super) fn handle(&mut self, input: Input, step: &mut Step<'_>) {
        let state = std::mem::replace(&mut self.state, State::Left);
        self.state = match input {
            Input::Leave => self.leave(state, step),
            Input::Offered(offer) => self.offered(state, offer, step),
            Input::Kept => self.kept(state, step),
            Input::Told(told) => self.told(state, told, step),
            Input::Deleted { name, as_of } if self.offer.names.contains_key(&name) => {
                self.disturbed(state, as_of, step)
            }
            Input::Put { as_of, value } if self.is_foreign(&value) => self.disturbed(state, as_of, step),
            Input::Deleted { .. } | Input::Put { .. } => state,
            Input::Timeout => self.timeout(state, step),
        };
    }

    /// Whether this is the answer to the last question.
    pub(super) fn awaits(&self, asked: u64) -> bool {
        self.asked == asked
    }

    fn offered(&mut self, state: State, offer: Offer, step: &mut Step<'_>) -> State {
        self.is_changed |= offer != self.offer;
        self.offer = offer;
        match state {
            State::Claimed => self.register_or_rest(step),
            State::Held(lease) => self.held(lease, step),
            state @ (State::Reading
            | State::Keeping { .. }
            | State::Claiming { .. }
            | State::Registering
            | State::Renewing(_)
            | State::Replacing(_)
            | State::Waiting { .. }
            | State::Fenced
            | State::Left) => state,
        }
    }

    fn kept(&mut self, state: State, step: &mut Step<'_>) -> State {
        match state {
            State::Keeping { fence, read } => {
                self.kept = fence.incarnation;
                self.claim(fence, read, step)
            }
            state @ (State::Reading
            | State::Claiming { .. }
            | State::Claimed
            | State::Registering
            | State::Held(_)
            | State::Renewing(_)
            | State::Replacing(_)
            | State::Waiting { .. }
            | State::Fenced
            | State::Left) => state,
        }
    }

    fn told(&mut self, state: State, told: Result<Told, EngineError>, step: &mut Step<'_>) -> State {
        match state {
            State::Reading => match told {
                Ok(Told::Stands(at)) => self.stands(at, step),
                Ok(_) | Err(_) => self.wait(step),
            },
            State::Claiming { fence } => match told {
                Ok(Told::Done) => {
                    self.failures = 0;
                    (self.claimed, self.has_twin) = (Some(fence), false);
                    step.send(Output::Claimed(fence));
                    self.register_or_rest(step)
                }
                Err(EngineError::Fenced(_)) => self.read(step),
                Ok(_) | Err(_) => self.wait(step),
            },
            State::Registering => match told {
                Ok(Told::Held { lease, revision }) => self.registered(lease, revision, step),
                Err(EngineError::Fenced(by)) => self.other_fence(by, step),
                Ok(_) | Err(_) => self.wait(step),
            },
            State::Renewing(lease) => match told {
                Ok(Told::Done) => self.renewed(lease, step),
                Err(EngineError::Gone) => self.lapse(lease, step),
                Ok(_) | Err(_) => self.unanswered(lease, step),
            },
            State::Replacing(lease) => match told {
                Ok(Told::Held { revision, .. }) => self.replaced(lease, revision, step),
                Err(EngineError::Fenced(by)) => self.other_fence(by, step),
                Err(EngineError::Gone) => self.lapse(lease, step),
                Ok(_) | Err(_) => {
                    self.failures += 1;
                    self.is_changed = true;
                    // It may have been done.
                    self.registered.extend(self.signed.keys().cloned());
                    let pause_ms = step.backoff_ms(self.failures, step.config.ttl_ms / 3);
                    self.retry_ms = step.now.now_ms + pause_ms;
                    State::Held(lease)
                }
            },
            state @ (State::Keeping { .. }
            | State::Claimed
            | State::Held(_)
            | State::Waiting { .. }
            | State::Fenced
            | State::Left) => state,
        }
    }

    fn timeout(&mut self, state: State, step: &mut Step<'_>) -> State {
        match state {
            State::Waiting { until_ms } if step.now.now_ms >= until_ms => match self.claimed {
                Some(_) if !self.has_twin => self.register_or_rest(step),
                Some(_) | None => self.read(step),
            },
            State::Held(lease) => self.held(lease, step),
            state @ (State::Reading
            | State::Keeping { .. }
            | State::Claiming { .. }
            | State::Claimed
            | State::Registering
            | State::Renewing(_)
            | State::Replacing(_)
            | State::Waiting { .. }
            | State::Fenced
            | State::Left) => state,
        }
    }

    /// A key of ours is not as we put it: it may be that our lease has ended, or that another process has begun.
    fn disturbed(&mut self, state: State, as_of: AsOf, step: &mut Step<'_>) -> State {
        match state {
            State::Held(lease) | State::Renewing(lease) | State::Replacing(lease)
                if lease.is_before(as_of) =>
            {
                self.lapse(lease, step)
            }
            state @ (State::Reading
            | State::Keeping { .. }
            | State::Claiming { .. }
            | State::Claimed
            | State::Registering
            | State::Held(_)
            | State::Renewing(_)
            | State::Replacing(_)
            | State::Waiting { .. }
            | State::Fenced
            | State::Left) => state,
        }
    }

    fn leave(&mut self, state: State, step: &mut Step<'_>) -> State {
        match state {
            State::Held(lease) | State::Renewing(lease) | State::Replacing(lease) if !lease.is_over => {
                self.ask(Ask::Withdraw(lease.id), step);
            }
            State::Reading
            | State::Keeping { .. }
            | State::Claiming { .. }
            | State::Claimed
            | State::Registering
            | State::Held(_)
            | State::Renewing(_)
            | State::Replacing(_)
            | State::Waiting { .. }
            | State::Fenced
            | State::Left => {}
        }
        State::Left
    }

    fn read(&mut self, step: &mut Step<'_>) -> State {
        self.ask(Ask::ReadFence, step);
        State::Reading
    }

    /// FLEET 5: a process takes a larger incarnation than any that stands. One that had claimed already has lost its
    /// place to a larger one, and takes it again from a smaller one or none: that is a restored or wiped registry.
    fn stands(&mut self, at: Option<(Bytes, Revision)>, step: &mut Step<'_>) -> State {
        let read = at.as_ref().map(|(_, revision)| *revision);
        let stands = at.and_then(|(value, _)| Fence::decode(&value).ok());
        if let (Some(ours), Some(stands)) = (self.claimed, stands) {
            if stands == ours && !self.has_twin {
                return self.register_or_rest(step);
            }
            if stands.incarnation >= ours.incarnation && stands != ours {
                return Self::fenced(stands, step);
            }
        }
        let least = self.claimed.map_or_else(|| Self::first(step), |ours| ours.incarnation);
        let next = stands.map_or(0, |stands| stands.incarnation.saturating_add(1));
        let fence = Fence { incarnation: least.max(next), journal: step.config.journal };
        if fence.incarnation > self.kept {
            step.send(Output::Keep { incarnation: fence.incarnation });
            return State::Keeping { fence, read };
        }
        self.claim(fence, read, step)
    }

    /// The smallest incarnation for a process that has claimed none. One whose disk remembers nothing takes the time, for
    /// the registry may have forgotten as well, while other sidecars have not.
    fn first(step: &Step<'_>) -> u64 {
        match step.config.incarnation {
            0 => step.now.wall_ms / 1_000,
            kept => kept.saturating_add(1),
        }
    }

    fn claim(&mut self, fence: Fence, read: Option<Revision>, step: &mut Step<'_>) -> State {
        self.ask(Ask::Claim { fence, read }, step);
        State::Claiming { fence }
    }

    fn other_fence(&mut self, by: Option<Bytes>, step: &mut Step<'_>) -> State {
        let stands = by.and_then(|value| Fence::decode(&value).ok());
        match (self.claimed, stands) {
            (Some(ours), Some(stands)) if stands.incarnation >= ours.incarnation && stands != ours => {
                Self::fenced(stands, step)
            }
            _ => self.read(step),
        }
    }

    fn fenced(by: Fence, step: &mut Step<'_>) -> State {
        step.send(Output::Fenced { by });
        State::Fenced
    }

    /// FLEET 5: at most once in the life of a lease, whatever it was that found out that nothing of ours stands.
    fn register_or_rest(&mut self, step: &mut Step<'_>) -> State {
        let until_ms = self.earliest_ms(step);
        match self.offer.names.is_empty() {
            true => State::Claimed,
            false if step.now.now_ms < until_ms => State::Waiting { until_ms },
            false => self.register(step),
        }
    }

    fn earliest_ms(&self, step: &Step<'_>) -> u64 {
        self.registered_ms.map_or(0, |at_ms| at_ms.saturating_add(step.config.ttl_ms))
    }

    fn register(&mut self, step: &mut Step<'_>) -> State {
        let Some(fence) = self.claimed else { return self.read(step) };
        let puts = self.sign(fence, step);
        self.ask(Ask::Register { fence, ttl_ms: step.config.ttl_ms, puts }, step);
        State::Registering
    }

    fn registered(&mut self, id: LeaseId, since: Revision, step: &mut Step<'_>) -> State {
        self.failures = 0;
        self.registered_ms = Some(step.now.now_ms);
        self.acknowledge(since, step);
        step.send(Output::Registered { generation: self.generation });
        let asked_ms = self.signed_ms.unwrap_or(step.now.now_ms);
        let lease = Lease {
            id,
            renewed_ms: asked_ms,
            asked_ms,
            due_ms: 0,
            resign_ms: step.within(RESIGN_MS / 10 * 9, RESIGN_MS / 10 * 11),
            failures: 0,
            is_over: false,
            since,
            since_ms: step.now.now_ms,
        };
        self.scheduled(lease, step)
    }

    fn replaced(&mut self, lease: Lease, since: Revision, step: &mut Step<'_>) -> State {
        self.failures = 0;
        self.acknowledge(since, step);
        self.held(Lease { since, since_ms: step.now.now_ms, ..lease }, step)
    }

    /// What was signed last stands since this revision, and nothing else of ours.
    fn acknowledge(&mut self, since: Revision, step: &Step<'_>) {
        self.acknowledged = self.generation;
        self.registered = self.signed.keys().cloned().collect();
        let first = self.registered.first().cloned();
        self.stands = first.map(|name| (Key::registration(name, step.config.agent()), since));
    }

    fn renewed(&mut self, lease: Lease, step: &mut Step<'_>) -> State {
        if lease.is_over {
            // The registry was away, and has kept it.
            step.send(Output::Registered { generation: self.acknowledged });
        }
        self.scheduled(Lease { failures: 0, renewed_ms: lease.asked_ms, is_over: false, ..lease }, step)
    }

    /// FLEET 5: renewed at a third of its life, 0.8 to 1.2 of that.
    fn scheduled(&mut self, lease: Lease, step: &mut Step<'_>) -> State {
        let third_ms = step.config.ttl_ms / 3;
        let due_ms = step.within(third_ms * 8 / 10, third_ms * 12 / 10);
        self.held(Lease { due_ms, ..lease }, step)
    }

    /// A question about the lease was not answered: it is asked again after a pause.
    fn unanswered(&mut self, lease: Lease, step: &mut Step<'_>) -> State {
        let failures = lease.failures + 1;
        let pause_ms = step.backoff_ms(failures, step.config.ttl_ms / 3);
        let due_ms = step.now.now_ms + pause_ms;
        State::Held(Lease { failures, due_ms, ..lease })
    }

    /// Does what is due while the lease is held.
    fn held(&mut self, lease: Lease, step: &mut Step<'_>) -> State {
        let now_ms = step.now.now_ms;
        let is_over = lease.failures > 0 && now_ms >= lease.renewed_ms.saturating_add(step.config.ttl_ms);
        if is_over && !lease.is_over {
            step.send(Output::Lapsed);
        }
        let lease = Lease { is_over, ..lease };
        if now_ms >= lease.due_ms {
            self.ask(Ask::Renew(lease.id), step);
            return State::Renewing(Lease { asked_ms: now_ms, ..lease });
        }
        let is_due = self.is_changed && now_ms >= self.damped_ms(now_ms) || now_ms >= lease.resign_ms;
        let is_due = is_due && !lease.is_over;
        let Some(fence) = self.claimed.filter(|_| is_due) else { return State::Held(lease) };
        let gone = self.registered.iter().filter(|name| !self.offer.names.contains_key(*name));
        let gone = gone.map(|name| Key::registration(name.clone(), step.config.agent())).collect();
        let puts = self.sign(fence, step);
        let stands = self.stands.clone();
        self.ask(Ask::Replace { lease: lease.id, fence, stands, puts, gone }, step);
        let resign_ms = step.within(RESIGN_MS / 10 * 9, RESIGN_MS / 10 * 11);
        State::Replacing(Lease { resign_ms, ..lease })
    }

    /// The lease is gone. FLEET 5: registered again after a pause, and at most once in the life of a lease.
    fn lapse(&mut self, lease: Lease, step: &mut Step<'_>) -> State {
        let pause_ms = step.within(0, step.config.ttl_ms / 3);
        if !lease.is_over {
            step.send(Output::Lapsed);
        }
        State::Waiting { until_ms: pause_ms.max(self.earliest_ms(step)) }
    }

    fn wait(&mut self, step: &mut Step<'_>) -> State {
        self.failures += 1;
        let pause_ms = step.backoff_ms(self.failures, step.config.ttl_ms / 3);
        State::Waiting { until_ms: step.now.now_ms + pause_ms }
    }

    /// FLEET 5: at most one generation a second, and fewer while the registry does not take them.
    fn damped_ms(&self, now_ms: u64) -> u64 {
        let damped_ms = self.signed_ms.map_or(now_ms, |signed_ms| signed_ms + GENERATION_MS_MIN);
        damped_ms.max(self.retry_ms)
    }

    fn ask(&mut self, ask: Ask, step: &mut Step<'_>) {
        self.asked += 1;
        step.ask(AskId::Own(self.asked), ask);
    }
}

/// Values are signed anew after half their life. **Units:** milliseconds.
const RESIGN_MS: u64 = REGISTRATION_LIFE_MS_MAX / 2;
const GENERATION_MS_MIN: u64 = 1_000;
