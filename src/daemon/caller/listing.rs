//! A relayed call in; what a list says of it out.

use super::Caller;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::message::{CallState, ListedCall, Role};

use super::RelayedCall;
use crate::daemon::context::lock;
use crate::daemon::context::times::Times;

impl Caller {
    /// The call of the agent's of this id.
    pub(in crate::daemon) fn listed_of(&self, id: &MessageId, times: Times) -> Option<ListedCall<'static>> {
        self.outgoing.call(id).map(|call| self.listed(&call, times))
    }

    /// The agent's calls with ids behind `after`, in their order.
    pub(in crate::daemon) fn listed_after(
        &self,
        after: Option<MessageId>,
        calls_max: usize,
        times: Times,
    ) -> Vec<ListedCall<'static>> {
        let calls = self.outgoing.calls_after(after, calls_max);
        calls.iter().map(|call| self.listed(call, times)).collect()
    }

    fn listed(&self, call: &RelayedCall, times: Times) -> ListedCall<'static> {
        let journaled = self.gifts.peer(call.id()).is_some();
        ListedCall { journaled, ..call.listed(self.ctx.did(), times) }
    }
}

impl RelayedCall {
    /// How the call of the agent `from` stands.
    fn listed(&self, from: &Did, times: Times) -> ListedCall<'static> {
        let progress = lock(&self.progress);
        let chosen = progress.chosen.as_ref();
        let is_sent = chosen.is_some_and(|chosen| chosen.machine.is_sent());
        let state = if is_sent { CallState::Sent } else { CallState::Waiting };
        let deadline_ms = chosen.map_or(self.moments.deadline_ms, |chosen| chosen.machine.deadline_ms());
        ListedCall {
            capability: Some(self.name.clone().into()),
            peer: chosen.map(|chosen| chosen.peer.to_string().into()),
            deadline_at_ms: Some(times.wall_ms(deadline_ms)),
            waiters: progress.waiters.len() as u64,
            ..ListedCall::new(
                self.id,
                from.to_string().into(),
                Role::Caller,
                state,
                self.moments.expires_at_ms,
            )
        }
    }
}
