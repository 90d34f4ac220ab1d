//! Tests one journal in its own folder: what it keeps, what it refuses to open, and what it does while it cannot write.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use proptest::prelude::*;

use super::super::migrations::MIGRATIONS;
use super::super::tests::{answer, begin, finish, forget, give, key, release, reserve};
use super::super::{LoadedCall, LoadedKey, LoadedResult, Replica};
use super::mark::Mark;
use super::*;

fn open(folder: &Path) -> Result<Sqlite, StoreError> {
    Sqlite::open(folder, Options::default())
}

fn refusal(folder: &Path) -> StoreError {
    open(folder).expect_err("it is not to be opened")
}

/// A folder with a closed journal of these changes, one commit.
fn written(changes: &[Change]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).unwrap().commit(changes).unwrap();
    dir
}

fn call(row: u64) -> LoadedCall {
    let Change::Begin(begun) = begin(row) else { unreachable!() };
    LoadedCall { begun, finished: None }
}

fn finished(row: u64) -> LoadedCall {
    let Change::Finish { result, finished_at_ms, .. } = finish(row) else { unreachable!() };
    let result = LoadedResult { bytes: result.len(), finished_at_ms };
    LoadedCall { finished: Some(result), ..call(row) }
}

fn given(row: u64) -> Given {
    let Change::Give(given) = give(row) else { unreachable!() };
    given
}

fn reserved(row: u64) -> Reserved {
    let Change::Reserve { reserved, .. } = reserve(row, None) else { unreachable!() };
    reserved
}

