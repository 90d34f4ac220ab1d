use rusqlite::Connection;
use serde_json::{Value, json};

use super::super::StoreErrorKind;
use super::chain::{Break, Summary, Verifier, hex, record_hash};
use super::*;

/// A storage on a thread's own terms: what the writer is told is decided by the test.
#[derive(Default)]
struct Shelf {
    entries: Vec<Entry>,
    head: Head,
    refuses: bool,
}

impl AuditStorage for Shelf {
    fn append(&mut self, records: &[String]) -> Result<(), StoreError> {
        if self.refuses {
            return Err(StoreError::new(StoreErrorKind::Full, "shelf", "full"));
        }
        for record in records {
            let entry = self.head.after(record);
            self.entries.push(entry);
        }
        Ok(())
    }

    fn head(&mut self) -> Result<Head, StoreError> {
        Ok(self.head)
    }

    fn read(&mut self, after: u64, rows_max: usize, _: usize) -> Result<Vec<Entry>, StoreError> {
        Ok(self.entries.iter().filter(|entry| entry.seq > after).take(rows_max).cloned().collect())
    }

    fn erase(&mut self, places: &[(u64, u64)], note: &str) -> Result<(), StoreError> {
        for entry in &mut self.entries {
            if places.iter().any(|(first, last)| (*first..=*last).contains(&entry.seq)) {
                entry.record = None;
            }
        }
        self.append(&[note.to_owned()])
    }
}

fn record(number: u64) -> Record {
    let kind = if number.is_multiple_of(2) { Kind::Denied } else { Kind::LateResult };
    Record::new(kind, number).peer("did:key:a").capability(&format!("org.example.n{number}"))
}

fn canonical(number: u64) -> String {
    record(number).canonical("acme")
}

fn verify(storage: &mut impl AuditStorage) -> Result<Summary, Break> {
    let (mut verifier, mut after) = (Verifier::default(), 0);
    loop {
        let query = Query { after, rows_max: 7, bytes_max: usize::MAX, filter: None };
        let page = page(storage, &query).map_err(|error| Break::at(after + 1, error))?;
        for entry in &page.entries {
            verifier.take(entry)?;
        }
        match page.next {
            Some(next) => after = next,
            None => return verifier.finish(&page.head),
        }
    }
}

/// A file with so many records, closed, and its folder.
fn written(count: u64) -> (tempfile::TempDir, AuditOptions) {
    let dir = tempfile::tempdir().unwrap();
    let options = AuditOptions {
        file: dir.path().join("audit.db"),
        tenant: "acme".to_owned(),
        file_bytes_max: 1 << 30,
    };
    let mut place = AuditPlace::open(options.clone(), 0);
    place.append(&(1..=count).map(canonical).collect::<Vec<_>>()).unwrap();
    (dir, options)
}

fn sql(options: &AuditOptions, text: &str) {
    Connection::open(&options.file).unwrap().execute_batch(text).unwrap();
}

#[test]
fn the_vector_comes_out() {
    let record = json!({
        "capabilityName": "review-pr", "correlationId": "c-1", "kind": "capability_schema_violation",
        "peerId": "agent://pr-reviewer", "side": "request", "tenantId": "acme", "ts": 1_700_000_000_000_u64,
        "violations": [{"message": "value not in enum [\"low\", \"med\", \"high\"]", "path": "/severity"}]
    });
    let violations = [("/severity", "value not in enum [\"low\", \"med\", \"high\"]")];
    let made = Record::schema_violation(
        1_700_000_000_000,
        capd_proto::message::SchemaSide::Request,
        violations.into_iter(),
    );
    let made = made.capability("review-pr").peer("agent://pr-reviewer").with("correlationId", "c-1");
    let canonical = made.canonical("acme");
    assert_eq!(serde_json::from_str::<Value>(&canonical).unwrap(), record, "the seed's fields and no others");
    assert_eq!(
        hex(&record_hash(None, &canonical)),
        "0d0487b1f867bbc5c4b3725864776b7480ad46b80cfbf77b35838701d92f7061"
    );
}

