//! A listed peer whose schemas and results take long to check, with the agent that calls it: `DID ADDRESS` of the peer out, the
//! attacked sidecar's socket in; `begun` once a first result is checked, and for a line more, how many were.
//!
//! The agent beside the sidecar under attack calls the hostile peer all the time, one call after the other, so that each
//! result is checked against the worst schema for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capd::client::{CallRequest, Client, ClientError, Endpoint, Options, Target};
use capd_proto::capability::CapabilityId;
use capd_proto::cbor::json::from_json;
use ciborium::Value;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;

use super::{lines, say};
use crate::agents::CAP_INVOKE;
use crate::pairs::{self, Pair};
use crate::scripted::Peer;
use crate::support::{decode, map};
use crate::world::background;

/// Nobody looks there: the peer is asked for the document by its hash.
const URI: &str = "ni:///sha-256;somewhere";

/// The process's whole life.
pub(super) fn attack(most: usize) {
    let hostile: Vec<_> = pairs::pairs().into_iter().take(most).map(Hostile::of).collect();
    let peer = Peer::serving(hostile.iter().map(|hostile| hostile.descriptor.clone()).collect());
    let peer = hostile.iter().fold(peer, |peer, hostile| peer.document(&hostile.schema));
    say(&format!("{} {}", peer.did(), peer.address()));
    let mut lines = lines();
    let socket = lines.blocking_recv().expect("the socket of the attacked sidecar");
    let (runtime, _running) = background();
    let victim = runtime
        .block_on(Client::connect(Endpoint::Unix(socket.into()), Options::default()))
        .expect("the attacked sidecar takes its agent");
    let checked = Arc::new(AtomicUsize::new(0));
    std::thread::spawn({
        let checked = Arc::clone(&checked);
        move || {
            for hostile in hostile.iter().cycle() {
                hostile.answer(&runtime, &victim, &peer);
                if checked.fetch_add(1, Ordering::Relaxed) == 0 {
                    say("begun");
                }
            }
        }
    });
    while lines.blocking_recv().is_some() {
        say(&checked.load(Ordering::Relaxed).to_string());
    }
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
    fn answer(&self, runtime: &Handle, victim: &Client, peer: &Peer) {
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
