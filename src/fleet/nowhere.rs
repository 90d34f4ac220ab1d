//! Stands in for a registry where there is none: nothing is registered, nothing is revoked, and each question has its
//! answer at once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capd_proto::fleet::Prefix;
use capd_proto::fleet::engine::{Ask, Change, EngineError, LeaseId, Page, Revision, StoreId, Told};
use capd_proto::fleet::machine::WatchId;
use tokio::sync::{Notify, mpsc};

use super::engine::{Answer, Engine, Health, Report, Reporting};

/// No registry. Members are still admitted, and whom the owner lists is still dialled.
#[derive(Debug, Default)]
pub struct Nowhere {
    state: Mutex<State>,
    wake: Notify,
}

/// No larger than the watches that are alive.
#[derive(Debug, Default)]
struct State {
    alive: BTreeSet<WatchId>,
    due: VecDeque<Report>,
}

impl Nowhere {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine for Nowhere {
    fn ask(&self, ask: Ask) -> Answer {
        let told = match ask {
            Ask::ReadFence => Ok(Told::Stands(None)),
            Ask::Claim { .. } | Ask::Renew(_) | Ask::Withdraw(_) => Ok(Told::Done),
            Ask::Register { .. } | Ask::Replace { .. } => Ok(Told::Held { lease: LEASE, revision: REVISION }),
            Ask::List { at: Some(at), .. } if at != REVISION => Err(EngineError::Compacted),
            Ask::List { .. } => Ok(Told::Page(Page {
                store: STORE,
                revision: REVISION,
                items: Vec::new(),
                count: 0,
                has_more: false,
            })),
        };
        Box::pin(std::future::ready(told))
    }

    fn watch(&self, watch: WatchId, _prefix: Prefix, _after: Revision) {
        let mut state = self.state();
        state.alive.insert(watch);
        state.due.push_back((watch, Change::Started { store: STORE, revision: REVISION }));
        drop(state);
        self.wake.notify_one();
    }

    fn unwatch(&self, watch: WatchId) {
        let mut state = self.state();
        state.alive.remove(&watch);
        state.due.retain(|(other, _)| *other != watch);
    }

    fn probe(&self) {
        let mut state = self.state();
        let State { alive, due } = &mut *state;
        due.retain(|(_, change)| !matches!(change, Change::Progress { .. }));
        due.extend(alive.iter().map(|watch| (*watch, Change::Progress { revision: REVISION })));
        drop(state);
        self.wake.notify_one();
    }

    fn report(self: Arc<Self>, to: mpsc::Sender<Report>) -> Reporting {
        Box::pin(async move {
            loop {
                let due = std::mem::take(&mut self.state().due);
                for report in due {
                    if to.send(report).await.is_err() {
                        return;
                    }
                }
                self.wake.notified().await;
            }
        })
    }

    fn health(&self) -> Health {
        Health { endpoint: "none".to_owned(), ..Health::default() }
    }
}

const STORE: StoreId = StoreId { id: 0, era: 0 };
const REVISION: Revision = Revision(1);
const LEASE: LeaseId = LeaseId(1);
