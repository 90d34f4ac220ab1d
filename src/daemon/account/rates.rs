//! Refuses a call or message that exceeds its rate: 3005 with the time to come back (PROTOCOL 7.3).

use capd_proto::code::Code;
use capd_proto::message::rate_limit_details;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Account;
use super::meter::CallLimit;
use crate::daemon::context::Refusal;
use crate::policy::rate::{Exceeded, Scope};

impl Account {
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
        let reset_at = moment(self.ctx.clock.wall_ms().saturating_add(exceeded.reset_after_ms));
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
