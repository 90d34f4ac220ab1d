//! Damaged journal files in, all acknowledged rows or a clear refusal out: never something between (PROTOCOL 8).
//!
//! A journal is built, and its files are copied as `kill -9` would leave them. Then bytes of every file are changed, one at
//! a time, and every file is cut, and each time the journal is opened. `CAPD_STORE_POSITIONS` says at how many places of a
//! file; above its length, at every one.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use capd::store::{
    Begun, Change, Given, Keyed, Loaded, LoadedCall, LoadedKey, LoadedResult, Options, Released, Replica,
    Reserved, Row, Sqlite, Storage, StoreErrorKind,
};
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::{BodyDigest, JournalId, Key};

/// The journal's files, as bytes; `None` where there is no such file.
type Files = [Option<Vec<u8>>; 4];
const NAMES: [&str; 4] = ["journal.db", "journal.db-wal", "journal.mark", "last-journal"];

/// A journal as a crash left it, and what it must be able to show.
struct Case {
    name: &'static str,
    files: Files,
    id: JournalId,
    acknowledged: Acknowledged,
}

/// What was acknowledged and not forgotten.
#[derive(Clone, Default)]
struct Acknowledged {
    loaded: Loaded,
    results: BTreeMap<Row, Bytes>,
}

/// One thing done to one file.
#[derive(Clone, Copy)]
enum Fault {
    Flip { file: usize, at: usize },
    Cut { file: usize, to: usize },
}

#[test]
fn a_journal_with_its_log_not_copied_opens_whole_or_is_refused() {
    survive(&build("log only", Options { page_bytes: 512, checkpoint_pages: 100_000 }, Leave::Running));
}

#[test]
fn a_journal_with_its_log_copied_opens_whole_or_is_refused() {
    survive(&build("database only", Options { page_bytes: 512, checkpoint_pages: 100_000 }, Leave::Closed));
}

#[test]
fn a_journal_with_some_of_its_log_copied_opens_whole_or_is_refused() {
    survive(&build("database and log", Options { page_bytes: 512, checkpoint_pages: 25 }, Leave::Running));
}

/// How a journal is left.
#[derive(PartialEq)]
enum Leave {
    /// As the system finds it after `kill -9`.
    Running,
    /// Shut down.
    Closed,
}

/// Acknowledged groups of every kind of change, some rows forgotten again.
fn build(name: &'static str, options: Options, leave: Leave) -> Case {
    let dir = folder();
    let mut journal = Sqlite::open(dir.path(), options).unwrap();
    let mut acknowledged = Acknowledged::default();
    let mut row = 0;
    for group in 0..GROUPS {
        let mut changes = Vec::new();
        for _ in 0..GROUP_CALLS {
            row += 1;
            changes.push(begin(row));
            if row % 5 != 0 {
                changes.push(finish(row));
            }
        }
        for _ in 0..GROUP_GIFTS {
            row += 1;
            changes.push(give(row));
        }
        if group % 2 == 0 {
            // In the place of the last gift, so that a group has as many rows as ever.
            changes.pop();
            changes.extend([key(row), answer(row)]);
        } else {
            // The same with a call that is released, and one that goes from peer to peer.
            changes.truncate(changes.len() - 2);
            changes.extend([moved(row - 1, row - 2), release(row)]);
        }
        row += 1;
        changes.push(reserve(row, (group % 3 == 2).then(|| row - GROUP_ROWS)));
        if group % 2 == 1 {
            changes
                .extend((row - 30..row - 20).map(|row| Change::Expire { row: Row(row), expires_at_ms: row }));
        }
        journal.commit(&changes).unwrap();
        acknowledged.apply(&changes);
    }
    let id = journal.journal_id();
    if leave == Leave::Closed {
        drop(journal);
        return Case { name, files: take(dir.path()), id, acknowledged };
    }
    Case { name, files: take(dir.path()), id, acknowledged }
}