#[test]
fn a_hash_is_over_the_digits_of_the_one_before() {
    use sha2::{Digest as _, Sha256};
    let first = record_hash(None, "{}");
    assert_eq!(first[..], Sha256::digest(b"\n{}")[..]);
    assert_eq!(record_hash(Some(&first), "{}")[..], Sha256::digest(format!("{}\n{{}}", hex(&first)))[..]);
}

#[test]
fn what_is_written_is_there_after_a_restart_and_goes_on() {
    let (_dir, options) = written(20);
    let mut place = AuditPlace::open(options, 0);
    place.append(&[canonical(21)]).unwrap();
    let summary = verify(&mut place).unwrap();
    assert_eq!((summary.records, summary.pruned, summary.lost, summary.head.seq), (21, 0, 0, 21));
}

#[test]
fn each_way_to_tamper_is_told_with_its_row() {
    for (change, row, said) in [
        ("UPDATE records SET record = replace(record, 'n5', 'n6') WHERE seq = 5", 5, "was changed"),
        ("UPDATE records SET hash = zeroblob(32) WHERE seq = 5", 5, "was changed"),
        ("DELETE FROM records WHERE seq = 5", 5, "missing"),
        ("DELETE FROM records WHERE seq >= 9", 9, "up to row 20"),
        ("UPDATE records SET record = NULL WHERE seq BETWEEN 4 AND 6", 4, "no audit_pruned record"),
        ("UPDATE records SET record = NULL WHERE seq = 20", 20, "no audit_pruned record"),
        ("UPDATE records SET record = '[' WHERE seq = 5", 5, "was changed"),
        ("UPDATE records SET record = CAST(x'ff' AS TEXT) WHERE seq = 5", 5, "cannot be read"),
        ("UPDATE records SET hash = x'00' WHERE seq = 5", 5, "cannot be read"),
        ("UPDATE records SET seq = 100 WHERE seq = 5", 5, "the next row is 6"),
        ("UPDATE records SET seq = -5 WHERE seq = 5", 5, "missing"),
    ] {
        let (_dir, options) = written(20);
        assert_eq!(verify(&mut AuditFile::read(&options.file).unwrap()).unwrap().records, 20);
        // A file that is being looked at when it is changed, so that its ends are not what is found.
        let mut file = AuditFile::read(&options.file).unwrap();
        sql(&options, change);
        let found = verify(&mut file).unwrap_err();
        assert_eq!(found.seq, row, "{change}: {found}");
        assert!(found.what.contains(said), "{change}: {found}");
    }
}

#[test]
fn a_row_that_was_written_anew_with_its_hash_breaks_the_next() {
    let (_dir, options) = written(20);
    let mut file = AuditFile::read(&options.file).unwrap();
    let entries = file.read(0, 20, usize::MAX).unwrap();
    let forged = canonical(99);
    let hash = record_hash(entries[3].prev_hash.as_ref(), &forged);
    sql(&options, &format!("UPDATE records SET record = '{forged}', hash = x'{}' WHERE seq = 4", hex(&hash)));
    let found = verify(&mut file).unwrap_err();
    assert_eq!(found.seq, 5, "{found}");
}

