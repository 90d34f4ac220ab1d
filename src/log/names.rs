//! Knows the names of peers for the log: the DIDs and names of `[[peers]]` in, the name of a DID out.
//!
//! The log is one for a process, and so are the names. Lines for programs have DIDs.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

/// By DID.
static NAMES: RwLock<BTreeMap<String, String>> = RwLock::new(BTreeMap::new());

/// Has lines for people call these peers by their names, and all others by their DIDs.
pub fn name_peers(peers: impl Iterator<Item = (String, String)>) {
    let names = peers.collect();
    // Each change leaves it whole.
    *NAMES.write().unwrap_or_else(PoisonError::into_inner) = names;
}

/// The name of the peer with this DID, if its owner gave it one.
pub(super) fn of(did: &str) -> Option<String> {
    // As a text it is quoted.
    let did = did.trim_matches('"');
    NAMES.read().unwrap_or_else(PoisonError::into_inner).get(did).cloned()
}
