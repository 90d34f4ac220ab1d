//! Opens the journal of a folder, checked and writable, or explains why not.
//!
//! Nothing is written before everything is checked: a refused journal stays as it was.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use capd_proto::ledger::JournalId;
use capd_proto::limits::JOURNAL_ID_BYTES;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::super::migrations::{self, VERSION};
use super::super::{Loaded, Storage, StoreError, StoreErrorKind};
use super::last::{Last, LastFile};
use super::mark::{Mark, MarkFile};
use super::rows::{self, Totals};
use super::{Damage, Kept, Options, Sqlite};

/// Where a journal stands.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) folder: PathBuf,
    pub(super) database: PathBuf,
    pub(super) log: PathBuf,
    pub(super) mark: PathBuf,
    /// Which journal was here last: no part of the journal, which a copy of it does not replace.
    pub(super) last: PathBuf,
}

impl Sqlite {
    /// Opens the journal in `folder`, or makes one if there is none.
    ///
    /// It reads and checks the whole file: the pages' shape, the schema, every row's checksum, the rows' numbers
    /// against the totals, the totals against the mark. If only the mark is missing or damaged, it is written again. A
    /// journal that is not the last one of this folder gets a new id: it has forgotten calls.
    ///
    /// **Errors:** every kind but [`Missing`](StoreErrorKind::Missing), [`Conflict`](StoreErrorKind::Conflict) and
    /// [`Closed`](StoreErrorKind::Closed).
    pub fn open(folder: &Path, options: Options) -> Result<Self, StoreError> {
        let files = Files::new(folder)?;
        let mark = Mark::read(&files.mark).map_err(|error| files.refused(&files.mark, "read", &error))?;
        let last = Last::read(&files.last).map_err(|error| files.refused(&files.last, "read", &error))?;
        if files.must_be_made(mark)? {
            files.make(options)?;
        }
        let connection = files.connect().map_err(|error| files.unreadable(error, mark))?;
        let version = files.identify(&connection, mark)?;
        let (totals, loaded) = files.check(&connection, options, version, mark)?;
        files.take_over(connection, totals, loaded, (mark, last))
    }
}

impl Files {
    pub(super) fn new(folder: &Path) -> Result<Self, StoreError> {
        // SQLite would take a relative path that starts with "file:" for a URI.
        let folder = std::path::absolute(folder).map_err(|error| {
            StoreError::new(StoreErrorKind::Io, folder.display(), format_args!("find it: {error}"))
        })?;
        let file = |name| folder.join(name);
        let (database, log, mark, last) = (file(DATABASE), file(LOG), file(MARK), file(LAST));
        Ok(Self { folder, database, log, mark, last })
    }

    /// Bytes of the database and its log.
    pub(super) fn bytes(&self) -> u64 {
        let size = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        size(&self.database) + size(&self.log)
    }