/// Tries every fault of every file, and prints how it went.
fn survive(case: &Case) {
    let dir = folder();
    put(dir.path(), &case.files);
    assert_eq!(case.outcome(dir.path(), true), Outcome::Whole, "without a fault");

    let faults = case.faults();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let (report, reports) = mpsc::sync_channel(1_024);
    let mut counts = BTreeMap::<(&str, String), usize>::new();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (report, next, faults) = (report.clone(), &next, &faults);
            scope.spawn(move || {
                let dir = folder();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(fault) = faults.get(at) else { return };
                    put(dir.path(), &case.files);
                    fault.inflict(dir.path(), &case.files);
                    // Writing on and opening again shows what a damage does that no check has met.
                    let outcome = case.outcome(dir.path(), at % 64 == 0);
                    report.send((*fault, outcome)).unwrap();
                }
            });
        }
        drop(report);
        for done in 0..faults.len() {
            let received = reports.recv_timeout(Duration::from_secs(60));
            let (fault, outcome) = received.unwrap_or_else(|error| panic!("after {done} faults: {error}"));
            assert!(outcome.is_sound(), "{}: {fault:?}: {outcome:?}", case.name);
            *counts.entry((fault.kind(), format!("{outcome:?}"))).or_default() += 1;
        }
    });
    let sizes = case.files.each_ref().map(|file| file.as_ref().map_or(0, Vec::len));
    println!("{}: {} rows, files of {sizes:?} bytes, {} faults", case.name, case.rows(), faults.len());
    for ((fault, outcome), count) in &counts {
        println!("  {fault:>4} {outcome:<24} {count:>7}");
    }
    assert!(counts.keys().any(|(_, outcome)| outcome.contains("Corrupt")), "some fault must do damage");
}

/// What an opened journal shows.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Every acknowledged row, and every result byte for byte.
    Whole,
    /// It is not opened.
    Refused(StoreErrorKind),
    /// It is opened, and something is missing, changed, or cannot be read.
    Broken(String),
}

impl Outcome {
    fn is_sound(&self) -> bool {
        match self {
            Self::Whole => true,
            Self::Refused(kind) => {
                matches!(
                    kind,
                    StoreErrorKind::Corrupt | StoreErrorKind::Foreign | StoreErrorKind::Newer { .. }
                )
            }
            Self::Broken(_) => false,
        }
    }
}

impl Case {
    /// All flips and cuts of a small file, and of a large one a sample that is the same in each run.
    fn faults(&self) -> Vec<Fault> {
        let positions = std::env::var("CAPD_STORE_POSITIONS").ok().map(|text| text.parse().unwrap());
        let mut faults = Vec::new();
        for (file, bytes) in self.files.iter().enumerate() {
            let Some(bytes) = bytes else { continue };
            let step = bytes.len().div_ceil(positions.unwrap_or(POSITIONS_DEFAULT)).max(1);
            for at in (0..bytes.len()).step_by(step) {
                let at = (at + scatter(at) as usize % step).min(bytes.len() - 1);
                faults.extend([Fault::Flip { file, at }, Fault::Cut { file, to: at }]);
            }
        }
        faults
    }

    /// Opens the journal in `folder` and compares everything; `write_on` as well, and once more afterwards.
    fn outcome(&self, folder: &Path, write_on: bool) -> Outcome {
        let options = Options { page_bytes: 512, checkpoint_pages: 16 };
        let [.., last] = NAMES.map(|name| fs::read(folder.join(name)).ok());
        let mut journal = match Sqlite::open(folder, options) {
            Ok(journal) => journal,
            Err(error) => return Outcome::Refused(error.kind()),
        };
        if let Err(what) = self.acknowledged.compare(&mut journal) {
            return Outcome::Broken(what);
        }
        // It has forgotten nothing, which the file beside it shows, unless that is what is damaged.
        if last == self.files[3] && journal.journal_id() != self.id {
            return Outcome::Broken("another id".to_owned());
        }
        if !write_on {
            return Outcome::Whole;
        }
        let mut acknowledged = self.acknowledged.clone();
        for row in 1_000..1_010 {
            let changes = [begin(row), finish(row), Change::Forget { row: Row(row - 990) }];
            if let Err(error) = journal.commit(&changes) {
                return Outcome::Broken(format!("write on: {error}"));
            }
            acknowledged.apply(&changes);
        }
        drop(journal);
        let again = Sqlite::open(folder, options).map_err(|error| format!("open again: {error}"));
        match again.and_then(|mut journal| acknowledged.compare(&mut journal)) {
            Ok(()) => Outcome::Whole,
            Err(what) => Outcome::Broken(what),
        }
    }

