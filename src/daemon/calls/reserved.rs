//! A call that may run only once in; whether it may leave at once, or what must be on disk first, out.
//!
//! A row for each call would cost it a commit before it leaves. Instead, a peer is promised all calls of a capability
//! whose ids are made up to a while from now on: ids tell their time (PROTOCOL 5), so one commit covers the calls of
//! [`AHEAD_MS`]. After a restart, a call that nobody remembers may have been given to whom its id was promised; one
//! with a later id surely was not.

use std::collections::HashMap;
use std::sync::Arc;

use crate::store::{Replica, Reserved, Row};

/// Spans of ids, by the name of the capability.
#[derive(Default)]
pub(super) struct Reservations {
    /// In the order of rows; the last one that has an id counts.
    by_name: HashMap<Arc<str>, Vec<Span>>,
    /// Nothing expires before. **Units:** milliseconds since the Unix epoch.
    expires_from_ms: u64,
    /// A former process has given no call of a later id away. **Units:** milliseconds since the Unix epoch.
    former_until_ms: u64,
}

struct Span {
    reserved: Reserved,
    /// The row that it takes the place of.
    replaces: Option<Row>,
    /// Whether it is on disk.
    is_durable: bool,
    /// Up to which time of an id a former process may have given calls away.
    former_until_ms: u64,
}

/// A call that is to be given to a peer.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The capability's name.
    pub(super) name: &'a str,
    /// The time of its id. **Units:** milliseconds since the Unix epoch.
    pub(super) id_ms: u64,
    /// Its `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub(super) expires_at_ms: u64,
    /// Whom it is to be given to.
    pub(super) replica: &'a Replica,
}

/// What must be on disk before a call may leave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cover {
    /// Nothing: the reservation in that row covers it.
    Covered(Row),
    /// This reservation, in the place of the one in that row.
    Reserve(Reserved, Option<Row>),
    /// Its own row.
    Own,
}

impl Reservations {
    /// Those that a former process has left, in the order of rows.
    pub(super) fn new(left: Vec<Reserved>) -> Self {
        let mut reservations = Self::default();
        for reserved in left {
            let former_until_ms = reserved.until_ms;
            reservations.former_until_ms = reservations.former_until_ms.max(former_until_ms);
            let spans = reservations.by_name.entry(Arc::clone(&reserved.capability)).or_default();
            spans.push(Span { reserved, replaces: None, is_durable: true, former_until_ms });
        }
        reservations
    }

    /// Whom a former process may have given a call to of which nobody knows.
    pub(super) fn former(&self, name: &str, id_ms: u64) -> Option<&Replica> {
        if id_ms > self.former_until_ms {
            return None;
        }
        let span = self.by_name.get(name)?.iter().rev().find(|span| span.has(id_ms))?;
        (id_ms <= span.former_until_ms).then(|| span.reserved.replicas.first()).flatten()
    }

    /// What `asked` needs. A reservation that it names counts as being written from then on.
    pub(super) fn cover(&mut self, asked: Asked<'_>, next_row: impl FnOnce() -> Row) -> Cover {
        let Asked { name, id_ms, expires_at_ms, replica } = asked;
        let spans = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let (after_ms, replaced) = match spans.split_last() {
            None => (0, None),
            // Whoever has an id from an earlier span keeps it; what is being written covers nothing yet.
            Some((last, earlier)) if id_ms <= last.reserved.after_ms || !last.is_durable => {
                let span = earlier.iter().rev().find(|span| span.has(id_ms));
                return match span.filter(|span| !last.has(id_ms) && span.covers(asked)) {
                    Some(span) => Cover::Covered(span.reserved.row),
                    None => Cover::Own,
                };
            }
            Some((last, _)) if last.covers(asked) => return Cover::Covered(last.reserved.row),
            Some((last, _)) if last.reserved.replicas == [replica.clone()] => {
                (last.reserved.after_ms, Some(last))
            }
            Some((last, _)) if id_ms <= last.reserved.until_ms => return Cover::Own,
            Some((last, _)) => (last.reserved.until_ms, None),
        };
        let (until_ms, latest_ms, former_until_ms) = replaced.map_or((0, 0, 0), |span| {
            (span.reserved.until_ms, span.reserved.expires_at_ms, span.former_until_ms)
        });
        let capability =
            spans.last().map_or_else(|| name.into(), |span| Arc::clone(&span.reserved.capability));
        let reserved = Reserved {
            row: next_row(),
            capability: Arc::clone(&capability),
            after_ms,
            until_ms: until_ms.max(id_ms.saturating_add(AHEAD_MS)),
            replicas: vec![replica.clone()],
            expires_at_ms: latest_ms.max(expires_at_ms.saturating_add(AHEAD_MS)),
        };
        let replaces = replaced.map(|span| span.reserved.row);
        self.expires_from_ms = self.expires_from_ms.min(reserved.expires_at_ms);
        let span = Span { reserved: reserved.clone(), replaces, is_durable: false, former_until_ms };
        self.by_name.entry(capability).or_default().push(span);
        Cover::Reserve(reserved, replaces)
    }

