//! Releases calls that were not accepted: a tombstone in their place refuses every later copy, so that another executor
//! may have them (PROTOCOL 8).

use smallvec::smallvec;

use crate::limits::LEDGER_WAITERS_MAX;

use super::{BodyDigest, Call, CallState, Facts, Invoke, Key, Ledger, Release, Waiters};

/// A released call's place in the ledger.
#[derive(Debug)]
pub(super) enum Tombstone<W> {
    /// Its row is being written; these wait for that.
    Writing { askers: Waiters<W> },
    /// It is durable. The number is its place among those that may be forgotten.
    Written { row: u64, finished: u64 },
}

impl<W> Ledger<W> {
    /// Releases a call that is unknown, until `expires_at_ms`, its `ts + ttl`. From here on [`Ledger::admit`] refuses it;
    /// the asker is told so once the tombstone is durable, by [`Ledger::released`].
    ///
    /// **Units:** milliseconds since the Unix epoch.
    pub fn release(&mut self, key: &Key, expires_at_ms: u64, asker: W) -> Release<W> {
        if let Some(peer) = self.peers.get_mut(&key.from)
            && let Some(call) = peer.calls.get_mut(&key.id)
        {
            return call.ask_release(asker);
        }
        // It may be one of those that were accepted and forgotten.
        if self.forgotten_ms.is_some_and(|last_ms| expires_at_ms <= last_ms) {
            return Release::Forgotten(asker);
        }
        let invoke = Invoke { key: key.clone(), body: BodyDigest([0; 32]), expires_at_ms, idempotent: false };
        if let Err(bound) = self.make_room(&invoke) {
            return Release::Full { bound, asker };
        }
        self.insert(invoke, Facts::default(), Waiters::new());
        self.set_state(key, CallState::Released(Tombstone::Writing { askers: smallvec![asker] }));
        Release::New
    }

    /// A tombstone is durable in this row of the journal: these asked for it, oldest first.
    pub fn released(&mut self, key: &Key, row: u64) -> Waiters<W> {
        let Some(call) = self.peers.get_mut(&key.from).and_then(|peer| peer.calls.get_mut(&key.id)) else {
            return Waiters::new();
        };
        let CallState::Released(tombstone) = &mut call.state else { return Waiters::new() };
        // A tombstone that is durable keeps its row and its place among those that may be forgotten.
        let Tombstone::Writing { askers } = tombstone else { return Waiters::new() };
        let (askers, finished) = (std::mem::take(askers), self.finished);
        *tombstone = Tombstone::Written { row, finished };
        self.finished += 1;
        self.expiry.insert(call.expires_at_ms, finished, key.clone());
        askers
    }

    /// A tombstone could not be written, and is none: these asked for it, oldest first.
    pub fn unreleased(&mut self, key: &Key) -> Waiters<W> {
        let call = self.peers.get_mut(&key.from).and_then(|peer| peer.calls.get_mut(&key.id));
        let askers = match call.map(|call| &mut call.state) {
            Some(CallState::Released(Tombstone::Writing { askers })) => std::mem::take(askers),
            Some(CallState::Released(Tombstone::Written { .. })) => return Waiters::new(),
            Some(CallState::Executing { .. } | CallState::Finished { .. }) | None => return Waiters::new(),
        };
        self.forget(key);
        askers
    }

    /// Restores a tombstone from the journal at start. Returns `false`, without a change, if the ledger knows the call.
    pub fn restore_released(&mut self, key: &Key, row: u64, expires_at_ms: u64) -> bool {
        if self.call(key).is_some() {
            return false;
        }
        let invoke = Invoke { key: key.clone(), body: BodyDigest([0; 32]), expires_at_ms, idempotent: false };
        self.insert(invoke, Facts::default(), Waiters::new());
        self.set_state(key, CallState::Released(Tombstone::Writing { askers: Waiters::new() }));
        self.released(key, row).is_empty()
    }

    /// Whether a call was released, durably or not yet.
    pub fn is_released(&self, key: &Key) -> bool {
        self.call(key).is_some_and(|call| matches!(call.state, CallState::Released(_)))
    }

    /// Whether a call was released, and that is durable: no crash brings it back.
    pub fn is_released_for_good(&self, key: &Key) -> bool {
        let written = |call: &Call<W>| matches!(call.state, CallState::Released(Tombstone::Written { .. }));
        self.call(key).is_some_and(written)
    }

    fn set_state(&mut self, key: &Key, state: CallState<W>) {
        if let Some(call) = self.peers.get_mut(&key.from).and_then(|peer| peer.calls.get_mut(&key.id)) {
            call.state = state;
        }
    }
}

impl<W> Call<W> {
    fn ask_release(&mut self, asker: W) -> Release<W> {
        match &mut self.state {
            CallState::Executing { .. } | CallState::Finished { .. } => Release::Accepted(asker),
            CallState::Released(Tombstone::Writing { askers }) => {
                let displaced = if askers.len() < LEDGER_WAITERS_MAX { None } else { Some(askers.remove(0)) };
                askers.push(asker);
                Release::Attached { displaced }
            }
            CallState::Released(Tombstone::Written { .. }) => Release::Released(asker),
        }
    }
}