    /// Whether there is no journal. One that has lost its database is not taken for none: SQLite would make a new one
    /// and delete the log.
    fn must_be_made(&self, mark: Mark) -> Result<bool, StoreError> {
        let size = |path: &Path| match fs::metadata(path) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.refused(path, "look at", &error)),
        };
        let lost = match (size(&self.database)?, size(&self.log)?, mark) {
            (Some(0), _, _) => "the file is empty",
            (Some(_), _, _) => return Ok(false),
            (None, Some(_), _) => "the file is missing, though its log journal.db-wal is there",
            (None, None, Mark::Damaged | Mark::At(_)) => {
                "the file is missing, though journal.mark knows of its commits"
            }
            (None, None, Mark::Absent) => return Ok(true),
        };
        Err(self.error(StoreErrorKind::Corrupt, lost))
    }

    /// Makes an empty journal beside its name and links it there, so that the name never shows a part of one. Of two
    /// starts at once, one makes it.
    fn make(&self, options: Options) -> Result<(), StoreError> {
        let mut suffix = [0; 8];
        getrandom::fill(&mut suffix)
            .map_err(|error| self.refused(&self.database, "draw a name", &io::Error::other(error)))?;
        let temporary = self.folder.join(format!("{DATABASE}.{:016x}.tmp", u64::from_be_bytes(suffix)));
        let id = self.draw_id()?;
        let made = self.make_at(&temporary, options, id).and_then(|()| {
            match fs::hard_link(&temporary, &self.database) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    Err(self.refused(&self.database, "create", &error))
                }
                _ => Ok(()),
            }
        });
        let removed = fs::remove_file(&temporary);
        made?;
        removed.map_err(|error| self.refused(&temporary, "remove", &error))?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| self.refused(&self.folder, "sync", &error))
    }

    fn make_at(&self, path: &Path, options: Options, id: JournalId) -> Result<(), StoreError> {
        // SQLite gives its log the mode of the database.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| self.refused(path, "create", &error))?;
        let make = || -> rusqlite::Result<()> {
            let connection = Connection::open_with_flags(path, OPEN)?;
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "page_size", options.page_bytes)?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            migrations::migrate(&connection, 0)?;
            let totals = Totals { journal: Some(id), ..Totals::default() };
            let row = rusqlite::params![totals.sum(), id.0];
            connection.execute("INSERT INTO totals VALUES (1, 0, 0, 0, 0, 0, ?1, 0, ?2, 0, 0, 0)", row)?;
            // Closing copies the log into the database and removes it.
            connection.close().map_err(|(_, error)| error)
        };
        make().map_err(|error| self.failed(error.into()))
    }

    /// A new journal's id.
    fn draw_id(&self) -> Result<JournalId, StoreError> {
        let mut id = [0; JOURNAL_ID_BYTES];
        getrandom::fill(&mut id)
            .map_err(|error| self.refused(&self.database, "draw an id", &io::Error::other(error)))?;
        Ok(JournalId(id))
    }

    /// Opens the database and takes its lock, without writing to it.
    pub(super) fn connect(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(&self.database, OPEN)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        connection.busy_timeout(std::time::Duration::ZERO)?;
        // Until it is checked, closing must not copy a log into it.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        // Before the first read, so that SQLite keeps its index of the log in memory and not in a file.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // What is forgotten is gone, not only out of sight.
        connection.pragma_update(None, "secure_delete", true)?;
        // A burst's log is given back; what stays is room that a full disk cannot take.
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT)?;
        Ok(connection)
    }

    /// Checks that this is a journal, and one that we can read; returns its schema's version.
    fn identify(&self, connection: &Connection, mark: Mark) -> Result<u32, StoreError> {
        let application: i32 = connection
            .pragma_query_value(None, "application_id", |row| row.get(0))
            .map_err(|error| self.unreadable(error, mark))?;
        if application != APPLICATION_ID {
            return Err(self.no_journal("it is no journal of capd's", mark));
        }
        let read = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let version = read("user_version").map_err(|error| self.damaged(error.into()))?;
        match u32::try_from(version) {
            Ok(version @ 1..=VERSION) => Ok(version),
            Ok(0) | Err(_) => {
                Err(self.error(StoreErrorKind::Corrupt, format_args!("its schema version is {version}")))
            }
            Ok(found) => Err(self.error(
                StoreErrorKind::Newer { found, known: VERSION },
                format_args!("its schema version is {found}, and this capd knows none above {VERSION}"),
            )),
        }
    }

    /// What `error` is before we know whether this is a journal at all.
    fn unreadable(&self, error: rusqlite::Error, mark: Mark) -> StoreError {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => self.no_journal("it is no SQLite database", mark),
            _ => self.damaged(error.into()),
        }
    }

    /// A file beside a mark was a journal once.
    fn no_journal(&self, what: &str, mark: Mark) -> StoreError {
        match mark {
            Mark::Absent => self.error(StoreErrorKind::Foreign, what),
            Mark::Damaged | Mark::At(_) => {
                self.error(StoreErrorKind::Corrupt, format_args!("{what}: its header is damaged"))
            }
        }
    }

    /// Holds what is there against what was acknowledged, and brings the schema up to date.
    fn check(
        &self,
        connection: &Connection,
        options: Options,
        version: u32,
        mark: Mark,
    ) -> Result<(Totals, Loaded), StoreError> {
        let check = || -> Result<(Totals, Loaded), Damage> {
            let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
            if mode != "wal" {
                return Err(Damage::found(format_args!("its journal mode is \"{mode}\", not \"wal\"")));
            }
            // No more than quick_check where there is no index, and it says more of the pages.
            let shape: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
            if shape != "ok" {
                return Err(Damage::found(shape.replace('\n', " ")));
            }
            connection.pragma_update(None, "wal_autocheckpoint", options.checkpoint_pages)?;
            migrations::migrate(connection, version)?;
            if schema(connection)? != *expected_schema()? {
                return Err(Damage::found("its schema is not the one that was written"));
            }
            let totals = Totals::load(connection)?;
            if let Mark::At(acknowledged) = mark
                && totals.commits < acknowledged
            {
                let lost = acknowledged - totals.commits;
                return Err(Damage::found(format_args!(
                    "the last {lost} of {acknowledged} commits are lost (its log journal.db-wal is damaged or \
                     missing, or the file is older than journal.mark)"
                )));
            }
            Ok((totals, rows::load(connection, &totals)?))
        };
        check().map_err(|damage| self.damaged(damage))
    }

    /// Writes for the first time: a commit of nothing, which a full or read-only disk refuses.
    fn take_over(
        self,
        connection: Connection,
        mut totals: Totals,
        loaded: Loaded,
        (mark, last): (Mark, Last),
    ) -> Result<Sqlite, StoreError> {
        let read_only = connection.is_readonly("main").map_err(|error| self.failed(error.into()))?;
        if read_only {
            return Err(if self.writable() {
                self.error(StoreErrorKind::Corrupt, "its header is damaged: SQLite may only read it")
            } else {
                self.error(StoreErrorKind::ReadOnly, "it can be read, but not written")
            });
        }
        let refused = |error: io::Error| self.refused(&self.mark, "write", &error);
        let file = MarkFile::open(&self.mark).map_err(refused)?;
        if mark == Mark::Damaged {
            file.trim().map_err(refused)?;
            tracing::warn!(file = %self.mark.display(), "the journal's mark was damaged and is rewritten");
        }
        if mark == Mark::Absent && totals.commits > 0 {
            tracing::warn!(file = %self.mark.display(), "the journal's mark was missing and is rewritten");
        }
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
            .map_err(|error| self.failed(error.into()))?;
        let forgotten = last.forgotten_by(totals.journal, totals.commits);
        let id = match totals.journal {
            // One that was made just now has an id that nobody knows.
            Some(id) if forgotten.is_none() || totals.commits == 0 => id,
            Some(_) | None => self.draw_id()?,
        };
        if let Some(forgotten) = forgotten {
            let (file, reason) = (self.database.display(), forgotten.reason());
            tracing::warn!(%file, "{reason}: earlier calls from peers end with 5902");
        }
        totals.journal = Some(id);
        let refused = |error: io::Error| self.refused(&self.last, "write", &error);
        let last = LastFile::open(&self.last).map_err(refused)?;
        let kept = Kept { files: self, mark: file, last, mark_failing: false, id, totals, loaded: None };
        let mut journal = Sqlite { connection, kept };
        journal.commit(&[])?;
        journal.kept.keep_last()?;
        journal.kept.loaded = Some(loaded);
        Ok(journal)
    }
}

