//! A listed peer whose schemas and results take long to check in; an honest peer's slowest calls beside those when nobody
//! attacks, out.
//!
//! The agent beside the sidecar under attack calls the hostile peer all the time, one call after the other, so that each
//! result is checked against the worst schema for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use capd::client::{CallRequest, Client, ClientError, Target};
use capd_proto::capability::CapabilityId;
use capd_proto::cbor::json::from_json;
use ciborium::Value;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use crate::agents::CAP_INVOKE;
use crate::pairs::{self, Pair};
use crate::scripted::Peer;
use crate::support::{Setup, decode, map};
use crate::world::{World, at, client};
use crate::{Args, Bar};

/// Nobody looks there: the peer is asked for the document by its hash.
const URI: &str = "ni:///sha-256;somewhere";
/// How much slower honest calls may be.
const SLOWER_MAX: f64 = 2.0;

pub(crate) fn measure(args: &Args) -> Vec<Bar> {
    let time = Duration::from_millis(args.size(20_000, 500));
    let hostile: Vec<_> =
        pairs::pairs().into_iter().take(args.size(usize::MAX, 1)).map(Hostile::of).collect();
    let peer = Peer::serving(hostile.iter().map(|hostile| hostile.descriptor.clone()).collect());
    let peer = hostile.iter().fold(peer, |peer, hostile| peer.document(&hostile.schema));
    let setup = Setup::new().peer_serving(peer.did(), &[&peer.address()], &["*"]);
    let mut world = World::start(setup, Duration::ZERO);
    world.honest_calls(1, time / 5);
    let idle = world.honest_calls(1, time);

    let (stop, checked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let victim = world.runtime.block_on(client(&world.sidecar));
    let attack = std::thread::spawn({
        let (stop, checked, runtime) = (Arc::clone(&stop), Arc::clone(&checked), world.runtime.clone());
        move || {
            for hostile in hostile.iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                hostile.attack(&runtime, &victim, &peer);
                checked.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let attacked = world.honest_calls(1, time);
    stop.store(true, Ordering::Relaxed);
    attack.join().unwrap();

    let checked = checked.load(Ordering::Relaxed);
    assert!(checked > 0, "no hostile result was checked");
    let (idle_p99, attacked_p99) = (at(&idle, 0.99), at(&attacked, 0.99));
    let slower = attacked_p99.as_secs_f64() / idle_p99.as_secs_f64();
    vec![Bar {
        what: format!("a peer's {checked} results, each the worst for its schema: p99 of an honest call"),
        found: format!("{attacked_p99:.0?}, {slower:.2} times the {idle_p99:.0?} when nobody attacks"),
        bar: "at most 2 times",
        is_met: slower <= SLOWER_MAX,
    }]
}

/// One capability of the hostile peer.
struct Hostile {
    id: CapabilityId,
    descriptor: Value,
    schema: String,
    result: Value,
}

impl Hostile {
    fn of(pair: Pair) -> Self {
        let letters =
            pair.name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let id: CapabilityId = format!("org.hostile.a{letters}:1.0.0").parse().unwrap();
        let mut bytes = Vec::new();
        from_json(&pair.payload, &mut bytes);
        let schema = pair.schema.to_string();
        // The sidecar asks for the document, which is too large for a descriptor.
        let hash = Value::Bytes(Sha256::digest(schema.as_bytes()).to_vec());
        let descriptor = map([
            ("id", id.to_string().into()),
            ("output_schema", map([("hash_alg", "sha-256".into()), ("hash", hash), ("uri", URI.into())])),
            ("idempotent", true.into()),
        ]);
        Self { id, descriptor, schema, result: decode(&bytes) }
    }

    /// The victim's agent makes one call, the hostile peer answers it, and the victim's sidecar checks the result.
    fn attack(&self, runtime: &Handle, victim: &Client, peer: &Peer) {
        let request = CallRequest::new(Target::Id(self.id.clone())).timeout(Duration::from_secs(20));
        let outcome = runtime.spawn(runtime.block_on(async { victim.call(request) }).unwrap().outcome());
        let heard = peer.heard_type(CAP_INVOKE);
        peer.succeed(&heard, self.result.clone());
        match runtime.block_on(outcome).unwrap() {
            Ok(_) | Err(ClientError::Result(_)) => {}
            Err(error) => panic!("{}: {error}", self.id),
        }
    }
}
