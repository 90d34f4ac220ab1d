//! Keeps the registry's keys, leases and recent changes in one SQLite file; every step is one transaction.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use capd_proto::fleet::engine::{
    Ask, Change, EngineError, Item, LeaseId, Mark, Page, Revision, StoreId, Told,
};
use capd_proto::fleet::{Agent, Cell, Fence, Key};
use rusqlite::{
    Connection, ErrorCode, OptionalExtension as _, Row, Transaction, TransactionBehavior, params,
};

/// The registry of one cell, as one sidecar uses it.
#[derive(Debug)]
pub(super) struct Table {
    connection: Connection,
    path: PathBuf,
    /// The device and the number of the file that is open.
    inode: Option<(u64, u64)>,
    cell: Cell,
    agent: Agent,
    /// The key of our agent's fence.
    fence: String,
    store: StoreId,
}

/// A change, as watches report it.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) path: String,
    pub(super) revision: u64,
    pub(super) change: Change,
}

/// What has changed since a revision.
#[derive(Debug)]
pub(super) enum News {
    /// These changes, up to a revision.
    Changes(u64, Vec<Changed>),
    /// Some of them are forgotten.
    Forgotten,
}

impl Table {
    /// Opens the file, or makes one with this id.
    pub(super) fn open(path: &Path, cell: Cell, agent: Agent, id: u64) -> rusqlite::Result<Self> {
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "normal")?;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(SCHEMA)?;
        // SQLite's integers are signed.
        let id = i64::try_from(id >> 1).unwrap_or(i64::MAX);
        transaction
            .execute("INSERT OR IGNORE INTO registry (id, store, revision) VALUES (1, ?1, 1)", [id])?;
        let store: u64 = transaction.query_row("SELECT store FROM registry", [], |row| row.get(0))?;
        transaction.commit()?;
        let fence = Key::Fence(agent).path(&cell);
        let (path, inode) = (path.to_owned(), inode(path));
        Ok(Self { connection, path, inode, cell, agent, fence, store: StoreId { id: store, era: 0 } })
    }

    /// Opens the file anew if it has been removed or replaced since; one that is made now gets this id.
    pub(super) fn follow(&mut self, id: u64) -> rusqlite::Result<()> {
        if inode(&self.path) != self.inode {
            *self = Self::open(&self.path, self.cell.clone(), self.agent, id)?;
        }
        Ok(())
    }

    pub(super) const fn store(&self) -> StoreId {
        self.store
    }

    /// The store's revision, after leases that are over have ended.
    pub(super) fn revision(&mut self, now_ms: u64) -> rusqlite::Result<u64> {
        let is_over = "SELECT 1 FROM leases WHERE expires_ms <= ?1 LIMIT 1";
        let is_over = self.connection.query_row(is_over, [now_ms], |_| Ok(())).optional()?.is_some();
        if is_over {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            expire(&transaction, now_ms)?;
            transaction.commit()?;
        }
        self.connection.query_row("SELECT revision FROM registry", [], |row| row.get(0))
    }

    pub(super) fn news(&self, after: u64) -> rusqlite::Result<News> {
        let first: Option<u64> =
            self.connection.query_row("SELECT min(revision) FROM changes", [], |row| row.get(0))?;
        let revision: u64 =
            self.connection.query_row("SELECT revision FROM registry", [], |row| row.get(0))?;
        // Each revision since has left a change, unless it is forgotten.
        if revision > after && first.is_none_or(|first| first > after + 1) {
            return Ok(News::Forgotten);
        }
        let mut statement = self.connection.prepare_cached(
            "SELECT changes.path, changes.revision, changes.is_put, value, created, modified, lease \
             FROM changes LEFT JOIN keys USING (path) WHERE changes.revision > ?1 AND changes.revision <= ?2 \
             ORDER BY changes.revision, changes.path",
        )?;
        let mut changes = Vec::new();
        let mut rows = statement.query([after, revision])?;
        while let Some(row) = rows.next()? {
            let (path, at, is_put): (String, u64, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let value: Option<Vec<u8>> = row.get(3)?;
            let change = match (is_put, value) {
                (false, _) => Change::Delete { revision: Revision(at), path: path.clone() },
                (true, Some(value)) => {
                    let item = Item { path: path.clone(), mark: mark(row, 4)?, value: Some(value.into()) };
                    Change::Put { revision: Revision(at), item }
                }
                // It is gone by now, which another change says.
                (true, None) => continue,
            };
            changes.push(Changed { path, revision: at, change });
        }
        Ok(News::Changes(revision, changes))
    }

    /// Puts a revocation of an agent.
    pub(super) fn revoke(&mut self, agent: Agent, revocation: &[u8]) -> rusqlite::Result<()> {
        let Self { connection, cell, fence, store, .. } = self;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let step = Step { transaction: &transaction, cell, fence, store: *store, now_ms: 0 };
        let revision = step.next()?;
        step.put(&Key::Revocation(agent).path(cell), revocation, None, revision)?;
        transaction.commit()
    }

    pub(super) fn ask(&mut self, ask: &Ask, now_ms: u64) -> Result<Told, EngineError> {
        let Self { connection, cell, fence, store, .. } = self;
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| lost(&error))?;
        expire(&transaction, now_ms).map_err(|error| lost(&error))?;
        let step = Step { transaction: &transaction, cell, fence, store: *store, now_ms };
        let told = step.ask(ask)?;
        transaction.commit().map_err(|error| lost(&error))?;
        Ok(told)
    }
}

