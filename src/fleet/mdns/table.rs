//! Keeps what is known of a cell's registrations: questions and announcements in, answers, reports and announcements out.
//!
//! Nothing here waits or sends. Revisions count this table's own changes; they mean nothing to any other sidecar.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use capd_proto::fleet::engine::{
    Ask, Change, EngineError, Item, LeaseId, Mark, Page, Revision, StoreId, Told,
};
use capd_proto::fleet::machine::WatchId;
use capd_proto::fleet::{Cell, Key, Prefix};

use super::super::engine::Report;

/// The registrations that one sidecar has announced, and those that it has heard of.
#[derive(Debug)]
pub(super) struct Table {
    cell: Cell,
    store: StoreId,
    revision: u64,
    entries: BTreeMap<String, Entry>,
    /// How many of them others have announced.
    heard: usize,
    /// The last lease; there is one at a time.
    lease: Option<Lease>,
    leases: i64,
    /// What changed of late, in order; no more than [`KEPT`].
    changes: VecDeque<(u64, String)>,
    /// Changes up to this revision are forgotten.
    forgotten: u64,
    watches: BTreeMap<WatchId, Watched>,
    is_probed: bool,
    is_full: bool,
}

#[derive(Debug)]
struct Entry {
    value: Bytes,
    created: u64,
    modified: u64,
    from: Who,
}

/// Who announced a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// We did, under this lease.
    Us(LeaseId),
    /// Another sidecar did, and it counts until then. **Units:** milliseconds, monotonic.
    Another { until_ms: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    id: LeaseId,
    ttl_ms: u64,
    until_ms: u64,
}

#[derive(Debug)]
struct Watched {
    prefix: String,
    after: u64,
    is_begun: bool,
}

/// A registration of ours that the others are to hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Its key.
    pub(super) path: String,
    /// The registration.
    pub(super) value: Bytes,
    /// How long it counts; 0 takes it back. **Units:** seconds.
    pub(super) ttl_s: u32,
}

impl Table {
    pub(super) fn new(cell: Cell, store: StoreId) -> Self {
        Self {
            cell,
            store,
            revision: 1,
            entries: BTreeMap::new(),
            heard: 0,
            lease: None,
            leases: 0,
            changes: VecDeque::new(),
            forgotten: 1,
            watches: BTreeMap::new(),
            is_probed: false,
            is_full: false,
        }
    }

    /// Whether an announcement was left out, since there are too many.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether anything is known under a prefix.
    pub(super) fn has(&self, prefix: &Prefix) -> bool {
        let prefix = prefix.path(&self.cell);
        self.under(&prefix).next().is_some()
    }

    /// Answers a question, and says what others are to hear.
    pub(super) fn ask(&mut self, ask: Ask, now_ms: u64) -> (Result<Told, EngineError>, Vec<Said>) {
        self.expire(now_ms);
        match ask {
            // Nobody keeps fences: which process of an agent is the later one, each watcher decides by its incarnation.
            Ask::ReadFence => (Ok(Told::Stands(None)), Vec::new()),
            Ask::Claim { .. } => (Ok(Told::Done), Vec::new()),
            Ask::Register { ttl_ms, puts, .. } => {
                let mut said = self.end_lease();
                self.leases += 1;
                let id = LeaseId(self.leases);
                self.lease = Some(Lease { id, ttl_ms, until_ms: now_ms.saturating_add(ttl_ms) });
                let put = self.hold(id, ttl_ms, puts, Vec::new());
                // What is announced again is not taken back.
                said.retain(|gone| put.iter().all(|said| said.path != gone.path));
                said.extend(put);
                (Ok(self.held(id)), said)
            }
            Ask::Replace { lease, puts, gone, .. } => match self.lease.filter(|held| held.id == lease) {
                Some(held) => {
                    let said = self.hold(lease, held.ttl_ms, puts, gone);
                    (Ok(self.held(lease)), said)
                }
                None => (Err(EngineError::Gone), Vec::new()),
            },
            Ask::Renew(lease) => match self.lease.as_mut().filter(|held| held.id == lease) {
                Some(held) => {
                    held.until_ms = now_ms.saturating_add(held.ttl_ms);
                    (Ok(Told::Done), self.said())
                }
                None => (Err(EngineError::Gone), Vec::new()),
            },
            Ask::Withdraw(lease) => {
                let is_held = self.lease.is_some_and(|held| held.id == lease);
                (Ok(Told::Done), if is_held { self.end_lease() } else { Vec::new() })
            }
            Ask::List { prefix, after, at, values } => {
                (self.list(&prefix, after.as_deref(), at, values), Vec::new())
            }
        }
    }

