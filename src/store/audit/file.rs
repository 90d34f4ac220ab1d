//! Stores canonical records as rows of one SQLite file, and reports every error.
//!
//! The file is in write-ahead mode and not locked, so other processes may read it beside a sidecar that writes. A
//! record is committed, not synced: it survives the process, and a power cut may take the last few.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, ffi, params};

use super::super::{StoreError, StoreErrorKind};
use super::chain::{Entry, Hash, Head, record_hash};
use super::{AuditStorage, Record};

/// An audit log's open file.
#[derive(Debug)]
pub struct AuditFile {
    connection: Connection,
    path: PathBuf,
    /// Its device and inode.
    identity: (u64, u64),
    /// Largest size. **Units:** pages.
    pages_max: Option<u64>,
}

impl AuditFile {
    /// Opens the file for reading only: it may be damaged, a sidecar may write it meanwhile, and nothing is changed.
    ///
    /// **Errors:** it does not exist, is not an audit log, was written by a later capd, or cannot be read.
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        Self::open(path, OpenFlags::SQLITE_OPEN_READ_ONLY, None)
    }

    /// Opens the file for reading and writing, to grow to at most `bytes_max`. A sidecar may write it meanwhile.
    ///
    /// **Errors:** as [`AuditFile::read`]; the chain's ends are damaged, or it cannot be written.
    pub fn write(path: &Path, bytes_max: Option<u64>) -> Result<Self, StoreError> {
        Self::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE, bytes_max)
    }

    /// Copies the log into a new file, which has the records of one moment; a sidecar may write the log meanwhile.
    ///
    /// **Errors:** the file exists, or cannot be written.
    pub fn copy(&self, to: &Path) -> Result<(), StoreError> {
        let mut options = OpenOptions::new();
        let made = options.write(true).create_new(true).mode(0o600).open(to);
        made.map_err(|error| refused(to, "create", &error))?;
        let copy = || -> rusqlite::Result<()> {
            let mut target = Connection::open_with_flags(to, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            target.pragma_update(None, "synchronous", "OFF")?;
            // In one step, so that nothing that is written meanwhile makes it start again.
            let backup = Backup::new(&self.connection, &mut target)?;
            match backup.step(ALL_PAGES)? {
                StepResult::Done => {}
                _ => return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None)),
            }
            drop(backup);
            target.close().map_err(|(_, error)| error)
        };
        copy().map_err(|error| of_sqlite(to, &error))?;
        File::open(to).and_then(|file| file.sync_all()).map_err(|error| refused(to, "sync", &error))
    }

    /// Appends one record to a log that no sidecar writes, and closes the log.
    ///
    /// **Errors:** it cannot be written.
    pub fn note(mut self, record: Record, tenant: &str) -> Result<(), StoreError> {
        self.append(&[record.canonical(tenant)])?;
        let path = self.path.clone();
        // What stands beside the file until then is put into it.
        self.connection.close().map_err(|(_, error)| of_sqlite(&path, &error))
    }

    /// Whether the file still stands under its name.
    pub(super) fn is_in_place(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// Makes an empty one beside its name and links it there, so that the name never shows a part of one.
    ///
    /// **Errors:** there is one, or the system refuses.
    pub(super) fn make(path: &Path) -> Result<(), StoreError> {
        let refused = |action: &'static str| move |error: io::Error| refused(path, action, &error);
        let temporary = beside(path, ".new");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refused("replace")(error)),
            Ok(()) | Err(_) => {}
        }
        // SQLite gives the files beside it the same mode.
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&temporary).map_err(refused("create"))?;
        let make = || -> rusqlite::Result<()> {
            let connection = Connection::open_with_flags(&temporary, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            connection.execute_batch(SCHEMA)?;
            connection.pragma_update(None, "user_version", VERSION)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.close().map_err(|(_, error)| error)
        };
        let made = make().map_err(|error| of_sqlite(path, &error)).and_then(|()| {
            File::open(&temporary).and_then(|file| file.sync_all()).map_err(refused("sync"))?;
            fs::hard_link(&temporary, path).map_err(refused("create"))
        });
        let removed = fs::remove_file(&temporary).map_err(refused("create"));
        made.and(removed)
    }

    fn open(path: &Path, access: OpenFlags, bytes_max: Option<u64>) -> Result<Self, StoreError> {
        // SQLite would take a relative path that starts with "file:" for a URI.
        let path = &std::path::absolute(path).map_err(|error| refused(path, "find", &error))?;
        match fs::metadata(path) {
            Ok(found) if found.len() > 0 => {}
            Ok(_) => return Err(damaged(path, "the file is empty")),
            Err(error) if error.kind() == io::ErrorKind::NotFound && beside(path, "-wal").exists() => {
                return Err(damaged(path, "the file is missing, though its log is there"));
            }
            Err(error) => return Err(refused(path, "open", &error)),
        }
        let identity = identity(path).map_err(|error| refused(path, "look at", &error))?;
        let opened = connect(path, access).map_err(|error| of_sqlite(path, &error))?;
        let mut file = Self { connection: opened, path: path.clone(), identity, pages_max: None };
        file.identify()?;
        if access.contains(OpenFlags::SQLITE_OPEN_READ_WRITE) {
            file.check_ends()?;
            file.ready_to_write(bytes_max).map_err(|error| of_sqlite(path, &error))?;
        }
        Ok(file)
    }

    /// Checks that it is an audit log, and one that we can read.
    fn identify(&self) -> Result<(), StoreError> {
        let read =
            |pragma: &str| self.connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let application = read("application_id").map_err(|error| of_sqlite(&self.path, &error))?;
        if application != i64::from(APPLICATION_ID) {
            let error =
                StoreError::new(StoreErrorKind::Foreign, self.path.display(), "it is no audit log of capd's");
            return Err(error.remedy("name another file in audit.file, or move that one away"));
        }
        match read("user_version").map_err(|error| of_sqlite(&self.path, &error))? {
            VERSION => Ok(()),
            found if found > VERSION => {
                let kind = StoreErrorKind::Newer {
                    found: u32::try_from(found).unwrap_or(u32::MAX),
                    known: VERSION.unsigned_abs() as u32,
                };
                let what =
                    format_args!("its schema version is {found}, and this capd knows none above {VERSION}");
                Err(StoreError::new(kind, self.path.display(), what))
            }
            found => Err(damaged(&self.path, &format!("its schema version is {found}"))),
        }
    }

    /// Whether the next record can be put behind the last one. The rest of the chain is for `verify` to look at: a start
    /// does not wait for it.
    fn check_ends(&self) -> Result<(), StoreError> {
        let head = self.read_head().map_err(|error| self.unreadable(&error, "its end"))?;
        let last = self.last_row(u64::MAX).map_err(|error| self.unreadable(&error, "its last row"))?;
        let found =
            last.as_ref().map_or(Head::default(), |(seq, hash, _)| Head { seq: *seq, hash: Some(*hash) });
        if found != head {
            return Err(damaged(
                &self.path,
                &format!("its last row is {}, and it should be row {}", found.seq, head.seq),
            ));
        }
        let Some((seq, hash, Some(record))) = last else { return Ok(()) };
        let before =
            self.last_row(seq - 1).map_err(|error| self.unreadable(&error, "the row before its last"))?;
        let prev = before.map(|(_, hash, _)| hash);
        if record_hash(prev.as_ref(), &record) == hash {
            Ok(())
        } else {
            Err(damaged(&self.path, &format!("row {seq} does not have its hash")))
        }
    }

    fn ready_to_write(&mut self, bytes_max: Option<u64>) -> rusqlite::Result<()> {
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        self.connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
        // What is pruned is gone, not only out of sight.
        self.connection.pragma_update(None, "secure_delete", true)?;
        let page_bytes: u32 = self.connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        self.pages_max = bytes_max.map(|bytes_max| bytes_max / u64::from(page_bytes.max(1)));
        self.limit_pages(0)
    }

    fn limit_pages(&self, more: u64) -> rusqlite::Result<()> {
        let Some(pages_max) = self.pages_max else { return Ok(()) };
        self.connection.query_row(&format!("PRAGMA max_page_count = {}", pages_max + more), [], |_| Ok(()))
    }

    fn read_head(&self) -> rusqlite::Result<Head> {
        let mut statement = self.connection.prepare_cached("SELECT seq, hash FROM head")?;
        statement.query_row([], |row| Ok(Head { seq: seq(row, 0)?, hash: row.get(1)? }))
    }

    /// The last row at `seq` or before it.
    fn last_row(&self, seq_max: u64) -> rusqlite::Result<Option<(u64, Hash, Option<String>)>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT seq, hash, record FROM records WHERE seq <= ?1 ORDER BY seq DESC LIMIT 1",
        )?;
        let mut rows = statement.query([i64::try_from(seq_max).unwrap_or(i64::MAX)])?;
        rows.next()?.map(|row| Ok((seq(row, 0)?, row.get(1)?, row.get(2)?))).transpose()
    }

    /// Puts records behind the last one, within a transaction.
    fn put(&self, records: &[String]) -> rusqlite::Result<()> {
        // Read each time: another process may have pruned, which appends.
        let mut head = self.read_head()?;
        let mut insert = self.connection.prepare_cached("INSERT INTO records VALUES (?1, ?2, ?3)")?;
        for record in records {
            let entry = head.after(record);
            insert.execute(params![entry.seq.cast_signed(), entry.record_hash, record])?;
        }
        let mut update = self.connection.prepare_cached("UPDATE head SET seq = ?1, hash = ?2")?;
        update.execute(params![head.seq.cast_signed(), head.hash]).map(drop)
    }

    fn transact(&mut self, work: impl FnOnce(&Self) -> rusqlite::Result<()>) -> Result<(), StoreError> {
        let begun = self.connection.execute_batch("BEGIN IMMEDIATE");
        let done = begun.and_then(|()| work(self)).and_then(|()| self.connection.execute_batch("COMMIT"));
        done.map_err(|error| {
            if !self.connection.is_autocommit() {
                // The first error is the one to tell; the next transaction will not begin if this fails.
                let _rolled_back = self.connection.execute_batch("ROLLBACK");
            }
            of_sqlite(&self.path, &error)
        })
    }

    /// An error while the content is read: SQL that fails then does so because the schema is not what was written.
    fn unreadable(&self, error: &rusqlite::Error, what: &str) -> StoreError {
        let told = of_sqlite(&self.path, error);
        match (told.kind(), error.sqlite_error_code()) {
            (
                StoreErrorKind::Io,
                Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory),
            ) => told,
            (StoreErrorKind::Io | StoreErrorKind::Corrupt, _) => {
                damaged(&self.path, &format!("{what} cannot be read: {error}"))
            }
            _ => told,
        }
    }
}

