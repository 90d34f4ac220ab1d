//! What a sidecar is made of, and how it writes: envelopes sealed, answers and refusals sent.

use super::asks::Asks;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use capd_proto::ledger::JournalId;

use super::account::Account;
use super::caller;
use super::caller::Gifts;
use super::caller::agreed::Agreed;
use super::caller::pins;
use super::context::Ctx;
use super::directory::peers::Peers;
use super::directory::serves::Serves;
use super::directory::{self, Directory};
use super::door::permit::OwnRights;
use super::door::{self, Door};
use super::executor::{self, Executor, Table};
use super::journal::Scribe;
use super::sidecar::Written;
use crate::config::Limits;
use crate::daemon::caller::drift::Drift;
use crate::daemon::caller::outgoing::Outgoing;
use crate::log::Lines;
use crate::net::Host;
use crate::schema::Artifacts;
use crate::schema::drift::Gate;
use crate::store::Journal;

/// What a node is made from.
pub(super) struct Parts {
    pub(super) ctx: Arc<Ctx>,
    pub(super) rules: Rules,
    pub(super) peers: Peers,
    pub(super) serves: Serves,
    pub(super) directory: directory::Bounds,
    pub(super) table: Table,
    pub(super) bounds: executor::Bounds,
    pub(super) journal_id: JournalId,
    pub(super) journal: Journal<Written>,
    pub(super) account: Arc<Account>,
    pub(super) gifts: Gifts,
    pub(super) door: door::Parts,
    pub(super) artifacts: Artifacts,
    pub(super) gate: Gate,
    pub(super) cursor_key: [u8; 32],
}

/// What the owner chose about calls.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// All bounds, as the owner set them.
    pub(super) limits: Limits,
}

/// The sidecar, as its links meet it.
pub(super) struct Node {
    pub(super) me: Weak<Self>,
    pub(super) ctx: Arc<Ctx>,
    pub(super) account: Arc<Account>,
    /// Where its log goes, for those who count what it drops.
    pub(super) log: OnceLock<Lines>,
    /// Where its links meet; set once they may.
    pub(super) host: OnceLock<Weak<Host>>,
    pub(super) rules: Rules,
    pub(super) directory: Arc<Directory>,
    pub(super) door: Arc<Door>,
    pub(super) own: OwnRights,
    /// What the agent was built against.
    pub(super) drift: Drift,
    pub(super) executor: Arc<Executor>,
    /// What names the journal to peers.
    pub(super) journal_id: JournalId,
    /// Calls that may run only once, on disk.
    pub(super) journal: Journal<Written>,
    pub(super) scribe: Arc<dyn Scribe<caller::Written>>,
    /// Whom such calls of the agent's were given to.
    pub(super) gifts: Gifts,
    pub(super) relay: Outgoing,
    pub(super) asks: Arc<Asks>,
    pub(super) pins: Mutex<Agreed>,
    pub(super) cursor_key: [u8; 32],
    #[cfg(feature = "test-hooks")]
    pub(super) left_out: super::hooks::LeftOut,
}

impl Node {
    pub(super) fn new(parts: Parts) -> Arc<Self> {
        let slots = Arc::clone(&parts.ctx.slots);
        let asks = Asks::new(Arc::clone(&parts.ctx), Arc::clone(&parts.account));
        let base = (Arc::clone(&parts.ctx), Arc::clone(&parts.account), Arc::clone(&asks));
        let directory = Directory::new(base, parts.peers, parts.serves, parts.artifacts, parts.directory);
        let base = (Arc::clone(&parts.ctx), Arc::clone(&parts.account), Arc::clone(&directory));
        let rates = Arc::clone(&parts.door.rates);
        let door = Door::new(base, parts.door);
        let base = (Arc::clone(&parts.ctx), Arc::clone(&parts.account), Arc::clone(&directory));
        let executor = Executor::new(
            base,
            executor::Parts {
                own: door.own(),
                scribe: Arc::new(parts.journal.clone()),
                table: parts.table,
                rates,
                bounds: parts.bounds,
            },
        );
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            account: parts.account,
            log: OnceLock::new(),
            host: OnceLock::new(),
            ctx: parts.ctx,
            directory,
            own: door.own(),
            door,
            drift: Drift::new(parts.gate),
            executor,
            journal_id: parts.journal_id,
            scribe: Arc::new(parts.journal.clone()),
            journal: parts.journal,
            gifts: parts.gifts,
            relay: Outgoing::new(slots),
            asks,
            pins: Mutex::new(pins::none()),
            rules: parts.rules,
            cursor_key: parts.cursor_key,
            #[cfg(feature = "test-hooks")]
            left_out: super::hooks::LeftOut::default(),
        })
    }

    /// Drops what would keep the node alive: calls whose tickets answer to it.
    pub(super) fn let_go(&self) {
        self.executor.let_go();
    }

    /// This node for a task; `None` once the daemon is being dropped.
    pub(super) fn shared(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }
}
