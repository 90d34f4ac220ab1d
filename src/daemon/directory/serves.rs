//! Decides which of a peer's declared capabilities are used, and reports the others to the owner.
//!
//! A peer's own word must not make it the provider of a name. The owner lists under `serves` of `[[peers]]` the names
//! for which its declarations count. A member of the fleet that is not listed may serve what its membership says.
//! Declarations beyond them reach neither the registry nor a proof, so no call, query
//! or schema request ever sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use capd_proto::capability::{CapabilityName, CapabilityPattern};
use capd_proto::fleet::Membership;
use capd_proto::identity::Did;

use crate::daemon::context::lock;

/// What peers may serve, and what they declare beyond that.
pub(in crate::daemon) struct Serves {
    listed: Mutex<Listed>,
    /// The memberships that linked peers have shown.
    members: Mutex<BTreeMap<Did, Arc<Membership>>>,
    withheld: Mutex<BTreeMap<Did, Withheld>>,
}

#[derive(Clone, Default)]
struct Listed {
    peers: BTreeMap<Did, Vec<CapabilityPattern>>,
    /// What a peer may serve that is neither listed nor a member.
    others: Vec<CapabilityPattern>,
}

#[derive(Default)]
struct Withheld {
    /// Descriptors of its last answer.
    count: usize,
    /// Names that the log has told of; no more than [`TOLD_MAX`].
    told: BTreeSet<CapabilityName>,
}

/// What one answer of a peer's declares beyond what it may serve.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Beyond {
    count: usize,
    /// The first of the names.
    names: BTreeSet<CapabilityName>,
}

impl Beyond {
    /// Counts one more.
    pub(in crate::daemon) fn add(&mut self, name: &CapabilityName) {
        self.count += 1;
        if self.names.len() < TOLD_MAX {
            self.names.insert(name.clone());
        }
    }
}

impl Listed {
    /// What a peer may serve.
    fn of(&self, peer: &Did) -> &[CapabilityPattern] {
        self.peers.get(peer).unwrap_or(&self.others)
    }
}

impl Serves {
    /// Each of `peers` may serve what is said of it, and any other `others`.
    pub(in crate::daemon) fn new(
        peers: BTreeMap<Did, Vec<CapabilityPattern>>,
        others: Vec<CapabilityPattern>,
    ) -> Self {
        let listed = Mutex::new(Listed { peers, others });
        Self { listed, members: Mutex::default(), withheld: Mutex::default() }
    }

    /// Replaces what peers may serve; tells of which peers that is something else than before.
    pub(super) fn replace(
        &self,
        peers: BTreeMap<Did, Vec<CapabilityPattern>>,
        others: Vec<CapabilityPattern>,
    ) -> impl Fn(&Did) -> bool {
        let listed = Listed { peers, others };
        let former = std::mem::replace(&mut *lock(&self.listed), listed.clone());
        move |peer| former.of(peer) != listed.of(peer)
    }

    /// A peer has shown this membership, and has a link.
    pub(in crate::daemon) fn member(&self, peer: Did, membership: Arc<Membership>) {
        lock(&self.members).insert(peer, membership);
    }

    /// The membership that a linked peer has shown, if it counts.
    pub(in crate::daemon) fn membership(&self, peer: &Did) -> Option<Arc<Membership>> {
        lock(&self.members).get(peer).cloned()
    }

    /// Whether a linked peer has shown a membership that counts.
    pub(in crate::daemon) fn is_member(&self, peer: &Did) -> bool {
        lock(&self.members).contains_key(peer)
    }

    /// Whether a peer may serve a name.
    pub(super) fn allows(&self, peer: &Did, name: &CapabilityName) -> bool {
        let listed = lock(&self.listed);
        // The owner's own word about a peer comes before the authority's.
        if let Some(membership) = lock(&self.members).get(peer).filter(|_| !listed.peers.contains_key(peer)) {
            return membership.allows(name.as_str());
        }
        listed.of(peer).iter().any(|pattern| pattern.matches(name.as_str()))
    }

    /// Whether asking a peer for a name makes sense. What it declares beyond its word is worth a log line, so only members
    /// of a fleet, of which there may be many, are left out.
    pub(super) fn may_allow(&self, peer: &Did, name: &CapabilityName) -> bool {
        let is_listed = lock(&self.listed).peers.contains_key(peer);
        is_listed || lock(&self.members).get(peer).is_none_or(|membership| membership.allows(name.as_str()))
    }

