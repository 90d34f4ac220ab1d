//! Decides whether the holder of a key may open a peer link.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock};

use capd_proto::identity::Did;

/// Who may open a peer link.
#[derive(Debug)]
pub(in crate::daemon) struct Admission {
    /// Whether any key does; for loopback.
    is_open: bool,
    listed: RwLock<BTreeSet<Did>>,
}

impl Admission {
    /// Nobody is listed yet; `is_open` lets everybody else in.
    pub(in crate::daemon) const fn new(is_open: bool) -> Self {
        Self { is_open, listed: RwLock::new(BTreeSet::new()) }
    }

    /// Lets a peer in from here on.
    pub(in crate::daemon) fn list(&self, did: Did) {
        self.listed.write().unwrap_or_else(PoisonError::into_inner).insert(did);
    }

    /// Whether `did` may open a peer link.
    pub(in crate::daemon) fn admits(&self, did: &Did) -> bool {
        self.is_open || self.listed.read().unwrap_or_else(PoisonError::into_inner).contains(did)
    }

    /// Those that are listed, where nobody else is let in.
    pub(in crate::daemon) fn named(&self) -> BTreeSet<Did> {
        let listed = || self.listed.read().unwrap_or_else(PoisonError::into_inner).clone();
        if self.is_open { BTreeSet::new() } else { listed() }
    }
}
