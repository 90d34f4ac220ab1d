//! The ledger as one would write it without a thought for cost: one list, in the order of admission.

use capd_proto::identity::Did;
use capd_proto::ledger::{
    Admission, Answerer, BodyDigest, Bound, Facts, Finish, Invoke, Kept, Key, Limits, Listed, Release, Status,
};
use capd_proto::limits::LEDGER_WAITERS_MAX;

pub(crate) struct Reference {
    pub(crate) limits: Limits,
    pub(crate) calls: Vec<Call>,
    finished: u64,
    forgotten_ms: Option<u64>,
}

#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) invoke: Invoke,
    waiters: Vec<u32>,
    /// Where the result is, who answered, and which of all results it was.
    pub(crate) result: Option<(Kept, Answerer, u64)>,
    /// Whether it is no call, but what refuses one.
    is_released: bool,
    /// The row that says so.
    pub(crate) tombstone: Option<u64>,
}

impl Reference {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, calls: Vec::new(), finished: 0, forgotten_ms: None }
    }

    fn find(&mut self, key: &Key) -> Option<&mut Call> {
        self.calls.iter_mut().find(|call| call.invoke.key == *key)
    }

    pub(crate) fn bytes(&self, idempotent: bool, from: Option<&Did>) -> usize {
        let counted = |call: &&Call| call.invoke.idempotent == idempotent && call.is_from(from);
        let results = self.calls.iter().filter(counted).filter_map(|call| call.result.as_ref());
        results.map(|(kept, ..)| kept.len_bytes()).sum()
    }

    fn push_out_oldest(&mut self, from: Option<&Did>) -> bool {
        let may_go = |call: &&Call| call.invoke.idempotent && call.is_from(from);
        let results = self.calls.iter().filter(may_go).filter_map(|call| call.result.as_ref());
        let Some(oldest) = results.map(|(.., finished)| *finished).min() else { return false };
        self.calls.retain(|call| call.result.as_ref().is_none_or(|(.., finished)| *finished != oldest));
        true
    }

    pub(crate) fn admit(&mut self, invoke: Invoke, waiter: u32) -> Admission<u32> {
        if let Some(call) = self.find(&invoke.key) {
            if call.is_released {
                return Admission::Released(waiter);
            }
            if call.invoke.body != invoke.body {
                return Admission::Conflict(waiter);
            }
            call.invoke.expires_at_ms = call.invoke.expires_at_ms.max(invoke.expires_at_ms);
            if let Some((kept, ..)) = &call.result {
                return Admission::Replay { kept: kept.clone(), waiter };
            }
            call.waiters.push(waiter);
            let over = call.waiters.len() > LEDGER_WAITERS_MAX;
            return Admission::Attached { displaced: over.then(|| call.waiters.remove(0)) };
        }
        if !invoke.idempotent && Some(invoke.expires_at_ms) <= self.forgotten_ms {
            return Admission::Forgotten(waiter);
        }
        if let Some(bound) = self.full(&invoke) {
            return Admission::Full { bound, waiter };
        }
        self.calls.push(Call::new(invoke, vec![waiter]));
        Admission::New
    }

    /// The bound that keeps a call out, once what may go has gone.
    fn full(&mut self, invoke: &Invoke) -> Option<Bound> {
        let (limits, from) = (self.limits, invoke.key.from.clone());
        if !invoke.idempotent && self.bytes(false, None) >= limits.kept_bytes_max {
            return Some(Bound::KeptBytes);
        }
        if !invoke.idempotent && self.bytes(false, Some(&from)) >= limits.kept_bytes_per_peer_max {
            return Some(Bound::PeerKeptBytes);
        }
        let of_peer = self.calls.iter().filter(|call| call.is_from(Some(&from))).count();
        if of_peer >= limits.calls_per_peer_max && !self.push_out_oldest(Some(&from)) {
            return Some(Bound::PeerCalls);
        }
        if self.calls.len() >= limits.calls_max && !self.push_out_oldest(None) {
            return Some(Bound::Calls);
        }
        None
    }

    pub(crate) fn release(&mut self, key: &Key, expires_at_ms: u64, asker: u32) -> Release<u32> {
        if let Some(call) = self.find(key) {
            if !call.is_released {
                return Release::Accepted(asker);
            }
            if call.tombstone.is_some() {
                return Release::Released(asker);
            }
            call.waiters.push(asker);
            let over = call.waiters.len() > LEDGER_WAITERS_MAX;
            return Release::Attached { displaced: over.then(|| call.waiters.remove(0)) };
        }
        if Some(expires_at_ms) <= self.forgotten_ms {
            return Release::Forgotten(asker);
        }
        let invoke = Invoke { key: key.clone(), body: BodyDigest([0; 32]), expires_at_ms, idempotent: false };
        if let Some(bound) = self.full(&invoke) {
            return Release::Full { bound, asker };
        }
        self.calls.push(Call { is_released: true, ..Call::new(invoke, vec![asker]) });
        Release::New
    }

    /// The askers for a tombstone that is on disk in this row, or is not to be.
    pub(crate) fn bury(&mut self, key: &Key, row: Option<u64>) -> Vec<u32> {
        let Some(call) = self.find(key).filter(|call| call.is_released && call.tombstone.is_none()) else {
            return Vec::new();
        };
        call.tombstone = row;
        let askers = std::mem::take(&mut call.waiters);
        if row.is_none() {
            self.calls.retain(|call| call.invoke.key != *key);
        }
        askers
    }

    pub(crate) fn restore_released(&mut self, key: &Key, row: u64, expires_at_ms: u64) -> bool {
        if self.find(key).is_some() {
            return false;
        }
        let invoke = Invoke { key: key.clone(), body: BodyDigest([0; 32]), expires_at_ms, idempotent: false };
        let call = Call { is_released: true, tombstone: Some(row), ..Call::new(invoke, Vec::new()) };
        self.calls.push(call);
        true
    }

    pub(crate) fn is_released(&self, key: &Key) -> bool {
        self.calls.iter().any(|call| call.invoke.key == *key && call.is_released)
    }

    pub(crate) fn finish(&mut self, key: &Key, kept: Kept, by: Answerer) -> Finish<u32> {
        let (finished, limits) = (self.finished, self.limits);
        let Some(call) = self.find(key).filter(|call| !call.is_released) else { return Finish::Unknown };
        match call.result {
            Some((_, Answerer::Sidecar, _)) => return Finish::Late,
            Some((_, Answerer::Provider, _)) => return Finish::Second,
            None => {}
        }
        call.invoke.idempotent &= matches!(kept, Kept::Held(_));
        call.result = Some((kept, by, finished));
        let waiters = std::mem::take(&mut call.waiters);
        self.finished += 1;
        while self.bytes(true, Some(&key.from)) > limits.idempotent_bytes_per_peer_max {
            self.push_out_oldest(Some(&key.from));
        }
        while self.bytes(true, None) > limits.idempotent_bytes_max {
            self.push_out_oldest(None);
        }
        Finish::Recorded(waiters.into())
    }

    pub(crate) fn restore(&mut self, invoke: Invoke, kept: Kept, by: Answerer) -> bool {
        if self.find(&invoke.key).is_some() {
            return false;
        }
        let key = invoke.key.clone();
        self.calls.push(Call::new(invoke, Vec::new()));
        let _ = self.finish(&key, kept, by);
        true
    }

    pub(crate) fn withdraw(&mut self, key: &Key) -> Option<Vec<u32>> {
        let runs = |call: &&mut Call| call.result.is_none() && !call.is_released;
        let waiters = self.find(key).filter(runs)?.waiters.clone();
        self.calls.retain(|call| call.invoke.key != *key);
        Some(waiters)
    }

    /// The rows of the calls forgotten, and how many calls that were.
    pub(crate) fn sweep(&mut self, now_ms: u64) -> (Vec<u64>, usize) {
        let is_over = |call: &Call| call.is_settled() && call.invoke.expires_at_ms < now_ms;
        let (over, left): (Vec<_>, Vec<_>) = self.calls.drain(..).partition(is_over);
        self.calls = left;
        let once = over.iter().filter(|call| !call.invoke.idempotent);
        self.forgotten_ms = self.forgotten_ms.max(once.map(|call| call.invoke.expires_at_ms).max());
        (over.iter().filter_map(Call::row).collect(), over.len())
    }

    pub(crate) fn status(&self, key: &Key) -> Status {
        let mut calls = self.calls.iter().filter(|call| !call.is_released);
        match calls.find(|call| call.invoke.key == *key).map(|call| call.result.is_some()) {
            None => Status::Unknown,
            Some(false) => Status::Executing,
            Some(true) => Status::Finished,
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let finished = self.calls.iter().filter(|call| call.is_settled());
        finished.map(|call| call.invoke.expires_at_ms + 1).min()
    }

    pub(crate) fn list(&self, after: Option<&Key>, from: Option<&Did>) -> Vec<Listed<'_>> {
        let listed = |call: &&Call| call.is_from(from) && !call.is_released;
        let mut calls: Vec<_> = self.calls.iter().filter(listed).collect();
        calls.sort_by_key(|call| &call.invoke.key);
        let rest = calls.into_iter().filter(|call| after.is_none_or(|after| call.invoke.key > *after));
        rest.map(Call::listed).collect()
    }
}

