//! Executes invokes for local providers: one CAP_RESULT or one ERROR each.
//!
//! [`execute`] takes a call in, [`table`] holds running calls and remembers finished ones, [`providers`] holds the
//! providers. [`drive`] drives a running call's machine. [`results`] turns a provider's outcome into the call's one
//! result. [`record`] waits for the journal if a call may run only once. [`recover`] takes over what a former process
//! left there. [`release`] promises that a call will not run here. [`retire`] says what callers may still ask for. [`rates`] refuses callers that call too often, [`room`] calls beyond the capacity. [`sessions`] pins
//! versions that callers agreed on with us. [`former`] says what breaks callers of what was served before. [`timelines`] remembers where the time of finished calls went.

mod access;
mod drive;
mod execute;
pub(in crate::daemon) mod former;
mod listing;
mod providers;
mod rates;
mod record;
mod recover;
mod release;
mod results;
mod retire;
mod room;
mod sessions;
mod table;
mod timelines;

#[cfg(feature = "test-hooks")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use capd_proto::negotiate::Sessions;

pub(in crate::daemon) use self::execute::Incoming;
use self::providers::Providers;
pub(in crate::daemon) use self::providers::{Place, Prepared};
pub(in crate::daemon) use self::record::Written;
pub(in crate::daemon) use self::recover::{Recovered, recover};
pub(in crate::daemon) use self::table::Table;
use super::account::Account;
use super::context::Ctx;
use super::directory::Directory;
use super::door::permit::OwnRights;
use super::fleet::Fleet;
use super::journal::Scribe;
use crate::policy::rate::{PeerRates, Rates};
use crate::store::Counters;

/// Runs calls with the providers of this sidecar.
pub(in crate::daemon) struct Executor {
    ctx: Arc<Ctx>,
    account: Arc<Account>,
    directory: Arc<Directory>,
    fleet: Arc<Fleet>,
    /// What its own agent may do.
    own: OwnRights,
    /// Writes calls that may run only once.
    scribe: Arc<dyn Scribe<Written>>,
    pub(in crate::daemon) table: Table,
    pub(in crate::daemon) providers: Providers,
    /// Who has called how often.
    rates: Arc<Rates>,
    /// Versions that callers agreed on with us.
    accepted: Mutex<Sessions>,
    /// Whether calls are released without a tombstone.
    #[cfg(feature = "test-hooks")]
    is_careless: AtomicBool,
}

/// What an executor is made from besides rooms.
pub(in crate::daemon) struct Parts {
    pub(in crate::daemon) fleet: Arc<Fleet>,
    pub(in crate::daemon) own: OwnRights,
    pub(in crate::daemon) scribe: Arc<dyn Scribe<Written>>,
    pub(in crate::daemon) table: Table,
    pub(in crate::daemon) rates: Arc<Rates>,
}

impl Executor {
    pub(in crate::daemon) fn new(
        (ctx, account, directory): (Arc<Ctx>, Arc<Account>, Arc<Directory>),
        parts: Parts,
    ) -> Arc<Self> {
        let Parts { fleet, own, scribe, table, rates } = parts;
        let (providers, accepted) = (Providers::default(), Mutex::new(sessions::none()));
        Arc::new(Self {
            ctx,
            account,
            directory,
            fleet,
            own,
            scribe,
            table,
            providers,
            rates,
            accepted,
            #[cfg(feature = "test-hooks")]
            is_careless: AtomicBool::new(false),
        })
    }

    /// For tests of those who look for mistakes: releases calls without a tombstone.
    #[cfg(feature = "test-hooks")]
    pub(in crate::daemon) fn set_careless(&self) {
        self.is_careless.store(true, Ordering::Relaxed);
    }

    #[cfg(feature = "test-hooks")]
    fn is_careless(&self) -> bool {
        self.is_careless.load(Ordering::Relaxed)
    }

    /// Replaces how often peers may call.
    pub(in crate::daemon) fn replace_rates(&self, rates: PeerRates) {
        self.rates.replace(rates);
    }

    /// Largest message written. **Units:** bytes.
    fn message_bytes_max(&self) -> usize {
        self.ctx.config().limits.msg_size_bytes_max as usize - 1
    }

    /// What the journal's writer did so far.
    pub(in crate::daemon) fn journal_counters(&self) -> Counters {
        self.scribe.counters()
    }

    /// Has the journal's size read again, for whoever asks next.
    pub(in crate::daemon) fn measure_journal(&self) {
        self.scribe.measure();
    }

    /// Drops what would keep it alive: calls whose tickets answer to it.
    pub(in crate::daemon) fn let_go(&self) {
        self.table.let_go();
        self.providers.let_go();
    }
}
