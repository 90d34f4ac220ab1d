//! Writes the journal: queued work in, one transaction per group and its outcomes out.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::journal::{Asker, Item, Shared};
use super::{Change, Row, Storage, StoreError, StoreErrorKind, Work};
use crate::fault::Faults;

/// Commits queued work as one group, and returns the outcomes.
pub struct Writer<T, S: Storage> {
    queue: mpsc::Receiver<Item<T>>,
    clerk: Clerk<T>,
    storage: S,
}

/// Does work on whatever storage it is given.
struct Clerk<T> {
    shared: Arc<Shared<T>>,
    health: Health,
}

/// What the log was told of a disk that is full or failing: each change of state once, and not once a commit.
#[derive(Default)]
struct Health {
    /// Kinds of changes that could not be written, and none of which was since. A disk that has no space for new calls
    /// may well have it for their removal.
    failing: BTreeSet<Kind>,
    /// Whether the log was told that a group was written at the second attempt, in parts.
    is_tight: bool,
    /// Whether the latest failure was for want of space.
    is_full: bool,
    /// Groups written at the first attempt since.
    well: u32,
}

/// What a change needs space for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    New,
    Key,
    Result,
    Removal,
}

impl Health {
    /// A group was written.
    fn wrote(&mut self, changes: &[Change]) {
        self.well = self.well.saturating_add(1);
        self.is_tight &= self.well < WELL_GROUPS_MIN;
        if self.failing.is_empty() {
            return;
        }
        for change in changes {
            self.failing.remove(&Kind::of(change));
        }
        if self.failing.is_empty() {
            tracing::info!("the journal can be written again");
        }
    }

    /// Whether calls suffer: rows that stay longer than they need hurt nobody.
    fn is_failing(&self) -> bool {
        self.failing.iter().any(|kind| *kind != Kind::Removal)
    }

    /// A group was not written as a whole because of `error`, nor were these changes by themselves.
    fn failed(&mut self, changes: &[Change], error: &StoreError) {
        self.well = 0;
        self.is_full = error.kind() == StoreErrorKind::Full;
        let was_failing = !self.failing.is_empty();
        self.failing.extend(changes.iter().map(Kind::of));
        if !self.failing.is_empty() && !was_failing {
            tracing::error!(%error, "the journal cannot be written");
        } else if self.failing.is_empty() && !std::mem::replace(&mut self.is_tight, true) {
            tracing::warn!(%error, "the journal was written only at the second attempt: its disk is full or failing");
        }
    }
}

impl Kind {
    fn of(change: &Change) -> Self {
        match change {
            Change::Begin(_) | Change::Give(_) | Change::Reserve { .. } => Self::New,
            Change::Move { .. } | Change::Release(_) => Self::New,
            Change::Key(_) => Self::Key,
            Change::Finish { .. } | Change::Answer { .. } => Self::Result,
            Change::Forget { .. } | Change::Expire { .. } => Self::Removal,
        }
    }
}

/// A batch of work.
pub struct Batch<T>(Vec<(Work, Asker<T>)>);

/// The thread of a writer.
#[must_use = "a thread that is not joined may still be writing when the process ends"]
pub struct Thread {
    handle: JoinHandle<()>,
    faults: Faults,
    ended: CancellationToken,
}

/// Runs `writer` on a thread of its own.
///
/// **Errors:** the system gives no thread.
pub fn spawn<T, S>(writer: Writer<T, S>) -> io::Result<Thread>
where
    T: Send + 'static,
    S: Storage + Send + 'static,
{
    Thread::start("journal", || writer.run_blocking())
}

impl Thread {
    /// Does `work` on a thread of this name. **Errors:** the system gives no thread.
    pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (faults, ended) = (Faults::new(), CancellationToken::new());
        let (reported, ends) = (faults.clone(), ended.clone().drop_guard());
        let handle = thread::Builder::new().name(name.to_owned()).spawn(move || {
            // A writer ends when it is told to, or when nobody can ask it any more; every other end is a panic.
            reported.catch(work);
            drop(ends);
        })?;
        Ok(Self { handle, faults, ended })
    }

    /// Its panic, if any: then the thread is gone, and all its work fails.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Set once it has ended.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Waits for the end of the thread, which comes once the queue is empty after
    /// [`Journal::close`](super::Journal::close) or after the last handle is dropped. It blocks.
    pub fn join(self) {
        // A panic is reported, and goes no further than the thread's work.
        let _ended = self.handle.join();
    }
}

