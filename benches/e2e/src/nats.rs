//! Requests through a broker in, and the broker itself; replies out.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::Value;

use crate::load::Callee;
use crate::payload::{Results, request, response_bytes};
use crate::role::{Ready, done, ready, rounds, say};

/// Runs the broker on a port that the system gives.
pub(crate) async fn broker(files: &Path, program: &Path) {
    let mut broker = tokio::process::Command::new(program)
        .args(["--addr", "127.0.0.1", "--port", "-1", "--ports_file_dir"])
        .arg(files)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut ticks = tokio::time::interval(TICK);
    let address = loop {
        ticks.tick().await;
        assert!(broker.try_wait().unwrap().is_none(), "{} ended", program.display());
        if let Some(address) = address(files) {
            break address;
        }
    };
    say(&Ready { pid: broker.id().expect("it runs"), address });
    done().await;
    broker.kill().await.unwrap();
}

/// Where the broker listens, once all of that is written.
fn address(files: &Path) -> Option<String> {
    let mut entries = std::fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path());
    let path = entries.find(|path| path.extension().is_some_and(|extension| extension == "ports"))?;
    let ports: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    ports["nats"][0].as_str().map(str::to_owned)
}

/// Answers requests.
pub(crate) async fn provider(to: &str) {
    let client = async_nats::connect(to).await.unwrap();
    let mut requests = client.subscribe(SUBJECT).await.unwrap();
    // What was subscribed is known to the broker before anybody calls.
    client.flush().await.unwrap();
    tokio::spawn(async move {
        let results = Results::default();
        while let Some(message) = requests.next().await {
            let Some(reply) = message.reply else { continue };
            client.publish(reply, results.of(message.payload.len())).await.unwrap();
        }
    });
    ready("");
    done().await;
}

/// Makes them.
pub(crate) async fn caller(to: &str) {
    let client = async_nats::connect(to).await.unwrap();
    rounds(&Caller { client, params: Bytes::new() }).await;
}

#[derive(Clone)]
struct Caller {
    client: Client,
    params: Bytes,
}

impl Callee for Caller {
    fn sized(&self, bytes: usize) -> Self {
        Self { params: request(bytes), ..self.clone() }
    }

    async fn call(&mut self) {
        let reply = self.client.request(SUBJECT, self.params.clone()).await.unwrap();
        assert_eq!(reply.payload.len(), response_bytes(self.params.len()));
    }
}

const SUBJECT: &str = "e2e.call";
/// How often it is looked whether the broker listens.
const TICK: Duration = Duration::from_millis(20);
