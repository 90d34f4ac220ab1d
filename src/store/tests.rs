//! Tests the journal over a storage in memory: order, groups, refusals, and a failing disk for each kind of change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::*;

/// A disk in memory, which can be told what it has no room for.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    loaded: BTreeMap<Row, (Change, Option<Bytes>)>,
    commits: Vec<Vec<Change>>,
    refuses: Refuses,
}

impl Storage for Memory {
    fn journal_id(&self) -> JournalId {
        JournalId([7; 16])
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        Ok(Loaded::default())
    }

    fn commit(&mut self, batch: &[Change]) -> Result<(), StoreError> {
        let mut state = self.0.lock().unwrap();
        if let Some(refuses) = state.refuses
            && refuses(batch)
        {
            return Err(StoreError::new(StoreErrorKind::Full, "memory", "no room"));
        }
        for change in batch {
            match change {
                Change::Begin(_)
                | Change::Give(_)
                | Change::Move { .. }
                | Change::Reserve { .. }
                | Change::Release(_)
                | Change::Key(_) => {
                    if let Change::Reserve { replaces: Some(row), .. } | Change::Move { replaces: row, .. } =
                        change
                    {
                        state.loaded.remove(row);
                    }
                    state.loaded.insert(change.row(), (change.clone(), None));
                }
                Change::Finish { row, result, .. } | Change::Answer { row, answer: result } => {
                    state.loaded.get_mut(row).unwrap().1 = Some(result.clone());
                }
                Change::Forget { row } | Change::Expire { row, .. } => {
                    state.loaded.remove(row);
                }
            }
        }
        state.commits.push(batch.to_vec());
        Ok(())
    }

    fn read(&mut self, row: Row) -> Result<Bytes, StoreError> {
        let state = self.0.lock().unwrap();
        let result = state.loaded.get(&row).and_then(|(_, result)| result.clone());
        result.ok_or_else(|| StoreError::new(StoreErrorKind::Missing, "memory", "no result"))
    }
}

pub(super) fn begin(row: u64) -> Change {
    let from = Did::parse("did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P").unwrap();
    let key = Key { from, id: MessageId::new(row, [7; 8]) };
    let body = BodyDigest([u8::try_from(row % 251).unwrap(); 32]);
    let capability = "org.example.pay:1.0.0".into();
    Change::Begin(Begun {
        row: Row(row),
        key,
        body,
        expires_at_ms: row + 1_000,
        started_at_ms: row,
        capability,
    })
}

pub(super) fn finish(row: u64) -> Change {
    let result = Bytes::from(format!("the result of {row}"));
    Change::Finish { row: Row(row), result, finished_at_ms: row + 1 }
}

/// One whose journal is known, unless it has number 0.
fn replica(name: &str, journal: u64) -> Replica {
    let peer = Did::parse(&format!("did:web:{name}.example")).unwrap();
    let number = u8::try_from(journal).unwrap();
    Replica { peer, journal: (number > 0).then_some(JournalId([number; 16])) }
}

pub(super) fn give(row: u64) -> Change {
    let id = MessageId::new(row, [9; 8]);
    let given = Given {
        row: Row(row),
        id,
        replica: replica("peer", row % 2),
        expires_at_ms: row + 1_000,
        released_by: None,
    };
    Change::Give(given)
}

pub(super) fn reserve(row: u64, replaces: Option<u64>) -> Change {
    let reserved = Reserved {
        row: Row(row),
        capability: "org.example.pay".into(),
        after_ms: row,
        until_ms: row + 10,
        replicas: (0..row % 3 + 1).map(|at| replica(&format!("peer{at}"), row % 2 + at)).collect(),
        expires_at_ms: row + 1_000,
    };
    Change::Reserve { reserved, replaces: replaces.map(Row) }
}

pub(super) fn release(row: u64) -> Change {
    let Change::Begin(Begun { mut key, expires_at_ms, .. }) = begin(row) else { unreachable!() };
    key.id = MessageId::new(row, [3; 8]);
    Change::Release(Released { row: Row(row), key, expires_at_ms })
}

pub(super) fn key(row: u64) -> Change {
    let number = u8::try_from(row % 251).unwrap();
    Change::Key(Box::new(Keyed {
        row: Row(row),
        key: [number; 32],
        digest: [number + 1; 32],
        id: MessageId::new(row, [5; 8]),
        terms: Bytes::from(vec![number; 3]),
        expires_at_ms: row + 1_000,
    }))
}

pub(super) fn answer(row: u64) -> Change {
    Change::Answer { row: Row(row), answer: Bytes::from(format!("the answer of {row}")) }
}

pub(super) fn forget(row: u64) -> Change {
    Change::Forget { row: Row(row) }
}

