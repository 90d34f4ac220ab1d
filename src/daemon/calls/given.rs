//! Calls that may run only once in; whom each was given to, in memory and on disk, out.
//!
//! Two sidecars know nothing of each other's ledgers. A call that is asked for again under its own id therefore goes to
//! whoever had it first, also after this process has started again (PROTOCOL 8).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;

use super::{Chosen, Handed, RelayedCall};
use crate::daemon::access::End;
use crate::daemon::executor::{Written, refused_code, unwritable};
use crate::daemon::node::{Node, Refusal, lock};
use crate::store::{Change, Given, Row, StoreError, Work};

/// Whom calls were given to, until their `ts + ttl`.
pub(in crate::daemon) struct Gifts {
    state: Mutex<State>,
    gifts_max: usize,
}

#[derive(Default)]
struct State {
    by_id: HashMap<MessageId, Gift>,
    expiry: BTreeSet<(u64, MessageId)>,
    /// The latest `ts + ttl` that has expired: a clock that goes back gives no call away again.
    expired_ms: u64,
}

struct Gift {
    given: Given,
    /// Whether it is on disk: only then may a call leave because of it.
    is_durable: bool,
}

impl Gifts {
    /// Those that a former process has left, and how far it had forgotten others, with room for `gifts_max`.
    pub(in crate::daemon) fn new(left: Vec<Given>, expired_ms: u64, gifts_max: usize) -> Self {
        let mut state = State { expired_ms, ..State::default() };
        for given in left {
            state.insert(given, true);
        }
        Self { state: Mutex::new(state), gifts_max }
    }

    /// Whom the call of this id was given to.
    pub(in crate::daemon) fn peer(&self, id: &MessageId) -> Option<Did> {
        lock(&self.state).by_id.get(id).map(|gift| gift.given.peer.clone())
    }

    /// Whether it is on disk whom the call of this id was given to.
    fn is_durable(&self, id: &MessageId) -> bool {
        lock(&self.state).by_id.get(id).is_some_and(|gift| gift.is_durable)
    }

    /// A gift's row is on disk.
    fn written(&self, id: &MessageId, row: Row) {
        if let Some(gift) = lock(&self.state).by_id.get_mut(id)
            && gift.given.row == row
        {
            gift.is_durable = true;
        }
    }

    /// A gift's row could not be written; one that a later row took the place of stays.
    fn unwritten(&self, id: &MessageId, row: Row) {
        let mut state = lock(&self.state);
        if state.by_id.get(id).is_some_and(|gift| gift.given.row == row) {
            state.remove(id);
        }
    }

    /// Remembers a gift; gives the row of one that it takes the place of. **Errors:** 1003 when calls as old were forgotten, 5004 when there are too many.
    fn insert(&self, given: Given) -> Result<Option<Row>, Refusal> {
        let mut state = lock(&self.state);
        if state.expired_ms > 0 && given.expires_at_ms <= state.expired_ms {
            return Err(Refusal::new(Code::INVALID_TIMESTAMP, "calls of this age are no longer remembered"));
        }
        if state.by_id.len() >= self.gifts_max {
            return Err(Refusal::new(Code::OVERLOADED, "the memory of calls is full"));
        }
        Ok(state.insert(given, false))
    }

    /// Takes out what has expired, as rows of the journal, and the latest `ts + ttl` of it all.
    fn take_expired(&self, now_ms: u64) -> (Vec<Row>, u64) {
        let mut state = lock(&self.state);
        let mut rows = Vec::new();
        while let Some((at_ms, id)) = state.expiry.first().copied()
            && at_ms < now_ms
        {
            rows.extend(state.remove(&id));
            state.expired_ms = state.expired_ms.max(at_ms);
        }
        (rows, state.expired_ms)
    }
}

impl State {
    /// Gives the row of the gift that it takes the place of.
    fn insert(&mut self, given: Given, is_durable: bool) -> Option<Row> {
        let (id, expires_at_ms) = (given.id, given.expires_at_ms);
        let former = self.by_id.insert(id, Gift { given, is_durable }).map(|gift| gift.given);
        if let Some(former) = &former {
            self.expiry.remove(&(former.expires_at_ms, id));
        }
        self.expiry.insert((expires_at_ms, id));
        former.map(|given| given.row)
    }

    fn remove(&mut self, id: &MessageId) -> Option<Row> {
        let Gift { given, .. } = self.by_id.remove(id)?;
        self.expiry.remove(&(given.expires_at_ms, given.id));
        Some(given.row)
    }
}

impl Node {
    /// Sends a call for which a peer was chosen, once it is on disk who that is if it may run only once.
    pub(super) fn give(&self, call: &Arc<RelayedCall>, chosen: Chosen) {
        let is_known = chosen.idempotent || self.gifts.is_durable(&call.id);
        let peer = chosen.peer.clone();
        {
            let mut progress = lock(&call.progress);
            if is_known {
                progress.chosen = Some(chosen);
            } else {
                progress.given = Some(chosen);
            }
        }
        if is_known {
            return self.drive_call(call, None, Handed::Nothing);
        }
        let row = self.journal.next_row();
        let given = Given { row, id: call.id, peer, expires_at_ms: call.expires_at_ms };
        let former = match self.gifts.insert(given.clone()) {
            Ok(former) => former,
            Err(refusal) => return self.refuse_call(call, &refusal),
        };
        let submitted =
            self.journal.submit(Work::Write(Change::Give(given)), Written::Given(Arc::clone(call), row));
        if let Err(full) = submitted {
            self.gifts.unwritten(&call.id, row);
            self.refuse_call(
                call,
                &Refusal::new(refused_code(full.reason), "the journal takes no more calls"),
            );
        }
        if let Some(row) = former {
            self.forget_row(row);
        }
    }

    /// It is on disk who the call goes to, so it may leave; unless it has ended meanwhile.
    pub(in crate::daemon) fn on_given(&self, call: &Arc<RelayedCall>, row: Row, error: Option<StoreError>) {
        if let Some(error) = error {
            tracing::error!(id = %call.id, %error, "a call is refused: the journal cannot be written");
            self.gifts.unwritten(&call.id, row);
            if !call.ended.is_cancelled() {
                self.refuse_call(call, &unwritable());
            }
            // The disk may have kept it all the same.
            return self.forget_row(row);
        }
        self.gifts.written(&call.id, row);
        {
            let mut progress = lock(&call.progress);
            if call.ended.is_cancelled() {
                return;
            }
            progress.chosen = progress.given.take();
        }
        self.drive_call(call, None, Handed::Nothing);
    }

    fn refuse_call(&self, call: &Arc<RelayedCall>, refusal: &Refusal) {
        let refuse = |node: &Self, link: &_, route: &_| node.refuse(link, route, Some(call.id), refusal);
        self.end_call(call, End::Refused(refusal.code), refuse);
    }

    /// Forgets whom expired calls were given to.
    pub(in crate::daemon) fn forget_gifts(&self) {
        let (rows, expired_ms) = self.gifts.take_expired(self.clock.wall_ms());
        self.expire_rows(rows.into_iter(), expired_ms);
    }
}
