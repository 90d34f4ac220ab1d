//! The table of what is known: leases, announcements of others, watches, and bounds.

use capd_proto::fleet::{Agent, Fence};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;

use super::*;

fn table() -> Table {
    Table::new("home".parse().unwrap(), StoreId { id: 7, era: 0 })
}

fn key(name: &str, seed: u8) -> Key {
    Key::registration(name.parse().unwrap(), Agent::from(Identity::from_seed([seed; 32]).public_key()))
}

fn path(name: &str, seed: u8) -> String {
    key(name, seed).path(&"home".parse().unwrap())
}

fn fence() -> Fence {
    Fence { incarnation: 1, journal: JournalId([1; 16]) }
}

fn register(table: &mut Table, names: &[&str], now_ms: u64) -> (LeaseId, Vec<Said>) {
    let puts = names.iter().map(|name| (key(name, 1), Bytes::from("ours"))).collect();
    match table.ask(Ask::Register { fence: fence(), ttl_ms: 2_500, puts }, now_ms) {
        (Ok(Told::Held { lease, .. }), said) => (lease, said),
        other => panic!("{other:?}"),
    }
}

fn list(table: &mut Table, at: Option<Revision>) -> Result<Page, EngineError> {
    let ask = Ask::List { prefix: Prefix::Names, after: None, at, values: true };
    match table.ask(ask, 0).0? {
        Told::Page(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

fn values(table: &mut Table) -> Vec<(String, Bytes)> {
    let items = list(table, None).unwrap().items;
    items.into_iter().map(|item| (item.path, item.value.unwrap())).collect()
}

fn begin(table: &mut Table, after: Revision) -> WatchId {
    let watch = WatchId::numbered(after.0);
    table.watch(watch, &Prefix::Names, after);
    watch
}

fn changes(table: &mut Table) -> Vec<Change> {
    table.reports().into_iter().map(|(_, change)| change).collect()
}

const HELLO: &str = "com.example.hello";
const OTHER: &str = "com.example.other";

#[test]
fn what_is_registered_is_announced_until_its_lease_ends_and_taken_back_when_it_is_withdrawn() {
    let mut table = table();
    let (lease, said) = register(&mut table, &[HELLO, OTHER], 0);
    assert_eq!(said.iter().map(|said| said.ttl_s).collect::<Vec<_>>(), [3, 3], "rounded up");
    assert_eq!(table.said(), said);
    assert_eq!(table.due_ms(), Some(2_500));
    assert_eq!(table.ask(Ask::Renew(lease), 2_000), (Ok(Told::Done), said));
    assert_eq!(table.due_ms(), Some(4_500));
    let gone = vec![key(OTHER, 1)];
    let replace = Ask::Replace { lease, fence: fence(), stands: None, puts: Vec::new(), gone };
    let (told, said) = table.ask(replace, 2_100);
    assert!(matches!(told, Ok(Told::Held { .. })));
    assert_eq!(said, [Said { path: path(OTHER, 1), value: "ours".into(), ttl_s: 0 }]);
    let (told, said) = table.ask(Ask::Withdraw(lease), 2_200);
    assert_eq!((told, said.len(), said[0].ttl_s), (Ok(Told::Done), 1, 0));
    assert_eq!(values(&mut table), []);
    assert_eq!(table.ask(Ask::Renew(lease), 2_300).0, Err(EngineError::Gone));
    let replace = Ask::Replace { lease, fence: fence(), stands: None, puts: Vec::new(), gone: Vec::new() };
    assert_eq!(table.ask(replace, 2_300).0, Err(EngineError::Gone));
}

#[test]
fn a_lease_that_nobody_renews_ends_and_is_not_taken_back() {
    let mut table = table();
    let (lease, _) = register(&mut table, &[HELLO], 0);
    assert_eq!(table.ask(Ask::Renew(lease), 2_500), (Err(EngineError::Gone), Vec::new()));
    assert!(table.said().is_empty());
    let (again, _) = register(&mut table, &[HELLO], 3_000);
    assert_ne!(lease, again);
}

#[test]
fn a_new_lease_takes_back_only_what_it_does_not_announce() {
    let mut table = table();
    register(&mut table, &[HELLO, OTHER], 0);
    let (_, said) = register(&mut table, &[HELLO], 10);
    let said: Vec<_> = said.into_iter().map(|said| (said.path, said.ttl_s)).collect();
    assert_eq!(said, [(path(OTHER, 1), 0), (path(HELLO, 1), 3)]);
}

#[test]
fn nobody_else_speaks_for_what_is_ours() {
    let mut table = table();
    register(&mut table, &[HELLO], 0);
    table.hear(path(HELLO, 1), "forged".into(), 30, 1);
    table.hear(path(HELLO, 1), "ours".into(), 0, 1);
    table.expire(2_000);
    assert_eq!(values(&mut table), [(path(HELLO, 1), Bytes::from("ours"))]);
}

#[test]
fn an_announcement_counts_for_its_lifetime_and_a_second_after_it_is_taken_back() {
    let mut table = table();
    table.hear(path(HELLO, 2), "theirs".into(), 2, 0);
    table.hear(path(HELLO, 2), "theirs".into(), 2, 1_500);
    table.expire(3_499);
    assert_eq!(values(&mut table).len(), 1);
    table.expire(3_500);
    assert_eq!(values(&mut table), []);
    table.hear(path(HELLO, 2), "theirs".into(), 30, 4_000);
    table.hear(path(HELLO, 2), "".into(), 0, 4_000);
    assert_eq!(table.due_ms(), Some(5_000));
    table.hear(path(HELLO, 2), "theirs".into(), 30, 4_500);
    assert_eq!(table.due_ms(), Some(34_500), "it is still there");
    table.hear(path(HELLO, 2), "".into(), 0, 4_500);
    table.expire(5_500);
    assert_eq!(values(&mut table), []);
    table.hear(path(HELLO, 2), "".into(), 0, 6_000);
    assert_eq!(values(&mut table), [], "nothing comes of a goodbye");
    table.hear(path(HELLO, 2), "theirs".into(), u32::MAX, 0);
    assert_eq!(table.due_ms(), Some(600_000), "nothing counts for ever");
}

#[test]
fn a_watch_reports_the_last_change_of_each_key_in_order_and_each_once() {
    let mut table = table();
    table.hear(path(HELLO, 2), "1".into(), 30, 0);
    let from = list(&mut table, None).unwrap().revision;
    table.hear(path(HELLO, 2), "2".into(), 30, 0);
    table.hear(path(OTHER, 3), "3".into(), 1, 0);
    table.hear(path(HELLO, 2), "4".into(), 30, 0);
    table.expire(1_000);
    begin(&mut table, from);
    let reported = changes(&mut table);
    let [Change::Started { revision, .. }, Change::Put { item, .. }, Change::Delete { path: gone, .. }] =
        &reported[..]
    else {
        panic!("{reported:?}")
    };
    assert_eq!((*revision, item.value.as_deref(), gone), (from, Some(&b"4"[..]), &path(OTHER, 3)));
    assert_eq!(changes(&mut table), []);
    table.hear(path(HELLO, 2), "4".into(), 30, 500);
    assert_eq!(changes(&mut table), [], "the same again is no change");
    table.probe();
    assert!(matches!(changes(&mut table)[..], [Change::Progress { .. }]));
    assert_eq!(changes(&mut table), []);
}

#[test]
fn revisions_never_go_back_within_a_watch() {
    let mut table = table();
    begin(&mut table, Revision(1));
    register(&mut table, &[HELLO, OTHER], 0);
    let mut last = Revision(0);
    for change in changes(&mut table) {
        let (Change::Started { revision, .. } | Change::Put { revision, .. }) = change else {
            panic!("{change:?}")
        };
        assert!(revision >= last);
        last = revision;
    }
}

#[test]
fn a_list_at_a_revision_is_refused_only_where_something_changed_since() {
    let mut table = table();
    let at = list(&mut table, None).unwrap().revision;
    assert!(list(&mut table, Some(at)).is_ok());
    assert_eq!(list(&mut table, Some(Revision(at.0 + 1))), Err(EngineError::Compacted), "not yet");
    table.hear(path(HELLO, 2), "1".into(), 30, 0);
    assert_eq!(list(&mut table, Some(at)), Err(EngineError::Compacted));
    let one = Ask::List { prefix: Prefix::One(key(OTHER, 3)), after: None, at: Some(at), values: true };
    assert!(table.ask(one, 0).0.is_ok(), "nothing changed there");
}

#[test]
fn the_number_of_strangers_is_bounded_and_those_who_are_known_stay() {
    let mut table = table();
    let name = |number: usize| format!("com.example.n{number}");
    for number in 0..HEARD_MAX + 10 {
        table.hear(path(&name(number), 2), "1".into(), 30, 0);
    }
    assert!(table.is_full());
    assert_eq!(values(&mut table).len(), HEARD_MAX);
    table.hear(path(&name(0), 2), "2".into(), 60, 0);
    assert_eq!(table.entries[&path(&name(0), 2)].value, "2");
    register(&mut table, &[HELLO], 0);
    assert_eq!(table.said().len(), 1, "what is ours always fits");
    table.expire(30_000);
    assert!(!table.is_full());
    assert_eq!(table.heard, 1);
}

#[test]
fn a_watch_that_changes_overtook_ends() {
    let mut table = table();
    begin(&mut table, Revision(1));
    assert_eq!(changes(&mut table).len(), 1);
    for number in 0..=KEPT {
        table.hear(path(HELLO, 2), number.to_string().into(), 30, 0);
    }
    assert_eq!(changes(&mut table), [Change::Ended]);
    assert_eq!(changes(&mut table), []);
    assert!(table.changes.len() <= KEPT);
}
