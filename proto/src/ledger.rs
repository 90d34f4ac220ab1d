//! Invokes and their results in, a verdict on each out: which call is new, which runs, which was answered (PROTOCOL 8).
//!
//! The ledger is the executor side's memory of (`from`, `id`). It holds every call from its admission until its
//! `ts + ttl`, with the result's bytes once there are any, so that the same invoke is never run twice and its result
//! never changes. It does no I/O and sends nothing: whoever asks gets told what to do.
//!
//! ```text
//!            admit                 finish                  ts + ttl passed, or, if idempotent, no room
//! (unknown) ───────► Executing ─────────────► Finished ───────────────────────────────────────────────► (unknown)
//!     ▲                 │  ▲ │ admit: Attached    ▲ │ admit: Replay; finish: Late or Second
//!     └──── withdraw ───┘  └─┘                    └─┘
//! ```
//!
//! An id that meets another body than its first is a [`Admission::Conflict`] in either state.

mod order;
mod verdict;

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;

use crate::envelope::MessageId;
use crate::identity::Did;
use crate::limits::{
    LEDGER_CALLS_DEFAULT, LEDGER_CALLS_PER_PEER_DEFAULT, LEDGER_IDEMPOTENT_BYTES_DEFAULT,
    LEDGER_IDEMPOTENT_BYTES_PER_PEER_DEFAULT, LEDGER_KEPT_BYTES_DEFAULT, LEDGER_KEPT_BYTES_PER_PEER_DEFAULT,
    LEDGER_SWEEP_MAX, LEDGER_WAITERS_MAX,
};

use order::Order;

pub use verdict::{Admission, Answerer, Bound, Finish, Status};

/// The name of a call: who made it, and its invoke's id. **Source:** PROTOCOL 8.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The invoke's `from`.
    pub from: Did,
    /// The invoke's `id`.
    pub id: MessageId,
}

/// What tells one invoke body from another: its SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BodyDigest(pub [u8; 32]);

/// An invoke that passed every check before capacity.
#[derive(Clone, Debug)]
pub struct Invoke {
    /// The call's name.
    pub key: Key,
    /// The digest of its body.
    pub body: BodyDigest,
    /// Its `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
    /// Whether the capability is declared `idempotent: true`.
    pub idempotent: bool,
}

/// How much the ledger may hold. **Units:** calls and bytes, as the names say.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Calls in all.
    pub calls_max: usize,
    /// Calls of one `from`.
    pub calls_per_peer_max: usize,
    /// Results of calls that are not idempotent, in all: past it, such calls are refused. Those already running may
    /// still go over it, each by its result.
    pub kept_bytes_max: usize,
    /// The same, of one `from`.
    pub kept_bytes_per_peer_max: usize,
    /// Results of idempotent calls, in all: past it, the oldest are forgotten.
    pub idempotent_bytes_max: usize,
    /// The same, of one `from`.
    pub idempotent_bytes_per_peer_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls_max: LEDGER_CALLS_DEFAULT,
            calls_per_peer_max: LEDGER_CALLS_PER_PEER_DEFAULT,
            kept_bytes_max: LEDGER_KEPT_BYTES_DEFAULT,
            kept_bytes_per_peer_max: LEDGER_KEPT_BYTES_PER_PEER_DEFAULT,
            idempotent_bytes_max: LEDGER_IDEMPOTENT_BYTES_DEFAULT,
            idempotent_bytes_per_peer_max: LEDGER_IDEMPOTENT_BYTES_PER_PEER_DEFAULT,
        }
    }
}

/// The memory of calls; `W` is whatever the daemon needs to send a result back.
#[derive(Debug)]
pub struct Ledger<W> {
    limits: Limits,
    peers: HashMap<Did, Peer<W>>,
    calls: usize,
    kept_bytes: usize,
    idempotent_bytes: usize,
    /// Grows with each finished call; the smaller, the older.
    finished: u64,
    /// Finished idempotent calls, oldest first.
    forgettable: BTreeMap<u64, Key>,
    /// Finished calls by the time they may be forgotten.
    expiry: Order,
}

#[derive(Debug)]
struct Peer<W> {
    calls: HashMap<MessageId, Call<W>>,
    kept_bytes: usize,
    idempotent_bytes: usize,
    forgettable: BTreeMap<u64, MessageId>,
}

