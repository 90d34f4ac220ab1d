//! Callers' sidecars, with a requirement that is proven and without one, before the same provider in; what the gate adds
//! to a call out.
//!
//! ```text
//! cargo bench --bench gate                # the section of docs/evidence/performance.md
//! cargo bench --bench gate -- --write     # and writes it there
//! ```
//!
//! The look-up alone is timed in a loop. Whole calls are timed in turns, since the machine moves more than the gate does,
//! and beside a second caller without a requirement, whose difference from the first is what is no cost of anything.

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]
#![allow(clippy::disallowed_methods, reason = "real processes are measured in real time")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use capd::client::{CallRequest, Client, Endpoint, Invocation, Options, Target, WireError};
use capd::schema::drift::gate::Passage;
use capd::schema::drift::{Gate, Needed, Offered, Requirement, Standing, Told, prove};
use capd::schema::subtype::{Compiled, Verdict, is_subtype};
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
    let (look_ups, proofs, sets, rounds) = if is_bench { (2_000_000, 51, 5, 60) } else { (1_000, 3, 1, 2) };
    // The first in this process, with all that the crates below prepare for it.
    let first_us = proof_us();
    let again_us = median((0..proofs).map(|_| proof_us()).collect());
    let proof =
        Proof { first_us, again_us, compiled_us: median((0..proofs).map(|_| compiled_us()).collect()) };
    let text = section(look_up(look_ups), &proof, &calls(sets, rounds));
    println!("{text}");
    if std::env::args().any(|word| word == "--write") {
        assert!(is_bench, "a trial run is nothing to write down");
        let old = std::fs::read_to_string(PAGE).unwrap();
        std::fs::write(PAGE, replaced(&old, &text)).unwrap();
        println!("written to docs/evidence/performance.md");
    }
}

fn artifact(schema: &str) -> Arc<Artifact> {
    Artifacts::default().declare(schema.as_bytes().to_vec()).unwrap()
}

/// Microseconds of the proof of both sides.
struct Proof {
    /// From the bytes of the schemas on, the first time in a process, and again.
    first_us: f64,
    again_us: f64,
    /// Once they are compiled.
    compiled_us: f64,
}

fn compiled_us() -> f64 {
    let [needed, offered] = [NEEDED, OFFERED].map(|text| Compiled::compile(text.as_bytes()).unwrap());
    let begin = Instant::now();
    for (sub, sup) in [(&needed, &offered), (&offered, &needed)] {
        assert_eq!(is_subtype(sub, sup), Verdict::Proven);
    }
    begin.elapsed().as_secs_f64() * 1e6
}

/// Microseconds from two schemas a side, as bytes, to the verdict of both sides.
fn proof_us() -> f64 {
    let begin = Instant::now();
    let needed = Needed { input: Some(artifact(NEEDED)), output: Some(artifact(NEEDED)) };
    let offered = Offered { input: Told::Schema(artifact(OFFERED)), output: Told::Schema(artifact(OFFERED)) };
    assert_eq!(prove(&needed, &offered), Standing::Proven);
    begin.elapsed().as_secs_f64() * 1e6
}

/// Nanoseconds that a passage takes where nothing is required, and where it is proven.
fn look_up(count: u32) -> [f64; 2] {
    let needed = Needed { input: Some(artifact(NEEDED)), output: Some(artifact(NEEDED)) };
    let name = "org.example.stations";
    let gate = Gate::new(vec![Requirement { name: name.parse().unwrap(), version: None, needed }]);
    let offered = Offered { input: Told::Schema(artifact(OFFERED)), output: Told::Schema(artifact(OFFERED)) };
    let served = Served::only("1.0.0".parse().unwrap());
    let Passage::Undecided(question) = gate.passage(name, &served, &offered) else { panic!("decided") };
    let standing = prove(&question.requirement.needed, &question.offered);
    gate.decide(question.case, standing);
    assert!(matches!(gate.passage(name, &served, &offered), Passage::Open(_)));
    ["org.example.elsewhere", name].map(|name| {
        let begin = Instant::now();
        for _ in 0..count {
            black_box(gate.passage(black_box(name), &served, &offered));
        }
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    })
}

/// What one caller's calls took.
#[derive(Default)]
struct Calls {
    /// Microseconds: the median of each round of each set.
    rounds_us: Vec<f64>,
    /// Each round's median over that of the first caller in the same round, of each set.
    over_first: Vec<Vec<f64>>,
}

