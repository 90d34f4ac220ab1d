//! Writes the access line of a call that ran here, or was refused.

use capd_proto::message::Role;

use super::Executor;
use super::table::Running;
use crate::daemon::account::access::{End, Line};
use crate::provider::CallKey;

impl Executor {
    /// A call that ran here has ended so, or, where it is refused after all, does not run.
    pub(super) fn log_executed(&self, key: &CallKey, running: &Running, end: End<'_>) {
        let took_us = self.ctx.clock.monotonic_us().saturating_sub(running.moments.started_us);
        let name = running.invocation.capability.name.as_str();
        if !self.account.ended(Role::Executor, end, took_us, (&running.traced, name)) {
            return;
        }
        let (traced, invocation, params) = running.logged();
        self.account.log(&Line {
            role: Role::Executor,
            id: &key.id,
            traced,
            timeline: running.timeline.clone(),
            caller: key.from.as_str(),
            peer: None,
            capability: Some(invocation.capability.name.as_str()),
            version: Some(&invocation.capability.version),
            end,
            took_us,
            params: Some(params),
        });
    }
}
