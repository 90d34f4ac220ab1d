//! Publishes what the machine has found out, so that calls read it without waiting: candidates of each name, a status, and
//! who may be let in.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::machine::{Candidate, Extent, Machine, NotAdmitted};
use capd_proto::fleet::{Agent, Fence, Membership, Prefix, Verifier};
use capd_proto::ledger::JournalId;

use super::engine::Health;
use crate::changes::{Changes, Watch};

/// Who may serve a name, in the order in which they are dialled.
pub type Candidates = Arc<[Candidate]>;

/// Where a sidecar stands in its fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Where registering stands, in one word.
    pub state: &'static str,
    /// The process that we are, once the registry has it.
    pub fence: Option<Fence>,
    /// The process that has our identity as well.
    pub fenced_by: Option<Fence>,
    /// The last generation that the registry has taken; none while nothing is registered.
    pub registered: Option<u64>,
    /// Since when the directory may be behind the registry; none where it is not. **Units:** milliseconds, by the
    /// daemon's monotonic clock.
    pub stale_since_ms: Option<u64>,
    /// When the revocations were last known to be complete; none if they never were. **Units:** as above; before the
    /// process began for those of a cache.
    pub revocations_at_ms: Option<i64>,
    /// Whether so much vanished at once that the registry is not believed.
    pub is_frozen: bool,
    /// Names that are watched.
    pub wanted: usize,
    /// Candidates of all of them.
    pub candidates: usize,
    /// Prefixes that are read, and those of them whose watch is alive.
    pub feeds: usize,
    /// Prefixes whose watch is alive.
    pub watching: usize,
    /// How the registry is reached.
    pub engine: Health,
}

/// What is read of the registry, and where each part of it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The status at that moment.
    pub status: Status,
    /// Each prefix with its state in one word.
    pub feeds: Vec<(Prefix, &'static str)>,
}

/// Two processes of one agent that live at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// What the two remember calls in.
    pub journals: [JournalId; 2],
    /// Until when no journaled call goes to either. **Units:** milliseconds, by the daemon's monotonic clock.
    pub until_ms: u64,
}

/// A name that is wanted.
#[derive(Debug)]
struct Known {
    candidates: Candidates,
    listing: Extent,
    /// When a call last said that it wants the name. **Units:** milliseconds.
    used_ms: AtomicU64,
}

/// Who may open a link. It needs no registry, and never waits for the machine.
#[derive(Debug)]
struct Gate {
    verifier: Verifier,
    revocations_at_ms: Option<i64>,
}

/// What the driver publishes and everybody reads.
pub(super) struct View {
    names: RwLock<BTreeMap<CapabilityName, Known>>,
    status: RwLock<Arc<Status>>,
    gate: Mutex<Gate>,
    /// Agents of which two processes live.
    split: Mutex<BTreeMap<Agent, Split>>,
    deny_max_age_ms: u64,
    changes: Changes,
}

impl View {
    pub(super) fn new(verifier: Verifier, deny_max_age_ms: u64) -> Self {
        Self {
            names: RwLock::default(),
            status: RwLock::default(),
            gate: Mutex::new(Gate { verifier, revocations_at_ms: None }),
            split: Mutex::default(),
            deny_max_age_ms,
            changes: Changes::default(),
        }
    }

    pub(super) fn watch(&self) -> Watch {
        self.changes.watch()
    }

    /// The candidates of a name, and whether the machine should hear that it is still wanted.
    pub(super) fn want(&self, name: &CapabilityName, now_ms: u64) -> (Option<Candidates>, bool) {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = names.get(name) else { return (None, true) };
        // Most calls find that another one has said so a moment ago.
        let used_ms = known.used_ms.load(Ordering::Relaxed);
        let is_due = now_ms >= used_ms.saturating_add(USED_AGAIN_MS);
        let says = is_due
            && known.used_ms.compare_exchange(used_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        (Some(Arc::clone(&known.candidates)), says)
    }

    pub(super) fn candidates(&self, name: &CapabilityName) -> Option<Candidates> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.get(name).map(|known| Arc::clone(&known.candidates))
    }