    /// The reservation in `row` is on disk, and what it takes the place of is not any more.
    pub(super) fn written(&mut self, name: &str, row: Row) {
        let Some(spans) = self.by_name.get_mut(name) else { return };
        let Some(span) = spans.iter_mut().find(|span| span.reserved.row == row) else { return };
        span.is_durable = true;
        if let Some(replaced) = span.replaces.take() {
            spans.retain(|span| span.reserved.row != replaced);
        }
    }

    /// The reservation in `row` could not be written; whether there was one.
    pub(super) fn unwritten(&mut self, name: &str, row: Row) -> bool {
        let Some(spans) = self.by_name.get_mut(name) else { return false };
        let before = spans.len();
        spans.retain(|span| span.reserved.row != row || span.is_durable);
        let is_found = spans.len() < before;
        if spans.is_empty() {
            self.by_name.remove(name);
        }
        is_found
    }

    /// Takes out what no call can use any more: rows, and the latest `ts + ttl` of their calls.
    pub(super) fn take_expired(&mut self, now_ms: u64) -> (Vec<Row>, u64) {
        let (mut rows, mut expired_ms) = (Vec::new(), 0);
        if now_ms <= self.expires_from_ms {
            return (rows, expired_ms);
        }
        self.expires_from_ms = u64::MAX;
        self.by_name.retain(|_, spans| {
            spans.retain(|span| {
                let expires_at_ms = span.reserved.expires_at_ms;
                let is_over = span.is_durable && expires_at_ms < now_ms;
                if is_over {
                    rows.push(span.reserved.row);
                    expired_ms = expired_ms.max(expires_at_ms);
                } else {
                    self.expires_from_ms = self.expires_from_ms.min(expires_at_ms);
                }
                !is_over
            });
            !spans.is_empty()
        });
        (rows, expired_ms)
    }
}

impl Span {
    fn has(&self, id_ms: u64) -> bool {
        self.reserved.after_ms < id_ms && id_ms <= self.reserved.until_ms
    }

    fn covers(&self, asked: Asked<'_>) -> bool {
        self.is_durable
            && self.has(asked.id_ms)
            && self.reserved.replicas == [asked.replica.clone()]
            && asked.expires_at_ms <= self.reserved.expires_at_ms
    }
}

