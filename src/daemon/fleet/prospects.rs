//! Says whom a call may wait for, and which linked peers it prefers, by what the registry's side knows of a name.

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::machine::{Candidate, Extent};
use capd_proto::fleet::{Agent, Served};
use capd_proto::identity::Did;
use capd_proto::negotiate::{self, Want};
use smallvec::SmallVec;

use super::Fleet;

/// What a call misses.
#[derive(Clone, Copy)]
pub(in crate::daemon) struct Missed<'a> {
    /// The name.
    pub(in crate::daemon) name: &'a str,
    /// The versions.
    pub(in crate::daemon) want: &'a Want,
    /// The one peer that is wanted.
    pub(in crate::daemon) to: Option<&'a Did>,
}

impl Fleet {
    /// A call wants this name, whoever serves it: its providers stay linked. Cheap.
    pub(in crate::daemon) fn want(&self, name: &str) {
        if let (Some(registry), Ok(name)) = (self.registry(), name.parse()) {
            let _known = registry.want(&name);
        }
    }

    /// All linked providers of a name have much to do.
    pub(in crate::daemon) fn busy(&self, name: &str) {
        if let (Some(registry), Ok(name)) = (self.registry(), name.parse()) {
            registry.busy(&name);
        }
    }

    /// Nobody linked serves what a call wants: whoever may serve it is dialled.
    pub(in crate::daemon) fn miss(&self, missed: Missed<'_>) {
        let Some(registry) = self.registry() else { return };
        let Ok(name) = missed.name.parse::<CapabilityName>() else { return };
        registry.missed(&name);
        let Some(candidates) = registry.candidates(&name) else { return };
        // FLEET L1: what is registered decides whom to connect, beyond the usual few where none of those will do.
        let mut first = None;
        for candidate in candidates.iter() {
            let Some(peer) = self.hope(candidate, &missed) else { continue };
            if self.directory.peers.is_reachable(peer) {
                return;
            }
            first.get_or_insert(candidate.registration.agent);
        }
        if let Some(first) = first {
            registry.reach(&name, first);
        }
    }

    /// A call that this peer has, or is to have, waits for a link to it: it is dialled, though calls of the name have enough
    /// others. **Source:** FLEET X2.
    pub(in crate::daemon) fn reach(&self, name: &str, peer: &Did) {
        if let (Some(registry), Ok(name), Ok(agent)) =
            (self.registry(), name.parse(), Agent::from_did(peer.as_str()))
        {
            registry.reach(&name, agent);
        }
    }

    /// Whether somebody may yet turn out to serve what a call wants: the registry has not answered yet, or has named
    /// somebody who has not been asked.
    pub(in crate::daemon) fn may_come(&self, missed: Missed<'_>) -> bool {
        let Some(registry) = self.registry() else { return false };
        let Ok(name) = missed.name.parse() else { return false };
        // The driver may not have looked yet.
        let Some(candidates) = registry.candidates(&name) else { return true };
        registry.listing(&name) == Some(Extent::Listing)
            || candidates.iter().any(|candidate| self.hope(candidate, &missed).is_some())
    }

    /// The peer of a candidate that may serve what is missed, and has not said so over a link.
    ///
    /// Each call that waits asks this of each candidate whenever something changes.
    fn hope<'a>(&self, candidate: &'a Candidate, missed: &Missed<'_>) -> Option<&'a Did> {
        // One that drains still answers for calls that it has.
        let is_asked = candidate.takes_calls() || missed.to.is_some();
        if !is_asked || candidate.has_failed() || !fits(&candidate.registration.versions, missed.want) {
            return None;
        }
        let peer = &candidate.did;
        let is_hope = missed.to.is_none_or(|to| to == peer)
            && !self.directory.peers.is_known(peer)
            && self.directory.unlinked.lasting(peer).is_none();
        is_hope.then_some(peer)
    }

