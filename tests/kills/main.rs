//! Two real sidecars that are killed at random moments in; for every call one result, and one execution at most, out.
//!
//! A caller keeps calling a capability that is not idempotent, through its sidecar A and the provider's sidecar B. The
//! provider appends a line to a file for each execution. `kill -9` ends A or B, or both, in the handshake, while a call
//! is executed, just after its result; they start again with the same state and addresses, and the caller sends the
//! same bytes again until it has a result. Read in this order: `world` kills, `caller` and `provider` are the agents,
//! `history` says what may not happen.
//!
//! `CAPD_KILLS` is the number of kills (200 if it is not set), `CAPD_KILLS_SEED` repeats a run's choices; when the
//! processes take their turns is the machine's own choice, so a seed makes a failure likely again, not certain.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]
#![allow(clippy::disallowed_methods, reason = "real processes are killed in real time")]

#[path = "../support/mod.rs"]
mod support;

mod caller;
mod history;
mod link;
mod provider;
mod random;
mod signals;
mod summary;
mod world;

use std::time::Instant;

use world::Transport;

#[test]
fn every_call_ends_once_whatever_is_killed() {
    let kills = from_environment("CAPD_KILLS").unwrap_or(200);
    let seed = from_environment("CAPD_KILLS_SEED").unwrap_or_else(link::now_ms);
    let begin = Instant::now();
    let worlds: Vec<_> = (0..WORLDS)
        .map(|world| {
            let seed = seed.wrapping_add(world);
            let transport = if world % 2 == 0 { Transport::Quic } else { Transport::Tcp };
            (seed, std::thread::spawn(move || world::run(seed, kills.div_ceil(WORLDS), transport)))
        })
        .collect();
    let ends: Vec<_> = worlds
        .into_iter()
        .map(|(seed, world)| {
            (seed, world.join().unwrap_or_else(|_| panic!("the world of seed {seed} broke")))
        })
        .collect();
    let mut failures = String::new();
    for (seed, end) in &ends {
        for violation in end.history.violations(&end.executions).iter().take(VIOLATIONS_TOLD) {
            let history = end.history.of(&violation.id);
            failures += &format!("seed {seed}: {:?}\n{history}", violation.kind);
        }
    }
    println!("{}", summary::summary(seed, begin.elapsed(), &ends));
    assert!(failures.is_empty(), "CAPD_KILLS_SEED={seed} CAPD_KILLS={kills}\n{failures}");
    for (seed, end) in &ends {
        // A run in which little happens proves little.
        assert!(
            end.history.ids().len() as u64 >= end.kills.processes(),
            "seed {seed}: fewer calls than kills"
        );
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is no number")))
}

/// Worlds that run side by side: much of a kill is waiting.
const WORLDS: u64 = 4;
/// Calls per world whose history a failure prints.
const VIOLATIONS_TOLD: usize = 5;
