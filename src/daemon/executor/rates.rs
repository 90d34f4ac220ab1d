//! A call of a chosen capability in; 3005 out when its caller, or all peers together, call too often (PROTOCOL 7.3).

use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::message::{Descriptor, rate_limit_details};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Incoming;
use crate::daemon::meter::CallLimit;
use crate::daemon::node::{Node, Refusal};
use crate::policy::rate::{Exceeded, Scope};
use crate::registry::snapshot::Origin;

impl Node {
    /// Counts a call that is new here. **Errors:** 3005, with when to come back.
    pub(super) fn within_rates(&self, call: &Incoming<'_>, descriptor: &Descriptor) -> Result<(), Refusal> {
        let is_peer = !call.link.kind().is_local();
        let (id, limit) = (&descriptor.id, descriptor.rate_limit.as_ref());
        let is_served = |id: &CapabilityId| {
            let snapshot = self.registry.snapshot();
            snapshot
                .entries(id.name.as_str())
                .iter()
                .any(|entry| matches!(entry.origin, Origin::Local(_)) && entry.descriptor.id == *id)
        };
        let taken = self.rates.take(call.from, is_peer, id, limit, is_served);
        taken.map_err(|exceeded| self.rate_limited(&exceeded))
    }

    /// What a message is refused with that came too soon.
    pub(in crate::daemon) fn rate_limited(&self, exceeded: &Exceeded) -> Refusal {
        let (bound, message) = match exceeded.scope {
            Scope::Capability => {
                (CallLimit::CapabilityRate, "this caller has called the capability too often")
            }
            Scope::Peer => (CallLimit::CallRatePerPeer, "this caller has called too often"),
            Scope::Sidecar => (CallLimit::CallRate, "all peers together call too often"),
            Scope::Denied => (CallLimit::DeniedRatePerPeer, "this caller was denied too often"),
        };
        self.meter.refused(bound);
        let reset_at = moment(self.clock.wall_ms().saturating_add(exceeded.reset_after_ms));
        let retry_after_s = exceeded.retry_after_ms.div_ceil(1_000).max(1);
        let details = rate_limit_details(exceeded.limit, &reset_at, retry_after_s);
        Refusal::new(Code::RATE_LIMITED, message).with_details(details)
    }
}

/// The time of day to the second, rounded up. **Units:** milliseconds since the Unix epoch.
fn moment(wall_ms: u64) -> String {
    let seconds = i64::try_from(wall_ms.div_ceil(1_000)).unwrap_or(i64::MAX);
    let moment = OffsetDateTime::from_unix_timestamp(seconds);
    // A year beyond 9999 has no such text; nobody waits for it either.
    moment.ok().and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_else(|| LAST_MOMENT.to_owned())
}

/// The last second that RFC 3339 can write.
const LAST_MOMENT: &str = "9999-12-31T23:59:59Z";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_rounded_up_to_the_second() {
        assert_eq!(moment(1_707_055_200_000), "2024-02-04T14:00:00Z");
        assert_eq!(moment(1_707_055_200_001), "2024-02-04T14:00:01Z");
        assert_eq!(moment(u64::MAX), LAST_MOMENT);
    }
}