#[test]
fn pruning_leaves_a_chain_that_still_verifies() {
    let (_dir, options) = written(5_000);
    let mut file = AuditFile::write(&options.file, None).unwrap();
    let (mut after, mut records) = (0, 0);
    loop {
        let pruned = prune(&mut file, "acme", after, 4_901, 10_000).unwrap();
        records += pruned.records;
        match pruned.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(records, 4_900);
    let summary = verify(&mut file).unwrap();
    assert_eq!((summary.pruned, summary.head.seq - summary.records), (4_900, 4_900));
    let first = file.read(0, 1, usize::MAX).unwrap().remove(0);
    assert_eq!(first.to_json()["pruned"], true);
    let bytes = std::fs::read(&options.file).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(!holds("org.example.n4900\""), "what was pruned is gone from the file");
    assert!(holds("org.example.n4901\""), "and what was not is there");
    // Again, with nothing to do.
    assert_eq!(prune(&mut file, "acme", 0, 4_901, 10_000).unwrap().records, 0);
    drop(file);
    sql(&options, "UPDATE records SET record = NULL WHERE seq = 4950");
    let found = verify(&mut AuditFile::read(&options.file).unwrap()).unwrap_err();
    assert_eq!(found.seq, 4_950, "{found}");
}

#[test]
fn a_prune_names_a_bounded_number_of_runs_and_goes_on_behind_them() {
    let mut shelf = Shelf::default();
    // Every second record is young.
    let records = (1..=400).map(|number| record(if number % 2 == 0 { number } else { number + 1_000 }));
    let records = records.map(|record| record.canonical("acme")).collect::<Vec<_>>();
    shelf.append(&records).unwrap();
    let (mut after, mut steps, mut records) = (0, 0, 0);
    loop {
        let pruned = prune(&mut shelf, "acme", after, 1_000, 5_000).unwrap();
        (steps, records) = (steps + 1, records + pruned.records);
        match pruned.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(records, 200);
    assert!(steps >= 4, "{steps}");
    assert_eq!(verify(&mut shelf).unwrap().pruned, 200);
}

#[test]
fn a_filter_takes_what_fits_all_of_it() {
    let (_dir, options) = written(300);
    let mut file = AuditFile::read(&options.file).unwrap();
    let mut found = |filter: Filter| -> Vec<u64> {
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let query = Query { after, rows_max: 11, bytes_max: 4_096, filter: Some(filter.clone()) };
            let page = page(&mut file, &query).unwrap();
            assert!(page.entries.len() <= 11);
            found.extend(page.entries.iter().map(|entry| entry.seq));
            match page.next {
                Some(next) => after = next,
                None => return found,
            }
        }
    };
    assert_eq!(found(Filter::default()).len(), 300);
    assert_eq!(found(Filter { kind: Some(Kind::Denied), ..Filter::default() }).len(), 150);
    let late = Filter { kind: Some(Kind::Denied), since_ms: Some(290), ..Filter::default() };
    assert_eq!(found(late), [290, 292, 294, 296, 298, 300]);
    let name = |name: &str| Filter { capability: Some(name.to_owned()), ..Filter::default() };
    assert_eq!(found(name("org.example.n7")), [7]);
    assert_eq!(found(name("org.example.*")).len(), 300);
    assert_eq!(found(name("org.other.*")), [0; 0]);
    assert_eq!(found(Filter { peer: Some("did:key:b".to_owned()), ..Filter::default() }), [0; 0]);
}

#[test]
fn a_damaged_file_is_moved_aside_and_a_new_chain_says_so() {
    type Damage = fn(&AuditOptions);
    let damages: [(&str, Damage); 5] = [
        ("no database", |options| std::fs::write(&options.file, [7; 5_000]).unwrap()),
        ("empty", |options| std::fs::write(&options.file, "").unwrap()),
        ("no end", |options| sql(options, "UPDATE head SET seq = 30")),
        ("another last row", |options| sql(options, "UPDATE records SET record = '{}' WHERE seq = 20")),
        ("no table", |options| sql(options, "DROP TABLE records")),
    ];
    for (what, damage) in damages {
        let (dir, options) = written(20);
        damage(&options);
        let damaged = std::fs::read(&options.file).unwrap();
        let mut place = AuditPlace::open(options.clone(), 77);
        place.append(&[canonical(1)]).unwrap();
        let entries = place.read(0, 10, usize::MAX).unwrap();
        let first: Value = serde_json::from_str(entries[0].record.as_deref().unwrap()).unwrap();
        assert_eq!((&first["kind"], &first["ts"]), (&json!("audit_replaced"), &json!(77)), "{what}");
        let aside = dir.path().join(first["movedTo"].as_str().unwrap());
        assert_eq!(std::fs::read(aside).unwrap(), damaged, "{what}: it is kept as it was");
        assert_eq!(verify(&mut place).unwrap().records, 2, "{what}");
    }
}

#[test]
fn a_file_that_was_moved_away_is_followed_by_a_new_one() {
    let (dir, options) = written(3);
    let mut place = AuditPlace::open(options.clone(), 0);
    place.append(&[canonical(4)]).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let name = |name: &str| dir.path().join(format!("{name}{suffix}"));
        std::fs::rename(name("audit.db"), name("rotated.db")).unwrap();
    }
    place.append(&[canonical(1)]).unwrap();
    assert_eq!(verify(&mut AuditFile::read(&options.file).unwrap()).unwrap().records, 1);
    let rotated = dir.path().join("rotated.db");
    assert_eq!(verify(&mut AuditFile::read(&rotated).unwrap()).unwrap().records, 4);
}

