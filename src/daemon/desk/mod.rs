//! Answers questions: everything to the sidecar's agent, and to peers what they may call here.
//!
//! [`query`] lists capabilities and sends schema documents, [`listing`] lists calls, [`peer_list`] peers,
//! [`fleet`] reports the fleet, [`audit_pages`] reads and prunes the audit log, [`metrics`] collects the counters of all
//! rooms, [`health`] tells whether the sidecar can work, [`doctor`] what is wrong with it, [`policy`] explains decisions,
//! [`paths`] tells how far away peers are, [`operator`] tells the person who runs it of all that together.

mod audit_pages;
mod doctor;
mod fleet;
mod health;
mod listing;
mod metrics;
mod operator;
mod paths;
mod peer_list;
mod policy;
mod query;

use std::sync::{Arc, OnceLock, Weak};

use super::account::Account;
use super::caller::Caller;
use super::context::Ctx;
use super::directory::Directory;
use super::door::Door;
use super::executor::Executor;
use super::fleet::Fleet;
use crate::config;
use crate::log::Lines;
use crate::net::Host;

/// Changes what is logged, by the configuration's `[log]`.
pub(in crate::daemon) type ApplyLog = Arc<dyn Fn(&config::Log) + Send + Sync>;

/// Answers what needs no call.
pub(in crate::daemon) struct Desk {
    ctx: Arc<Ctx>,
    account: Arc<Account>,
    directory: Arc<Directory>,
    fleet: Arc<Fleet>,
    door: Arc<Door>,
    executor: Arc<Executor>,
    caller: Arc<Caller>,
    /// Seals where a page ends.
    cursor_key: [u8; 32],
    /// Where its log goes, for those who count what it drops.
    pub(in crate::daemon) log: OnceLock<Lines>,
    /// Changes what is logged.
    pub(in crate::daemon) apply_log: OnceLock<ApplyLog>,
    /// Where its links meet; set once they may.
    pub(in crate::daemon) host: OnceLock<Weak<Host>>,
}

/// The rooms that a desk reads.
pub(in crate::daemon) struct Rooms {
    pub(in crate::daemon) ctx: Arc<Ctx>,
    pub(in crate::daemon) account: Arc<Account>,
    pub(in crate::daemon) directory: Arc<Directory>,
    pub(in crate::daemon) fleet: Arc<Fleet>,
    pub(in crate::daemon) door: Arc<Door>,
    pub(in crate::daemon) executor: Arc<Executor>,
    pub(in crate::daemon) caller: Arc<Caller>,
}

impl Desk {
    pub(in crate::daemon) fn new(rooms: Rooms, cursor_key: [u8; 32]) -> Arc<Self> {
        let Rooms { ctx, account, directory, fleet, door, executor, caller } = rooms;
        let (log, host, apply_log) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Arc::new(Self {
            ctx,
            account,
            directory,
            fleet,
            door,
            executor,
            caller,
            cursor_key,
            log,
            apply_log,
            host,
        })
    }
}
