//! Whoever takes part of something in; a claim that counts until it is dropped, or none when there are too many, out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many claims each key has. Keys without one are not remembered, so the table is as large as its claims are many.
#[derive(Debug)]
pub(super) struct Tally<K> {
    counts: Mutex<BTreeMap<K, usize>>,
    each_max: usize,
}

impl<K: Ord + Clone> Tally<K> {
    /// An empty table in which each key has at most `each_max` claims.
    pub(super) fn new(each_max: usize) -> Arc<Self> {
        Arc::new(Self { counts: Mutex::default(), each_max })
    }

    /// One claim more of `key`'s; `None` when it has all that it may have.
    pub(super) fn claim(self: &Arc<Self>, key: K) -> Option<Claim<K>> {
        let mut counts = self.counts();
        let count = counts.get(&key).copied().unwrap_or(0);
        if count >= self.each_max {
            return None;
        }
        counts.insert(key.clone(), count + 1);
        drop(counts);
        Some(Claim { tally: Arc::clone(self), key })
    }

    /// The claims of the key that has most.
    pub(super) fn highest(&self) -> usize {
        self.counts().values().copied().max().unwrap_or(0)
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<K, usize>> {
        // A count is changed in one step, so a panic leaves none half changed.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of a key's claims, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim<K: Ord + Clone> {
    tally: Arc<Tally<K>>,
    key: K,
}

impl<K: Ord + Clone> Drop for Claim<K> {
    fn drop(&mut self) {
        let mut counts = self.tally.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_room_of_its_own_and_leaves_nothing_behind() {
        let tally = Tally::new(2);
        let first = [tally.claim(1), tally.claim(1), tally.claim(2)];
        assert!(first.iter().all(Option::is_some));
        assert!(tally.claim(1).is_none());
        assert_eq!(tally.highest(), 2);
        let [one, another, other] = first;
        drop(one);
        assert!(tally.claim(1).is_some());
        drop((another, other));
        assert_eq!(tally.highest(), 0);
        assert!(tally.counts().is_empty());
    }

    #[test]
    fn a_key_that_may_have_none_is_not_remembered() {
        let tally = Tally::new(0);
        assert!(tally.claim(1).is_none());
        assert!(tally.counts().is_empty());
    }
}
