//! Prepares for the agent's requirements before its calls: reports what is missing, and proves what peers serve.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use capd_proto::identity::Did;
use capd_proto::message::Descriptor;

use super::Caller;
use super::drift::Barrier;
use crate::daemon::context::lock;
use crate::registry::snapshot::Origin;

impl Caller {
    /// Tells the log what is required and not to be had, once peers have had time to say what they serve.
    pub(in crate::daemon) async fn look_at_requirements(&self) {
        if self.drift.gate.is_empty() {
            return;
        }
        let mut changes = self.directory.peers.watch();
        let known = async {
            while !self.directory.peers.unknown().is_empty() {
                changes.changed().await;
            }
        };
        let is_known = tokio::time::timeout(Duration::from_millis(KNOWN_MS), known).await.is_ok();
        let snapshot = self.directory.snapshot();
        for requirement in self.drift.gate.requirements() {
            let entries = snapshot.entries(requirement.name.as_str());
            if !entries.iter().any(|entry| requirement.is_about(&entry.descriptor.served)) {
                tracing::warn!(
                    %requirement,
                    peers_known = is_known,
                    "a required capability has no provider: calls of it fail until one connects"
                );
            }
        }
    }

    /// Proves what the agent requires of what peers say that they serve, ahead of the next call, until shutdown.
    pub(in crate::daemon) async fn prove_ahead(self: &Arc<Self>) {
        let mut changes = self.directory.registry.watch();
        let mut reloads = self.drift.replaced.watch();
        loop {
            if !self.drift.gate.is_empty() {
                self.prove_what_is_new();
                tokio::select! {
                    () = changes.changed() => {}
                    () = reloads.changed() => {}
                }
            } else {
                reloads.changed().await;
            }
        }
    }

    /// Has what is undecided of each peer proven by a task of that peer's own, of which there is one at a time.
    fn prove_what_is_new(self: &Arc<Self>) {
        let snapshot = self.directory.snapshot();
        let required = self.drift.gate.requirements();
        let names: BTreeSet<_> = required.iter().map(|required| required.name.as_str()).collect();
        let entries = names.into_iter().flat_map(|name| snapshot.entries(name));
        let peers: BTreeSet<_> = entries
            .filter_map(|entry| match &entry.origin {
                Origin::Peer(peer) if self.is_undecided(peer, &entry.descriptor) => Some(peer.clone()),
                Origin::Peer(_) | Origin::Local(_) => None,
            })
            .collect();
        for peer in peers {
            let caller = Arc::clone(self);
            if lock(&self.drift.ahead).insert(peer.clone()) {
                self.ctx.spawn(async move { caller.prove_all_of(&peer).await });
            }
        }
    }

    /// Proves what is undecided of a peer, whatever it says that it serves meanwhile.
    async fn prove_all_of(self: &Arc<Self>, peer: &Did) {
        let mut tried = Vec::new();
        loop {
            let next = {
                // Whoever sees a change later finds that nobody is at it any more.
                let mut ahead = lock(&self.drift.ahead);
                let next = self.undecided_of(peer, &tried);
                if next.is_none() {
                    ahead.remove(peer);
                }
                next
            };
            let Some(descriptor) = next else { return };
            self.prove_descriptor(peer, &descriptor).await;
            tried.push(descriptor);
        }
    }

    fn undecided_of(&self, peer: &Did, tried: &[Arc<Descriptor>]) -> Option<Arc<Descriptor>> {
        let snapshot = self.directory.snapshot();
        let origin = Origin::Peer(peer.clone());
        let served = snapshot.served_by(&origin).iter().map(|entry| &entry.descriptor);
        let mut left = served.filter(|descriptor| !tried.iter().any(|known| Arc::ptr_eq(known, descriptor)));
        left.find(|descriptor| self.is_undecided(peer, descriptor)).map(Arc::clone)
    }

    /// Whether something is required of what a peer serves, and nobody knows yet whether it keeps to that.
    fn is_undecided(&self, peer: &Did, descriptor: &Descriptor) -> bool {
        if !self.drift.is_before(descriptor.id.name.as_str()) {
            return false;
        }
        let passed = self.offered(descriptor).and_then(|offered| self.pass(descriptor, &offered, peer));
        matches!(passed, Err(Barrier::Undecided(_) | Barrier::Schema(_)))
    }

    async fn prove_descriptor(self: &Arc<Self>, peer: &Did, descriptor: &Descriptor) {
        // Each schema, then each requirement; what is left over is left to the first call.
        for _ in 0..AHEAD_STEPS_MAX {
            let passed = self.offered(descriptor).and_then(|offered| self.pass(descriptor, &offered, peer));
            match passed {
                Err(Barrier::Undecided(question)) => self.prove(*question, peer).await,
                Err(Barrier::Schema(hash)) => {
                    if self.fetch_for_call(descriptor.id.name.as_str(), peer, hash).await.is_err() {
                        return;
                    }
                }
                Ok(_) | Err(Barrier::Refused(_)) => return,
            }
        }
    }
}

/// Time for peers to say what they serve before the log says what is missing, in milliseconds.
const KNOWN_MS: u64 = 5_000;
/// Schemas and requirements looked at ahead of the first call to one provider.
const AHEAD_STEPS_MAX: usize = 16;
