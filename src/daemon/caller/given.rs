//! Remembers, in memory and on disk, which peer got each non-idempotent call.
//!
//! Two sidecars do not know each other's ledgers. A call that is repeated under its id therefore goes to the peer that
//! got it first, even after this process restarted (PROTOCOL 8).

use std::sync::{Arc, Mutex};

use ahash::HashMap;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;

use super::reserved::{Asked, Cover, Reservations, To};
use super::{Caller, Chosen, Handed, RelayedCall};
use crate::daemon::account::meter::CallLimit;
use crate::daemon::account::phases::Phase;
use crate::daemon::context::refusal::forgotten;
use crate::daemon::context::{Refusal, lock};
use crate::daemon::journal::{untaken, unwritable};
use crate::net::deadlines::Deadlines;
use crate::store::{Change, Given, Replica, Reserved, Row, StoreError, Work};

/// Whom calls were given to, until their `ts + ttl`.
pub(in crate::daemon) struct Gifts {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_id: HashMap<MessageId, Gift>,
    reservations: Reservations,
    expiry: Deadlines<MessageId>,
    /// The latest `ts + ttl` that has expired: a clock that goes back gives no call away again.
    expired_ms: u64,
}

struct Gift {
    replica: Replica,
    expires_at_ms: u64,
    /// The row that keeps it.
    row: Row,
    /// Whether that row keeps nothing else.
    is_own: bool,
    /// Whether it is on disk: only then may a call leave because of it.
    is_durable: bool,
    /// Whether the peer may have executed the call: a copy left, now or in a former process, and no ERROR has said that
    /// it was refused.
    may_have_run: bool,
    /// Whether the peer refused the call itself, so that no other is asked.
    stays: bool,
    /// What it takes the place of, while its row is being written: the call moves.
    replaces: Option<Box<Gift>>,
    /// Whether the disk may have a row of another peer, so that only a later row of its own counts.
    is_contested: bool,
    /// The peer that has released the call: it is given there never again, and released nowhere else.
    released_by: Option<Did>,
    /// Whether the agent was given the result that came from the peer.
    is_fetched: bool,
    /// Whether it was given to one of several that remember its id together; of a former process nobody knows.
    by_id: Option<bool>,
}

/// Whom a call of the agent's goes to stands in this row: it may be sent.
pub(in crate::daemon) struct Written {
    call: Arc<RelayedCall>,
    row: Row,
}

/// What a gift asks of the journal.
#[derive(Default)]
struct Asks {
    /// What must be on disk before the call may leave.
    first: Option<Change>,
    /// A row that is not needed any more.
    forget: Option<Row>,
}

impl Gifts {
    /// Those that a former process has left, and how far it had forgotten others.
    pub(in crate::daemon) fn new((given, reserved): (Vec<Given>, Vec<Reserved>), expired_ms: u64) -> Self {
        let reservations = Reservations::new(reserved);
        let mut state = State { reservations, expired_ms, ..State::default() };
        for Given { row, id, replica, expires_at_ms, released_by } in given {
            let gift = Gift::new(replica, expires_at_ms, row, true);
            state.insert(id, Gift { is_own: true, released_by, ..gift });
        }
        Self { state: Mutex::new(state) }
    }

    /// Whom the call of this id was given to.
    pub(in crate::daemon) fn peer(&self, id: &MessageId) -> Option<Did> {
        self.replica(id).map(|replica| replica.peer)
    }

    /// The same, with the journal that it is to be remembered in.
    pub(super) fn replica(&self, id: &MessageId) -> Option<Replica> {
        lock(&self.state).by_id.get(id).map(|gift| gift.replica.clone())
    }

    /// Whom a call of this id, of which nobody here knows, may have been given to by a former process.
    pub(super) fn former(&self, id: &MessageId, name: &str) -> Option<Replica> {
        lock(&self.state).reservations.former(name, id).cloned()
    }

    /// Whom a call is promised to with others of its capability: it may leave for there at once.
    pub(super) fn promised(&self, call: &RelayedCall) -> Option<Replica> {
        lock(&self.state).reservations.promised(call.asked()).cloned()
    }

