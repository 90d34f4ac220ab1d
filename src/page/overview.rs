//! Watches the sidecar once a second, and keeps the last five minutes: metrics in; samples, and the present, out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::State;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::fault::{Fault, Json};
use super::{Shown, advice};
use crate::admin::{Load, Reading};
use crate::client::{CallFilter, ListedCall, WantedState, call_json, peer_json};

/// What was seen, and the present.
#[derive(Default)]
pub(super) struct Watch {
    samples: Mutex<VecDeque<Value>>,
    now: watch::Sender<Arc<Tick>>,
}

/// The sidecar at one moment.
#[derive(Debug, Default)]
pub(super) struct Tick {
    /// What the view Overview shows. **Shape:** `{"at_ms", "reachable", ? "detail", ? "load", ? "status", ? "peers",
    /// ? "advice"}`.
    pub(super) overview: Value,
    /// The newest calls and those in flight, each with a key of its own.
    pub(super) calls: Vec<(String, Value)>,
}

impl Watch {
    /// Tells what comes after this moment, and at once what there is.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Tick>> {
        let mut receiver = self.now.subscribe();
        receiver.mark_changed();
        receiver
    }

    fn samples(&self) -> MutexGuard<'_, VecDeque<Value>> {
        // It changes in single steps, so a panic leaves none half done.
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, sample: Value) {
        let mut samples = self.samples();
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}

/// **Shape:** `{"now": tick, "samples": [{"at_ms", "rates", "p50_ms", "p99_ms", "in_flight"}]}`.
pub(super) async fn overview(State(shown): State<Arc<Shown>>) -> Json {
    let now = shown.watch.now.borrow().overview.clone();
    let samples: Vec<_> = shown.watch.samples().iter().cloned().collect();
    Json(json!({"now": now, "samples": samples}))
}

/// Watches until the future is dropped.
pub(super) async fn watch(shown: &Arc<Shown>) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Option<Reading> = None;
    loop {
        ticks.tick().await;
        let at_ms = shown.system.clock.wall_ms();
        let tick = match look(shown, before.as_ref(), at_ms).await {
            Ok((tick, reading)) => {
                shown.watch.keep(sample(at_ms, &tick.overview["load"]));
                before = Some(reading);
                tick
            }
            Err(fault) => {
                before = None;
                let overview = json!({"at_ms": at_ms, "reachable": false, "detail": fault.detail()});
                Tick { overview, calls: Vec::new() }
            }
        };
        shown.watch.now.send_replace(Arc::new(tick));
    }
}

/// Looks at the sidecar once.
async fn look(shown: &Shown, before: Option<&Reading>, at_ms: u64) -> Result<(Tick, Reading), Fault> {
    let client = shown.sidecar.connect().await?;
    let families = client.metrics().await?;
    let reading = Reading { at_ms: shown.system.clock.monotonic_ms(), families };
    let load = Load::between(before, &reading);
    let peers = client.peers().await?;
    let status = shown.sidecar.get("/v1/operator/status").await?;
    let advice: Vec<_> = advice::advice(&load, &status, &peers).iter().map(advice::Advice::json).collect();
    let overview = json!({
        "at_ms": at_ms,
        "reachable": true,
        "load": load.json(),
        "status": status,
        "peers": peers.iter().map(peer_json).collect::<Vec<_>>(),
        "advice": advice,
    });
    // Nobody looks at calls while no browser is there.
    let calls = if shown.watch.now.receiver_count() == 0 { Vec::new() } else { calls(&client).await? };
    Ok((Tick { overview, calls }, reading))
}

async fn calls(client: &crate::client::Client) -> Result<Vec<(String, Value)>, Fault> {
    let newest = client.calls_where(&CallFilter::default(), None, Some(CALLS_MAX)).await?;
    let running = CallFilter { state: Some(WantedState::Running), ..CallFilter::default() };
    let running = client.calls_where(&running, None, Some(CALLS_MAX)).await?;
    let key = |call: &ListedCall<'_>| format!("{}-{}-{}", call.id, call.role.as_str(), call.from);
    let mut calls: Vec<_> = newest.calls.iter().map(|call| (key(call), call_json(call))).collect();
    for call in &running.calls {
        let key = key(call);
        if !calls.iter().any(|(known, _)| *known == key) {
            calls.push((key, call_json(call)));
        }
    }
    Ok(calls)
}

/// What is kept of a moment.
fn sample(at_ms: u64, load: &Value) -> Value {
    let of = |role: &str| {
        let calls = &load["roles"][role];
        json!({
            "rates": calls["rates"], "p50_ms": calls["p50_ms"], "p99_ms": calls["p99_ms"],
            "in_flight": calls["in_flight"],
        })
    };
    json!({"at_ms": at_ms, "caller": of("caller"), "executor": of("executor")})
}

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Samples that are kept: five minutes.
const SAMPLES_MAX: usize = 300;
/// Newest calls, and calls in flight, of one moment.
const CALLS_MAX: u64 = 200;