    pub(super) fn listing(&self, name: &CapabilityName) -> Option<Extent> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.get(name).map(|known| known.listing)
    }

    pub(super) fn names(&self) -> Vec<(CapabilityName, Candidates)> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.iter().map(|(name, known)| (name.clone(), Arc::clone(&known.candidates))).collect()
    }

    pub(super) fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn has_splits(&self) -> bool {
        !self.split.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(super) fn is_split(&self, agent: &Agent, now_ms: u64) -> bool {
        let split = self.split.lock().unwrap_or_else(PoisonError::into_inner);
        split.get(agent).is_some_and(|split| now_ms < split.until_ms)
    }

    pub(super) fn splits(&self, now_ms: u64) -> Vec<(Agent, Split)> {
        let split = self.split.lock().unwrap_or_else(PoisonError::into_inner);
        let lasting = split.iter().filter(|(_, split)| now_ms < split.until_ms);
        lasting.map(|(agent, split)| (*agent, *split)).collect()
    }

    /// FLEET D5: revocations that are too old let nobody in.
    pub(super) fn admit(
        &self,
        membership: &[u8],
        agent: &Agent,
        now_ms: u64,
        wall_ms: u64,
    ) -> Result<Membership, NotAdmitted> {
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        let signed_now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let age_ms = gate.revocations_at_ms.map(|at_ms| signed_now_ms.saturating_sub(at_ms));
        if age_ms.is_none_or(|age_ms| u64::try_from(age_ms).is_ok_and(|age_ms| age_ms > self.deny_max_age_ms))
        {
            return Err(NotAdmitted::RevocationsTooOld(self.deny_max_age_ms));
        }
        Ok(gate.verifier.membership(membership, agent, wall_ms)?)
    }

    pub(super) fn revoked_below(&self, agent: &Agent) -> Option<u64> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).verifier.revoked_below(agent)
    }

    pub(super) fn revoke(&self, agent: Agent, serial_min: u64) {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).verifier.revoke(agent, serial_min);
    }

    pub(super) fn split(&self, agent: Agent, split: Split, now_ms: u64) {
        let mut all = self.split.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, split| now_ms < split.until_ms);
        all.insert(agent, split);
    }

    /// Publishes what has changed of these names, and wakes everybody who waits for that.
    pub(super) fn publish(&self, machine: &Machine, names: Vec<CapabilityName>, now_ms: u64) {
        if names.is_empty() {
            return;
        }
        let wanted: Vec<_> = names.iter().map(|name| machine.is_wanted(name)).collect();
        {
            let mut known = self.names.write().unwrap_or_else(PoisonError::into_inner);
            for (name, is_wanted) in names.into_iter().zip(wanted) {
                if !is_wanted {
                    known.remove(&name);
                    continue;
                }
                let candidates: Candidates = machine.candidates(&name).into_iter().cloned().collect();
                let listing = machine.listing(&name).unwrap_or(Extent::Listing);
                match known.get_mut(&name) {
                    Some(known) => (known.candidates, known.listing) = (candidates, listing),
                    None => {
                        let used_ms = AtomicU64::new(now_ms);
                        known.insert(name, Known { candidates, listing, used_ms });
                    }
                }
            }
        }
        self.changes.changed();
    }

    pub(super) fn set_status(&self, status: Status) {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner).revocations_at_ms = status.revocations_at_ms;
        let mut current = self.status.write().unwrap_or_else(PoisonError::into_inner);
        // Every sign of life of the registry moves this time; nobody waits for that.
        let unmoved = Status { revocations_at_ms: current.revocations_at_ms, ..status.clone() };
        let is_news = **current != unmoved;
        *current = Arc::new(status);
        drop(current);
        if is_news {
            self.changes.changed();
        }
    }
}

/// How often the machine hears that a name is still wanted. **Units:** milliseconds.
const USED_AGAIN_MS: u64 = 15_000;
