//! Routes a call: a name, its requirements and a registry snapshot in; who serves it, or why nobody does, out. Pure.

use std::cmp::Ordering;

use capd_proto::capability::Version;
use capd_proto::identity::Did;
use capd_proto::negotiate::{self, NoMatch, Served, Want};
use smallvec::SmallVec;

use crate::registry::snapshot::{Entry, Origin, Snapshot};

/// The providers that a call may go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// To a provider of this sidecar.
    Local,
    /// To one peer.
    Peer(&'a Did),
    /// To any peer but these.
    PeersBut(&'a [&'a Did]),
    /// To a provider of this sidecar if one serves, else to a peer.
    Anywhere,
}

/// The provider of a call.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    /// The chosen descriptor and its origin.
    pub entry: &'a Entry,
    /// Whether the chosen version is deprecated. **Source:** PROTOCOL 7.5.
    pub is_deprecated: bool,
    /// Every entry with the same id in scope, the chosen one among them, in the snapshot's order.
    pub alternatives: SmallVec<[&'a Entry; FEW]>,
}

/// Why no provider serves a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The name is not known in scope. **Errors:** 4002.
    NameUnknown,
    /// The caller may call no capability of this name. **Errors:** 3001.
    Denied,
    /// No version fits; the served versions, newest first. **Errors:** 4003.
    VersionMismatch(Vec<Version>),
}

/// Chooses the provider of `name` among those that `may_call` permits; for the caller, no others exist.
///
/// Deterministic: the version is chosen as PROTOCOL 7.5 says, among local providers first; of several origins with the
/// same choice, the first in the snapshot's order is returned.
///
/// **Errors:** [`Refusal`].
pub fn route<'a>(
    snapshot: &'a Snapshot,
    name: &str,
    want: &Want,
    scope: Scope<'_>,
    may_call: impl Fn(&Entry) -> bool,
) -> Result<Choice<'a>, Refusal> {
    let entries = snapshot.entries(name);
    let is_local = |origin: &Origin| matches!(origin, Origin::Local(_));
    match scope {
        Scope::Local => choose(entries, want, is_local, &may_call),
        Scope::Peer(did) => choose(entries, want, |origin| *origin == Origin::Peer(did.clone()), &may_call),
        Scope::PeersBut(these) => {
            let in_scope = |origin: &Origin| match origin {
                Origin::Peer(peer) => !these.contains(&peer),
                Origin::Local(_) => false,
            };
            choose(entries, want, in_scope, &may_call)
        }
        Scope::Anywhere => match choose(entries, want, is_local, &may_call) {
            Ok(choice) => Ok(choice),
            Err(_) => choose(entries, want, |_| true, &may_call),
        },
    }
}

/// Chooses one of `count` equal providers: of two at random, picked by `random`, the one with less `load`. If both have the
/// same, it is the one picked first, unless `is_chosen_over` says that the second is to be taken over it.
///
/// This spreads calls nearly as evenly as comparing all of them, and simultaneous callers do not all choose the same.
/// `count` is at least one.
pub fn less_loaded(
    count: usize,
    random: u32,
    load: impl Fn(usize) -> usize,
    is_chosen_over: impl FnOnce(usize, usize) -> bool,
) -> usize {
    if count < 2 {
        return 0;
    }
    let random = random as usize;
    let one = random % count;
    let other = (one + 1 + random / count % (count - 1)) % count;
    match load(other).cmp(&load(one)) {
        Ordering::Less => other,
        Ordering::Equal if is_chosen_over(other, one) => other,
        Ordering::Equal | Ordering::Greater => one,
    }
}

fn choose<'a>(
    entries: &'a [Entry],
    want: &Want,
    in_scope: impl Fn(&Origin) -> bool,
    may_call: &impl Fn(&Entry) -> bool,
) -> Result<Choice<'a>, Refusal> {
    let mut candidates: SmallVec<[&Entry; FEW]> =
        entries.iter().filter(|entry| in_scope(&entry.origin)).collect();
    if candidates.is_empty() {
        return Err(Refusal::NameUnknown);
    }
    candidates.retain(|entry| may_call(entry));
    if candidates.is_empty() {
        return Err(Refusal::Denied);
    }
    let served: SmallVec<[&Served; FEW]> = candidates.iter().map(|entry| &entry.descriptor.served).collect();
    match negotiate::choose(want, &served) {
        Ok(chosen) => {
            let entry = candidates[chosen.index];
            let alternatives =
                candidates.into_iter().filter(|other| other.descriptor.id == entry.descriptor.id).collect();
            Ok(Choice { entry, is_deprecated: chosen.deprecated, alternatives })
        }
        Err(NoMatch { available }) => Err(Refusal::VersionMismatch(available)),
    }
}

