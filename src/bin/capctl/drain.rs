//! Implements `drain`: a running sidecar in; one that takes no new calls and has none in flight, out.

use std::time::Duration;

use capd_proto::message::Draining;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::args::DrainArgs;
use crate::failure::{Exit, Failure};
use crate::{Sidecar, output};

/// Drains the sidecar, and waits until nothing is in flight. Progress goes to stderr.
pub(crate) async fn run(sidecar: &Sidecar, args: DrainArgs, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect().await?;
    let deadline = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut before = None;
    loop {
        let draining = client.drain().await?;
        if draining.made + draining.executing == 0 {
            return if json {
                output::print_json(&document(draining))
            } else {
                output::print(
                    "drained: no calls are in flight, and no new ones are taken until capd is started again",
                )
            };
        }
        if before.replace(draining) != Some(draining) && !json {
            output::note(&told(draining));
        }
        let now = Instant::now();
        let left = deadline.map_or(POLL_INTERVAL, |deadline| deadline.saturating_duration_since(now));
        if left.is_zero() {
            if json {
                output::print_json(&document(draining))?;
            }
            return Err(late(draining));
        }
        sleep(left.min(POLL_INTERVAL)).await;
    }
}

fn told(draining: Draining) -> String {
    let Draining { made, executing } = draining;
    format!("{} in flight: {executing} executed here, {made} made by the agent", made + executing)
}

fn late(draining: Draining) -> Failure {
    Failure::unexpected(format!("out of time with calls in flight: {}", told(draining)))
        .exit(Exit::Unavailable)
        .hint("new calls are refused all the same; wait again with capctl drain, or stop capd, which waits timeouts.drain_ms")
}

fn document(draining: Draining) -> serde_json::Value {
    let Draining { made, executing } = draining;
    json!({"drained": made + executing == 0, "made": made, "executing": executing})
}

/// Between two looks at what is in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
