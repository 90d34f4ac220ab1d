//! Queues audit records and answers questions about them: the two ends of the audit log.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::super::{StoreError, StoreErrorKind, Thread};
use super::{AuditStorage, Kind, Page, Pruned, Query, Record, page, prune};

/// The handle of the log; cheap to clone. One that is [off](Audit::off) accepts everything and keeps nothing.
#[derive(Clone)]
pub struct Audit {
    queue: Option<mpsc::Sender<Work>>,
    shared: Arc<Shared>,
}

/// The writer of the log: passes queued work to the storage.
pub struct AuditWriter<S> {
    queue: mpsc::Receiver<Work>,
    shared: Arc<Shared>,
    storage: S,
    /// Records that are gone and that no written record tells of yet.
    untold: u64,
    /// How many of those that were dropped in front of the queue have been counted in `untold`.
    told_dropped: u64,
    /// The part of the storage that denials may not use, in percent.
    reserved_percent: u8,
    /// Whether the last denials were withheld.
    is_withholding: bool,
}

/// A batch of work.
pub struct AuditBatch(Vec<Work>);

/// Counters since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditCounters {
    /// Records written.
    pub written: u64,
    /// Records that could not be written, and are lost.
    pub lost: u64,
    /// Lost records of denials that would have used the reserve.
    pub withheld: u64,
    /// How much of the log's bound is in use, in percent.
    pub used_percent: u64,
    /// Whether the last records could not be written.
    pub is_failing: bool,
}

enum Work {
    Append(Waiting),
    Page { query: Query, answer: oneshot::Sender<Result<Page, StoreError>> },
    Prune { after: u64, before_ms: u64, now_ms: u64, answer: oneshot::Sender<Result<Pruned, StoreError>> },
    End,
}

/// A record that waits to be written.
struct Waiting {
    canonical: String,
    ts_ms: u64,
    is_denial: bool,
}

struct Shared {
    tenant: String,
    queued_bytes: AtomicUsize,
    written: AtomicU64,
    /// Records that the storage refused.
    refused: AtomicU64,
    /// Records that found no room in the queue.
    dropped: AtomicU64,
    /// Records of denials that would have used the reserve.
    withheld: AtomicU64,
    used_percent: AtomicU64,
    /// Whether the last write failed, so that a full disk is logged once and not once a record.
    is_failing: AtomicBool,
}

/// An audit log over `storage`: its handle, and the writer, which must run. `tenant` goes into every record.
pub fn audit<S: AuditStorage>(storage: S, tenant: &str) -> (Audit, AuditWriter<S>) {
    let (queue, waiting) = mpsc::channel(QUEUE_MAX);
    let shared = Arc::new(Shared::new(tenant));
    let audit = Audit { queue: Some(queue), shared: Arc::clone(&shared) };
    let writer = AuditWriter {
        queue: waiting,
        shared,
        storage,
        untold: 0,
        told_dropped: 0,
        reserved_percent: 0,
        is_withholding: false,
    };
    (audit, writer)
}

impl Audit {
    /// A log that keeps nothing.
    pub fn off() -> Self {
        Self { queue: None, shared: Arc::new(Shared::new("")) }
    }

    /// Whether the owner turned the audit log off.
    pub fn is_off(&self) -> bool {
        self.queue.is_none()
    }

    /// Queues a record; never waits, never fails. A record that finds the queue full is [counted](Audit::counters) as
    /// lost.
    pub fn record(&self, record: Record) {
        let Some(queue) = &self.queue else { return };
        let (ts_ms, is_denial) = (record.ts_ms(), record.is_denial());
        let canonical = record.canonical(&self.shared.tenant);
        let bytes = canonical.len();
        let queued = self.shared.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let work = Work::Append(Waiting { canonical, ts_ms, is_denial });
        if queued + bytes > QUEUE_BYTES_MAX || queue.try_send(work).is_err() {
            self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            if self.shared.dropped.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::error!("audit records are lost: they arrive faster than the disk takes them");
            }
        }
    }

    /// A page of entries, including every record queued before.
    ///
    /// **Errors:** the storage cannot be read, the log is off, or its writer is overloaded or has ended.
    pub async fn page(&self, query: Query) -> Result<Page, StoreError> {
        self.ask(|answer| Work::Page { query, answer }).await
    }

    /// One step of pruning: removes records older than `before_ms` after the place `after`; [`Pruned::next`] is the
    /// `after` of the next step.
    ///
    /// **Units:** milliseconds since the Unix epoch. **Errors:** as [`Audit::page`], or it cannot be written.
    pub async fn prune(&self, after: u64, before_ms: u64, now_ms: u64) -> Result<Pruned, StoreError> {
        self.ask(|answer| Work::Prune { after, before_ms, now_ms, answer }).await
    }

    async fn ask<A>(
        &self,
        work: impl FnOnce(oneshot::Sender<Result<A, StoreError>>) -> Work,
    ) -> Result<A, StoreError> {
        let refused = |kind, what: &str| StoreError::new(kind, "audit log", what);
        let Some(queue) = &self.queue else {
            return Err(refused(StoreErrorKind::Missing, "it is off").remedy("set audit.file to keep one"));
        };
        let (answer, answered) = oneshot::channel();
        let queued = queue.try_send(work(answer));
        queued.map_err(|_| refused(StoreErrorKind::Io, "its queue is full").remedy("ask again later"))?;
        answered.await.map_err(|_| refused(StoreErrorKind::Closed, "the writer has ended"))?
    }

    /// Counters since the log was opened.
    pub fn counters(&self) -> AuditCounters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        AuditCounters {
            written: count(&self.shared.written),
            lost: count(&self.shared.refused) + count(&self.shared.dropped) + count(&self.shared.withheld),
            withheld: count(&self.shared.withheld),
            used_percent: count(&self.shared.used_percent),
            is_failing: self.shared.is_failing.load(Ordering::Relaxed),
        }
    }

    /// Ends the writer after all work queued before; later records are lost.
    pub async fn close(&self) {
        if let Some(queue) = &self.queue {
            // A writer that has ended already needs no telling.
            let _ended = queue.send(Work::End).await;
        }
    }
}