#[derive(Debug)]
struct Call<W> {
    body: BodyDigest,
    expires_at_ms: u64,
    idempotent: bool,
    state: CallState<W>,
}

#[derive(Debug)]
enum CallState<W> {
    Executing { waiters: VecDeque<W> },
    Finished { result: Bytes, by: Answerer, finished: u64 },
}

impl<W> Ledger<W> {
    /// An empty ledger.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            peers: HashMap::new(),
            calls: 0,
            kept_bytes: 0,
            idempotent_bytes: 0,
            finished: 0,
            forgettable: BTreeMap::new(),
            expiry: Order::default(),
        }
    }

    /// Meets an invoke. Of several copies of one, the longest `ts + ttl` counts.
    pub fn admit(&mut self, invoke: Invoke, waiter: W) -> Admission<W> {
        let known = self.peers.get_mut(&invoke.key.from).and_then(|peer| peer.calls.get_mut(&invoke.key.id));
        if let Some(call) = known {
            return call.meet(invoke, waiter, &mut self.expiry);
        }
        if let Err(bound) = self.make_room(&invoke) {
            return Admission::Full { bound, waiter };
        }
        let Invoke { key, body, expires_at_ms, idempotent } = invoke;
        let state = CallState::Executing { waiters: VecDeque::from([waiter]) };
        let call = Call { body, expires_at_ms, idempotent, state };
        self.peers.entry(key.from).or_default().calls.insert(key.id, call);
        self.calls += 1;
        Admission::New
    }

    /// Records a call's result, or says why it is none. A call whose `ts + ttl` has passed is forgotten at once.
    pub fn finish(&mut self, key: &Key, result: Bytes, by: Answerer, now_ms: u64) -> Finish<W> {
        let Some(peer) = self.peers.get_mut(&key.from) else { return Finish::Unknown };
        let Some(call) = peer.calls.get_mut(&key.id) else { return Finish::Unknown };
        let waiters = match &mut call.state {
            CallState::Finished { by: Answerer::Sidecar, .. } => return Finish::Late,
            CallState::Finished { by: Answerer::Provider, .. } => return Finish::Second,
            CallState::Executing { waiters } => std::mem::take(waiters).into(),
        };
        let finished = self.finished;
        self.finished += 1;
        self.expiry.insert(call.expires_at_ms, finished, key.clone());
        if call.idempotent {
            peer.idempotent_bytes += result.len();
            self.idempotent_bytes += result.len();
            peer.forgettable.insert(finished, key.id);
            self.forgettable.insert(finished, key.clone());
        } else {
            peer.kept_bytes += result.len();
            self.kept_bytes += result.len();
        }
        let expired = call.expires_at_ms < now_ms;
        call.state = CallState::Finished { result, by, finished };
        if expired {
            self.forget(key);
        } else {
            self.keep_idempotent_budget(&key.from);
        }
        Finish::Recorded(waiters)
    }

    /// Takes back an admission that ends in a refusal: the call was not executed, its ERROR is not recorded, and the
    /// same id may be tried again. `None` when the call is not running.
    pub fn withdraw(&mut self, key: &Key) -> Option<Vec<W>> {
        let call = self.peers.get_mut(&key.from)?.calls.get_mut(&key.id)?;
        let waiters = match &mut call.state {
            CallState::Finished { .. } => return None,
            CallState::Executing { waiters } => std::mem::take(waiters).into(),
        };
        self.forget(key);
        Some(waiters)
    }

    /// Where a call stands.
    pub fn status(&self, key: &Key) -> Status {
        match self.peers.get(&key.from).and_then(|peer| peer.calls.get(&key.id)).map(|call| &call.state) {
            None => Status::Unknown,
            Some(CallState::Executing { .. }) => Status::Executing,
            Some(CallState::Finished { .. }) => Status::Finished,
        }
    }

    /// Those who wait for a running call's result, oldest first.
    pub fn waiters(&self, key: &Key) -> impl Iterator<Item = &W> {
        let call = self.peers.get(&key.from).and_then(|peer| peer.calls.get(&key.id));
        let waiters = call.and_then(|call| match &call.state {
            CallState::Executing { waiters } => Some(waiters.iter()),
            CallState::Finished { .. } => None,
        });
        waiters.into_iter().flatten()
    }

    /// Forgets finished calls whose `ts + ttl` has passed, at most [`LEDGER_SWEEP_MAX`] of them; returns how many.
    /// While there are more, [`Ledger::poll_timeout`] names a time already past.
    pub fn sweep(&mut self, now_ms: u64) -> usize {
        for swept in 0..LEDGER_SWEEP_MAX {
            let Some(key) = self.expiry.first_before(now_ms) else { return swept };
            self.forget(&key);
        }
        LEDGER_SWEEP_MAX
    }

    /// When to come back with [`Ledger::sweep`]. **Units:** milliseconds since the Unix epoch.
    pub fn poll_timeout(&self) -> Option<u64> {
        // PROTOCOL 8: kept until `ts + ttl`, and an invoke is still good in that very millisecond.
        self.expiry.first_ms().map(|expires_at_ms| expires_at_ms.saturating_add(1))
    }

    /// Calls remembered, running and finished.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Bytes of the results remembered.
    pub fn bytes(&self) -> usize {
        self.kept_bytes + self.idempotent_bytes
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
            let (_, &id) = peer.forgettable.first_key_value().ok_or(Bound::PeerCalls)?;
            self.forget(&Key { from: invoke.key.from.clone(), id });
        }
        if self.calls >= self.limits.calls_max {
            let (_, key) = self.forgettable.first_key_value().ok_or(Bound::Calls)?;
            let key = key.clone();
            self.forget(&key);
        }
        Ok(())
    }

    /// PROTOCOL 8: finished idempotent results within a byte budget, oldest out first.
    fn keep_idempotent_budget(&mut self, from: &Did) {
        while let Some(peer) = self.peers.get(from)
            && peer.idempotent_bytes > self.limits.idempotent_bytes_per_peer_max
            && let Some((_, &id)) = peer.forgettable.first_key_value()
        {
            self.forget(&Key { from: from.clone(), id });
        }
        while self.idempotent_bytes > self.limits.idempotent_bytes_max
            && let Some((_, key)) = self.forgettable.first_key_value()
        {
            let key = key.clone();
            self.forget(&key);
        }
    }

    /// Drops every trace of one call.
    fn forget(&mut self, key: &Key) {
        let Some(peer) = self.peers.get_mut(&key.from) else { return };
        let Some(call) = peer.calls.remove(&key.id) else { return };
        self.calls -= 1;
        match call.state {
            CallState::Executing { .. } => {}
            CallState::Finished { result, finished, .. } => {
                self.expiry.remove(call.expires_at_ms, finished);
                if call.idempotent {
                    peer.idempotent_bytes -= result.len();
                    self.idempotent_bytes -= result.len();
                    peer.forgettable.remove(&finished);
                    self.forgettable.remove(&finished);
                } else {
                    peer.kept_bytes -= result.len();
                    self.kept_bytes -= result.len();
                }
            }
        }
        if peer.calls.is_empty() {
            self.peers.remove(&key.from);
        }
    }
}

impl<W> Call<W> {
    fn meet(&mut self, invoke: Invoke, waiter: W, expiry: &mut Order) -> Admission<W> {
        // PROTOCOL 8: the same id with a different body is 4001.
        if invoke.body != self.body {
            return Admission::Conflict(waiter);
        }
        let expires_at_ms = self.expires_at_ms.max(invoke.expires_at_ms);
        let admission = match &mut self.state {
            CallState::Executing { waiters } => {
                let displaced = if waiters.len() < LEDGER_WAITERS_MAX { None } else { waiters.pop_front() };
                waiters.push_back(waiter);
                Admission::Attached { displaced }
            }
            CallState::Finished { result, finished, .. } => {
                if expires_at_ms != self.expires_at_ms {
                    expiry.remove(self.expires_at_ms, *finished);
                    expiry.insert(expires_at_ms, *finished, invoke.key);
                }
                Admission::Replay { result: result.clone(), waiter }
            }
        };
        self.expires_at_ms = expires_at_ms;
        admission
    }
}

impl<W> Default for Peer<W> {
    fn default() -> Self {
        Self { calls: HashMap::new(), kept_bytes: 0, idempotent_bytes: 0, forgettable: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests;