/// Who serves one name, mostly: for so many no memory is allocated.
const FEW: usize = 4;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capd_proto::capability::Range;
    use capd_proto::identity::Identity;
    use capd_proto::message::DescriptorDraft;

    use super::*;
    use crate::registry::snapshot::{Event, ProviderId};

    const NAME: &str = "org.example.echo";

    fn peer(seed: u8) -> Did {
        Identity::from_seed([seed; 32]).did().clone()
    }

    fn snapshot(served: &[(Origin, &[&str])]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (origin, versions) in served {
            let descriptor = |version: &&str| {
                let id = format!("{NAME}:{version}").parse().unwrap();
                Arc::new(DescriptorDraft::new(id).finish().unwrap())
            };
            let descriptors = versions.iter().map(descriptor).collect();
            snapshot = snapshot.apply(Event::Declared { origin: origin.clone(), descriptors }).unwrap();
        }
        snapshot
    }

    fn range(text: &str) -> Want {
        Want::from(text.parse::<Range>().unwrap())
    }

    fn chosen<'a>(snapshot: &'a Snapshot, want: &Want, scope: Scope<'_>) -> (&'a Origin, String) {
        let choice = route(snapshot, NAME, want, scope, |_| true).unwrap();
        (&choice.entry.origin, choice.entry.descriptor.id.version.to_string())
    }

    #[test]
    fn a_local_provider_wins_over_a_peer_with_a_higher_version() {
        let (local, remote) = (Origin::Local(ProviderId(1)), Origin::Peer(peer(1)));
        let snapshot = snapshot(&[(remote.clone(), &["1.5.0"]), (local.clone(), &["1.0.0"])]);
        assert_eq!(chosen(&snapshot, &range(">=1.0.0"), Scope::Anywhere), (&local, "1.0.0".to_owned()));
        assert_eq!(chosen(&snapshot, &range(">=1.2.0"), Scope::Anywhere), (&remote, "1.5.0".to_owned()));
        assert_eq!(
            chosen(&snapshot, &range(">=1.0.0"), Scope::Peer(&peer(1))),
            (&remote, "1.5.0".to_owned())
        );
    }

    #[test]
    fn a_call_for_peers_goes_past_a_local_provider() {
        let (local, remote) = (Origin::Local(ProviderId(1)), Origin::Peer(peer(1)));
        let snapshot = snapshot(&[(remote.clone(), &["1.5.0"]), (local, &["1.0.0", "2.0.0"])]);
        assert_eq!(chosen(&snapshot, &range(">=1.0.0"), Scope::PeersBut(&[])), (&remote, "1.5.0".to_owned()));
        let refusal = |scope| route(&snapshot, NAME, &range(">=2.0.0"), scope, |_| true).unwrap_err();
        assert_eq!(refusal(Scope::PeersBut(&[])), Refusal::VersionMismatch(vec!["1.5.0".parse().unwrap()]));
        assert_eq!(refusal(Scope::PeersBut(&[&peer(1)])), Refusal::NameUnknown);
    }

    #[test]
    fn an_unknown_name_and_an_unserved_version_are_told_apart() {
        let snapshot = snapshot(&[(Origin::Peer(peer(1)), &["1.0.0", "2.0.0"])]);
        let stranger = peer(2);
        let refusal = |name, scope| route(&snapshot, name, &range(">=3.0.0"), scope, |_| true).unwrap_err();
        assert_eq!(refusal("org.example.other", Scope::Anywhere), Refusal::NameUnknown);
        assert_eq!(refusal(NAME, Scope::Local), Refusal::NameUnknown);
        assert_eq!(refusal(NAME, Scope::Peer(&stranger)), Refusal::NameUnknown);
        let available = ["2.0.0", "1.0.0"].map(|version| version.parse().unwrap()).to_vec();
        assert_eq!(refusal(NAME, Scope::Anywhere), Refusal::VersionMismatch(available));
    }

    #[test]
    fn what_a_caller_may_not_call_is_not_there_for_it() {
        let snapshot = snapshot(&[(Origin::Local(ProviderId(1)), &["1.0.0", "2.0.0"])]);
        let is_old = |entry: &Entry| entry.descriptor.id.version.major() == 1;
        let want = range(">=1.0.0");
        let choice = route(&snapshot, NAME, &want, Scope::Local, is_old).unwrap();
        assert_eq!(choice.entry.descriptor.id.version.to_string(), "1.0.0");
        let newer = route(&snapshot, NAME, &range(">=2.0.0"), Scope::Local, is_old).unwrap_err();
        assert_eq!(newer, Refusal::VersionMismatch(vec!["1.0.0".parse().unwrap()]));
        assert_eq!(route(&snapshot, NAME, &want, Scope::Anywhere, |_| false).unwrap_err(), Refusal::Denied);
    }

    #[test]
    fn every_provider_of_the_chosen_id_is_an_alternative() {
        let origins = [1, 2].map(|number| Origin::Local(ProviderId(number)));
        let snapshot =
            snapshot(&[(origins[0].clone(), &["1.0.0"]), (origins[1].clone(), &["1.0.0", "0.9.0"])]);
        let want = range(">=0.1.0");
        let choice = route(&snapshot, NAME, &want, Scope::Local, |_| true).unwrap();
        let found: Vec<_> = choice.alternatives.iter().map(|entry| entry.origin.clone()).collect();
        assert_eq!(found, origins);
    }

    #[test]
    fn of_two_at_random_the_less_loaded_is_taken() {
        let never = |_, _| false;
        assert_eq!(less_loaded(1, 7, |_| unreachable!("there is no choice"), never), 0);
        for count in 2..6 {
            let mut taken = vec![0; count];
            for random in 0..600 {
                taken[less_loaded(count, random, |_| 0, never)] += 1;
            }
            assert!(taken.iter().all(|times| *times >= 600 / count - 1), "{taken:?}");
            // The busiest is never taken, each of the others is.
            let mut taken = vec![0; count];
            for random in 0..600 {
                taken[less_loaded(count, random, |at| usize::from(at == 0), never)] += 1;
            }
            assert_eq!(taken[0], 0);
            assert!(taken[1..].iter().all(|times| *times > 0), "{taken:?}");
        }
    }

    #[test]
    fn of_two_that_are_as_loaded_the_faster_is_taken() {
        for count in 2..6 {
            let mut taken = vec![0; count];
            for random in 0..600 {
                let is_faster = |this: usize, that: usize| {
                    assert_ne!(this, that);
                    this < that
                };
                taken[less_loaded(count, random, |_| 1, is_faster)] += 1;
                // A lighter load counts for more.
                let by_load = less_loaded(count, random, |at| count - at, is_faster);
                let by_both = less_loaded(count, random, |at| count - at, |_, _| unreachable!("no tie"));
                assert_eq!(by_load, by_both);
            }
            assert!(taken.is_sorted_by(|one, next| one > next), "{taken:?}");
            assert_eq!(taken[count - 1], 0, "{taken:?}");
        }
    }

    #[test]
    fn a_declaration_replaces_the_last_one_and_the_same_again_changes_nothing() {
        let origin = Origin::Local(ProviderId(1));
        let first = snapshot(&[(origin.clone(), &["1.0.0"])]);
        let entry = Arc::clone(&first.entries(NAME)[0].descriptor);
        let same = Event::Declared { origin: origin.clone(), descriptors: vec![entry] };
        assert!(first.apply(same).is_none());
        // What is known of its speed holds beside a change of something else.
        let draft = |id: &str| Arc::new(DescriptorDraft::new(id.parse().unwrap()).finish().unwrap());
        let descriptors = vec![draft(&format!("{NAME}:1.0.0")), draft(&format!("{NAME}:2.0.0"))];
        let more = first.apply(Event::Declared { origin: origin.clone(), descriptors }).unwrap();
        let latency = |snapshot: &Snapshot, at: usize| Arc::as_ptr(&snapshot.entries(NAME)[at].latency);
        assert_eq!(latency(&more, 0), latency(&first, 0));
        assert_ne!(latency(&more, 1), latency(&first, 0));
        let gone = first.apply(Event::Gone(origin.clone())).unwrap();
        assert!(gone.entries(NAME).is_empty() && gone.number() > first.number());
        assert!(gone.apply(Event::Gone(origin)).is_none());
    }
}
