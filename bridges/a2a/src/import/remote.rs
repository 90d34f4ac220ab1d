//! Speaks with an agent over either binding: a method and its params in; a document, or updates as they come, out.
//!
//! A request is written once. An error says whether the agent may have read it.

use std::collections::BTreeMap;

use bytes::Bytes;
use capd_bridge::http::client::{Answer, EventStream, ExchangeError, HttpClient};
use capd_client::{Trace, value_of_json};
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::agent::{Agent, Binding, Interface, Skill};
use crate::extension;

/// An agent, and how to speak with it.
#[derive(Debug)]
pub(super) struct Remote {
    http: std::sync::Arc<HttpClient>,
    interface: Interface,
    pub(super) streams: bool,
    pub(super) promises: bool,
    pub(super) skills: BTreeMap<String, Skill>,
}

/// What is asked of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Send,
    Stream,
    Get,
    Cancel,
}

/// What an agent says.
#[derive(Debug)]
pub(super) enum Said {
    /// At once.
    Document(Value),
    /// As it comes.
    Updates(EventStream),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum RemoteError {
    /// Nothing was written.
    #[error("{0}")]
    NotSent(String),
    /// The agent may have read it.
    #[error("{0}")]
    Broken(String),
    /// The agent refused the request.
    #[error("the agent answered: {message} ({code})")]
    Answered { code: i64, message: String },
}

impl RemoteError {
    /// Whether the agent has made no task of the message. **Source:** A2A 1.0, error code mappings.
    pub(super) fn is_refusal(&self) -> bool {
        let Self::Answered { code, .. } = self else { return false };
        matches!(code, -32_700 | -32_602..=-32_600 | -32_099..=-32_001 | 400..=499)
    }
}

impl From<ExchangeError> for RemoteError {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::NotSent(why) => Self::NotSent(why),
            ExchangeError::Broken(why) => Self::Broken(why),
        }
    }
}

impl Remote {
    pub(super) fn new(http: std::sync::Arc<HttpClient>, agent: &Agent) -> Self {
        Self {
            http,
            interface: agent.interface.clone(),
            streams: agent.streams,
            promises: agent.promises,
            skills: agent.skills.clone(),
        }
    }

    /// Whether both speak to the same agent in the same way.
    pub(super) fn is_as(&self, other: &Self) -> bool {
        (&self.interface, self.streams, self.promises, &self.skills)
            == (&other.interface, other.streams, other.promises, &other.skills)
    }

    /// Asks once.
    ///
    /// **Errors:** [`RemoteError`].
    pub(super) async fn ask(
        &self,
        verb: Verb,
        mut params: Value,
        trace: &Trace,
    ) -> Result<Said, RemoteError> {
        if let Some(tenant) = &self.interface.tenant {
            params["tenant"] = tenant.as_str().into();
        }
        let accept = if verb == Verb::Stream { "text/event-stream" } else { "application/json" };
        let mut head = vec![(VERSION, a2a::VERSION), (EXTENSIONS, extension::URI), (ACCEPT, accept)];
        let traces = [("traceparent", &trace.parent), ("tracestate", &trace.state)];
        for (name, value) in traces {
            head.extend(value.as_deref().map(|value| (HeaderName::from_static(name), value)));
        }
        let (method, place, body) = match self.interface.binding {
            Binding::JsonRpc => {
                head.push((CONTENT_TYPE, "application/json"));
                let body = json!({"jsonrpc": "2.0", "id": 1, "method": verb.name(), "params": params});
                (Method::POST, self.interface.place.clone(), body.to_string())
            }
            Binding::Rest => {
                let tenant = self.interface.tenant.as_ref().map(|tenant| format!("/{tenant}"));
                let (method, path) = verb.route(params["id"].as_str().unwrap_or_default());
                let place = self.interface.place.below(&format!("{}{path}", tenant.unwrap_or_default()));
                let body = if method == Method::POST { params.to_string() } else { String::new() };
                if !body.is_empty() {
                    head.push((CONTENT_TYPE, "application/a2a+json"));
                }
                (method, place, body)
            }
        };
        let answer = self.http.exchange(method, &place, &head, Bytes::from(body)).await?;
        if answer.media_type().eq_ignore_ascii_case("text/event-stream") && answer.status.is_success() {
            return Ok(Said::Updates(answer.events(ANSWER_BYTES_MAX)));
        }
        self.document(answer).await.map(Said::Document)
    }

    async fn document(&self, answer: Answer) -> Result<Value, RemoteError> {
        let status = answer.status;
        let body = answer.bytes(ANSWER_BYTES_MAX).await?;
        match value_of_json(&body) {
            Ok(value) if status.is_success() || value.get("error").is_some() => self.unwrapped(value),
            _ => Err(of_status(status)),
        }
    }

    /// The update that an event has.
    ///
    /// **Errors:** as [`ask`](Self::ask).
    pub(super) fn update(&self, data: &str) -> Result<Value, RemoteError> {
        let value = value_of_json(data.as_bytes());
        let value = value.map_err(|error| RemoteError::Broken(format!("an update is not JSON: {error}")))?;
        self.unwrapped(value)
    }

    /// Takes a result out of what the binding puts around it.
    fn unwrapped(&self, mut value: Value) -> Result<Value, RemoteError> {
        if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
            let message = error["message"].as_str().unwrap_or("the error has no message");
            let message = message.chars().take(MESSAGE_CHARS_MAX).collect();
            return Err(RemoteError::Answered { code: error["code"].as_i64().unwrap_or_default(), message });
        }
        match self.interface.binding {
            Binding::Rest => Ok(value),
            Binding::JsonRpc => match value.get_mut("result") {
                Some(result) => Ok(result.take()),
                None => Err(RemoteError::Broken("the answer has neither a result nor an error".to_owned())),
            },
        }
    }
}

impl Verb {
    const fn name(self) -> &'static str {
        match self {
            Self::Send => a2a::methods::SEND_MESSAGE,
            Self::Stream => a2a::methods::SEND_STREAMING_MESSAGE,
            Self::Get => a2a::methods::GET_TASK,
            Self::Cancel => a2a::methods::CANCEL_TASK,
        }
    }

    fn route(self, id: &str) -> (Method, String) {
        // An id is a path's segment; whatever else stands in it must not lead elsewhere.
        let id: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
        match self {
            Self::Send => (Method::POST, "/message:send".to_owned()),
            Self::Stream => (Method::POST, "/message:stream".to_owned()),
            Self::Get => (Method::GET, format!("/tasks/{id}")),
            Self::Cancel => (Method::POST, format!("/tasks/{id}:cancel")),
        }
    }
}

/// A status without a document of the protocol. What a proxy answers in place of the agent says nothing about it.
fn of_status(status: StatusCode) -> RemoteError {
    let message = status.canonical_reason().unwrap_or("an unknown status").to_owned();
    match status.as_u16() {
        400..=499 => RemoteError::Answered { code: status.as_u16().into(), message },
        code => RemoteError::Broken(format!("the agent answered {code} {message}")),
    }
}

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
/// Longest answer, and longest update. **Units:** bytes.
const ANSWER_BYTES_MAX: usize = 2 * MSG_SIZE_BYTES_DEFAULT as usize;
const MESSAGE_CHARS_MAX: usize = 2_000;