    fn rows(&self) -> usize {
        let Acknowledged { loaded, results } = &self.acknowledged;
        loaded.calls.len()
            + loaded.given.len()
            + loaded.reserved.len()
            + loaded.keys.len()
            + results.len()
            + loaded.released.len()
    }
}

impl Acknowledged {
    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Begin(begun) => {
                    self.loaded.calls.push(LoadedCall { begun: begun.clone(), finished: None });
                }
                Change::Finish { row, result, finished_at_ms } => {
                    let call = self.loaded.calls.iter_mut().find(|call| call.begun.row == *row).unwrap();
                    let finished_at_ms = *finished_at_ms;
                    call.finished = Some(LoadedResult { bytes: result.len(), finished_at_ms });
                    self.results.insert(*row, result.clone());
                }
                Change::Give(given) => self.loaded.given.push(given.clone()),
                Change::Reserve { reserved, replaces } => {
                    self.loaded.reserved.retain(|former| Some(former.row) != *replaces);
                    self.loaded.reserved.push(reserved.clone());
                }
                Change::Move { given, replaces } => {
                    self.loaded.given.retain(|former| former.row != *replaces);
                    self.loaded.given.push(given.clone());
                }
                Change::Release(released) => self.loaded.released.push(released.clone()),
                Change::Key(keyed) => {
                    self.loaded.keys.push(LoadedKey { keyed: Keyed::clone(keyed), is_answered: false });
                }
                Change::Answer { row, answer } => {
                    let key = self.loaded.keys.iter_mut().find(|key| key.keyed.row == *row).unwrap();
                    key.is_answered = true;
                    self.results.insert(*row, answer.clone());
                }
                Change::Forget { row } | Change::Expire { row, .. } => {
                    if let Change::Expire { expires_at_ms, .. } = change {
                        self.loaded.expired_ms = self.loaded.expired_ms.max(*expires_at_ms);
                    }
                    self.loaded.calls.retain(|call| call.begun.row != *row);
                    self.loaded.given.retain(|given| given.row != *row);
                    self.loaded.reserved.retain(|reserved| reserved.row != *row);
                    self.loaded.released.retain(|released| released.row != *row);
                    self.loaded.keys.retain(|key| key.keyed.row != *row);
                    self.results.remove(row);
                }
            }
        }
    }

    fn compare(&self, journal: &mut Sqlite) -> Result<(), String> {
        if journal.load().map_err(|error| error.to_string())? != self.loaded {
            return Err("other rows than were acknowledged".to_owned());
        }
        for (row, result) in &self.results {
            if journal.read(*row).map_err(|error| error.to_string())? != *result {
                return Err(format!("another result in row {}", row.0));
            }
        }
        Ok(())
    }
}

impl Fault {
    fn inflict(self, folder: &Path, files: &Files) {
        let (file, damaged) = match self {
            Self::Flip { file, at } => {
                let mut bytes = files[file].clone().unwrap();
                // Any change but none.
                bytes[at] ^= (scatter(at) % 255) as u8 + 1;
                (file, bytes)
            }
            Self::Cut { file, to } => (file, files[file].as_ref().unwrap()[..to].to_vec()),
        };
        fs::write(folder.join(NAMES[file]), damaged).unwrap();
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Flip { .. } => "flip",
            Self::Cut { .. } => "cut",
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Flip { file, at } => write!(f, "{} changed at byte {at}", NAMES[file]),
            Self::Cut { file, to } => write!(f, "{} cut to {to} bytes", NAMES[file]),
        }
    }
}

