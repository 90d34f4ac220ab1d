//! Passes changes with tags to the journal's writer, and returns outcomes with tags.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use capd_proto::ledger::JournalId;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, oneshot};

use super::{Change, Row, Storage, StoreError, Writer};

/// The handle of the journal; cheap to clone. `T` is the owner's tag for an outcome.
pub struct Journal<T> {
    id: JournalId,
    queue: mpsc::Sender<Item<T>>,
    shared: Arc<Shared<T>>,
}

/// A piece of work and who hears of it, or `None` for the end: what comes behind it is refused.
pub(super) type Item<T> = Option<(Work, Asker<T>)>;

/// Who hears what became of a piece of work.
pub(super) enum Asker<T> {
    /// The journal's owner, by this tag.
    Owner(T),
    /// A waiter at the other end.
    Waits(oneshot::Sender<Outcome>),
}

/// The outcome of a piece of work: `Some` for [`Work::Read`].
pub type Outcome = Result<Option<Bytes>, StoreError>;

/// Work of a journal for callers other than its owner: the caller waits for the outcome, without a tag.
pub trait Desk: Send + Sync {
    /// Queues `work`; never waits. The receiver has what became of it, unless the writer is gone.
    ///
    /// **Errors:** as [`Journal::submit`].
    fn ask(&self, work: Work) -> Result<oneshot::Receiver<Outcome>, Refused>;

    /// An unused row.
    fn next_row(&self) -> Row;
}

impl<T: Send + 'static> Desk for Journal<T> {
    fn ask(&self, work: Work) -> Result<oneshot::Receiver<Outcome>, Refused> {
        let place = self.place()?;
        let (sender, receiver) = oneshot::channel();
        place.send(Some((work, Asker::Waits(sender))));
        Ok(receiver)
    }

    fn next_row(&self) -> Row {
        Journal::next_row(self)
    }
}

/// A piece of work for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Make a change durable.
    Write(Change),
    /// Read a recorded result. It sees every [`Change::Finish`] submitted before it.
    Read(Row),
    /// Remove forgotten rows from the disk.
    Tidy,
    /// Look how much of the disk the journal takes, for [`Counters::bytes`].
    Measure,
    /// Copy the journal into a new file. Other work goes on meanwhile.
    Copy(PathBuf),
}

/// The outcome of one piece of work.
#[derive(Debug)]
pub struct Done<T> {
    /// The tag it was submitted with.
    pub tag: T,
    /// `Some` for [`Work::Read`]. After an error, the change is not stored, as far as known.
    pub outcome: Result<Option<Bytes>, StoreError>,
}

/// Work that was refused, returned.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull<T> {
    /// The work.
    pub work: Work,
    /// Its tag.
    pub tag: T,
    /// Why it was refused.
    pub reason: Refused,
}

/// Why work was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue is full.
    Full,
    /// The writer has ended.
    Closed,
}

/// Counters of the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Changes made durable.
    pub changes: u64,
    /// Transactions that made them so.
    pub commits: u64,
    /// Changes that failed.
    pub failures: u64,
    /// Bytes on disk when it was last measured: at the start, and for each [`Work::Measure`].
    pub bytes: u64,
    /// Whether a kind of change failed last time.
    pub is_failing: bool,
    /// Whether that is for want of space.
    pub is_full: bool,
}

/// What both ends see.
pub(super) struct Shared<T> {
    done: Mutex<Vec<Done<T>>>,
    some_done: Notify,
    next_row: AtomicU64,
    changes: AtomicU64,
    commits: AtomicU64,
    failures: AtomicU64,
    bytes: AtomicU64,
    is_failing: AtomicBool,
    is_full: AtomicBool,
}

