//! Handles the agent's calls: to a local provider or to a peer, and one answer each back.
//!
//! [`call`] is one call, [`outgoing`] holds all that are out. [`choose`] finds the peer, [`among`] one of several that
//! serve the same, [`here`] a local provider that appears later. [`given`] remembers the peer of a non-idempotent call.
//! [`reserved`] does so for many calls at once, each of which has its [`owner`], and [`memory`] makes sure that the
//! peer remembers it, too. [`moves`] gives a call to another peer once that is safe. [`drive`] drives the call's machine, [`answers`] receives what comes back, [`deliver`] gives
//! the agent its one answer. [`drift`] proves providers, [`ahead`] does so before calls, [`pins`] keeps what peers
//! agreed on.

mod access;
mod agreed;
mod ahead;
mod among;
mod answers;
mod call;
mod choose;
mod deliver;
mod drift;
mod drive;
mod given;
pub(in crate::daemon) mod here;
mod listing;
mod memory;
mod moves;
mod outgoing;
mod owner;
mod pins;
mod relay;
mod reserved;
mod retry;
mod standings;

#[cfg(feature = "test-hooks")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use self::agreed::Agreed;
pub(in crate::daemon) use self::agreed::Agreement;
pub(in crate::daemon) use self::call::Destination;
use self::call::{Chosen, Handed, RelayedCall};
use self::drift::Drift;
pub(in crate::daemon) use self::given::{Gifts, Written};
use self::here::Here;
pub(in crate::daemon) use self::here::Passed;
use self::outgoing::Outgoing;
use super::account::Account;
use super::context::Ctx;
use super::directory::Directory;
use super::door::permit::OwnRights;
use super::fleet::Fleet;
use super::journal::Scribe;
use crate::schema::drift::Gate;

/// Makes the agent's calls.
pub(in crate::daemon) struct Caller {
    ctx: Arc<Ctx>,
    account: Arc<Account>,
    directory: Arc<Directory>,
    fleet: Arc<Fleet>,
    /// What the agent may do.
    own: OwnRights,
    /// Writes whom calls that may run only once are given to.
    scribe: Arc<dyn Scribe<Written>>,
    outgoing: Outgoing,
    /// Whom such calls were given to.
    gifts: Gifts,
    /// What the agent was built against.
    drift: Drift,
    /// The agent's sessions with peers.
    pins: Mutex<Agreed>,
    /// Where calls go that an agent here serves after all.
    here: Weak<dyn Here>,
    #[cfg(feature = "test-hooks")]
    mistakes: Mistakes,
}

/// Mistakes that a test has the caller make.
#[cfg(feature = "test-hooks")]
#[derive(Default)]
struct Mistakes {
    /// Whether an ERROR after an unanswered copy is taken for a refusal.
    is_credulous: AtomicBool,
    /// Whether a lost link is taken for the proof that a call was not accepted.
    is_restless: AtomicBool,
}

/// What a caller is made from besides rooms.
pub(in crate::daemon) struct Parts {
    pub(in crate::daemon) fleet: Arc<Fleet>,
    pub(in crate::daemon) own: OwnRights,
    pub(in crate::daemon) scribe: Arc<dyn Scribe<Written>>,
    pub(in crate::daemon) gifts: Gifts,
    pub(in crate::daemon) gate: Gate,
    pub(in crate::daemon) here: Weak<dyn Here>,
}

impl Caller {
    pub(in crate::daemon) fn new(
        (ctx, account, directory): (Arc<Ctx>, Arc<Account>, Arc<Directory>),
        parts: Parts,
    ) -> Arc<Self> {
        let Parts { fleet, own, scribe, gifts, gate, here } = parts;
        Arc::new(Self {
            outgoing: Outgoing::new(Arc::clone(&ctx.slots)),
            drift: Drift::new(gate),
            pins: Mutex::new(pins::none()),
            ctx,
            account,
            directory,
            fleet,
            own,
            scribe,
            gifts,
            here,
            #[cfg(feature = "test-hooks")]
            mistakes: Mistakes::default(),
        })
    }

    /// For tests of those who look for mistakes: takes an ERROR after an unanswered copy for a refusal.
    #[cfg(feature = "test-hooks")]
    pub(in crate::daemon) fn set_credulous(&self) {
        self.mistakes.is_credulous.store(true, Ordering::Relaxed);
    }

    /// For tests of those who look for mistakes: takes a lost link for the proof that a call was not accepted.
    #[cfg(feature = "test-hooks")]
    pub(in crate::daemon) fn set_restless(&self) {
        self.mistakes.is_restless.store(true, Ordering::Relaxed);
    }
}