    /// Whether the call of this id belongs to whom it was given to: it may have been executed there, or was refused for
    /// what it is.
    pub(super) fn is_bound(&self, id: &MessageId) -> bool {
        lock(&self.state).by_id.get(id).is_some_and(|gift| gift.may_have_run || gift.stays)
    }

    /// Whether the call of this id may have been executed, so that nobody may call it refused (PROTOCOL 8).
    pub(super) fn may_have_run(&self, id: &MessageId, name: &str) -> bool {
        let state = lock(&self.state);
        let gift = state.by_id.get(id);
        gift.map_or_else(|| state.reservations.has_former(name, id.ts_ms()), |gift| gift.may_have_run)
    }

    /// Whether a call of which nothing is known may have been given to somebody, as calls that expired with it were.
    fn may_have_forgotten(&self, expires_at_ms: u64) -> bool {
        lock(&self.state).may_have_forgotten(expires_at_ms)
    }

    /// Whether a call of this id was given to nobody, or by this process to those who remember ids. Of a former process
    /// nobody knows what the peer declared then, so its call stays where it is.
    pub(super) fn is_new_or_by_id(&self, id: &MessageId, name: &str) -> bool {
        let state = lock(&self.state);
        let gift = state.by_id.get(id);
        gift.map_or_else(
            || !state.reservations.has_former(name, id.ts_ms()),
            |gift| gift.by_id == Some(true) || !gift.may_have_run,
        )
    }

    /// Whether the journal of the peer that has this call may not have it, because its providers remember ids: by what this
    /// process knew when it gave it, else by what the peer declares now, if it declares anything.
    pub(super) fn may_be_unjournaled(&self, id: &MessageId, declared: Option<bool>) -> bool {
        let known = lock(&self.state).by_id.get(id).and_then(|gift| gift.by_id);
        known.or(declared).unwrap_or(true)
    }

    /// A copy of the call is about to leave.
    pub(super) fn sent(&self, id: &MessageId) {
        if let Some(gift) = lock(&self.state).by_id.get_mut(id) {
            gift.may_have_run = true;
        }
    }

    /// Every copy of the call that left was refused, or none left: nobody executed it, nor will. With the code of what is
    /// wrong with the call itself, no other peer is asked (PROTOCOL 8).
    pub(super) fn refused(&self, id: &MessageId, code: Option<Code>) {
        if let Some(gift) = lock(&self.state).by_id.get_mut(id) {
            gift.may_have_run = false;
            gift.stays = code.is_some_and(|code| !code.is_about_executor());
        }
    }

    /// The agent was given the result of a call.
    pub(super) fn fetched(&self, id: &MessageId) {
        if let Some(gift) = lock(&self.state).by_id.get_mut(id) {
            gift.is_fetched = true;
        }
    }

    /// Those of a peer's calls whose results the agent was given by this process.
    fn fetched_from(&self, peer: &Did, ids: &[MessageId]) -> Vec<MessageId> {
        let state = lock(&self.state);
        let is_fetched = |id: &&MessageId| {
            state.by_id.get(*id).is_some_and(|gift| gift.is_fetched && gift.replica.peer == *peer)
        };
        ids.iter().filter(is_fetched).copied().collect()
    }

    /// The peer that has the call has a tombstone for it on its disk.
    pub(super) fn released(&self, id: &MessageId, by: &Did) {
        if let Some(gift) = lock(&self.state).by_id.get_mut(id).filter(|gift| gift.replica.peer == *by) {
            gift.released_by = Some(by.clone());
        }
    }

    /// Who has released the call of this id.
    pub(super) fn released_by(&self, id: &MessageId) -> Option<Did> {
        lock(&self.state).by_id.get(id).and_then(|gift| gift.released_by.clone())
    }

    /// Whether it is on disk that the call of this id was given to this replica.
    fn is_durable(&self, id: &MessageId, replica: &Replica) -> bool {
        lock(&self.state).by_id.get(id).is_some_and(|gift| gift.is_durable && gift.replica == *replica)
    }

    /// A gift's row is on disk.
    fn written(&self, id: &MessageId, name: &str, row: Row) {
        let mut state = lock(&self.state);
        state.reservations.written(name, row);
        if let Some(gift) = state.by_id.get_mut(id)
            && gift.row == row
        {
            gift.is_durable = true;
            gift.replaces = None;
        }
    }

