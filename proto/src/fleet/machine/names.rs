//! What stands under wanted names in, candidates in the order in which to dial them out.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::FeedId;
use super::contacts::Contacts;
use crate::capability::CapabilityName;
use crate::fleet::key::Shard;
use crate::fleet::verify::Registered;
use crate::fleet::{Agent, Registration, State};
use crate::identity::Did;

/// An agent that may serve a wanted name, by its own word.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its DID, written once: calls that wait ask for it often.
    pub did: Did,
    /// What it says of itself.
    pub registration: Arc<Registration>,
    /// Whether its word stands.
    pub standing: Standing,
    /// Since when it is known here. **Units:** milliseconds.
    pub since_ms: u64,
    /// The serial of its membership.
    pub serial: u64,
    /// When its membership ends. **Units:** milliseconds since 1970.
    pub member_until_ms: u64,
    pub(super) value: Bytes,
    /// Contacts that failed since it was listed last.
    pub(super) failures: u32,
    weight: u64,
}

/// Whether what an agent said of itself stands. **Source:** FLEET D2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It stands in the registry.
    Listed,
    /// It stood there, and does no more; or it comes from a cache. That proves nothing.
    Suspect {
        /// Since when. **Units:** milliseconds.
        since_ms: u64,
    },
}

impl Candidate {
    /// Whether it stands in the registry.
    pub fn is_listed(&self) -> bool {
        self.standing == Standing::Listed
    }

    /// Whether nobody answered there the last times, so that nobody waits for it.
    pub fn has_failed(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Whether calls that have not begun may go there.
    pub fn takes_calls(&self) -> bool {
        self.registration.state == State::Serving
    }
}

/// A name that calls of our agent want.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) feeds: Vec<FeedId>,
    /// How many shards are watched; none where all are, as one.
    pub(super) shards: Option<u8>,
    pub(super) used_ms: u64,
    /// Whether one more link than usual is wanted.
    pub(super) is_busy: bool,
    pub(super) candidates: BTreeMap<Agent, Candidate>,
    /// When somebody may be dialled again who is missing. **Units:** milliseconds.
    pub(super) retry_ms: Option<u64>,
}

impl Wanted {
    pub(super) fn new(used_ms: u64) -> Self {
        Self {
            feeds: Vec::new(),
            shards: None,
            used_ms,
            is_busy: false,
            candidates: BTreeMap::new(),
            retry_ms: None,
        }
    }

    /// How many links to its providers calls of this name are to have.
    pub(super) fn places(&self, links_per_name: usize) -> usize {
        links_per_name + usize::from(self.is_busy)
    }

    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.retry_ms.is_some_and(|due_ms| now_ms >= due_ms)
    }

    pub(super) fn listed(&self) -> usize {
        self.candidates.values().filter(|candidate| candidate.is_listed()).count()
    }

    /// Takes in what an agent says.
    pub(super) fn put(
        &mut self,
        caller: &Agent,
        registered: Registered,
        value: Bytes,
        standing: Standing,
        now_ms: u64,
    ) {
        let agent = registered.registration.agent;
        let before = self.candidates.get(&agent);
        let weight = before.map_or_else(|| weight(caller, &agent), |before| before.weight);
        let since_ms = before.map_or(now_ms, |before| before.since_ms);
        let did = before.map_or_else(|| agent.did(), |before| before.did.clone());
        let candidate = Candidate {
            did,
            registration: Arc::new(registered.registration),
            standing,
            since_ms,
            serial: registered.serial,
            member_until_ms: registered.member_until_ms,
            value,
            failures: 0,
            weight,
        };
        self.candidates.insert(agent, candidate);
    }

    /// Its word stands no more. Returns whether it did.
    pub(super) fn suspect(&mut self, agent: &Agent, now_ms: u64) -> bool {
        match self.candidates.get_mut(agent) {
            Some(candidate) if candidate.is_listed() => {
                candidate.standing = Standing::Suspect { since_ms: now_ms };
                candidate.failures = 0;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Candidates in the order in which to dial them: listed before suspect, those that failed twice last, our zone before
    /// others where two are there, those that did not fail before those that did, and then as the dice of caller and provider
    /// fall.
    pub(super) fn ranked(&self, contacts: &Contacts, zone: Option<&str>) -> Vec<&Candidate> {
        let is_near =
            |candidate: &&Candidate| zone.is_some() && candidate.registration.zone.as_deref() == zone;
        let near = self.candidates.values().filter(|candidate| candidate.is_listed()).filter(is_near).count();
        let mut ranked: Vec<_> = self.candidates.values().collect();
        // Each candidate's contact is looked up once, not once for each comparison.
        ranked.sort_by_cached_key(|candidate| {
            let failures = contacts.get(&candidate.registration.agent).failures;
            let is_far = near >= NEAR_MIN && !is_near(candidate);
            let is_gone = failures >= FAILURES_MAX;
            (!candidate.is_listed(), is_gone, is_far, failures > 0, Reverse(candidate.weight))
        });
        ranked
    }
}

/// FLEET L1: each caller has an order of its own, so that few links of each reach all providers alike.
fn weight(caller: &Agent, provider: &Agent) -> u64 {
    leading(Sha256::new().chain_update(caller.as_bytes()).chain_update(provider.as_bytes()))
}

/// The shards of a name in the order in which a caller watches them.
pub(super) fn shards(caller: &Agent, name: &CapabilityName) -> Vec<Shard> {
    let mut shards: Vec<_> = Shard::all().collect();
    shards.sort_by_cached_key(|shard| {
        let hash = Sha256::new().chain_update(caller.as_bytes()).chain_update(name.as_str());
        Reverse(leading(hash.chain_update([shard.number()])))
    });
    shards
}

fn leading(hash: Sha256) -> u64 {
    let hash: [u8; 32] = hash.finalize().into();
    hash.first_chunk().copied().map_or(0, u64::from_be_bytes)
}

/// Contacts that failed after which an agent counts as gone. **Source:** FLEET D2.
pub(super) const FAILURES_MAX: u32 = 2;
/// Candidates of our zone from which on it is preferred. **Source:** FLEET L4.
const NEAR_MIN: usize = 2;
