//! The steps of a scenario in; what a user of `capd-client` sees, one line for each step with a result, out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capd_client::proto::capability::{CapabilityName, CapabilityPattern};
use capd_client::proto::code::{Code, Retry};
use capd_client::proto::message::CancelState;
use capd_client::{
    Answer, BuiltAgainst, CallOptions, Client, ClientError, Endpoint, Event, Options, Outcome, Query, Schema,
    ToolFormat, ToolList, TypedCall, WireError, descriptor_json,
};
use serde_json::{Map, Value, json};

use crate::agent::Provided;
use crate::scripted::Sidecar;
use crate::world::PATIENCE;

/// What performs the steps.
pub struct Driver {
    sidecar: Arc<Sidecar>,
    endpoint: Endpoint,
    client: Option<Client>,
    wait: Duration,
    calls: HashMap<String, TypedCall<Value>>,
    tools: Option<ToolList>,
    provided: Option<(usize, Provided)>,
    lines: Map<String, Value>,
}

/// A result, or an error with the id of its call.
type Ended = Result<Value, (ClientError, Option<String>)>;

impl Driver {
    pub fn new(sidecar: Arc<Sidecar>, endpoint: Endpoint) -> Self {
        Self {
            sidecar,
            endpoint,
            client: None,
            wait: Options::default().wait,
            calls: HashMap::new(),
            tools: None,
            provided: None,
            lines: Map::new(),
        }
    }

    /// All steps; what was seen, by the step's number.
    pub async fn run(mut self) -> Map<String, Value> {
        let steps = self.sidecar.world.scenario["steps"].as_array().unwrap().clone();
        for (index, step) in steps.iter().enumerate() {
            self.step(index, step).await;
        }
        self.lines
    }

    async fn step(&mut self, index: usize, step: &Value) {
        let text = |key: &str| step[key].as_str();
        let line = match text("do").unwrap() {
            "client" => {
                self.client = None;
                self.wait = Duration::from_millis(step["wait_ms"].as_u64().unwrap());
                return;
            }
            "signal" => return self.sidecar.world.signal(text("file").unwrap()),
            "wait" => {
                let file = text("file").unwrap();
                if !self.sidecar.world.wait(file).await {
                    self.sidecar.world.problem(format!("step {index}: {file} was never set"));
                }
                return;
            }
            "call" => line(self.call(step).await),
            "stream" => self.stream(step).await,
            "call_async" => line(self.call_async(step).await),
            "result" => line(self.result(text("call").unwrap()).await),
            "cancel" => line(self.cancel(text("call").unwrap()).await),
            "list" => line(self.list(text("namespace"), text("q")).await),
            "describe" => line(self.describe(text("id").unwrap()).await),
            "self" => line(self.myself().await),
            "tools" => line(self.list_tools(text("format").unwrap(), text("namespace")).await),
            "call_tool" => line(self.call_tool(step).await),
            "provide" => {
                let provided = Provided::start(&self.sidecar, self.endpoint.clone(), step);
                self.provided = Some((index, provided));
                return;
            }
            kind @ ("close" | "ended") => {
                let (index, provided) = self.provided.take().unwrap();
                let (ended, handled) = provided.end(kind == "close").await;
                let mut line = json!({"handled": handled});
                if let Err(error) = ended {
                    line["error"] = shown(&error, None);
                }
                self.lines.insert(index.to_string(), line);
                return;
            }
            other => panic!("there is no step {other}"),
        };
        self.lines.insert(index.to_string(), line);
    }