fn begin(row: u64) -> Change {
    let from = Did::parse("did:web:caller").unwrap();
    let key = Key { from, id: MessageId::new(row, scatter(row as usize).to_be_bytes()) };
    let body = BodyDigest([scatter(row as usize) as u8; 32]);
    let capability = "org.a.b:1.0.0".into();
    Change::Begin(Begun {
        row: Row(row),
        key,
        body,
        expires_at_ms: row + 1_000,
        started_at_ms: row,
        capability,
    })
}

fn finish(row: u64) -> Change {
    let long = if row % 64 == 7 { 700 } else { 0 };
    let result = Bytes::from(format!("result {row}{}", "!".repeat(long)));
    Change::Finish { row: Row(row), result, finished_at_ms: row + 1 }
}

/// One whose journal is known of every other row.
fn replica(name: &str, row: u64) -> Replica {
    let journal = JournalId([scatter(row as usize) as u8; 16]);
    let peer = Did::parse(&format!("did:web:{name}")).unwrap();
    Replica { peer, journal: row.is_multiple_of(2).then_some(journal) }
}

fn give(row: u64) -> Change {
    let id = MessageId::new(row, scatter(row as usize).to_be_bytes());
    Change::Give(Given {
        row: Row(row),
        id,
        replica: replica("peer", row),
        expires_at_ms: row + 1_000,
        released_by: None,
    })
}

fn moved(row: u64, replaces: u64) -> Change {
    let Change::Give(given) = give(row) else { unreachable!() };
    Change::Move { given, replaces: Row(replaces) }
}

fn release(row: u64) -> Change {
    let from = Did::parse("did:web:caller").unwrap();
    let key = Key { from, id: MessageId::new(row, scatter(row as usize).to_be_bytes()) };
    Change::Release(Released { row: Row(row), key, expires_at_ms: row + 1_000 })
}

fn reserve(row: u64, replaces: Option<u64>) -> Change {
    let reserved = Reserved {
        row: Row(row),
        capability: "org.a.b".into(),
        after_ms: row,
        until_ms: row + 10,
        replicas: vec![replica("peer", row), replica("another", row + 1)],
        expires_at_ms: row + 1_000,
    };
    Change::Reserve { reserved, replaces: replaces.map(Row) }
}

fn key(row: u64) -> Change {
    let id = MessageId::new(row, scatter(row as usize).to_be_bytes());
    let (key, digest) = ([row as u8; 32], [row as u8 + 1; 32]);
    Change::Key(Box::new(Keyed {
        row: Row(row),
        key,
        digest,
        id,
        terms: vec![1, 2, 3].into(),
        expires_at_ms: row + 1_000,
    }))
}

fn answer(row: u64) -> Change {
    Change::Answer { row: Row(row), answer: Bytes::from(format!("answer {row}")) }
}

fn take(folder: &Path) -> Files {
    NAMES.map(|name| fs::read(folder.join(name)).ok())
}

fn put(folder: &Path, files: &Files) {
    for (name, bytes) in NAMES.iter().zip(files) {
        match bytes {
            Some(bytes) => fs::write(folder.join(name), bytes).unwrap(),
            None => drop(fs::remove_file(folder.join(name))),
        }
    }
}

/// A folder in memory where the system has one: what is tried here are bytes, not a disk, and each open syncs.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A number that looks random and is the same each time (SplitMix64).
fn scatter(at: usize) -> u64 {
    let mut mixed = (at as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

const GROUPS: u64 = 4;
const GROUP_CALLS: u64 = 26;
const GROUP_GIFTS: u64 = 6;
/// One reservation among them.
const GROUP_ROWS: u64 = GROUP_CALLS + GROUP_GIFTS + 1;
/// Places of a file that are tried in the gate.
const POSITIONS_DEFAULT: usize = 2 * 1024;
