//! A key in; whether its holder may open a peer link out.

use std::collections::BTreeSet;

use capd_proto::identity::Did;

/// Who may open a peer link.
#[derive(Clone, Debug)]
pub(in crate::daemon) enum Admission {
    /// Only these.
    Listed(BTreeSet<Did>),
    /// Any key; for loopback.
    Anyone,
}

impl Admission {
    /// Whether `did` may open a peer link.
    pub(in crate::daemon) fn admits(&self, did: &Did) -> bool {
        match self {
            Self::Listed(listed) => listed.contains(did),
            Self::Anyone => true,
        }
    }

    /// Those that are named.
    pub(in crate::daemon) fn named(&self) -> impl Iterator<Item = &Did> {
        let named = match self {
            Self::Listed(listed) => Some(listed),
            Self::Anyone => None,
        };
        named.into_iter().flatten()
    }
}