    /// A gift's row could not be written; one that a later row took the place of stays. Gives the row that the disk
    /// may have kept all the same, where nothing else may need it.
    fn unwritten(&self, id: &MessageId, name: &str, row: Row) -> Option<Row> {
        let mut state = lock(&self.state);
        let is_reservation = state.reservations.unwritten(name, row);
        if state.by_id.get(id).is_some_and(|gift| gift.row == row)
            && let Some(former) = state.remove(id).and_then(|gift| gift.replaces)
        {
            // Whatever the disk has by now, nothing leaves before a later row says to whom.
            state.insert(*id, Gift { is_durable: false, is_contested: true, ..*former });
        }
        // A reservation that was kept may have taken the place of one that is relied on, for the same peer.
        (!is_reservation).then_some(row)
    }

    /// Remembers whom `call` goes to. **Errors:** 1003 when calls as old were forgotten, 5004 when there are too
    /// many.
    fn give(
        &self,
        call: &RelayedCall,
        to: To<'_>,
        gifts_max: usize,
        by_id: bool,
        next_row: impl Fn() -> Row,
    ) -> Result<(Row, Asks), Refusal> {
        let (id, expires_at_ms) = (call.id, call.moments.expires_at_ms);
        let mut state = lock(&self.state);
        if call.destination.may_have_run_here || state.may_have_forgotten(expires_at_ms) {
            return Err(forgotten());
        }
        let former = state.by_id.get(&id);
        if former.is_none() && state.by_id.len() >= gifts_max {
            return Err(Refusal::new(Code::OVERLOADED, "the memory of calls is full"));
        }
        // Where the agent names the peer, it may name another for the next call, in whose way a reservation would stand
        // after a restart.
        let replica = to.replica;
        let moves = former.filter(|former| former.replica != *replica || former.is_contested);
        let replaced = moves.filter(|former| former.is_own).map(|former| former.row);
        let (is_moved, may_have_run) = (moves.is_some(), former.map(|former| former.may_have_run));
        let known = former.map(|former| former.by_id);
        let released_by = former.and_then(|former| former.released_by.clone());
        // A row of its own counts for more than a reservation: a call that moves is found nowhere else after a restart.
        let cover = if call.destination.to.is_some() || is_moved {
            Cover::Own
        } else {
            state.reservations.cover(call.asked(), to, &next_row)
        };
        let (row, first) = match cover {
            Cover::Covered(row) => (row, None),
            Cover::Reserve(reserved, replaces) => {
                (reserved.row, Some(Change::Reserve { reserved, replaces }))
            }
            Cover::Own => {
                let row = next_row();
                let released_by = released_by.clone();
                let given = Given { row, id, replica: replica.clone(), expires_at_ms, released_by };
                // PROTOCOL 8: in one commit, so that the call has one owner at any time.
                let change = match replaced {
                    Some(replaces) => Change::Move { given, replaces },
                    None => Change::Give(given),
                };
                (row, Some(change))
            }
        };
        let is_own = matches!(first, Some(Change::Give(_) | Change::Move { .. }));
        let may_have_run =
            may_have_run.unwrap_or_else(|| state.reservations.has_former(&call.name, id.ts_ms()));
        // What may have run did so under what was declared then.
        let by_id = if may_have_run { known.flatten() } else { Some(by_id) };
        let is_durable = first.is_none();
        let gift = Gift::new(replica.clone(), expires_at_ms, row, may_have_run);
        let gift = Gift { is_own, is_durable, released_by, by_id, ..gift };
        let former = state.insert(id, gift);
        let mut forget = None;
        if is_moved {
            if let Some(gift) = state.by_id.get_mut(&id) {
                gift.replaces = former.map(Box::new);
            }
        } else {
            forget = former.filter(|former| former.is_own).map(|former| former.row);
        }
        Ok((row, Asks { first, forget }))
    }

