//! Counts shares of a bounded resource: a claim counts until it is dropped; beyond the limit there is none.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// How many claims each key has. Keys without one are not remembered, so the table is as large as its claims are many.
#[derive(Debug)]
pub(super) struct Tally<K> {
    counts: Mutex<BTreeMap<K, usize>>,
}

impl<K: Ord + Clone> Tally<K> {
    /// An empty table.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { counts: Mutex::default() })
    }

    /// One claim more of `key`'s; `None` when it has the `each_max` that it may have.
    pub(super) fn claim(self: &Arc<Self>, key: K, each_max: usize) -> Option<Claim<K>> {
        let mut counts = self.counts();
        let count = counts.get(&key).copied().unwrap_or(0);
        if count >= each_max {
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

/// How much of a resource is in use.
#[derive(Debug, Default)]
pub(super) struct Room {
    used: AtomicUsize,
    /// Wakes those who wait for less to be in use.
    freed: Notify,
}

impl Room {
    /// One more; `None` when there are `all_max` already.
    pub(super) fn take(self: &Arc<Self>, all_max: usize) -> Option<Held> {
        let more = |used| (used < all_max).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| Held(Arc::clone(self)))
    }

    /// How many are in use.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Waits until fewer than `all_max` are in use.
    pub(super) async fn below(&self, all_max: usize) {
        loop {
            let mut freed = pin!(self.freed.notified());
            // One that goes between the look and the wait must wake us.
            freed.as_mut().enable();
            if self.used() < all_max {
                return;
            }
            freed.await;
        }
    }
}

/// One in use, until it is dropped.
#[derive(Debug)]
pub(super) struct Held(Arc<Room>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_room_of_its_own_and_leaves_nothing_behind() {
        let tally = Tally::new();
        let first = [tally.claim(1, 2), tally.claim(1, 2), tally.claim(2, 2)];
        assert!(first.iter().all(Option::is_some));
        assert!(tally.claim(1, 2).is_none());
        assert_eq!(tally.highest(), 2);
        let [one, another, other] = first;
        drop(one);
        assert!(tally.claim(1, 2).is_some());
        drop((another, other));
        assert_eq!(tally.highest(), 0);
        assert!(tally.counts().is_empty());
    }

    #[test]
    fn a_key_that_may_have_none_is_not_remembered() {
        let tally = Tally::new();
        assert!(tally.claim(1, 0).is_none());
        assert!(tally.counts().is_empty());
    }

    #[tokio::test]
    async fn a_bound_that_shrinks_lets_nobody_more_in_until_enough_have_left() {
        let room = Arc::new(Room::default());
        let held: Vec<_> = (0..4).filter_map(|_| room.take(3)).collect();
        assert_eq!((held.len(), room.used()), (3, 3));
        assert!(room.take(2).is_none());
        let waiting = tokio::spawn({
            let room = Arc::clone(&room);
            async move { room.below(2).await }
        });
        tokio::task::yield_now().await;
        let mut held = held.into_iter();
        drop(held.next());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished() && room.take(2).is_none());
        drop(held.next());
        waiting.await.unwrap();
        assert!(room.take(2).is_some());
    }
}
