//! Applies another list of peers while the sidecar runs: who is expected, what each may serve, and which links end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capd_proto::capability::CapabilityPattern;
use capd_proto::identity::Did;

use super::Directory;
use super::expected::Reason;
use crate::registry::snapshot::{Event, Origin};

/// The peers of a configuration.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Listed {
    /// Those that are dialled.
    pub(in crate::daemon) dialled: BTreeSet<Did>,
    /// What each may serve.
    pub(in crate::daemon) serves: BTreeMap<Did, Vec<CapabilityPattern>>,
    /// What peers may serve that are not listed.
    pub(in crate::daemon) others: Vec<CapabilityPattern>,
}

impl Directory {
    /// Replaces the list of peers. Links to peers that `admits` no longer accepts drain: their calls in flight end as
    /// they would have, and no new one goes there.
    pub(in crate::daemon) fn replace_peers(self: &Arc<Self>, listed: Listed, admits: impl Fn(&Did) -> bool) {
        let changed = self.serves.replace(listed.serves, listed.others);
        self.peers.replace_expected(listed.dialled, Reason::Configured);
        let registering = self.peers.register();
        for peer in self.peers.connected() {
            if !admits(&peer) {
                self.take_off(&peer);
            } else if changed(&peer) {
                self.serve_less(&peer);
                if self.peers.is_to_be_asked(&peer) {
                    let (directory, peer) = (Arc::clone(self), peer.clone());
                    self.ctx.spawn(async move { directory.refresh(&peer).await });
                }
            }
        }
        drop(registering);
        // Calls that wait for a peer may have nothing to wait for, or somebody else.
        self.peers.changed();
    }

    /// Ends what a peer has of a membership that is revoked: its links drain, and nothing that it serves is called.
    pub(in crate::daemon) fn end_member(&self, peer: &Did) {
        let registering = self.peers.register();
        self.take_off(peer);
        drop(registering);
        self.peers.changed();
    }

    fn take_off(&self, peer: &Did) {
        self.peers.take_off(peer);
        self.registry.apply(Event::Gone(Origin::Peer(peer.clone())));
        self.serves.gone(peer);
        self.unlinked.linked(peer);
    }

    /// Withdraws at once what a peer may not serve any more. What it may serve besides is known when it has been asked.
    fn serve_less(&self, peer: &Did) {
        let origin = Origin::Peer(peer.clone());
        let snapshot = self.registry.snapshot();
        let descriptors: Vec<_> =
            snapshot.served_by(&origin).iter().map(|entry| Arc::clone(&entry.descriptor)).collect();
        let kept: Vec<_> = descriptors
            .iter()
            .filter(|descriptor| self.serves.allows(peer, &descriptor.id.name))
            .map(Arc::clone)
            .collect();
        if kept.len() < descriptors.len() {
            self.registry.apply(Event::Declared { origin, descriptors: kept });
        }
    }
}
