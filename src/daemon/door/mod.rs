//! Checks the bytes of all links: messages with a valid envelope and sender, and their sender's rights, out.
//!
//! [`admission`] decides who may open a link, [`take`] checks envelopes and signatures, [`permit`] gives each sender
//! its [`Permit`], [`deny`] accounts for denied messages. [`policy`] makes the rules, [`reload`] replaces them.

pub(in crate::daemon) mod admission;
mod deny;
pub(in crate::daemon) mod permit;
pub(in crate::daemon) mod policy;
pub(in crate::daemon) mod reload;
mod take;

use std::sync::{Arc, Mutex};

use capd_proto::identity::Keyring;

use self::admission::Admission;
use self::reload::Reread;
pub(in crate::daemon) use self::take::Meet;
use super::account::Account;
use super::context::Ctx;
use super::directory::Directory;
use crate::net::Link;
use crate::policy::rate::Rates;
use crate::policy::{Caller, Decisions};

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
    /// Where that is read from; none where it is not.
    reading: Option<Arc<Reread>>,
    /// Who was denied how often, and has called how often.
    rates: Arc<Rates>,
}

/// What a door is made from besides rooms.
pub(in crate::daemon) struct Parts {
    pub(in crate::daemon) admission: Admission,
    pub(in crate::daemon) keyring: Keyring,
    pub(in crate::daemon) policy: Arc<Decisions>,
    pub(in crate::daemon) reading: Option<Arc<Reread>>,
    pub(in crate::daemon) rates: Arc<Rates>,
}

impl Door {
    pub(in crate::daemon) fn new(
        (ctx, account, directory): (Arc<Ctx>, Arc<Account>, Arc<Directory>),
        parts: Parts,
    ) -> Arc<Self> {
        let Parts { admission, keyring, policy, reading, rates } = parts;
        let keyring = Mutex::new(keyring);
        Arc::new(Self { ctx, account, directory, admission, keyring, policy, reading, rates })
    }

    /// A link to a peer has opened: what it may call is decided before it asks, so that its first question takes as long as
    /// any.
    pub(in crate::daemon) fn on_open(&self, link: &Link) {
        let _decided = self.policy.view(Caller { did: link.principal(), alias: None });
    }
}