/// One transaction.
struct Step<'a> {
    transaction: &'a Transaction<'a>,
    cell: &'a Cell,
    fence: &'a str,
    store: StoreId,
    now_ms: u64,
}

impl Step<'_> {
    fn ask(&self, ask: &Ask) -> Result<Told, EngineError> {
        let failed = |error: rusqlite::Error| lost(&error);
        match ask {
            Ask::ReadFence => Ok(Told::Stands(self.stands().map_err(failed)?)),
            Ask::Claim { fence, read } => {
                let stands = self.stands().map_err(failed)?;
                if stands.as_ref().map(|(_, put)| *put) != *read {
                    return Err(EngineError::Fenced(stands.map(|(value, _)| value)));
                }
                let revision = self.next().map_err(failed)?;
                self.put(self.fence, &fence.encode(), None, revision).map_err(failed)?;
                Ok(Told::Done)
            }
            Ask::Register { fence, ttl_ms, puts } => {
                self.check_fence(fence)?;
                let insert = "INSERT INTO leases (ttl_ms, expires_ms) VALUES (?1, ?2)";
                self.transaction.execute(insert, [*ttl_ms, self.now_ms + ttl_ms]).map_err(failed)?;
                self.hold(self.transaction.last_insert_rowid(), puts, &[]).map_err(failed)
            }
            Ask::Replace { lease: LeaseId(lease), fence, stands, puts, gone } => {
                self.check_fence(fence)?;
                let is_there = "SELECT 1 FROM leases WHERE id = ?1";
                let found = self.transaction.query_row(is_there, [lease], |_| Ok(())).optional();
                if found.map_err(failed)?.is_none() || !self.still_stands(stands.as_ref()).map_err(failed)? {
                    return Err(EngineError::Gone);
                }
                self.hold(*lease, puts, gone).map_err(failed)
            }
            Ask::Renew(LeaseId(lease)) => {
                let renew = "UPDATE leases SET expires_ms = ttl_ms + ?2 WHERE id = ?1";
                match self.transaction.execute(renew, params![lease, self.now_ms]).map_err(failed)? {
                    0 => Err(EngineError::Gone),
                    _ => Ok(Told::Done),
                }
            }
            Ask::Withdraw(LeaseId(lease)) => {
                end_lease(self.transaction, *lease).map_err(failed)?;
                Ok(Told::Done)
            }
            Ask::List { prefix, after, at, values } => {
                self.list(&prefix.path(self.cell), after.as_deref(), *at, *values)
            }
        }
    }

    fn stands(&self) -> rusqlite::Result<Option<(Bytes, Revision)>> {
        let select = "SELECT value, modified FROM keys WHERE path = ?1";
        let stands = |row: &Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?.into(), Revision(row.get(1)?)));
        self.transaction.query_row(select, [self.fence], stands).optional()
    }

    fn check_fence(&self, fence: &Fence) -> Result<(), EngineError> {
        let stands = self.stands().map_err(|error| lost(&error))?;
        match stands {
            Some((value, _)) if value[..] == fence.encode() => Ok(()),
            other => Err(EngineError::Fenced(other.map(|(value, _)| value))),
        }
    }

    /// Whether a key was put last at this revision.
    fn still_stands(&self, key: Option<&(Key, Revision)>) -> rusqlite::Result<bool> {
        let Some((key, Revision(put))) = key else { return Ok(true) };
        let select = "SELECT modified FROM keys WHERE path = ?1";
        let modified: Option<u64> =
            self.transaction.query_row(select, [key.path(self.cell)], |row| row.get(0)).optional()?;
        Ok(modified == Some(*put))
    }

    fn hold(&self, lease: i64, puts: &[(Key, Bytes)], gone: &[Key]) -> rusqlite::Result<Told> {
        let revision = self.next()?;
        for (key, value) in puts {
            self.put(&key.path(self.cell), value, Some(lease), revision)?;
        }
        for key in gone {
            delete(self.transaction, &key.path(self.cell), revision)?;
        }
        Ok(Told::Held { lease: LeaseId(lease), revision: Revision(revision) })
    }

    fn put(&self, path: &str, value: &[u8], lease: Option<i64>, revision: u64) -> rusqlite::Result<()> {
        self.transaction.execute(
            "INSERT INTO keys (path, value, created, modified, lease) VALUES (?1, ?2, ?3, ?3, ?4) \
             ON CONFLICT (path) DO UPDATE SET value = ?2, modified = ?3, lease = ?4",
            params![path, value, revision, lease],
        )?;
        note(self.transaction, path, revision, true)
    }

    fn next(&self) -> rusqlite::Result<u64> {
        next(self.transaction)
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        at: Option<Revision>,
        values: bool,
    ) -> Result<Told, EngineError> {
        let failed = |error: rusqlite::Error| lost(&error);
        let end = after_all(prefix);
        let present: u64 = self
            .transaction
            .query_row("SELECT revision FROM registry", [], |row| row.get(0))
            .map_err(failed)?;
        let revision = at.map_or(present, |Revision(at)| at);
        // Nothing is kept of what stood here before.
        let changed = "SELECT 1 FROM changes WHERE revision > ?1 AND path >= ?2 AND path < ?3 LIMIT 1";
        let changed =
            self.transaction.query_row(changed, params![revision, prefix, end], |_| Ok(())).optional();
        if changed.map_err(failed)?.is_some() || revision > present {
            return Err(EngineError::Compacted);
        }
        let count = "SELECT count(*) FROM keys WHERE path >= ?1 AND path < ?2";
        let count: u64 =
            self.transaction.query_row(count, [prefix, &end], |row| row.get(0)).map_err(failed)?;
        let items = self.items(prefix, &end, after.unwrap_or_default(), values).map_err(failed)?;
        let has_more = items.len() > PAGE_ITEMS;
        let items = items.into_iter().take(PAGE_ITEMS).collect();
        Ok(Told::Page(Page { store: self.store, revision: Revision(revision), items, count, has_more }))
    }

    fn items(&self, prefix: &str, end: &str, after: &str, values: bool) -> rusqlite::Result<Vec<Item>> {
        let select = "SELECT path, value, created, modified, lease FROM keys \
                      WHERE path >= ?1 AND path < ?2 AND path > ?3 ORDER BY path LIMIT ?4";
        let mut statement = self.transaction.prepare_cached(select)?;
        let item = |row: &Row<'_>| {
            let value = values.then(|| row.get::<_, Vec<u8>>(1)).transpose()?;
            Ok(Item { path: row.get(0)?, mark: mark(row, 2)?, value: value.map(Bytes::from) })
        };
        let items = statement.query_map(params![prefix, end, after, PAGE_ITEMS + 1], item)?;
        items.collect()
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

