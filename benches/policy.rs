//! Rules with grants, and a sidecar that denies, in; what a decision takes, and whether a denied caller can tell what is
//! hidden from it by the time that answers take, out.
//!
//! Decisions are timed in a loop. The pairs are questions of one denied peer over TCP in two situations that it must not
//! tell apart, in an order of chance:
//!
//! - `kept` and `new`: a call of a name that is served, and of one that is not; of the same two names each time, whose
//!   decisions are kept, and of more names than decisions are kept of, where each is decided anew, as after a start;
//! - `namespace`: a query for a namespace with 200 hidden names, and for one with none;
//! - `cursor`: the second page of a namespace where hidden names stand between what it sees, and of one without;
//! - `count`: a query for everything, while 200 hidden capabilities are served and while one is;
//! - `change`: its first question after a hidden capability came or went, and after one was declared again as it was.
//!
//! Welch's t over all of them, and over those below the 90th percentile of both, which leaves out what the machine did
//! meanwhile. `--only NAME` measures one of them.

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
use support::{AMP_MESSAGE, Message, Setup, Sidecar, decode, field, set};

/// What names that are served begin with, and such as are not.
const NAMES: [&str; 2] = ["com.example.hidden", "com.example.nobody"];
/// Hidden capabilities of a crowd.
const HIDDEN: usize = 200;
/// Capabilities that stand while one comes and goes.
const FEW: usize = 20;
/// Questions of one situation in a row where situations last.
const LASTING: usize = 25;
/// Questions behind a change that are not measured.
const WARM_UP: usize = 5;
const CAP_QUERY: u64 = 0x20;
const CAP_DECLARE: u64 = 0x21;
const CAP_INVOKE: u64 = 0x22;
/// More names than a sidecar keeps decisions of for one caller, so that each is decided anew when its turn comes.
const NAMES_COUNT: usize = 2_000;
/// Above this, timings tell the two apart.
const T_MAX: f64 = 4.5;

/// A name, how many pairs are measured, and what measures them: the times of both situations.
type Measurement = (&'static str, usize, fn(usize) -> Times);
/// Microseconds of both situations.
type Times = [Vec<f64>; 2];

const MEASUREMENTS: [Measurement; 6] = [
    ("kept", 100_000, |count| of_names(count, 1)),
    ("new", 100_000, |count| of_names(count, NAMES_COUNT.min(count))),
    ("namespace", 100_000, of_namespaces),
    ("cursor", 100_000, of_cursors),
    ("count", 4_000, of_counts),
    ("change", 20_000, of_changes),
];

fn main() {
    // As other benchmarks do: only `cargo bench` measures, `cargo test` tries it out.
    let (mut is_bench, mut only) = (false, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--bench" => is_bench = true,
            "--only" => only = words.next(),
            word if !word.starts_with('-') && !"policy".contains(word) => return,
            _ => {}
        }
    }
    if only.is_none() {
        decisions(if is_bench { 2_000_000 } else { 1_000 });
    }
    let wanted = MEASUREMENTS.iter().filter(|(name, ..)| only.as_deref().is_none_or(|only| only == *name));
    let told = wanted.map(|(name, count, measure)| {
        let count = if is_bench { *count } else { 20 };
        told_apart(name, &measure(count))
    });
    let told: Vec<_> = told.collect();
    assert!(!told.is_empty(), "--only takes one of {:?}", MEASUREMENTS.map(|(name, ..)| name));
    if is_bench && told.into_iter().any(|t| t >= T_MAX) {
        eprintln!("a denied caller can tell what is hidden from it: |t| is {T_MAX} or more");
        std::process::exit(1);
    }
}

