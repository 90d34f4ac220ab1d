//! A registry as etcd is one: keys, revisions, leases, history. Pure; time is an input.

use std::collections::BTreeMap;

use bytes::Bytes;
use capd_proto::fleet::engine::{Ask, EngineError, Item, LeaseId, Mark, Page, Revision, StoreId, Told};
use capd_proto::fleet::{Agent, Cell, Fence, Key};

/// One change, as a watch reports it.
#[derive(Clone, Debug)]
pub struct Event {
    pub revision: u64,
    pub path: String,
    /// None for a key that is gone.
    pub item: Option<Item>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Bytes,
    created: u64,
    modified: u64,
    lease: Option<i64>,
}

/// What a backup has: what stood, and all that had happened until then.
#[derive(Clone, Debug)]
pub struct Backup {
    state: State,
    history: Vec<Event>,
}

#[derive(Clone, Debug)]
struct State {
    revision: u64,
    keys: BTreeMap<String, Entry>,
    leases: BTreeMap<i64, (u64, u64)>,
}

/// What the last change replaced.
#[derive(Debug, Default)]
struct Undo {
    keys: Vec<(String, Option<Entry>)>,
    /// The lease that ended with it, and what that was.
    lease: Option<(i64, (u64, u64))>,
}

#[derive(Debug)]
pub struct Store {
    id: u64,
    era: u64,
    cell: Cell,
    state: State,
    pub history: Vec<Event>,
    compacted: u64,
    undo: Undo,
    leases_made: i64,
    /// Registers whoever asks, whatever fence stands.
    pub is_unfenced: bool,
}

impl Store {
    pub fn new(cell: Cell, is_unfenced: bool) -> Self {
        let state = State { revision: 1, keys: BTreeMap::new(), leases: BTreeMap::new() };
        Self {
            id: 1,
            era: 1,
            cell,
            state,
            history: Vec::new(),
            compacted: 0,
            undo: Undo::default(),
            leases_made: 0,
            is_unfenced,
        }
    }

    pub fn id(&self) -> StoreId {
        StoreId { id: self.id, era: self.era }
    }

    /// It starts again, with all that it has.
    pub fn start_again(&mut self) {
        self.era += 1;
    }

    pub fn revision(&self) -> u64 {
        self.state.revision
    }

    pub fn backup(&self) -> Backup {
        Backup { state: self.state.clone(), history: self.history.clone() }
    }

    /// Nobody is told; the leases live on from now, as etcd's do.
    pub fn restore(&mut self, backup: Backup, now_ms: u64) {
        self.start_again();
        let Backup { state, history } = backup;
        self.compacted = self.compacted.min(state.revision);
        // What was compacted since stands in the backup; that nobody can read it any more makes it no easier.
        self.history = history.into_iter().filter(|event| event.revision > self.compacted).collect();
        self.state = state;
        self.undo = Undo::default();
        for (expires_ms, ttl_ms) in self.state.leases.values_mut() {
            *expires_ms = now_ms + *ttl_ms;
        }
    }

    /// The last change is lost though somebody was told that it was made: all that it did at once, and nothing else.
    pub fn lose_last(&mut self) {
        self.start_again();
        let lost = self.state.revision;
        // One that is compacted is on disk, and so is the one before the last.
        if self.undo.keys.is_empty() || self.history.last().is_none_or(|last| last.revision != lost) {
            return;
        }
        let Undo { keys, lease } = std::mem::take(&mut self.undo);
        for (path, before) in keys.into_iter().rev() {
            match before {
                Some(entry) => self.state.keys.insert(path, entry),
                None => self.state.keys.remove(&path),
            };
        }
        self.state.leases.extend(lease);
        self.history.retain(|event| event.revision < lost);
        self.state.revision = lost - 1;
    }

    /// Whatever changes next is one change.
    fn begin(&mut self) {
        self.state.revision += 1;
        self.undo = Undo::default();
    }

    pub fn wipe(&mut self) {
        self.id += 1;
        self.state = State { revision: 1, keys: BTreeMap::new(), leases: BTreeMap::new() };
        self.history.clear();
        self.compacted = 0;
    }