    /// Takes out what has expired, as rows of the journal, and the latest `ts + ttl` of it all. `in_flight_ms` is the
    /// earliest of calls that have not ended: a clock may leap ahead, and what they rely on is remembered until then.
    fn take_expired(&self, now_ms: u64, in_flight_ms: Option<u64>) -> (Vec<Row>, u64) {
        let now_ms = now_ms.min(in_flight_ms.unwrap_or(u64::MAX));
        let mut state = lock(&self.state);
        let (mut rows, expired_ms) = state.reservations.take_expired(now_ms);
        state.expired_ms = state.expired_ms.max(expired_ms);
        while let Some((at_ms, &id)) = state.expiry.first()
            && at_ms < now_ms
        {
            rows.extend(state.remove(&id).filter(|gift| gift.is_own).map(|gift| gift.row));
            state.expired_ms = state.expired_ms.max(at_ms);
        }
        (rows, state.expired_ms)
    }
}

impl Gift {
    /// One that is on disk and was never refused.
    const fn new(replica: Replica, expires_at_ms: u64, row: Row, may_have_run: bool) -> Self {
        Self {
            replica,
            expires_at_ms,
            row,
            is_own: false,
            is_durable: true,
            may_have_run,
            stays: false,
            replaces: None,
            is_contested: false,
            released_by: None,
            is_fetched: false,
            by_id: None,
        }
    }
}

impl RelayedCall {
    /// The call as reservations know it.
    fn asked(&self) -> Asked<'_> {
        Asked { name: &self.name, id: &self.id, expires_at_ms: self.moments.expires_at_ms }
    }
}

impl State {
    fn may_have_forgotten(&self, expires_at_ms: u64) -> bool {
        self.expired_ms > 0 && expires_at_ms <= self.expired_ms
    }

    /// Gives the gift that it takes the place of.
    fn insert(&mut self, id: MessageId, gift: Gift) -> Option<Gift> {
        let former = self.remove(&id);
        self.expiry.insert(gift.expires_at_ms, id);
        self.by_id.insert(id, gift);
        former
    }

    fn remove(&mut self, id: &MessageId) -> Option<Gift> {
        let gift = self.by_id.remove(id)?;
        let waits =
            |at_ms, id: &MessageId| self.by_id.get(id).is_some_and(|gift| gift.expires_at_ms == at_ms);
        self.expiry.remove(gift.expires_at_ms, id, self.by_id.len(), waits);
        Some(gift)
    }
}

impl Caller {
    /// FLEET X11: which of these calls need the peer that executed them no longer.
    pub(in crate::daemon) fn fetched_from(&self, peer: &Did, ids: &[MessageId]) -> Vec<MessageId> {
        self.gifts.fetched_from(peer, ids)
    }

    /// Whether the call of this id may have been executed, so that nobody may call it refused (PROTOCOL 8).
    pub(in crate::daemon) fn may_have_run(&self, id: &MessageId, name: &str) -> bool {
        self.gifts.may_have_run(id, name)
    }

    /// Whether a call with this `ts + ttl` may have been given to somebody, and that was forgotten.
    pub(in crate::daemon) fn may_have_forgotten(&self, expires_at_ms: u64) -> bool {
        self.gifts.may_have_forgotten(expires_at_ms)
    }

    /// PROTOCOL 8: a call that may have run at a peer is asked about there, whoever else serves it by then, or the agent
    /// names in `to`; else `to`. `runs_here` tells whether it runs, or ran, here.
    ///
    /// **Errors:** 5002 when a former process may have given it to another than `to`.
    pub(in crate::daemon) fn given_to(
        &self,
        id: &MessageId,
        name: &str,
        to: Option<Did>,
        runs_here: impl FnOnce() -> bool,
    ) -> Result<Option<Did>, Refusal> {
        if let Some(peer) = self.gifts.peer(id) {
            // Refused, or never sent, it may go to another (PROTOCOL 8), unless the agent names one; or have gone to an agent
            // beside this sidecar, whose ledger knows.
            let is_free = to.is_none() && !self.gifts.is_bound(id);
            return Ok(if is_free || runs_here() { None } else { Some(peer) });
        }
        match self.gifts.former(id, name).map(|replica| replica.peer) {
            None => Ok(to),
            Some(_) if runs_here() => Ok(to),
            Some(peer) if to.as_ref().is_none_or(|to| *to == peer) => Ok(Some(peer)),
            Some(peer) => {
                let why = format!(
                    "before this sidecar started, {peer} may have received this call; ask there, or make a new one"
                );
                Err(Refusal::new(Code::UNAVAILABLE, why))
            }
        }
    }