/// Submits each change with its place as the tag, does them all as one group, and gives the outcomes' kinds.
async fn together(memory: &Memory, work: Vec<Work>) -> Vec<Result<Option<Bytes>, StoreErrorKind>> {
    let (journal, mut writer) = journal(memory.clone(), Row(1), work.len());
    let count = work.len();
    for (tag, work) in work.into_iter().enumerate() {
        journal.submit(work, tag).unwrap();
    }
    let batch = writer.batch().await.unwrap();
    writer.commit(batch);
    let mut done = Vec::new();
    journal.completed(&mut done).await;
    assert_eq!(done.iter().map(|done| done.tag).collect::<Vec<_>>(), Vec::from_iter(0..count));
    done.into_iter().map(|done| done.outcome.map_err(|error| error.kind())).collect()
}

fn writes<const N: usize>(changes: [Change; N]) -> Vec<Work> {
    changes.map(Work::Write).into()
}

#[tokio::test]
async fn what_queued_up_is_one_commit_and_comes_back_in_order() {
    let memory = Memory::default();
    let outcomes = together(&memory, writes([begin(1), begin(2), give(3), finish(1), forget(2)])).await;
    assert_eq!(outcomes, vec![Ok(None); 5]);
    let state = memory.0.lock().unwrap();
    assert_eq!(state.commits, [vec![begin(1), begin(2), give(3), finish(1), forget(2)]]);
}

#[tokio::test]
async fn reads_see_results_of_their_own_group_and_rows_it_forgets() {
    let memory = Memory::default();
    together(&memory, writes([begin(1), finish(1), begin(2)])).await;
    let work = [Work::Read(Row(1)), Work::Write(forget(1)), Work::Write(finish(2)), Work::Read(Row(2))];
    let outcomes = together(&memory, work.into()).await;
    let text = |text: &str| Ok(Some(Bytes::from(text.to_owned())));
    assert_eq!(outcomes, [text("the result of 1"), Ok(None), Ok(None), text("the result of 2")]);
    assert_eq!(together(&memory, vec![Work::Read(Row(1))]).await, [Err(StoreErrorKind::Missing)]);
}

#[tokio::test]
async fn a_group_that_fails_is_tried_again_in_parts() {
    let memory = Memory::default();
    together(&memory, writes([begin(1), begin(2), begin(3), finish(3)])).await;
    memory.0.lock().unwrap().refuses =
        Some(|batch| batch.iter().any(|change| matches!(change, Change::Begin(_))));
    let full = Err(StoreErrorKind::Full);
    let group = [begin(4), finish(1), forget(3), give(5), finish(2)];
    let outcomes = together(&memory, writes(group)).await;
    assert_eq!(outcomes, [full.clone(), Ok(None), Ok(None), full, Ok(None)]);
    let state = memory.0.lock().unwrap();
    assert_eq!(state.commits[1..], [vec![forget(3)], vec![finish(1), finish(2)]]);
}

#[tokio::test]
async fn a_row_begun_and_forgotten_in_a_group_that_fails_is_not_left_behind() {
    let memory = Memory::default();
    together(&memory, writes([begin(1)])).await;
    memory.0.lock().unwrap().refuses =
        Some(|batch| batch.iter().any(|change| matches!(change, Change::Finish { .. })));
    let outcomes = together(&memory, writes([begin(2), forget(2), finish(1)])).await;
    assert_eq!(outcomes, [Ok(None), Ok(None), Err(StoreErrorKind::Full)]);
    let state = memory.0.lock().unwrap();
    assert_eq!(state.loaded.keys().collect::<Vec<_>>(), [&Row(1)]);
}

/// What is logged while `work` is done on this thread: level and message of each line.
fn logged(work: impl FnOnce()) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&lines);
    let writer = move || Appends(Arc::clone(&written));
    let subscriber =
        tracing_subscriber::fmt().without_time().with_target(false).with_ansi(false).with_writer(writer);
    tracing::subscriber::with_default(subscriber.finish(), work);
    let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

struct Appends(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Appends {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes each group, one after the other, and gives what is logged of that.
fn groups_logged<const N: usize>(memory: &Memory, groups: [(Refuses, Vec<Change>); N]) -> Vec<String> {
    let (journal, mut writer) = journal(memory.clone(), Row(1), 64);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    logged(|| {
        for (refuses, group) in groups {
            memory.0.lock().unwrap().refuses = refuses;
            group.into_iter().for_each(|change| journal.submit(Work::Write(change), ()).unwrap());
            let batch = runtime.block_on(writer.batch()).unwrap();
            writer.commit(batch);
        }
    })
}

type Refuses = Option<fn(&[Change]) -> bool>;

#[test]
fn a_full_disk_is_logged_once_and_its_end_when_what_failed_before_was_written() {
    let memory = Memory::default();
    let no_begin: Refuses = Some(|batch| batch.iter().any(|change| matches!(change, Change::Begin(_))));
    let lines = groups_logged(
        &memory,
        [
            (None, vec![begin(1), begin(2)]),
            (no_begin, vec![begin(3), finish(1)]),
            // Rows that are forgotten, and results, are written in between: nothing of what fails.
            (no_begin, vec![forget(1), finish(2)]),
            (no_begin, vec![begin(4)]),
            (None, vec![forget(2)]),
            (None, vec![begin(5)]),
            (None, vec![begin(6)]),
        ],
    );
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].starts_with("ERROR the journal cannot be written error=memory: no room"), "{lines:?}");
    assert_eq!(lines[1], "INFO the journal can be written again");
}

