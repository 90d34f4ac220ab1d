//! Acts on what the registry's side reports: dials and lets go, and tells log, audit and metrics of the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use capd_proto::fleet::{Agent, Fence, Refused};
use capd_proto::ledger::JournalId;

use super::Fleet;
use crate::daemon::context::lock;
use crate::fleet::{Event, Owner};
use crate::store::audit::{Kind, short};

/// What has been counted and told.
#[derive(Default)]
pub(super) struct Tally {
    /// Registrations and memberships that did not count, by reason.
    pub(super) refused: Mutex<BTreeMap<&'static str, u64>>,
    /// Agents whose registrations were told of; no more than [`TOLD_MAX`].
    told: Mutex<BTreeSet<Agent>>,
}

/// A sidecar's part in its fleet, as the registry's side meets it.
pub(in crate::daemon) struct Acts(pub(in crate::daemon) Arc<Fleet>);

impl Owner for Acts {
    fn on_event(&self, event: Event) {
        let fleet = &self.0;
        match event {
            Event::Dial { agent, addresses } => fleet.dial(agent, &addresses),
            Event::GiveUp { agent } => fleet.give_up(agent),
            Event::LetGo { agent, why } => fleet.let_go(agent, why),
            Event::Revoked { agent, serial_min } => fleet.revoked(agent, serial_min),
            Event::Split { agent, journals } => fleet.split(agent, journals),
            Event::Fenced { by } => fleet.fenced(by),
            Event::Claimed(fence) => {
                tracing::info!(incarnation = fence.incarnation, "the fleet knows this process")
            }
            Event::Registered { generation } => tracing::debug!(generation, "registered"),
            Event::Lapsed => tracing::warn!("the registration lapsed; the sidecar registers again"),
            Event::Unregistrable { name, error } => {
                tracing::warn!(capability = %name, %error, "a capability cannot be registered");
            }
            Event::Refused { path, agent, why } => fleet.refuse(&path, agent, &why),
            Event::Frozen => tracing::warn!(
                "so much of the registry vanished at once that nothing of it is dropped; check the registry"
            ),
            Event::Thawed => tracing::info!("the registry is believed again"),
            Event::Disk(error) => tracing::error!(%error, "a file of the fleet cannot be written"),
        }
    }
}

impl Fleet {
    /// One more registration or membership does not count.
    pub(super) fn count_refused(&self, why: &'static str) {
        if let Some(part) = &self.part {
            *lock(&part.tally.refused).entry(why).or_default() += 1;
        }
    }

    fn refuse(&self, path: &str, agent: Option<Agent>, why: &Refused) {
        let Some(part) = &self.part else { return };
        self.count_refused(why.why());
        let is_first = agent.is_none_or(|agent| {
            let mut told = lock(&part.tally.told);
            told.len() < TOLD_MAX && told.insert(agent)
        });
        // A registry that goes back in time is met by each of its records.
        if !is_first || *why == Refused::Older {
            return tracing::debug!(key = short(path), %why, "a registration does not count");
        }
        tracing::warn!(target: "audit", kind = Kind::FleetRefused.as_str(), key = short(path), %why, "a registration does not count");
        let mut record = self.account.audited(Kind::FleetRefused);
        if let Some(agent) = agent {
            record = record.peer(agent.did().as_str());
        }
        self.account.audit.record(record.with("key", short(path)).with("reason", why.to_string()));
    }

    fn split(&self, agent: Agent, journals: [JournalId; 2]) {
        let [one, other] = journals;
        let reason = format!("two processes of the agent answer, with the journals {one} and {other}");
        tracing::error!(target: "audit", kind = Kind::SplitIdentity.as_str(), peer = %agent.did(), reason, "no journaled call goes to an agent");
        let record = self.account.audited(Kind::SplitIdentity).peer(agent.did().as_str());
        self.account.audit.record(record.with("reason", reason));
    }

    fn fenced(&self, by: Fence) {
        let reason = format!("another process has this sidecar's identity: {by}");
        tracing::error!(target: "audit", kind = Kind::SplitIdentity.as_str(), reason, "this sidecar registers no more and takes no journaled call; stop one of the two");
        let record = self.account.audited(Kind::SplitIdentity).peer(self.ctx.did().as_str());
        self.account.audit.record(record.with("reason", reason));
    }
}

/// Agents whose registrations are told of.
const TOLD_MAX: usize = 1_024;
