//! Implements a registry in one file, for the sidecars of one machine: no server, and every sidecar looks for changes.
//!
//! Leases run by the machine's wall clock, and whoever looks ends those that are over.

mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capd_proto::fleet::engine::{Ask, Change, EngineError, Revision, StoreId};
use capd_proto::fleet::machine::WatchId;
use capd_proto::fleet::{Agent, Cell, Prefix};
use tokio::sync::{Notify, mpsc};

use self::table::{Changed, News, Table};
use super::engine::{Answer, Engine, Health, Report, Reporting};
use crate::net::{Clock, Random, Tasks};

/// The file of a cell's registry, as one sidecar uses it.
#[derive(Debug)]
pub struct File {
    table: Arc<Mutex<Table>>,
    path: String,
    cell: Cell,
    clock: Clock,
    random: Random,
    tasks: Tasks,
    /// One question at a time: a locked file keeps one thread waiting, and no more.
    turn: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What each watch sees, and the last revision that it has reported; none for one that has reported nothing yet.
    watches: BTreeMap<WatchId, Watched>,
    is_probed: bool,
    error: Option<String>,
}

#[derive(Clone, Debug)]
struct Watched {
    prefix: String,
    after: u64,
    is_begun: bool,
    /// The store that it reports from, once it has begun.
    store: Option<StoreId>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct FileError {
    path: String,
    error: String,
}

impl File {
    /// Opens the file, or makes it.
    ///
    /// **Errors:** it cannot be opened, or is no registry.
    pub fn open(
        path: &Path,
        (cell, agent): (Cell, Agent),
        (clock, random, tasks): (Clock, Random, Tasks),
    ) -> Result<Self, FileError> {
        let shown = path.display().to_string();
        let failed = |error: String| FileError { path: shown.clone(), error };
        let id = random.bytes().map(u64::from_be_bytes).map_err(|error| failed(error.to_string()))?;
        let table = Table::open(path, cell.clone(), agent, id).map_err(|error| failed(error.to_string()))?;
        let (table, turn) = (Arc::new(Mutex::new(table)), Arc::default());
        let (state, wake) = (Mutex::default(), Notify::new());
        Ok(Self { table, path: shown, cell, clock, random, tasks, turn, state, wake })
    }

    /// Puts a signed revocation into the file. It stays there: no lease ends it.
    ///
    /// **Errors:** there is no such file, it cannot be opened or written, or is no registry.
    pub fn revoke(path: &Path, cell: Cell, agent: Agent, revocation: &[u8]) -> Result<(), FileError> {
        let failed = |error: String| FileError { path: path.display().to_string(), error };
        if !path.is_file() {
            return Err(failed("there is no such file".to_owned()));
        }
        let mut table = Table::open(path, cell, agent, 0).map_err(|error| failed(error.to_string()))?;
        table.revoke(agent, revocation).map_err(|error| failed(error.to_string()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works with the file away from links; `None` where that was interrupted.
    fn work<T: Send + 'static, W: FnOnce(&mut Table, u64) -> T + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Option<rusqlite::Result<T>>> + Send + use<T, W> {
        let (table, clock, tasks) = (Arc::clone(&self.table), self.clock.clone(), self.tasks.clone());
        let (turn, random) = (Arc::clone(&self.turn), self.random.clone());
        async move {
            let turn = turn.lock_owned().await;
            let work = move || {
                let _turn = turn;
                let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
                // Without randomness the id is an unlikely one as well.
                let id = random.bytes().map_or(clock.wall_ms(), u64::from_be_bytes);
                table.follow(id)?;
                Ok(work(&mut table, clock.wall_ms()))
            };
            // A panic there is reported, and ends the process.
            tasks.compute(work).await
        }
    }

    /// One look at the file: what the watches are to report.
    async fn look(&self) -> Vec<Report> {
        let (least, is_probed) = {
            let mut state = self.state();
            let least = state.watches.values().map(|watched| watched.after).min();
            (least, std::mem::take(&mut state.is_probed))
        };
        let Some(least) = least else { return Vec::new() };
        let seen = self.work(move |table, now_ms| {
            let revision = table.revision(now_ms)?;
            let news = match revision <= least {
                true => News::Changes(revision, Vec::new()),
                false => table.news(least)?,
            };
            rusqlite::Result::Ok((table.store(), revision, news))
        });
        let seen = seen.await;
        let mut state = self.state();
        match seen {
            Some(Ok(Ok((store, revision, news)))) => {
                state.error = None;
                state.report(store, revision, &news, is_probed)
            }
            Some(Err(error) | Ok(Err(error))) => {
                state.error = Some(error.to_string());
                Vec::new()
            }
            None => Vec::new(),
        }
    }
}

impl State {
    fn report(&mut self, store: StoreId, present: u64, news: &News, is_probed: bool) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut ended = Vec::new();
        for (id, watched) in &mut self.watches {
            let known = *watched.store.get_or_insert(store);
            if !std::mem::replace(&mut watched.is_begun, true) {
                reports.push((*id, Change::Started { store, revision: Revision(present) }));
            }
            // The file was replaced, by an older one of its own maybe.
            let is_back = present < watched.after || known != store;
            match news {
                News::Changes(upto, changes) if !is_back => {
                    let is_seen = |changed: &&Changed| {
                        changed.revision > watched.after && changed.path.starts_with(&watched.prefix)
                    };
                    reports
                        .extend(changes.iter().filter(is_seen).map(|changed| (*id, changed.change.clone())));
                    watched.after = watched.after.max(*upto);
                    if is_probed {
                        reports.push((*id, Change::Progress { revision: Revision(watched.after) }));
                    }
                }
                News::Changes(..) | News::Forgotten => {
                    reports.push((*id, Change::Ended));
                    ended.push(*id);
                }
            }
        }
        ended.iter().for_each(|id| drop(self.watches.remove(id)));
        reports
    }
}

impl Engine for File {
    fn ask(&self, ask: Ask) -> Answer {
        let asked = self.work(move |table, now_ms| table.ask(&ask, now_ms));
        Box::pin(async move {
            match asked.await {
                Some(Ok(told)) => told,
                Some(Err(_)) | None => Err(EngineError::Lost),
            }
        })
    }

    fn watch(&self, watch: WatchId, prefix: Prefix, after: Revision) {
        let watched =
            Watched { prefix: prefix.path(&self.cell), after: after.0, is_begun: false, store: None };
        self.state().watches.insert(watch, watched);
        self.wake.notify_one();
    }

    fn unwatch(&self, watch: WatchId) {
        self.state().watches.remove(&watch);
    }

    fn probe(&self) {
        self.state().is_probed = true;
        self.wake.notify_one();
    }

    fn report(self: Arc<Self>, to: mpsc::Sender<Report>) -> Reporting {
        Box::pin(async move {
            loop {
                for report in self.look().await {
                    if to.send(report).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        })
    }

    fn health(&self) -> Health {
        let error = self.state().error.clone();
        Health { endpoint: self.path.clone(), version: None, error }
    }
}

/// Between looks for changes: most of what a caller waits that wants a new name.
const LOOK_EVERY: Duration = Duration::from_millis(50);
