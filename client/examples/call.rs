//! Calls a capability and prints its result as JSON.
//!
//! `cargo run -p capd-client --example call -- SOCKET NAME PARAMS`

use std::error::Error;
use std::time::Duration;

use capd_client::{CallRequest, Client, ClientError, Endpoint, Options, Target};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, name, params] = args.as_slice() else {
        return Err(
            "usage: call SOCKET NAME PARAMS, such as: call /run/capd.sock org.example.words '{}'".into()
        );
    };
    let client = Client::connect(Endpoint::Unix(socket.into()), Options::default()).await?;
    println!("{}", call(&client, name, serde_json::from_str(params)?).await?);
    client.close().await;
    Ok(())
}

/// Calls the highest release of `name`, and asks once more when no answer came in time.
pub async fn call(client: &Client, name: &str, params: Value) -> Result<Value, Box<dyn Error>> {
    let target = Target::newest(name.parse()?);
    let request = CallRequest::new(target).params_json(&params).timeout(Duration::from_secs(10));
    let handle = client.call(request.clone())?;
    let id = handle.id();
    let outcome = match handle.outcome().await {
        // The call may have run. Under the same id it runs at most once, and its recorded result comes back.
        Err(ClientError::Timeout { .. }) => client.call(request.id(id))?.outcome().await,
        outcome => outcome,
    };
    match outcome {
        Ok(answer) => answer.json().ok_or_else(|| "the result is CBOR that JSON has no form for".into()),
        Err(ClientError::Refused(error)) => Err(format!("refused, nothing was executed: {error}").into()),
        Err(ClientError::Result(error)) => Err(format!("the provider failed: {error}").into()),
        Err(error) => Err(error.into()),
    }
}