/// Runs SQL on a closed journal, as somebody else would.
fn meddle(folder: &Path, sql: &str) {
    Connection::open(folder.join("journal.db")).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn what_was_written_is_there_after_closing() {
    let changes = [begin(1), give(2), begin(3), finish(3), begin(4), finish(1)];
    let dir = written(&changes);
    let mut journal = open(dir.path()).unwrap();
    let expected =
        Loaded { calls: vec![finished(1), finished(3), call(4)], given: vec![given(2)], ..Loaded::default() };
    assert_eq!(journal.load().unwrap(), expected);
    assert_eq!(journal.load().unwrap(), expected, "a second time from the file");
    assert_eq!(journal.read(Row(3)).unwrap(), "the result of 3");
    for row in [2, 4, 9] {
        assert_eq!(journal.read(Row(row)).unwrap_err().kind(), StoreErrorKind::Missing);
    }
    journal.commit(&[forget(1), forget(2), forget(3), forget(77)]).unwrap();
    assert_eq!(journal.read(Row(3)).unwrap_err().kind(), StoreErrorKind::Missing);
    drop(journal);
    let expected = Loaded { calls: vec![call(4)], ..Loaded::default() };
    assert_eq!(open(dir.path()).unwrap().load().unwrap(), expected);
}

#[test]
fn a_call_that_was_released_is_refused_after_a_start_until_it_is_forgotten() {
    let dir = written(&[release(1), begin(2), release(3)]);
    let mut journal = open(dir.path()).unwrap();
    let left = |row: u64| {
        let Change::Release(released) = release(row) else { unreachable!() };
        released
    };
    assert_eq!(journal.load().unwrap().released, [left(1), left(3)]);
    assert_eq!(journal.load().unwrap().next_row(), Row(4));
    journal.commit(&[forget(1)]).unwrap();
    drop(journal);
    assert_eq!(open(dir.path()).unwrap().load().unwrap().released, [left(3)]);
    meddle(dir.path(), "UPDATE released SET expires_at_ms = expires_at_ms - 1");
    assert_eq!(refusal(dir.path()).kind(), StoreErrorKind::Corrupt);
}

#[test]
fn a_call_that_moved_has_one_row_after_any_commit() {
    let dir = written(&[give(1), give(2)]);
    let mut journal = open(dir.path()).unwrap();
    let moved = |row: u64, replaces: u64| {
        let Change::Give(given) = give(row) else { unreachable!() };
        Change::Move { given, replaces: Row(replaces) }
    };
    journal.commit(&[moved(3, 1)]).unwrap();
    assert_eq!(journal.load().unwrap().given, [given(2), given(3)]);
    let released = Given { released_by: Some(given(1).replica.peer), ..given(4) };
    journal.commit(&[Change::Move { given: released.clone(), replaces: Row(3) }]).unwrap();
    assert_eq!(journal.load().unwrap().given, [given(2), released.clone()]);
    // A row that is there already fails the whole change: what it was to replace stays.
    assert_eq!(journal.commit(&[moved(4, 2)]).unwrap_err().kind(), StoreErrorKind::Conflict);
    drop(journal);
    assert_eq!(open(dir.path()).unwrap().load().unwrap().given, [given(2), released]);
    meddle(dir.path(), "UPDATE given SET released_by = NULL WHERE row = 4");
    assert_eq!(refusal(dir.path()).kind(), StoreErrorKind::Corrupt);
}

#[test]
fn a_key_and_its_answer_are_there_until_they_are_forgotten() {
    let dir = written(&[key(1), begin(2), key(3), answer(1), finish(2)]);
    let mut journal = open(dir.path()).unwrap();
    let left = |row: u64, is_answered: bool| {
        let Change::Key(keyed) = key(row) else { unreachable!() };
        LoadedKey { keyed: *keyed, is_answered }
    };
    assert_eq!(journal.load().unwrap().keys, [left(1, true), left(3, false)]);
    assert_eq!(journal.load().unwrap().next_row(), Row(4));
    assert_eq!(journal.read(Row(1)).unwrap(), "the answer of 1");
    assert_eq!(journal.read(Row(3)).unwrap_err().kind(), StoreErrorKind::Missing);
    for odd in [answer(1), answer(2), key(3)] {
        assert_eq!(journal.commit(&[odd]).unwrap_err().kind(), StoreErrorKind::Conflict);
    }
    journal.commit(&[forget(1)]).unwrap();
    drop(journal);
    let mut journal = open(dir.path()).unwrap();
    assert_eq!(journal.load().unwrap().keys, [left(3, false)]);
    assert_eq!(journal.read(Row(1)).unwrap_err().kind(), StoreErrorKind::Missing);
}

#[test]
fn what_is_forgotten_is_in_no_file_once_it_is_tidied() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path()).unwrap();
    let long = |row: u64, text: &str| {
        let result = text.repeat(2_000).into();
        [begin(row), Change::Finish { row: Row(row), result, finished_at_ms: 1 }]
    };
    let holds = |text: &str| {
        let files =
            ["journal.db", "journal.db-wal"].map(|name| fs::read(dir.path().join(name)).unwrap_or_default());
        files.concat().windows(text.len()).any(|window| window == text.as_bytes())
    };
    journal.commit(&[long(1, "private one"), long(2, "private two")].concat()).unwrap();
    assert!(holds("private one") && holds("private two"));
    journal.commit(&[forget(1)]).unwrap();
    journal.tidy().unwrap();
    assert!(!holds("private one") && holds("private two"));
    assert_eq!(journal.read(Row(2)).unwrap(), "private two".repeat(2_000));
    journal.commit(&long(3, "private three")).unwrap();
    drop(journal);
    assert_eq!(open(dir.path()).unwrap().load().unwrap().calls.len(), 2);
    assert!(!holds("private one"));
}

#[test]
fn a_reservation_takes_the_place_of_another_in_one_transaction() {
    let dir = written(&[reserve(1, None), reserve(2, None), reserve(3, Some(1))]);
    let mut journal = open(dir.path()).unwrap();
    assert_eq!(journal.load().unwrap().reserved, [reserved(2), reserved(3)]);
    // The one that is to be replaced may be gone, and a row that is taken leaves all as it was.
    journal.commit(&[reserve(4, Some(77))]).unwrap();
    let error = journal.commit(&[reserve(4, Some(2))]).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Conflict);
    journal.commit(&[forget(3)]).unwrap();
    drop(journal);
    assert_eq!(open(dir.path()).unwrap().load().unwrap().reserved, [reserved(2), reserved(4)]);
}