    /// All that we have announced and that still counts.
    pub(super) fn said(&self) -> Vec<Said> {
        let Some(lease) = self.lease else { return Vec::new() };
        let ours = self.entries.iter().filter(|(_, entry)| entry.from == Who::Us(lease.id));
        let said = |(path, entry): (&String, &Entry)| Said {
            path: path.clone(),
            value: entry.value.clone(),
            ttl_s: seconds(lease.ttl_ms),
        };
        ours.map(said).collect()
    }

    /// Takes in what another sidecar has announced. Nobody else speaks for what is ours.
    pub(super) fn hear(&mut self, path: String, value: Bytes, ttl_s: u32, now_ms: u64) {
        let until_ms = match ttl_s {
            // RFC 6762 10.1: whoever still has it may say so within a second.
            0 => now_ms + GOODBYE_MS,
            ttl_s => now_ms + u64::from(ttl_s.min(TTL_S_MAX)) * 1_000,
        };
        match self.entries.get_mut(&path) {
            Some(Entry { from: Who::Us(_), .. }) => {}
            Some(entry) if ttl_s == 0 || entry.value == value => {
                let Who::Another { until_ms: former_ms } = entry.from else { return };
                let until_ms = if ttl_s == 0 { until_ms.min(former_ms) } else { until_ms };
                entry.from = Who::Another { until_ms };
            }
            Some(_) => self.put(path, value, Who::Another { until_ms }),
            None if ttl_s == 0 => {}
            // Whoever is known stays known, however many come.
            None if self.heard >= HEARD_MAX => self.is_full = true,
            None => self.put(path, value, Who::Another { until_ms }),
        }
    }

    /// Drops what is over.
    pub(super) fn expire(&mut self, now_ms: u64) {
        let is_over = |entry: &Entry| matches!(entry.from, Who::Another { until_ms } if until_ms <= now_ms);
        let over = self.entries.iter().filter(|(_, entry)| is_over(entry));
        let over: Vec<_> = over.map(|(path, _)| path.clone()).collect();
        if !over.is_empty() {
            self.is_full = false;
        }
        for path in over {
            self.delete(path);
        }
        if self.lease.is_some_and(|lease| lease.until_ms <= now_ms) {
            // The others have dropped it by themselves.
            drop(self.end_lease());
        }
    }