fn mark(row: &Row<'_>, at: usize) -> rusqlite::Result<Mark> {
    Ok(Mark {
        created: Revision(row.get(at)?),
        modified: Revision(row.get(at + 1)?),
        lease: row.get::<_, Option<i64>>(at + 2)?.map(LeaseId),
    })
}

fn next(transaction: &Transaction<'_>) -> rusqlite::Result<u64> {
    transaction
        .query_row("UPDATE registry SET revision = revision + 1 RETURNING revision", [], |row| row.get(0))
}

fn note(transaction: &Transaction<'_>, path: &str, revision: u64, is_put: bool) -> rusqlite::Result<()> {
    let insert = "INSERT OR REPLACE INTO changes (revision, path, is_put) VALUES (?1, ?2, ?3)";
    transaction.execute(insert, params![revision, path, is_put])?;
    transaction.execute("DELETE FROM changes WHERE revision <= ?1", [revision.saturating_sub(KEPT)])?;
    Ok(())
}

fn delete(transaction: &Transaction<'_>, path: &str, revision: u64) -> rusqlite::Result<()> {
    if transaction.execute("DELETE FROM keys WHERE path = ?1", [path])? > 0 {
        note(transaction, path, revision, false)?;
    }
    Ok(())
}

fn end_lease(transaction: &Transaction<'_>, lease: i64) -> rusqlite::Result<()> {
    transaction.execute("DELETE FROM leases WHERE id = ?1", [lease])?;
    let mut select = transaction.prepare_cached("SELECT path FROM keys WHERE lease = ?1")?;
    let paths = select.query_map([lease], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    if !paths.is_empty() {
        let revision = next(transaction)?;
        for path in paths {
            delete(transaction, &path, revision)?;
        }
    }
    Ok(())
}

fn expire(transaction: &Transaction<'_>, now_ms: u64) -> rusqlite::Result<()> {
    let mut select = transaction.prepare_cached("SELECT id FROM leases WHERE expires_ms <= ?1")?;
    let over = select.query_map([now_ms], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    over.into_iter().try_for_each(|lease| end_lease(transaction, lease))
}

/// The first text behind all that begin with this one, which is ASCII.
fn after_all(prefix: &str) -> String {
    // '~' and DEL may stand in no key.
    format!("{prefix}\u{7f}")
}

/// What the machine is told of an error of SQLite's.
fn lost(error: &rusqlite::Error) -> EngineError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => EngineError::Full,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => EngineError::Denied,
        Some(_) | None => EngineError::Lost,
    }
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS registry (
        id INTEGER PRIMARY KEY CHECK (id = 1), store INTEGER NOT NULL, revision INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS leases (
        id INTEGER PRIMARY KEY AUTOINCREMENT, ttl_ms INTEGER NOT NULL, expires_ms INTEGER NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS keys (
        path TEXT PRIMARY KEY, value BLOB NOT NULL, created INTEGER NOT NULL, modified INTEGER NOT NULL,
        lease INTEGER) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS keys_by_lease ON keys (lease);
    CREATE TABLE IF NOT EXISTS changes (
        revision INTEGER NOT NULL, path TEXT NOT NULL, is_put INTEGER NOT NULL,
        PRIMARY KEY (revision, path)) STRICT, WITHOUT ROWID;
";
/// How long a step waits for those of others.
const BUSY: Duration = Duration::from_millis(250);
/// Keys of a page; one machine has hardly more sidecars.
const PAGE_ITEMS: usize = 1_000;
/// Revisions whose changes are kept for watches.
const KEPT: u64 = 10_000;
