//! Requests out, their answers back in by `reply_to`: the one place where answers find what waits for them.

use std::collections::BTreeSet;
use std::collections::hash_map::Entry;

use ahash::HashMap;
use capd_proto::envelope::MessageId;

/// Requests that await an answer, each with a deadline; bounded by entries.
///
/// The sidecar's two sides and the client library all match answers here. It holds no clock: deadlines are numbers
/// that the caller's clock made, in milliseconds.
#[derive(Debug)]
pub struct Pending<T> {
    entries: HashMap<MessageId, (u64, T)>,
    deadlines: BTreeSet<(u64, MessageId)>,
    entries_max: usize,
}

impl<T> Pending<T> {
    /// An empty table that takes at most `entries_max` requests.
    pub fn new(entries_max: usize) -> Self {
        Self { entries: HashMap::default(), deadlines: BTreeSet::new(), entries_max }
    }

    /// Remembers a request until its answer or `deadline_ms`.
    ///
    /// **Errors:** gives the value back when the table is full or the id already waits.
    pub fn insert(&mut self, id: MessageId, deadline_ms: u64, waiting: T) -> Result<(), T> {
        if self.entries.len() >= self.entries_max {
            return Err(waiting);
        }
        let Entry::Vacant(place) = self.entries.entry(id) else { return Err(waiting) };
        place.insert((deadline_ms, waiting));
        self.deadlines.insert((deadline_ms, id));
        Ok(())
    }

    /// What waits for the answer to `id`.
    pub fn peek(&mut self, id: &MessageId) -> Option<&mut T> {
        self.entries.get_mut(id).map(|(_, waiting)| waiting)
    }

    /// Takes out what waits for the answer to `id`.
    pub fn take(&mut self, id: &MessageId) -> Option<T> {
        self.take_if(id, |_| true)
    }

    /// The same, if `belongs` holds for it.
    pub fn take_if(&mut self, id: &MessageId, belongs: impl FnOnce(&T) -> bool) -> Option<T> {
        let Entry::Occupied(found) = self.entries.entry(*id) else { return None };
        if !belongs(&found.get().1) {
            return None;
        }
        let (deadline_ms, waiting) = found.remove();
        self.deadlines.remove(&(deadline_ms, *id));
        Some(waiting)
    }

    /// Takes out one request whose deadline is not after `now_ms`; call until it gives none.
    pub fn take_expired(&mut self, now_ms: u64) -> Option<(MessageId, T)> {
        let &(deadline_ms, id) = self.deadlines.first()?;
        if deadline_ms > now_ms {
            return None;
        }
        self.take(&id).map(|waiting| (id, waiting))
    }

    /// The earliest deadline, in the caller's milliseconds.
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline_ms, _)| deadline_ms)
    }

    /// Takes out every request for which `belongs` holds, in the order of their deadlines.
    pub fn take_where(&mut self, mut belongs: impl FnMut(&T) -> bool) -> Vec<(MessageId, T)> {
        let ids = self.deadlines.iter().map(|(_, id)| *id);
        let ids: Vec<_> =
            ids.filter(|id| self.entries.get(id).is_some_and(|(_, waiting)| belongs(waiting))).collect();
        ids.into_iter().filter_map(|id| self.take(&id).map(|waiting| (id, waiting))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> MessageId {
        MessageId([number; 16])
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
