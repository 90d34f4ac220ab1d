//! Decides about invokes and results: which call is new, which runs, which has been answered (PROTOCOL 8).
//!
//! The ledger is the executor's memory of (`from`, `id`). It holds every call from its admission until its `ts + ttl`,
//! so an invoke never runs twice and its result never changes. The ledger holds the results of idempotent calls, within
//! a byte budget. Results of the others are in a journal, and the ledger holds the number of their row. The ledger does
//! no I/O and sends nothing: each question is answered with what to do.
//!
//! ```text
//!            admit                 finish                  sweep past ts + ttl, or, if idempotent, no space
//! (unknown) ───────► Executing ─────────────► Finished ───────────────────────────────────────────────► (unknown)
//!   ▲   │               │  ▲ │ admit: Attached  ▲ ▲ │ admit: Replay; finish: Late or Second
//!   │   │               │  └─┘                  │ └─┘
//!   │   └───────────────┼─────── restore ───────┘
//!   └───── withdraw ────┘
//!
//! (unknown) ── release ──► Released: admit refuses it, until ts + ttl
//! ```
//!
//! In either state, the same id with another body is an [`Admission::Conflict`]. A non-idempotent call that is old
//! enough to be among the forgotten ones is an [`Admission::Forgotten`].

mod aged;
mod facts;
mod journal;
mod list;
mod marks;
mod order;
mod release;
mod terms;
mod verdict;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use smallvec::smallvec;

use crate::envelope::MessageId;
use crate::identity::Did;
use crate::limits::{LEDGER_SWEEP_MAX, LEDGER_WAITERS_MAX};

use aged::Aged;
use order::Order;
use release::Tombstone;

pub use facts::Facts;
pub use journal::JournalId;
pub use list::Listed;
pub use marks::CancelMarks;
pub use terms::{BodyDigest, Invoke, Kept, Key, Limits};
pub use verdict::{Admission, Answerer, Bound, Finish, Release, Status, Waiters};

/// The memory of calls; `W` is what the daemon needs to send a result back.
#[derive(Debug)]
pub struct Ledger<W> {
    limits: Limits,
    peers: BTreeMap<Did, Peer<W>>,
    calls: usize,
    kept_bytes: usize,
    idempotent_bytes: usize,
    /// Grows with each finished call; a smaller number is older.
    finished: u64,
    /// Finished idempotent calls, oldest first.
    forgettable: Aged<Key>,
    /// Finished calls by the time they may be forgotten.
    expiry: Order,
    /// The latest `ts + ttl` of the forgotten non-idempotent calls.
    forgotten_ms: Option<u64>,
    #[cfg(feature = "test-hooks")]
    is_blind: bool,
}

/// The calls of one `from`. Ids begin with the time, so that calls come in at the end of the map.
#[derive(Debug)]
struct Peer<W> {
    calls: BTreeMap<MessageId, Call<W>>,
    kept_bytes: usize,
    idempotent_bytes: usize,
    forgettable: Aged<MessageId>,
}

#[derive(Debug)]
struct Call<W> {
    body: BodyDigest,
    expires_at_ms: u64,
    idempotent: bool,
    facts: Facts,
    state: CallState<W>,
}

#[derive(Debug)]
enum CallState<W> {
    Executing { waiters: Waiters<W> },
    Finished { kept: Kept, by: Answerer, finished: u64 },
    Released(Tombstone<W>),
}