#[test]
fn a_journal_of_the_first_version_is_brought_up_to_date() {
    let changes = [begin(1), finish(1), begin(2), give(3)];
    let dir = written(&changes);
    let totals = Totals { commits: 1, calls: 2, results: 1, given: 1, ..Totals::default() };
    let without_journal = Given { replica: Replica { journal: None, ..given(3).replica }, ..given(3) };
    let sum = rows::given_sum(&without_journal);
    meddle(
        dir.path(),
        &format!(
            "CREATE TEMP TABLE c AS SELECT * FROM calls; CREATE TEMP TABLE r AS SELECT * FROM results;
             CREATE TEMP TABLE g AS SELECT * FROM given;
             DROP TABLE calls; DROP TABLE results; DROP TABLE given; DROP TABLE totals; DROP TABLE reserved;
             DROP TABLE keys; DROP TABLE answers; DROP TABLE released;
             {} INSERT INTO calls SELECT * FROM c; INSERT INTO results SELECT * FROM r;
             INSERT INTO given SELECT row, id, peer, expires_at_ms, {sum} FROM g;
             INSERT INTO totals VALUES (1, 1, 2, 1, 1, 0, {});
             PRAGMA user_version = 1",
            MIGRATIONS[0],
            totals.sum()
        ),
    );
    for name in ["journal.mark", "last-journal"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    let calls = vec![finished(1), call(2)];
    let expected = Loaded { calls, given: vec![without_journal], ..Loaded::default() };
    let mut journal = open(dir.path()).unwrap();
    assert_eq!(journal.load().unwrap(), expected);
    journal.commit(&[reserve(4, None)]).unwrap();
    let id = journal.journal_id();
    drop(journal);
    let expected = Loaded { reserved: vec![reserved(4)], ..expected };
    let mut journal = open(dir.path()).unwrap();
    assert_eq!(journal.load().unwrap(), expected);
    assert_eq!(journal.journal_id(), id, "it has an id from then on");
}

#[test]
fn a_reservation_of_the_second_version_is_brought_up_to_date() {
    let dir = written(&[]);
    let mut reserved = reserved(4);
    reserved.replicas = vec![Replica { journal: None, ..reserved.replicas.remove(0) }];
    let totals = Totals { commits: 1, reserved: 1, ..Totals::default() };
    let peer = reserved.replicas[0].peer.as_str();
    let (capability, sum) = (&reserved.capability, rows::reserved_sum(&reserved));
    meddle(
        dir.path(),
        &format!(
            "DROP TABLE calls; DROP TABLE results; DROP TABLE given; DROP TABLE totals; DROP TABLE reserved;
             DROP TABLE keys; DROP TABLE answers; DROP TABLE released; {} {}
             INSERT INTO reserved VALUES (4, '{capability}', 4, 14, '{peer}', 1004, {sum});
             INSERT INTO totals VALUES (1, 1, 0, 0, 0, 0, {}, 1); PRAGMA user_version = 2",
            MIGRATIONS[0],
            MIGRATIONS[1],
            totals.sum()
        ),
    );
    for name in ["journal.mark", "last-journal"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    let expected = Loaded { reserved: vec![reserved], ..Loaded::default() };
    assert_eq!(open(dir.path()).unwrap().load().unwrap(), expected);
    assert_eq!(open(dir.path()).unwrap().load().unwrap(), expected);
}

/// The id of a folder's journal, which is open while it is looked at.
fn id_of(folder: &Path) -> JournalId {
    open(folder).unwrap().journal_id()
}

#[test]
fn a_journal_keeps_its_id_for_as_long_as_it_forgets_nothing() {
    let dir = written(&[begin(1)]);
    let id = id_of(dir.path());
    assert_eq!(id_of(dir.path()), id);
    assert_ne!(id_of(written(&[begin(1)]).path()), id);
    // As a power cut leaves it: the file beside the journal is behind.
    let last = dir.path().join("last-journal");
    let behind = fs::read(&last).unwrap();
    open(dir.path()).unwrap().commit(&[begin(2)]).unwrap();
    fs::write(&last, behind).unwrap();
    assert_eq!(id_of(dir.path()), id);
    // Moved as a whole, it is still the same.
    let other = tempfile::tempdir().unwrap();
    for name in ["journal.db", "journal.mark", "last-journal"] {
        fs::copy(dir.path().join(name), other.path().join(name)).unwrap();
    }
    assert_eq!(id_of(other.path()), id);
}

#[test]
fn a_journal_that_may_have_forgotten_calls_gets_a_new_id() {
    let dir = written(&[begin(1)]);
    let own = ["journal.db", "journal.mark"].map(|name| dir.path().join(name));
    let copy = own.clone().map(|file| fs::read(file).unwrap());
    let put_back = || own.iter().zip(&copy).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    let mut ids = vec![id_of(dir.path())];
    let mut next = |why: &str| {
        let id = id_of(dir.path());
        assert!(!ids.contains(&id), "{why}");
        assert_eq!(id_of(dir.path()), id, "{why}: it stays");
        ids.push(id);
    };
    // Opening it has made a commit since.
    put_back();
    next("an older copy");
    put_back();
    next("an older copy of another id than the last");
    own.iter().for_each(|file| fs::remove_file(file).unwrap());
    next("a new one");
    fs::remove_file(dir.path().join("last-journal")).unwrap();
    next("nothing says what was there");
    fs::write(dir.path().join("last-journal"), "no word").unwrap();
    next("nothing readable says what was there");
    assert_eq!(open(dir.path()).unwrap().load().unwrap().calls, []);
}

#[test]
fn how_far_rows_have_expired_is_never_forgotten() {
    let dir = written(&[begin(1), begin(2), begin(3)]);
    let expire = |row, expires_at_ms| Change::Expire { row: Row(row), expires_at_ms };
    for (changes, expired_ms) in [
        (vec![expire(1, 1_001)], 1_001),
        (vec![expire(3, 1_003), expire(2, 1_002)], 1_003),
        (vec![expire(9, 5)], 1_003),
    ] {
        open(dir.path()).unwrap().commit(&changes).unwrap();
        assert_eq!(open(dir.path()).unwrap().load().unwrap().expired_ms, expired_ms);
    }
    assert_eq!(open(dir.path()).unwrap().load().unwrap().calls, []);
}

#[test]
fn files_are_private_and_a_closed_journal_has_no_log() {
    let dir = written(&[begin(1)]);
    let names = || {
        let entries = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries
            .map(|entry| {
                assert_eq!(entry.metadata().unwrap().mode() & 0o777, 0o600, "{entry:?}");
                entry.file_name().into_string().unwrap()
            })
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["journal.db", "journal.mark", "last-journal"]);
    let _open = open(dir.path()).unwrap();
    let open = ["journal.db", "journal.db-wal", "journal.mark", "last-journal"];
    assert_eq!(names(), open, "no shared memory beside them");
}

#[test]
fn a_result_without_its_call_and_a_row_that_is_taken_fail_with_their_group_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path()).unwrap();
    journal.commit(&[begin(1), finish(1), give(2)]).unwrap();
    for wrong in [finish(9), begin(1), finish(1), give(2)] {
        let error = journal.commit(&[begin(3), wrong]).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}");
    }
    journal.commit(&[begin(3), finish(3)]).unwrap();
    drop(journal);
    let expected =
        Loaded { calls: vec![finished(1), finished(3)], given: vec![given(2)], ..Loaded::default() };
    assert_eq!(open(dir.path()).unwrap().load().unwrap(), expected);
}

