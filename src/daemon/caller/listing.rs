//! Lists relayed calls.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::message::{CallState, Descriptor, ListedCall, ResultStatus, Role};

use super::{Caller, RelayedCall};
use crate::daemon::account::timeline::Timeline;
use crate::daemon::context::lock;
use crate::daemon::context::times::Times;

impl Caller {
    /// The call of the agent's of this id, with its timeline.
    pub(in crate::daemon) fn listed_of(&self, id: &MessageId, times: Times) -> Option<ListedCall<'static>> {
        let (listed, timeline) = match self.outgoing.call(id) {
            Some(call) => (self.listed(&call, times), lock(&call.progress).timeline.clone()),
            None => {
                let past = self.outgoing.past_call(id)?;
                (self.past(&past), past.timeline)
            }
        };
        Some(ListedCall { timeline: timeline.told(), ..listed })
    }

    /// All calls that this sidecar relays or has relayed, with ids in `range`, by their ids.
    pub(in crate::daemon) fn listed_in(
        &self,
        range: (Bound<MessageId>, Bound<MessageId>),
        times: Times,
    ) -> BTreeMap<MessageId, ListedCall<'static>> {
        let past = self.outgoing.past_calls();
        let mut calls: BTreeMap<_, _> = past.range(range).map(|(id, call)| (*id, self.past(call))).collect();
        // One that is asked about again runs again.
        let running = self.outgoing.calls_in(range);
        calls.extend(running.iter().map(|call| (*call.id(), self.listed(call, times))));
        calls
    }

    fn past(&self, call: &PastCall) -> ListedCall<'static> {
        let journaled = self.gifts.peer(call.id()).is_some();
        ListedCall { journaled, ..call.listed(self.ctx.did()) }
    }

    fn listed(&self, call: &RelayedCall, times: Times) -> ListedCall<'static> {
        let journaled = self.gifts.peer(call.id()).is_some();
        ListedCall { journaled, ..call.listed(self.ctx.did(), times) }
    }
}

/// What is remembered of a call that has had its answer.
#[derive(Clone)]
pub(super) struct PastCall {
    id: MessageId,
    name: String,
    peer: Option<Did>,
    descriptor: Option<Arc<Descriptor>>,
    expires_at_ms: u64,
    finished_at_ms: u64,
    ended: Result<(), Code>,
    /// Whether nothing was executed, so that there is no result.
    is_refused: bool,
    timeline: Timeline,
}

impl PastCall {
    pub(super) const fn id(&self) -> &MessageId {
        &self.id
    }

    /// How the call of the agent `from` ended.
    pub(super) fn listed(&self, from: &Did) -> ListedCall<'static> {
        let capability = self.descriptor.as_ref().map(|descriptor| descriptor.id.to_string());
        ListedCall {
            capability: Some(capability.unwrap_or_else(|| self.name.clone()).into()),
            peer: self.peer.as_ref().map(|peer| peer.to_string().into()),
            finished_at_ms: Some(self.finished_at_ms),
            status: match self.ended {
                _ if self.is_refused => None,
                Ok(()) => Some(ResultStatus::Success),
                Err(_) => Some(ResultStatus::Error),
            },
            code: self.ended.err(),
            ..ListedCall::new(
                self.id,
                from.to_string().into(),
                Role::Caller,
                CallState::Finished,
                self.expires_at_ms,
            )
        }
    }
}

impl RelayedCall {
    /// The same call once it has ended. **Units:** milliseconds since the Unix epoch.
    pub(super) fn past(&self, ended: Result<(), Code>, is_refused: bool, finished_at_ms: u64) -> PastCall {
        let progress = lock(&self.progress);
        let chosen = progress.chosen.as_ref();
        PastCall {
            id: self.id,
            name: self.name.clone(),
            peer: chosen.map(|chosen| chosen.peer.clone()),
            descriptor: chosen.and_then(|chosen| chosen.descriptor.clone()),
            expires_at_ms: self.moments.expires_at_ms,
            finished_at_ms,
            ended,
            is_refused,
            timeline: progress.timeline.clone(),
        }
    }

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