impl<W> Ledger<W> {
    /// An empty ledger.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            peers: BTreeMap::new(),
            calls: 0,
            kept_bytes: 0,
            idempotent_bytes: 0,
            finished: 0,
            forgettable: Aged::default(),
            expiry: Order::default(),
            forgotten_ms: None,
            #[cfg(feature = "test-hooks")]
            is_blind: false,
        }
    }

    /// Admits an invoke. Of several copies, the latest `ts + ttl` counts.
    pub fn admit(&mut self, invoke: Invoke, waiter: W) -> Admission<W> {
        self.admit_with(invoke, Facts::default(), waiter)
    }

    /// As [`Ledger::admit`], with the facts of the call if it is new.
    pub fn admit_with(&mut self, invoke: Invoke, facts: Facts, waiter: W) -> Admission<W> {
        if self.is_blind() {
            self.forget(&invoke.key);
        }
        // PROTOCOL 8: never executed twice, not even when the clock that this was measured by went back.
        let may_be_forgotten = !self.is_blind()
            && !invoke.idempotent
            && self.forgotten_ms.is_some_and(|last_ms| invoke.expires_at_ms <= last_ms);
        // Nearly always there is room, and then one look tells whether the call is known and where it goes.
        if let Some(peer) = self.peers.get_mut(&invoke.key.from) {
            let has_room = self.calls < self.limits.calls_max
                && (invoke.idempotent || self.kept_bytes < self.limits.kept_bytes_max)
                && peer.has_room(invoke.idempotent, &self.limits);
            match peer.calls.entry(invoke.key.id) {
                Entry::Occupied(call) => return call.into_mut().meet(invoke, waiter, &mut self.expiry),
                Entry::Vacant(place) if has_room && !may_be_forgotten => {
                    place.insert(Call::new(&invoke, facts, smallvec![waiter]));
                    self.calls += 1;
                    return Admission::New;
                }
                Entry::Vacant(_) => {}
            }
        }
        if may_be_forgotten {
            return Admission::Forgotten(waiter);
        }
        if let Err(bound) = self.make_room(&invoke) {
            return Admission::Full { bound, waiter };
        }
        self.insert(invoke, facts, smallvec![waiter]);
        Admission::New
    }

    /// Records a call's result, or says why it does not count. The next [`Ledger::sweep`] removes a call whose `ts +
    /// ttl` has passed.
    pub fn finish(&mut self, key: &Key, kept: Kept, by: Answerer) -> Finish<W> {
        let Some(peer) = self.peers.get_mut(&key.from) else { return Finish::Unknown };
        let Some(call) = peer.calls.get_mut(&key.id) else { return Finish::Unknown };
        let waiters = match &mut call.state {
            CallState::Finished { by: Answerer::Sidecar, .. } => return Finish::Late,
            CallState::Finished { by: Answerer::Provider, .. } => return Finish::Second,
            CallState::Released(_) => return Finish::Unknown,
            CallState::Executing { waiters } => std::mem::take(waiters),
        };
        let finished = self.finished;
        self.finished += 1;
        self.expiry.insert(call.expires_at_ms, finished, key.clone());
        let bytes = kept.len_bytes();
        call.idempotent &= matches!(kept, Kept::Held(_));
        if call.idempotent {
            peer.idempotent_bytes += bytes;
            self.idempotent_bytes += bytes;
            peer.forgettable.push(finished, key.id);
            self.forgettable.push(finished, key.clone());
        } else {
            peer.kept_bytes += bytes;
            self.kept_bytes += bytes;
        }
        call.state = CallState::Finished { kept, by, finished };
        self.keep_idempotent_budget(&key.from);
        Finish::Recorded(waiters)
    }

    /// Restores a finished call from the journal at start: no bound refuses it, but it counts. Returns `false`, without
    /// a change, if the ledger knows the call.
    pub fn restore(&mut self, invoke: Invoke, kept: Kept, by: Answerer) -> bool {
        if self.call(&invoke.key).is_some() {
            return false;
        }
        let key = invoke.key.clone();
        self.insert(invoke, Facts::default(), Waiters::new());
        matches!(self.finish(&key, kept, by), Finish::Recorded(_))
    }

    /// Withdraws an admission that ends in a refusal: the call was not executed, its ERROR is not recorded, and the
    /// same id may be retried. `None` if the call is not running.
    pub fn withdraw(&mut self, key: &Key) -> Option<Waiters<W>> {
        let call = self.peers.get_mut(&key.from)?.calls.get_mut(&key.id)?;
        let waiters = match &mut call.state {
            CallState::Finished { .. } | CallState::Released(_) => return None,
            CallState::Executing { waiters } => std::mem::take(waiters),
        };
        self.forget(key);
        Some(waiters)
    }

    /// The state of a call.
    pub fn status(&self, key: &Key) -> Status {
        self.known(key).map_or(Status::Unknown, |(status, _)| status)
    }

    /// The waiters of a running call, oldest first.
    pub fn waiters(&self, key: &Key) -> impl Iterator<Item = &W> {
        let waiters = self.call(key).and_then(|call| match &call.state {
            CallState::Executing { waiters } => Some(waiters.iter()),
            CallState::Finished { .. } | CallState::Released(_) => None,
        });
        waiters.into_iter().flatten()
    }

    /// Forgets finished calls whose `ts + ttl` has passed, at most [`LEDGER_SWEEP_MAX`] of them; returns how many.
    /// Appends the journal rows of their results to `rows`, to be dropped. While more are left,
    /// [`Ledger::poll_timeout`] is in the past.
    pub fn sweep(&mut self, now_ms: u64, rows: &mut Vec<u64>) -> usize {
        for swept in 0..LEDGER_SWEEP_MAX {
            let Some((expires_at_ms, key)) = self.expiry.first_before(now_ms) else { return swept };
            let Some(call) = self.forget(&key) else { continue };
            if !call.idempotent {
                self.forgotten_ms = self.forgotten_ms.max(Some(expires_at_ms));
            }
            match call.state {
                CallState::Finished { kept: Kept::Journaled { row, .. }, .. }
                | CallState::Released(Tombstone::Written { row, .. }) => rows.push(row),
                CallState::Finished { kept: Kept::Held(_), .. }
                | CallState::Released(Tombstone::Writing { .. })
                | CallState::Executing { .. } => {}
            }
        }
        LEDGER_SWEEP_MAX
    }

    /// When to call [`Ledger::sweep`] next. **Units:** milliseconds since the Unix epoch.
    pub fn poll_timeout(&self) -> Option<u64> {
        // PROTOCOL 8: kept until `ts + ttl`, and an invoke is still good in that very millisecond.
        self.expiry.first_ms().map(|expires_at_ms| expires_at_ms.saturating_add(1))
    }

    /// The latest `ts + ttl` of forgotten non-idempotent calls: no such call that expires by then is admitted again.
    /// **Units:** milliseconds since the Unix epoch.
    pub fn forgotten_ms(&self) -> Option<u64> {
        self.forgotten_ms
    }

    /// Restores [`Ledger::forgotten_ms`] of a former process; it never goes back.
    pub fn restore_forgotten(&mut self, forgotten_ms: u64) {
        self.forgotten_ms = self.forgotten_ms.max(Some(forgotten_ms));
    }

    /// Whether any call of a peer's is remembered.
    pub fn is_any_of(&self, from: &Did) -> bool {
        self.peers.contains_key(from)
    }

    /// Calls remembered: running, finished and released.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Bytes of the results remembered, here and in the journal.
    pub fn bytes(&self) -> usize {
        self.kept_bytes + self.idempotent_bytes
    }

    /// The part of [`Ledger::bytes`] that belongs to non-idempotent calls.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Injects a fault for tests: a blind ledger takes every id for a new one.
    #[cfg(feature = "test-hooks")]
    pub fn set_blind(&mut self, is_blind: bool) {
        self.is_blind = is_blind;
    }

    #[cfg(feature = "test-hooks")]
    const fn is_blind(&self) -> bool {
        self.is_blind
    }

    #[cfg(not(feature = "test-hooks"))]
    const fn is_blind(&self) -> bool {
        false
    }

    fn call(&self, key: &Key) -> Option<&Call<W>> {
        self.peers.get(&key.from)?.calls.get(&key.id)
    }

    fn insert(&mut self, invoke: Invoke, facts: Facts, waiters: Waiters<W>) {
        let call = Call::new(&invoke, facts, waiters);
        self.peers.entry(invoke.key.from).or_default().calls.insert(invoke.key.id, call);
        self.calls += 1;
    }

    /// Room for one more call, made by forgetting finished idempotent ones, oldest first, where that helps.
    fn make_room(&mut self, invoke: &Invoke) -> Result<(), Bound> {
        if !invoke.idempotent {
            if self.kept_bytes >= self.limits.kept_bytes_max {
                return Err(Bound::KeptBytes);
            }
            let peer_bytes = self.peers.get(&invoke.key.from).map_or(0, |peer| peer.kept_bytes);
            if peer_bytes >= self.limits.kept_bytes_per_peer_max {
                return Err(Bound::PeerKeptBytes);
            }
        }
        if let Some(peer) = self.peers.get(&invoke.key.from)
            && peer.calls.len() >= self.limits.calls_per_peer_max
        {
            let &id = peer.forgettable.first().ok_or(Bound::PeerCalls)?;
            self.forget(&Key { from: invoke.key.from.clone(), id });
        }
        if self.calls >= self.limits.calls_max {
            let key = self.forgettable.first().ok_or(Bound::Calls)?.clone();
            self.forget(&key);
        }
        Ok(())
    }

    /// PROTOCOL 8: finished idempotent results within a byte budget, oldest out first.
    fn keep_idempotent_budget(&mut self, from: &Did) {
        while let Some(peer) = self.peers.get(from)
            && peer.idempotent_bytes > self.limits.idempotent_bytes_per_peer_max
            && let Some(&id) = peer.forgettable.first()
        {
            self.forget(&Key { from: from.clone(), id });
        }
        while self.idempotent_bytes > self.limits.idempotent_bytes_max
            && let Some(key) = self.forgettable.first()
        {
            let key = key.clone();
            self.forget(&key);
        }
    }

    /// Replaces the bounds. What exceeds them is forgotten as far as it may be; everything else stays until it expires.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        while (self.calls > limits.calls_max || self.idempotent_bytes > limits.idempotent_bytes_max)
            && let Some(key) = self.forgettable.first()
        {
            let key = key.clone();
            self.forget(&key);
        }
    }

    /// Drops every trace of one call.
    fn forget(&mut self, key: &Key) -> Option<Call<W>> {
        let peer = self.peers.get_mut(&key.from)?;
        let call = peer.calls.remove(&key.id)?;
        self.calls -= 1;
        if let CallState::Released(Tombstone::Written { finished, .. }) = &call.state {
            self.expiry.remove(call.expires_at_ms, *finished);
        }
        if let CallState::Finished { kept, finished, .. } = &call.state {
            self.expiry.remove(call.expires_at_ms, *finished);
            let bytes = kept.len_bytes();
            if call.idempotent {
                peer.idempotent_bytes -= bytes;
                self.idempotent_bytes -= bytes;
                peer.forgettable.remove(*finished);
                self.forgettable.remove(*finished);
            } else {
                peer.kept_bytes -= bytes;
                self.kept_bytes -= bytes;
            }
        }
        if peer.calls.is_empty() {
            self.peers.remove(&key.from);
        }
        Some(call)
    }
}

