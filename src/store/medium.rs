//! Opens storages, and starts their writers.

use std::io;
use std::path::PathBuf;

use super::audit::{AuditOptions, AuditPlace, AuditStorage, AuditWriter};
use super::{Options, Sqlite, Storage, StoreError, Thread, Writer, spawn};

/// The place of a sidecar's journal and audit log, and how their writers run: files and threads, or a simulated disk
/// and its tasks.
pub trait Medium {
    /// What keeps the journal's rows.
    type Storage: Storage + Send + 'static;
    /// What keeps the audit log's records.
    type Audit: AuditStorage;

    /// Opens what a former process has left, or makes it.
    ///
    /// **Errors:** it cannot be used; [`StoreError`] says why and what to do.
    fn open(&self) -> Result<Self::Storage, StoreError>;

    /// Runs the writer until its journal is closed; gives the thread to wait for, if there is one.
    ///
    /// **Errors:** the system gives no thread.
    fn run<T: Send + 'static>(&self, writer: Writer<T, Self::Storage>) -> io::Result<Option<Thread>>;

    /// Opens the audit log at `now_ms`. It is there whatever was left: one that cannot be written loses its records.
    ///
    /// **Units:** milliseconds since the Unix epoch.
    fn open_audit(&self, options: AuditOptions, now_ms: u64) -> Self::Audit;

    /// Runs the audit log's writer until the log is closed; gives the thread to wait for, if there is one.
    ///
    /// **Errors:** the system gives no thread.
    fn run_audit(&self, writer: AuditWriter<Self::Audit>) -> io::Result<Option<Thread>>;
}

/// SQLite in a folder, each file written by a thread of its own.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The medium of this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }
}

impl Medium for Folder {
    type Storage = Sqlite;
    type Audit = AuditPlace;

    fn open(&self) -> Result<Sqlite, StoreError> {
        Sqlite::open(&self.0, Options::default())
    }

    fn run<T: Send + 'static>(&self, writer: Writer<T, Sqlite>) -> io::Result<Option<Thread>> {
        spawn(writer).map(Some)
    }

    fn open_audit(&self, options: AuditOptions, now_ms: u64) -> AuditPlace {
        AuditPlace::open(options, now_ms)
    }

    fn run_audit(&self, writer: AuditWriter<AuditPlace>) -> io::Result<Option<Thread>> {
        writer.spawn().map(Some)
    }
}
