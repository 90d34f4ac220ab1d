//! Provides a capability with types of its own; its sidecar may start later or restart.
//!
//! `cargo run -p capd-client --example typed_provide -- SOCKET`

use std::error::Error;

use capd_client::{Agent, Capability, ClientError, Endpoint, Invocation, Options, WireError};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What is asked.
#[derive(Deserialize)]
struct Request {
    text: String,
}

/// What is answered.
#[derive(Serialize)]
struct Response {
    words: u64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket] = args.as_slice() else {
        return Err("usage: typed_provide SOCKET, such as: typed_provide /run/capd.sock".into());
    };
    println!("serving org.example.words:1.0.0");
    agent()?.serve(Endpoint::Unix(socket.into()), Options::default(), std::future::pending()).await?;
    Ok(())
}

/// An agent that counts words.
pub fn agent() -> Result<Agent, ClientError> {
    let words = Capability::new("org.example.words", "1.0.0")?
        .description("Counts the words of a text")
        // Counting twice does no harm, so the sidecar need not journal these calls.
        .idempotent(true)
        .input_schema(&json!({
            "type": "object", "required": ["text"], "properties": {"text": {"type": "string"}},
        }))
        .output_schema(&json!({
            "type": "object", "required": ["words"], "properties": {"words": {"type": "integer"}},
        }));
    Agent::new().calls_max(8).capability(words, count)
}

/// Serves one call. When it is cancelled, this future is dropped at its next await.
async fn count(request: Request, call: Invocation) -> Result<Response, WireError> {
    // A report that is not sent is no reason to fail the call.
    let _ = call.reporter.processing(Some("counting"), None);
    let mut words = 0_u64;
    for _word in request.text.split_whitespace() {
        words += 1;
        if words.is_multiple_of(WORDS_AT_ONCE) {
            // Lets the client's other tasks run, among them the one that hears of a cancel.
            tokio::task::yield_now().await;
        }
    }
    Ok(Response { words })
}

/// Words that are counted without a pause.
const WORDS_AT_ONCE: u64 = 10_000;
