//! Implements `cancel`, `ping` and `id`: one small request in, its answer on stdout out.

use capd::client::CancelState;
use serde_json::json;

use crate::args::{CancelArgs, PingArgs};
use crate::failure::{Exit, Failure};
use crate::{Sidecar, names, output};

/// Prints the DID of the sidecar's agent.
pub(crate) async fn id(sidecar: &Sidecar, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect().await?;
    let did = client.did();
    if json { output::print_json(&json!({"did": did.as_str()})) } else { output::print(did.as_str()) }
}

/// Asks for a call to be cancelled, and prints what became of that.
pub(crate) async fn cancel(sidecar: &Sidecar, args: CancelArgs, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect().await?;
    let state = client.cancel(args.id).await?;
    if state == CancelState::Unknown {
        return Err(
            Failure::usage(format!("{}: this agent has made no such call", args.id)).exit(Exit::Refused)
        );
    }
    let target = args.id.to_string();
    if json {
        output::print_json(&json!({"target": target, "state": state.as_str()}))
    } else {
        output::print(state.as_str())
    }
}

/// Measures round trips one after the other.
pub(crate) async fn ping(sidecar: &Sidecar, args: PingArgs, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect_for_people().await?;
    let to = match &args.peer {
        Some(peer) => names::find(&client, peer).await?,
        None => client.did().clone(),
    };
    for number in 1..=args.count {
        let round_trip = crate::peers::ping(&client, &to, args.timeout).await?;
        let ms = round_trip.as_secs_f64() * 1_000.0;
        if json {
            output::print_json(&json!({"to": to.as_str(), "number": number, "round_trip_ms": ms}))?;
        } else {
            output::print(&format!("{}: {ms:.3} ms", names::shown(to.as_str())))?;
        }
    }
    Ok(())
}