#[test]
fn a_row_begun_and_forgotten_in_one_group_is_not_there() {
    let dir = written(&[begin(1), finish(1), forget(1), begin(2), forget(2), give(3), forget(3), begin(4)]);
    assert_eq!(open(dir.path()).unwrap().load().unwrap().calls, [call(4)]);
}

#[test]
fn results_of_any_size_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let result = |bytes: usize| Bytes::from_iter((0..bytes).map(|at| (at % 253) as u8));
    let sizes = [0, 1, 4_000, 4_096, 70_000, 5_000_000];
    let mut journal = open(dir.path()).unwrap();
    for (row, bytes) in (1..).zip(sizes) {
        let finish = Change::Finish { row: Row(row), result: result(bytes), finished_at_ms: u64::MAX };
        journal.commit(&[begin(row), finish]).unwrap();
    }
    drop(journal);
    let mut journal = open(dir.path()).unwrap();
    let loaded = journal.load().unwrap();
    for ((row, bytes), call) in (1..).zip(sizes).zip(loaded.calls) {
        assert_eq!(call.finished, Some(LoadedResult { bytes, finished_at_ms: u64::MAX }));
        assert_eq!(journal.read(Row(row)).unwrap(), result(bytes));
    }
}

#[test]
fn a_second_opener_is_told_that_it_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    assert_eq!(refusal(dir.path()).kind(), StoreErrorKind::Locked);
    drop(first);
    open(dir.path()).unwrap();
}