/// Calls one after the other, in sets of fresh processes: of two callers without a requirement, and of one with.
fn calls(sets: usize, rounds: usize) -> [Calls; CALLERS] {
    let mut all: [Calls; CALLERS] = Default::default();
    for set in 0..sets {
        all.iter_mut().for_each(|calls| calls.over_first.push(Vec::new()));
        // Their order changes too, so that no caller is always the one that was started last.
        one_set(rounds, set, &mut all);
    }
    all
}

fn one_set(rounds: usize, set: usize, all: &mut [Calls; CALLERS]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let quiet = || Setup::new().set("peer.signatures", "channel").set("log.level", "warn");
    let b = quiet().start();
    let provider = runtime.block_on(serve(&b));
    let yaml = format!(
        "version: 1\nrequires:\n- name: org.example.stations\n  inputSchema: {NEEDED}\n  outputSchema: {NEEDED}\n"
    );
    let order: Vec<usize> = (0..CALLERS).map(|at| (at + set) % CALLERS).collect();
    let mut callers: Vec<(usize, Sidecar, Client)> = Vec::new();
    for &which in &order {
        let setup = quiet().peer(&b);
        let sidecar = if which == PROVEN { setup.capabilities(&yaml) } else { setup }.start();
        let client = runtime.block_on(client(&sidecar));
        callers.push((which, sidecar, client));
    }
    for round in 0..=rounds {
        let mut medians = [0.0; CALLERS];
        for at in 0..CALLERS {
            let (which, _, client) = &callers[(at + round) % CALLERS];
            let times = (0..CALLS_A_ROUND).map(|_| {
                let begin = Instant::now();
                runtime.block_on(one_call(client));
                begin.elapsed().as_secs_f64() * 1e6
            });
            medians[*which] = median(times.collect());
        }
        // The first round makes links, fetches schemas and proves them.
        if round > 0 {
            for (calls, median_us) in all.iter_mut().zip(medians) {
                calls.rounds_us.push(median_us);
                calls.over_first[set].push(median_us / medians[0]);
            }
        }
    }
    drop(provider);
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn section([free_ns, proven_ns]: [f64; 2], proof: &Proof, calls: &[Calls; CALLERS]) -> String {
    let range = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        (least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    };
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let mut text = format!(
        "{HEADING}\n\n\
         A call through two sidecars, one at a time. Three callers' sidecars take turns of {CALLS_A_ROUND} calls: two without a\n\
         requirement, whose difference is the machine's own, and one whose requirement is proven. {} sets of fresh\n\
         processes, {} rounds each; a round's median is held against the first caller's in the same round.\n\
         `cargo bench --bench gate` makes it anew.\n\n\
         | caller | median call | rounds' medians | over the first caller, all rounds | set by set |\n\
         | --- | --- | --- | --- | --- |\n",
        calls[0].over_first.len(),
        calls[0].over_first[0].len(),
    );
    for (name, calls) in ["no requirement", "no requirement, the second", "proven"].into_iter().zip(calls) {
        let (least, most) = range(&calls.rounds_us);
        let sets: Vec<f64> = calls.over_first.iter().map(|set| percent(median(set.clone()))).collect();
        let (low, high) = range(&sets);
        let over = percent(median(calls.over_first.concat()));
        text += &format!(
            "| {name} | {:.1} µs | {least:.1} to {most:.1} µs | {over:+.2} % | {low:+.2} to {high:+.2} % |\n",
            median(calls.rounds_us.clone()),
        );
    }
    let call_us = median(calls[0].rounds_us.clone());
    text += &format!(
        "\nThe look-up alone is {proven_ns:.0} ns, {:.3} % of the call; {free_ns:.0} ns when nothing is required of the\n\
         capability. The proof of both sides takes {:.1} µs once their schemas are compiled, {:.0} µs from their bytes on, and\n\
         {:.0} µs the first time in a process, which prepares what compiling needs. It is made once for each pair of\n\
         schemas, when a peer says what it serves or before the first call.\n",
        proven_ns / call_us / 10.0,
        proof.compiled_us,
        proof.again_us,
        proof.first_us,
    );
    text
}

/// The page with the section in place of the one it had, or at its end.
fn replaced(page: &str, section: &str) -> String {
    let Some(begin) = page.find(HEADING) else { return format!("{}\n\n{section}", page.trim_end()) };
    let after = &page[begin + HEADING.len()..];
    let rest = after.find("\n## ").map_or("", |end| &after[end..]);
    format!("{}{section}{rest}", &page[..begin])
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

/// Callers, and the one of them whose requirement is proven.
const CALLERS: usize = 3;
const PROVEN: usize = 2;
/// Calls of one caller before it is the next one's turn.
const CALLS_A_ROUND: usize = 100;
const HEADING: &str = "## Drift gate";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence/performance.md");