    /// When something is over next. **Units:** milliseconds, monotonic.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let until = |entry: &Entry| match entry.from {
            Who::Another { until_ms } => Some(until_ms),
            Who::Us(_) => None,
        };
        let heard = self.entries.values().filter_map(until);
        heard.chain(self.lease.map(|lease| lease.until_ms)).min()
    }

    pub(super) fn watch(&mut self, watch: WatchId, prefix: &Prefix, after: Revision) {
        let watched = Watched { prefix: prefix.path(&self.cell), after: after.0, is_begun: false };
        self.watches.insert(watch, watched);
    }

    pub(super) fn unwatch(&mut self, watch: WatchId) {
        self.watches.remove(&watch);
    }

    pub(super) const fn probe(&mut self) {
        self.is_probed = true;
    }

    /// What the watches have not reported yet.
    pub(super) fn reports(&mut self) -> Vec<Report> {
        let is_probed = std::mem::take(&mut self.is_probed);
        let mut watches = std::mem::take(&mut self.watches);
        let mut reports = Vec::new();
        watches.retain(|id, watched| {
            if !std::mem::replace(&mut watched.is_begun, true) {
                let revision = Revision(watched.after);
                reports.push((*id, Change::Started { store: self.store, revision }));
            }
            if watched.after < self.forgotten || watched.after > self.revision {
                reports.push((*id, Change::Ended));
                return false;
            }
            reports.extend(self.news(watched).into_iter().map(|change| (*id, change)));
            watched.after = self.revision;
            if is_probed {
                reports.push((*id, Change::Progress { revision: Revision(self.revision) }));
            }
            true
        });
        self.watches = watches;
        reports
    }

    /// What has changed under a watch since it last reported: of each key the last change.
    fn news(&self, watched: &Watched) -> Vec<Change> {
        let mut seen = BTreeSet::new();
        let mut changes = Vec::new();
        let since = self.changes.iter().rev().take_while(|(revision, _)| *revision > watched.after);
        for (revision, path) in since.filter(|(_, path)| path.starts_with(&watched.prefix)) {
            if !seen.insert(path) {
                continue;
            }
            let revision = Revision(*revision);
            changes.push(match self.entries.get(path) {
                Some(entry) => Change::Put { revision, item: item(path, entry, true) },
                None => Change::Delete { revision, path: path.clone() },
            });
        }
        changes.reverse();
        changes
    }

    fn list(
        &self,
        prefix: &Prefix,
        after: Option<&str>,
        at: Option<Revision>,
        values: bool,
    ) -> Result<Told, EngineError> {
        let path = prefix.path(&self.cell);
        let revision = at.unwrap_or(Revision(self.revision));
        // Nothing is kept of what stood here before.
        let is_changed = || {
            let since = self.changes.iter().rev().take_while(|(at, _)| *at > revision.0);
            since.map(|(_, changed)| changed).any(|changed| changed.starts_with(&path))
        };
        if revision.0 < self.forgotten || revision.0 > self.revision || is_changed() {
            return Err(EngineError::Compacted);
        }
        let count = self.under(&path).count() as u64;
        // There are never more than one page holds.
        let items = self.under(&path).filter(|(path, _)| after.is_none_or(|after| path.as_str() > after));
        let items = items.map(|(path, entry)| item(path, entry, values)).collect();
        Ok(Told::Page(Page { store: self.store, revision, items, count, has_more: false }))
    }

    fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Entry)> {
        let from = self.entries.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.take_while(move |(path, _)| path.starts_with(prefix))
    }

    fn hold(&mut self, lease: LeaseId, ttl_ms: u64, puts: Vec<(Key, Bytes)>, gone: Vec<Key>) -> Vec<Said> {
        let mut said = Vec::new();
        for (key, value) in puts {
            let path = key.path(&self.cell);
            said.push(Said { path: path.clone(), value: value.clone(), ttl_s: seconds(ttl_ms) });
            self.put(path, value, Who::Us(lease));
        }
        for key in gone {
            said.extend(self.delete(key.path(&self.cell)));
        }
        said
    }

    const fn held(&self, lease: LeaseId) -> Told {
        Told::Held { lease, revision: Revision(self.revision) }
    }

    /// Ends our lease and what stands under it.
    fn end_lease(&mut self) -> Vec<Said> {
        let Some(lease) = self.lease.take() else { return Vec::new() };
        let ours = self.entries.iter().filter(|(_, entry)| entry.from == Who::Us(lease.id));
        let ours: Vec<_> = ours.map(|(path, _)| path.clone()).collect();
        ours.into_iter().filter_map(|path| self.delete(path)).collect()
    }

    fn put(&mut self, path: String, value: Bytes, from: Who) {
        self.revision += 1;
        let revision = self.revision;
        let former = self.entries.get(&path);
        let created = former.map_or(revision, |former| former.created);
        let was_heard = former.is_some_and(|former| matches!(former.from, Who::Another { .. }));
        let is_heard = matches!(from, Who::Another { .. });
        self.heard = self.heard + usize::from(is_heard) - usize::from(was_heard);
        self.entries.insert(path.clone(), Entry { value, created, modified: revision, from });
        self.note(path);
    }

    /// Drops a key; what the others are to hear if it was ours.
    fn delete(&mut self, path: String) -> Option<Said> {
        let entry = self.entries.remove(&path)?;
        self.revision += 1;
        let said = match entry.from {
            Who::Us(_) => Some(Said { path: path.clone(), value: entry.value, ttl_s: 0 }),
            Who::Another { .. } => {
                self.heard -= 1;
                None
            }
        };
        self.note(path);
        said
    }

    /// Remembers that a key changed with this revision.
    fn note(&mut self, path: String) {
        self.changes.push_back((self.revision, path));
        if self.changes.len() > KEPT
            && let Some((revision, _)) = self.changes.pop_front()
        {
            self.forgotten = revision;
        }
    }
}

fn item(path: &str, entry: &Entry, values: bool) -> Item {
    let lease = match entry.from {
        Who::Us(lease) => Some(lease),
        Who::Another { .. } => None,
    };
    let mark = Mark { created: Revision(entry.created), modified: Revision(entry.modified), lease };
    Item { path: path.to_owned(), mark, value: values.then(|| entry.value.clone()) }
}

/// A lifetime as records have it, no shorter than it is.
fn seconds(ms: u64) -> u32 {
    u32::try_from(ms.div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// Most registrations of others that are known at once. A desk has a few; somebody who floods the network has no end.
pub(super) const HEARD_MAX: usize = 1_024;
/// The longest lifetime that is believed, which is that of the longest `fleet.ttl_ms`. **Units:** seconds.
const TTL_S_MAX: u32 = 600;
/// How long a registration counts that was taken back. **Units:** milliseconds. **Source:** RFC 6762 section 10.1.
const GOODBYE_MS: u64 = 1_000;
/// Changes that are kept for watches.
const KEPT: usize = 4_096;

#[cfg(test)]
mod tests;
