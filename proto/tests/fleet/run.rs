//! Seeds in; simulated fleets, and what the oracle says of them, out.
//!
//! ```text
//! cargo run -p capd-proto --example capd-fleet-sim -- WORLDS [SEED [no-fence|resume-by-revision|incarnation-unchecked]]
//! ```
//!
//! Plays so many worlds from this seed on, two at a time. One world alone is told in full. The exit code is 1 when a world
//! broke a promise.

#![allow(clippy::unwrap_used, reason = "whatever a simulation is made of ends the run")]

mod sim;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sim::plan::{Break, Plan};
use sim::world;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(Ok(default), |text| text.parse());
    let breaks = match args.get(2).map(String::as_str) {
        None => None,
        Some("no-fence") => Some(Break::NoFence),
        Some("resume-by-revision") => Some(Break::ResumeByRevision),
        Some("incarnation-unchecked") => Some(Break::IncarnationUnchecked),
        Some(other) => {
            eprintln!("no such part: {other}; accepted: no-fence, resume-by-revision, incarnation-unchecked");
            return ExitCode::from(2);
        }
    };
    let (Ok(worlds), Ok(first)) = (number(0, 1_000), number(1, 1)) else {
        eprintln!("usage: capd-fleet-sim WORLDS [SEED [PART]]");
        return ExitCode::from(2);
    };
    let (next, broken, events) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + worlds {
                return;
            }
            let plan = Plan::of(seed, breaks);
            let outcome = if worlds == 1 { world::tell(&plan, seed) } else { world::run(&plan, seed) };
            events.fetch_add(outcome.events, Ordering::Relaxed);
            if !outcome.violations.is_empty() {
                broken.fetch_add(1, Ordering::Relaxed);
                println!("world {seed}: {:#?}\n{:#?}", outcome.violations, plan.blows);
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("worlds do not panic"));
    });
    let (broken, events) = (broken.into_inner(), events.into_inner());
    println!("{{\"worlds\":{worlds},\"events\":{events},\"violations\":{broken}}}");
    if broken > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
