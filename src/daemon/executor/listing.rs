//! Lists calls of the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use capd_proto::capability::CapabilityId;
use capd_proto::cbor::Reader;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::{Facts, Listed, Status};
use capd_proto::message::{CallState, ListedCall, ResultStatus, Role};

use super::table::{Calls, Running, Stage, Table};
use crate::daemon::account::audit::Answered;
use crate::daemon::account::timeline::Timeline;
use crate::daemon::context::lock;
use crate::daemon::context::times::Times;
use crate::daemon::context::wire::end_of;
use crate::provider::CallKey;

/// Capabilities that were called, each kept once, with its text, however many calls of it are remembered.
#[derive(Default)]
pub(super) struct Called(BTreeMap<Arc<CapabilityId>, Arc<str>>);

impl Called {
    /// The one that all of its calls share.
    pub(super) fn shared(&mut self, id: &CapabilityId) -> Arc<CapabilityId> {
        match self.0.get_key_value(id) {
            Some((known, _)) => Arc::clone(known),
            None => self.keep(id).0,
        }
    }

    /// Its text, which all of its calls share.
    pub(super) fn text(&mut self, id: &CapabilityId) -> Arc<str> {
        match self.0.get(id) {
            Some(text) => Arc::clone(text),
            None => self.keep(id).1,
        }
    }

    fn keep(&mut self, id: &CapabilityId) -> (Arc<CapabilityId>, Arc<str>) {
        if self.0.len() >= CALLED_MAX {
            // What no remembered call names has no other owner.
            self.0.retain(|known, _| Arc::strong_count(known) > 1);
        }
        let (shared, text) = (Arc::new(id.clone()), Arc::from(id.to_string()));
        if self.0.len() < CALLED_MAX {
            self.0.insert(Arc::clone(&shared), Arc::clone(&text));
        }
        (shared, text)
    }
}

impl Calls {
    /// Leaves with the ledger what a list is to say of a call once it no longer runs.
    pub(super) fn note(&mut self, key: &CallKey, running: &Running) {
        // Its bytes are on disk from here on; those of other calls are at hand whenever a list is asked for.
        if let Stage::Concluding { concluded, .. } = &running.stage
            && let Some(facts) = self.ledger.facts_mut(key)
        {
            facts.finished_at_ms = Some(concluded.finished_at_ms);
            facts.outcome = Some(concluded.ended);
        }
    }

    fn listed(&self, call: &Listed<'_>, times: Times) -> ListedCall<'static> {
        let key = CallKey { from: call.from.clone(), id: call.id };
        let running = self.running.get(&key);
        let state = match call.status {
            Status::Finished => CallState::Finished,
            Status::Executing | Status::Unknown => {
                running.map_or(CallState::Accepted, |running| running.state())
            }
        };
        let of_running = |time: fn(&Running) -> u64| running.map(|running| times.wall_ms(time(running)));
        let capability = running.map(|running| running.invocation.capability.to_string());
        let recorded =
            call.held.and_then(|envelope| recorded(&envelope.clone().into_bytes())).unwrap_or_default();
        let Facts { capability: called, finished_at_ms, outcome, .. } = call.facts;
        let outcome = outcome.or(recorded.outcome);
        ListedCall {
            capability: capability.or_else(|| called.as_ref().map(ToString::to_string)).map(Into::into),
            started_at_ms: of_running(|running| running.moments.started_us / 1_000),
            deadline_at_ms: of_running(|running| running.moments.deadline_ms),
            finished_at_ms: finished_at_ms.or(recorded.finished_at_ms),
            status: outcome.map(|outcome| outcome.map_or(ResultStatus::Error, |()| ResultStatus::Success)),
            code: outcome.and_then(Result::err),
            bytes: (call.status == Status::Finished).then_some(call.bytes as u64),
            waiters: call.waiters as u64,
            journaled: call.row.is_some() || running.is_some_and(|running| running.row.is_some()),
            ..ListedCall::new(
                call.id,
                call.from.to_string().into(),
                Role::Executor,
                state,
                call.expires_at_ms,
            )
        }
    }
}

impl Table {
    /// Calls behind that of `after`, in the order of their keys.
    pub(in crate::daemon) fn listed_after(
        &self,
        after: Option<&CallKey>,
        calls_max: usize,
        times: Times,
    ) -> Vec<ListedCall<'static>> {
        let calls = lock(&self.calls);
        calls.ledger.list(after, None).take(calls_max).map(|call| calls.listed(&call, times)).collect()
    }

