//! Reloads beside calls: configurations drawn at random in; every call's one answer, whole files only, and flat memory out.
//!
//! `CAPD_RELOADS` says how many reloads to make; docs/evidence/reload.md has the figures of ten thousand.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(clippy::disallowed_methods, reason = "real processes are waited for in real time")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use capd::client::{CallRequest, Client, ClientError, Endpoint, Invocation, Options, Target, WireError};
use capd_proto::message::{Descriptor, DescriptorDraft, MetricValue};
use serde_json::json;
use support::{PATIENCE, Setup, Sidecar};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Calls in flight.
const CALLERS: usize = 64;
/// Reloads in the gate.
const RELOADS_DEFAULT: u64 = 150;
/// Memory that a sidecar may keep of all its reloads, after the first tenth of them. **Units:** KiB.
const GROWTH_KIB_MAX: u64 = 12 * 1024;

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Bytes, WireError>> + Send>>;

/// A sequence that looks random and is the same each time.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn flip(&mut self) -> bool {
        self.next(2) == 0
    }
}

/// How often each call ran, by its number.
type Runs = Arc<Mutex<BTreeMap<u64, u64>>>;

async fn client_of(socket: &Path) -> Client {
    Client::connect(Endpoint::Unix(socket.to_owned()), Options::default()).await.unwrap()
}

/// An agent that serves these and counts how often each call runs. None may run twice.
async fn serve(socket: &Path, ids: &[&str], runs: &Runs) -> Client {
    let client = client_of(socket).await;
    let runs = Arc::clone(runs);
    let handler = move |invocation: Invocation| -> Answer {
        let number = invocation.json().unwrap()["number"].as_u64().unwrap();
        *runs.lock().unwrap().entry(number).or_default() += 1;
        Box::pin(async move { Ok(invocation.params.clone()) })
    };
    client.serve(256, handler).unwrap();
    let descriptors: Vec<Descriptor> =
        ids.iter().map(|id| DescriptorDraft::new(id.parse().unwrap()).finish().unwrap()).collect();
    client.declare(&descriptors).await.unwrap();
    client
}

/// The files of the sidecar that reloads.
struct Files {
    dir: PathBuf,
    head: String,
    /// A peer that always serves, and one that comes and goes.
    stays: String,
    goes: String,
    caller: String,
}

impl Files {
    /// Writes one of many configurations, whole: by a new name, renamed. Of two limits one is always a thousand above the
    /// other, which shows a half-applied file.
    fn write(&self, dice: &mut Dice) {
        let mut text = self.head.clone();
        let calls = 2_000 + dice.next(1_000);
        text += &format!(
            "[limits]\ndenied_rate_per_peer = \"off\"\ncalls_in_flight_max = {calls}\nrequests_waiting_max = {}\ncalls_in_flight_per_peer_max = {}\n",
            calls + 1_000,
            500 + dice.next(500),
        );
        for (key, values) in [
            ("call_rate_per_peer", ["\"off\"", "\"1000000/1s\"", "\"900000/1s burst 90000\""]),
            ("ledger_entries_max", ["1000000", "900000", "800000"]),
            ("links_max", ["1024", "64", "512"]),
            ("handshake_rate_per_address", ["\"off\"", "\"1000/1s burst 2000\"", "\"900/1s burst 1000\""]),
        ] {
            text += &format!("{key} = {}\n", values[usize::try_from(dice.next(3)).unwrap()]);
        }
        text += &format!("[timeouts]\ncall_ms = {}\n", 40_000 + dice.next(9) * 1_000);
        text += &format!(
            "[log]\nlevel = {:?}\n",
            ["info", "warn", "debug"][usize::try_from(dice.next(3)).unwrap()]
        );
        text += &self.stays;
        if dice.next(3) > 0 {
            let serves = if dice.flip() { "[\"org.goes.*\"]" } else { "[\"org.goes.echo\", \"org.more.*\"]" };
            text += &format!("{}serves = {serves}\n", self.goes);
        }
        text += &format!("[[peers]]\ndid = {:?}\n", self.caller);
        text += "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.own.kept\"]\n";
        if dice.flip() {
            text += "[[allow]]\ncallers = [\"group:some\"]\ncapabilities = [\"org.own.*\"]\n";
            text += &format!("[[groups]]\nname = \"some\"\nmembers = [{:?}]\n", self.caller);
        }
        let mut yaml = "version: 1\nnamespace: org.own\ncapabilities:\n".to_owned();
        for name in ["one", "two", "three", "four"] {
            if dice.flip() {
                let words = if dice.flip() { "cat" } else { "cat, \"-\"" };
                yaml += &format!("  - {{ name: {name}, command: [{words}] }}\n");
            }
        }
        if yaml.ends_with("capabilities:\n") {
            yaml += "  - { name: one, command: [cat] }\n";
        }
        replace(&self.dir.join("capabilities.yaml"), &yaml);
        replace(&self.dir.join("capd.toml"), &text);
    }
}

fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, path).unwrap();
}

/// One kind of call, and the codes that may refuse it.
#[derive(Clone)]
struct Kind {
    client: Client,
    name: &'static str,
    refusals: &'static [u32],
}

/// What became of all calls.
#[derive(Default)]
struct Tally {
    next: AtomicU64,
    succeeded: AtomicU64,
    refused: AtomicU64,
}

/// Calls until it is over, one call at a time. Each call ends as it may, and ran as often as its answer says.
async fn call_on(kind: Kind, tally: Arc<Tally>, runs: Runs, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        let number = tally.next.fetch_add(1, Ordering::Relaxed);
        let request = CallRequest::new(Target::newest(kind.name.parse().unwrap()))
            .params_json(&json!({ "number": number }))
            .timeout(Duration::from_secs(30))
            // What is remembered of a call is not what is measured.
            .ttl(Duration::from_secs(40));
        let handle = kind.client.call(request).unwrap();
        let outcome = timeout(PATIENCE, handle.outcome()).await.expect("every call has an answer");
        // A command's runs are not counted.
        let is_counted = !kind.name.starts_with("org.own.t") && !kind.name.starts_with("org.own.o");
        let ran = runs.lock().unwrap().remove(&number).unwrap_or(0);
        match outcome {
            Ok(answer) => {
                assert_eq!(answer.json().unwrap()["number"], number);
                assert!(ran == 1 || !is_counted, "{} {number} ran {ran} times", kind.name);
                tally.succeeded.fetch_add(1, Ordering::Relaxed);
            }
            Err(ClientError::Refused(wire)) if kind.refusals.contains(&wire.code.0) => {
                assert_eq!(ran, 0, "{} {number} was refused with {wire:?}, and ran", kind.name);
                tally.refused.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => panic!("{} {number} is lost: {error:?}", kind.name),
        }
    }
}

