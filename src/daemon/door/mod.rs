//! Checks the bytes of all links: messages with a valid envelope and sender, and their sender's rights, out.
//!
//! [`admission`] decides who may open a link, [`take`] checks envelopes and signatures, [`permit`] gives each sender
//! its [`Permit`], [`deny`] accounts for denied messages. [`policy`] makes the rules, which a reload replaces.

pub(in crate::daemon) mod admission;
mod deny;
pub(in crate::daemon) mod permit;
pub(in crate::daemon) mod policy;
mod take;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use capd_proto::identity::{Did, Keyring};

use self::admission::Admission;
pub(in crate::daemon) use self::take::Meet;
use super::account::Account;
use super::context::{Ctx, lock};
use super::directory::Directory;
use crate::net::Link;
use crate::policy::rate::Rates;
use crate::policy::{Caller, Decisions, Rules};

/// Who gets in, and what for.
pub(in crate::daemon) struct Door {
    ctx: Arc<Ctx>,
    account: Arc<Account>,
    directory: Arc<Directory>,
    pub(in crate::daemon) admission: Admission,
    /// Keys of DIDs whose documents the owner configured.
    keyring: Mutex<Keyring>,
    /// Who may do what.
    pub(in crate::daemon) policy: Arc<Decisions>,
    /// Who was denied how often, and has called how often.
    rates: Arc<Rates>,
}

/// What a door is made from besides rooms.
pub(in crate::daemon) struct Parts {
    pub(in crate::daemon) admission: Admission,
    pub(in crate::daemon) keyring: Keyring,
    pub(in crate::daemon) policy: Arc<Decisions>,
    pub(in crate::daemon) rates: Arc<Rates>,
}

impl Door {
    pub(in crate::daemon) fn new(
        (ctx, account, directory): (Arc<Ctx>, Arc<Account>, Arc<Directory>),
        parts: Parts,
    ) -> Arc<Self> {
        let Parts { admission, keyring, policy, rates } = parts;
        let keyring = Mutex::new(keyring);
        Arc::new(Self { ctx, account, directory, admission, keyring, policy, rates })
    }

    /// Whether messages of a peer count: the owner admits it, or it is a member of the fleet that is linked.
    pub(in crate::daemon) fn admits(&self, peer: &Did) -> bool {
        self.admission.admits(peer) || self.directory.serves.is_member(peer)
    }

    /// Replaces who gets in, by which keys, and by which rules if they are others.
    pub(in crate::daemon) fn replace(
        &self,
        (is_open, listed): (bool, BTreeSet<Did>),
        keyring: Keyring,
        rules: Option<Rules>,
    ) {
        self.admission.replace(is_open, listed);
        *lock(&self.keyring) = keyring;
        if let Some(rules) = rules {
            self.policy.replace(rules);
        }
    }

    /// A link to a peer has opened: what it may call is decided before it asks, so that its first question takes as long as
    /// any.
    pub(in crate::daemon) fn on_open(&self, link: &Link) {
        let _decided = self.policy.view(Caller { did: link.principal(), alias: None });
    }
}
