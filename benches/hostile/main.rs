//! A sidecar under attack in; the bars that it is held to, each met or not, out.
//!
//! ```text
//! cargo bench --bench hostile                  # every bar
//! cargo bench --bench hostile -- --only idle   # one of: idle, slow, slow-http, resets, overload, schemas
//! cargo bench --bench hostile -- --write       # the table into docs/evidence/performance.md as well
//! ```
//!
//! The binary runs itself again as the crowd: [`crowd`] is the attackers' process, [`world`] the sidecar under attack
//! with an honest peer beside it. [`idle`], [`slow`], [`slow_http`], [`resets`], [`overload`] and [`schemas`] each measure one bar;
//! [`report`] makes the table.

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]
#![allow(clippy::disallowed_methods, reason = "real processes are measured in real time")]

mod crowd;
mod idle;
mod overload;
mod report;
mod resets;
mod schemas;
mod slow;
mod slow_http;
mod world;

#[path = "../../tests/calls/agents.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests use more of it")]
mod agents;
#[path = "../../tests/api/http.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests use more of it")]
mod http;
#[path = "../../tests/attacks/pairs.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod pairs;
#[path = "../../tests/support/peer/mod.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests use more of it")]
mod peer;
#[path = "../../tests/calls/peer.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests use more of it")]
mod scripted;
#[path = "../../tests/support/mod.rs"]
mod support;

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Args {
    /// A tiny round that checks its own results and measures nothing worth keeping.
    is_test: bool,
    /// Write the table to docs/evidence/performance.md.
    write: bool,
    /// Only this measurement.
    only: Option<String>,
}

impl Args {
    /// The full size of something, or what a trial run does with.
    fn size<T>(&self, full: T, trial: T) -> T {
        if self.is_test { trial } else { full }
    }
}

/// One bar, and how far the run came.
#[derive(Debug)]
pub(crate) struct Bar {
    /// What was done.
    pub(crate) what: String,
    /// What was found.
    pub(crate) found: String,
    /// What it is held against.
    pub(crate) bar: &'static str,
    pub(crate) is_met: bool,
}

/// The name of a measurement, and the measurement.
type Measurement = (&'static str, fn(&Args) -> Vec<Bar>);

const MEASUREMENTS: [Measurement; 6] = [
    ("idle", idle::measure),
    ("slow", slow::measure),
    ("slow-http", slow_http::measure),
    ("resets", resets::measure),
    ("overload", overload::measure),
    ("schemas", schemas::measure),
];

fn main() {
    let mut args = Args::default();
    // As other benchmarks do: only `cargo bench` measures, `cargo test` tries it out.
    let (mut is_bench, mut is_test) = (false, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--crowd" => return crowd::run(&words.collect::<Vec<_>>()),
            "--bench" => is_bench = true,
            "--test" => is_test = true,
            "--write" => args.write = true,
            "--only" => args.only = Some(words.next().expect("--only takes a measurement's name")),
            // Names of benchmarks, as `cargo bench -- NAME` gives to all of them.
            name if !name.starts_with('-') && !"hostile".contains(name) => return,
            other => assert!(!other.starts_with('-'), "{other} is not known here"),
        }
    }
    args.is_test = is_test || !is_bench;
    world::raise_files_limit();
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| only == name);
    let bars: Vec<_> = MEASUREMENTS
        .iter()
        .filter(|(name, _)| wanted(name))
        .flat_map(|(_, measure)| measure(&args))
        .collect();
    assert!(!bars.is_empty(), "--only takes one of idle, slow, slow-http, resets, overload, schemas");
    report::report(&args, &bars);
}
