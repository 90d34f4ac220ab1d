//! Stores the daemon's journal: groups of changes in, one SQLite transaction each out (PROTOCOL 8).
//!
//! Three files belong together in one folder: `journal.db`, SQLite's log `journal.db-wal`, and `journal.mark`.
//! [`Sqlite::open`] checks all three before it trusts any. An open journal has every row that was acknowledged and not
//! forgotten, byte for byte. A fourth file, `last-journal`, detects a journal that was restored from a copy, which then
//! gets a new id.

mod copy;
mod damage;
mod last;
mod mark;
mod open;
mod restore;
mod rows;

use std::path::Path;

use bytes::Bytes;
use rusqlite::{CachedStatement, Connection, params};

use capd_proto::identity::Did;
use capd_proto::ledger::JournalId;

use super::{
    Begun, Change, Given, Keyed, Loaded, Released, Reserved, Row, Storage, StoreError, StoreErrorKind,
};
use damage::Damage;
use last::LastFile;
use mark::MarkFile;
use open::Files;
pub use restore::Unused;
use rows::Totals;

/// A journal in SQLite. It locks the files until it is dropped.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    kept: Kept,
}

/// What is known of a journal beside its database.
#[derive(Debug)]
struct Kept {
    files: Files,
    mark: MarkFile,
    last: LastFile,
    /// Whether the last write of either failed, so that it is logged once.
    mark_failing: bool,
    id: JournalId,
    totals: Totals,
    /// What was read while the file was checked, until somebody asks for it.
    loaded: Option<Loaded>,
}

/// The options of a journal.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a page of a new journal; a power of two from 512 to 65,536.
    pub page_bytes: u32,
    /// Pages in the log before they are copied into the database.
    pub checkpoint_pages: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { page_bytes: PAGE_BYTES, checkpoint_pages: CHECKPOINT_PAGES }
    }
}

/// A journal at work: its connection only lent, so that a copy can be made of it between two commits.
struct Open<'a> {
    connection: &'a Connection,
    kept: &'a mut Kept,
}

impl Storage for Sqlite {
    fn journal_id(&self) -> JournalId {
        self.kept.id
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.open_now().load()
    }

    fn commit(&mut self, batch: &[Change]) -> Result<(), StoreError> {
        self.open_now().commit(batch)
    }

    fn read(&mut self, row: Row) -> Result<Bytes, StoreError> {
        self.open_now().read(row)
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        self.open_now().tidy()
    }

    fn bytes(&self) -> u64 {
        self.kept.files.bytes()
    }

    fn copy(&mut self, to: &Path, between: &mut dyn FnMut(&mut dyn Storage)) -> Result<(), StoreError> {
        copy::copy(self.open_now(), to, between)
    }
}

impl Sqlite {
    fn open_now(&mut self) -> Open<'_> {
        Open { connection: &self.connection, kept: &mut self.kept }
    }
}

impl Storage for Open<'_> {
    fn journal_id(&self) -> JournalId {
        self.kept.id
    }

    fn load(&mut self) -> Result<Loaded, StoreError> {
        let Kept { loaded, totals, files, .. } = &mut *self.kept;
        match loaded.take() {
            Some(loaded) => Ok(loaded),
            None => rows::load(self.connection, totals).map_err(|damage| files.damaged(damage)),
        }
    }

    fn commit(&mut self, batch: &[Change]) -> Result<(), StoreError> {
        // What was read at the start is of no use once it is out of date.
        self.kept.loaded = None;
        match self.transact(batch) {
            Ok(totals) => {
                self.kept.totals = totals;
                self.kept.write_mark();
                Ok(())
            }
            Err(damage) => {
                let error = self.kept.files.failed(damage);
                self.roll_back(error.kind());
                Err(error)
            }
        }
    }

    fn read(&mut self, row: Row) -> Result<Bytes, StoreError> {
        let files = &self.kept.files;
        match rows::read_result(self.connection, row) {
            Ok(Some(result)) => Ok(result.into()),
            Ok(None) => {
                Err(files.error(StoreErrorKind::Missing, format_args!("row {} has no result", row.0)))
            }
            Err(damage) => Err(files.failed(damage)),
        }
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        // Deleted rows are overwritten in the database; the log still has them as they were, until it is cut off.
        let copied = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        copied.map_err(|error| self.kept.files.failed(error.into()))
    }

    fn bytes(&self) -> u64 {
        self.kept.files.bytes()
    }
}

