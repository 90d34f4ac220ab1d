//! Chooses one of several peers that serve the same.
//!
//! An idempotent call goes to the less loaded of two at random. A non-idempotent call goes to the owner of its id: one
//! commit covers many such calls, and the owner is found again after a crash.

use std::sync::Arc;

use capd_proto::code::Code;
use capd_proto::fleet::Agent;
use capd_proto::identity::Did;
use smallvec::SmallVec;

use super::choose::Missing;
use super::owner::{owner, some_of};
use super::{Caller, RelayedCall};
use crate::daemon::context::Refusal;
use crate::daemon::context::refusal::mismatch;
use crate::net::Link;
use crate::registry::snapshot::{Entry, Origin};
use crate::router::{self, Choice};
use crate::store::Replica;

/// Peers that a call may go to, in the order of their DIDs, each with the link that it would take. Mostly few.
type Eligible = SmallVec<[(Did, Arc<Link>); 2]>;

impl Caller {
    /// One of the peers that serve just what was chosen: of two at random the one with fewer requests in flight.
    ///
    /// **Errors:** none of them has a link.
    pub(super) fn one_of(&self, choice: &Choice<'_>) -> Result<Replica, Missing> {
        let eligible = self.eligible(choice)?;
        if eligible.iter().all(|(_, link)| link.in_flight() > BUSY_CALLS) {
            self.fleet.busy(choice.entry.descriptor.id.name.as_str());
        }
        // Without randomness it is the first two, which is safe.
        let random = if eligible.len() > 1 { self.ctx.random.u32().unwrap_or(0) } else { 0 };
        let load = |at: usize| eligible[at].1.in_flight();
        let taken = router::less_loaded(eligible.len(), random, load);
        let (peer, link) = &eligible[taken];
        Ok(Replica { peer: peer.clone(), journal: link.journal() })
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
        if eligible.iter().any(|(peer, _)| is_whole(peer)) {
            eligible.retain(|(peer, _)| is_whole(peer));
        } else if let Some((peer, _)) = eligible.first() {
            return Err(split(peer));
        }
        let replica =
            |(peer, link): &(Did, Arc<Link>)| Replica { peer: peer.clone(), journal: link.journal() };
        let replicas: Vec<_> = eligible.iter().map(replica).collect();
        // What is promised costs no commit, and is promised to somebody who may be there no more.
        let promised = self.gifts.promised(call).filter(|promised| replicas.contains(promised));
        let among = some_of(self.ctx.did(), replicas);
        let owner = promised.or_else(|| owner(&call.id, &among).cloned());
        let owner = owner.ok_or_else(|| Missing::Provider(unserved()))?;
        Ok((owner, among))
    }

    /// The peers that serve just what was chosen and have a link; those that are suspect only while all are.
    fn eligible(&self, choice: &Choice<'_>) -> Result<Eligible, Missing> {
        let chosen = &choice.entry.descriptor;
        let is_same = |entry: &Entry| Arc::ptr_eq(&entry.descriptor, chosen) || entry.descriptor == *chosen;
        let peers = || {
            choice.alternatives.iter().filter(|entry| is_same(entry)).filter_map(|entry| {
                match &entry.origin {
                    Origin::Peer(peer) => Some(peer),
                    Origin::Local(_) => None,
                }
            })
        };
        let linked = peers().filter_map(|peer| Some((peer.clone(), self.directory.peers.link(peer)?)));
        let mut eligible: Eligible = linked.collect();
        if eligible.iter().any(|(peer, _)| self.directory.peers.is_responsive(peer)) {
            eligible.retain(|(peer, _)| self.directory.peers.is_responsive(peer));
        }
        let agent = |(_, link): &(Did, Arc<Link>)| link.key().copied().map(Agent::from);
        self.fleet.prefer(choice.entry.descriptor.id.name.as_str(), &mut eligible, agent);
        if eligible.is_empty() {
            // The router gave one at least.
            let unknown = || Missing::Provider(unserved());
            return Err(peers().next().map_or_else(unknown, |peer| Missing::Link(peer.clone())));
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