#[test]
fn another_programs_database_and_a_later_capds_log_are_left_alone() {
    for (change, kind) in [
        ("PRAGMA application_id = 5", StoreErrorKind::Foreign),
        ("PRAGMA user_version = 9", StoreErrorKind::Newer { found: 9, known: 1 }),
    ] {
        let (dir, options) = written(3);
        sql(&options, change);
        let mut place = AuditPlace::open(options.clone(), 0);
        assert_eq!(place.append(&[canonical(1)]).unwrap_err().kind(), kind);
        drop(place);
        let files: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["audit.db"]);
    }
}

#[test]
fn a_full_file_takes_records_again_once_it_is_pruned() {
    let (_dir, mut options) = written(1);
    options.file_bytes_max = 256 * 1024;
    let mut place = AuditPlace::open(options, 0);
    let mut number = 1;
    let error = loop {
        number += 1;
        match place.append(&[record(number).with("filling", "x".repeat(1_000)).canonical("acme")]) {
            Ok(()) => assert!(number < 1_000, "it never gets full"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), StoreErrorKind::Full);
    assert!(error.to_string().contains("prune"), "{error}");
    prune(&mut place, "acme", 0, number, number).unwrap();
    place.append(&[canonical(number)]).unwrap();
    verify(&mut place).unwrap();
}

#[test]
fn records_that_are_lost_are_counted_and_the_next_one_says_how_many() {
    let (audit, mut writer) = log::audit(Shelf { refuses: true, ..Shelf::default() }, "acme");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        for number in 1..=3 {
            audit.record(record(number));
        }
        let batch = writer.batch().await.unwrap();
        writer.commit(batch);
        assert_eq!(audit.counters(), AuditCounters { lost: 3, is_failing: true, ..AuditCounters::default() });
        writer.storage_mut().refuses = false;
        audit.record(record(4));
        let batch = writer.batch().await.unwrap();
        writer.commit(batch);
    });
    assert_eq!(audit.counters(), AuditCounters { written: 2, lost: 3, ..AuditCounters::default() });
    let shelf = writer.storage_mut();
    let first: Value = serde_json::from_str(shelf.entries[0].record.as_deref().unwrap()).unwrap();
    assert_eq!(
        (&first["kind"], &first["records"], &first["ts"]),
        (&json!("audit_lost"), &json!(3), &json!(4))
    );
    assert_eq!(verify(shelf).unwrap().lost, 3);
}

#[test]
fn a_full_queue_costs_records_and_never_a_wait() {
    let (audit, mut writer) = log::audit(Shelf::default(), "acme");
    for number in 0..5_000 {
        audit.record(record(number));
    }
    assert_eq!(audit.counters().lost, 5_000 - 4_096);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let asked = audit.page(Query::default()).await.unwrap_err();
        assert!(asked.to_string().contains("later"), "{asked}");
        let big = "x".repeat(9 * 1024 * 1024);
        for _ in 0..8 {
            let batch = writer.batch().await.unwrap();
            writer.commit(batch);
        }
        let lost = audit.counters().lost;
        audit.record(record(1).with("big", big.as_str()));
        audit.record(record(1).with("big", big.as_str()));
        assert_eq!(audit.counters().lost, lost + 1, "bytes are bounded too");
        audit.close().await;
        while let Some(batch) = writer.batch().await {
            writer.commit(batch);
        }
        audit.record(record(1));
        assert_eq!(audit.counters().lost, lost + 2, "what comes behind the end is lost");
    });
    assert_eq!(verify(writer.storage_mut()).unwrap().lost, 5_000 - 4_096 + 1);
}