/// A journal over `storage`: its handle, and the writer, which must [run](Writer::run_blocking).
///
/// `next_row` is the first free row ([`Loaded::next_row`](super::Loaded::next_row)), `queue_max` the capacity of the
/// queue, at least one.
pub fn journal<T, S>(storage: S, next_row: Row, queue_max: usize) -> (Journal<T>, Writer<T, S>)
where
    T: Send + 'static,
    S: Storage + Send + 'static,
{
    let (queue, waiting) = mpsc::channel(queue_max.max(1));
    let shared = Arc::new(Shared {
        done: Mutex::new(Vec::new()),
        some_done: Notify::new(),
        next_row: AtomicU64::new(next_row.0),
        changes: AtomicU64::new(0),
        commits: AtomicU64::new(0),
        failures: AtomicU64::new(0),
        bytes: AtomicU64::new(storage.bytes()),
        is_failing: AtomicBool::new(false),
        is_full: AtomicBool::new(false),
    });
    let journal = Journal { id: storage.journal_id(), queue, shared: Arc::clone(&shared) };
    (journal, Writer::new(waiting, shared, storage))
}

impl<T: Send + 'static> Journal<T> {
    /// What names the journal to peers.
    pub const fn id(&self) -> JournalId {
        self.id
    }

    /// Queues `work`; never waits. Work of one handle is done in its order.
    ///
    /// **Errors:** the queue is full, or the writer has ended; the work is returned.
    pub fn submit(&self, work: Work, tag: T) -> Result<(), QueueFull<T>> {
        match self.place() {
            Ok(place) => {
                place.send(Some((work, Asker::Owner(tag))));
                Ok(())
            }
            Err(reason) => Err(QueueFull { work, tag, reason }),
        }
    }

    fn place(&self) -> Result<mpsc::Permit<'_, Item<T>>, Refused> {
        self.queue.try_reserve().map_err(|error| match error {
            TrySendError::Full(()) => Refused::Full,
            TrySendError::Closed(()) => Refused::Closed,
        })
    }

    /// Ends the writer after all work submitted before; later work is refused.
    pub async fn close(&self) {
        // A writer that has ended already needs no telling.
        let _ended = self.queue.send(None).await;
    }

    /// Waits for an outcome, then appends all available ones to `into`, in the order of commits.
    ///
    /// One at a time may wait here. Nothing is lost when the future is dropped.
    pub async fn completed(&self, into: &mut Vec<Done<T>>) {
        loop {
            {
                let mut done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
                if !done.is_empty() {
                    into.append(&mut done);
                    return;
                }
            }
            self.shared.some_done.notified().await;
        }
    }

    /// An unused row.
    pub fn next_row(&self) -> Row {
        Row(self.shared.next_row.fetch_add(1, Ordering::Relaxed))
    }

    /// Counters of the writer.
    pub fn counters(&self) -> Counters {
        Counters {
            changes: self.shared.changes.load(Ordering::Relaxed),
            commits: self.shared.commits.load(Ordering::Relaxed),
            failures: self.shared.failures.load(Ordering::Relaxed),
            bytes: self.shared.bytes.load(Ordering::Relaxed),
            is_failing: self.shared.is_failing.load(Ordering::Relaxed),
            is_full: self.shared.is_full.load(Ordering::Relaxed),
        }
    }
}

impl<T> Shared<T> {
    /// Hands outcomes out, with one wake-up for all of them.
    pub(super) fn hand_out(&self, outcomes: impl Iterator<Item = (Asker<T>, Outcome)>) {
        let owners = outcomes.filter_map(|(asker, outcome)| match asker {
            Asker::Owner(tag) => Some(Done { tag, outcome }),
            Asker::Waits(sender) => {
                // Whoever asked may have stopped waiting.
                let _gone = sender.send(outcome);
                None
            }
        });
        self.done.lock().unwrap_or_else(PoisonError::into_inner).extend(owners);
        self.some_done.notify_one();
    }

    pub(super) fn count_commit(&self, changes: usize) {
        self.changes.fetch_add(changes as u64, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// What the log was told, for those who ask.
    pub(super) fn set_failing(&self, is_failing: bool, is_full: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
        self.is_full.store(is_failing && is_full, Ordering::Relaxed);
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn count_failure(&self, changes: usize) {
        self.failures.fetch_add(changes as u64, Ordering::Relaxed);
    }
}

impl<T> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Self { id: self.id, queue: self.queue.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for Journal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for QueueFull<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            Refused::Full => "the journal's queue is full: calls arrive faster than its disk syncs",
            Refused::Closed => "the journal has been shut down",
        })
    }
}

impl<T: fmt::Debug> std::error::Error for QueueFull<T> {}
