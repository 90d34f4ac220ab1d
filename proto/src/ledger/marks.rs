//! Remembers cancels of unknown calls, so that a call which arrives later does not run (PROTOCOL 7.6).

use std::collections::{BTreeMap, VecDeque};

use crate::envelope::MessageId;
use crate::identity::Did;
use crate::limits::{CANCEL_MARK_MS, CANCEL_MARKS_MAX, CANCEL_MARKS_PER_PEER_MAX};

use super::Key;

/// Remembers cancels of unknown calls, each for [`CANCEL_MARK_MS`].
///
/// At a bound, the oldest mark of the sender with the most marks is dropped, so nobody can displace another's. It holds
/// no clock: times are of the monotonic clock. **Units:** milliseconds.
#[derive(Debug, Default)]
pub struct CancelMarks {
    /// Each sender's marks and when they were left, oldest first.
    by_peer: BTreeMap<Did, VecDeque<(u64, MessageId)>>,
    count: usize,
}

impl CancelMarks {
    /// Remembers that the call was cancelled before it arrived.
    pub fn leave(&mut self, key: &Key, now_ms: u64) {
        self.expire(now_ms);
        if self.by_peer.get(&key.from).is_some_and(|marks| marks.len() >= CANCEL_MARKS_PER_PEER_MAX) {
            self.drop_oldest_of(&key.from.clone());
        } else if self.count >= CANCEL_MARKS_MAX
            && let Some((peer, _)) = self.by_peer.iter().max_by_key(|(_, marks)| marks.len())
        {
            self.drop_oldest_of(&peer.clone());
        }
        self.by_peer.entry(key.from.clone()).or_default().push_back((now_ms, key.id));
        self.count += 1;
    }

    /// Whether the call was cancelled before it arrived. Removes the mark: from here on the ledger knows the call.
    pub fn take(&mut self, key: &Key, now_ms: u64) -> bool {
        if self.count == 0 {
            return false;
        }
        self.expire(now_ms);
        let Some(marks) = self.by_peer.get_mut(&key.from) else { return false };
        let before = marks.len();
        marks.retain(|(_, id)| *id != key.id);
        let taken = before - marks.len();
        if marks.is_empty() {
            self.by_peer.remove(&key.from);
        }
        self.count -= taken;
        taken > 0
    }

    /// Marks that are left.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no mark is left.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn expire(&mut self, now_ms: u64) {
        let is_over = |left_ms: u64| left_ms.saturating_add(CANCEL_MARK_MS) <= now_ms;
        let mut dropped = 0;
        self.by_peer.retain(|_, marks| {
            while marks.front().is_some_and(|(left_ms, _)| is_over(*left_ms)) {
                marks.pop_front();
                dropped += 1;
            }
            !marks.is_empty()
        });
        self.count -= dropped;
    }

    fn drop_oldest_of(&mut self, peer: &Did) {
        let Some(marks) = self.by_peer.get_mut(peer) else { return };
        if marks.pop_front().is_some() {
            self.count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(peer: &str, id: u64) -> Key {
        Key { from: Did::parse(&format!("did:example:{peer}")).unwrap(), id: MessageId::new(id, [0; 8]) }
    }

    #[test]
    fn a_mark_holds_for_a_minute_and_for_one_call() {
        let mut marks = CancelMarks::default();
        marks.leave(&key("a", 1), 1_000);
        assert!(!marks.take(&key("b", 1), 1_000), "it is another's call");
        assert!(!marks.take(&key("a", 2), 1_000));
        assert!(marks.take(&key("a", 1), 1_000 + CANCEL_MARK_MS - 1));
        assert!(!marks.take(&key("a", 1), 1_001), "it was used up");
        marks.leave(&key("a", 1), 1_000);
        assert!(!marks.take(&key("a", 1), 1_000 + CANCEL_MARK_MS));
        assert!(marks.is_empty());
    }

    #[test]
    fn a_sender_with_too_many_loses_its_own_oldest() {
        let mut marks = CancelMarks::default();
        marks.leave(&key("b", 7), 0);
        for id in 0..=CANCEL_MARKS_PER_PEER_MAX as u64 {
            marks.leave(&key("a", id), 0);
        }
        assert_eq!(marks.len(), CANCEL_MARKS_PER_PEER_MAX + 1);
        assert!(!marks.take(&key("a", 0), 0));
        assert!(marks.take(&key("a", 1), 0) && marks.take(&key("b", 7), 0));
    }

    #[test]
    fn many_senders_together_are_bounded_and_the_largest_gives_way() {
        let mut marks = CancelMarks::default();
        let per_peer = CANCEL_MARKS_PER_PEER_MAX as u64;
        for peer in 0..CANCEL_MARKS_MAX / CANCEL_MARKS_PER_PEER_MAX {
            (0..per_peer).for_each(|id| marks.leave(&key(&format!("p{peer}"), id), 0));
        }
        assert_eq!(marks.len(), CANCEL_MARKS_MAX);
        marks.leave(&key("late", 1), 0);
        assert_eq!(marks.len(), CANCEL_MARKS_MAX);
        assert!(marks.take(&key("late", 1), 0));
    }
}