/// Reads two limits that belong together, until it is over.
async fn look(client: Client, is_over: Arc<AtomicBool>) -> u64 {
    let mut looks = 0;
    while !is_over.load(Ordering::Relaxed) {
        let families = client.metrics().await.unwrap();
        let limits = families.iter().find(|family| family.name == "capd_limit_max").unwrap();
        let of = |key: &str| {
            let is_it = |labels: &[(std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)]| {
                labels.iter().any(|(_, value)| value == key)
            };
            let sample = limits.samples.iter().find(|sample| is_it(&sample.labels)).unwrap();
            match sample.value {
                MetricValue::Uint(value) => value,
                MetricValue::Float(value) => panic!("{value}"),
            }
        };
        let (calls, waiting) = (of("limits.calls_in_flight_max"), of("limits.requests_waiting_max"));
        assert_eq!(waiting, calls + 1_000, "half of a file is applied");
        looks += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    looks
}

#[tokio::test]
async fn no_call_is_lost_and_no_file_half_applied_whatever_is_reloaded() {
    let reloads: u64 = std::env::var("CAPD_RELOADS").map_or(RELOADS_DEFAULT, |text| text.parse().unwrap());
    let runs = Runs::default();
    let (stays, goes) = (Sidecar::start(), Sidecar::start());
    let _served = [
        serve(&stays.socket, &["org.stays.echo:1.0.0"], &runs).await,
        serve(&goes.socket, &["org.goes.echo:1.0.0"], &runs).await,
    ];
    let sidecar = Setup::new()
        .logs_as_its_file_says()
        .capabilities("version: 1\nnamespace: org.own\ncapabilities:\n  - { name: one, command: [cat] }\n")
        .start();
    let own = serve(&sidecar.socket, &["org.own.kept:1.0.0", "org.own.some:1.0.0"], &runs).await;
    let caller = Setup::new().peer(&sidecar).start();
    let peer = |peer: &Sidecar| {
        format!(
            "[[peers]]\ndid = {:?}\naddresses = [\"quic://{}\", \"tcp://{}\"]\n",
            peer.did,
            peer.quic.unwrap(),
            peer.tcp.unwrap()
        )
    };
    let listen = "[listen]\nquic = \"127.0.0.1:0\"\ntcp = \"127.0.0.1:0\"\nlocal_tcp = \"127.0.0.1:0\"\ntoken_plain = \"on\"\n";
    let files = Files {
        head: format!(
            "[agent]\ndir = {:?}\ncapabilities = {:?}\n{listen}",
            sidecar.dir.join("state"),
            sidecar.dir.join("capabilities.yaml")
        ),
        dir: sidecar.dir.clone(),
        stays: peer(&stays) + "serves = [\"org.stays.*\"]\n",
        goes: peer(&goes),
        caller: caller.did.clone(),
    };
    let mut dice = Dice(7);
    files.write(&mut dice);
    let control = client_of(&sidecar.socket).await;
    assert!(control.reload(false).await.unwrap().applied);

    let far = client_of(&caller.socket).await;
    // 4002: nobody serves it at this moment; 2002: its peer is not linked yet; 3001: it is not granted.
    let kinds = [
        Kind { client: own.clone(), name: "org.stays.echo", refusals: &[] },
        Kind { client: far.clone(), name: "org.own.kept", refusals: &[] },
        Kind { client: own.clone(), name: "org.goes.echo", refusals: &[4002, 2002, 2001] },
        Kind { client: far.clone(), name: "org.own.some", refusals: &[4002, 3001] },
        Kind { client: own.clone(), name: "org.own.two", refusals: &[4002] },
    ];
    // What always holds is there from the beginning.
    for kind in &kinds[..2] {
        let deadline = Instant::now() + PATIENCE;
        let request = || {
            CallRequest::new(Target::newest(kind.name.parse().unwrap()))
                .params_json(&json!({"number": u64::MAX}))
        };
        while kind.client.call(request()).unwrap().outcome().await.is_err() {
            assert!(Instant::now() < deadline, "{}", sidecar.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    runs.lock().unwrap().clear();

    let (tally, is_over) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let mut calling = JoinSet::new();
    for number in 0..CALLERS {
        // Commands are processes: few of them at once.
        let kind = if number < 2 { 4 } else { number % 4 };
        calling.spawn(call_on(
            kinds[kind].clone(),
            Arc::clone(&tally),
            Arc::clone(&runs),
            Arc::clone(&is_over),
        ));
    }
    let looking = tokio::spawn(look(client_of(&sidecar.socket).await, Arc::clone(&is_over)));
    let begun = Instant::now();
    let mut early_kib = 0;
    let mut changes = 0;
    for number in 0..reloads {
        files.write(&mut dice);
        let reloaded = control.reload(false).await.unwrap();
        assert!(reloaded.applied, "{reloaded:?}");
        changes += reloaded.changes.len();
        if number % 16 == 0 {
            let left = control.reload(true).await.unwrap();
            assert!(left.changes.is_empty(), "all of the file is applied: {left:?}");
        }
        if number == reloads / 10 {
            early_kib = sidecar.memory_kib();
        }
        if let Some(ended) = calling.try_join_next() {
            ended.unwrap();
            panic!("a caller ended");
        }
        // Links need a moment to come and go, or no peer ever serves.
        if number % 8 == 0 {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    let took = begun.elapsed();
    let late_kib = sidecar.memory_kib();
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = calling.join_next().await {
        ended.unwrap();
    }
    let looks = looking.await.unwrap();
    let (succeeded, refused) =
        (tally.succeeded.load(Ordering::Relaxed), tally.refused.load(Ordering::Relaxed));
    println!(
        "{reloads} reloads with {changes} changes in {took:.1?} beside {CALLERS} calls in flight: {succeeded} calls succeeded, \
         {refused} were refused, 0 lost; {looks} looks at two limits, 0 torn; memory {early_kib} KiB after a tenth, \
         {late_kib} KiB at the end"
    );
    assert!(succeeded > reloads && refused > 0 && looks > 10, "{succeeded} {refused} {looks}");
    assert!(late_kib < early_kib + GROWTH_KIB_MAX, "{early_kib} KiB became {late_kib} KiB");
    assert!(runs.lock().unwrap().is_empty(), "calls ran that nobody has an answer of");
}
