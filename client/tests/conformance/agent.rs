//! The step `provide` in; an agent of `capd-client` with handlers that do what the scenario says out.

use std::sync::Arc;

use capd_client::proto::code::Code;
use capd_client::{Agent, Capability, ClientError, Endpoint, Invocation, Options, WireError, to_cbor};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::driver::Handled;
use crate::scripted::Sidecar;
use crate::world::World;

/// An agent that serves.
pub struct Provided {
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ClientError>>,
    handled: Handled,
}

impl Provided {
    pub fn start(sidecar: &Arc<Sidecar>, endpoint: Endpoint, step: &Value) -> Self {
        let handled = Handled::default();
        let mut agent = Agent::new();
        for declared in step["capabilities"].as_array().unwrap() {
            let text = |key: &str| declared[key].as_str();
            let mut capability = Capability::new(text("name").unwrap(), text("version").unwrap()).unwrap();
            if let Some(description) = text("description") {
                capability = capability.description(description);
            }
            if let Some(is_idempotent) = declared["idempotent"].as_bool() {
                capability = capability.idempotent(is_idempotent);
            }
            if declared["inputSchema"].is_object() {
                capability = capability.input_schema(&declared["inputSchema"]);
            }
            if declared["outputSchema"].is_object() {
                capability = capability.output_schema(&declared["outputSchema"]);
            }
            let (sidecar, handled, verbs) =
                (Arc::clone(sidecar), Arc::clone(&handled), declared["handler"].clone());
            let handler = move |params: Value, call: Invocation| {
                let entry = Entry::new(&sidecar, &handled, &params, &call);
                perform(Arc::clone(&sidecar.world), entry, verbs.clone(), params, call)
            };
            agent = agent.capability(capability, handler).unwrap();
        }
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = agent.serve(endpoint, Options::default(), async {
            let _ = stopped.await;
        });
        Self { stop, serving: tokio::spawn(serving), handled }
    }

    /// Waits for its end, which `closes` brings about; what its handlers saw.
    pub async fn end(self, closes: bool) -> (Result<(), ClientError>, Value) {
        if closes {
            // It may have ended by itself.
            let _ = self.stop.send(());
            let ended = self.serving.await.unwrap();
            return (ended, Value::Array(self.handled.lock().unwrap().clone()));
        }
        let ended = self.serving.await.unwrap();
        (ended, Value::Array(self.handled.lock().unwrap().clone()))
    }
}

/// One call's place among those that were handled. A handler whose future is dropped was cancelled.
struct Entry {
    world: Arc<World>,
    handled: Handled,
    at: usize,
    ended: Option<&'static str>,
    waits_for_cancel: bool,
}

impl Entry {
    fn new(sidecar: &Sidecar, handled: &Handled, params: &Value, call: &Invocation) -> Self {
        let mut entries = handled.lock().unwrap();
        entries.push(json!({
            "id": sidecar.shown(&call.id.to_string()),
            "capability": call.capability.to_string(),
            "params": params,
            "caller": call.from.as_str(),
        }));
        let at = entries.len() - 1;
        let (world, handled) = (Arc::clone(&sidecar.world), Arc::clone(handled));
        Self { world, handled, at, ended: None, waits_for_cancel: false }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let otherwise = if std::thread::panicking() { "failed" } else { "cancelled" };
        let ended = self.ended.unwrap_or(otherwise);
        self.handled.lock().unwrap()[self.at]["ended"] = json!(ended);
        if ended == "cancelled" && self.waits_for_cancel {
            self.world.signal("cancelled");
        }
    }
}

async fn perform(
    world: Arc<World>,
    mut entry: Entry,
    verbs: Value,
    params: Value,
    call: Invocation,
) -> Result<Value, WireError> {
    for verb in verbs.as_array().unwrap() {
        let (name, argument) = verb.as_object().unwrap().iter().next().unwrap();
        match name.as_str() {
            "return" => {
                entry.ended = Some("returned");
                return Ok(argument.clone());
            }
            "echo" => {
                entry.ended = Some("returned");
                return Ok(params);
            }
            "fail" => {
                entry.ended = Some("failed");
                let code = Code(u32::try_from(argument["code"].as_u64().unwrap()).unwrap());
                let error = WireError::new(code, argument["message"].as_str().unwrap());
                return Err(WireError { details: Some(to_cbor(&argument["details"])), ..error });
            }
            "crash" => panic!("{argument}"),
            "progress" => match argument["progress_pct"].as_u64() {
                Some(pct) => call.reporter.progress(u8::try_from(pct).unwrap()).unwrap(),
                None => {
                    let eta_ms = argument["eta_ms"].as_u64();
                    call.reporter.processing(argument["status_text"].as_str(), eta_ms).unwrap();
                }
            },
            "input" => call.reporter.input_required(argument["prompt"].as_str().unwrap()).unwrap(),
            "wait" => assert!(world.wait(argument.as_str().unwrap()).await, "{argument} was never set"),
            "signal" => world.signal(argument.as_str().unwrap()),
            "wait_cancel" => {
                entry.waits_for_cancel = true;
                std::future::pending::<()>().await;
            }
            other => panic!("there is no verb {other}"),
        }
    }
    entry.ended = Some("returned");
    Ok(Value::Null)
}
