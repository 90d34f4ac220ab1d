//! Plays a registry for any number of fleets, in virtual time: the store of the fleet's simulation behind the engine's
//! trait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use capd::fleet::engine::{Answer, Engine, Health, Report, Reporting};
use capd_proto::fleet::engine::{Ask, Change, EngineError, Revision};
use capd_proto::fleet::machine::WatchId;
use capd_proto::fleet::{Agent, Cell, Prefix};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

use super::store::{Backup, Store};

/// One registry. Clones are the same one.
#[derive(Clone)]
pub struct Registry(Arc<Shared>);

struct Shared {
    cell: Cell,
    start: Instant,
    state: Mutex<State>,
}

struct State {
    store: Store,
    is_away: bool,
    /// Every question is answered so.
    error: Option<EngineError>,
    /// Watches report nothing, and do not say so.
    is_silent: bool,
    asked: Vec<&'static str>,
    engines: Vec<Weak<SimEngine>>,
}

impl Registry {
    pub fn new(cell: Cell) -> Self {
        let state = State {
            store: Store::new(cell.clone(), false),
            is_away: false,
            error: None,
            is_silent: false,
            asked: Vec::new(),
            engines: Vec::new(),
        };
        Self(Arc::new(Shared { cell, start: Instant::now(), state: Mutex::new(state) }))
    }

    /// A way for one sidecar to reach it.
    pub fn engine(&self, agent: Agent) -> Arc<SimEngine> {
        let engine = Arc::new(SimEngine {
            registry: self.clone(),
            agent,
            watches: Mutex::default(),
            wake: Notify::new(),
        });
        self.state().engines.push(Arc::downgrade(&engine));
        engine
    }

    /// Nothing is answered, and every watch ends; or the reverse.
    pub fn set_away(&self, is_away: bool) {
        self.change(|state| state.is_away = is_away);
    }

    pub fn set_error(&self, error: Option<EngineError>) {
        self.change(|state| state.error = error);
    }

    pub fn set_silent(&self, is_silent: bool) {
        self.change(|state| state.is_silent = is_silent);
    }

    pub fn wipe(&self) {
        self.change(|state| state.store.wipe());
    }

    pub fn backup(&self) -> Backup {
        self.state().store.backup()
    }

    pub fn restore(&self, backup: Backup) {
        let now_ms = self.now_ms();
        self.change(|state| state.store.restore(backup, now_ms));
    }

    pub fn put(&self, path: String, value: Vec<u8>) {
        self.change(|state| state.store.put_raw(path, value.into()));
    }

    /// The keys that stand under a text.
    pub fn has(&self, path: &str) -> bool {
        self.state().store.value(path).is_some()
    }

    /// How often this was asked so far.
    pub fn asked(&self, what: &str) -> usize {
        self.state().asked.iter().filter(|asked| **asked == what).count()
    }

    /// Ends leases that nobody renewed, once a second, for as long as it is polled.
    pub async fn expire(self) {
        loop {
            sleep(Duration::from_secs(1)).await;
            let now_ms = self.now_ms();
            self.change(|state| state.store.expire(now_ms));
        }
    }

    fn now_ms(&self) -> u64 {
        self.0.start.elapsed().as_millis() as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state();
        let changed = change(&mut state);
        for engine in state.engines.iter().filter_map(Weak::upgrade) {
            engine.wake.notify_one();
        }
        changed
    }

    fn answer(
        &self,
        agent: Agent,
        ask: &Ask,
    ) -> Option<Result<capd_proto::fleet::engine::Told, EngineError>> {
        let now_ms = self.now_ms();
        self.change(|state| {
            state.asked.push(name(ask));
            match &state.error {
                _ if state.is_away => None,
                Some(error) => Some(Err(error.clone())),
                None => Some(state.store.ask(agent, ask, now_ms)),
            }
        })
    }
}

fn name(ask: &Ask) -> &'static str {
    match ask {
        Ask::ReadFence => "read",
        Ask::Claim { .. } => "claim",
        Ask::Register { .. } => "register",
        Ask::Replace { .. } => "replace",
        Ask::Renew(_) => "renew",
        Ask::Withdraw(_) => "withdraw",
        Ask::List { .. } => "list",
    }
}

/// One sidecar's way to a registry.
pub struct SimEngine {
    registry: Registry,
    agent: Agent,
    watches: Mutex<BTreeMap<WatchId, Watch>>,
    wake: Notify,
}

struct Watch {
    prefix: String,
    after: u64,
    is_started: bool,
    is_probed: bool,
}

impl SimEngine {
    /// What is to be reported by now.
    fn due(&self) -> Vec<Report> {
        let mut watches = self.watches.lock().unwrap();
        let state = self.registry.state();
        let mut due = Vec::new();
        if state.is_silent {
            return due;
        }
        watches.retain(|id, watch| {
            let since = state.store.since(watch.after, &watch.prefix).filter(|_| !state.is_away);
            let Some(events) = since else {
                due.push((*id, Change::Ended));
                return false;
            };
            let revision = Revision(state.store.revision());
            if !std::mem::replace(&mut watch.is_started, true) {
                due.push((*id, Change::Started { store: state.store.id(), revision }));
            }
            for event in events {
                watch.after = event.revision;
                let revision = Revision(event.revision);
                due.push((
                    *id,
                    match event.item {
                        Some(item) => Change::Put { revision, item },
                        None => Change::Delete { revision, path: event.path },
                    },
                ));
            }
            if std::mem::take(&mut watch.is_probed) {
                due.push((*id, Change::Progress { revision }));
            }
            true
        });
        due
    }
}

impl Engine for SimEngine {
    fn ask(&self, ask: Ask) -> Answer {
        let (registry, agent) = (self.registry.clone(), self.agent);
        Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            let Some(answer) = registry.answer(agent, &ask) else {
                sleep(Duration::from_secs(5)).await;
                return Err(EngineError::Lost);
            };
            sleep(Duration::from_millis(1)).await;
            answer
        })
    }

    fn watch(&self, watch: WatchId, prefix: Prefix, after: Revision) {
        let prefix = prefix.path(&self.registry.0.cell);
        let begun = Watch { prefix, after: after.0, is_started: false, is_probed: false };
        self.watches.lock().unwrap().insert(watch, begun);
        self.wake.notify_one();
    }

    fn unwatch(&self, watch: WatchId) {
        self.watches.lock().unwrap().remove(&watch);
    }

    fn probe(&self) {
        self.watches.lock().unwrap().values_mut().for_each(|watch| watch.is_probed = true);
        self.wake.notify_one();
    }

    fn report(self: Arc<Self>, to: mpsc::Sender<Report>) -> Reporting {
        Box::pin(async move {
            loop {
                for report in self.due() {
                    if to.send(report).await.is_err() {
                        return;
                    }
                }
                self.wake.notified().await;
            }
        })
    }

    fn health(&self) -> Health {
        let error = self.registry.state().is_away.then(|| "away".to_owned());
        Health { endpoint: "simulated".into(), version: None, error }
    }
}