#[test]
fn a_log_that_is_off_keeps_nothing_and_says_so() {
    let audit = Audit::off();
    audit.record(record(1));
    assert_eq!(audit.counters(), AuditCounters::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(audit.page(Query::default())).unwrap_err();
    assert!(error.to_string().contains("audit.file"), "{error}");
}

#[test]
fn text_of_others_making_is_cut() {
    let text = short(&"ä".repeat(5_000));
    assert!(text.len() <= 1_024 && text.ends_with('…'));
    assert_eq!(short("abc"), "abc");
    let findings: Vec<_> = (0..100)
        .map(|_| Finding {
            side: capd_proto::message::SchemaSide::Request,
            path: "/a".to_owned(),
            rule: "type".to_owned(),
            witness: Some(json!("x".repeat(5_000))),
        })
        .collect();
    let canonical = Record::drift(1, 4902, &findings).canonical("acme");
    assert!(canonical.len() < 10_000, "{}", canonical.len());
    let record: Value = serde_json::from_str(&canonical).unwrap();
    assert_eq!(record["findings"].as_array().unwrap().len(), 64);
    assert_eq!(record["findings"][0]["witnessBytes"], 5_002);
}

#[test]
fn denials_leave_the_reserve_to_other_kinds_until_it_is_pruned() {
    let (_dir, mut options) = written(1);
    options.file_bytes_max = 256 * 1024;
    let (audit, writer) = log::audit(AuditPlace::open(options, 0), "acme");
    let mut writer = writer.reserve(50);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut commit = |record: Record| {
        audit.record(record);
        let batch = runtime.block_on(writer.batch()).unwrap();
        writer.commit(batch);
    };
    let denial = |number| Record::new(Kind::Denied, number).with("filling", "x".repeat(1_000));
    (1..400).for_each(|number| commit(denial(number)));
    let full = audit.counters();
    assert!((50..60).contains(&full.used_percent) && full.withheld > 100, "{full:?}");
    assert_eq!(full.written + full.withheld, 399);
    commit(Record::new(Kind::BindingMismatch, 400));
    assert_eq!(audit.counters().withheld, full.withheld + 1);
    // Another kind is written, behind one that says how many are missing.
    commit(record(401));
    let after = audit.counters();
    assert_eq!((after.written, after.lost), (full.written + 2, full.withheld + 1));
    let storage = writer.storage_mut();
    prune(storage, "acme", 0, 402, 402).unwrap();
    assert!(storage.used_percent().unwrap() < 50);
    let mut writer = writer.reserve(50);
    audit.record(denial(403));
    let batch = runtime.block_on(writer.batch()).unwrap();
    writer.commit(batch);
    assert_eq!(audit.counters().written, after.written + 1);
    verify(writer.storage_mut()).unwrap();
}

#[test]
fn the_room_of_what_was_pruned_is_used_again() {
    let (_dir, mut options) = written(1);
    options.file_bytes_max = 256 * 1024;
    let mut place = AuditPlace::open(options, 0);
    let mut number = 1;
    let mut fill = |place: &mut AuditPlace| {
        let begin = number;
        while place.append(&[record(number).with("filling", "x".repeat(1_000)).canonical("acme")]).is_ok() {
            number += 1;
        }
        number - begin
    };
    let first = fill(&mut place);
    prune(&mut place, "acme", 0, u64::MAX, 10_000).unwrap();
    let second = fill(&mut place);
    assert!(second > first * 9 / 10, "{first} records, then {second}");
    verify(&mut place).unwrap();
}