/// How far ahead of an id the ones after it are promised, in milliseconds. Ours: few commits for whoever calls often,
/// and soon after a crash new calls are free to go anywhere.
const AHEAD_MS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use capd_proto::identity::Did;
    use capd_proto::ledger::JournalId;

    use super::*;

    const NAME: &str = "org.example.pay";

    fn replica(peer: char) -> Replica {
        let journal = Some(JournalId([peer as u8; 16]));
        Replica { peer: Did::parse(&format!("did:web:{peer}.example")).unwrap(), journal }
    }

    /// Reservations, and the rows that the journal hands out.
    struct Journal {
        reservations: Reservations,
        rows: u64,
    }

    impl Journal {
        fn new(left: Vec<Reserved>) -> Self {
            Self { reservations: Reservations::new(left), rows: 10 }
        }

        fn cover(&mut self, peer: char, id_ms: u64, expires_at_ms: u64) -> Cover {
            let asked = Asked { name: NAME, id_ms, expires_at_ms, replica: &replica(peer) };
            let row = self.rows + 1;
            let cover = self.reservations.cover(asked, || Row(row));
            self.rows += u64::from(matches!(cover, Cover::Reserve(..)));
            cover
        }

        /// A call that must be covered by a new reservation, which is written.
        fn reserve(&mut self, peer: char, id_ms: u64, expires_at_ms: u64) -> (Reserved, Option<Row>) {
            let Cover::Reserve(reserved, replaces) = self.cover(peer, id_ms, expires_at_ms) else {
                panic!("a reservation is needed")
            };
            self.reservations.written(NAME, reserved.row);
            (reserved, replaces)
        }
    }

    fn reserved(row: u64, peer: char, after_ms: u64, until_ms: u64, expires_at_ms: u64) -> Reserved {
        Reserved {
            row: Row(row),
            capability: NAME.into(),
            after_ms,
            until_ms,
            replicas: vec![replica(peer)],
            expires_at_ms,
        }
    }

    #[test]
    fn one_reservation_covers_the_calls_of_a_while() {
        let mut journal = Journal::new(Vec::new());
        let (first, replaces) = journal.reserve('a', 1_000, 61_000);
        assert_eq!((first, replaces), (reserved(11, 'a', 0, 11_000, 71_000), None));
        for (id_ms, expires_at_ms) in [(1, 5), (1_000, 61_000), (11_000, 71_000)] {
            assert_eq!(journal.cover('a', id_ms, expires_at_ms), Cover::Covered(Row(11)));
        }
        let (second, replaces) = journal.reserve('a', 11_001, 71_001);
        assert_eq!((second, replaces), (reserved(12, 'a', 0, 21_001, 81_001), Some(Row(11))));
        // A call that may be asked about for longer.
        let (third, replaces) = journal.reserve('a', 11_002, 500_000);
        assert_eq!((third, replaces), (reserved(13, 'a', 0, 21_002, 510_000), Some(Row(12))));
        assert_eq!(journal.reservations.by_name[NAME].len(), 1);
    }

    #[test]
    fn an_id_that_was_promised_to_one_peer_has_a_row_of_its_own_with_another() {
        let mut journal = Journal::new(Vec::new());
        journal.reserve('a', 1_000, 61_000);
        assert_eq!(journal.cover('b', 11_000, 71_000), Cover::Own);
        let (next, replaces) = journal.reserve('b', 11_001, 71_001);
        assert_eq!((next, replaces), (reserved(12, 'b', 11_000, 21_001, 81_001), None));
        assert_eq!(journal.cover('a', 11_001, 71_001), Cover::Own);
        assert_eq!(
            journal.cover('a', 9_000, 69_000),
            Cover::Covered(Row(11)),
            "the earlier ones stay promised"
        );
        assert_eq!(journal.cover('a', 9_000, 99_000), Cover::Own, "and grow no more");
        assert_eq!(journal.cover('b', 9_000, 69_000), Cover::Own);
    }

    #[test]
    fn nothing_leaves_on_a_reservation_that_is_not_on_disk() {
        let mut journal = Journal::new(Vec::new());
        let Cover::Reserve(first, None) = journal.cover('a', 1_000, 61_000) else { panic!() };
        assert_eq!(journal.cover('a', 1_001, 61_001), Cover::Own);
        assert_eq!(journal.cover('b', 90_000, 150_000), Cover::Own);
        assert!(journal.reservations.unwritten(NAME, first.row));
        assert!(!journal.reservations.unwritten(NAME, first.row), "a call's own row is none");
        assert!(journal.reservations.by_name.is_empty());
        journal.reserve('a', 1_002, 61_002);
        // One that fails leaves the one that it was to replace.
        let Cover::Reserve(second, Some(Row(12))) = journal.cover('a', 20_000, 80_000) else { panic!() };
        assert_eq!(journal.cover('a', 20_001, 80_001), Cover::Own);
        assert!(journal.reservations.unwritten(NAME, second.row));
        assert_eq!(journal.cover('a', 11_002, 71_002), Cover::Covered(Row(12)));
        assert!(matches!(journal.cover('a', 11_003, 71_003), Cover::Reserve(_, Some(Row(12)))));
    }

    #[test]
    fn after_a_restart_only_ids_of_before_may_have_been_given_away() {
        let left = vec![reserved(1, 'a', 0, 5_000, 65_000), reserved(2, 'b', 5_000, 9_000, 69_000)];
        let mut journal = Journal::new(left);
        let former = |journal: &Journal, id_ms| journal.reservations.former(NAME, id_ms).cloned();
        let expect =
            [(1, Some('a')), (5_000, Some('a')), (5_001, Some('b')), (9_000, Some('b')), (9_001, None)];
        for (id_ms, peer) in expect {
            assert_eq!(former(&journal, id_ms), peer.map(replica), "{id_ms}");
        }
        assert_eq!(journal.reservations.former("org.example.other", 1), None);
        // What this process promises says nothing of the former one.
        let (grown, _) = journal.reserve('b', 9_001, 69_001);
        assert_eq!((grown.after_ms, grown.until_ms), (5_000, 19_001));
        for (id_ms, peer) in expect {
            assert_eq!(former(&journal, id_ms), peer.map(replica), "{id_ms}");
        }
    }

    #[test]
    fn of_two_that_share_an_id_the_later_row_counts() {
        let left = vec![reserved(1, 'a', 0, 9_000, 69_000), reserved(2, 'b', 5_000, 7_000, 67_000)];
        let mut journal = Journal::new(left);
        for (id_ms, peer) in [(5_000, 'a'), (5_001, 'b'), (7_000, 'b'), (7_001, 'a'), (9_000, 'a')] {
            assert_eq!(journal.reservations.former(NAME, id_ms), Some(&replica(peer)), "{id_ms}");
        }
        let (next, _) = journal.reserve('b', 7_001, 67_001);
        assert_eq!(next, reserved(11, 'b', 5_000, 17_001, 77_001));
        assert_eq!(journal.reservations.former(NAME, 7_001), None, "a later row has it");
    }

    #[test]
    fn a_reservation_goes_when_no_call_can_use_it() {
        let mut journal = Journal::new(vec![reserved(1, 'a', 0, 5_000, 65_000)]);
        assert_eq!(journal.reservations.take_expired(65_000), (vec![], 0));
        journal.reserve('b', 5_001, 6_000);
        assert_eq!(journal.reservations.take_expired(65_001), (vec![Row(1), Row(11)], 65_000));
        assert!(journal.reservations.by_name.is_empty());
        journal.reserve('b', 70_000, 71_000);
        assert_eq!(journal.reservations.take_expired(81_000), (vec![], 0));
        assert_eq!(journal.reservations.take_expired(81_001), (vec![Row(12)], 81_000));
    }
}
