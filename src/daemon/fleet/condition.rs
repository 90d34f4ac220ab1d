//! Says in one sentence where the sidecar stands in its fleet, for health checks and people.

use super::Fleet;
use crate::fleet::Status;
use crate::health::State;

impl Fleet {
    /// How the part in the fleet is, and why.
    pub(in crate::daemon) fn condition(&self, status: &Status) -> (State, String) {
        let now_ms = self.ctx.clock.monotonic_ms();
        if let Some(by) = status.fenced_by {
            return (State::Failed, format!("another process has this identity ({by}); stop one of the two"));
        }
        if self.ctx.draining.is_cancelled() {
            return (State::Ok, "left, since the sidecar drains".to_owned());
        }
        if let Some(age_ms) = self.revocations_age_ms(status)
            && self.config().is_some_and(|config| age_ms > config.deny_max_age_ms)
        {
            let seconds = age_ms / 1_000;
            return (State::Degraded, format!("no member gets a link: revocations are {seconds} s old"));
        }
        if let Some(since_ms) = status.stale_since_ms {
            let seconds = now_ms.saturating_sub(since_ms) / 1_000;
            let why = status.engine.error.as_deref().unwrap_or("it is being read");
            return (State::Degraded, format!("not current for {seconds} s: {why}"));
        }
        if status.is_frozen {
            return (State::Degraded, "much of it vanished at once, and nothing of it is dropped".to_owned());
        }
        let registered = if status.registered.is_some() { "registered" } else { "nothing to register" };
        let (names, candidates) = (status.wanted, status.candidates);
        (State::Ok, format!("{registered}; {candidates} providers of {names} names known"))
    }

    /// How old what is known of revocations is; none where nothing is known.
    pub(in crate::daemon) fn revocations_age_ms(&self, status: &Status) -> Option<u64> {
        let now_ms = i64::try_from(self.ctx.clock.monotonic_ms()).unwrap_or(i64::MAX);
        let age_ms = now_ms.saturating_sub(status.revocations_at_ms?);
        Some(u64::try_from(age_ms).unwrap_or(0))
    }
}
