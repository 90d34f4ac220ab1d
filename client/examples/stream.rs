//! Follows a call while it runs: prints what the provider reports, then the result.
//!
//! `cargo run -p capd-client --example stream -- SOCKET NAME PARAMS`

use std::error::Error;

use capd_client::{CallRequest, Client, Endpoint, Options, Progress, Target};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, name, params] = args.as_slice() else {
        return Err(
            "usage: stream SOCKET NAME PARAMS, such as: stream /run/capd.sock org.example.words '{}'".into(),
        );
    };
    let client = Client::connect(Endpoint::Unix(socket.into()), Options::default()).await?;
    let result = follow(&client, name, serde_json::from_str(params)?, |line| println!("{line}")).await?;
    println!("result: {result}");
    client.close().await;
    Ok(())
}

/// Calls the highest release of `name` and passes each report to `on_line` as it arrives.
pub async fn follow(
    client: &Client,
    name: &str,
    params: Value,
    mut on_line: impl FnMut(String),
) -> Result<Value, Box<dyn Error>> {
    let mut handle = client.call(CallRequest::new(Target::newest(name.parse()?)).params_json(&params))?;
    // Whoever drops this future no longer wants the result, so the provider should stop.
    handle.cancel_on_drop();
    while let Some(progress) = handle.progress().await {
        on_line(match progress {
            Progress::Processing { status_text, .. } => status_text.unwrap_or_else(|| "started".to_owned()),
            Progress::Progress { pct } => format!("{pct} %"),
            Progress::InputRequired { prompt } => format!("waits for input: {prompt}"),
        });
    }
    handle.outcome().await?.json().ok_or_else(|| "the result is CBOR that JSON has no form for".into())
}
