//! Matches answers to requests by `reply_to`: the only place where an answer finds its waiter.

use std::collections::hash_map::Entry;

use ahash::HashMap;
use capd_proto::envelope::MessageId;

use super::deadlines::Deadlines;

/// Requests that await an answer, each with a deadline; bounded by entries.
///
/// The sidecar's two sides and the client library all match answers here. It holds no clock: deadlines are numbers
/// that the caller's clock made, in milliseconds.
#[derive(Debug)]
pub struct Pending<T> {
    entries: Entries<T>,
    deadlines: Deadlines<MessageId>,
    entries_max: usize,
}

impl<T> Pending<T> {
    /// An empty table for at most `entries_max` requests.
    pub fn new(entries_max: usize) -> Self {
        Self { entries: HashMap::default(), deadlines: Deadlines::default(), entries_max }
    }

    /// Remembers a request until its answer or `deadline_ms`.
    ///
    /// **Errors:** returns the value if the table is full or the id already waits.
    pub fn insert(&mut self, id: MessageId, deadline_ms: u64, waiting: T) -> Result<(), T> {
        if self.entries.len() >= self.entries_max {
            return Err(waiting);
        }
        let Entry::Vacant(place) = self.entries.entry(id) else { return Err(waiting) };
        place.insert((deadline_ms, waiting));
        self.deadlines.insert(deadline_ms, id);
        Ok(())
    }

    /// The request that waits for the answer to `id`.
    pub fn peek(&mut self, id: &MessageId) -> Option<&mut T> {
        self.entries.get_mut(id).map(|(_, waiting)| waiting)
    }

    /// Removes and returns the request that waits for the answer to `id`.
    pub fn take(&mut self, id: &MessageId) -> Option<T> {
        self.take_if(id, |_| true)
    }

    /// As [`Pending::take`], if `belongs` holds for it.
    pub fn take_if(&mut self, id: &MessageId, belongs: impl FnOnce(&T) -> bool) -> Option<T> {
        let Entry::Occupied(found) = self.entries.entry(*id) else { return None };
        if !belongs(&found.get().1) {
            return None;
        }
        let (deadline_ms, waiting) = found.remove();
        let waits =
            |at_ms, id: &MessageId| self.entries.get(id).is_some_and(|(found_ms, _)| *found_ms == at_ms);
        self.deadlines.remove(deadline_ms, id, self.entries.len(), waits);
        Some(waiting)
    }

    /// Removes one request whose deadline is not after `now_ms`; call until it returns `None`.
    pub fn take_expired(&mut self, now_ms: u64) -> Option<(MessageId, T)> {
        let (deadline_ms, &id) = self.deadlines.first()?;
        if deadline_ms > now_ms {
            return None;
        }
        self.take(&id).map(|waiting| (id, waiting))
    }