impl AuditStorage for AuditFile {
    fn append(&mut self, records: &[String]) -> Result<(), StoreError> {
        self.transact(|file| file.put(records))
    }

    fn head(&mut self) -> Result<Head, StoreError> {
        self.read_head().map_err(|error| self.unreadable(&error, "its end"))
    }

    fn read(&mut self, after: u64, rows_max: usize, bytes_max: usize) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        let mut read = || -> rusqlite::Result<()> {
            let mut prev_hash =
                if after == 0 { None } else { self.last_row(after)?.map(|(_, hash, _)| hash) };
            let mut statement = self.connection.prepare_cached(
                "SELECT seq, hash, record FROM records WHERE seq > ?1 ORDER BY seq LIMIT ?2",
            )?;
            let limit = i64::try_from(rows_max).unwrap_or(i64::MAX);
            let mut rows = statement.query([i64::try_from(after).unwrap_or(i64::MAX), limit])?;
            let mut bytes = 0;
            while bytes < bytes_max
                && let Some(row) = rows.next()?
            {
                let (seq, record_hash, record) = (seq(row, 0)?, row.get(1)?, row.get(2)?);
                let entry = Entry { seq, prev_hash, record, record_hash };
                prev_hash = Some(record_hash);
                bytes += entry.len_bytes();
                entries.push(entry);
            }
            Ok(())
        };
        let outcome = read();
        match outcome {
            // What stands before a damaged row can be read; the row is met again when it is the first.
            Err(error) if entries.is_empty() => {
                Err(self.unreadable(&error, &format!("the row behind row {after}")))
            }
            Ok(()) | Err(_) => Ok(entries),
        }
    }

    fn used_percent(&mut self) -> Result<u64, StoreError> {
        let Some(pages_max) = self.pages_max else { return Ok(0) };
        let pages = |pragma: &str| {
            self.connection
                .pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
                .map(i64::cast_unsigned)
        };
        let used = pages("page_count").and_then(|all| Ok(all.saturating_sub(pages("freelist_count")?)));
        let used = used.map_err(|error| of_sqlite(&self.path, &error))?;
        Ok((used.saturating_mul(100) / pages_max.max(1)).min(100))
    }

    fn erase(&mut self, places: &[(u64, u64)], note: &str) -> Result<(), StoreError> {
        // A full file has no room for the note before it has been emptied.
        self.limit_pages(PAGES_TO_PRUNE).map_err(|error| of_sqlite(&self.path, &error))?;
        let erased = self.transact(|file| {
            // A row that is made smaller where it stands leaves its page to itself: rows are put in anew, close together.
            let mut find = file
                .connection
                .prepare_cached("SELECT seq, hash FROM records WHERE seq BETWEEN ?1 AND ?2")?;
            let mut delete =
                file.connection.prepare_cached("DELETE FROM records WHERE seq BETWEEN ?1 AND ?2")?;
            let mut insert = file.connection.prepare_cached("INSERT INTO records VALUES (?1, ?2, NULL)")?;
            for (first, last) in places {
                let place = [first.cast_signed(), last.cast_signed()];
                let rows = find.query_map(place, |row| Ok((row.get(0)?, row.get(1)?)))?;
                let rows: Vec<(i64, Hash)> = rows.collect::<Result<_, _>>()?;
                delete.execute(place)?;
                for (seq, hash) in rows {
                    insert.execute(params![seq, hash])?;
                }
            }
            file.put(&[note.to_owned()])
        });
        // The log holds what was erased until it is copied and cut; a reader may stand in the way, and then the next
        // copying does it.
        let _cut = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        self.limit_pages(0).map_err(|error| of_sqlite(&self.path, &error))?;
        erased
    }
}