impl<T: Send + 'static, S: Storage> Writer<T, S> {
    pub(super) fn new(queue: mpsc::Receiver<Item<T>>, shared: Arc<Shared<T>>, storage: S) -> Self {
        Self { queue, clerk: Clerk { shared, health: Health::default() }, storage }
    }

    /// Waits for work and takes all of it, at most [`GROUP_CHANGES_MAX`]; `None` once the journal is
    /// [closed](super::Journal::close), or every handle dropped, and the queue is empty. Nothing is lost when the
    /// future is dropped.
    pub async fn batch(&mut self) -> Option<Batch<T>> {
        loop {
            let mut items = Vec::new();
            if self.queue.recv_many(&mut items, GROUP_CHANGES_MAX).await == 0 {
                return None;
            }
            if let Some(batch) = batch_of(&mut self.queue, items) {
                return Some(batch);
            }
        }
    }

    /// Commits `batch` and returns its outcomes in order.
    ///
    /// Reads come first, so a row that is forgotten in the same group can still be read. Only a read of a result in the
    /// same group waits for it. Copies come last, and what is queued up meanwhile is done between their steps.
    pub fn commit(&mut self, batch: Batch<T>) {
        for (to, asker) in self.clerk.commit(&mut self.storage, batch) {
            self.copy(&to, asker);
        }
    }

    fn copy(&mut self, to: &Path, asker: Asker<T>) {
        let Self { queue, clerk, storage } = self;
        let copied = storage.copy(to, &mut |storage| {
            let mut items = Vec::new();
            take(queue, &mut items);
            let Some(batch) = batch_of(queue, items) else { return };
            let refused = clerk.commit(storage, batch).into_iter().map(|(to, asker)| {
                (
                    asker,
                    Err(StoreError::new(StoreErrorKind::Io, to.display(), "a copy is being made already")),
                )
            });
            let refused: Vec<_> = refused.collect();
            if !refused.is_empty() {
                clerk.shared.hand_out(refused.into_iter());
            }
        });
        clerk.shared.hand_out(std::iter::once((asker, copied.map(|()| None))));
    }

    /// Works until the journal is [closed](super::Journal::close), or every handle dropped, and the queue is empty. Not
    /// for async code: it blocks its thread.
    pub fn run_blocking(mut self) {
        let mut looks = 0;
        loop {
            let mut items = self.look(looks);
            if items.is_empty() && self.queue.blocking_recv_many(&mut items, GROUP_CHANGES_MAX) == 0 {
                return;
            }
            looks = if items.len() <= GROUP_CHANGES_FEW { LOOKS_MAX } else { 0 };
            if let Some(batch) = batch_of(&mut self.queue, items) {
                self.commit(batch);
            }
        }
    }

    /// Takes what there is, looking at most `looks` times and letting other threads run in between.
    ///
    /// A call that is alone has its two commits one soon after the other, and to put this thread to sleep and wake it again
    /// takes longer than what lies between them.
    fn look(&mut self, looks: u32) -> Vec<Item<T>> {
        let mut items = Vec::new();
        for _ in 0..looks {
            take(&mut self.queue, &mut items);
            if !items.is_empty() {
                break;
            }
            thread::yield_now();
        }
        items
    }
}

/// Takes what is queued up, as much as fits into a group.
fn take<T>(queue: &mut mpsc::Receiver<Item<T>>, items: &mut Vec<Item<T>>) {
    while items.len() < GROUP_CHANGES_MAX
        && let Ok(item) = queue.try_recv()
    {
        items.push(item);
    }
}

/// The work among `items`; the end among them closes the queue.
fn batch_of<T>(queue: &mut mpsc::Receiver<Item<T>>, items: Vec<Item<T>>) -> Option<Batch<T>> {
    if items.iter().any(Option::is_none) {
        queue.close();
    }
    let work: Vec<_> = items.into_iter().flatten().collect();
    if work.is_empty() { None } else { Some(Batch(work)) }
}

impl<T> Clerk<T> {
    /// Does all of `batch` but its copies, which it returns.
    fn commit(&mut self, storage: &mut dyn Storage, batch: Batch<T>) -> Vec<(PathBuf, Asker<T>)> {
        let mut changes = Vec::with_capacity(batch.0.len());
        let mut finished = HashSet::new();
        let mut slots = Vec::with_capacity(batch.0.len());
        let mut copies = Vec::new();
        for (work, tag) in batch.0 {
            let slot = match work {
                Work::Write(change) => {
                    if let Change::Finish { row, .. } | Change::Answer { row, .. } = &change {
                        finished.insert(*row);
                    }
                    changes.push(change);
                    Slot::Written(changes.len() - 1)
                }
                Work::Read(row) if finished.contains(&row) => Slot::Reads(row),
                Work::Read(row) => Slot::Read(storage.read(row)),
                Work::Tidy => Slot::Tidied,
                Work::Measure => Slot::Measured,
                Work::Copy(to) => {
                    copies.push((to, tag));
                    continue;
                }
            };
            slots.push((slot, tag));
        }
        let written = self.write(storage, changes);
        let outcomes = slots.into_iter().map(|(slot, tag)| {
            let outcome = match slot {
                Slot::Written(index) => written[index].clone().map(|()| None),
                Slot::Reads(row) => storage.read(row).map(Some),
                Slot::Read(outcome) => outcome.map(Some),
                Slot::Tidied => storage.tidy().map(|()| None),
                Slot::Measured => {
                    self.shared.set_bytes(storage.bytes());
                    Ok(None)
                }
            };
            (tag, outcome)
        });
        let outcomes: Vec<_> = outcomes.collect();
        self.shared.hand_out(outcomes.into_iter());
        copies
    }

