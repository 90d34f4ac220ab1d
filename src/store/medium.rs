//! A place in; an open storage, and a writer at work on it, out.

use std::io;
use std::path::PathBuf;

use super::{Options, Sqlite, Storage, StoreError, Thread, Writer, spawn};

/// Where a sidecar's journal stands, and who runs its writer: a file and a thread, or a simulated disk and its task.
pub trait Medium {
    /// What keeps the rows.
    type Storage: Storage;

    /// Opens what a former process has left, or makes it.
    ///
    /// **Errors:** it cannot be used; [`StoreError`] says why and what to do.
    fn open(&self) -> Result<Self::Storage, StoreError>;

    /// Runs the writer until its journal is closed; gives the thread to wait for, if there is one.
    ///
    /// **Errors:** the system gives no thread.
    fn run<T: Send + 'static>(&self, writer: Writer<T, Self::Storage>) -> io::Result<Option<Thread>>;
}

/// SQLite in a folder, written by a thread of its own.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// The journal of this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }
}

impl Medium for Folder {
    type Storage = Sqlite;

    fn open(&self) -> Result<Sqlite, StoreError> {
        Sqlite::open(&self.0, Options::default())
    }

    fn run<T: Send + 'static>(&self, writer: Writer<T, Sqlite>) -> io::Result<Option<Thread>> {
        spawn(writer).map(Some)
    }
}