impl Shared {
    fn new(tenant: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            queued_bytes: AtomicUsize::new(0),
            written: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            withheld: AtomicU64::new(0),
            used_percent: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        }
    }
}

impl<S: AuditStorage> AuditWriter<S> {
    /// Reserves the last part of the storage for records other than denials. **Units:** percent.
    pub fn reserve(mut self, percent: u8) -> Self {
        self.reserved_percent = percent;
        self.look_how_full();
        self
    }

    /// Waits for work and takes all of it; `None` once the log is [closed](Audit::close), or every handle dropped, and
    /// the queue is empty. Nothing is lost when the future is dropped.
    pub async fn batch(&mut self) -> Option<AuditBatch> {
        let mut work = Vec::new();
        let count = self.queue.recv_many(&mut work, GROUP_MAX).await;
        (count > 0).then_some(AuditBatch(work))
    }

    /// Does the work in order; adjacent records are written together.
    pub fn commit(&mut self, batch: AuditBatch) {
        let mut records = Vec::new();
        for work in batch.0 {
            match work {
                Work::Append(record) => records.push(record),
                Work::Page { query, answer } => {
                    self.append(&mut records);
                    // Whoever asked may have gone.
                    let _gone = answer.send(page(&mut self.storage, &query));
                }
                Work::Prune { after, before_ms, now_ms, answer } => {
                    self.append(&mut records);
                    let pruned = prune(&mut self.storage, &self.shared.tenant, after, before_ms, now_ms);
                    self.look_how_full();
                    let _gone = answer.send(pruned);
                }
                Work::End => self.queue.close(),
            }
        }
        self.append(&mut records);
    }

    /// Works until the log is [closed](Audit::close), or every handle dropped. Not for async code: it blocks its thread.
    pub fn run_blocking(mut self) {
        loop {
            let mut work = Vec::new();
            if self.queue.blocking_recv_many(&mut work, GROUP_MAX) == 0 {
                return;
            }
            self.commit(AuditBatch(work));
        }
    }

    /// Runs on a thread of its own. **Errors:** the system gives no thread.
    pub fn spawn(self) -> io::Result<Thread> {
        Thread::start("audit", || self.run_blocking())
    }

    #[cfg(test)]
    pub(super) fn storage_mut(&mut self) -> &mut S {
        &mut self.storage
    }

    /// Writes what was gathered; before it, how many records are missing there.
    fn append(&mut self, records: &mut Vec<Waiting>) {
        self.withhold(records);
        let Some(Waiting { ts_ms, .. }) = records.first() else { return };
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        self.untold += dropped - std::mem::replace(&mut self.told_dropped, dropped);
        let mut canonical = Vec::with_capacity(records.len() + 1);
        if self.untold > 0 {
            let lost = Record::new(Kind::Lost, *ts_ms).with("records", self.untold);
            canonical.push(lost.canonical(&self.shared.tenant));
        }
        let count = records.len() as u64;
        let mut bytes = 0;
        canonical.extend(records.drain(..).map(|record| {
            bytes += record.canonical.len();
            record.canonical
        }));
        self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        match self.storage.append(&canonical) {
            Ok(()) => {
                self.shared.written.fetch_add(canonical.len() as u64, Ordering::Relaxed);
                self.untold = 0;
                self.look_how_full();
                if self.shared.is_failing.swap(false, Ordering::Relaxed) {
                    tracing::info!("the audit log can be written again");
                }
            }
            Err(error) => {
                self.shared.refused.fetch_add(count, Ordering::Relaxed);
                self.untold += count;
                if !self.shared.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(%error, "audit records are lost: the audit log cannot be written");
                }
            }
        }
    }
}

impl<S: AuditStorage> AuditWriter<S> {
    /// Takes denials out that would use the reserve, and counts them.
    fn withhold(&mut self, records: &mut Vec<Waiting>) {
        let used = self.shared.used_percent.load(Ordering::Relaxed);
        let is_full = used >= 100 - u64::from(self.reserved_percent.min(100));
        if self.reserved_percent == 0 || !records.iter().any(|record| record.is_denial) {
            return;
        }
        if !is_full {
            self.is_withholding = false;
            return;
        }
        let before = records.len();
        let mut bytes = 0;
        records.retain(|record| {
            bytes += if record.is_denial { record.canonical.len() } else { 0 };
            !record.is_denial
        });
        let withheld = (before - records.len()) as u64;
        self.shared.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.shared.withheld.fetch_add(withheld, Ordering::Relaxed);
        self.untold += withheld;
        if !std::mem::replace(&mut self.is_withholding, true) {
            tracing::error!(
                used_percent = used,
                "denied messages are no longer recorded: the rest of the audit log is reserved for other kinds; \
                 run capctl audit prune, or raise audit.file_bytes_max"
            );
        }
    }

    fn look_how_full(&mut self) {
        if let Ok(used) = self.storage.used_percent() {
            self.shared.used_percent.store(used, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("is_off", &self.queue.is_none()).finish_non_exhaustive()
    }
}

/// Records and questions that wait. Ours: a burst of every call in flight being refused at once fits.
const QUEUE_MAX: usize = 4_096;
/// Bytes of records that wait. **Units:** bytes.
const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most work that is done together.
const GROUP_MAX: usize = 512;
