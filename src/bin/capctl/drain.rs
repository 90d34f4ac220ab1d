//! Implements `drain`: a running sidecar in; one that takes no new calls and has none in flight, out. With `--retire`, one that no
//! caller needs any more.

use std::time::Duration;

use capd_proto::message::Draining;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::args::DrainArgs;
use crate::failure::{Exit, Failure};
use crate::{Sidecar, output, time};

/// Drains the sidecar, and waits until nothing is in flight, and, where it is to be retired, nothing is remembered that a caller may
/// ask for. Progress goes to stderr.
pub(crate) async fn run(sidecar: &Sidecar, args: DrainArgs, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect().await?;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut before = None;
    loop {
        let draining = if args.retire { client.retire().await? } else { client.drain().await? };
        if draining.made + draining.executing + draining.remembered == 0 {
            return match (json, args.retire) {
                (true, retire) => output::print_json(&document(draining, retire)),
                (false, false) => output::print(
                    "drained: no calls are in flight, and no new ones are taken until capd is started again",
                ),
                (false, true) => output::print(
                    "retired: no caller needs this sidecar any more; stop capd, and delete its agent.dir if you like",
                ),
            };
        }
        if before.replace(draining) != Some(draining) && !json {
            output::note(&told(draining));
        }
        let now = Instant::now();
        let left = deadline.map_or(POLL_INTERVAL, |deadline| deadline.saturating_duration_since(now));
        if left.is_zero() {
            if json {
                output::print_json(&document(draining, args.retire))?;
            }
            return Err(late(draining));
        }
        sleep(left.min(POLL_INTERVAL)).await;
    }
}

fn told(draining: Draining) -> String {
    let Draining { made, executing, remembered, until_ms } = draining;
    let in_flight =
        format!("{} in flight: {executing} executed here, {made} made by the agent", made + executing);
    match until_ms {
        Some(until_ms) => format!(
            "{in_flight}; {remembered} whose results were not fetched, remembered until {} at the latest",
            time::utc(until_ms)
        ),
        None => in_flight,
    }
}

fn late(draining: Draining) -> Failure {
    let Draining { made, executing, remembered, .. } = draining;
    if made + executing == 0 && remembered > 0 {
        return Failure::unexpected(format!("out of time with calls that callers may ask for: {}", told(draining)))
            .exit(Exit::Unavailable)
            .hint("keep capd running, and wait again with capctl drain --retire; a caller whose result is lost gets 5902");
    }
    Failure::unexpected(format!("out of time with calls in flight: {}", told(draining)))
        .exit(Exit::Unavailable)
        .hint("new calls are refused all the same; wait again with capctl drain, or stop capd, which waits timeouts.drain_ms")
}

fn document(draining: Draining, retire: bool) -> serde_json::Value {
    let Draining { made, executing, remembered, until_ms } = draining;
    let mut document = json!({"drained": made + executing == 0, "made": made, "executing": executing});
    if retire {
        document["retired"] = json!(made + executing + remembered == 0);
        document["remembered"] = json!(remembered);
        document["until"] = json!(until_ms.map(time::utc));
    }
    document
}

/// Between two looks at what is in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