    /// The client, which is made by the first step that needs it.
    async fn client(&mut self, timeout: Option<Duration>) -> Result<Client, (ClientError, Option<String>)> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let scenario = &self.sidecar.world.scenario;
        let client = if scenario["listen"].is_null() && scenario["cut_connections"].is_null() {
            // It is there, and a machine that is busy is no part of the scenario.
            let options = Options { wait: self.wait, connect_timeout: PATIENCE, ..Options::default() };
            Client::connect(self.endpoint.clone(), options).await
        } else {
            // The call's own time bounds the wait as well.
            let wait = timeout.map_or(self.wait, |timeout| timeout.min(self.wait));
            let options = Options { wait, ..Options::default() };
            Client::connect_within(self.endpoint.clone(), options).await
        };
        let client = client.map_err(|error| (error, None))?;
        self.client = Some(client.clone());
        Ok(client)
    }

    async fn started(&mut self, step: &Value) -> Result<TypedCall<Value>, (ClientError, Option<String>)> {
        let options = options(step);
        let client = self.client(options.timeout).await?;
        client.start(step["name"].as_str().unwrap(), &step["params"], options).map_err(|error| (error, None))
    }

    async fn call(&mut self, step: &Value) -> Ended {
        let call = self.started(step).await?;
        self.ended(call, step["cancel_when"].as_str()).await
    }

    /// The answer, unless the call is dropped before.
    async fn ended(&self, mut call: TypedCall<Value>, cancel_when: Option<&str>) -> Ended {
        let follow = async { while call.event().await.is_some() {} };
        match cancel_when {
            None => follow.await,
            Some(file) => {
                tokio::select! {
                    () = follow => {}
                    _ = self.sidecar.world.wait(file) => return Err(cancelled()),
                }
            }
        }
        let id = call.id().map(|id| self.sidecar.shown(&id.to_string()));
        call.result().await.map_err(|error| (error, id))
    }

    async fn stream(&mut self, step: &Value) -> Value {
        let mut call = match self.started(step).await {
            Ok(call) => call,
            Err(error) => {
                let mut line = line(Err(error));
                line["events"] = json!([]);
                return line;
            }
        };
        let mut events = Vec::new();
        let world = Arc::clone(&self.sidecar.world);
        let cancel_when = step["cancel_when"].as_str();
        loop {
            let event = tokio::select! {
                event = call.event() => event,
                _ = async {
                    match cancel_when {
                        Some(file) => world.wait(file).await,
                        None => std::future::pending().await,
                    }
                } => {
                    drop(call);
                    return with_events(line(Err(cancelled())), events);
                }
            };
            match event {
                Some(event) => events.push(self.event(&event)),
                None => break,
            }
        }
        let id = call.id().map(|id| self.sidecar.shown(&id.to_string()));
        match call.answer().await {
            Err(error) => with_events(line(Err((error, id))), events),
            Ok(answer) => {
                let result = answer.json().unwrap();
                events.push(json!({"kind": "result", "data": self.end(&answer, id)}));
                with_events(json!({"value": result}), events)
            }
        }
    }

    fn event(&self, event: &Event) -> Value {
        let (kind, data) = match event {
            Event::Accepted { call, capability } => {
                ("accepted", json!({"call": self.sidecar.shown(&call.to_string()), "capability": capability}))
            }
            Event::Processing { status_text, eta_ms, cancellable } => (
                "processing",
                json!({"status_text": status_text, "eta_ms": eta_ms, "cancellable": cancellable}),
            ),
            Event::Progress { pct } => ("progress", json!({"progress_pct": pct})),
            Event::InputRequired { prompt } => ("input_required", json!({"prompt": prompt})),
        };
        json!({"kind": kind, "data": there(data)})
    }

    fn end(&self, answer: &Answer, call: Option<String>) -> Value {
        there(json!({
            "call": call,
            "capability": answer.capability,
            "execution_ms": answer.execution_time_ms,
            "result": answer.json(),
        }))
    }

    async fn call_async(&mut self, step: &Value) -> Ended {
        let mut call = self.started(step).await?;
        // The sidecar says the call's id with its first word about it.
        let Some(first) = call.event().await else {
            return call.result().await.map_err(|error| (error, None));
        };
        let Event::Accepted { call: id, .. } = first else { panic!("{first:?} before it is accepted") };
        let id = self.sidecar.shown(&id.to_string());
        self.calls.insert(id.clone(), call);
        Ok(json!(id))
    }

    async fn result(&mut self, id: &str) -> Ended {
        let call = match self.calls.remove(id) {
            Some(call) => call,
            // Its maker is another program.
            None => self.client(None).await?.follow(id.parse().unwrap()),
        };
        self.ended(call, None).await
    }

    async fn cancel(&mut self, id: &str) -> Ended {
        let client = self.client(None).await?;
        let state = client.cancel(id.parse().unwrap()).await.map_err(|error| (error, None))?;
        Ok(json!(state == CancelState::Cancelling))
    }

    async fn list(&mut self, namespace: Option<&str>, words: Option<&str>) -> Ended {
        let pattern = namespace.map_or(CapabilityPattern::Any, |name| format!("{name}.*").parse().unwrap());
        let client = self.client(None).await?;
        let query = Query { words: words.map(str::to_owned), ..Query::new(pattern) };
        let offers = client.query_all(&query).await.map_err(|error| (error, None))?;
        let shown = offers.iter().map(|offer| {
            let document = descriptor_json(offer);
            there(json!({"id": document["id"], "description": document["description"]}))
        });
        Ok(shown.collect())
    }

    async fn describe(&mut self, id: &str) -> Ended {
        let client = self.client(None).await?;
        let query = Query::new(id.parse::<CapabilityName>().unwrap());
        let offers = client.query_all(&query).await.map_err(|error| (error, None))?;
        let described = client.describe(offers[0].id()).await.map_err(|error| (error, None))?;
        Ok(described[0].json())
    }

    async fn myself(&mut self) -> Ended {
        let did = self.client(None).await?.did().to_string();
        assert_eq!(did, self.sidecar.identity.did().as_str());
        // The script's sidecar has another name for itself.
        let exchanges = self.sidecar.world.scenario["sidecar"].as_array().unwrap();
        let exchange = exchanges.iter().find(|exchange| exchange["path"] == "/v1/self").unwrap();
        Ok(json!({"did": exchange["reply"]["body"]["did"]}))
    }

    async fn list_tools(&mut self, format: &str, namespace: Option<&str>) -> Ended {
        let format: ToolFormat = format.parse().unwrap();
        let namespace = namespace.map(|name| format!("{name}.*").parse().unwrap());
        let client = self.client(None).await?;
        let tools = client.tools(format, namespace).await.map_err(|error| (error, None))?;
        let shown = json!(tools.tools());
        self.tools = Some(tools);
        Ok(shown)
    }

    async fn call_tool(&mut self, step: &Value) -> Ended {
        let options = options(step);
        let client = self.client(None).await?;
        let tools = self.tools.as_ref().unwrap();
        let tool = step["tool"].as_str().unwrap();
        client.call_tool(tools, tool, &step["arguments"], options).await.map_err(|error| (error, None))
    }
}

