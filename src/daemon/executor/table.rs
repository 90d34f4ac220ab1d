//! Holds the calls that run here, and the ledger of those that ran.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ahash::HashMap;
use capd_proto::call::executor::{Executor as Machine, Input};
use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::envelope::{Encoded, MessageId};
use capd_proto::identity::Did;
use capd_proto::ledger::{Answerer, CancelMarks, Ledger, Limits, Status};
use capd_proto::negotiate::SessionId;
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::listing::Called;
use super::timelines::Timelines;
use crate::daemon::account::access::{PAYLOAD_BYTES_MAX, Payload};
use crate::daemon::account::timeline::Timeline;
use crate::daemon::account::trace::Traced;
use crate::daemon::context::lock;
use crate::net::deadlines::Deadlines;
use crate::net::{Link, Route};
use crate::provider::{CallKey, Invocation, Provider};
use crate::schema::Artifact;
use crate::store::Row;

/// Running calls and the ledger of those that ran.
pub(in crate::daemon) struct Table {
    pub(super) calls: Mutex<Calls>,
    /// Wakes the task that keeps deadlines, when an earlier one came in.
    pub(super) wake: Notify,
    /// Wakes those who wait for the last running call to end.
    pub(super) idle: Notify,
}

pub(super) struct Calls {
    pub(super) ledger: Ledger<Waiter>,
    /// Behind a pointer each: the map moves its entries about.
    pub(super) running: HashMap<CallKey, Box<Running>>,
    /// Calls in flight by caller.
    pub(super) by_caller: BTreeMap<Did, usize>,
    /// The same by capability. One that is not called stays for a while, since it will be.
    pub(super) by_capability: BTreeMap<CapabilityId, usize>,
    pub(super) deadlines: Deadlines<CallKey>,
    /// Calls whose results the journal could not take yet.
    pub(super) unsaved: BTreeSet<CallKey>,
    /// What finished calls were calls of.
    pub(super) called: Called,
    /// Where the time of finished calls went.
    pub(super) timelines: Timelines,
    /// Calls that were cancelled before they came.
    pub(super) cancelled: CancelMarks,
}

/// Where a result is to go.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Waiter {
    pub(super) link: Arc<Link>,
    pub(super) route: Route,
    /// The request to answer, where it is not the call itself.
    pub(super) request: Option<Box<MessageId>>,
}

/// A call that has no recorded result yet.
pub(super) struct Running {
    pub(super) machine: Machine,
    pub(super) stage: Stage,
    /// Its row in the journal; a call that may run again has none.
    pub(super) row: Option<Row>,
    pub(super) invocation: Invocation,
    /// How long its params are, or were.
    pub(super) params_bytes: usize,
    pub(super) session: Option<SessionId>,
    pub(super) traced: Traced,
    pub(super) timeline: Timeline,
    pub(super) serving: Serving,
    pub(super) is_deprecated: bool,
    pub(super) signed: bool,
    pub(super) moments: Moments,
}

/// Who runs a call, and what its result is to fit.
pub(super) struct Serving {
    pub(super) provider: Arc<dyn Provider>,
    /// Other providers of the same capability, for an idempotent call whose provider is lost.
    pub(super) others: Candidates,
    pub(super) output: Option<Arc<Artifact>>,
}

/// When a call came, and until when it lasts.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    /// **Units:** milliseconds since the Unix epoch.
    pub(super) expires_at_ms: u64,
    /// **Units:** monotonic microseconds.
    pub(super) started_us: u64,
    /// **Units:** monotonic milliseconds.
    pub(super) deadline_ms: u64,
}

/// Those that may run a call: mostly one.
pub(super) type Candidates = SmallVec<[Arc<dyn Provider>; 1]>;

/// What a running call waits for.
pub(super) enum Stage {
    /// Its row. The first thing that happens meanwhile waits for it too.
    Recording { waiting: Option<Input> },
    /// Its provider.
    Executing,
    /// Its result's row.
    Concluding { concluded: Concluded, by: Answerer },
}

/// A call's one result, made and not yet known to whoever waits for it.
#[derive(Clone)]
pub(super) struct Concluded {
    /// Its CAP_RESULT.
    pub(super) envelope: Encoded,
    /// **Units:** milliseconds since the Unix epoch.
    pub(super) finished_at_ms: u64,
    pub(super) ended: Result<(), Code>,
}