    pub fn compact(&mut self) {
        self.compacted = self.state.revision;
        self.history.clear();
    }

    pub fn expire(&mut self, now_ms: u64) {
        let over = self.state.leases.iter().filter(|(_, (expires_ms, _))| *expires_ms <= now_ms);
        for lease in over.map(|(lease, _)| *lease).collect::<Vec<_>>() {
            self.end_lease(lease);
        }
    }

    pub fn end_all_leases(&mut self) {
        for lease in self.state.leases.keys().copied().collect::<Vec<_>>() {
            self.end_lease(lease);
        }
    }

    pub fn value(&self, path: &str) -> Option<&Bytes> {
        self.state.keys.get(path).map(|entry| &entry.value)
    }

    /// What a watch behind this revision is to report; none where that is compacted.
    pub fn since(&self, after: u64, prefix: &str) -> Option<Vec<Event>> {
        if after < self.compacted {
            return None;
        }
        let of = self.history.iter().filter(|event| event.revision > after && event.path.starts_with(prefix));
        Some(of.cloned().collect())
    }

    /// Puts whatever a rogue client has.
    pub fn put_raw(&mut self, path: String, value: Bytes) {
        self.begin();
        self.put(path, value, None);
    }

    pub fn ask(&mut self, agent: Agent, ask: &Ask, now_ms: u64) -> Result<Told, EngineError> {
        let fence_path = Key::Fence(agent).path(&self.cell);
        match ask {
            Ask::ReadFence => {
                let stands = self.state.keys.get(&fence_path);
                Ok(Told::Stands(stands.map(|entry| (entry.value.clone(), Revision(entry.modified)))))
            }
            Ask::Claim { fence, read } => {
                let stands = self.state.keys.get(&fence_path).map(|entry| Revision(entry.modified));
                if stands != *read {
                    return Err(EngineError::Fenced(self.value(&fence_path).cloned()));
                }
                self.begin();
                self.put(fence_path, fence.encode().to_vec().into(), None);
                Ok(Told::Done)
            }
            Ask::Register { fence, ttl_ms, puts } => {
                self.check_fence(&fence_path, fence)?;
                self.leases_made += 1;
                let lease = self.leases_made;
                self.state.leases.insert(lease, (now_ms + ttl_ms, *ttl_ms));
                self.put_all(puts, lease);
                Ok(Told::Held { lease: LeaseId(lease), revision: Revision(self.state.revision) })
            }
            Ask::Replace { lease: LeaseId(lease), fence, stands, puts, gone } => {
                self.check_fence(&fence_path, fence)?;
                let stands = stands.as_ref().is_none_or(|(key, Revision(put))| {
                    self.state.keys.get(&key.path(&self.cell)).is_some_and(|entry| entry.modified == *put)
                });
                if !self.state.leases.contains_key(lease) || !stands {
                    return Err(EngineError::Gone);
                }
                self.put_all(puts, *lease);
                for key in gone {
                    self.delete(&key.path(&self.cell));
                }
                Ok(Told::Held { lease: LeaseId(*lease), revision: Revision(self.state.revision) })
            }
            Ask::Renew(LeaseId(lease)) => {
                let Some((expires_ms, ttl_ms)) = self.state.leases.get_mut(lease) else {
                    return Err(EngineError::Gone);
                };
                *expires_ms = now_ms + *ttl_ms;
                Ok(Told::Done)
            }
            Ask::Withdraw(LeaseId(lease)) => {
                self.end_lease(*lease);
                Ok(Told::Done)
            }
            Ask::List { prefix, after, at, values } => {
                self.list(&prefix.path(&self.cell), after.as_deref(), *at, *values)
            }
        }
    }

