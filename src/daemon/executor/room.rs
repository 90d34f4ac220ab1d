//! Bounds the calls that run: whether capacity is left for one more, and how much is in use.

use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::identity::Did;

use super::Executor;
use super::table::{Calls, Table};
use crate::daemon::account::meter::CallLimit;
use crate::daemon::context::{Refusal, lock};

/// How many calls run: all of them, and those of the caller and of the capability with most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct InFlight {
    pub(in crate::daemon) all: usize,
    pub(in crate::daemon) per_peer: usize,
    pub(in crate::daemon) per_capability: usize,
}

/// How much the ledger remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct LedgerLevels {
    pub(in crate::daemon) calls: usize,
    pub(in crate::daemon) kept_bytes: usize,
    pub(in crate::daemon) idempotent_bytes: usize,
}

impl Table {
    /// Calls that run.
    pub(in crate::daemon) fn in_flight(&self) -> InFlight {
        let calls = lock(&self.calls);
        InFlight {
            all: calls.running.len(),
            per_peer: calls.by_caller.values().copied().max().unwrap_or(0),
            per_capability: calls.by_capability.values().copied().max().unwrap_or(0),
        }
    }

    /// Whether any call of a peer's runs, or has a result that it may ask for.
    pub(in crate::daemon) fn remembers(&self, from: &Did) -> bool {
        lock(&self.calls).ledger.is_any_of(from)
    }

    /// What the ledger remembers.
    pub(in crate::daemon) fn ledger_levels(&self) -> LedgerLevels {
        let calls = lock(&self.calls);
        let ledger = &calls.ledger;
        let kept_bytes = ledger.kept_bytes();
        LedgerLevels { calls: ledger.calls(), kept_bytes, idempotent_bytes: ledger.bytes() - kept_bytes }
    }
}

impl Calls {
    /// Counts a call of this capability as in flight.
    pub(super) fn count_capability(&mut self, id: &CapabilityId) {
        if let Some(count) = self.by_capability.get_mut(id) {
            *count += 1;
            return;
        }
        if self.by_capability.len() >= CAPABILITIES_MAX {
            self.by_capability.retain(|_, count| *count > 0);
        }
        self.by_capability.insert(id.clone(), 1);
    }
}

impl Executor {
    /// **Errors:** 5004 when too many calls run, or the caller or the capability has too many; 5002 at shutdown.
    pub(super) fn room_for(
        &self,
        calls: &Calls,
        caller: &Did,
        capability: &CapabilityId,
    ) -> Result<(), Refusal> {
        if self.ctx.draining.is_cancelled() {
            return Err(Refusal::new(Code::UNAVAILABLE, "the sidecar drains and takes no new calls"));
        }
        let limits = &self.ctx.config().limits;
        if calls.running.len() >= limits.calls_in_flight_max {
            return Err(self.overloaded(CallLimit::CallsInFlight, "too many calls are in flight"));
        }
        if calls.by_caller.get(caller).copied().unwrap_or(0) >= limits.calls_in_flight_per_peer_max {
            return Err(self.overloaded(CallLimit::CallsPerPeer, "this caller has too many calls in flight"));
        }
        if calls.by_capability.get(capability).copied().unwrap_or(0)
            >= limits.calls_in_flight_per_capability_max
        {
            let message = "this capability has too many calls in flight";
            return Err(self.overloaded(CallLimit::CallsPerCapability, message));
        }
        Ok(())
    }

    fn overloaded(&self, limit: CallLimit, message: &str) -> Refusal {
        self.account.meter.refused(limit);
        Refusal::new(Code::OVERLOADED, message)
    }
}

/// Capabilities remembered beside those with calls in flight.
const CAPABILITIES_MAX: usize = 1_024;