    /// Notes what a peer's newest answer declares beyond what it may serve; each name is logged once.
    pub(in crate::daemon) fn note(&self, peer: &Did, beyond: Beyond) {
        let mut withheld = lock(&self.withheld);
        if beyond.count == 0 && !withheld.contains_key(peer) {
            return;
        }
        let of_peer = withheld.entry(peer.clone()).or_default();
        of_peer.count = beyond.count;
        for name in beyond.names {
            if of_peer.told.len() >= TOLD_MAX || of_peer.told.contains(&name) {
                continue;
            }
            tracing::warn!(%peer, capability = %name, "a peer's capability is not used: neither its serves in [[peers]] nor its membership allows it");
            of_peer.told.insert(name);
            if of_peer.told.len() == TOLD_MAX {
                tracing::warn!(%peer, "further capabilities that this peer may not serve are not logged");
            }
        }
    }

    /// Forgets what a peer declared that has no link any more. What the log has told of a listed peer stays told.
    pub(super) fn gone(&self, peer: &Did) {
        lock(&self.members).remove(peer);
        let mut withheld = lock(&self.withheld);
        if !lock(&self.listed).peers.contains_key(peer) {
            withheld.remove(peer);
        } else if let Some(of_peer) = withheld.get_mut(peer) {
            of_peer.count = 0;
        }
    }

    /// How many capabilities connected peers declare beyond what they may serve.
    pub(in crate::daemon) fn count(&self) -> usize {
        lock(&self.withheld).values().map(|of_peer| of_peer.count).sum()
    }

    /// A connected peer, or the one named, that declares this name and may not serve it.
    pub(in crate::daemon) fn withheld(&self, name: &str, only: Option<&Did>) -> Option<Did> {
        let withheld = lock(&self.withheld);
        let mut asked = withheld.iter().filter(|(did, _)| only.is_none_or(|only| only == *did));
        let is_it =
            |of_peer: &Withheld| of_peer.count > 0 && of_peer.told.iter().any(|told| told.as_str() == name);
        asked.find(|(_, of_peer)| is_it(of_peer)).map(|(did, _)| did.clone())
    }
}

/// Names of one peer that the log tells of.
const TOLD_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use capd_proto::identity::Identity;

    use super::*;

    fn did(seed: u8) -> Did {
        Identity::from_seed([seed; 32]).did().clone()
    }

    fn name(text: &str) -> CapabilityName {
        text.parse().unwrap()
    }

    #[test]
    fn a_listed_peer_serves_what_its_table_says_and_others_what_is_said_of_all() {
        let listed = BTreeMap::from([(did(1), vec!["org.pay.*".parse().unwrap()]), (did(2), Vec::new())]);
        let serves = Serves::new(listed, vec!["org.dev.*".parse().unwrap()]);
        let may = |seed, text| serves.allows(&did(seed), &name(text));
        assert!(may(1, "org.pay.charge") && !may(1, "org.payments.charge") && !may(1, "org.dev.one"));
        assert!(!may(2, "org.pay.charge") && !may(2, "org.dev.one"));
        assert!(may(3, "org.dev.one") && !may(3, "org.pay.charge"));
    }

    #[test]
    fn what_is_withheld_is_counted_for_as_long_as_the_peer_is_there() {
        let serves = Serves::new(BTreeMap::from([(did(1), Vec::new())]), Vec::new());
        for peer in [did(1), did(2)] {
            let mut beyond = Beyond::default();
            (0..100).for_each(|number| beyond.add(&name(&format!("org.pay.a{number}"))));
            serves.note(&peer, beyond);
        }
        assert_eq!((serves.count(), serves.withheld("org.pay.a1", None)), (200, Some(did(2).min(did(1)))));
        assert_eq!(serves.withheld("org.pay.a1", Some(&did(2))), Some(did(2)));
        let told = |did: &Did| lock(&serves.withheld).get(did).map(|of_peer| of_peer.told.len());
        assert_eq!(told(&did(1)), Some(TOLD_MAX));
        serves.gone(&did(1));
        serves.gone(&did(2));
        assert_eq!((serves.count(), serves.withheld("org.pay.a1", None)), (0, None));
        assert_eq!((told(&did(1)), told(&did(2))), (Some(TOLD_MAX), None));
    }
}
