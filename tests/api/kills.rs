//! Keyed calls through two sidecars that are killed at random moments in; no key executed twice, and the same answer
//! whenever it is asked again, out.
//!
//! `CAPD_API_KILLS` is the number of kills (4 if it is not set; 50 at size), `CAPD_API_KILLS_SEED` repeats a run's choices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use crate::http::{Answer, Http};
use crate::support::{PATIENCE, Setup, Sidecar};

#[test]
fn a_key_is_executed_once_whatever_is_killed() {
    let kills = from_environment("CAPD_API_KILLS").unwrap_or(4);
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = from_environment("CAPD_API_KILLS_SEED").unwrap_or(now);
    let mut random = Random(seed | 1);
    let mut far = Setup::new().capabilities(APPENDS).file("work/kept", "").start();
    let mut near = Setup::new().peer(&far).start();
    let (next, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let ended = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (socket, next, stop) = (near.socket.clone(), Arc::clone(&next), Arc::clone(&stop));
            let ended = Arc::clone(&ended);
            std::thread::spawn(move || {
                let mut ends = BTreeMap::new();
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    ends.insert(number, end_of(&socket, number));
                    ended.fetch_add(1, Ordering::Relaxed);
                }
                ends
            })
        })
        .collect();
    for _ in 0..kills {
        // Some keys have their end between two kills, and the next kill comes at any moment of a call.
        let (begin, until) = (Instant::now(), ended.load(Ordering::Relaxed) + random.next() % 8);
        while ended.load(Ordering::Relaxed) < until {
            assert!(begin.elapsed() < 2 * PATIENCE, "CAPD_API_KILLS_SEED={seed}: no call ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(random.next() % 100));
        match random.next() % 3 {
            0 => far = far.restart(),
            1 => near = near.restart(),
            _ => {
                far.kill();
                near = near.restart();
                far = far.restart();
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let ends: BTreeMap<_, _> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    let executed = executions(&far);
    let mut unknown = 0;
    for (number, end) in &ends {
        let times = executed.get(number).copied().unwrap_or(0);
        assert!(times <= 1, "CAPD_API_KILLS_SEED={seed}: key {number} was executed {times} times");
        let again = end_of(&near.socket, *number);
        match end {
            End::Done => {
                assert_eq!((times, &again), (1, end), "CAPD_API_KILLS_SEED={seed}: key {number}");
            }
            End::Unknown => {
                unknown += 1;
                assert!(again == End::Unknown || times == 1, "CAPD_API_KILLS_SEED={seed}: key {number}");
            }
        }
    }
    assert_eq!(executed, executions(&far), "asking again executes nothing");
    println!("{kills} kills, {} keys, {unknown} unknown, seed {seed}", ends.len());
    assert!(ends.len() as u64 >= kills, "a run in which little happens proves little");
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Done,
    Unknown,
}

/// Asks under one key until there is an answer that says what became of the call.
fn end_of(socket: &std::path::Path, number: u64) -> End {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < 4 * PATIENCE, "key {number} has no end");
        let key = format!("key-{number}");
        let fields = [("Idempotency-Key", key.as_str()), ("Capd-Ttl", "1h")];
        let body = json!({"n": number}).to_string();
        let asked = Http::try_post(socket, "/v1/call/org.example.append?timeout=20s", &fields, &body);
        // A sidecar that is gone comes back.
        let Ok(answer) = asked else {
            std::thread::yield_now();
            continue;
        };
        match outcome(&answer) {
            None => return End::Done,
            Some(outcome) if outcome == "unknown" => return End::Unknown,
            // Nothing was executed, or it may still run: the same key is asked again.
            Some(outcome) => {
                assert!(["refused", "pending"].contains(&outcome.as_str()), "{number}: {answer:?} {outcome}")
            }
        }
    }
}

fn outcome(answer: &Answer) -> Option<String> {
    (answer.status != 200).then(|| answer.json()["outcome"].as_str().unwrap().to_owned())
}

/// How often each key was executed.
fn executions(far: &Sidecar) -> BTreeMap<u64, u32> {
    let mut times = BTreeMap::new();
    let text = std::fs::read_to_string(far.dir.join("work/log")).unwrap_or_default();
    for line in text.lines() {
        // A command whose sidecar was killed while it wrote the params has only a part of them.
        let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        *times.entry(line["n"].as_u64().unwrap()).or_insert(0) += 1;
    }
    times
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is no number")))
}

/// xorshift64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// One line for each execution.
const APPENDS: &str = r#"version: 1
namespace: org.example
capabilities:
  - name: append
    permissions: ["filesystem:write"]
    command: [sh, -c, "printf '%s\\n' \"$(cat)\" >> work/log; echo true"]
"#;
/// Agents that call at the same time.
const CALLERS: usize = 3;