    /// Sends a call for which a peer was chosen, once it is on disk who that is if it may run only once.
    pub(super) fn give(self: &Arc<Self>, call: &Arc<RelayedCall>, chosen: Chosen) {
        let replica = Replica { peer: chosen.peer.clone(), journal: chosen.journal };
        if chosen.idempotent || self.gifts.is_durable(&call.id, &replica) {
            return self.go(call, chosen);
        }
        if let Err(refusal) = self.fleet.may_journal() {
            return self.refuse_call(call, &refusal);
        }
        let to = To { replica: &replica, among: &chosen.among };
        let gifts_max = self.ctx.config().limits.ledger_entries_max;
        let next_row = || self.scribe.next_row();
        let (row, asks) = match self.gifts.give(call, to, gifts_max, chosen.by_id, next_row) {
            Ok(given) => given,
            Err(refusal) => {
                if refusal.code == Code::OVERLOADED {
                    self.account.meter.refused(CallLimit::LedgerEntries);
                }
                return self.refuse_call(call, &refusal);
            }
        };
        match asks.first {
            None => self.go(call, chosen),
            Some(change) => {
                self.enter(call, Phase::Journal);
                lock(&call.progress).given = Some(chosen);
                let given = Written { call: Arc::clone(call), row };
                if let Err(reason) = self.scribe.submit(Work::Write(change), given) {
                    self.gifts.unwritten(&call.id, &call.name, row);
                    self.refuse_call(call, &untaken(reason));
                }
            }
        }
        if let Some(row) = asks.forget {
            self.scribe.forget(row);
        }
    }

    /// It is on disk who the call goes to, so it may leave; unless it has ended meanwhile.
    pub(in crate::daemon) fn on_given(self: &Arc<Self>, written: Written, error: Option<StoreError>) {
        let Written { call, row } = &written;
        let row = *row;
        if let Some(error) = error {
            tracing::error!(id = %call.id, %error, "a call is refused: the journal cannot be written");
            let kept = self.gifts.unwritten(&call.id, &call.name, row);
            if !call.ended.is_set() {
                self.refuse_call(call, &unwritable());
            }
            if let Some(row) = kept {
                self.scribe.forget(row);
            }
            return;
        }
        self.gifts.written(&call.id, &call.name, row);
        let given = lock(&call.progress).given.take();
        if let Some(given) = given.filter(|_| !call.ended.is_set()) {
            self.go(call, given);
        }
    }

    /// The call goes to its peer, the first one or another.
    fn go(self: &Arc<Self>, call: &Arc<RelayedCall>, chosen: Chosen) {
        let moved = lock(&call.progress).take(chosen);
        match moved {
            Some(generation) => self.send_call(call, generation),
            None => self.drive_call(call, None, Handed::Nothing),
        }
    }

    /// Forgets whom expired calls were given to. To be called about once a second.
    pub(in crate::daemon) fn forget_gifts(&self) {
        let in_flight_ms = self.outgoing.earliest_expiry_ms();
        let (rows, expired_ms) = self.gifts.take_expired(self.ctx.clock.wall_ms(), in_flight_ms);
        self.scribe.expire(rows, expired_ms);
    }
}

#[cfg(test)]
mod tests {
    use capd_proto::identity::Identity;

    use super::*;

    #[test]
    fn what_a_call_in_flight_relies_on_is_remembered_though_its_time_has_passed() {
        let peer = Identity::from_seed([1; 32]).did().clone();
        let id = MessageId([1; 16]);
        let replica = Replica { peer, journal: None };
        let given = Given { row: Row(7), id, replica, expires_at_ms: 1_000, released_by: None };
        let gifts = Gifts::new((vec![given], Vec::new()), 0);
        assert_eq!(gifts.take_expired(9_000, Some(1_000)), (Vec::new(), 0));
        assert!(gifts.may_have_run(&id, "org.example.once"));
        assert_eq!(gifts.take_expired(9_000, None), (vec![Row(7)], 1_000));
        assert!(!gifts.may_have_run(&id, "org.example.once"));
    }
}
