//! The two agents: a provider that answers at once, and a caller that does rounds as it is told on standard input.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use capd::client::{CallRequest, Client, Endpoint, Invocation, Options, Target, WireError};
use capd_proto::message::DescriptorDraft;
use serde_json::{Value, json};

/// The capability that is declared idempotent, so that its calls are not journaled.
pub(crate) const UNJOURNALED: &str = "org.example.unjournaled:1.0.0";
/// The capability that is not, so that they are.
pub(crate) const JOURNALED: &str = "org.example.journaled:1.0.0";
/// Bytes of a call's params: one CBOR byte string.
pub(crate) const REQUEST_BYTES: usize = 400;
/// Bytes of its result: one CBOR byte string.
pub(crate) const RESPONSE_BYTES: usize = 300;

/// How a round went, as the caller tells it.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    pub(crate) calls: u64,
    pub(crate) seconds: f64,
    /// **Units:** microseconds.
    pub(crate) p50_us: f64,
    /// **Units:** microseconds.
    pub(crate) p99_us: f64,
}

impl Round {
    pub(crate) fn parse(line: &str) -> Self {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        Self {
            calls: value["calls"].as_u64().unwrap(),
            seconds: value["seconds"].as_f64().unwrap(),
            p50_us: value["p50_us"].as_f64().unwrap(),
            p99_us: value["p99_us"].as_f64().unwrap(),
        }
    }

    pub(crate) fn calls_per_s(&self) -> f64 {
        self.calls as f64 / self.seconds
    }
}

/// Serves both capabilities, says `ready`, and answers each line on standard input with the number of executions.
pub(crate) fn provider(socket: &Path) {
    let executions = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&executions);
    let result = item(RESPONSE_BYTES);
    let handler = move |invocation: Invocation| {
        counted.fetch_add(1, Ordering::Relaxed);
        let is_whole = invocation.params.len() == REQUEST_BYTES;
        let result = result.clone();
        async move {
            assert!(is_whole, "the params are what was sent");
            Ok::<_, WireError>(result)
        }
    };
    let runtime = runtime();
    let _client = runtime.block_on(async {
        let client = client(socket).await;
        client.serve(CALLS_MAX, handler).unwrap();
        let descriptors = [(UNJOURNALED, true), (JOURNALED, false)].map(|(id, idempotent)| {
            let draft = DescriptorDraft::new(id.parse().unwrap());
            DescriptorDraft { idempotent: Some(idempotent), ..draft }.finish().unwrap()
        });
        client.declare(&descriptors).await.unwrap();
        client
    });
    let reading = std::thread::spawn(move || {
        say("ready");
        for _line in std::io::stdin().lock().lines() {
            say(&executions.load(Ordering::Relaxed).to_string());
        }
    });
    runtime.block_on(async {
        while !reading.is_finished() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// Does a round for each line `capability in_flight milliseconds ttl_seconds`, and answers with its [`Round`].
pub(crate) fn caller(socket: &Path) {
    let runtime = runtime();
    let client = runtime.block_on(client(socket));
    say("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        let [capability, in_flight, milliseconds, ttl] = words[..] else { panic!("{line:?} is no round") };
        let (in_flight, milliseconds) = (in_flight.parse().unwrap(), milliseconds.parse().unwrap());
        let request = request(capability, Duration::from_secs(ttl.parse().unwrap()));
        let (seconds, mut latencies) =
            runtime.block_on(round(&client, &request, in_flight, Duration::from_millis(milliseconds)));
        latencies.sort_unstable();
        let at = |part: f64| {
            let index = ((latencies.len() - 1) as f64 * part).round() as usize;
            latencies[index].as_secs_f64() * 1e6
        };
        let answer = json!({
            "calls": latencies.len(), "seconds": seconds, "p50_us": at(0.5), "p99_us": at(0.99),
        });
        say(&answer.to_string());
    }
}

/// Keeps `in_flight` calls going for `time`; gives the seconds it took to end them all, and each call's time.
async fn round(
    client: &Client,
    request: &CallRequest,
    in_flight: usize,
    time: Duration,
) -> (f64, Vec<Duration>) {
    let begin = Instant::now();
    let callers = (0..in_flight).map(|_| {
        let (client, request) = (client.clone(), request.clone());
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            while begin.elapsed() < time {
                let sent = Instant::now();
                let outcome = client.call(request.clone()).unwrap().outcome().await;
                latencies.push(sent.elapsed());
                let answer = outcome.unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(answer.result.len(), RESPONSE_BYTES, "the result is what the provider gave");
            }
            latencies
        })
    });
    let callers: Vec<_> = callers.collect();
    let mut latencies = Vec::new();
    for caller in callers {
        latencies.extend(caller.await.unwrap());
    }
    (begin.elapsed().as_secs_f64(), latencies)
}

fn request(capability: &str, ttl: Duration) -> CallRequest {
    let target = Target::Id(capability.parse().unwrap());
    CallRequest::new(target).params_cbor(item(REQUEST_BYTES)).timeout(Duration::from_secs(30)).ttl(ttl)
}

/// One CBOR byte string of so many bytes, its head included.
fn item(bytes: usize) -> Bytes {
    let length = u16::try_from(bytes - 3).unwrap();
    let mut item = vec![0x59];
    item.extend_from_slice(&length.to_be_bytes());
    item.resize(bytes, 0x5a);
    item.into()
}

async fn client(socket: &Path) -> Client {
    Client::connect(Endpoint::Unix(socket.to_owned()), Options::default()).await.unwrap()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).unwrap();
}

/// Calls that the provider takes at once.
const CALLS_MAX: usize = 1_024;
