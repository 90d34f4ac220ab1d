//! Maps SQLite errors and failed checks to kinds that an owner can act on.

use std::fmt;
use std::io;
use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};
use rustix::fs::Access;

use super::super::{StoreError, StoreErrorKind};
use super::open::Files;

/// What was found wrong below a journal.
#[derive(Debug)]
pub(super) enum Damage {
    /// The content is not what was written.
    Found(String),
    /// A change contradicts the content.
    Conflict(String),
    /// SQLite refused.
    Sqlite(Error),
}

impl Damage {
    pub(super) fn found(what: impl fmt::Display) -> Self {
        Self::Found(what.to_string())
    }

    pub(super) fn row(table: &str, row: super::Row) -> Self {
        Self::Found(format!("{table}, row {}: its checksum is wrong", row.0))
    }
}

impl From<Error> for Damage {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Files {
    /// An error about these files.
    pub(super) fn error(&self, kind: StoreErrorKind, what: impl fmt::Display) -> StoreError {
        StoreError::new(kind, self.database.display(), what)
    }

    /// What `damage` is while the journal runs.
    pub(super) fn failed(&self, damage: Damage) -> StoreError {
        match damage {
            Damage::Found(what) => self.error(StoreErrorKind::Corrupt, what),
            Damage::Conflict(what) => self.error(StoreErrorKind::Conflict, what),
            Damage::Sqlite(error) => self.error(self.kind(&error), error),
        }
    }

    /// What `damage` is while the content is read for the first time: an SQL statement that fails then does so because
    /// the schema is not what was written.
    pub(super) fn damaged(&self, damage: Damage) -> StoreError {
        match damage {
            Damage::Sqlite(error) => {
                let kind = match self.kind(&error) {
                    StoreErrorKind::Io if !is_io(&error) => StoreErrorKind::Corrupt,
                    kind => kind,
                };
                self.error(kind, error)
            }
            other => self.failed(other),
        }
    }

    /// What the system says of a file beside the database.
    pub(super) fn refused(&self, path: &Path, action: &str, error: &io::Error) -> StoreError {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                StoreErrorKind::Full
            }
            _ => StoreErrorKind::Io,
        };
        StoreError::new(kind, path.display(), format_args!("{action}: {error}"))
    }

    fn kind(&self, error: &Error) -> StoreErrorKind {
        let Some(failure) = error.sqlite_error() else {
            // A column of another type or text that is no UTF-8: what was written had neither.
            return StoreErrorKind::Corrupt;
        };
        match failure.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => StoreErrorKind::Locked,
            ErrorCode::DiskFull => StoreErrorKind::Full,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreErrorKind::Corrupt,
            ErrorCode::ConstraintViolation => StoreErrorKind::Conflict,
            ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_SHORT_READ => {
                StoreErrorKind::Corrupt
            }
            // SQLite opens what it may not write for reading, and is refused only later: by a lock, or by the log.
            _ if !self.writable() => StoreErrorKind::ReadOnly,
            _ => StoreErrorKind::Io,
        }
    }

    /// Whether the system lets us write the database and make files beside it.
    pub(super) fn writable(&self) -> bool {
        let allowed = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
        allowed(&self.folder) && (!self.database.exists() || allowed(&self.database))
    }
}

/// Whether the system below SQLite refused, not SQLite itself.
fn is_io(error: &Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::OutOfMemory
                | ErrorCode::PermissionDenied
        )
    )
}
