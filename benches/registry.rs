//! A peer that changes what it serves, among few peers and among many, in; what the next snapshot takes out.
//!
//! An event costs what it changes, so `10` and `1000` peers of ten capabilities each are to take the same:
//!
//! - `one`: one of the peer's ten capabilities changes, and changes back;
//! - `all`: the peer leaves, and comes back with all ten.
//!
//! Under `own` each peer has names of its own; under `shared` all of them serve the same ten names, so that each name has an
//! entry of every peer. Each measurement is two events, with what the snapshots before them take to be dropped.

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]

use std::hint::black_box;
use std::sync::Arc;

use capd::registry::snapshot::{Event, Origin, Snapshot};
use capd_proto::identity::{Did, Identity};
use capd_proto::message::{Descriptor, DescriptorDraft};
use criterion::{Criterion, criterion_group, criterion_main};

/// Capabilities of each peer.
const CAPABILITIES: usize = 10;

/// Whose names the capabilities of a peer have.
#[derive(Clone, Copy)]
enum Names {
    Own,
    Shared,
}

fn events(criterion: &mut Criterion) {
    for (names, kind) in [(Names::Own, "own"), (Names::Shared, "shared")] {
        for peers in [10, 1_000] {
            let fleet = fleet(peers, names);
            let peer = peers / 2;
            let declared = |descriptors| Event::Declared { origin: origin(peer), descriptors };
            let former = declared(descriptors(peer, names));
            let mut changed = descriptors(peer, names);
            changed[CAPABILITIES / 2] = descriptor(&format!("{}:1.0.1", changed[CAPABILITIES / 2].id.name));
            for (what, event) in [("one", declared(changed)), ("all", Event::Gone(origin(peer)))] {
                criterion.bench_function(&format!("registry/{what}/{kind}/{peers}"), |bencher| {
                    let mut snapshot = fleet.clone();
                    bencher.iter(|| {
                        for event in [&event, &former] {
                            snapshot = black_box(&snapshot).apply(event.clone()).unwrap();
                        }
                    });
                });
            }
        }
    }
}

/// What so many peers serve.
fn fleet(peers: usize, names: Names) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for peer in 0..peers {
        let event = Event::Declared { origin: origin(peer), descriptors: descriptors(peer, names) };
        snapshot = snapshot.apply(event).unwrap();
    }
    snapshot
}

fn origin(peer: usize) -> Origin {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&(peer as u64).to_be_bytes());
    let did: Did = Identity::from_seed(seed).did().clone();
    Origin::Peer(did)
}

fn descriptors(peer: usize, names: Names) -> Vec<Arc<Descriptor>> {
    let whose = match names {
        Names::Own => format!("peer-{peer}"),
        Names::Shared => "every-peer".to_owned(),
    };
    (0..CAPABILITIES).map(|number| descriptor(&format!("com.example.{whose}.name-{number}:1.0.0"))).collect()
}

fn descriptor(id: &str) -> Arc<Descriptor> {
    Arc::new(DescriptorDraft::new(id.parse().unwrap()).finish().unwrap())
}

criterion_group!(benches, events);
criterion_main!(benches);
