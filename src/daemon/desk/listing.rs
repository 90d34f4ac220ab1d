//! REQUEST `calls` in; a page of the calls that this sidecar relays, runs and remembers out.
//!
//! A cursor is the key of the last call on its page, so that calls which come and go between pages move no others. It is
//! no secret from the sidecar's own agent, who alone may ask.

use std::borrow::Cow;

use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::ledger::Key;
use capd_proto::limits::{MESSAGE_ID_BYTES, QUERY_LIMIT_DEFAULT, QUERY_LIMIT_MAX};
use capd_proto::message::{CallsPage, CallsRequest, JournalCounters, ListedCall, Response, Role, Type};

use super::Desk;
use crate::daemon::context::times::Times;
use crate::daemon::context::{Inbound, Refusal};
use crate::store::Counters;

/// Where a page begins: behind the call that the last one ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
struct After {
    role: Role,
    key: Key,
}

impl After {
    fn of(call: &ListedCall<'_>) -> Option<Self> {
        let from = Did::parse(&call.from).ok()?;
        Some(Self { role: call.role, key: Key { from, id: call.id } })
    }

    /// **Shape:** the role (0 caller, 1 executor), the id's sixteen bytes, the DID's text.
    fn to_cursor(&self) -> Vec<u8> {
        let role = match self.role {
            Role::Caller => 0,
            Role::Executor => 1,
        };
        [&[role], self.key.id.as_bytes().as_slice(), self.key.from.as_str().as_bytes()].concat()
    }

    /// `None` for bytes that no cursor consists of.
    fn of_cursor(cursor: &[u8]) -> Option<Self> {
        let (role, rest) = cursor.split_first()?;
        let (id, from) = rest.split_first_chunk::<MESSAGE_ID_BYTES>()?;
        let role = match role {
            0 => Role::Caller,
            1 => Role::Executor,
            _ => return None,
        };
        let from = Did::parse(std::str::from_utf8(from).ok()?).ok()?;
        Some(Self { role, key: Key { from, id: capd_proto::envelope::MessageId(*id) } })
    }
}

impl Desk {
    /// Answers with a page of calls, or with those of one id.
    ///
    /// **Errors:** 4001 for anybody but the agent, for a page of nothing, and for a cursor that is none.
    pub(in crate::daemon) fn on_calls(
        &self,
        inbound: &Inbound<'_>,
        request: &CallsRequest<'_>,
    ) -> Result<(), Refusal> {
        if !inbound.link.kind().is_local() {
            // A peer learns nothing of other callers, and no more than of an operation that we do not have.
            return Err(Refusal::new(Code::BAD_REQUEST, "the operation \"calls\" is not known here"));
        }
        if request.limit == Some(0) {
            return Err(Refusal::new(Code::BAD_REQUEST, "`limit` is at least 1"));
        }
        let times = Times::of(&self.ctx.clock);
        let page = match request.target {
            Some(id) => {
                let relayed = self.caller.listed_of(&id, times);
                let calls = relayed.into_iter().chain(self.executor.table.listed_of(id, times)).collect();
                CallsPage { calls, ..CallsPage::default() }
            }
            // A page ends early rather than outgrow what the link takes.
            None => self.page(request, times, inbound.link.message_bytes_max() / 2)?,
        };
        let Counters { changes, commits, failures } = self.executor.journal_counters();
        let page = CallsPage { journal: Some(JournalCounters { changes, commits, failures }), ..page };
        let mut body = Vec::new();
        Response::Calls(page).encode(&mut body);
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }

