//! A journal's changes in; what of them is there after a crash out: all that was acknowledged, and maybe one group more.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use capd::net::Spawn;
use capd::store::audit::chain::{Entry, Head};
use capd::store::audit::{AuditOptions, AuditStorage, AuditWriter};
use capd::store::{
    Begun, Change, Given, Keyed, Loaded, LoadedCall, LoadedKey, LoadedResult, Medium, Released, Reserved,
    Row, Storage, StoreError, StoreErrorKind, Thread, Writer,
};
use capd_proto::ledger::JournalId;
use tokio::time::sleep;

use super::dice::Dice;
use super::process::Process;
use super::trace::{Happening, Trace};

/// How a disk behaves. **Units:** virtual milliseconds and permille.
#[derive(Clone, Debug, Default)]
pub struct Habits {
    /// How long a commit takes.
    pub commit_ms: (u64, u64),
    /// From when until when it takes so much longer.
    pub slow: Vec<(u64, u64, u64)>,
    /// From when until when it takes no new rows.
    pub full: Vec<(u64, u64)>,
    /// How often the process is killed when a group is durable and nobody has been told.
    pub dies_after_commit_permille: u64,
    /// Until when it does that.
    pub calm_from_ms: u64,
    /// The commit, counted from 1, after which it does so whatever the odds.
    pub dies_after_commit: Option<u64>,
    /// Acknowledges that a call was begun, and does not keep it: a fault for the oracle to find.
    pub forgets_begun: bool,
}

/// What a disk did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Commits {
    pub commits: u64,
    pub refused: u64,
    /// Groups that were durable when their process was killed before it knew.
    pub unacknowledged: u64,
    /// Groups that were taken from the queue and lost in a crash.
    pub lost: u64,
    /// Changes that contradict what is there: a fault of the daemon's.
    pub conflicts: u64,
    /// Calls that were released.
    pub tombstones: u64,
}

/// One machine's disk, which outlives its processes. Clones are one disk.
#[derive(Clone)]
pub struct Disk(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    habits: Habits,
    trace: Trace,
}

struct State {
    journal: JournalId,
    /// The audit log: it is there once it is written, and no room is ever short for it.
    audit: Vec<Entry>,
    calls: BTreeMap<Row, (Begun, Option<(Bytes, u64)>)>,
    given: BTreeMap<Row, Given>,
    reserved: BTreeMap<Row, Reserved>,
    released: BTreeMap<Row, Released>,
    keys: BTreeMap<Row, (Keyed, Option<Bytes>)>,
    expired_ms: u64,
    /// Begun calls that were acknowledged and not kept.
    unkept: BTreeMap<Row, Begun>,
    dice: Dice,
    commits: Commits,
}

/// The disk in the hands of one process.
#[derive(Clone)]
pub struct Mounted {
    disk: Disk,
    process: Process,
}

impl Disk {
    pub fn new(habits: Habits, dice: Dice, trace: Trace) -> Self {
        let state = State {
            journal: some_journal(&dice),
            audit: Vec::new(),
            calls: BTreeMap::new(),
            given: BTreeMap::new(),
            reserved: BTreeMap::new(),
            released: BTreeMap::new(),
            keys: BTreeMap::new(),
            expired_ms: 0,
            unkept: BTreeMap::new(),
            dice,
            commits: Commits::default(),
        };
        Self(Arc::new(Shared { state: Mutex::new(state), habits, trace }))
    }

    /// The disk as `process` has it; whatever was not kept is gone.
    pub fn mount(&self, process: &Process) -> Mounted {
        self.state().unkept.clear();
        Mounted { disk: self.clone(), process: process.clone() }
    }

    /// Loses the journal; the next one has a name of its own, unless it `keeps_name`.
    pub fn wipe(&self, keeps_name: bool) {
        let mut state = self.state();
        state.calls.clear();
        state.given.clear();
        state.reserved.clear();
        state.released.clear();
        state.keys.clear();
        state.unkept.clear();
        state.expired_ms = 0;
        if !keeps_name {
            state.journal = some_journal(&state.dice);
        }
    }

    /// The audit log as it stands.
    pub fn audit(&self) -> Vec<Entry> {
        self.state().audit.clone()
    }

    pub fn commits(&self) -> Commits {
        self.state().commits
    }

