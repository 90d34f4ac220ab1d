//! Chooses one of several peers that serve the same.
//!
//! An idempotent call goes to the less loaded of two at random, and to the faster of two that are as loaded; one with an
//! affinity goes to the peer that its affinity belongs to. A non-idempotent call goes to the owner of its id: one commit
//! covers many such calls, and the owner is found again after a crash.

use std::sync::Arc;

use capd_proto::code::Code;
use capd_proto::fleet::Agent;
use capd_proto::identity::Did;
use smallvec::SmallVec;

use super::choose::Missing;
use super::owner::{home, owner, some_of};
use super::{Caller, RelayedCall};
use crate::daemon::context::Refusal;
use crate::daemon::context::refusal::mismatch;
use crate::net::Link;
use crate::registry::latency::Latency;
use crate::registry::snapshot::{Entry, Origin};
use crate::router::{self, Choice};
use crate::store::Replica;

/// A peer that a call may go to.
struct Eligible<'a> {
    peer: Did,
    /// The link that the call would take.
    link: Arc<Link>,
    /// How fast the peer has answered calls like it.
    latency: &'a Arc<Latency>,
}

/// In the order of their DIDs. Mostly few.
type AllEligible<'a> = SmallVec<[Eligible<'a>; 2]>;

impl Eligible<'_> {
    fn replica(&self) -> Replica {
        Replica { peer: self.peer.clone(), journal: self.link.journal() }
    }
}

impl Caller {
    /// One of the peers that serve just what was chosen, and how fast it has been: the home of the call's affinity; else of
    /// two at random the one with fewer requests in flight, or the faster one. **Source:** FLEET L2.
    ///
    /// **Errors:** none of them has a link.
    pub(super) fn one_of(
        &self,
        call: &RelayedCall,
        choice: &Choice<'_>,
    ) -> Result<(Replica, Arc<Latency>), Missing> {
        let eligible = self.eligible(choice)?;
        if eligible.iter().all(|one| one.link.in_flight() > BUSY_CALLS) {
            self.fleet.busy(choice.entry.descriptor.id.name.as_str());
        }
        let taken = match &call.destination.affinity {
            _ if eligible.len() < 2 => 0,
            Some(affinity) => home(affinity, eligible.iter().map(|one| &one.peer)).unwrap_or(0),
            None => {
                // Without randomness it is the first two, which is safe.
                let random = self.ctx.random.u32().unwrap_or(0);
                let load = |at: usize| eligible[at].link.in_flight();
                let is_chosen_over = |this: usize, first: usize| {
                    eligible[this].latency.is_chosen_over(eligible[first].latency)
                };
                router::less_loaded(eligible.len(), random, load, is_chosen_over)
            }
        };
        Ok((eligible[taken].replica(), Arc::clone(eligible[taken].latency)))
    }

    /// The peer that owns the call's id, and those that calls like it are shared among.
    ///
    /// **Errors:** none of them has a link.
    pub(super) fn owner_among(
        &self,
        call: &RelayedCall,
        choice: &Choice<'_>,
    ) -> Result<(Replica, Vec<Replica>), Missing> {
        let mut eligible = self.eligible(choice)?;
        // FLEET X12: of two processes with one identity, neither may be the one that remembers.
        // X9: what its providers remember together, both processes know.
        let is_whole = |peer: &Did| choice.entry.descriptor.by_id || !self.fleet.is_split(peer);
        if eligible.iter().any(|one| is_whole(&one.peer)) {
            eligible.retain(|one| is_whole(&one.peer));
        } else if let Some(one) = eligible.first() {
            return Err(split(&one.peer));
        }
        let replicas: Vec<_> = eligible.iter().map(Eligible::replica).collect();
        // What is promised costs no commit, and is promised to somebody who may be there no more.
        let promised = self.gifts.promised(call).filter(|promised| replicas.contains(promised));
        let among = some_of(self.ctx.did(), replicas);
        let owner = promised.or_else(|| owner(&call.id, &among).cloned());
        let owner = owner.ok_or_else(|| Missing::Provider(unserved()))?;
        Ok((owner, among))
    }

    /// The peers that serve just what was chosen and have a link; those that are suspect only while all are.
    fn eligible<'a>(&self, choice: &Choice<'a>) -> Result<AllEligible<'a>, Missing> {
        let chosen = &choice.entry.descriptor;
        let is_same = |entry: &Entry| Arc::ptr_eq(&entry.descriptor, chosen) || entry.descriptor == *chosen;
        let peers = || {
            choice.alternatives.iter().filter(|entry| is_same(entry)).filter_map(|entry| {
                match &entry.origin {
                    Origin::Peer(peer) => Some((peer, &entry.latency)),
                    Origin::Local(_) => None,
                }
            })
        };
        let linked = peers().filter_map(|(peer, latency)| {
            let link = self.directory.peers.link(peer)?;
            Some(Eligible { peer: peer.clone(), link, latency })
        });
        let mut eligible: AllEligible<'_> = linked.collect();
        if eligible.iter().any(|one| self.directory.peers.is_responsive(&one.peer)) {
            eligible.retain(|one| self.directory.peers.is_responsive(&one.peer));
        }
        let agent = |one: &Eligible<'_>| one.link.key().copied().map(Agent::from);
        self.fleet.prefer(choice.entry.descriptor.id.name.as_str(), &mut eligible, agent);
        if eligible.is_empty() {
            // The router gave one at least.
            let unknown = || Missing::Provider(unserved());
            return Err(peers().next().map_or_else(unknown, |(peer, _)| Missing::Link(peer.clone())));
        }
        Ok(eligible)
    }
}

/// Calls in flight with each linked provider of a name from which on one more is linked. **Source:** FLEET L1.
const BUSY_CALLS: usize = 16;

/// FLEET X12: nobody can tell which of two processes would remember the call.
pub(super) fn split(peer: &Did) -> Missing {
    let why =
        format!("two processes of {peer} live at once, and the call may run only once; stop one of them");
    Missing::Provider(Refusal::new(Code::UNAVAILABLE, why))
}

fn unserved() -> Refusal {
    mismatch(router::Refusal::NameUnknown)
}