    fn page(
        &self,
        request: &CallsRequest<'_>,
        times: Times,
        bytes_max: usize,
    ) -> Result<CallsPage<'static>, Refusal> {
        let after = match request.cursor.as_deref().map(After::of_cursor) {
            Some(None) => {
                return Err(Refusal::new(Code::BAD_REQUEST, "the cursor is unknown"));
            }
            Some(Some(after)) => Some(after),
            None => None,
        };
        let limit = request.limit.unwrap_or(QUERY_LIMIT_DEFAULT).min(QUERY_LIMIT_MAX);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let (is_past_callers, key) = match after {
            Some(After { role, key }) => (role == Role::Executor, Some(key)),
            None => (false, None),
        };
        let mut calls = Vec::new();
        if !is_past_callers {
            calls.extend(self.caller.listed_after(key.as_ref().map(|key| key.id), limit, times));
        }
        let behind = if is_past_callers { key.as_ref() } else { None };
        calls.extend(self.executor.table.listed_after(behind, limit - calls.len(), times));
        let is_full = keep_to(&mut calls, bytes_max) || calls.len() >= limit;
        // A page that is not full is the last one; a full one may be, and the next one is empty then.
        let last = if is_full { calls.last().and_then(After::of) } else { None };
        let cursor = last.map(|last| Cow::Owned(last.to_cursor()));
        Ok(CallsPage { calls, cursor, journal: None })
    }
}

/// Cuts a page that would outgrow `bytes_max`, behind its first call at the earliest; `true` when it was cut.
fn keep_to(calls: &mut Vec<ListedCall<'_>>, bytes_max: usize) -> bool {
    let text = |text: &Option<Cow<'_, str>>| text.as_ref().map_or(0, |text| text.len());
    let mut bytes = 0;
    let fitting = calls.iter().take_while(|call| {
        bytes += LISTED_BYTES_MAX + call.from.len() + text(&call.peer) + text(&call.capability);
        bytes <= bytes_max
    });
    let fitting = fitting.count().max(1);
    let is_cut = fitting < calls.len();
    calls.truncate(fitting);
    is_cut
}

/// Bytes of a listed call without its texts: its keys are 128 bytes, its numbers at most 9 each.
const LISTED_BYTES_MAX: usize = 320;

#[cfg(test)]
mod tests {
    use capd_proto::envelope::MessageId;
    use capd_proto::message::{CallState, ResultStatus};

    use super::*;

    #[test]
    fn a_cursor_comes_back_and_anything_else_is_none() {
        let key = Key { from: Did::parse("did:example:a").unwrap(), id: MessageId([7; 16]) };
        for role in [Role::Caller, Role::Executor] {
            let after = After { role, key: key.clone() };
            let cursor = after.to_cursor();
            assert_eq!(After::of_cursor(&cursor), Some(after));
            for end in 0..1 + MESSAGE_ID_BYTES {
                assert_eq!(After::of_cursor(&cursor[..end]), None, "{end}");
            }
            assert_eq!(After::of_cursor(&[&[2], &cursor[1..]].concat()), None);
            assert_eq!(After::of_cursor(&[&cursor[..], &[0xff]].concat()), None);
        }
    }

    #[test]
    fn a_moment_is_told_by_the_time_of_day() {
        let times = Times { wall_ms: 1_000_000, monotonic_ms: 500 };
        assert_eq!(
            (times.wall_ms(700), times.wall_ms(500), times.wall_ms(100)),
            (1_000_200, 1_000_000, 999_600)
        );
    }

    #[test]
    fn a_page_is_cut_before_it_outgrows_its_link() {
        let call = |from: usize| {
            let (role, state) = (Role::Executor, CallState::Executing);
            ListedCall {
                capability: Some("c".repeat(500).into()),
                peer: Some("p".repeat(2_000).into()),
                started_at_ms: Some(u64::MAX),
                deadline_at_ms: Some(u64::MAX),
                finished_at_ms: Some(u64::MAX),
                status: Some(ResultStatus::Success),
                code: Some(Code(u32::MAX)),
                bytes: Some(u64::MAX),
                waiters: u64::MAX,
                journaled: true,
                ..ListedCall::new(MessageId([0; 16]), "f".repeat(from).into(), role, state, u64::MAX)
            }
        };
        for bytes_max in [0, 5_000, 50_000, 1_000_000] {
            let mut calls: Vec<_> = (0..100).map(|_| call(2_000)).collect();
            let is_cut = keep_to(&mut calls, bytes_max);
            assert_eq!(is_cut, calls.len() < 100);
            let (count, page) = (calls.len(), CallsPage { calls, ..CallsPage::default() });
            let mut body = Vec::new();
            Response::Calls(page).encode(&mut body);
            assert!(count == 1 || body.len() <= bytes_max + 100, "{count} calls, {} bytes", body.len());
        }
        assert!(!keep_to(&mut Vec::new(), 0));
    }
}