    /// The earliest deadline, in the caller's milliseconds.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ms, _)| deadline_ms)
    }

    /// Removes every request for which `belongs` holds, in the order of their deadlines.
    pub fn take_where(&mut self, mut belongs: impl FnMut(&T) -> bool) -> Vec<(MessageId, T)> {
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .map(|(id, (deadline_ms, waiting))| (*deadline_ms, *id, belongs(waiting)))
            .collect();
        entries.sort_unstable();
        let ids = entries.into_iter().filter(|(_, _, belongs)| *belongs).map(|(_, id, _)| id);
        ids.filter_map(|id| self.take(&id).map(|waiting| (id, waiting))).collect()
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

type Entries<T> = HashMap<MessageId, (u64, T)>;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn id(number: u8) -> MessageId {
        MessageId([number; 16])
    }

    /// What may happen to one of a few requests.
    #[derive(Clone, Debug)]
    enum Event {
        Insert(u8, u64),
        Take(u8),
        Expire(u64),
        Lose(u8),
    }

    fn event() -> impl Strategy<Value = Event> {
        let (number, deadline_ms) = (0..12_u8, 0..8_u64);
        prop_oneof![
            4 => (number.clone(), deadline_ms.clone()).prop_map(|(number, at)| Event::Insert(number, at)),
            4 => number.clone().prop_map(Event::Take),
            1 => deadline_ms.prop_map(Event::Expire),
            1 => (1..12_u8).prop_map(Event::Lose),
        ]
    }

    proptest! {
        #[test]
        fn deadlines_are_those_of_what_waits(events in prop::collection::vec(event(), 0..400)) {
            let mut pending = Pending::new(10);
            let mut model: BTreeSet<(u64, u8)> = BTreeSet::new();
            for event in events {
                match event {
                    Event::Insert(number, at) => {
                        let fits = model.len() < 10 && model.iter().all(|(_, other)| *other != number);
                        prop_assert_eq!(pending.insert(id(number), at, number).is_ok(), fits);
                        if fits {
                            model.insert((at, number));
                        }
                    }
                    Event::Take(number) => {
                        let taken = pending.take(&id(number));
                        let known = model.iter().find(|(_, other)| *other == number).copied();
                        prop_assert_eq!(taken, known.map(|(_, other)| other));
                        known.iter().for_each(|known| { model.remove(known); });
                    }
                    Event::Expire(now_ms) => {
                        let mut last_ms = 0;
                        while let Some((_, number)) = pending.take_expired(now_ms) {
                            let known = model.iter().find(|(_, other)| *other == number).copied();
                            let (at_ms, _) = known.expect("what expires has waited");
                            prop_assert!(last_ms <= at_ms && at_ms <= now_ms);
                            model.remove(&(at_ms, number));
                            last_ms = at_ms;
                        }
                        prop_assert!(model.first().is_none_or(|(at_ms, _)| now_ms < *at_ms));
                    }
                    Event::Lose(part) => {
                        let lost = pending.take_where(|number| number % part == 0);
                        let lost: Vec<_> = lost.into_iter().map(|(_, number)| number).collect();
                        let known = model.iter().filter(|(_, number)| number % part == 0);
                        prop_assert_eq!(lost, known.map(|(_, number)| *number).collect::<Vec<_>>());
                        model.retain(|(_, number)| number % part != 0);
                    }
                }
                prop_assert_eq!(pending.len(), model.len());
                prop_assert_eq!(pending.next_deadline_ms(), model.first().map(|(at_ms, _)| *at_ms));
            }
        }
    }

    #[test]
    fn an_answer_finds_its_request_once() {
        let mut pending = Pending::new(8);
        pending.insert(id(1), 10, "a").unwrap();
        assert_eq!(pending.take_if(&id(1), |waiting| *waiting == "b"), None);
        assert_eq!(pending.next_deadline_ms(), Some(10));
        assert_eq!(pending.take_if(&id(1), |waiting| *waiting == "a"), Some("a"));
        assert_eq!(pending.take(&id(1)), None);
        assert_eq!(pending.next_deadline_ms(), None);
    }

    #[test]
    fn a_full_table_and_a_known_id_give_the_request_back() {
        let mut pending = Pending::new(2);
        pending.insert(id(1), 10, "a").unwrap();
        assert_eq!(pending.insert(id(1), 10, "b"), Err("b"));
        pending.insert(id(2), 10, "c").unwrap();
        assert_eq!(pending.insert(id(3), 10, "d"), Err("d"));
        assert_eq!(pending.len(), 2);
    }

    #[test]
    fn requests_expire_in_the_order_of_their_deadlines() {
        let mut pending = Pending::new(8);
        for (number, deadline_ms) in [(1, 30), (2, 10), (3, 20)] {
            pending.insert(id(number), deadline_ms, number).unwrap();
        }
        assert_eq!(pending.next_deadline_ms(), Some(10));
        assert_eq!(pending.take_expired(9), None);
        assert_eq!(pending.take_expired(20), Some((id(2), 2)));
        assert_eq!(pending.take_expired(20), Some((id(3), 3)));
        assert_eq!(pending.take_expired(20), None);
        assert_eq!(pending.take_where(|number| *number == 1), vec![(id(1), 1)]);
        assert!(pending.is_empty());
    }
}
