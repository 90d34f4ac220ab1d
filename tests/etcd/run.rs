//! Holds the etcd engine, and whole drivers on it, against a real etcd and everything that happens to one.
//!
//! ```text
//! cargo run --example capd-etcd -- ETCD ETCDCTL [WORD [without-tls]]
//! ```
//!
//! Plays every scenario whose name has the word, those without TLS only where etcd speaks no TLS 1.3, each with an etcd of its own on loopback. `.ci/fleet` runs it with several
//! versions; `cargo test` needs no etcd. The exit code is 1 when a scenario fails.

#![allow(clippy::unwrap_used, reason = "whatever a test is made of fails it")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]

#[path = "../fleet/contract.rs"]
mod contract;
#[path = "../fleet/member.rs"]
#[allow(dead_code, reason = "the simulated fleet uses the rest")]
mod member;
mod proxy;
mod scenarios;
mod server;
#[path = "../fleet/simulated.rs"]
#[allow(dead_code, reason = "a member can be one of a simulated registry")]
mod simulated;
#[path = "../../proto/tests/fleet/sim/store.rs"]
#[allow(dead_code, reason = "a member can be one of a simulated registry")]
mod store;
mod tls;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::time::Instant;

use scenarios::Scenario;
use server::Programs;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(etcd), Some(etcdctl)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: capd-etcd ETCD ETCDCTL [WORD [without-tls]]");
        return ExitCode::from(2);
    };
    let word = arguments.next().unwrap_or_default();
    let programs = Programs { etcd: etcd.into(), etcdctl: etcdctl.into() };
    let with_tls = if arguments.next().as_deref() == Some("without-tls") { &[] } else { scenarios::WITH_TLS };
    let chosen: Vec<_> =
        scenarios::ALL.iter().chain(with_tls).filter(|(name, _)| name.contains(&word)).collect();
    if chosen.is_empty() {
        eprintln!("no scenario's name has {word:?}");
        return ExitCode::from(2);
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some((name, scenario)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !play(name, *scenario, &programs) {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner();
    println!("{} of {} scenarios passed", chosen.len() - failed, chosen.len());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays a scenario on a thread of its own, as a member's time of day is the thread's. Whether it passed.
fn play(name: &str, scenario: Scenario, programs: &Programs) -> bool {
    let begin = Instant::now();
    let programs = programs.clone();
    let played = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        catch_unwind(AssertUnwindSafe(|| runtime.block_on(scenario(programs))))
    });
    let is_good = played.unwrap().join().is_ok_and(|played| played.is_ok());
    println!("{:6} {:5.1} s  {name}", if is_good { "ok" } else { "FAILED" }, begin.elapsed().as_secs_f64());
    is_good
}

/// Scenarios at once: most of them wait most of the time.
const AT_ONCE: usize = 4;
