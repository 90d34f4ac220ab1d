//! Orders keys by deadline and yields the earliest. It holds no clock: its callers supply the times.

use std::collections::{BTreeSet, VecDeque};

/// Deadlines in order. The owner of this queue keeps the waiting keys and their deadlines.
///
/// Most deadlines arrive in order and are finished long before they pass. So they queue, and a finished one stays in
/// the queue until it reaches the front, or until most of the queue is finished.
#[derive(Debug)]
pub struct Deadlines<K> {
    /// In order, with a waiting key at the front.
    queue: VecDeque<(u64, K)>,
    /// Those that came after a later one.
    early: BTreeSet<(u64, K)>,
}

impl<K: Clone + Ord> Deadlines<K> {
    /// Adds one. A key waits for one deadline at a time.
    pub fn insert(&mut self, deadline_ms: u64, key: K) {
        if self.queue.back().is_some_and(|(last_ms, _)| deadline_ms < *last_ms) {
            self.early.insert((deadline_ms, key));
        } else {
            self.queue.push_back((deadline_ms, key));
        }
    }

    /// Removes a key that no longer waits. `waits` tells whether another key waits; `waiting` is how many do.
    pub fn remove(&mut self, deadline_ms: u64, key: &K, waiting: usize, waits: impl Fn(u64, &K) -> bool) {
        if !self.early.is_empty() {
            self.early.remove(&(deadline_ms, key.clone()));
        }
        if self.queue.len() > 2 * waiting + SPENT_FEW {
            self.queue.retain(|(deadline_ms, key)| waits(*deadline_ms, key));
        }
        self.drop_spent(waits);
        // What was full once would keep its room otherwise.
        if self.queue.capacity() / 4 > self.queue.len().max(SPENT_FEW) {
            self.queue.shrink_to(self.queue.len() * 2);
        }
    }

    /// The earliest, and its key.
    pub fn first(&self) -> Option<(u64, &K)> {
        let firsts = self.queue.front().into_iter().chain(self.early.first());
        firsts.min_by_key(|(deadline_ms, _)| *deadline_ms).map(|(deadline_ms, key)| (*deadline_ms, key))
    }

    /// Takes the earliest, if it is not after `now_ms`; its key then waits no more. For `waits` see
    /// [`Deadlines::remove`].
    pub fn take_due(&mut self, now_ms: u64, waits: impl Fn(u64, &K) -> bool) -> Option<K> {
        let (first_ms, _) = self.first()?;
        if first_ms > now_ms {
            return None;
        }
        if self.early.first().is_some_and(|(early_ms, _)| *early_ms == first_ms) {
            return self.early.pop_first().map(|(_, key)| key);
        }
        let due = self.queue.pop_front().map(|(_, key)| key);
        self.drop_spent(waits);
        due
    }

    /// The waiting keys, in the order of their deadlines.
    pub fn keys(&self, waits: impl Fn(u64, &K) -> bool) -> Vec<K> {
        let queued = self.queue.iter().filter(|(deadline_ms, key)| waits(*deadline_ms, key));
        let mut all: Vec<_> = queued.chain(&self.early).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, key)| key.clone()).collect()
    }

    fn drop_spent(&mut self, waits: impl Fn(u64, &K) -> bool) {
        while self.queue.front().is_some_and(|(deadline_ms, key)| !waits(*deadline_ms, key)) {
            self.queue.pop_front();
        }
    }
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), early: BTreeSet::new() }
    }
}

/// So many that no longer wait may stay in the queue, however few others do.
const SPENT_FEW: usize = 64;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::collections::btree_map::Entry;

    use proptest::prelude::*;

    use super::*;

    /// What may happen to one of a few keys.
    #[derive(Clone, Debug)]
    enum Event {
        Insert(u8, u64),
        Remove(u8),
        TakeDue(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..12_u8, 0..8_u64).prop_map(|(key, at_ms)| Event::Insert(key, at_ms)),
            4 => (0..12_u8).prop_map(Event::Remove),
            1 => (0..8_u64).prop_map(Event::TakeDue),
        ]
    }

    proptest! {
        #[test]
        fn they_are_those_of_a_sorted_set(events in prop::collection::vec(event(), 0..400)) {
            let mut deadlines = Deadlines::default();
            let mut waiting: BTreeMap<u8, u64> = BTreeMap::new();
            for event in events {
                match event {
                    Event::Insert(key, at_ms) => {
                        if let Entry::Vacant(place) = waiting.entry(key) {
                            place.insert(at_ms);
                            deadlines.insert(at_ms, key);
                        }
                    }
                    Event::Remove(key) => {
                        if let Some(at_ms) = waiting.remove(&key) {
                            let waits = |at_ms, key: &u8| waiting.get(key) == Some(&at_ms);
                            deadlines.remove(at_ms, &key, waiting.len(), waits);
                        }
                    }
                    Event::TakeDue(now_ms) => {
                        let mut last_ms = 0;
                        while let Some(key) = deadlines.take_due(now_ms, |at_ms, key| waiting.get(key) == Some(&at_ms)) {
                            // It may have come twice: removed, and inserted again with the same deadline.
                            let Some(at_ms) = waiting.remove(&key) else { continue };
                            prop_assert!(last_ms <= at_ms && at_ms <= now_ms);
                            last_ms = at_ms;
                        }
                        prop_assert!(waiting.values().all(|at_ms| now_ms < *at_ms));
                    }
                }
                let mut sorted: Vec<_> = waiting.iter().map(|(key, at_ms)| (*at_ms, *key)).collect();
                sorted.sort_unstable();
                prop_assert_eq!(deadlines.first().map(|(at_ms, _)| at_ms), sorted.first().map(|(at_ms, _)| *at_ms));
                let mut keys = deadlines.keys(|at_ms, key| waiting.get(key) == Some(&at_ms));
                keys.dedup();
                prop_assert_eq!(keys, sorted.into_iter().map(|(_, key)| key).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn what_no_longer_waits_takes_no_room_for_long() {
        // Others each time, and the same one again and again.
        for modulus in [10_000, 1] {
            let mut deadlines = Deadlines::default();
            deadlines.insert(0, 0);
            for number in 0..10_000_u32 {
                let key = 1 + number % modulus;
                deadlines.insert(1, key);
                deadlines.remove(1, &key, 1, |_, key| *key == 0);
                assert!(deadlines.queue.len() <= SPENT_FEW + 4);
            }
            assert_eq!(deadlines.first(), Some((0, &0)));
        }
    }

    #[test]
    fn room_that_many_took_is_given_back() {
        let mut deadlines = Deadlines::default();
        (0..10_000_u32).for_each(|key| deadlines.insert(u64::from(key), key));
        (0..10_000_u32).for_each(|key| {
            deadlines.remove(u64::from(key), &key, 9_999 - key as usize, |_, other| *other > key);
        });
        assert!(deadlines.queue.capacity() <= 4 * SPENT_FEW + 3, "{}", deadlines.queue.capacity());
    }
}
