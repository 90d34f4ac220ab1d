//! Provides the capabilities whose tools the official conformance suite of MCP calls.
//!
//! `cargo run -p capd-mcp --example conformance -- SOCKET`

use std::error::Error;

use bytes::Bytes;
use capd_client::proto::code::Code;
use capd_client::proto::message::{DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use capd_client::{Client, Endpoint, Invocation, Options, WireError, to_cbor};
use serde_json::{Value, json};

/// Each capability's name; its tool has `_` for `.`.
const NAMES: [&str; 8] = [
    "test.simple.text",
    "test.image.content",
    "test.audio.content",
    "test.embedded.resource",
    "test.multiple.content.types",
    "test.error.handling",
    "test.tool.with.progress",
    "json.schema.2020.12.tool",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).ok_or("usage: conformance SOCKET")?;
    let client = Client::connect(Endpoint::Unix(socket.into()), Options::default()).await?;
    client.serve(64, serve)?;
    let descriptors = NAMES.map(descriptor);
    client.declare(&descriptors.into_iter().collect::<Result<Vec<_>, _>>()?).await?;
    println!("serving");
    client.closed().await;
    Ok(())
}

fn descriptor(name: &str) -> Result<capd_client::proto::message::Descriptor, Box<dyn Error>> {
    let schema = |document: &str| {
        Some(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, document.as_bytes()))))
    };
    let input = if name.starts_with("json") { json_schema() } else { json!({"type": "object"}) };
    Ok(DescriptorDraft {
        input_schema: schema(&input.to_string()),
        output_schema: schema(capd_mcp::content::SCHEMA),
        description: Some(format!("The suite's {name}")),
        ..DescriptorDraft::new(format!("{name}:1.0.0").parse()?)
    }
    .finish()?)
}

fn json_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "additionalProperties": false,
    })
}

async fn serve(invocation: Invocation) -> Result<Bytes, WireError> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    let resource = |uri: &str, kind: &str, text: &str| json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}});
    let content = match invocation.capability.name.as_str() {
        "test.image.content" => json!([image]),
        "test.audio.content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test.embedded.resource" => {
            json!([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )])
        }
        "test.multiple.content.types" => json!([
            text("Multiple content types test:"),
            image,
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        "test.error.handling" => {
            let message = "This tool intentionally returns an error for testing";
            return Err(WireError::new(Code::INTERNAL_ERROR, message));
        }
        "test.tool.with.progress" => {
            for pct in [0, 50, 100] {
                // A report that is not sent is no reason to fail the call.
                let _ = invocation.reporter.progress(pct);
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            json!([text("done")])
        }
        _ => json!([text("This is a simple text response for testing.")]),
    };
    Ok(to_cbor(&json!({"content": content})))
}

/// One red point.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// No sound at all.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";
