//! Says which calls their callers may still ask for, for a sidecar that is to go for good.

use std::collections::BTreeMap;

use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::Status;

use super::Executor;
use super::table::Table;
use crate::daemon::context::lock;
use crate::provider::CallKey;

/// What one caller may still ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::daemon) struct Owed {
    /// Calls that run or ran.
    pub(in crate::daemon) calls: usize,
    /// Those of them that have a result.
    pub(in crate::daemon) finished: Vec<MessageId>,
    /// When the last of them is remembered no longer. **Units:** milliseconds since the Unix epoch.
    pub(in crate::daemon) until_ms: u64,
}

impl Executor {
    /// FLEET X11: calls of peers that may run only once, and whose callers have not said that they have the result. Our own
    /// agent goes with us.
    pub(in crate::daemon) fn owed(&self) -> BTreeMap<Did, Owed> {
        self.table.owed(self.ctx.did(), self.ctx.clock.wall_ms())
    }

    /// A caller's sidecar has said that it has the results of these calls.
    pub(in crate::daemon) fn fetched(&self, from: &Did, ids: &[MessageId]) {
        let mut calls = lock(&self.table.calls);
        for id in ids {
            let key = CallKey { from: from.clone(), id: *id };
            // What still runs has no result.
            if calls.ledger.status(&key) == Status::Finished
                && let Some(facts) = calls.ledger.facts_mut(&key)
            {
                facts.is_fetched = true;
            }
        }
    }
}

impl Table {
    fn owed(&self, own: &Did, now_ms: u64) -> BTreeMap<Did, Owed> {
        let mut owed: BTreeMap<Did, Owed> = BTreeMap::new();
        let mut after = None;
        loop {
            // Calls come and go meanwhile; those that come are refused.
            let calls = lock(&self.calls);
            let mut last = None;
            for call in calls.ledger.list(after.as_ref(), None).take(CALLS_AT_ONCE) {
                last = Some(CallKey { from: call.from.clone(), id: call.id });
                if call.idempotent || call.facts.is_fetched || call.from == own || call.expires_at_ms < now_ms
                {
                    continue;
                }
                let of = owed.entry(call.from.clone()).or_default();
                of.calls += 1;
                of.until_ms = of.until_ms.max(call.expires_at_ms);
                if call.status == Status::Finished {
                    of.finished.push(call.id);
                }
            }
            drop(calls);
            match last {
                Some(last) => after = Some(last),
                None => return owed,
            }
        }
    }
}

/// Calls that are looked at while nobody else can.
const CALLS_AT_ONCE: usize = 1_000;
