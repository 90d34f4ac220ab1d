//! Two callers' sidecars, one with a requirement that is proven and one without, before the same provider in; what the
//! gate adds to a call out.
//!
//! The look-up alone is timed in a loop. Whole calls are timed in turns, since the machine moves more than the gate does.

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]
#![allow(clippy::disallowed_methods, reason = "real processes are measured in real time")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use capd::client::{CallRequest, Client, Endpoint, Invocation, Options, Target, WireError};
use capd::schema::drift::gate::Passage;
use capd::schema::drift::{Gate, Needed, Offered, Requirement, Told, prove};
use capd::schema::{Artifact, Artifacts};
use capd_proto::message::{Descriptor, DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use capd_proto::negotiate::Served;
use serde_json::json;
use support::{Setup, Sidecar};

const ID: &str = "org.example.stations:1.0.0";
/// What the agent was built against, both ways.
const NEEDED: &str = r#"{"type":"object","properties":{"city":{"type":"string","minLength":1,"maxLength":80},"units":{"enum":["metric","imperial"]},"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city","units"],"additionalProperties":false}"#;
/// What the provider declares both ways: another document that says the same.
const OFFERED: &str = r#"{"type":"object","required":["units","city"],"additionalProperties":false,"properties":{"city":{"type":"string","minLength":1,"maxLength":80},"units":{"enum":["imperial","metric"]},"days":{"type":"integer","minimum":1,"maximum":14}}}"#;

fn main() {
    // As other benchmarks do: only `cargo bench` measures, `cargo test` tries it out.
    let is_bench = std::env::args().any(|word| word == "--bench");
    if std::env::args().skip(1).any(|word| !word.starts_with('-') && !"gate".contains(&word)) {
        return;
    }
    let (look_ups, rounds) = if is_bench { (2_000_000, 60) } else { (1_000, 2) };
    let (free_ns, warm_ns, proof_us) = look_up(look_ups);
    let [without_us, with_us] = calls(rounds);
    println!("nothing is required of the capability: {free_ns:.1} ns");
    println!("proven, a look-up: {warm_ns:.1} ns");
    println!("the proof itself: {proof_us:.1} µs");
    println!(
        "a call without a requirement: {without_us:.1} µs, with one that is proven: {with_us:.1} µs (medians)"
    );
    println!("the look-up is {:.3} % of the call", warm_ns / without_us / 10.0);
}

fn artifact(schema: &str) -> Arc<Artifact> {
    Artifacts::default().declare(schema.as_bytes().to_vec()).unwrap()
}

/// Nanoseconds that a passage takes where nothing is required, and where it is proven; microseconds of the proof.
fn look_up(count: u32) -> (f64, f64, f64) {
    let needed = Needed { input: Some(artifact(NEEDED)), output: Some(artifact(NEEDED)) };
    let name = "org.example.stations";
    let gate = Gate::new(vec![Requirement { name: name.parse().unwrap(), version: None, needed }]);
    let offered = Offered { input: Told::Schema(artifact(OFFERED)), output: Told::Schema(artifact(OFFERED)) };
    let served = Served::only("1.0.0".parse().unwrap());
    let Passage::Undecided(question) = gate.passage(name, &served, &offered) else { panic!("decided") };
    let begin = Instant::now();
    let standing = prove(&question.requirement.needed, &question.offered);
    let proof_us = begin.elapsed().as_secs_f64() * 1e6;
    gate.decide(question.case, standing);
    assert!(matches!(gate.passage(name, &served, &offered), Passage::Open(_)));
    let [free_ns, warm_ns] = ["org.example.elsewhere", name].map(|name| {
        let begin = Instant::now();
        for _ in 0..count {
            black_box(gate.passage(black_box(name), &served, &offered));
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    });
    (free_ns, warm_ns, proof_us)
}

/// Median microseconds of calls one after the other, without and with a requirement.
fn calls(rounds: usize) -> [f64; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let quiet = || Setup::new().set("peer.signatures", "channel").set("log.level", "warn");
    let b = quiet().start();
    let provider = runtime.block_on(serve(&b));
    let yaml = format!(
        "version: 1\nrequires:\n- name: org.example.stations\n  inputSchema: {NEEDED}\n  outputSchema: {NEEDED}\n"
    );
    let callers = [quiet().peer(&b).start(), quiet().peer(&b).capabilities(&yaml).start()];
    let clients = callers.each_ref().map(|sidecar| runtime.block_on(client(sidecar)));
    let mut times: [Vec<f64>; 2] = Default::default();
    for round in 0..rounds {
        for which in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            for call in 0..CALLS_A_ROUND {
                let begin = Instant::now();
                runtime.block_on(one_call(&clients[which]));
                // The first ones make links, fetch schemas and prove them.
                if round > 0 || call >= CALLS_A_ROUND / 2 {
                    times[which].push(begin.elapsed().as_secs_f64() * 1e6);
                }
            }
        }
    }
    drop(provider);
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

async fn client(sidecar: &Sidecar) -> Client {
    Client::connect(Endpoint::Unix(sidecar.socket.clone()), Options::default()).await.unwrap()
}

async fn serve(sidecar: &Sidecar) -> Client {
    let client = client(sidecar).await;
    let echo = |invocation: Invocation| async move { Ok::<_, WireError>(invocation.params) };
    client.serve(16, echo).unwrap();
    client.declare(&[descriptor()]).await.unwrap();
    client
}

fn descriptor() -> Descriptor {
    let mut draft = DescriptorDraft::new(ID.parse().unwrap());
    let schema = || SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, OFFERED.as_bytes())));
    (draft.input_schema, draft.output_schema) = (Some(schema()), Some(schema()));
    draft.idempotent = Some(true);
    draft.finish().unwrap()
}

async fn one_call(client: &Client) {
    let params = json!({"city": "Amsterdam Noord", "units": "metric", "days": 5});
    let request = CallRequest::new(Target::Id(ID.parse().unwrap())).params_json(&params);
    let answer = client.call(request).unwrap().outcome().await.unwrap();
    assert_eq!(answer.json().unwrap(), params);
}

/// Calls of one caller before it is the other's turn.
const CALLS_A_ROUND: usize = 200;
