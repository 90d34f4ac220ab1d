//! Answers REQUEST `calls`: a page of the calls that this sidecar relays, runs and remembers.
//!
//! A cursor is the key of the last call on its page, so calls that come and go between pages move no others. It is no
//! secret from the sidecar's own agent, and only that may ask.

use std::borrow::Cow;
use std::ops::Bound;

use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::Key;
use capd_proto::limits::{MESSAGE_ID_BYTES, QUERY_LIMIT_DEFAULT, QUERY_LIMIT_MAX};
use capd_proto::message::{
    CallSide, CallsPage, CallsRequest, JournalCounters, ListedCall, Response, Role, Type,
};

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
        Some(Self { role, key: Key { from, id: MessageId(*id) } })
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
        let Counters { changes, commits, failures, .. } = self.executor.journal_counters();
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
        let scan = match request.newest_first {
            true => self.newest(request, after.as_ref(), limit, times),
            false => self.oldest(request, after.as_ref(), limit, times),
        };
        let Scan { mut calls, last, is_whole, .. } = scan;
        let is_cut = keep_to(&mut calls, bytes_max);
        // A page that is not whole is not the last one; a full one may be, and the next one is empty then.
        let last = if is_cut { calls.last().and_then(After::of) } else { last.filter(|_| !is_whole) };
        let cursor = last.map(|last| Cow::Owned(last.to_cursor()));
        Ok(CallsPage { calls, cursor, journal: None })
    }

    /// Calls behind `after`: those of the agent, then those that run here, each in the order of their keys.
    fn oldest(&self, request: &CallsRequest<'_>, after: Option<&After>, limit: usize, times: Times) -> Scan {
        let mut scan = Scan::new(limit);
        let is_wanted = |call: &ListedCall<'_>| self.is_wanted(request, call);
        let is_past_callers = after.is_some_and(|after| after.role == Role::Executor);
        if !is_past_callers {
            let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.key.id));
            let mut all = self.caller.listed_in((start, Bound::Unbounded), times).into_values();
            if !all.all(|call| scan.take(call, is_wanted)) {
                return scan;
            }
        }
        let mut behind = after.filter(|_| is_past_callers).map(|after| after.key.clone());
        loop {
            let calls = self.executor.table.listed_after(behind.as_ref(), SCAN_STEP, times);
            let is_last = calls.len() < SCAN_STEP;
            for call in calls {
                behind = After::of(&call).map(|after| after.key);
                if !scan.take(call, is_wanted) {
                    return scan;
                }
            }
            if is_last {
                scan.is_whole = true;
                return scan;
            }
        }
    }

    /// Calls before `after` of both kinds, the newest first; of one id, the one that runs here comes first.
    fn newest(&self, request: &CallsRequest<'_>, after: Option<&After>, limit: usize, times: Times) -> Scan {
        let mut scan = Scan::new(limit);
        let is_wanted = |call: &ListedCall<'_>| self.is_wanted(request, call);
        let end = after.map_or(Bound::Unbounded, |after| match after.role {
            Role::Executor => Bound::Included(after.key.id),
            Role::Caller => Bound::Excluded(after.key.id),
        });
        let mut callers =
            self.caller.listed_in((Bound::Unbounded, end), times).into_values().rev().peekable();
        // Of one id, what runs here comes before what the agent made.
        let before = after.map(|after| match after.role {
            Role::Executor => (after.key.id, Some(&after.key.from)),
            Role::Caller => (after.key.id, None),
        });
        let mut is_full = false;
        self.executor.table.newest(before, SCANNED_MAX, times, |call| {
            while let Some(newer) = callers.next_if(|caller| caller.id > call.id) {
                if !scan.take(newer, is_wanted) {
                    is_full = true;
                    return false;
                }
            }
            // What is older than what is asked for is not looked at.
            let is_old = request.since_ms.is_some_and(|since_ms| call.id.ts_ms() < since_ms);
            is_full = !is_old && !scan.take(call, is_wanted);
            !is_full && !is_old
        });
        if is_full {
            return scan;
        }
        scan.is_whole = callers.all(|call| scan.take(call, is_wanted)) && scan.scanned < SCANNED_MAX;
        scan
    }

    /// Whether a list shows a call.
    fn is_wanted(&self, request: &CallsRequest<'_>, call: &ListedCall<'_>) -> bool {
        let is_ours = call.role == Role::Caller || call.from == self.ctx.did().as_str();
        let is_of_side = match request.side {
            None => true,
            Some(CallSide::Made) => is_ours,
            Some(CallSide::Served) => call.role == Role::Executor,
        };
        let names = |wanted: &str| {
            let found = call.capability.as_deref().unwrap_or_default();
            found == wanted || found.split(':').next() == Some(wanted)
        };
        is_of_side
            && request.state.is_none_or(|state| state.is(call.state))
            && request.since_ms.is_none_or(|since_ms| call.id.ts_ms() >= since_ms)
            && request.capability.as_deref().is_none_or(names)
    }
}

/// A page in the making.
struct Scan {
    calls: Vec<ListedCall<'static>>,
    limit: usize,
    scanned: usize,
    /// The last call that was looked at.
    last: Option<After>,
    /// Whether there is nothing behind it.
    is_whole: bool,
}

impl Scan {
    fn new(limit: usize) -> Self {
        Self { calls: Vec::new(), limit, scanned: 0, last: None, is_whole: false }
    }

    /// Looks at a call; `false` when the page is full, or has taken enough work.
    fn take(&mut self, call: ListedCall<'static>, is_wanted: impl Fn(&ListedCall<'static>) -> bool) -> bool {
        self.last = After::of(&call);
        self.scanned += 1;
        if is_wanted(&call) {
            self.calls.push(call);
        }
        self.calls.len() < self.limit && self.scanned < SCANNED_MAX
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

/// Most calls that are looked at for one page: a page of a filter that few calls pass ends early.
const SCANNED_MAX: usize = 5_000;
/// Calls of the ledger that are copied out at once.
const SCAN_STEP: usize = 1_000;
/// Bytes of a listed call without its texts: its keys are 128 bytes, its numbers at most 9 each.
const LISTED_BYTES_MAX: usize = 320;

#[cfg(test)]
mod tests {
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
