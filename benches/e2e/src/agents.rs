//! The two agents at the sidecars: a provider that answers at once, and a caller.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use capd::client::{CallRequest, Client, Endpoint, Invocation, Options, Target, WireError};
use capd_proto::capability::CapabilityId;
use capd_proto::message::{Descriptor, DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use tokio::sync::watch;
use tokio::time::interval;

use crate::load::Callee;
use crate::payload::{INPUT_SCHEMA, OUTPUT_SCHEMA, REQUEST_BYTES, Results, request, response_bytes};
use crate::role::{done, lines, ready, rounds, say};

/// The capability that is declared idempotent, so that its calls are not journaled.
pub(crate) const UNJOURNALED: &str = "org.example.forecast:1.0.0";
/// The one that is not, so that they are.
pub(crate) const JOURNALED: &str = "org.example.journaled:1.0.0";

/// The one whose calls [`holder`] holds.
pub(crate) const HELD: &str = "org.example.held:1.0.0";

/// Serves both, and others beside them until there are so many.
pub(crate) async fn provider(socket: &Path, capabilities: usize) {
    let results = Arc::new(Results::default());
    let handler = move |invocation: Invocation| {
        let result = results.of(invocation.params.len());
        async move { Ok::<_, WireError>(result) }
    };
    let client = client(socket).await;
    client.serve(CALLS_MAX, handler).unwrap();
    let both = [descriptor(UNJOURNALED, true), descriptor(JOURNALED, false)];
    let others = (both.len()..capabilities)
        .map(|number| descriptor(&format!("org.example.other.n{number}:1.0.0"), number % 2 == 0));
    let descriptors: Vec<_> = both.clone().into_iter().chain(others).collect();
    client.declare(&descriptors).await.unwrap();
    ready("");
    done().await;
}

/// Serves [`HELD`]. `hold` on standard input keeps the calls that come from here on, and `release` answers them; each,
/// as every other line, is told how many are kept.
pub(crate) async fn holder(socket: &Path) {
    let results = Arc::new(Results::default());
    let (gate, is_open) = watch::channel(true);
    let handler = move |invocation: Invocation| {
        let (result, mut is_open) = (results.of(invocation.params.len()), is_open.clone());
        async move {
            is_open.wait_for(|is_open| *is_open).await.expect("the gate stays");
            Ok::<_, WireError>(result)
        }
    };
    let client = client(socket).await;
    client.serve(CALLS_MAX, handler).unwrap();
    client.declare(&[descriptor(HELD, true)]).await.unwrap();
    ready("");
    // One waits in the handler itself, and one with each call.
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        match line.as_str() {
            "hold" => gate.send_replace(false),
            "release" => gate.send_replace(true),
            _ => *gate.borrow(),
        };
        say(&(gate.receiver_count() - 1));
    }
}

/// Has links to a sidecar.
pub(crate) async fn idle(socket: &Path, links: usize) {
    let mut clients = Vec::with_capacity(links);
    for _ in 0..links {
        clients.push(client(socket).await);
    }
    ready("");
    done().await;
}

/// Calls one of them.
pub(crate) async fn caller(socket: &Path, capability: &str, ttl_s: u64) {
    let client = client(socket).await;
    let target = Target::Id(capability.parse().unwrap());
    let request = CallRequest::new(target).timeout(TIMEOUT).ttl(Duration::from_secs(ttl_s));
    let caller = Caller { client, request, bytes: 0 };
    served(&caller).await;
    rounds(&caller).await;
}

/// Calls until the sidecar has learnt who serves it, which it asks its peers once their links are open.
async fn served(caller: &Caller) {
    let caller = caller.sized(REQUEST_BYTES);
    let mut ticks = interval(TICK);
    let deadline = Instant::now() + PATIENCE;
    loop {
        ticks.tick().await;
        match caller.client.call(caller.request.clone()).unwrap().outcome().await {
            Ok(_) => return,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

#[derive(Clone)]
struct Caller {
    client: Client,
    request: CallRequest,
    bytes: usize,
}

impl Callee for Caller {
    fn sized(&self, bytes: usize) -> Self {
        let request = self.request.clone().params_cbor(request(bytes));
        Self { request, bytes, client: self.client.clone() }
    }

    async fn call(&mut self) {
        let outcome = self.client.call(self.request.clone()).unwrap().outcome().await;
        let answer: Bytes = outcome.unwrap_or_else(|error| panic!("{error}")).result;
        assert_eq!(answer.len(), response_bytes(self.bytes), "the result is what the provider gave");
    }
}

fn descriptor(id: &str, is_idempotent: bool) -> Descriptor {
    let id: CapabilityId = id.parse().unwrap();
    let schema =
        |text: &str| Some(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, text.as_bytes()))));
    let draft = DescriptorDraft {
        input_schema: schema(INPUT_SCHEMA),
        output_schema: schema(OUTPUT_SCHEMA),
        idempotent: Some(is_idempotent),
        ..DescriptorDraft::new(id)
    };
    draft.finish().unwrap()
}

async fn client(socket: &Path) -> Client {
    let options = Options { request_timeout: PATIENCE, ..Options::default() };
    Client::connect(Endpoint::Unix(socket.to_owned()), options).await.unwrap()
}

/// Calls that the provider takes at once.
const CALLS_MAX: usize = 1_024;
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a declaration to be taken, and to be known further on.
const PATIENCE: Duration = Duration::from_secs(40);
const TICK: Duration = Duration::from_millis(20);
/// Longer than any run: what is forgotten in one round would be paid for in another.
pub(crate) const TTL_S: u64 = 3_600;
