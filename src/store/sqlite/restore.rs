//! Prepares a folder for a journal that comes from a copy: makes sure that nobody uses it, and gives the copy a new id.

use std::path::Path;

use capd_proto::ledger::JournalId;
use rusqlite::Connection;

use super::super::{Loaded, Storage as _, StoreError, StoreErrorKind};
use super::open::Files;
use super::{Options, Sqlite};

/// The lock of a folder's journal, held until it is dropped; there is nothing to hold where no journal can be read.
#[derive(Debug)]
pub struct Unused(Option<Connection>);

impl Unused {
    /// Takes the lock of the journal in `folder`, as a sidecar would. Nothing is written.
    ///
    /// **Errors:** [`Locked`](StoreErrorKind::Locked): a sidecar uses it.
    pub fn lock(folder: &Path) -> Result<Self, StoreError> {
        let files = Files::new(folder)?;
        if !files.database.exists() {
            return Ok(Self(None));
        }
        let locked = files.connect().and_then(|connection| {
            // The first read takes the lock.
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            Ok(connection)
        });
        match locked.map_err(|error| files.failed(error.into())) {
            Ok(connection) => Ok(Self(Some(connection))),
            Err(error) if error.kind() == StoreErrorKind::Locked => Err(error),
            // Nobody runs with a journal that cannot be read.
            Err(_damaged) => Ok(Self(None)),
        }
    }

    /// Whether there is a journal that can be read.
    pub fn is_held(&self) -> bool {
        self.0.is_some()
    }
}

impl Sqlite {
    /// Checks the copy of a journal in `folder`, as [`Sqlite::open`] does, and gives it an id of its own: peers then know
    /// that it may have forgotten calls. Returns the id, and what the copy holds.
    ///
    /// The folder must hold nothing of another journal, and above all no `last-journal`.
    ///
    /// **Errors:** as [`Sqlite::open`].
    pub fn renew(folder: &Path) -> Result<(JournalId, Loaded), StoreError> {
        let mut journal = Sqlite::open(folder, Options::default())?;
        let loaded = journal.load()?;
        Ok((journal.journal_id(), loaded))
    }
}
