//! One simulated sidecar: its machine, its disk, its watches and links.

use std::collections::BTreeMap;

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::machine::{Machine, Offer, WatchId};
use capd_proto::fleet::{Agent, Fence};
use capd_proto::ledger::JournalId;

/// What survives a process.
#[derive(Clone, Debug)]
pub struct Disk {
    pub incarnation: u64,
    pub journal: JournalId,
}

/// A watch as the registry has it.
#[derive(Debug)]
pub struct Watch {
    pub prefix: String,
    /// Changes behind this one are reported.
    pub after: u64,
    /// No report comes before the last one.
    pub next_ms: u64,
}

pub struct Process {
    pub agent: usize,
    pub machine: Machine,
    pub disk: usize,
    pub offer: Offer,
    pub is_alive: bool,
    pub paused_until_ms: u64,
    pub skew_ms: i64,
    pub watches: BTreeMap<WatchId, Watch>,
    /// Reports come no more until all watches have been given up.
    pub is_stream_dead: bool,
    /// With whom, and with which process of it.
    pub links: BTreeMap<Agent, usize>,
    /// Dials that are under way, by number.
    pub dials: BTreeMap<Agent, u64>,
    /// Dials so far.
    pub dialled: u64,
    pub wanted_ms: BTreeMap<CapabilityName, u64>,
    /// When it is woken next.
    pub wake_ms: Option<u64>,
    pub noted: Noted,
}

/// What the oracle remembers of a process.
#[derive(Default)]
pub struct Noted {
    pub candidates: BTreeMap<CapabilityName, BTreeMap<Agent, (Fence, u64)>>,
    pub revoked: Vec<Agent>,
    /// Whether it has asked to register since it last was.
    pub registers: bool,
    pub registered_ms: Option<u64>,
    pub asked_ms: Vec<u64>,
    /// When each journal of an agent was last known to live.
    pub alive: BTreeMap<Agent, BTreeMap<JournalId, u64>>,
    /// When links closed.
    pub unlinked_ms: BTreeMap<Agent, u64>,
    /// When dials failed, and what the agent said of itself by then.
    pub failed: BTreeMap<Agent, (u64, Option<(Fence, u64)>)>,
}

impl Process {
    pub fn runs(&self, now_ms: u64) -> bool {
        self.is_alive && self.paused_until_ms <= now_ms
    }
}
