//! Calls a capability with types of its own, and decides by the outcome.
//!
//! `cargo run -p capd-client --example typed_call -- SOCKET TEXT`

use std::error::Error;
use std::time::Duration;

use capd_client::{CallOptions, Client, ClientError, Endpoint, Options, Outcome};
use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Serialize)]
struct Request<'a> {
    text: &'a str,
}

/// What is answered.
#[derive(Debug, Deserialize)]
struct Response {
    words: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, text] = args.as_slice() else {
        return Err("usage: typed_call SOCKET TEXT, such as: typed_call /run/capd.sock 'one two'".into());
    };
    // Waits for a sidecar that has not started yet.
    let client = Client::connect_within(Endpoint::Unix(socket.into()), Options::default()).await?;
    match count(&client, text, "count-1").await {
        Ok(words) => println!("{words} words"),
        Err(error) => println!("{}: {error}", advice(&error)),
    }
    client.close().await;
    Ok(())
}

/// Counts the words of `text`, once for each `key`.
pub async fn count(client: &Client, text: &str, key: &str) -> Result<u64, ClientError> {
    let options = CallOptions {
        version: Some(">=1.0.0 <2.0.0".to_owned()),
        timeout: Some(Duration::from_secs(10)),
        key: Some(key.to_owned()),
        ..CallOptions::default()
    };
    let response: Response = client.call_typed("org.example.words", &Request { text }, options).await?;
    Ok(response.words)
}

/// What to do about an error.
pub fn advice(error: &ClientError) -> &'static str {
    match error.outcome() {
        Outcome::Refused => "nothing was executed; fix the cause and call again",
        Outcome::Failed => "it ran and failed",
        Outcome::Unknown => "look at the effect first; the same key never runs it twice",
        Outcome::Pending => "it may still run; ask again with the same key",
    }
}
