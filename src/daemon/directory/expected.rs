//! Remembers which peers are expected, and why: a call waits for an expected peer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use capd_proto::identity::Did;

use crate::daemon::context::lock;

/// Why a peer is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::daemon) enum Reason {
    /// The owner has us dial it.
    Configured,
    /// Calls want what it says that it serves, and it is dialled or linked.
    Wanted,
}

/// Peers that are expected, each for one reason at least.
#[derive(Default)]
pub(super) struct Expected(Mutex<BTreeMap<Did, BTreeSet<Reason>>>);

impl Expected {
    /// Expects these peers, and no other, for one reason.
    pub(super) fn replace(&self, dids: BTreeSet<Did>, reason: Reason) {
        let mut expected = lock(&self.0);
        for reasons in expected.values_mut() {
            reasons.remove(&reason);
        }
        for did in dids {
            expected.entry(did).or_default().insert(reason);
        }
        expected.retain(|_, reasons| !reasons.is_empty());
    }

    /// Expects a peer for one more reason.
    pub(super) fn insert(&self, did: Did, reason: Reason) {
        lock(&self.0).entry(did).or_default().insert(reason);
    }

    /// Expects a peer for one reason less.
    pub(super) fn remove(&self, did: &Did, reason: Reason) {
        let mut expected = lock(&self.0);
        if let Some(reasons) = expected.get_mut(did) {
            reasons.remove(&reason);
            if reasons.is_empty() {
                expected.remove(did);
            }
        }
    }

    /// Whether a peer is expected for this reason.
    pub(super) fn has(&self, did: &Did, reason: Reason) -> bool {
        lock(&self.0).get(did).is_some_and(|reasons| reasons.contains(&reason))
    }

    pub(super) fn contains(&self, did: &Did) -> bool {
        lock(&self.0).contains_key(did)
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// All that are expected and fit, in the order of their DIDs.
    pub(super) fn those(&self, mut fits: impl FnMut(&Did) -> bool) -> Vec<Did> {
        lock(&self.0).keys().filter(|did| fits(did)).cloned().collect()
    }
}