impl Table {
    pub(in crate::daemon) fn new(ledger: Ledger<Waiter>) -> Self {
        let calls = Calls {
            ledger,
            running: HashMap::default(),
            by_caller: BTreeMap::new(),
            by_capability: BTreeMap::new(),
            deadlines: Deadlines::default(),
            unsaved: BTreeSet::new(),
            called: Called::default(),
            timelines: Timelines::default(),
            cancelled: CancelMarks::default(),
        };
        let (wake, idle) = (Notify::new(), Notify::new());
        Self { calls: Mutex::new(calls), wake, idle }
    }

    /// Replaces the bounds of what is remembered.
    pub(in crate::daemon) fn set_limits(&self, limits: Limits) {
        lock(&self.calls).ledger.set_limits(limits);
    }

    /// Waits until no call runs.
    pub(in crate::daemon) async fn idle(&self) {
        loop {
            let changed = self.idle.notified();
            if lock(&self.calls).running.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Whether a call runs.
    pub(in crate::daemon) fn is_running(&self) -> bool {
        !lock(&self.calls).running.is_empty()
    }

    /// Where a call stands.
    pub(in crate::daemon) fn status(&self, key: &CallKey) -> Status {
        lock(&self.calls).ledger.status(key)
    }

    /// Drops every running call; what their providers still say finds none.
    pub(in crate::daemon) fn let_go(&self) {
        let running = std::mem::take(&mut lock(&self.calls).running);
        // What lets go of whom is in one order each time.
        drop(BTreeMap::from_iter(running));
    }

    /// For tests of those who look for mistakes: has the ledger take every call for a new one.
    #[cfg(feature = "test-hooks")]
    pub(in crate::daemon) fn set_blind(&self, is_blind: bool) {
        lock(&self.calls).ledger.set_blind(is_blind);
    }

    /// Takes a call out that the journal did not take in. Its one waiter is told by the refusal.
    pub(super) fn take_back(&self, key: &CallKey) {
        {
            let mut calls = lock(&self.calls);
            calls.end(key);
            let _told = calls.ledger.withdraw(key);
        }
        self.idle.notify_waiters();
    }

    /// Keys of every running call, in the order of their deadlines.
    pub(super) fn running(&self) -> Vec<CallKey> {
        let calls = lock(&self.calls);
        calls.deadlines.keys(ends_at(&calls.running))
    }
}

impl Running {
    /// What is logged of it.
    pub(super) fn logged(&self) -> (Traced, &Invocation, Payload<'_>) {
        let params = Payload { bytes: self.params_bytes, shown: &self.invocation.params };
        (self.traced, &self.invocation, params)
    }

    /// What its provider is to be given. Large params that nobody else could be given are kept no longer than that takes.
    pub(super) fn hand_over(&mut self) -> Invocation {
        let invocation = self.invocation.clone();
        if self.serving.others.is_empty() && PAYLOAD_BYTES_MAX < self.params_bytes {
            self.invocation.envelope.clear();
            self.invocation.params.clear();
        }
        invocation
    }
}

impl Calls {
    /// Where a call stands, and what it is a call of once it has ended.
    pub(super) fn known(&self, key: &CallKey) -> (Status, Option<Arc<CapabilityId>>) {
        let known = self.ledger.known(key);
        known.map_or((Status::Unknown, None), |(status, facts)| (status, facts.capability.clone()))
    }

    /// Takes a call in; `true` when its deadline is the earliest.
    pub(super) fn start(&mut self, key: CallKey, running: Box<Running>) -> bool {
        *self.by_caller.entry(key.from.clone()).or_default() += 1;
        self.count_capability(&running.invocation.capability);
        let is_earliest = self.deadlines.first().is_none_or(|(at_ms, _)| running.moments.deadline_ms < at_ms);
        self.deadlines.insert(running.moments.deadline_ms, key.clone());
        self.running.insert(key, running);
        is_earliest
    }

    /// Takes out the deadlines that have come.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<CallKey> {
        std::iter::from_fn(|| self.deadlines.take_due(now_ms, ends_at(&self.running))).collect()
    }

    pub(super) fn end(&mut self, key: &CallKey) -> Option<Box<Running>> {
        let running = self.running.remove(key)?;
        self.note(key, &running);
        self.deadlines.remove(running.moments.deadline_ms, key, self.running.len(), ends_at(&self.running));
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
pub(super) fn ends_at(running: &HashMap<CallKey, Box<Running>>) -> impl Fn(u64, &CallKey) -> bool {
    |at_ms, key| running.get(key).is_some_and(|running| running.moments.deadline_ms == at_ms)
}

#[cfg(test)]
mod tests;