fn connect(path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(connection)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// A file whose name is that of `path` and `suffix`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn seq(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(i64::cast_unsigned)
}

fn damaged(path: &Path, what: &str) -> StoreError {
    let error = StoreError::new(StoreErrorKind::Corrupt, path.display(), what);
    error.remedy("keep a copy; capctl audit verify --file names the first row that is wrong")
}

/// What the system says of the file.
pub(super) fn refused(path: &Path, action: &str, error: &io::Error) -> StoreError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => StoreErrorKind::Missing,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::ReadOnly,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            StoreErrorKind::Full
        }
        _ => StoreErrorKind::Io,
    };
    let error = StoreError::new(kind, path.display(), format_args!("{action}: {error}"));
    if kind == StoreErrorKind::Missing {
        error.remedy("is it the right file? audit.file names it")
    } else {
        error
    }
}

/// What SQLite says of the file.
fn of_sqlite(path: &Path, error: &rusqlite::Error) -> StoreError {
    let Some(failure) = error.sqlite_error() else {
        // A column of another type or text that is no UTF-8: what was written had neither.
        return damaged(path, &error.to_string());
    };
    let told = |kind| StoreError::new(kind, path.display(), error);
    match failure.code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => damaged(path, &error.to_string()),
        ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_SHORT_READ => {
            damaged(path, &error.to_string())
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => told(StoreErrorKind::Locked)
            .remedy("another process keeps it locked; it may be written when that ends"),
        ErrorCode::DiskFull => told(StoreErrorKind::Full).remedy(
            "free space on its disk, raise audit.file_bytes_max, or run capctl audit prune --older-than 90d",
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => told(StoreErrorKind::ReadOnly),
        ErrorCode::CannotOpen if rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_err() => {
            told(StoreErrorKind::ReadOnly)
        }
        _ => told(StoreErrorKind::Io),
    }
}

/// `hash` is the chain's, `record` the canonical text, none where it was pruned. `head` is the end of the chain, so that
/// rows missing there are missed.
const SCHEMA: &str = "
CREATE TABLE records (seq INTEGER PRIMARY KEY, hash BLOB NOT NULL, record TEXT) STRICT;
CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, hash BLOB) STRICT;
INSERT INTO head VALUES (1, 0, NULL);
";
/// The schema's version; a later one comes with a migration.
const VERSION: i64 = 1;
/// For a copy in one step.
const ALL_PAGES: i32 = -1;
/// "capa", in the header of each audit log.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"capa");
/// How long a commit or a page waits for another process that has the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of log that stay allocated once their content is copied.
const LOG_BYTES_KEPT: u32 = 4 * 1024 * 1024;
/// Pages above its bound that a full file may take while it is pruned.
const PAGES_TO_PRUNE: u64 = 1_024;