    /// Writes `changes` as one transaction, or, when that fails, in parts; one outcome each.
    fn write(&mut self, storage: &mut dyn Storage, changes: Vec<Change>) -> Vec<Result<(), StoreError>> {
        if changes.is_empty() {
            return Vec::new();
        }
        let mut outcomes = vec![Ok(()); changes.len()];
        let Err(error) = self.write_together(storage, &changes) else {
            self.health.wrote(&changes);
            self.shared.set_failing(self.health.is_failing(), self.health.is_full);
            return outcomes;
        };
        let mut failed = Vec::new();
        for part in parts(changes) {
            let (indices, changes): (Vec<_>, Vec<_>) = part.into_iter().unzip();
            if changes.is_empty() {
                continue;
            }
            match self.write_together(storage, &changes) {
                Ok(()) => self.health.wrote(&changes),
                Err(error) => {
                    self.shared.count_failure(changes.len());
                    for index in indices {
                        outcomes[index] = Err(error.clone());
                    }
                    failed.extend(changes);
                }
            }
        }
        self.health.failed(&failed, &error);
        self.shared.set_failing(self.health.is_failing(), self.health.is_full);
        outcomes
    }

    fn write_together(&self, storage: &mut dyn Storage, changes: &[Change]) -> Result<(), StoreError> {
        let outcome = storage.commit(changes);
        if outcome.is_ok() {
            self.shared.count_commit(changes.len());
        }
        outcome
    }
}

impl<T, S: Storage> Drop for Writer<T, S> {
    /// Work that nobody will do is answered too.
    fn drop(&mut self) {
        self.queue.close();
        let error = StoreError::new(StoreErrorKind::Closed, "journal", "the writer has ended");
        let mut left = Vec::new();
        while let Ok(item) = self.queue.try_recv() {
            let Some((_, tag)) = item else { continue };
            left.push((tag, Err(error.clone())));
        }
        if !left.is_empty() {
            self.clerk.shared.hand_out(left.into_iter());
        }
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Batch").field(&self.0.len()).finish()
    }
}

/// Where the outcome of one piece of work comes from.
enum Slot {
    /// The change of that index.
    Written(usize),
    /// The row, once the changes are written.
    Reads(Row),
    /// It is known.
    Read(Result<Bytes, StoreError>),
    /// The storage, once the changes are written.
    Tidied,
    /// The storage's size, once the changes are written.
    Measured,
}

/// A group that failed, in the order in which its parts are tried again: what makes room, what has been executed
/// already, what can still be refused. Changes of a row that the group itself begins stay together.
fn parts(changes: Vec<Change>) -> [Vec<(usize, Change)>; 3] {
    let fresh: HashSet<Row> = changes.iter().filter(|change| change.is_new()).map(Change::row).collect();
    let [mut forget, mut finish, mut begin] = [const { Vec::new() }; 3];
    for (index, change) in changes.into_iter().enumerate() {
        let part = match &change {
            _ if fresh.contains(&change.row()) => &mut begin,
            Change::Forget { .. } | Change::Expire { .. } => &mut forget,
            Change::Finish { .. } | Change::Answer { .. } => &mut finish,
            Change::Begin(_) | Change::Give(_) | Change::Reserve { .. } | Change::Key(_) => &mut begin,
            Change::Move { .. } | Change::Release(_) => &mut begin,
        };
        part.push((index, change));
    }
    [forget, finish, begin]
}

/// Most changes in one transaction. Ours: many more than queue up during one sync of a disk, and few enough that the
/// first of a group does not wait long for the last.
pub const GROUP_CHANGES_MAX: usize = 1_024;
/// A group of so few changes is followed by one that is awaited alone; behind a larger one the next has queued up already.
const GROUP_CHANGES_FEW: usize = 4;
/// Groups in a row that are written at the first attempt before a second one is told of again: more than fit into the
/// space that the log of a full disk's journal has already.
const WELL_GROUPS_MIN: u32 = 2_048;
/// Looks into the queue before the thread goes to sleep. Ours: they bound what a wait costs that comes to nothing, and four
/// and ten times as many made a lone call's time no shorter that could be told from the machine's own changes.
const LOOKS_MAX: u32 = 100;