impl Open<'_> {
    /// Writes `batch` in one transaction; returns the totals that stand when it is durable.
    fn transact(&self, batch: &[Change]) -> Result<Totals, Damage> {
        let mut group = Group::new(self.connection, self.kept.totals)?;
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for change in batch {
            match change {
                Change::Begin(begun) => group.begin(begun)?,
                Change::Finish { row, result, finished_at_ms } => {
                    group.finish(*row, result, *finished_at_ms)?
                }
                Change::Give(given) => group.give(given)?,
                Change::Reserve { reserved, replaces } => {
                    group.reserve(reserved)?;
                    group.forgotten.extend(replaces.map(|row| row.0));
                }
                Change::Move { given, replaces } => {
                    group.give(given)?;
                    group.forgotten.push(replaces.0);
                }
                Change::Release(released) => group.release(released)?,
                Change::Key(keyed) => group.key(keyed)?,
                Change::Answer { row, answer } => group.answer(*row, answer)?,
                Change::Forget { row } => group.forgotten.push(row.0),
                Change::Expire { row, expires_at_ms } => {
                    group.forgotten.push(row.0);
                    group.totals.expired_ms = group.totals.expired_ms.max(*expires_at_ms);
                }
            }
        }
        let totals = group.end()?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(totals)
    }

    /// Leaves the transaction that failed with `kind`.
    fn roll_back(&self, kind: StoreErrorKind) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a transaction of the journal cannot be rolled back");
        }
        if kind == StoreErrorKind::Full {
            // A log that was copied starts again from its beginning, in room that the file has already.
            let copied = self.connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
            if let Err(error) = copied {
                tracing::debug!(%error, "the journal's log cannot be copied either");
            }
        }
    }
}

impl Kept {
    /// The commit is durable without it, so a failure is no error of the commit.
    fn write_mark(&mut self) {
        let commits = self.totals.commits;
        let failed = self
            .mark
            .write(commits)
            .map_err(|error| (error, &self.files.mark))
            .and_then(|()| self.last.write(self.id, commits).map_err(|error| (error, &self.files.last)));
        if let Err((error, file)) = &failed
            && !self.mark_failing
        {
            let file = file.display();
            tracing::warn!(%error, %file, "the file cannot be written: a damaged log or an older copy may pass unnoticed");
        }
        self.mark_failing = failed.is_err();
    }
}

/// The statements of one transaction, and what they add up to.
struct Group<'a> {
    connection: &'a Connection,
    totals: Totals,
    begin: CachedStatement<'a>,
    begun: CachedStatement<'a>,
    finish: CachedStatement<'a>,
    give: CachedStatement<'a>,
    reserve: CachedStatement<'a>,
    forgotten: Vec<u64>,
}

