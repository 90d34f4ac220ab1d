//! Keeps the sessions that the agent agreed on with peers, for a bounded time and within a share for each peer.

use std::collections::{BTreeMap, BTreeSet};

use capd_proto::capability::{CapabilityName, Version};
use capd_proto::identity::Did;
use capd_proto::ledger::JournalId;
use capd_proto::negotiate::SessionId;

/// A version that a peer has agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Agreement {
    /// Who agreed.
    pub(in crate::daemon) peer: Did,
    /// The journal that its link named then: another one is another process, which agreed on nothing.
    pub(in crate::daemon) journal: Option<JournalId>,
    /// The capability that it is about.
    pub(in crate::daemon) name: CapabilityName,
    /// The version that the session pins.
    pub(in crate::daemon) version: Version,
}

/// The agent's sessions with peers.
///
/// A table without room drops the session that ends first: a peer chooses how long its sessions hold, and one that
/// names far-off ends must not lock out everybody else.
#[derive(Debug)]
pub(in crate::daemon) struct Agreed {
    sessions_max: usize,
    peer_sessions_max: usize,
    // The three hold the same sessions.
    by_id: BTreeMap<SessionId, (Agreement, u64)>,
    by_expiry: BTreeSet<(u64, SessionId)>,
    by_peer: BTreeMap<Did, BTreeSet<(u64, SessionId)>>,
}

impl Agreed {
    /// A table of at most `sessions_max` sessions, `peer_sessions_max` of them with one peer.
    pub(in crate::daemon) const fn new(sessions_max: usize, peer_sessions_max: usize) -> Self {
        Self {
            sessions_max,
            peer_sessions_max,
            by_id: BTreeMap::new(),
            by_expiry: BTreeSet::new(),
            by_peer: BTreeMap::new(),
        }
    }

    /// Takes a session in that its peer lets hold until `expires_at_ms`, and no longer than [`HELD_MS_MAX`].
    ///
    /// **Units:** milliseconds since the Unix epoch. A session of another peer keeps its id.
    pub(in crate::daemon) fn take(
        &mut self,
        id: SessionId,
        agreement: Agreement,
        expires_at_ms: u64,
        now_ms: u64,
    ) {
        self.expire(now_ms);
        let ends_ms = expires_at_ms.min(now_ms.saturating_add(HELD_MS_MAX));
        let is_others = self.by_id.get(&id).is_some_and(|(known, _)| known.peer != agreement.peer);
        if ends_ms <= now_ms || is_others {
            return;
        }
        self.drop_session(id);
        let of_peer = self.by_peer.get(&agreement.peer);
        if let Some((_, first)) =
            of_peer.filter(|of| of.len() >= self.peer_sessions_max).and_then(BTreeSet::first)
        {
            self.drop_session(*first);
        } else if self.by_id.len() >= self.sessions_max
            && let Some((_, first)) = self.by_expiry.first()
        {
            self.drop_session(*first);
        }
        self.by_expiry.insert((ends_ms, id));
        self.by_peer.entry(agreement.peer.clone()).or_default().insert((ends_ms, id));
        self.by_id.insert(id, (agreement, ends_ms));
    }

    /// What a session pins, while it holds.
    pub(in crate::daemon) fn find(&self, id: SessionId, now_ms: u64) -> Option<&Agreement> {
        self.by_id.get(&id).filter(|(_, ends_ms)| now_ms < *ends_ms).map(|(agreement, _)| agreement)
    }

    fn expire(&mut self, now_ms: u64) {
        while let Some(&(_, id)) = self.by_expiry.first().filter(|(ends_ms, _)| *ends_ms <= now_ms) {
            self.drop_session(id);
        }
    }

    fn drop_session(&mut self, id: SessionId) {
        let Some((agreement, ends_ms)) = self.by_id.remove(&id) else { return };
        self.by_expiry.remove(&(ends_ms, id));
        if let Some(of_peer) = self.by_peer.get_mut(&agreement.peer) {
            of_peer.remove(&(ends_ms, id));
            if of_peer.is_empty() {
                self.by_peer.remove(&agreement.peer);
            }
        }
    }
}

/// Longest time that a peer's session is kept, in milliseconds: a day. Ours; our own sessions hold for an hour.
const HELD_MS_MAX: u64 = 24 * 60 * 60 * 1_000;

#[cfg(test)]
mod tests {
    use capd_proto::identity::Identity;

    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn agreement(peer: u8) -> Agreement {
        let peer = Identity::from_seed([peer; 32]).did().clone();
        Agreement {
            peer,
            journal: None,
            name: "org.example.echo".parse().unwrap(),
            version: "1.0.0".parse().unwrap(),
        }
    }

    fn id(number: u64) -> SessionId {
        SessionId(u128::from(number).to_be_bytes())
    }

    #[test]
    fn a_session_without_end_ends_after_a_day() {
        let mut agreed = Agreed::new(4, 2);
        agreed.take(id(1), agreement(1), u64::MAX, NOW_MS);
        assert_eq!(agreed.find(id(1), NOW_MS + HELD_MS_MAX - 1), Some(&agreement(1)));
        assert_eq!(agreed.find(id(1), NOW_MS + HELD_MS_MAX), None);
        // One that has ended already is none, and the next one takes the room of those that have.
        agreed.take(id(2), agreement(1), NOW_MS + HELD_MS_MAX, NOW_MS + HELD_MS_MAX);
        assert_eq!((agreed.by_id.len(), agreed.by_expiry.len(), agreed.by_peer.len()), (0, 0, 0));
    }

    #[test]
    fn a_full_table_drops_the_session_that_ends_first() {
        let mut agreed = Agreed::new(3, 3);
        for (number, peer, after_ms) in [(1, 1, 30), (2, 2, 10), (3, 3, 20)] {
            agreed.take(id(number), agreement(peer), NOW_MS + after_ms, NOW_MS);
        }
        agreed.take(id(4), agreement(4), NOW_MS + 5, NOW_MS);
        let held: Vec<_> = (1..=4).filter(|number| agreed.find(id(*number), NOW_MS).is_some()).collect();
        assert_eq!(held, [1, 3, 4]);
    }

    #[test]
    fn one_peer_takes_no_more_than_its_share_however_long_its_sessions_are() {
        let mut agreed = Agreed::new(4, 2);
        agreed.take(id(100), agreement(2), NOW_MS + 1_000, NOW_MS);
        for number in 0..50 {
            agreed.take(id(number), agreement(1), u64::MAX - number, NOW_MS);
        }
        assert_eq!(agreed.find(id(100), NOW_MS), Some(&agreement(2)));
        assert_eq!((agreed.by_id.len(), agreed.by_expiry.len()), (3, 3));
        assert!(agreed.find(id(49), NOW_MS).is_some(), "the newest is kept");
    }

    #[test]
    fn a_peer_replaces_its_own_session_and_nobody_elses() {
        let mut agreed = Agreed::new(4, 2);
        agreed.take(id(1), agreement(1), NOW_MS + 10, NOW_MS);
        agreed.take(id(1), agreement(2), NOW_MS + 99, NOW_MS);
        assert_eq!(agreed.find(id(1), NOW_MS), Some(&agreement(1)));
        agreed.take(id(1), agreement(1), NOW_MS + 20, NOW_MS);
        assert_eq!(agreed.find(id(1), NOW_MS + 15), Some(&agreement(1)));
        assert_eq!((agreed.by_id.len(), agreed.by_expiry.len()), (1, 1));
    }
}
