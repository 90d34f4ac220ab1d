//! Rules with grants, and a sidecar that denies, in; what a decision takes, and whether a denied caller can tell a known
//! name from an unknown one by the time it takes, out.
//!
//! Decisions are timed in a loop. The pairs are calls of one denied peer over TCP, one of a name that is served and one
//! of a name that is not, in an order of chance: of the same two names each time, whose decisions are kept, and of more
//! names than decisions are kept of, where each is decided anew, as after a start. Welch's t over all of them, and over
//! those below the 90th percentile of both, which leaves out what the machine did meanwhile.

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]
#![allow(clippy::disallowed_methods, reason = "real processes are measured in real time")]

#[path = "../tests/support/peer/mod.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the tests use the rest")]
mod peer;
#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use capd::policy::{Action, Caller, Decisions, Grant, Rules, Source, Subject, Who};
use capd_proto::identity::{Did, Identity};
use capd_proto::message::{Descriptor, DescriptorDraft};
use ciborium::{Value, cbor};
use peer::{RawLink, Transport};
use support::{AMP_MESSAGE, Message, Setup, decode};

/// What names that are served begin with, and such as are not.
const NAMES: [&str; 2] = ["com.example.hidden", "com.example.nobody"];
/// More names than a sidecar keeps decisions of for one caller, so that each is decided anew when its turn comes.
const NAMES_COUNT: usize = 2_000;
/// Above this, timings tell the two apart.
const T_MAX: f64 = 4.5;

fn main() {
    // As other benchmarks do: only `cargo bench` measures, `cargo test` tries it out.
    let is_bench = std::env::args().any(|word| word == "--bench");
    if std::env::args().skip(1).any(|word| !word.starts_with('-') && !"policy".contains(&word)) {
        return;
    }
    decisions(if is_bench { 2_000_000 } else { 1_000 });
    let (count, names) = if is_bench { (100_000, NAMES_COUNT) } else { (20, 20) };
    let told = [told_apart("kept", count, 1), told_apart("not kept", count, names)];
    if is_bench && told.into_iter().any(|t| t >= T_MAX) {
        eprintln!("a denied caller can tell known names from unknown ones: |t| is {T_MAX} or more");
        std::process::exit(1);
    }
}

/// The larger |t| of `count` pairs of denied calls, which go through so many names.
fn told_apart(decisions: &str, count: usize, names: usize) -> f64 {
    let times = pairs(count, names);
    let [all, most] = [welch(&times), welch(&below(&times, 0.9))];
    let [known, unknown] = [0, 1].map(|which| median(&times[which]));
    println!(
        "{count} pairs of denied calls, decisions {decisions}: known {known:.1} µs, unknown {unknown:.1} µs (medians)"
    );
    println!("t = {all:.2} over all, t = {most:.2} below the 90th percentile");
    all.abs().max(most.abs())
}

fn did(seed: u8) -> Did {
    Identity::from_seed([seed; 32]).did().clone()
}

fn descriptor(number: usize) -> Arc<Descriptor> {
    let mut draft = DescriptorDraft::new(format!("org.example.a{number}:1.0.0").parse().unwrap());
    draft.permissions = vec!["network:read".to_owned()];
    Arc::new(draft.finish().unwrap())
}

/// Prints what decisions take that are kept, and what one takes that is not: ten grants, a hundred capabilities.
fn decisions(count: u32) {
    let grants = (0..10).map(|number| Grant {
        callers: vec![Who::Caller(did(number))],
        capabilities: vec!["org.example.*".parse().unwrap()],
        actions: vec![Action::Query, Action::Invoke],
        permissions: vec!["network:read".to_owned()],
    });
    let source = Source { own: Some(did(99)), grants: grants.collect(), ..Source::default() };
    let rules = Rules::new(&source).unwrap();
    let served: Vec<_> = (0..100).map(descriptor).collect();
    let (granted, stranger) = (did(3), did(50));
    let subject = Subject::of(&served[7]);
    let cold = timed(count / 100, || {
        let caller = Caller { did: &granted, alias: None };
        assert!(rules.decide(caller, Action::Invoke, black_box(&subject)).is_permitted());
    });
    let decisions = Decisions::new(rules.clone());
    let name = served[7].id.name.as_str();
    let view = |did| decisions.view(Caller { did, alias: None }, 1, || served.iter());
    let kept = timed(count, || {
        let view = view(black_box(&granted));
        assert!(!view.callable(black_box(name)).is_empty() && view.may_call(&served[7]));
    });
    let denied = timed(count, || {
        let view = view(black_box(&stranger));
        assert!(view.callable(black_box(name)).is_empty() && !view.may_call_named(name));
    });
    let all_us = timed(1, || {
        let fresh = Decisions::new(rules.clone());
        black_box(fresh.view(Caller { did: &granted, alias: None }, 1, || served.iter()));
    }) / 1e3;
    println!("a decision that is kept: {kept:.0} ns permitted, {denied:.0} ns denied");
    println!(
        "one that is not: {:.1} µs; what a caller may call of 100 capabilities: {all_us:.0} µs",
        cold / 1e3
    );
}

