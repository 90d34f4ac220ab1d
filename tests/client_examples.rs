//! The examples of `capd-client` beside a real sidecar: one provides, the others call it.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "an example's main stands unused here")]

#[path = "../client/examples/call.rs"]
mod call;
#[path = "../client/examples/provide.rs"]
mod provide;
#[path = "../client/examples/stream.rs"]
mod stream;
mod support;

use capd_client::{Client, Endpoint, Options};
use serde_json::json;
use support::{PATIENCE, Sidecar};
use tokio::time::timeout;

async fn client_of(sidecar: &Sidecar) -> Client {
    Client::connect(Endpoint::Unix(sidecar.socket.clone()), Options::default()).await.unwrap()
}

#[tokio::test]
async fn the_examples_provide_call_and_follow() {
    let sidecar = Sidecar::start();
    let (provider, caller) = (client_of(&sidecar).await, client_of(&sidecar).await);
    provide::provide(&provider).await.unwrap();

    let words = call::call(&caller, "org.example.words", json!({"text": "exactly one result"}));
    assert_eq!(timeout(PATIENCE, words).await.unwrap().unwrap(), json!({"words": 3}));
    // The sidecar holds the params against the schema that the example declared.
    let refused = timeout(PATIENCE, call::call(&caller, "org.example.words", json!({}))).await.unwrap();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.starts_with("refused, nothing was executed: 4004"), "{refused}");

    let mut lines = Vec::new();
    let text = "word ".repeat(30_000);
    let followed =
        stream::follow(&caller, "org.example.words", json!({"text": text}), |line| lines.push(line));
    assert_eq!(timeout(PATIENCE, followed).await.unwrap().unwrap(), json!({"words": 30_000}));
    assert!(lines.ends_with(&["counting", "33 %", "66 %", "100 %"].map(str::to_owned)), "{lines:?}");
}