impl Kept {
    /// Has it on disk which journal is here from this start on.
    fn keep_last(&self) -> Result<(), StoreError> {
        let files = &self.files;
        self.last
            .write_durably(self.id, self.totals.commits)
            .map_err(|error| files.refused(&files.last, "write", &error))?;
        File::open(&files.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| files.refused(&files.folder, "sync", &error))
    }
}

/// The schema's objects as SQLite keeps them.
fn schema(connection: &Connection) -> rusqlite::Result<Vec<[String; 4]>> {
    let mut statement =
        connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name")?;
    let objects = statement.query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?]))?;
    objects.collect()
}

/// The schema that the migrations make.
fn expected_schema() -> rusqlite::Result<&'static Vec<[String; 4]>> {
    static EXPECTED: OnceLock<Vec<[String; 4]>> = OnceLock::new();
    if let Some(expected) = EXPECTED.get() {
        return Ok(expected);
    }
    let connection = Connection::open_in_memory()?;
    migrations::migrate(&connection, 0)?;
    let made = schema(&connection)?;
    Ok(EXPECTED.get_or_init(|| made))
}

const DATABASE: &str = "journal.db";
const LOG: &str = "journal.db-wal";
const MARK: &str = "journal.mark";
const LAST: &str = "last-journal";
/// "capd", in the header of each of our databases.
const APPLICATION_ID: i32 = i32::from_be_bytes(*b"capd");
/// SQLite's own mutexes are not needed: the journal's thread alone uses the connection.
pub(super) const OPEN: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
/// More than the statements there are.
const STATEMENTS_MAX: usize = 32;
/// Bytes of log that stay allocated once their content is copied.
const LOG_BYTES_KEPT: u32 = 64 * 1024 * 1024;