/// Nanoseconds that one of `count` rounds takes of a core.
fn timed(count: u32, mut round: impl FnMut()) -> f64 {
    let begin_ns = on_core_ns();
    (0..count).for_each(|_| round());
    (on_core_ns() - begin_ns) / f64::from(count)
}

/// Nanoseconds that this thread has had of a core, so that what else the machine does is not counted.
fn on_core_ns() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

/// Microseconds of denied calls, of known names and of unknown ones.
fn pairs(count: usize, names: usize) -> [Vec<f64>; 2] {
    let sidecar = Setup::new().allow("").set("audit.file", "off").set("log.level", "error").start();
    let mut agent = RawLink::open(&sidecar, Transport::Unix);
    let name = |which: usize, number: usize| format!("{}{number}", NAMES[which]);
    let descriptors: Vec<_> =
        (0..names).map(|number| cbor!({ "id" => format!("{}:1.0.0", name(0, number)) }).unwrap()).collect();
    agent.send(0x21, cbor!({ "capabilities" => descriptors }).unwrap());
    agent.ping();
    let mut link = RawLink::open(&sidecar, Transport::Tcp);
    let mut times = [Vec::with_capacity(count), Vec::with_capacity(count)];
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..count + count / 50 {
        // xorshift64: the order needs no more than that.
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let first = (dice >> 40) as usize & 1;
        for which in [first, 1 - first] {
            let us = denied(&mut link, &name(which, round % names));
            // The first ones warm up.
            if let Some(us) = us.filter(|_| round >= count / 50) {
                times[which].push(us);
            }
        }
    }
    times
}

/// Microseconds until a call of this name is refused; none when something else came between.
fn denied(link: &mut RawLink, name: &str) -> Option<f64> {
    let body = cbor!({ "capability" => name, "version" => "1.0.0", "params" => Value::Null }).unwrap();
    let letter = link.letter(0x22, &body);
    let framed = peer::frame(AMP_MESSAGE, &link.seal(&letter));
    let begin = Instant::now();
    link.send_raw(&framed);
    let mut frame = link.frame();
    let us = begin.elapsed().as_secs_f64() * 1e6;
    let mut between = 0;
    loop {
        let message = (frame.frame_type == AMP_MESSAGE)
            .then(|| Message { value: decode(&frame.payload), bytes: frame.payload.clone() });
        if let Some(message) = message.filter(|message| message.reply_to().as_deref() == Some(&letter.id[..]))
        {
            assert_eq!(message.code(), Some(3001), "{message:?}");
            return (between == 0).then_some(us);
        }
        between += 1;
        frame = link.frame();
    }
}

/// Welch's t of two samples.
fn welch(times: &[Vec<f64>; 2]) -> f64 {
    let [a, b] = [0, 1].map(|which| {
        let (times, count) = (&times[which], times[which].len() as f64);
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (a.0 - b.0) / (a.1 + b.1).sqrt()
}

/// The times below a quantile of both samples together.
fn below(times: &[Vec<f64>; 2], quantile: f64) -> [Vec<f64>; 2] {
    let mut all: Vec<_> = times.iter().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let bound = all[(all.len() as f64 * quantile) as usize];
    [0, 1].map(|which| times[which].iter().copied().filter(|time| *time < bound).collect())
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
