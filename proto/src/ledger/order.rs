//! Finds the finished call that may be forgotten first.

use std::collections::BTreeMap;

use super::Key;

/// Finished calls by `ts + ttl`, then by age.
#[derive(Debug, Default)]
pub(super) struct Order(BTreeMap<(u64, u64), Key>);

impl Order {
    pub(super) fn insert(&mut self, expires_at_ms: u64, finished: u64, key: Key) {
        self.0.insert((expires_at_ms, finished), key);
    }

    pub(super) fn remove(&mut self, expires_at_ms: u64, finished: u64) {
        self.0.remove(&(expires_at_ms, finished));
    }

    pub(super) fn first_ms(&self) -> Option<u64> {
        self.0.first_key_value().map(|(&(expires_at_ms, _), _)| expires_at_ms)
    }

    /// The first call and its time, if that passed before `now_ms`.
    pub(super) fn first_before(&self, now_ms: u64) -> Option<(u64, Key)> {
        let (&(expires_at_ms, _), key) = self.0.first_key_value()?;
        (expires_at_ms < now_ms).then(|| (expires_at_ms, key.clone()))
    }
}
