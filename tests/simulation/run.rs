//! Seeds in; simulated worlds, and what the oracle says of them, out.
//!
//! ```text
//! cargo run --release --example capd-sim -- --worlds N --seed S [--threads T] [--break duplicates|executing|refusals|journals|proof|tombstones]
//! cargo run --release --example capd-sim -- --replay SEED [--break duplicates|executing|refusals|journals|proof|tombstones]
//! ```
//!
//! The exit code is 1 when a world broke a promise.

mod sim;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use sim::plan::{Break, Plan};
use sim::report::{Report, findings};
use sim::world;

/// Runs simulated worlds.
#[derive(Parser)]
#[command(name = "capd-sim")]
struct Args {
    /// How many worlds.
    #[arg(long, default_value_t = 1_000)]
    worlds: u64,
    /// The first one's seed; the others follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads, each with worlds of its own.
    #[arg(long, default_value_t = 1)]
    threads: u64,
    /// Runs the one world of this seed and prints its trace.
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
    /// What the sidecars of a replayed world log, as a filter: `capd=debug`.
    #[arg(long, value_name = "FILTER", requires = "replay")]
    log: Option<String>,
    /// Leaves a part of the promise out, for the oracle to find.
    #[arg(long = "break", value_name = "PART")]
    breaks: Option<Part>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Duplicates,
    Executing,
    Refusals,
    Journals,
    Proof,
    Tombstones,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let breaks = args.breaks.map(|part| match part {
        Part::Duplicates => Break::Duplicates,
        Part::Executing => Break::Executing,
        Part::Refusals => Break::Refusals,
        Part::Journals => Break::Journals,
        Part::Proof => Break::Proof,
        Part::Tombstones => Break::Tombstones,
    });
    if let Some(filter) = &args.log {
        let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(std::io::stderr);
        log.with_env_filter(filter).init();
    }
    let report = match args.replay {
        Some(seed) => replay(seed, breaks),
        None => run_all(&args, breaks),
    };
    if report.violations > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn replay(seed: u64, breaks: Option<Break>) -> Report {
    let plan = Plan::of(seed, breaks);
    println!("{plan:#?}");
    let outcome = world::run(&plan, seed);
    for call in &plan.calls {
        println!("call {}:\n{}", call.number, outcome.verdict.history_of(Some(call.number)));
    }
    if !outcome.verdict.violations.is_empty() {
        println!("{}", findings(seed, breaks, &outcome));
    }
    println!("trace {:016x}", outcome.trace);
    let mut report = Report::default();
    report.add(seed, &outcome);
    report
}

fn run_all(args: &Args, breaks: Option<Break>) -> Report {
    let (next, end) = (AtomicU64::new(args.seed), args.seed + args.worlds);
    let began = clock();
    let work = || {
        let mut report = Report::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return report;
            }
            let outcome = world::run(&Plan::of(seed, breaks), seed);
            if !outcome.verdict.violations.is_empty() {
                print!("{}", findings(seed, breaks, &outcome));
            }
            report.add(seed, &outcome);
        }
    };
    let threads = args.threads.max(1);
    let report = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Report::default();
        for thread in running {
            all.merge(thread.join().expect("worlds do not panic"));
        }
        all
    });
    let wall = clock().saturating_sub(began);
    let json = report.json(wall, cpu_time().unwrap_or(wall));
    for (name, value) in json.as_object().into_iter().flatten() {
        eprintln!("{name:>28}  {value}");
    }
    println!("{json}");
    report
}

/// How long the processors worked for this process, where the system tells.
fn cpu_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // proc(5): behind the name in brackets `utime` and `stime` are the 12th and 13th fields, in hundredths of a second.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2).collect();
    let ticks = fields.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks * 10))
}

/// What the wall clock shows.
#[allow(
    clippy::disallowed_methods,
    reason = "how long the worlds took is told to a person, and nothing else"
)]
fn clock() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