    /// Why nobody of the fleet serves a name, if that is for a reason of the fleet's.
    pub(in crate::daemon) fn cause(&self, missed: Missed<'_>) -> Option<String> {
        let registry = self.registry()?;
        let name = missed.name;
        let parsed = name.parse().ok()?;
        let status = registry.status();
        let candidates = registry.candidates(&parsed).unwrap_or_default();
        let unlinked = candidates.iter().find_map(|candidate| {
            let peer = &candidate.did;
            let is_wanted = candidate.takes_calls()
                && missed.to.is_none_or(|to| to == peer)
                && fits(&candidate.registration.versions, missed.want)
                && self.directory.peers.links(peer) == 0;
            let cause = self.directory.unlinked.cause(peer).filter(|_| is_wanted)?;
            Some(format!("no link to {peer}, which has registered {name}: {}", cause.text))
        });
        if unlinked.is_some() {
            return unlinked;
        }
        if registry.listing(&parsed) == Some(Extent::Unanswered) {
            let why = status.engine.error.clone().unwrap_or_else(|| "no answer".to_owned());
            return Some(format!(
                "the fleet's registry cannot be read ({why}), and nobody is known to serve {name}"
            ));
        }
        None
    }

    /// FLEET L4: of the linked peers that serve a name, those that new calls go to. Never none of some.
    ///
    /// Each call asks this, so `agent` must not read a DID: to decompress a key takes longer than everything else here.
    pub(in crate::daemon) fn prefer<T>(
        &self,
        name: &str,
        peers: &mut SmallVec<[T; 2]>,
        agent: impl Fn(&T) -> Option<Agent>,
    ) {
        let (Some(registry), true) = (self.registry(), peers.len() > 1) else { return };
        let Some(known) = name.parse().ok().and_then(|name| registry.candidates(&name)) else { return };
        let of = |one: &T| {
            let agent = agent(one)?;
            known.iter().find(|candidate| candidate.registration.agent == agent)
        };
        let zone = self.config().and_then(|config| config.zone.as_deref());
        keep(peers, 1, |one| of(one).is_none_or(Candidate::takes_calls));
        keep(peers, 1, |one| of(one).is_none_or(Candidate::is_listed));
        if zone.is_some() {
            let is_near = |candidate: &Candidate| candidate.registration.zone.as_deref() == zone;
            keep(peers, NEAR_MIN, |one| of(one).is_some_and(is_near));
        }
    }

    /// Whether no journaled call may go to a peer, because two processes of it were seen of late.
    pub(in crate::daemon) fn is_split(&self, peer: &Did) -> bool {
        // Mostly there are none, and each call asks: no key is decompressed for that.
        let Some(registry) = self.registry().filter(|registry| registry.has_splits()) else { return false };
        Agent::from_did(peer.as_str()).is_ok_and(|agent| registry.is_split(&agent))
    }
}

/// Keeps those that fit, if they are enough.
fn keep<T>(all: &mut SmallVec<[T; 2]>, least: usize, fits: impl Fn(&T) -> bool) {
    if all.iter().filter(|one| fits(one)).count() >= least {
        all.retain(|one| fits(one));
    }
}

/// Whether one of these versions is wanted, as far as a registration tells.
fn fits(versions: &[Served], want: &Want) -> bool {
    let served: Vec<_> =
        versions.iter().map(|served| negotiate::Served::only(served.version.clone())).collect();
    negotiate::choose(want, &served).is_ok()
}

/// Providers of our zone from which on it is preferred. **Source:** FLEET L4.
const NEAR_MIN: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_that_fit_are_kept_and_too_few_are_no_choice() {
        let kept = |least, fits: fn(&u8) -> bool| {
            let mut all = SmallVec::from_iter([1, 2, 3, 4]);
            keep(&mut all, least, fits);
            all.to_vec()
        };
        assert_eq!(kept(1, |one| *one > 3), [4]);
        assert_eq!(kept(2, |one| *one > 3), [1, 2, 3, 4]);
        assert_eq!(kept(1, |one| *one > 4), [1, 2, 3, 4]);
    }

    #[test]
    fn versions_of_a_registration_are_held_against_what_a_call_wants() {
        let served = |text: &str| Served { version: text.parse().unwrap(), hash: [0; 32], flags: 0 };
        let versions = [served("1.2.0"), served("2.0.0")];
        assert!(fits(&versions, &Want::Exact("2.0.0".parse().unwrap())));
        assert!(fits(&versions, &Want::Newest));
        assert!(!fits(&versions, &Want::Exact("3.0.0".parse().unwrap())));
    }
}