impl<W> Call<W> {
    fn new(invoke: &Invoke, facts: Facts, waiters: Waiters<W>) -> Self {
        let Invoke { body, expires_at_ms, idempotent, .. } = *invoke;
        Self { body, expires_at_ms, idempotent, facts, state: CallState::Executing { waiters } }
    }

    const fn status(&self) -> Status {
        match self.state {
            CallState::Executing { .. } => Status::Executing,
            CallState::Finished { .. } => Status::Finished,
            CallState::Released(_) => Status::Unknown,
        }
    }

    fn meet(&mut self, invoke: Invoke, waiter: W, expiry: &mut Order) -> Admission<W> {
        // PROTOCOL 8: its caller was told that it does not run here, and may have given it to another.
        if let CallState::Released(_) = &self.state {
            return Admission::Released(waiter);
        }
        // PROTOCOL 8: the same id with a different body is 4001.
        if invoke.body != self.body {
            return Admission::Conflict(waiter);
        }
        let expires_at_ms = self.expires_at_ms.max(invoke.expires_at_ms);
        let admission = match &mut self.state {
            CallState::Executing { waiters } => {
                let displaced =
                    if waiters.len() < LEDGER_WAITERS_MAX { None } else { Some(waiters.remove(0)) };
                waiters.push(waiter);
                Admission::Attached { displaced }
            }
            CallState::Finished { kept, finished, .. } => {
                if expires_at_ms != self.expires_at_ms {
                    expiry.remove(self.expires_at_ms, *finished);
                    expiry.insert(expires_at_ms, *finished, invoke.key);
                }
                Admission::Replay { kept: kept.clone(), waiter }
            }
            CallState::Released(_) => return Admission::Released(waiter),
        };
        self.expires_at_ms = expires_at_ms;
        admission
    }
}

impl<W> Peer<W> {
    /// Whether one more call fits without another being forgotten.
    fn has_room(&self, idempotent: bool, limits: &Limits) -> bool {
        self.calls.len() < limits.calls_per_peer_max
            && (idempotent || self.kept_bytes < limits.kept_bytes_per_peer_max)
    }
}

impl<W> Default for Peer<W> {
    fn default() -> Self {
        Self { calls: BTreeMap::new(), kept_bytes: 0, idempotent_bytes: 0, forgettable: Aged::default() }
    }
}

#[cfg(test)]
mod tests;
