//! Copies an open journal into a new file, a few pages at a time, while commits go on in between.
//!
//! SQLite writes each page that a commit changes into the copy as well, because both are written through the same
//! connection. So the copy never starts again, and it holds the last commit before its last page.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::super::{Storage, StoreError, StoreErrorKind};
use super::Open;
use super::open::OPEN;

/// Copies the journal to `to`, which must not exist; it is on disk when this returns.
///
/// **Errors:** the file exists, or the system refuses; then nothing is left of the copy.
pub(super) fn copy(
    mut open: Open<'_>,
    to: &Path,
    between: &mut dyn FnMut(&mut dyn Storage),
) -> Result<(), StoreError> {
    // Its owner alone may read it, from its first byte on.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    made.map_err(|error| refused(to, "create", &error))?;
    let copied = fill(&mut open, to, between);
    if copied.is_err() {
        // The first error is the one to report.
        let _left = std::fs::remove_file(to);
    }
    copied
}

fn fill(open: &mut Open<'_>, to: &Path, between: &mut dyn FnMut(&mut dyn Storage)) -> Result<(), StoreError> {
    let database = open.kept.files.database.clone();
    let failed = |error: rusqlite::Error| {
        let full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
        let kind = if full { StoreErrorKind::Full } else { StoreErrorKind::Io };
        StoreError::new(kind, to.display(), format_args!("copy {}: {error}", database.display()))
    };
    let mut target = Connection::open_with_flags(to, OPEN).map_err(failed)?;
    // One sync at the end; a copy that a crash cut off is of no use.
    target.pragma_update(None, "synchronous", "OFF").map_err(failed)?;
    let connection = open.connection;
    let backup = Backup::new(connection, &mut target).map_err(failed)?;
    loop {
        match backup.step(PAGES_PER_STEP).map_err(failed)? {
            StepResult::Done => break,
            StepResult::More => between(open),
            // Both files are this connection's alone, unless somebody opens the copy before it is whole.
            _ => return Err(StoreError::new(StoreErrorKind::Locked, to.display(), "copy the journal")),
        }
    }
    drop(backup);
    target.close().map_err(|(_, error)| failed(error))?;
    File::open(to).and_then(|file| file.sync_all()).map_err(|error| refused(to, "sync", &error))
}

fn refused(path: &Path, action: &str, error: &io::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Io, path.display(), format_args!("{action}: {error}"))
}

/// Pages copied before queued work is done. Ours: 1 MiB, which takes less time than one sync of a disk.
const PAGES_PER_STEP: i32 = 256;