impl Call {
    fn new(invoke: Invoke, waiters: Vec<u32>) -> Self {
        Self { invoke, waiters, result: None, is_released: false, tombstone: None }
    }

    /// Whether it waits only for its time to pass.
    fn is_settled(&self) -> bool {
        self.result.is_some() || self.tombstone.is_some()
    }

    fn is_from(&self, from: Option<&Did>) -> bool {
        from.is_none_or(|from| self.invoke.key.from == *from)
    }

    pub(crate) fn row(&self) -> Option<u64> {
        if self.tombstone.is_some() {
            return self.tombstone;
        }
        match self.result {
            Some((Kept::Journaled { row, .. }, ..)) => Some(row),
            Some((Kept::Held(_), ..)) | None => None,
        }
    }

    fn listed(&self) -> Listed<'_> {
        Listed {
            from: &self.invoke.key.from,
            id: self.invoke.key.id,
            status: if self.result.is_some() { Status::Finished } else { Status::Executing },
            by: self.result.as_ref().map(|(_, by, _)| *by),
            idempotent: self.invoke.idempotent,
            expires_at_ms: self.invoke.expires_at_ms,
            waiters: self.waiters.len(),
            bytes: self.result.as_ref().map_or(0, |(kept, ..)| kept.len_bytes()),
            row: self.row(),
            held: match &self.result {
                Some((Kept::Held(envelope), ..)) => Some(envelope),
                Some((Kept::Journaled { .. }, ..)) | None => None,
            },
            facts: &NO_FACTS,
        }
    }
}

/// Nobody tells the ledger anything for lists here.
static NO_FACTS: Facts = Facts { capability: None, finished_at_ms: None, outcome: None, is_fetched: false };
