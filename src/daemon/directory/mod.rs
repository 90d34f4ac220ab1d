//! Knows the peers: which there are, what they and this sidecar serve, and the schemas of it.
//!
//! [`peers`] holds the links to each peer, [`expected`] the expected peers, [`unlinked`] the reasons for missing links.
//! [`listed`] replaces the list of peers while the sidecar runs.
//! [`probe`] keeps links alive or ends them. [`refresh`] asks peers what they serve, [`answer`] collects it within
//! bounds, [`serves`] decides what counts, [`hashes`] verifies it. [`schemas`] holds the documents of this sidecar and
//! of peers.

mod answer;
pub(in crate::daemon) mod expected;
pub(in crate::daemon) mod hashes;
pub(in crate::daemon) mod listed;
pub(in crate::daemon) mod peers;
mod probe;
mod refresh;
pub(in crate::daemon) mod schemas;
pub(in crate::daemon) mod serves;
pub(in crate::daemon) mod unlinked;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use capd_proto::message::ContentHash;
use tokio_util::sync::CancellationToken;

use self::peers::Peers;
pub(in crate::daemon) use self::probe::Probes;
use self::serves::Serves;
use self::unlinked::Unlinked;
use super::account::Account;
use super::asks::Asks;
use super::context::Ctx;
use crate::registry::Registry;
use crate::registry::snapshot::Snapshot;
use crate::schema::Artifacts;

/// Who serves what, and where.
pub(in crate::daemon) struct Directory {
    ctx: Arc<Ctx>,
    account: Arc<Account>,
    asks: Arc<Asks>,
    pub(in crate::daemon) registry: Registry,
    pub(in crate::daemon) peers: Peers,
    /// What peers may serve.
    pub(in crate::daemon) serves: Serves,
    pub(in crate::daemon) unlinked: Unlinked,
    pub(in crate::daemon) artifacts: Artifacts,
    /// Schemas that are being fetched; the token is set when a fetch ends.
    fetches: Mutex<HashMap<ContentHash, CancellationToken>>,
}

impl Directory {
    pub(in crate::daemon) fn new(
        (ctx, account, asks): (Arc<Ctx>, Arc<Account>, Arc<Asks>),
        peers: Peers,
        serves: Serves,
        artifacts: Artifacts,
    ) -> Arc<Self> {
        let (registry, unlinked, fetches) = (Registry::new(), Unlinked::default(), Mutex::default());
        Arc::new(Self { ctx, account, asks, registry, peers, serves, unlinked, artifacts, fetches })
    }

    /// What is served and where, at this moment.
    pub(in crate::daemon) fn snapshot(&self) -> Arc<Snapshot> {
        self.registry.snapshot()
    }
}
