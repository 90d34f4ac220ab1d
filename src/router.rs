//! A name, what is wanted of it, and a registry snapshot in; who serves the call, or why nobody does, out: pure.

use capd_proto::capability::Version;
use capd_proto::identity::Did;
use capd_proto::negotiate::{self, NoMatch, Served, Want};

use crate::registry::snapshot::{Entry, Origin, Snapshot};

/// Where a call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// To a provider of this sidecar.
    Local,
    /// To one peer.
    Peer(&'a Did),
    /// To a provider of this sidecar if one serves, else to a peer.
    Anywhere,
}

/// Who serves a call.
#[derive(Clone, Debug)]
pub struct Choice<'a> {
    /// The chosen descriptor and its origin.
    pub entry: &'a Entry,
    /// Whether what was chosen is deprecated. **Source:** PROTOCOL 7.5.
    pub is_deprecated: bool,
    /// Every entry with the same id in scope, the chosen one among them, in the snapshot's order.
    pub alternatives: Vec<&'a Entry>,
}

/// Why nobody serves a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The name is not known in scope. **Errors:** 4002.
    NameUnknown,
    /// No version fits; what is served, newest first. **Errors:** 4003.
    VersionMismatch(Vec<Version>),
}

/// Chooses who serves `name`.
///
/// Deterministic: the version is chosen as PROTOCOL 7.5 says, among local providers first; of several origins that
/// serve the same choice the first in the snapshot's order is named.
///
/// **Errors:** [`Refusal`].
pub fn route<'a>(
    snapshot: &'a Snapshot,
    name: &str,
    want: &Want,
    scope: Scope<'_>,
) -> Result<Choice<'a>, Refusal> {
    let entries = snapshot.entries(name);
    match scope {
        Scope::Local => choose(entries, want, |origin| matches!(origin, Origin::Local(_))),
        Scope::Peer(did) => choose(entries, want, |origin| *origin == Origin::Peer(did.clone())),
        Scope::Anywhere => match route(snapshot, name, want, Scope::Local) {
            Ok(choice) => Ok(choice),
            Err(_) => choose(entries, want, |_| true),
        },
    }
}

fn choose<'a>(
    entries: &'a [Entry],
    want: &Want,
    in_scope: impl Fn(&Origin) -> bool,
) -> Result<Choice<'a>, Refusal> {
    let candidates: Vec<&Entry> = entries.iter().filter(|entry| in_scope(&entry.origin)).collect();
    if candidates.is_empty() {
        return Err(Refusal::NameUnknown);
    }
    let served: Vec<&Served> = candidates.iter().map(|entry| &entry.descriptor.served).collect();
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