    /// Runs a journal's writer: a group, the time that the disk takes for it, its commit.
    async fn write<T: Send + 'static>(self, mut writer: Writer<T, Mounted>) {
        while let Some(batch) = writer.batch().await {
            let (time, mut in_flight) = (self.commit_time(), InFlight(Some(self.clone())));
            sleep(time).await;
            in_flight.0 = None;
            writer.commit(batch);
        }
    }

    fn commit_time(&self) -> Duration {
        let now_ms = self.0.trace.now_ms();
        let (shortest, longest) = self.0.habits.commit_ms;
        let slower =
            self.0.habits.slow.iter().filter(|(from_ms, to_ms, _)| (*from_ms..*to_ms).contains(&now_ms));
        let slower_ms: u64 = slower.map(|(_, _, by_ms)| by_ms).sum();
        Duration::from_millis(self.state().dice.within(shortest..longest + 1) + slower_ms)
    }

    pub fn is_full(&self) -> bool {
        let now_ms = self.0.trace.now_ms();
        self.0.habits.full.iter().any(|(from_ms, to_ms)| (*from_ms..*to_ms).contains(&now_ms))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A group on its way to the disk.
struct InFlight(Option<Disk>);

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(disk) = self.0.take() {
            disk.state().commits.lost += 1;
        }
    }
}

impl State {
    fn forget(&mut self, row: Row) {
        self.calls.remove(&row);
        self.given.remove(&row);
        self.reserved.remove(&row);
        self.released.remove(&row);
        self.keys.remove(&row);
    }

    fn apply(&mut self, change: &Change, forgets_begun: bool) -> Result<(), StoreError> {
        match change {
            Change::Begin(begun) if forgets_begun => {
                self.unkept.insert(begun.row, begun.clone());
            }
            Change::Begin(begun) => {
                if self.calls.insert(begun.row, (begun.clone(), None)).is_some() {
                    return Err(failure(StoreErrorKind::Conflict));
                }
            }
            Change::Finish { row, result, finished_at_ms } => {
                if let Some(begun) = self.unkept.remove(row) {
                    self.calls.insert(*row, (begun, None));
                }
                match self.calls.get_mut(row) {
                    Some((_, finished @ None)) => *finished = Some((result.clone(), *finished_at_ms)),
                    Some((_, Some(_))) | None => return Err(failure(StoreErrorKind::Conflict)),
                }
            }
            Change::Give(given) => {
                self.given.insert(given.row, given.clone());
            }
            Change::Reserve { reserved, replaces } => {
                self.reserved.insert(reserved.row, reserved.clone());
                if let Some(row) = replaces {
                    self.forget(*row);
                }
            }
            Change::Move { given, replaces } => {
                self.given.insert(given.row, given.clone());
                self.forget(*replaces);
            }
            Change::Release(released) => {
                self.released.insert(released.row, released.clone());
                self.commits.tombstones += 1;
            }
            Change::Key(keyed) => {
                self.keys.insert(keyed.row, (Keyed::clone(keyed), None));
            }
            Change::Answer { row, answer } => match self.keys.get_mut(row) {
                Some((_, answered @ None)) => *answered = Some(answer.clone()),
                Some((_, Some(_))) | None => return Err(failure(StoreErrorKind::Conflict)),
            },
            Change::Forget { row } => self.forget(*row),
            Change::Expire { row, expires_at_ms } => {
                self.forget(*row);
                self.expired_ms = self.expired_ms.max(*expires_at_ms);
            }
        }
        Ok(())
    }
}

impl Storage for Mounted {
    fn journal_id(&self) -> JournalId {
        self.disk.state().journal
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        let state = self.disk.state();
        let calls = state.calls.values().map(|(begun, finished)| LoadedCall {
            begun: begun.clone(),
            finished: finished.as_ref().map(|(result, finished_at_ms)| LoadedResult {
                bytes: result.len(),
                finished_at_ms: *finished_at_ms,
            }),
        });
        let keys = state
            .keys
            .values()
            .map(|(keyed, answer)| LoadedKey { keyed: keyed.clone(), is_answered: answer.is_some() });
        Ok(Loaded {
            keys: keys.collect(),
            calls: calls.collect(),
            given: state.given.values().cloned().collect(),
            reserved: state.reserved.values().cloned().collect(),
            released: state.released.values().cloned().collect(),
            expired_ms: state.expired_ms,
        })
    }

