//! A sidecar in; an agent that serves a capability over HTTP: it reads its calls from one stream of events, and posts each
//! result on a pooled connection, out.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Connection, JSON, connect};
use crate::agents::UNJOURNALED;
use crate::payload::{HTTP_BYTES, INPUT_SCHEMA, OUTPUT_SCHEMA, response_json};
use crate::role::{done, ready};

/// Serves [`UNJOURNALED`] to the sidecar at `to`.
pub(crate) async fn provider(to: &str, token: &Path) {
    let token = std::fs::read_to_string(token).unwrap();
    let authorization = format!("Bearer {}", token.trim());
    let mut agent =
        Agent { to: to.to_owned(), authorization, session: String::new(), idle: Mutex::default() };
    let response = agent.post(&mut connect(to).await, "/v1/provide", declaration().into()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let mut events = Events { body: response.into_body(), read: Vec::new() };
    let ready_data: Ready = serde_json::from_str(&events.next().await.expect("a stream begins")).unwrap();
    agent.session = ready_data.session;
    tokio::spawn(serve(Arc::new(agent), events));
    ready("");
    done().await;
}

async fn serve(agent: Arc<Agent>, mut events: Events) {
    let result = Bytes::from([b"{\"result\":", &response_json(HTTP_BYTES)[..], b"}"].concat());
    while let Some(data) = events.next().await {
        let call: Call = serde_json::from_str(&data).unwrap();
        let (agent, result) = (Arc::clone(&agent), result.clone());
        tokio::spawn(async move {
            assert!(call.params.is_object(), "the params are what the caller gave");
            let path = format!("/v1/provide/{}/calls/{}/result", agent.session, call.id);
            let mut connection = agent.connection().await;
            let response = agent.post(&mut connection, &path, result).await;
            assert_eq!(response.status(), StatusCode::NO_CONTENT);
            agent.idle.lock().unwrap().push(connection);
        });
    }
}

fn declaration() -> String {
    let schema = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (name, version) = UNJOURNALED.split_once(':').expect("an id has a version");
    let capability = json!({
        "name": name,
        "version": version,
        "idempotent": true,
        "inputSchema": schema(INPUT_SCHEMA),
        "outputSchema": schema(OUTPUT_SCHEMA),
    });
    json!({"capabilities": [capability], "concurrency": CALLS_MAX}).to_string()
}

struct Agent {
    to: String,
    authorization: String,
    session: String,
    /// Connections that carry no request.
    idle: Mutex<Vec<Connection>>,
}

impl Agent {
    async fn connection(&self) -> Connection {
        loop {
            let idle = self.idle.lock().unwrap().pop();
            let Some(mut idle) = idle else { return connect(&self.to).await };
            if idle.ready().await.is_ok() {
                return idle;
            }
        }
    }

    async fn post(&self, connection: &mut Connection, path: &str, body: Bytes) -> Response<Incoming> {
        let request = Request::post(path)
            .header(HOST, &self.to)
            .header(CONTENT_TYPE, JSON)
            .header(AUTHORIZATION, &self.authorization);
        connection.send_request(request.body(Full::new(body)).unwrap()).await.unwrap()
    }
}

/// Of the first event.
#[derive(Deserialize)]
struct Ready {
    session: String,
}

/// Of those that give a call.
#[derive(Deserialize)]
struct Call {
    id: String,
    params: Value,
}

/// A stream of events.
struct Events {
    body: Incoming,
    read: Vec<u8>,
}

impl Events {
    /// The data of the next one; `None` at the end. Comments have none.
    async fn next(&mut self) -> Option<String> {
        loop {
            while let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.read.drain(..end + 2).collect();
                let text = std::str::from_utf8(&event).unwrap();
                if let Some(data) = text.lines().find_map(|line| line.strip_prefix("data: ")) {
                    return Some(data.to_owned());
                }
            }
            let frame = self.body.frame().await?.ok()?;
            self.read.extend_from_slice(frame.data_ref()?);
        }
    }
}

/// Calls that the agent takes at once.
const CALLS_MAX: usize = 1_024;
