//! The worst schemas and payloads of a hostile peer; what a verdict on each of them, and compiling each schema, takes.
//!
//! The processor time of this thread is taken, and of those that it waits for, so that a busy machine changes little. The
//! least of a few runs counts. A verdict above [`VERDICT_MS_MAX`] ends the measurement with an error. Without `--bench`, as
//! under `cargo test`, each runs once in unoptimized code, whose time says nothing, and is not held to it.

use capd::schema::{Side, Validator};
use capd_proto::cbor::json::from_json;
use rustix::time::{ClockId, clock_gettime};

#[allow(dead_code, reason = "the tests take more of it")]
#[path = "../tests/attacks/pairs.rs"]
mod pairs;

/// Longest that one verdict, or compiling one schema, may take.
const VERDICT_MS_MAX: f64 = 100.0;
/// Runs of each, of which the fastest counts.
const RUNS: usize = 3;

fn processor_ms() -> f64 {
    // A deep walk has a thread of its own, and nothing else runs in this process.
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

/// The least that `work` takes.
fn least<T>(runs: usize, work: impl Fn() -> T) -> f64 {
    let runs = (0..runs).map(|_| {
        let begun = processor_ms();
        drop(std::hint::black_box(work()));
        processor_ms() - begun
    });
    runs.fold(f64::INFINITY, f64::min)
}

fn main() {
    let is_bench = std::env::args().any(|word| word == "--bench");
    let runs = if is_bench { RUNS } else { 1 };
    let mut slowest = Vec::new();
    let mut tell = |what: &str, name: &str, ms: f64| {
        println!("{what:8} {name:44} {ms:7.1} ms");
        slowest.push((ms, format!("{what} {name}")));
    };
    for pairs::Pair { name, schema, payload, .. } in pairs::pairs() {
        let validator = Validator::compile(schema.to_string().as_bytes()).expect("it is compiled");
        let mut bytes = Vec::new();
        from_json(&payload, &mut bytes);
        tell("verdict", name, least(runs, || validator.validate(&bytes, Side::Response).is_ok()));
    }
    let (schema, bytes) = pairs::not_json();
    let validator = Validator::compile(schema.to_string().as_bytes()).expect("it is compiled");
    tell("verdict", "no JSON", least(runs, || validator.validate(&bytes, Side::Response).is_ok()));
    for (name, schema) in pairs::schemas().into_iter().chain(pairs::largest_schemas()) {
        let schema = schema.to_string();
        tell("compile", name, least(runs, || Validator::compile(schema.as_bytes())));
    }
    slowest.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (ms, name) = &slowest[0];
    println!("slowest: {name}, {ms:.1} ms; accepted: at most {VERDICT_MS_MAX} ms");
    assert!(!is_bench || *ms <= VERDICT_MS_MAX, "{name} takes {ms:.1} ms");
}
