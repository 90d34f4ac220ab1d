//! Limits call rates: 3005 if a caller, or all peers together, call too often (PROTOCOL 7.3).

use capd_proto::capability::CapabilityId;
use capd_proto::message::Descriptor;

use super::{Executor, Incoming};
use crate::daemon::context::Refusal;
use crate::registry::snapshot::Origin;

impl Executor {
    /// Counts a call that is new here. **Errors:** 3005, with when to come back.
    pub(super) fn within_rates(&self, call: &Incoming<'_>, descriptor: &Descriptor) -> Result<(), Refusal> {
        let is_peer = !call.inbound.link.kind().is_local();
        let (id, limit) = (&descriptor.id, descriptor.rate_limit.as_ref());
        let is_served = |id: &CapabilityId| {
            let snapshot = self.directory.snapshot();
            snapshot
                .entries(id.name.as_str())
                .iter()
                .any(|entry| matches!(entry.origin, Origin::Local(_)) && entry.descriptor.id == *id)
        };
        let taken = self.rates.take(call.inbound.sender, is_peer, id, limit, is_served);
        taken.map_err(|exceeded| self.account.rate_limited(&exceeded))
    }
}