impl<'a> Group<'a> {
    fn new(connection: &'a Connection, totals: Totals) -> Result<Self, Damage> {
        Ok(Self {
            connection,
            totals,
            begin: connection.prepare_cached("INSERT INTO calls VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?,
            // Asked for apart: an INSERT that selects could have several rows, and SQLite would keep a copy of each page to
            // undo the first of them.
            begun: connection.prepare_cached("SELECT 1 FROM calls WHERE row = ?1")?,
            finish: connection.prepare_cached("INSERT INTO results VALUES (?1, ?2, ?3, ?4)")?,
            give: connection.prepare_cached("INSERT INTO given VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?,
            reserve: connection
                .prepare_cached("INSERT INTO reserved VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?,
            forgotten: Vec::new(),
        })
    }

    fn begin(&mut self, begun: &Begun) -> Result<(), Damage> {
        self.begin.execute(params![
            begun.row.0.cast_signed(),
            begun.key.from.as_str(),
            begun.key.id.as_bytes(),
            begun.body.0,
            begun.expires_at_ms.cast_signed(),
            begun.started_at_ms.cast_signed(),
            begun.capability,
            rows::begun_sum(begun),
        ])?;
        self.totals.calls += 1;
        Ok(())
    }

    fn finish(&mut self, row: Row, result: &[u8], finished_at_ms: u64) -> Result<(), Damage> {
        if !self.begun.exists([row.0.cast_signed()])? {
            // Acknowledged, it would be a result that is gone after a restart.
            return Err(Damage::Conflict(format!("a result for row {}, which has no call", row.0)));
        }
        let sum = rows::result_sum(row, finished_at_ms, result);
        self.finish.execute(params![row.0.cast_signed(), finished_at_ms.cast_signed(), result, sum])?;
        self.totals.results += 1;
        Ok(())
    }

    fn give(&mut self, given: &Given) -> Result<(), Damage> {
        self.give.execute(params![
            given.row.0.cast_signed(),
            given.id.as_bytes(),
            given.replica.peer.as_str(),
            given.expires_at_ms.cast_signed(),
            rows::given_sum(given),
            given.replica.journal.map(|JournalId(id)| id),
            given.released_by.as_ref().map(Did::as_str),
        ])?;
        self.totals.given += 1;
        Ok(())
    }

    fn reserve(&mut self, reserved: &Reserved) -> Result<(), Damage> {
        self.reserve.execute(params![
            reserved.row.0.cast_signed(),
            reserved.capability,
            reserved.after_ms.cast_signed(),
            reserved.until_ms.cast_signed(),
            rows::peers(&reserved.replicas),
            reserved.expires_at_ms.cast_signed(),
            rows::reserved_sum(reserved),
            rows::journals(&reserved.replicas),
        ])?;
        self.totals.reserved += 1;
        Ok(())
    }

    fn release(&mut self, released: &Released) -> Result<(), Damage> {
        let insert = "INSERT INTO released VALUES (?1, ?2, ?3, ?4, ?5)";
        self.connection.prepare_cached(insert)?.execute(params![
            released.row.0.cast_signed(),
            released.key.from.as_str(),
            released.key.id.as_bytes(),
            released.expires_at_ms.cast_signed(),
            rows::released_sum(released),
        ])?;
        self.totals.released += 1;
        Ok(())
    }

    fn key(&mut self, keyed: &Keyed) -> Result<(), Damage> {
        let insert = "INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        self.connection.prepare_cached(insert)?.execute(params![
            keyed.row.0.cast_signed(),
            keyed.key,
            keyed.digest,
            keyed.id.as_bytes(),
            keyed.terms.as_ref(),
            keyed.expires_at_ms.cast_signed(),
            rows::keyed_sum(keyed),
        ])?;
        self.totals.keys += 1;
        Ok(())
    }

    fn answer(&mut self, row: Row, answer: &[u8]) -> Result<(), Damage> {
        let number = row.0.cast_signed();
        if !self.connection.prepare_cached("SELECT 1 FROM keys WHERE row = ?1")?.exists([number])? {
            return Err(Damage::Conflict(format!("an answer for row {}, which has no key", row.0)));
        }
        let insert = "INSERT INTO answers VALUES (?1, ?2, ?3)";
        self.connection.prepare_cached(insert)?.execute(params![
            number,
            answer,
            rows::answer_sum(row, answer)
        ])?;
        self.totals.answers += 1;
        Ok(())
    }

    /// Removes what is to be forgotten, and writes the totals.
    fn end(mut self) -> Result<Totals, Damage> {
        self.forgotten.sort_unstable();
        let tables = [
            ("DELETE FROM calls WHERE row BETWEEN ?1 AND ?2", &mut self.totals.calls),
            ("DELETE FROM results WHERE row BETWEEN ?1 AND ?2", &mut self.totals.results),
            ("DELETE FROM given WHERE row BETWEEN ?1 AND ?2", &mut self.totals.given),
            ("DELETE FROM reserved WHERE row BETWEEN ?1 AND ?2", &mut self.totals.reserved),
            ("DELETE FROM released WHERE row BETWEEN ?1 AND ?2", &mut self.totals.released),
            ("DELETE FROM keys WHERE row BETWEEN ?1 AND ?2", &mut self.totals.keys),
            ("DELETE FROM answers WHERE row BETWEEN ?1 AND ?2", &mut self.totals.answers),
        ];
        for (delete, live) in tables {
            if self.forgotten.is_empty() || *live == 0 {
                continue;
            }
            let mut delete = self.connection.prepare_cached(delete)?;
            for (first, last) in ranges(&self.forgotten) {
                let removed = delete.execute([first.cast_signed(), last.cast_signed()])? as u64;
                *live = live
                    .checked_sub(removed)
                    .ok_or_else(|| Damage::found("it has more rows than were written"))?;
            }
        }
        self.totals.commits += 1;
        let totals = self.totals;
        self.connection
            .prepare_cached(
                "UPDATE totals SET commits = ?1, calls = ?2, results = ?3, given = ?4, reserved = ?5, expired_ms = ?6, \
                 journal = ?7, sum = ?8, keys = ?9, answers = ?10, released = ?11 WHERE row = 1",
            )?
            .execute(params![
                totals.commits.cast_signed(),
                totals.calls.cast_signed(),
                totals.results.cast_signed(),
                totals.given.cast_signed(),
                totals.reserved.cast_signed(),
                totals.expired_ms.cast_signed(),
                totals.journal.map(|JournalId(id)| id),
                totals.sum(),
                totals.keys.cast_signed(),
                totals.answers.cast_signed(),
                totals.released.cast_signed(),
            ])?;
        Ok(totals)
    }
}

/// Runs of consecutive numbers in a sorted list, as their first and last.
fn ranges(sorted: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    let runs = sorted.chunk_by(|one, next| next - one <= 1);
    runs.filter_map(|run| Some((*run.first()?, *run.last()?)))
}

/// As large as the pages and blocks of common systems, so that a page is written whole and nothing beside it is.
const PAGE_BYTES: u32 = 4_096;
/// About 4 MiB of log: some thousand calls share one copying of the pages they have in common, and what was forgotten in the
/// meantime is never copied. Nothing is committed meanwhile: with four times as many pages that takes calls as much longer,
/// and no less time in all.
const CHECKPOINT_PAGES: u32 = 1_024;

#[cfg(test)]
mod tests;
