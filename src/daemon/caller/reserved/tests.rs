//! Tests which calls need something on disk before they leave.

use capd_proto::identity::Did;
use capd_proto::ledger::JournalId;

use super::*;

const NAME: &str = "org.example.pay";

fn replica(peer: char) -> Replica {
    let journal = Some(JournalId([peer as u8; 16]));
    Replica { peer: Did::parse(&format!("did:web:{peer}.example")).unwrap(), journal }
}

fn id(id_ms: u64) -> MessageId {
    MessageId::new(id_ms, [0; 8])
}

/// Ids made from `from_ms` on, that differ in more than their time.
fn ids(from_ms: u64) -> impl Iterator<Item = MessageId> {
    (0..60_u64).map(move |number| MessageId::new(from_ms + number, (number * 77).to_be_bytes()))
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
        self.cover_among(&[replica(peer)], &replica(peer), &id(id_ms), expires_at_ms)
    }

    fn cover_among(
        &mut self,
        among: &[Replica],
        replica: &Replica,
        id: &MessageId,
        expires_at_ms: u64,
    ) -> Cover {
        let asked = Asked { name: NAME, id, expires_at_ms };
        let row = self.rows + 1;
        let cover = self.reservations.cover(asked, To { replica, among }, || Row(row));
        self.rows += u64::from(matches!(cover, Cover::Reserve(..)));
        cover
    }

    /// The same for a call to the owner of its id, which must be covered by a new reservation, which is written.
    fn reserve_among(&mut self, among: &[Replica], id: &MessageId) -> (Reserved, Option<Row>) {
        let owner = owner(id, among).unwrap();
        let Cover::Reserve(reserved, replaces) = self.cover_among(among, owner, id, id.ts_ms() + 60_000)
        else {
            panic!("a reservation is needed")
        };
        self.reservations.written(NAME, reserved.row);
        (reserved, replaces)
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
    assert_eq!(journal.cover('a', 9_000, 69_000), Cover::Covered(Row(11)), "the earlier ones stay promised");
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
    let former = |journal: &Journal, id_ms| journal.reservations.former(NAME, &id(id_ms)).cloned();
    let expect = [(1, Some('a')), (5_000, Some('a')), (5_001, Some('b')), (9_000, Some('b')), (9_001, None)];
    for (id_ms, peer) in expect {
        assert_eq!(former(&journal, id_ms), peer.map(replica), "{id_ms}");
    }
    assert_eq!(journal.reservations.former("org.example.other", &id(1)), None);
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
        assert_eq!(journal.reservations.former(NAME, &id(id_ms)), Some(&replica(peer)), "{id_ms}");
    }
    let (next, _) = journal.reserve('b', 7_001, 67_001);
    assert_eq!(next, reserved(11, 'b', 5_000, 17_001, 77_001));
    assert_eq!(journal.reservations.former(NAME, &id(7_001)), None, "a later row has it");
}

#[test]
fn one_reservation_covers_the_calls_of_a_while_to_each_of_a_set() {
    let (mut journal, set) = (Journal::new(Vec::new()), ['a', 'b', 'c'].map(replica));
    let (first, replaces) = journal.reserve_among(&set, &id(1_000));
    assert_eq!((&first.replicas[..], first.until_ms, replaces), (&set[..], 11_000, None));
    for id in ids(1_000) {
        let has = owner(&id, &set).unwrap();
        let promised = journal.reservations.promised(Asked { name: NAME, id: &id, expires_at_ms: 62_000 });
        assert_eq!(promised, Some(has));
        for replica in &set {
            let cover = journal.cover_among(&set, replica, &id, 62_000);
            let expected = if replica == has { Cover::Covered(Row(11)) } else { Cover::Own };
            assert_eq!(cover, expected, "whoever goes elsewhere has a row of its own");
        }
    }
    let late = id(11_001);
    let asked = Asked { name: NAME, id: &late, expires_at_ms: 62_000 };
    assert_eq!(journal.reservations.promised(asked), None);
    let (second, replaces) = journal.reserve_among(&set, &late);
    assert_eq!((second.after_ms, second.until_ms, replaces), (0, 21_001, Some(Row(11))));
}

#[test]
fn a_call_that_goes_elsewhere_than_to_its_owner_reserves_nothing() {
    let (mut journal, set) = (Journal::new(Vec::new()), ['a', 'b'].map(replica));
    for id in ids(1_000) {
        let other = set.iter().find(|replica| Some(*replica) != owner(&id, &set)).unwrap();
        assert_eq!(journal.cover_among(&set, other, &id, 61_000), Cover::Own);
        assert_eq!(journal.cover_among(&[], other, &id, 61_000), Cover::Own);
    }
    assert!(journal.reservations.by_name.is_empty());
}

#[test]
fn a_changed_set_is_for_later_ids_alone() {
    let (mut journal, set) = (Journal::new(Vec::new()), ['a', 'b', 'c'].map(replica));
    journal.reserve_among(&set, &id(1_000));
    // One has lost its memory, which makes it another, and one has left.
    let forgetful = Replica { journal: Some(JournalId([9; 16])), ..replica('b') };
    let changed = [replica('a'), forgetful];
    for id in ids(5_000) {
        let (had, has) = (owner(&id, &set).unwrap(), owner(&id, &changed).unwrap());
        let cover = journal.cover_among(&changed, has, &id, 66_000);
        assert_eq!(cover, if has == had { Cover::Covered(Row(11)) } else { Cover::Own });
        let kept = journal.cover_among(&changed, had, &id, 66_000);
        assert_eq!(kept, Cover::Covered(Row(11)), "what was promised stays so");
    }
    let (next, replaces) = journal.reserve_among(&changed, &id(11_001));
    assert_eq!((next.after_ms, &next.replicas[..], replaces), (11_000, &changed[..], None));
    for id in ids(12_000) {
        let has = owner(&id, &changed).unwrap();
        assert_eq!(journal.cover_among(&changed, has, &id, 71_000), Cover::Covered(Row(12)));
    }
}

#[test]
fn after_a_restart_the_owner_alone_may_have_an_id() {
    let (mut journal, set) = (Journal::new(Vec::new()), ['a', 'b', 'c'].map(replica));
    let (first, _) = journal.reserve_among(&set, &id(1_000));
    let changed = ['b', 'd'].map(replica);
    let (second, _) = journal.reserve_among(&changed, &id(11_001));
    let mut journal = Journal::new(vec![first, second]);
    for (from_ms, set) in [(2_000, &set[..]), (15_000, &changed)] {
        for id in ids(from_ms) {
            let has = owner(&id, set);
            assert_eq!(journal.reservations.former(NAME, &id), has);
            assert!(journal.reservations.has_former(NAME, id.ts_ms()));
            // Asked for again, it needs nothing more.
            let cover = journal.cover_among(&[], has.unwrap(), &id, 70_000);
            assert!(matches!(cover, Cover::Covered(_)), "{cover:?}");
        }
    }
    assert_eq!(journal.reservations.former(NAME, &id(21_002)), None);
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