    fn check_fence(&self, path: &str, fence: &Fence) -> Result<(), EngineError> {
        let stands = self.value(path);
        if self.is_unfenced || stands.is_some_and(|value| value[..] == fence.encode()) {
            return Ok(());
        }
        Err(EngineError::Fenced(stands.cloned()))
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        at: Option<Revision>,
        values: bool,
    ) -> Result<Told, EngineError> {
        let at = at.map_or(self.state.revision, |Revision(at)| at);
        // A restored store refuses what it has not come to yet as well.
        if at < self.compacted || at > self.state.revision {
            return Err(EngineError::Compacted);
        }
        let mut items = self.as_of(at, prefix);
        let count = items.len() as u64;
        items.retain(|item| after.is_none_or(|after| item.path.as_str() > after));
        let has_more = items.len() > PAGE_ITEMS;
        items.truncate(PAGE_ITEMS);
        for item in &mut items {
            item.value = item.value.take().filter(|_| values);
        }
        let (store, revision) = (self.id(), Revision(at));
        Ok(Told::Page(Page { store, revision, items, count, has_more }))
    }

    /// What stood under a prefix at a revision.
    fn as_of(&self, at: u64, prefix: &str) -> Vec<Item> {
        let of = |(path, entry): (&String, &Entry)| (path.clone(), entry.item(path));
        let mut keys: BTreeMap<_, _> =
            self.state.keys.iter().filter(|(path, _)| path.starts_with(prefix)).map(of).collect();
        if at < self.state.revision {
            // What has changed since is not of then; what it was then is its last change before, if that is kept.
            for event in self.history.iter().filter(|event| event.path.starts_with(prefix)) {
                if event.revision > at {
                    keys.remove(&event.path);
                }
            }
            for event in self.history.iter().filter(|event| event.path.starts_with(prefix)) {
                let was_changed =
                    self.history.iter().any(|other| other.path == event.path && other.revision > at);
                if event.revision <= at && was_changed {
                    match &event.item {
                        Some(item) => keys.insert(event.path.clone(), item.clone()),
                        None => keys.remove(&event.path),
                    };
                }
            }
        }
        keys.into_values().collect()
    }

    /// The same list of some changes ago, as a member that is cut off gives it.
    pub fn list_stale(&self, ask: &Ask, behind: u64) -> Option<Result<Told, EngineError>> {
        let Ask::List { prefix, after, at: None, values } = ask else { return None };
        let at = self.state.revision.saturating_sub(behind).max(self.compacted).max(1);
        Some(self.list(&prefix.path(&self.cell), after.as_deref(), Some(Revision(at)), *values))
    }

    fn put_all(&mut self, puts: &[(Key, Bytes)], lease: i64) {
        self.begin();
        for (key, value) in puts {
            self.put(key.path(&self.cell), value.clone(), Some(lease));
        }
    }

    fn put(&mut self, path: String, value: Bytes, lease: Option<i64>) {
        let revision = self.state.revision;
        let created = self.state.keys.get(&path).map_or(revision, |entry| entry.created);
        let entry = Entry { value, created, modified: revision, lease };
        self.history.push(Event { revision, path: path.clone(), item: Some(entry.item(&path)) });
        let before = self.state.keys.insert(path.clone(), entry);
        self.undo.keys.push((path, before));
    }

    fn delete(&mut self, path: &str) {
        if let Some(before) = self.state.keys.remove(path) {
            self.undo.keys.push((path.to_owned(), Some(before)));
            let revision = self.state.revision;
            self.history.push(Event { revision, path: path.to_owned(), item: None });
        }
    }

    fn end_lease(&mut self, lease: i64) {
        let Some(ended) = self.state.leases.remove(&lease) else { return };
        let of = self.state.keys.iter().filter(|(_, entry)| entry.lease == Some(lease));
        let paths: Vec<_> = of.map(|(path, _)| path.clone()).collect();
        if !paths.is_empty() {
            self.begin();
            self.undo.lease = Some((lease, ended));
        }
        for path in paths {
            self.delete(&path);
        }
    }
}

impl Entry {
    fn item(&self, path: &str) -> Item {
        let mark = Mark {
            created: Revision(self.created),
            modified: Revision(self.modified),
            lease: self.lease.map(LeaseId),
        };
        Item { path: path.to_owned(), mark, value: Some(self.value.clone()) }
    }
}

/// Small, so that lists have several pages.
const PAGE_ITEMS: usize = 5;
