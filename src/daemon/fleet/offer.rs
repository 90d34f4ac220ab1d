//! Tells the registry's side what our agent serves and where, each time that it changes.

use std::collections::BTreeMap;
use std::time::Duration;

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::machine::Offer;
use capd_proto::fleet::{Address, Served, State};
use capd_proto::limits::REGISTERED_VERSIONS_MAX;
use capd_proto::message::Descriptor;
use sha2::{Digest as _, Sha256};

use super::Fleet;
use crate::registry::snapshot::Snapshot;

/// Where peers reach this sidecar.
pub(in crate::daemon) struct Announced(pub(in crate::daemon) Vec<Address>);

impl Fleet {
    /// Offers what the agent serves, until shutdown. A sidecar that nobody can reach offers nothing.
    pub(in crate::daemon) async fn keep_offering(&self, announced: Announced) {
        let Some(registry) = self.registry() else { return };
        let mut changes = self.directory.registry.watch();
        let mut last = None;
        loop {
            let is_draining = self.ctx.draining.is_cancelled();
            let offer = offer(&self.directory.snapshot(), &announced, is_draining);
            if last.as_ref() != Some(&offer) {
                registry.offer(offer.clone());
                last = Some(offer);
            }
            tokio::select! {
                biased;
                () = self.ctx.draining.cancelled(), if !is_draining => {}
                () = changes.changed() => {}
            }
            // Agents declare one capability after the other.
            tokio::time::sleep(SETTLE).await;
        }
    }
}

fn offer(snapshot: &Snapshot, Announced(addresses): &Announced, is_draining: bool) -> Offer {
    let state = if is_draining { State::Draining } else { State::Serving };
    let mut names: BTreeMap<CapabilityName, Vec<Served>> = BTreeMap::new();
    if addresses.is_empty() {
        return Offer { state, ..Offer::default() };
    }
    for descriptor in snapshot.local().filter(|descriptor| !descriptor.is_private()) {
        let versions = names.entry(descriptor.id.name.clone()).or_default();
        // Several providers of this sidecar may serve the same.
        if !versions.iter().any(|served| served.version == descriptor.id.version) {
            versions.push(served(descriptor));
        }
    }
    for versions in names.values_mut() {
        // The newest are those that callers want.
        versions.sort_by(|one, other| other.version.total_cmp(&one.version));
        versions.truncate(REGISTERED_VERSIONS_MAX);
    }
    Offer { addresses: addresses.clone(), names, state }
}

fn served(descriptor: &Descriptor) -> Served {
    let mut flags = 0;
    if descriptor.idempotent {
        flags |= Served::IDEMPOTENT;
    }
    if descriptor.by_id {
        flags |= Served::KEYED;
    }
    if descriptor.served.deprecated {
        flags |= Served::DEPRECATED;
    }
    let hash = descriptor.static_hash.unwrap_or_else(|| Sha256::digest(descriptor.as_bytes()).into());
    Served { version: descriptor.id.version.clone(), hash, flags }
}

/// How long further declarations of the agent are awaited.
const SETTLE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capd_proto::fleet::Transport;
    use capd_proto::message::DescriptorDraft;

    use super::*;
    use crate::registry::snapshot::{Event, Origin, ProviderId};

    fn snapshot(ids: &[&str]) -> Snapshot {
        let descriptor = |id: &&str| Arc::new(DescriptorDraft::new(id.parse().unwrap()).finish().unwrap());
        let descriptors = ids.iter().map(descriptor).collect();
        Snapshot::default()
            .apply(Event::Declared { origin: Origin::Local(ProviderId(1)), descriptors })
            .unwrap()
    }

    #[test]
    fn each_name_is_offered_once_with_its_newest_versions_first() {
        let ids: Vec<_> = (0..20).map(|minor| format!("org.example.a:1.{minor}.0")).collect();
        let mut ids: Vec<_> = ids.iter().map(String::as_str).collect();
        ids.push("org.example.b:2.0.0");
        let at = Address { transport: Transport::Quic, host: "192.0.2.1".to_owned(), port: 7_001 };
        let offered = offer(&snapshot(&ids), &Announced(vec![at]), true);
        let versions = |name: &str| -> Vec<_> {
            let served = &offered.names[&name.parse::<CapabilityName>().unwrap()];
            served.iter().map(|served| served.version.to_string()).collect()
        };
        assert_eq!(versions("org.example.b"), ["2.0.0"]);
        assert_eq!(versions("org.example.a").len(), REGISTERED_VERSIONS_MAX);
        assert_eq!(versions("org.example.a")[0], "1.19.0");
        assert_eq!(offered.state, State::Draining);
    }

    #[test]
    fn a_sidecar_that_nobody_reaches_offers_nothing() {
        let offered = offer(&snapshot(&["org.example.a:1.0.0"]), &Announced(Vec::new()), false);
        assert!(offered.names.is_empty());
    }
}
