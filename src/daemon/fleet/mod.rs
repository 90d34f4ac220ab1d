//! Takes part in a fleet: lets members in, tells the registry what our agent serves, and dials whom its calls want.
//!
//! The registry says whom to dial. A link says who answers, and CAP_QUERY says what it serves: nothing here makes a
//! capability callable, ends a call, or closes a link that a call needs.
//!
//! [`meeting`] decides about memberships, [`links`] opens and closes links, [`offer`] tells what our agent serves,
//! [`condition`] says where that stands. [`prospects`] says whom a call may wait for and whom it prefers, [`told`] acts on what the registry's side reports.

mod condition;
mod links;
mod meeting;
mod offer;
mod prospects;
mod told;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use capd_proto::code::Code;
use capd_proto::fleet::machine::Config;
use capd_proto::fleet::{Agent, Refused};
use capd_proto::message::Member;
use tokio_util::sync::CancellationToken;

pub(in crate::daemon) use self::offer::Announced;
pub(in crate::daemon) use self::prospects::Missed;
pub(in crate::daemon) use self::told::Acts;
use self::told::Tally;
use super::account::Account;
use super::context::{Ctx, Refusal, lock};
use super::directory::Directory;
use crate::fleet as registry;
use crate::net::Host;

/// A sidecar's part in its fleet, or in none.
pub(in crate::daemon) struct Fleet {
    ctx: Arc<Ctx>,
    account: Arc<Account>,
    directory: Arc<Directory>,
    part: Option<Part>,
}

/// The part in a fleet.
struct Part {
    config: Config,
    /// What the registry's side knows; set before the first link.
    registry: OnceLock<registry::Fleet>,
    /// Where links are opened; set before the first one.
    host: OnceLock<Weak<Host>>,
    /// Agents that are being dialled, each with what ends that.
    dials: Mutex<BTreeMap<Agent, CancellationToken>>,
    tally: Tally,
}

impl Fleet {
    /// The part in a fleet that `config` describes; none for a sidecar outside of any.
    pub(in crate::daemon) fn new(
        (ctx, account, directory): (Arc<Ctx>, Arc<Account>, Arc<Directory>),
        config: Option<Config>,
    ) -> Arc<Self> {
        let part = config.map(|config| Part {
            config,
            registry: OnceLock::new(),
            host: OnceLock::new(),
            dials: Mutex::default(),
            tally: Tally::default(),
        });
        Arc::new(Self { ctx, account, directory, part })
    }

    /// Whether the sidecar is in a fleet.
    pub(in crate::daemon) const fn is_any(&self) -> bool {
        self.part.is_some()
    }

    /// The settings of the part that the registry's side runs; none outside of a fleet.
    pub(in crate::daemon) fn config(&self) -> Option<&Config> {
        self.part.as_ref().map(|part| &part.config)
    }

    /// Gives it what it works with; once, before the first link.
    pub(in crate::daemon) fn begin(&self, registry: registry::Fleet, host: &Arc<Host>) {
        if let Some(part) = &self.part {
            // Nobody else sets them.
            let (_first, _host) = (part.registry.set(registry), part.host.set(Arc::downgrade(host)));
        }
    }

    /// What the registry's side knows.
    pub(in crate::daemon) fn registry(&self) -> Option<&registry::Fleet> {
        self.part.as_ref()?.registry.get()
    }

    /// How often each reason kept a registration or a membership from counting; all of them, also those that did not.
    pub(in crate::daemon) fn refused(&self) -> BTreeMap<&'static str, u64> {
        let mut refused: BTreeMap<_, _> =
            Refused::WHYS.into_iter().chain([meeting::TOO_OLD]).map(|why| (why, 0)).collect();
        if let Some(part) = &self.part {
            refused.extend(lock(&part.tally.refused).iter());
        }
        refused
    }

    /// What HELLO shows of us.
    pub(in crate::daemon) fn shown(&self) -> Member<'static> {
        let Some(part) = &self.part else { return Member::default() };
        let fence = part.registry.get().and_then(|registry| registry.status().fence);
        Member {
            membership: Some(part.config.membership.to_vec().into()),
            incarnation: fence.map(|fence| fence.incarnation),
        }
    }

    /// Whether another process has our identity.
    pub(in crate::daemon) fn is_fenced(&self) -> bool {
        self.registry().is_some_and(|registry| registry.status().fenced_by.is_some())
    }

    /// FLEET 5: two processes of one agent would remember calls in two journals, so the earlier one begins none.
    ///
    /// **Errors:** 5002.
    pub(in crate::daemon) fn may_journal(&self) -> Result<(), Refusal> {
        if self.is_fenced() {
            return Err(Refusal::new(Code::UNAVAILABLE, FENCED));
        }
        Ok(())
    }
}

/// Why a sidecar begins no call that may run only once.
const FENCED: &str = "another process has this sidecar's identity: stop one of the two";