/// The options that a step names.
fn options(step: &Value) -> CallOptions {
    let text = |key: &str| step[key].as_str().map(str::to_owned);
    // Generated code has its schemas as constants.
    let leak =
        |text: &Value| -> &'static str { Box::leak(text.as_str().unwrap().to_owned().into_boxed_str()) };
    let side = |side: &Value| {
        side.is_object().then(|| Schema { sha256: leak(&side["sha256"]), json: leak(&side["json"]) })
    };
    let built = &step["built_against"];
    CallOptions {
        version: text("version"),
        timeout: step["timeout_ms"].as_u64().map(Duration::from_millis),
        key: text("key"),
        thread: text("thread"),
        affinity: text("affinity"),
        built_against: built
            .is_object()
            .then(|| BuiltAgainst { input: side(&built["input"]), output: side(&built["output"]) }),
    }
}

/// What the driver says of a call that it dropped.
fn cancelled() -> (ClientError, Option<String>) {
    (ClientError::Result(WireError::new(Code::CANCELLED, DROPPED)), None)
}

fn with_events(mut line: Value, events: Vec<Value>) -> Value {
    line["events"] = Value::Array(events);
    line
}

fn line(ended: Ended) -> Value {
    match ended {
        Ok(value) => json!({"value": value}),
        Err((error, call)) => json!({"error": shown(&error, call)}),
    }
}

pub fn shown(error: &ClientError, call: Option<String>) -> Value {
    let kind = match error.outcome() {
        _ if matches!(error, ClientError::Result(wire) if wire.message == DROPPED) => "Cancelled",
        Outcome::Refused => "Refused",
        Outcome::Failed => "Failed",
        Outcome::Unknown => "OutcomeUnknown",
        Outcome::Pending => "Pending",
    };
    let (message, details) = match error {
        ClientError::Refused(wire) | ClientError::Result(wire) => (wire.message.clone(), wire.details_json()),
        error => (error.to_string(), None),
    };
    let retry = match error.code().retry() {
        Retry::No => "no",
        Retry::Yes => "yes",
        Retry::Backoff => "backoff",
    };
    there(json!({
        "kind": kind,
        "code": error.code().0,
        "message": message,
        "details": details,
        "call": call,
        "retry": retry,
    }))
}

/// Without the members that are not there. A result that is null is.
fn there(mut document: Value) -> Value {
    let members = document.as_object_mut().unwrap();
    members.retain(|name, value| !value.is_null() || name == "result");
    document
}

/// The words of a call that the driver dropped.
const DROPPED: &str = "dropped by the driver";

/// What the handlers of a scenario saw.
pub type Handled = Arc<Mutex<Vec<Value>>>;