    /// Shows the newest calls behind `before`, one by one, until `take` wants no more or `scanned_max` were shown.
    pub(in crate::daemon) fn newest(
        &self,
        before: Option<(MessageId, Option<&Did>)>,
        scanned_max: usize,
        times: Times,
        mut take: impl FnMut(ListedCall<'static>) -> bool,
    ) {
        let calls = lock(&self.calls);
        for call in calls.ledger.newest(before).take(scanned_max) {
            if !take(calls.listed(&call, times)) {
                return;
            }
        }
    }

    /// Calls of one id, one for each agent that used it, with their timelines.
    pub(in crate::daemon) fn listed_of(&self, id: MessageId, times: Times) -> Vec<ListedCall<'static>> {
        let calls = lock(&self.calls);
        let listed = calls.ledger.find(id).map(|call| {
            let key = CallKey { from: call.from.clone(), id };
            let timeline = calls.timeline(&key).and_then(Timeline::told);
            ListedCall { timeline, ..calls.listed(&call, times) }
        });
        listed.collect()
    }
}

impl Table {
    /// Whose call of this id was answered, what it called, and who answered; nobody if it still runs.
    pub(in crate::daemon) fn answered(&self, id: MessageId) -> Option<Answered> {
        let calls = lock(&self.calls);
        let call = calls.ledger.find(id).next()?;
        let running = calls.running.get(&CallKey { from: call.from.clone(), id });
        let by = match running.map(|running| &running.stage) {
            Some(Stage::Concluding { by, .. }) => Some(*by),
            Some(Stage::Recording { .. } | Stage::Executing) | None => call.by,
        };
        let capability = call.facts.capability.as_ref().map(ToString::to_string);
        let called = || running.map(|running| running.invocation.capability.to_string());
        Some(Answered { from: call.from.clone(), capability: capability.or_else(called), by })
    }
}

impl Running {
    const fn state(&self) -> CallState {
        match self.stage {
            Stage::Recording { .. } => CallState::Accepted,
            Stage::Executing | Stage::Concluding { .. } => CallState::Executing,
        }
    }
}

/// What a recorded CAP_RESULT says of the call's end. It was checked when it was recorded, and only what is asked for is
/// read: a list may pass by many large ones.
fn recorded(envelope: &[u8]) -> Option<Facts> {
    let mut reader = Reader::new(envelope);
    let mut facts = Facts::default();
    let mut left = reader.map().ok()?;
    while reader.has_next(&mut left) {
        match &*reader.text().ok()? {
            "ts" => facts.finished_at_ms = Some(reader.uint().ok()?),
            // In the envelope's order `ts` comes before it.
            "body" => {
                facts.outcome = end_of(&mut reader);
                return Some(facts);
            }
            _ => drop(reader.skip().ok()?),
        }
    }
    Some(facts)
}

/// Capabilities kept for lists; one that finds no room has each of its calls keep its own.
const CALLED_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use capd_proto::code::Code;
    use capd_proto::envelope::{Draft, Ext, Recipients};
    use capd_proto::identity::Identity;
    use capd_proto::message::{CallError, CapResult, Type};

    use super::*;

    fn envelope(body: &[u8]) -> Vec<u8> {
        let identity = Identity::from_seed([1; 32]);
        let id = MessageId::new(7_000, [0; 8]);
        let draft = Draft {
            id,
            typ: Type::CapResult.code(),
            ts: 7_000,
            ttl: 1,
            from: identity.did(),
            to: Recipients::one(identity.did()),
            reply_to: Some(id.as_bytes()),
            thread_id: None,
            body,
            ext: Ext::None,
        };
        let mut out = Vec::new();
        draft.seal(&identity, true, &mut out);
        out
    }

    fn facts(outcome: Result<(), Code>) -> Option<Facts> {
        Some(Facts { finished_at_ms: Some(7_000), outcome: Some(outcome), ..Facts::default() })
    }

    #[test]
    fn a_recorded_result_tells_when_and_how_the_call_ended() {
        let mut body = Vec::new();
        CapResult::error(CallError::new(Code::TIMEOUT, "late", None)).encode(&mut body);
        assert_eq!(recorded(&envelope(&body)), facts(Err(Code::TIMEOUT)));
        body.clear();
        CapResult::success(&[0x01]).encode(&mut body);
        assert_eq!(recorded(&envelope(&body)), facts(Ok(())));
        // {"status": "success", "error": {"code": 5003}, "result": 1}: a field that means nothing beside a success.
        let odd = b"\xa3\x66status\x67success\x65error\xa1\x64code\x19\x13\x8b\x66result\x01";
        assert_eq!(recorded(&envelope(odd)), facts(Ok(())));
    }

    #[test]
    fn a_capability_is_kept_once_and_no_longer_than_it_is_named() {
        let id = |number: usize| format!("a.b.c{number}:1.0.0").parse::<CapabilityId>().unwrap();
        let mut called = Called::default();
        let first = called.shared(&id(0));
        assert!(Arc::ptr_eq(&first, &called.shared(&id(0))));
        for number in 1..2 * CALLED_MAX {
            called.shared(&id(number));
            assert!(called.0.len() <= CALLED_MAX);
        }
        assert!(Arc::ptr_eq(&first, &called.shared(&id(0))));
        let kept: Vec<_> = (1..2 * CALLED_MAX).map(|number| called.shared(&id(number))).collect();
        assert_eq!((called.0.len(), kept.len()), (CALLED_MAX, 2 * CALLED_MAX - 1));
    }
}