/// The larger |t| of pairs in two situations.
fn told_apart(what: &str, times: &Times) -> f64 {
    let [all, most] = [welch(times), welch(&below(times, 0.9))];
    let [hiding, bare] = [0, 1].map(|which| median(&times[which]));
    let count = times[0].len();
    println!("{what}: {count} pairs, hiding {hiding:.1} µs, bare {bare:.1} µs (medians)");
    println!("{what}: t = {all:.2} over all, t = {most:.2} below the 90th percentile");
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
    decisions.serve(|| served.clone());
    let name = served[7].id.name.as_str();
    let view = |did| decisions.view(Caller { did, alias: None });
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
        fresh.serve(|| served.clone());
        black_box(fresh.view(Caller { did: &granted, alias: None }));
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

/// A sidecar, an agent of it, and a peer that may call what these tables grant.
struct World {
    agent: RawLink,
    peer: RawLink,
    sidecar: Sidecar,
}

impl World {
    fn new(allow: &str) -> Self {
        let quiet = Setup::new().set("audit.file", "off").set("log.level", "error");
        let sidecar = quiet.allow(allow).set("limits.denied_rate_per_peer", "off").start();
        let agent = RawLink::open(&sidecar, Transport::Unix);
        let peer = RawLink::open(&sidecar, Transport::Tcp);
        Self { agent, peer, sidecar }
    }

    /// Has the agent serve these names from here on.
    fn serve(&mut self, names: impl IntoIterator<Item = String>) {
        let descriptors: Vec<_> =
            names.into_iter().map(|name| cbor!({ "id" => format!("{name}:1.0.0") }).unwrap()).collect();
        self.agent.send(CAP_DECLARE, cbor!({ "capabilities" => descriptors }).unwrap());
        self.agent.ping();
    }

    /// The answer to a question of the peer's, and its microseconds; none when something else came between.
    fn ask(&mut self, typ: u64, body: &Value) -> (Option<f64>, Message) {
        let letter = self.peer.letter(typ, body);
        let framed = peer::frame(AMP_MESSAGE, &self.peer.seal(&letter));
        let begin = Instant::now();
        self.peer.send_raw(&framed);
        let mut frame = self.peer.frame();
        let us = begin.elapsed().as_secs_f64() * 1e6;
        let mut between = 0;
        loop {
            let message = (frame.frame_type == AMP_MESSAGE)
                .then(|| Message { value: decode(&frame.payload), bytes: frame.payload.clone() });
            let is_it = |message: &Message| message.reply_to().as_deref() == Some(&letter.id[..]);
            if let Some(message) = message.filter(is_it) {
                return ((between == 0).then_some(us), message);
            }
            between += 1;
            frame = self.peer.frame();
        }
    }

    /// Microseconds until a question is refused with this code.
    #[track_caller]
    fn refused(&mut self, typ: u64, body: &Value, code: u64) -> Option<f64> {
        let (us, answer) = self.ask(typ, body);
        assert_eq!(answer.code(), Some(code), "{answer:?}");
        us
    }
}

/// The times of both situations, asked for in an order of chance. The first ones warm up.
fn pairs(count: usize, mut ask: impl FnMut(usize, usize) -> Option<f64>) -> Times {
    let mut times = [Vec::with_capacity(count), Vec::with_capacity(count)];
    let mut dice = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..count + count / 50 {
        // xorshift64: the order needs no more than that.
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        let first = (dice >> 40) as usize & 1;
        for which in [first, 1 - first] {
            if let Some(us) = ask(which, round).filter(|_| round >= count / 50) {
                times[which].push(us);
            }
        }
    }
    times
}

fn query(pattern: &str) -> Value {
    cbor!({ "filter" => { "capability" => pattern } }).unwrap()
}

fn of_names(count: usize, names: usize) -> Times {
    let mut world = World::new("");
    let name = |which: usize, number: usize| format!("{}{number}", NAMES[which]);
    world.serve((0..names).map(|number| name(0, number)));
    pairs(count, |which, round| {
        let name = name(which, round % names);
        let call = cbor!({ "capability" => name, "version" => "1.0.0", "params" => Value::Null }).unwrap();
        world.refused(CAP_INVOKE, &call, 3001)
    })
}

fn of_namespaces(count: usize) -> Times {
    let mut world = World::new("");
    world.serve((0..HIDDEN).map(|number| format!("org.crowd.a{number}")));
    let questions = ["org.crowd.*", "org.empty.*"].map(query);
    pairs(count, |which, _| world.refused(CAP_QUERY, &questions[which], 4002))
}

fn of_cursors(count: usize) -> Times {
    let mut world = World::new(
        "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.crowd.b1\", \"org.crowd.b2\", \"org.empty.*\"]\n",
    );
    let hidden = (0..HIDDEN).map(|number| format!("org.crowd.{}{number}", ["a", "b1x", "c"][number % 3]));
    let seen = ["org.crowd.b1", "org.crowd.b2", "org.empty.b1", "org.empty.b2"].map(str::to_owned);
    world.serve(hidden.chain(seen));
    let questions = ["org.crowd.*", "org.empty.*"].map(|pattern| {
        let mut question = query(pattern);
        set(&mut question, "limit", 1.into());
        let (_, page) = world.ask(CAP_QUERY, &question);
        set(&mut question, "cursor", field(page.body(), "next_cursor").expect("two pages").clone());
        question
    });
    pairs(count, |which, _| {
        let (us, page) = world.ask(CAP_QUERY, &questions[which]);
        assert!(field(page.body(), "capabilities").is_some(), "{page:?}");
        us
    })
}

fn of_counts(count: usize) -> Times {
    let mut world = World::new("");
    let question = query("*");
    // Situations last a while, so that it is what is served that is measured, and not that it changes. What one of them
    // took is one time, since questions in a row are not of each other's independent.
    pairs(count, |which, _| {
        let served = [HIDDEN, 1][which];
        world.serve((0..served).map(|number| format!("org.crowd.a{number}")));
        let times: Vec<_> = (0..LASTING).filter_map(|_| world.refused(CAP_QUERY, &question, 4002)).collect();
        times.get(WARM_UP..).filter(|times| !times.is_empty()).map(median)
    })
}

fn of_changes(count: usize) -> Times {
    let seed = peer::fresh_seed();
    let near = Identity::from_seed(seed).did().clone();
    let mut world =
        World::new(&format!("[[allow]]\ncallers = [\"{near}\"]\ncapabilities = [\"com.other.*\"]\n"));
    let mut near = RawLink::open_as(&world.sidecar, Transport::Tcp, seed);
    let names = |hidden: bool| {
        let known = (0..FEW).map(|number| format!("org.crowd.a{number}"));
        known.chain(hidden.then(|| "org.hidden.b".to_owned()))
    };
    let question = query("*");
    let mut is_hidden = false;
    pairs(count, |which, _| {
        // Declared again as it was, the sidecar has as much to read and nothing to change.
        is_hidden ^= which == 0;
        world.serve(names(is_hidden));
        // What the change left in the processor's caches is not the question's: somebody with other grants asks first.
        for _ in 0..WARM_UP {
            assert_eq!(near.ask(CAP_QUERY, question.clone()).code(), Some(4002));
        }
        world.peer.ping();
        world.refused(CAP_QUERY, &question, 4002)
    })
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
    assert!(!times.is_empty(), "nothing was measured");
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
