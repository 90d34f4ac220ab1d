//! Capabilities in; an agent that serves them over HTTP, call by call, out.

use serde_json::{Value, json};

use crate::http::{Answer, Event, Events, Http};
use crate::support::Sidecar;

/// An agent with an open stream.
pub struct Agent<'a> {
    sidecar: &'a Sidecar,
    pub events: Events,
    pub session: String,
}

impl<'a> Agent<'a> {
    /// Serves what `declared` says.
    #[track_caller]
    pub fn serving(sidecar: &'a Sidecar, declared: &Value) -> Self {
        let mut http = Http::unix(&sidecar.socket);
        http.ask("POST", "/v1/provide", &[], Some(&declared.to_string()));
        let head = http.head();
        if head.status != 200 {
            panic!("{head:?}");
        }
        assert_eq!(head.field("content-type"), Some("text/event-stream"));
        let mut events = http.events();
        let ready = events.expect("ready");
        let session = ready.data["session"].as_str().unwrap().to_owned();
        Self { sidecar, events, session }
    }

    /// Serves one capability of this name, with no schemas.
    #[track_caller]
    pub fn serving_one(sidecar: &'a Sidecar, name: &str, idempotent: bool) -> Self {
        Self::serving(sidecar, &json!({"capabilities": [{"name": name, "idempotent": idempotent}]}))
    }

    /// The next call.
    #[track_caller]
    pub fn call(&mut self) -> Event {
        self.events.expect("call")
    }

    /// Says something of a call.
    pub fn say(&self, id: &Value, what: &str, body: &Value) -> Answer {
        let path = format!("/v1/provide/{}/calls/{}/{what}", self.session, id.as_str().unwrap());
        Http::unix(&self.sidecar.socket).post(&path, &body.to_string())
    }

    /// Answers a call well.
    #[track_caller]
    pub fn answer(&self, id: &Value, result: &Value) {
        let answer = self.say(id, "result", &json!({"result": result}));
        assert_eq!(answer.status, 204, "{}", String::from_utf8_lossy(&answer.body));
    }
}