#[test]
fn starts_at_once_make_one_journal() {
    let dir = tempfile::tempdir().unwrap();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| open(dir.path()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1);
    for error in opened.iter().filter_map(|opened| opened.as_ref().err()) {
        assert_eq!(error.kind(), StoreErrorKind::Locked, "{error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "no temporary file is left");
}

#[test]
fn a_later_schema_is_named_with_both_versions() {
    let dir = written(&[begin(1)]);
    meddle(dir.path(), "PRAGMA user_version = 7");
    let error = refusal(dir.path());
    assert_eq!(error.kind(), StoreErrorKind::Newer { found: 7, known: super::super::migrations::VERSION });
    assert!(error.to_string().contains("journal.db: its schema version is 7"), "{error}");
}

#[test]
fn another_file_is_no_journal_and_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.db");
    for text in ["a letter", &"a long letter ".repeat(1_000)] {
        fs::write(&path, text).unwrap();
        assert_eq!(refusal(dir.path()).kind(), StoreErrorKind::Foreign);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    fs::remove_file(&path).unwrap();
    meddle(dir.path(), "CREATE TABLE other (x)");
    assert_eq!(refusal(dir.path()).kind(), StoreErrorKind::Foreign);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was made beside it");
}

#[test]
fn content_that_somebody_changed_is_corrupt() {
    let changes = [begin(1), finish(1), begin(2), give(3), reserve(4, None), key(5), answer(5)];
    let Change::Reserve { reserved, .. } = &changes[4] else { unreachable!() };
    assert!(
        reserved.replicas.len() > 1 && given(3).replica.journal.is_some(),
        "there is something to change"
    );
    for sql in [
        "UPDATE calls SET expires_at_ms = expires_at_ms + 1 WHERE row = 2",
        "UPDATE calls SET row = 9 WHERE row = 2",
        "UPDATE results SET result = x'00'",
        "UPDATE results SET row = 2",
        "UPDATE given SET peer = 'did:web:other.example'",
        "UPDATE given SET id = x'00'",
        "UPDATE given SET journal = NULL",
        "UPDATE given SET journal = x'00'",
        "UPDATE totals SET journal = zeroblob(16)",
        "UPDATE reserved SET journals = x''",
        "UPDATE reserved SET journals = CAST(journals || x'00' AS BLOB)",
        "UPDATE reserved SET peers = peers || ' did:web:more.example'",
        "UPDATE totals SET commits = 9",
        "DELETE FROM calls WHERE row = 2",
        "DELETE FROM calls WHERE row = 1",
        "DELETE FROM results",
        "DELETE FROM given",
        "UPDATE reserved SET until_ms = until_ms + 1",
        "DELETE FROM reserved",
        "UPDATE keys SET key = digest",
        "UPDATE keys SET terms = x''",
        "UPDATE keys SET expires_at_ms = expires_at_ms + 1",
        "UPDATE answers SET answer = x'00'",
        "UPDATE answers SET row = 4",
        "DELETE FROM keys",
        "DELETE FROM answers",
        "DELETE FROM totals",
        "DROP TABLE given",
        "CREATE TABLE more (x)",
        "CREATE INDEX by_id ON calls (id)",
        "ALTER TABLE calls RENAME COLUMN body TO corpse",
        "PRAGMA user_version = 0",
        "PRAGMA application_id = 1",
        "PRAGMA journal_mode = DELETE",
    ] {
        let dir = written(&changes);
        meddle(dir.path(), sql);
        let error = refusal(dir.path());
        assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{sql}: {error}");
    }
}

#[test]
fn files_that_are_missing_are_not_taken_for_a_fresh_start() {
    let dir = written(&[begin(1)]);
    let path = |name: &str| dir.path().join(name);
    fs::rename(path("journal.db"), path("kept")).unwrap();
    assert!(refusal(dir.path()).to_string().contains("journal.mark knows of its commits"));
    fs::write(path("journal.db"), b"").unwrap();
    assert!(refusal(dir.path()).to_string().contains("the file is empty"));
    fs::remove_file(path("journal.db")).unwrap();
    fs::remove_file(path("journal.mark")).unwrap();
    fs::write(path("journal.db-wal"), b"x").unwrap();
    assert!(refusal(dir.path()).to_string().contains("though its log"));
    fs::remove_file(path("journal.db-wal")).unwrap();
    fs::rename(path("kept"), path("journal.db")).unwrap();
    assert_eq!(open(dir.path()).unwrap().load().unwrap().calls, [call(1)], "the mark alone may be missing");
    assert!(matches!(Mark::read(&path("journal.mark")).unwrap(), Mark::At(3)));
}

#[test]
fn a_database_older_than_its_mark_is_refused_and_left_as_it_is() {
    let dir = written(&[begin(1)]);
    let path = dir.path().join("journal.db");
    let older = fs::read(&path).unwrap();
    open(dir.path()).unwrap().commit(&[finish(1)]).unwrap();
    fs::write(&path, &older).unwrap();
    let error = refusal(dir.path());
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    assert!(error.to_string().contains("the last 2 of 4 commits are lost"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), older);
}

#[test]
fn a_damaged_mark_is_written_anew() {
    let dir = written(&[begin(1)]);
    let path = dir.path().join("journal.mark");
    for text in ["", "no mark", &"far too long ".repeat(9)] {
        fs::write(&path, text).unwrap();
        assert_eq!(open(dir.path()).unwrap().load().unwrap().calls, [call(1)]);
        assert!(matches!(Mark::read(&path).unwrap(), Mark::At(_)));
    }
}

#[test]
fn a_full_disk_fails_what_does_not_fit_and_later_commits_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(dir.path()).unwrap();
    let big = |row| {
        let result = Bytes::from(vec![7; 100_000]);
        [begin(row), Change::Finish { row: Row(row), result, finished_at_ms: 0 }]
    };
    journal.commit(&big(1)).unwrap();
    let pages: u32 = journal.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    journal.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    for row in 2..5 {
        assert_eq!(journal.commit(&big(row)).unwrap_err().kind(), StoreErrorKind::Full);
    }
    journal.commit(&[begin(9)]).unwrap();
    journal.commit(&[forget(1)]).unwrap();
    journal.commit(&big(10)).expect("the room of a forgotten row is used again");
    assert_eq!(journal.commit(&big(11)).unwrap_err().kind(), StoreErrorKind::Full);
    journal.connection.pragma_update_and_check(None, "max_page_count", 1_000_000, |_| Ok(())).unwrap();
    journal.commit(&big(12)).unwrap();
    drop(journal);
    let rows: Vec<Row> =
        open(dir.path()).unwrap().load().unwrap().calls.iter().map(|call| call.begun.row).collect();
    assert_eq!(rows, [Row(9), Row(10), Row(12)]);
}

#[test]
fn commits_are_copied_into_the_database_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { page_bytes: 1_024, checkpoint_pages: 8 };
    let mut journal = Sqlite::open(dir.path(), options).unwrap();
    for row in 1..200 {
        journal.commit(&[begin(row)]).unwrap();
    }
    let log = fs::metadata(dir.path().join("journal.db-wal")).unwrap().len();
    assert!(log < 40_000, "{log} bytes of log");
    assert!(fs::metadata(dir.path().join("journal.db")).unwrap().len() > 20_000);
}

