//! Passes messages and outcomes to their rooms.
//!
//! [`service`] is the interface to links, [`dispatch`] passes each message on, [`invoke`] and [`request`] choose
//! between rooms, [`operate`] has the whole sidecar do something, [`keyed`] passes calls with a key to the front that keeps keys. [`workers`] run as long as the sidecar
//! does.

mod dispatch;
mod invoke;
mod keyed;
pub(in crate::daemon) mod operate;
mod request;
mod service;
mod waiting;
mod workers;

use std::sync::{Arc, OnceLock};

use capd_proto::identity::Did;

use self::operate::Operator;
pub(in crate::daemon) use self::service::Links;
pub(in crate::daemon) use self::waiting::Waiting;
pub(in crate::daemon) use self::workers::start;
use super::account::Account;
use super::asks::Asks;
use super::caller::Caller;
use super::context::Ctx;
use super::desk::Desk;
use super::directory::Directory;
use super::door::Door;
use super::executor::Executor;
use super::fleet::Fleet;
use super::journal::Tags;
use super::{caller, executor};
use crate::api::Api;
use crate::net::Link;
use crate::store::Journal;

/// All rooms of one sidecar.
pub(in crate::daemon) struct Sidecar {
    pub(in crate::daemon) ctx: Arc<Ctx>,
    pub(in crate::daemon) account: Arc<Account>,
    pub(in crate::daemon) asks: Arc<Asks>,
    pub(in crate::daemon) directory: Arc<Directory>,
    pub(in crate::daemon) fleet: Arc<Fleet>,
    pub(in crate::daemon) door: Arc<Door>,
    pub(in crate::daemon) executor: Arc<Executor>,
    pub(in crate::daemon) caller: Arc<Caller>,
    pub(in crate::daemon) desk: Arc<Desk>,
    /// Calls that may run only once, on disk.
    pub(in crate::daemon) journal: Journal<Written>,
    /// Messages that are still to be met.
    pub(in crate::daemon) waiting: Arc<Waiting>,
    pub(in crate::daemon) fronts: Fronts,
}

/// Fronts for the agent and its operator, which are set once the sidecar is made, because each of them needs it.
#[derive(Default)]
pub(in crate::daemon) struct Fronts {
    /// Makes the calls that have a key, whichever way they came.
    pub(in crate::daemon) api: OnceLock<Arc<Api>>,
    /// Does what concerns the sidecar as a whole.
    pub(in crate::daemon) operator: OnceLock<Arc<dyn Operator>>,
}

impl Sidecar {
    /// Takes no new calls from here on; whether it took any until then.
    pub(in crate::daemon) fn begin_drain(&self) -> bool {
        let is_first = !self.ctx.draining.is_cancelled();
        self.ctx.draining.cancel();
        is_first
    }

    /// A sidecar that drains says so on a link that opens. One of a peer whose calls it remembers stays: that peer may ask for
    /// them, and new ones are refused there. So do all while calls of our own are in flight.
    pub(in crate::daemon) fn drain_newcomer(&self, link: &Link) {
        if !self.needs_link(link.principal()) {
            link.drain();
        }
    }

    /// Whether a link to a peer is of use: while the sidecar drains, only to finish calls, or to answer for those that it ran.
    pub(in crate::daemon) fn needs_link(&self, peer: &Did) -> bool {
        !self.ctx.draining.is_cancelled()
            || self.executor.table.remembers(peer)
            || self.caller.calls_in_flight() > 0
    }
}

/// What a piece of the journal's work was for, in whichever room.
pub(in crate::daemon) enum Written {
    Executor(executor::Written),
    Caller(caller::Written),
    /// Rows that nobody needs any more.
    Forgotten,
}

impl From<executor::Written> for Written {
    fn from(tag: executor::Written) -> Self {
        Self::Executor(tag)
    }
}

impl From<caller::Written> for Written {
    fn from(tag: caller::Written) -> Self {
        Self::Caller(tag)
    }
}

impl Tags for Written {
    fn untold() -> Self {
        Self::Forgotten
    }
}
