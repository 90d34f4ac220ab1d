//! A relayed call in; what a list says of it out.

use capd_proto::identity::Did;
use capd_proto::message::{CallState, ListedCall, Role};

use super::RelayedCall;
use crate::daemon::context::lock;
use crate::daemon::context::times::Times;

impl RelayedCall {
    /// How the call of the agent `from` stands.
    pub(in crate::daemon) fn listed(&self, from: &Did, times: Times) -> ListedCall<'static> {
        let progress = lock(&self.progress);
        let chosen = progress.chosen.as_ref();
        let is_sent = chosen.is_some_and(|chosen| chosen.machine.is_sent());
        let state = if is_sent { CallState::Sent } else { CallState::Waiting };
        let deadline_ms = chosen.map_or(self.deadline_ms, |chosen| chosen.machine.deadline_ms());
        ListedCall {
            capability: Some(self.name.clone().into()),
            peer: chosen.map(|chosen| chosen.peer.to_string().into()),
            deadline_at_ms: Some(times.wall_ms(deadline_ms)),
            waiters: progress.waiters.len() as u64,
            ..ListedCall::new(self.id, from.to_string().into(), Role::Caller, state, self.expires_at_ms)
        }
    }
}
