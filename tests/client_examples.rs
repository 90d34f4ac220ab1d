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
#[path = "../client/examples/typed_call.rs"]
mod typed_call;
#[path = "../client/examples/typed_provide.rs"]
mod typed_provide;

use capd_client::proto::capability::CapabilityName;
use capd_client::{Client, Endpoint, Options, Outcome, Query};
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

#[tokio::test]
async fn the_typed_examples_provide_and_call() {
    let sidecar = Sidecar::start();
    let caller = client_of(&sidecar).await;
    let refused = timeout(PATIENCE, typed_call::count(&caller, "one two", "a")).await.unwrap();
    assert_eq!(refused.as_ref().map_err(capd_client::ClientError::outcome), Err(Outcome::Refused));
    assert!(typed_call::advice(&refused.unwrap_err()).starts_with("nothing was executed"));

    let place = Endpoint::Unix(sidecar.socket.clone());
    let agent = typed_provide::agent().unwrap();
    let serving = agent.serve(place, Options::default(), std::future::pending());
    let calls = async {
        let query = Query::new("org.example.words".parse::<CapabilityName>().unwrap());
        while caller.query(&query).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(typed_call::count(&caller, "exactly one result", "a").await, Ok(3));
        // The key stands for the call that was made, which is not made again.
        assert_eq!(typed_call::count(&caller, "exactly one result", "a").await, Ok(3));
    };
    tokio::select! {
        ended = serving => panic!("{ended:?}"),
        done = timeout(PATIENCE, calls) => done.expect("it ends"),
    }
}