    fn commit(&mut self, batch: &[Change]) -> Result<(), StoreError> {
        if !self.process.is_alive() {
            return Err(failure(StoreErrorKind::Io));
        }
        let shared = &self.disk.0;
        let is_full = self.disk.is_full();
        let mut state = self.disk.state();
        let takes_room = batch.iter().any(Change::is_new);
        // What only replaces or frees rows sometimes still fits.
        if is_full && (takes_room || state.dice.chance(500)) {
            state.commits.refused += 1;
            return Err(failure(StoreErrorKind::Full));
        }
        let rows = batch.iter().fold(0, |rows, change| super::trace::mix(rows, change.row().0));
        shared.trace.note(Happening::Commit, &[batch.len() as u64, rows]);
        for change in batch {
            if let Err(error) = state.apply(change, shared.habits.forgets_begun) {
                state.commits.conflicts += 1;
                return Err(error);
            }
        }
        state.commits.commits += 1;
        let is_calm = shared.trace.now_ms() >= shared.habits.calm_from_ms;
        let is_chosen = shared.habits.dies_after_commit == Some(state.commits.commits);
        if is_chosen || !is_calm && state.dice.chance(shared.habits.dies_after_commit_permille) {
            state.commits.unacknowledged += 1;
            self.process.condemn();
        }
        Ok(())
    }

    fn read(&mut self, row: Row) -> Result<Bytes, StoreError> {
        let state = self.disk.state();
        let result = state.calls.get(&row).and_then(|(_, finished)| finished.as_ref());
        let answer = || state.keys.get(&row).and_then(|(_, answer)| answer.clone());
        result
            .map(|(result, _)| result.clone())
            .or_else(answer)
            .ok_or_else(|| failure(StoreErrorKind::Missing))
    }
}

impl AuditStorage for Mounted {
    fn append(&mut self, records: &[String]) -> Result<(), StoreError> {
        if !self.process.is_alive() {
            return Err(failure(StoreErrorKind::Io));
        }
        if self.disk.is_full() {
            return Err(failure(StoreErrorKind::Full));
        }
        let mut head = self.head()?;
        let bytes = records.iter().map(|record| super::trace::digest(record.as_bytes()));
        self.disk.0.trace.note(Happening::Audit, &bytes.collect::<Vec<_>>());
        self.disk.state().audit.extend(records.iter().map(|record| head.after(record)));
        Ok(())
    }

    fn head(&mut self) -> Result<Head, StoreError> {
        let state = self.disk.state();
        Ok(state
            .audit
            .last()
            .map_or(Head::default(), |last| Head { seq: last.seq, hash: Some(last.record_hash) }))
    }

    fn read(&mut self, after: u64, rows_max: usize, _: usize) -> Result<Vec<Entry>, StoreError> {
        let state = self.disk.state();
        let first = usize::try_from(after).unwrap_or(usize::MAX).min(state.audit.len());
        Ok(state.audit[first..].iter().take(rows_max).cloned().collect())
    }

    fn erase(&mut self, places: &[(u64, u64)], note: &str) -> Result<(), StoreError> {
        for entry in &mut self.disk.state().audit {
            if places.iter().any(|(first, last)| (*first..=*last).contains(&entry.seq)) {
                entry.record = None;
            }
        }
        self.append(&[note.to_owned()])
    }
}

impl Medium for Mounted {
    type Storage = Self;
    type Audit = Self;

    fn open(&self) -> Result<Self, StoreError> {
        Ok(self.clone())
    }

    fn run<T: Send + 'static>(&self, writer: Writer<T, Self>) -> io::Result<Option<Thread>> {
        self.process.spawn(Box::pin(self.disk.clone().write(writer)));
        Ok(None)
    }

    fn open_audit(&self, _: AuditOptions, _: u64) -> Self {
        self.clone()
    }

    fn run_audit(&self, writer: AuditWriter<Self>) -> io::Result<Option<Thread>> {
        self.process.spawn(Box::pin(account(writer)));
        Ok(None)
    }
}

/// Runs an audit log's writer: each group is there as soon as it is taken.
async fn account(mut writer: AuditWriter<Mounted>) {
    while let Some(batch) = writer.batch().await {
        writer.commit(batch);
    }
}

fn some_journal(dice: &Dice) -> JournalId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&dice.u64().to_be_bytes());
    id[8..].copy_from_slice(&dice.u64().to_be_bytes());
    JournalId(id)
}

fn failure(kind: StoreErrorKind) -> StoreError {
    StoreError::new(kind, "simulated disk", "as the world has it")
}
