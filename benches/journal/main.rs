//! Two sidecars, a provider and a caller, each a process of its own, in; what a journaled call costs beside one that is
//! not journaled, in the same run, out.
//!
//! ```text
//! cargo bench --bench journal                  # one table
//! cargo bench --bench journal -- --write       # the table into docs/evidence/performance.md as well
//! cargo bench --bench journal -- --hold 30 --only unjournaled   # load for a profiler, no table
//! cargo bench --bench journal -- --providers 8    # commits of a caller's sidecar with so many that serve the same
//! ```
//!
//! The binary runs itself again with a role: [`agents`] are the provider and the caller, [`world`] starts and stops all
//! processes and reads what CPU time and commits they took, [`disk`] takes the time of one commit, [`measure`] alternates
//! the rounds, [`report`] makes the table. [`fleet`] has several providers, and counts.

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]
#![allow(clippy::disallowed_methods, reason = "real processes are measured in real time")]

mod agents;
mod disk;
mod fleet;
mod measure;
mod number;
mod report;
mod world;

#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::PathBuf;

/// What the command line asks for.
#[derive(Debug, Default)]
pub(crate) struct Args {
    /// A tiny round that checks its own results and measures nothing worth keeping.
    is_test: bool,
    /// Write the table to docs/evidence/performance.md.
    write: bool,
    /// Only hold load, for so many seconds.
    hold_s: Option<u64>,
    /// Only this kind of call while load is held.
    only: Option<String>,
    /// How long calls are remembered, in seconds; longer than a run, unless forgetting is to be measured as well.
    ttl_s: Option<u64>,
    /// Only count the caller's commits, with so many sidecars that serve the same.
    providers: Option<usize>,
    /// Rounds of each kind.
    rounds: Option<usize>,
}

fn main() {
    let mut args = Args::default();
    // As other benchmarks do: only `cargo bench` measures, `cargo test` tries it out.
    let (mut is_bench, mut is_test) = (false, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "--provider" => return agents::provider(&PathBuf::from(value())),
            "--caller" => return agents::caller(&PathBuf::from(value())),
            "--bench" => is_bench = true,
            "--test" => is_test = true,
            "--write" => args.write = true,
            "--hold" => args.hold_s = Some(value().parse().expect("--hold takes seconds")),
            "--only" => args.only = Some(value()),
            "--providers" => args.providers = Some(value().parse().expect("--providers takes a number")),
            "--ttl" => args.ttl_s = Some(value().parse().expect("--ttl takes seconds")),
            "--rounds" => args.rounds = Some(value().parse().expect("--rounds takes a number")),
            // Names of benchmarks, as `cargo bench -- NAME` gives to all of them.
            name if !name.starts_with('-') && !"journal".contains(name) => return,
            other => assert!(!other.starts_with('-'), "{other} is not known here"),
        }
    }
    args.is_test = is_test || !is_bench;
    match (args.hold_s, args.providers) {
        (Some(seconds), _) => measure::hold(seconds, &args),
        (None, Some(count)) => fleet::report(count, &args),
        (None, None) => report::report(&args, &measure::measure(&args)),
    }
}
