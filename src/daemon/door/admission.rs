//! Decides whether the holder of a key may open a peer link.

use std::collections::BTreeSet;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use capd_proto::identity::Did;

/// Who may open a peer link.
#[derive(Debug)]
pub(in crate::daemon) struct Admission(RwLock<Listed>);

#[derive(Debug)]
struct Listed {
    /// Whether any key does; for loopback.
    is_open: bool,
    listed: BTreeSet<Did>,
}

impl Admission {
    /// Admits those that are listed; `is_open` lets everybody else in.
    pub(in crate::daemon) const fn new(is_open: bool, listed: BTreeSet<Did>) -> Self {
        Self(RwLock::new(Listed { is_open, listed }))
    }

    /// Admits others from here on.
    pub(in crate::daemon) fn replace(&self, is_open: bool, listed: BTreeSet<Did>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Listed { is_open, listed };
    }

    /// Whether `did` may open a peer link.
    pub(in crate::daemon) fn admits(&self, did: &Did) -> bool {
        let state = self.state();
        state.is_open || state.listed.contains(did)
    }

    /// Those that are listed, where nobody else is let in.
    pub(in crate::daemon) fn named(&self) -> BTreeSet<Did> {
        let state = self.state();
        if state.is_open { BTreeSet::new() } else { state.listed.clone() }
    }

    fn state(&self) -> RwLockReadGuard<'_, Listed> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