#[test]
fn runs_of_rows_are_found() {
    let found: Vec<_> = ranges(&[1, 2, 2, 3, 5, 8, 9]).collect();
    assert_eq!(found, [(1, 3), (5, 5), (8, 9)]);
    assert_eq!(ranges(&[]).count(), 0);
}

#[test]
fn a_folder_that_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = refusal(&dir.path().join("absent"));
    assert_eq!(error.kind(), StoreErrorKind::Io);
    assert!(error.to_string().contains("absent/journal.db"), "{error}");
}

/// Root may write anywhere but where the system itself forbids it.
#[test]
#[cfg(target_os = "linux")]
fn what_may_not_be_written_is_read_only() {
    if rustix::process::geteuid().is_root() {
        let error = refusal(Path::new("/sys"));
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{error}");
        return;
    }
    let dir = written(&[begin(1)]);
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for name in ["", "journal.db", "journal.mark"] {
        let path = dir.path().join(name);
        let mode = fs::metadata(&path).unwrap().mode();
        set(&path, mode & 0o555);
        let error = refusal(dir.path());
        assert_eq!(error.kind(), StoreErrorKind::ReadOnly, "{name}: {error}");
        set(&path, mode);
    }
    assert_eq!(open(dir.path()).unwrap().load().unwrap().calls, [call(1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any groups of changes, with restarts between: what is loaded is what a map would hold.
    #[test]
    fn groups_and_restarts_keep_what_a_map_keeps(
        groups in prop::collection::vec((prop::collection::vec((0..4_u8, 0..40_u64), 0..12), any::<bool>()), 1..12)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = open(dir.path()).unwrap();
        let mut expected = std::collections::BTreeMap::<u64, (bool, bool)>::new();
        let mut next = 0;
        for (group, restart) in groups {
            let mut changes = Vec::new();
            for (operation, pick) in group {
                let row = expected.keys().copied().nth(pick as usize % expected.len().max(1)).unwrap_or(99);
                match (operation, expected.get(&row).copied()) {
                    (0, _) => {
                        next += 1;
                        expected.insert(next, (true, false));
                        changes.push(begin(next));
                    }
                    (1, _) => {
                        next += 1;
                        expected.insert(next, (false, false));
                        changes.push(give(next));
                    }
                    (2, Some((true, false))) => {
                        expected.insert(row, (true, true));
                        changes.push(finish(row));
                    }
                    _ => {
                        expected.remove(&row);
                        changes.push(forget(row));
                    }
                }
            }
            journal.commit(&changes).unwrap();
            if restart {
                drop(journal);
                journal = open(dir.path()).unwrap();
            }
            let mut model = Loaded::default();
            for (&row, &(is_call, done)) in &expected {
                match (is_call, done) {
                    (true, true) => model.calls.push(finished(row)),
                    (true, false) => model.calls.push(call(row)),
                    (false, _) => model.given.push(given(row)),
                }
            }
            prop_assert_eq!(journal.load().unwrap(), model);
        }
    }
}
