//! Provides a capability: counts the words of a text, reports progress, and stops when the call is cancelled.
//!
//! `cargo run -p capd-client --example provide -- SOCKET`

use std::error::Error;

use bytes::Bytes;
use capd_client::proto::code::Code;
use capd_client::proto::message::{DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use capd_client::{Client, Endpoint, Invocation, Options, WireError, to_cbor};
use serde_json::json;

const INPUT: &str = r#"{"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}"#;
const OUTPUT: &str =
    r#"{"type": "object", "required": ["words"], "properties": {"words": {"type": "integer"}}}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket] = args.as_slice() else {
        return Err("usage: provide SOCKET, such as: provide /run/capd.sock".into());
    };
    let client = Client::connect(Endpoint::Unix(socket.into()), Options::default()).await?;
    provide(&client).await?;
    println!("serving org.example.words:1.0.0 until the sidecar stops");
    println!("the link closed: {}", client.closed().await);
    Ok(())
}

/// Serves `org.example.words:1.0.0` for as long as `client` lives, at most 8 calls at once.
pub async fn provide(client: &Client) -> Result<(), Box<dyn Error>> {
    let descriptor = DescriptorDraft {
        input_schema: Some(schema(INPUT)),
        output_schema: Some(schema(OUTPUT)),
        // Counting twice does no harm, so the sidecar need not journal these calls.
        idempotent: Some(true),
        description: Some("Counts the words of a text".to_owned()),
        ..DescriptorDraft::new("org.example.words:1.0.0".parse()?)
    }
    .finish()?;
    client.serve(8, count_words)?;
    client.declare(&[descriptor]).await?;
    Ok(())
}

fn schema(document: &str) -> SchemaSource {
    SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, document.as_bytes())))
}

/// Serves one call. The sidecar has validated the params, and validates the result.
async fn count_words(invocation: Invocation) -> Result<Bytes, WireError> {
    let params = invocation.json()?;
    let text = params["text"].as_str().unwrap_or_default();
    // A report that is not sent is no reason to fail the call.
    let _ = invocation.reporter.processing(Some("counting"), None);
    let (mut words, mut read) = (0_u64, 0);
    for word in text.split_whitespace() {
        if invocation.cancelled.is_cancelled() {
            return Err(WireError::new(Code::CANCELLED, "cancelled while counting"));
        }
        words += 1;
        read += word.len() + 1;
        if words.is_multiple_of(WORDS_PER_REPORT) {
            let pct = u8::try_from(read * 100 / text.len()).map_or(100, |pct| pct.min(100));
            let _ = invocation.reporter.progress(pct);
            // Lets the client's other tasks run, among them the one that hears of a cancel.
            tokio::task::yield_now().await;
        }
    }
    Ok(to_cbor(&json!({"words": words})))
}

/// Words between two reports.
const WORDS_PER_REPORT: u64 = 10_000;
