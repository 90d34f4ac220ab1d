//! What the scripted sidecar and the driver of one scenario share: signals, the script, and what went wrong.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::matching::{Bound, difference};

/// Longest wait for a signal; only a failing scenario waits so long.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A message, as the request of HTTP that means the same.
pub struct Asked {
    pub method: &'static str,
    pub path: String,
    pub query: Map<String, Value>,
    pub headers: Map<String, Value>,
    pub body: Option<Value>,
    pub text: Option<String>,
}

impl Asked {
    pub fn new(method: &'static str, path: impl Into<String>) -> Self {
        let (query, headers) = (Map::new(), Map::new());
        Self { method, path: path.into(), query, headers, body: None, text: None }
    }

    pub fn with_body(method: &'static str, path: impl Into<String>, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(method, path) }
    }

    /// A question for events.
    pub fn with_events(path: String) -> Self {
        let mut asked = Self::new("GET", path);
        asked.headers.insert("accept".to_owned(), json!("text/event-stream"));
        asked
    }

    /// Where it differs from what an exchange expects.
    fn difference(&self, expected: &Value, bound: &mut Bound) -> Option<String> {
        let absent = json!({"$absent": true});
        let none = Map::new();
        let query = expected["query"].as_object().unwrap_or(&none);
        for name in query.keys().chain(self.query.keys()) {
            let pattern = query.get(name).unwrap_or(&absent);
            // The link asks for capabilities; which format they become is the SDK's own.
            if name == "format" && self.path == "/v1/tools" {
                continue;
            }
            let found = difference(pattern, self.query.get(name), bound, &format!("query {name}"));
            if found.is_some() {
                return found;
            }
        }
        for (name, pattern) in expected["headers"].as_object().unwrap_or(&none) {
            // Where a call goes on, its sidecar knows.
            if name == "Last-Event-ID" {
                continue;
            }
            let seen = self.headers.get(&name.to_lowercase());
            let found = difference(pattern, seen, bound, &format!("header {name}"));
            if found.is_some() {
                return found;
            }
        }
        if let Some(text) = expected.get("text") {
            return difference(
                text,
                self.text.as_ref().map(|text| json!(text)).as_ref(),
                bound,
                "body as text",
            );
        }
        difference(expected.get("body").unwrap_or(&absent), self.body.as_ref(), bound, "body ")
    }
}

/// One scenario being played.
pub struct World {
    pub scenario: Value,
    signals: watch::Sender<BTreeSet<String>>,
    script: Mutex<Script>,
}

struct Script {
    unused: Vec<Value>,
    bound: Bound,
    problems: Vec<String>,
    requests: Vec<String>,
}

impl World {
    pub fn new(scenario: Value) -> Self {
        let unused = scenario["sidecar"].as_array().unwrap().clone();
        let (bound, problems, requests) = (Bound::new(), Vec::new(), Vec::new());
        let script = Mutex::new(Script { unused, bound, problems, requests });
        Self { scenario, signals: watch::channel(BTreeSet::new()).0, script }
    }

    pub fn signal(&self, name: &str) {
        self.signals.send_modify(|set| set.extend([name.to_owned()]));
    }

    /// Whether it was set in time.
    pub async fn wait(&self, name: &str) -> bool {
        let mut signals = self.signals.subscribe();
        let is_set = timeout(PATIENCE, signals.wait_for(|set| set.contains(name))).await;
        is_set.is_ok_and(|set| set.is_ok())
    }

    pub fn problem(&self, text: impl Into<String>) {
        self.script().problems.push(text.into());
    }

    /// Takes the first exchange that fits.
    pub fn take(&self, asked: &Asked) -> Result<Value, String> {
        let mut script = self.script();
        script.requests.push(format!("{} {}", asked.method, asked.path));
        let mut why = None;
        for at in 0..script.unused.len() {
            let exchange = &script.unused[at];
            if exchange["method"] != asked.method || exchange["path"] != *asked.path {
                continue;
            }
            let mut bound = script.bound.clone();
            match asked.difference(exchange, &mut bound) {
                Some(found) => why = why.or(Some(found)),
                None => {
                    let exchange = exchange.clone();
                    script.bound = bound;
                    if exchange["repeat"] != true {
                        script.unused.remove(at);
                    }
                    drop(script);
                    if let Some(name) = exchange["name"].as_str() {
                        self.signal(&format!("{name}.received"));
                    }
                    return Ok(exchange);
                }
            }
        }
        let why = why.unwrap_or_else(|| "not expected (any more)".to_owned());
        Err(format!("{} {}: {why}", asked.method, asked.path))
    }

    /// Whether the script has such an exchange still.
    pub fn expects(&self, method: &str, path: &str) -> bool {
        self.script().unused.iter().any(|exchange| exchange["method"] == method && exchange["path"] == path)
    }

    /// Whether an exchange must come still.
    pub fn is_waited_for(&self) -> bool {
        let is_async = self.is_async();
        let must = |exchange: &Value| {
            exchange["optional"] != true && (is_async || !exchange["headers"]["Prefer"].is_string())
        };
        self.script().unused.iter().any(must)
    }

    /// An exchange was answered.
    pub fn answered(&self, exchange: &Value) {
        if let Some(name) = exchange["name"].as_str() {
            self.signal(&format!("{name}.answered"));
        }
    }

    /// The id that the script gives a call.
    pub fn call_id(&self, exchange: &Value) -> Option<String> {
        let of = |exchange: &Value| exchange["reply"]["headers"]["Capd-Call"].as_str().map(str::to_owned);
        let all = || self.scenario["sidecar"].as_array().into_iter().flatten().find_map(of);
        of(exchange).or_else(all)
    }

    /// Where what the driver saw differs from what the steps expect, and what else went wrong; the requests that came.
    pub fn verdict(&self, lines: &Map<String, Value>) -> (Vec<String>, Vec<String>) {
        let mut script = self.script();
        for exchange in std::mem::take(&mut script.unused) {
            // Asks for the id of a call that is on its way, which the link has told already.
            let is_implied = exchange["headers"]["Prefer"].is_string() && !self.is_async();
            if exchange["optional"] != true && !is_implied {
                let text = format!("never came: {} {}", exchange["method"], exchange["path"]);
                script.problems.push(text);
            }
        }
        let nothing = json!({});
        for (index, step) in self.scenario["steps"].as_array().into_iter().flatten().enumerate() {
            let seen = lines.get(&index.to_string()).unwrap_or(&nothing);
            for (name, pattern) in step["expect"].as_object().into_iter().flatten() {
                let pattern = if name == "error" { json!({"$subset": pattern}) } else { pattern.clone() };
                if let Some(found) = difference(&pattern, seen.get(name), &mut script.bound, name) {
                    script.problems.push(format!("step {index} ({}): {found}; saw {seen}", step["do"]));
                    break;
                }
            }
        }
        (script.problems.clone(), script.requests.clone())
    }

    /// Whether calls are made without waiting for them.
    pub fn is_async(&self) -> bool {
        self.scenario["steps"].as_array().into_iter().flatten().any(|step| step["do"] == "call_async")
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }
}