#[test]
fn a_group_that_is_written_in_parts_at_once_is_no_failure_and_is_told_once() {
    let memory = Memory::default();
    // Each part has the room that the whole has not.
    let no_whole: Refuses = Some(|batch| batch.len() > 1);
    let group = |row| (no_whole, vec![begin(row), forget(row - 1)]);
    let lines = groups_logged(&memory, [group(2), group(3), (None, vec![begin(9)]), group(4)]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("WARN the journal was written only at the second attempt"), "{lines:?}");
}

#[tokio::test]
async fn counters_tell_changes_commits_and_failures() {
    let memory = Memory::default();
    memory.0.lock().unwrap().refuses =
        Some(|batch| batch.iter().any(|change| matches!(change, Change::Give(_))));
    let (journal, mut writer) = journal(memory, Row(1), 8);
    for change in [begin(1), give(2), begin(3)] {
        journal.submit(Work::Write(change), ()).unwrap();
    }
    let batch = writer.batch().await.unwrap();
    writer.commit(batch);
    assert_eq!(
        journal.counters(),
        Counters { failures: 3, is_failing: true, is_full: true, ..Counters::default() }
    );
    journal.submit(Work::Write(begin(1)), ()).unwrap();
    let batch = writer.batch().await.unwrap();
    writer.commit(batch);
    assert_eq!(journal.counters(), Counters { changes: 1, commits: 1, failures: 3, ..Counters::default() });
}

#[tokio::test]
async fn a_full_queue_and_a_writer_that_ended_give_the_work_back() {
    let (journal, writer) = journal(Memory::default(), Row(1), 1);
    journal.submit(Work::Write(begin(1)), 'a').unwrap();
    let refused = journal.submit(Work::Read(Row(9)), 'b').unwrap_err();
    assert_eq!(refused, QueueFull { work: Work::Read(Row(9)), tag: 'b', reason: Refused::Full });
    drop(writer);
    let refused = journal.submit(Work::Write(begin(2)), 'c').unwrap_err();
    assert_eq!(refused, QueueFull { work: Work::Write(begin(2)), tag: 'c', reason: Refused::Closed });
    let mut done = Vec::new();
    journal.completed(&mut done).await;
    assert_eq!(done.len(), 1);
    assert_eq!((done[0].tag, done[0].outcome.as_ref().unwrap_err().kind()), ('a', StoreErrorKind::Closed));
}

#[tokio::test]
async fn a_thread_drains_the_queue_and_ends_with_the_last_handle() {
    let memory = Memory::default();
    let (journal, writer) = journal(memory.clone(), Row(5), 4_096);
    let thread = spawn(writer).unwrap();
    let other = journal.clone();
    let rows: Vec<Row> = (0..3_000).map(|_| other.next_row()).collect();
    assert_eq!((rows[0], rows[2_999]), (Row(5), Row(3_004)));
    for row in &rows {
        other.submit(Work::Write(begin(row.0)), *row).unwrap();
    }
    drop(other);
    let mut done = Vec::new();
    while done.len() < rows.len() {
        journal.completed(&mut done).await;
    }
    assert_eq!(done.iter().map(|done| done.tag).collect::<Vec<_>>(), rows);
    assert!(done.iter().all(|done| done.outcome.is_ok()));
    for row in 9_000..9_100 {
        journal.submit(Work::Write(begin(row)), Row(row)).unwrap();
    }
    drop(journal);
    thread.join();
    let state = memory.0.lock().unwrap();
    assert_eq!(state.loaded.len(), 3_100, "what was queued when the last handle went is written too");
    assert!(state.commits.iter().all(|group| group.len() <= GROUP_CHANGES_MAX));
}

#[test]
fn the_first_free_row_follows_the_last_of_every_kind() {
    assert_eq!(Loaded::default().next_row(), Row(1));
    let (Change::Begin(begun), Change::Give(given)) = (begin(4), give(9)) else { unreachable!() };
    let calls = vec![LoadedCall { begun, finished: None }];
    assert_eq!(Loaded { calls: calls.clone(), ..Loaded::default() }.next_row(), Row(5));
    let given = vec![given];
    assert_eq!(Loaded { calls, given: given.clone(), ..Loaded::default() }.next_row(), Row(10));
    let Change::Reserve { reserved, .. } = reserve(12, None) else { unreachable!() };
    assert_eq!(Loaded { given, reserved: vec![reserved], ..Loaded::default() }.next_row(), Row(13));
}

#[test]
fn errors_say_what_where_and_what_to_do() {
    let error = StoreError::new(StoreErrorKind::Locked, "/var/lib/capd/journal.db", "database is locked");
    assert_eq!(
        error.to_string(),
        "/var/lib/capd/journal.db: database is locked: another process has it open: stop the other capd, or give \
         each its own agent.dir"
    );
}
