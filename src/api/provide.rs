//! Answers `POST /v1/provide`: capabilities in; a stream of their calls out, and the agent's answers back in.
//!
//! Each stream is a local link of its own, within this process. The link ends with the stream: the declaration is
//! withdrawn, and its running calls end as when a link breaks (PROTOCOL 7.2, 8).

mod answers;
mod session;

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::HashMap;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use capd_proto::code::Code;
use capd_proto::message::{Descriptor, HashAlg, SchemaRef, SchemaSource};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::problem::Problem;
use super::sse::{self, Event, Source};
use super::{Api, body};
use crate::client::Client;
use crate::declaration::{self, Declaration, Declared};
pub(super) use answers::{input, progress, result};
use session::{Session, SessionId};

/// The streams that are open.
#[derive(Default)]
pub(super) struct Providers(Mutex<HashMap<SessionId, Arc<Session>>>);

impl Providers {
    fn get(&self, id: &SessionId) -> Option<Arc<Session>> {
        self.sessions().get(id).cloned()
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Session>>> {
        // The table changes in single steps, so a panic leaves none half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn provide(
    State(api): State<Arc<Api>>,
    head: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let read = api.read(&head, body).await?;
    let document = api.apart(read.len(), move || body::document(&read)).await?;
    let (descriptors, concurrency) = asked(&document)?;
    let random = api.system.random.bytes();
    let id = random.map_err(|error| Problem::refused(Code::UNAVAILABLE, error.to_string()))?;
    let (events, waiting) = mpsc::channel(concurrency.saturating_add(CANCELS_QUEUED));
    let session = Arc::new(Session::new(SessionId(id), concurrency, events, api.system.tasks.clone()));
    let client = api.open().await?;
    let serving = Arc::clone(&session);
    let served = client.serve(api.options().provider_calls_max, move |invocation| {
        let serving = Arc::clone(&serving);
        async move { serving.serve(invocation).await }
    });
    served.map_err(|error| Problem::of_request(&error))?;
    // Calls may come from the moment on that it is declared.
    api.providers.sessions().insert(session.id, Arc::clone(&session));
    let tasks = api.system.tasks.clone();
    let stream = Stream { client, waiting, api, session, ready: Some(ready(&descriptors, concurrency)) };
    stream.client.declare(&descriptors).await.map_err(|error| Problem::of_request(&error))?;
    Ok(sse::response(stream, &tasks))
}

/// The capabilities that a request declares, and how many calls its agent takes at once.
fn asked(document: &Value) -> Result<(Vec<Descriptor>, usize), Problem> {
    let Some(members) = document.as_object() else {
        return Err(Problem::bad("the body is an object with the member \"capabilities\""));
    };
    if let Some(other) = members.keys().find(|key| !MEMBERS.contains(&key.as_str())) {
        return Err(Problem::bad(format!("{other:?} is not known here; known: {}", MEMBERS.join(", "))));
    }
    let concurrency = match &document["concurrency"] {
        Value::Null => CONCURRENCY_DEFAULT,
        number => {
            let number = body::integer(number).and_then(|number| usize::try_from(number).ok());
            let number = number.filter(|number| (1..=CONCURRENCY_MAX).contains(number));
            number.ok_or_else(|| Problem::bad(format!("concurrency: accepted: 1 to {CONCURRENCY_MAX}")))?
        }
    };
    let declared = declared(members)?;
    if declared.is_empty() {
        return Err(Problem::bad("capabilities: at least one is declared"));
    }
    let descriptors = declared.iter().map(descriptor).collect::<Result<Vec<_>, _>>()?;
    Ok((descriptors, concurrency))
}

/// Reads capabilities as `capabilities.yaml` has them: JSON is YAML.
fn declared(members: &Map<String, Value>) -> Result<Vec<Declared>, Problem> {
    let capabilities = members.get("capabilities").and_then(Value::as_array);
    for (index, capability) in capabilities.into_iter().flatten().enumerate() {
        // What is said here is said by an agent that serves it itself, and whose files these are not.
        let has_file = |side: &str| !capability[side]["$file"].is_null();
        if let Some(side) = ["inputSchema", "outputSchema"].into_iter().find(|side| has_file(side)) {
            return Err(Problem::bad(format!(
                "capabilities[{index}].{side}: a schema stands here itself, not by $file"
            )));
        }
        let served = ["command", "http"].into_iter().find(|key| !capability[*key].is_null());
        if let Some(key) = served {
            return Err(Problem::bad(format!(
                "capabilities[{index}].{key}: calls come over this stream, so it has no place here"
            )));
        }
    }
    let mut document = json!({"version": 1});
    for key in ["namespace", "schemaProfile", "capabilities"] {
        if let Some(value) = members.get(key) {
            document[key] = value.clone();
        }
    }
    let read = Declaration::parse(&document.to_string(), std::path::Path::new(""));
    let declaration = read.map_err(|mistakes| {
        let told = |mistake: &declaration::Mistake| {
            format!("{}: {}; accepted: {}", mistake.at, mistake.problem, mistake.accepted)
        };
        Problem::bad(mistakes.0.iter().map(told).collect::<Vec<_>>().join("; "))
    })?;
    Ok(declaration.capabilities)
}

fn descriptor(declared: &Declared) -> Result<Descriptor, Problem> {
    let schema = |source: &Option<declaration::SchemaSource>| {
        let bytes = &source.as_ref()?.bytes;
        Some(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, bytes))))
    };
    let mut draft = declared.draft();
    draft.input_schema = schema(&declared.input_schema);
    draft.output_schema = schema(&declared.output_schema);
    draft.finish().map_err(|error| Problem::bad(format!("{}: {error}", declared.id)))
}

fn ready(descriptors: &[Descriptor], concurrency: usize) -> Value {
    let ids: Vec<_> = descriptors.iter().map(|descriptor| descriptor.id.to_string()).collect();
    json!({"capabilities": ids, "concurrency": concurrency})
}

/// What the response tells, until the agent goes or the sidecar stops.
struct Stream {
    /// Its link: dropping it withdraws what was declared.
    client: Client,
    waiting: mpsc::Receiver<Event>,
    api: Arc<Api>,
    session: Arc<Session>,
    /// The first event's data, until it is told.
    ready: Option<Value>,
}

impl Source for Stream {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Event>> + Send + '_>> {
        Box::pin(async move {
            if let Some(mut data) = self.ready.take() {
                data["session"] = self.session.id.to_string().into();
                return Some(Event::new("ready", data.to_string()));
            }
            tokio::select! {
                biased;
                event = self.waiting.recv() => event,
                _ = self.client.closed() => None,
            }
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.api.providers.sessions().remove(&self.session.id);
    }
}

/// What a request may say.
const MEMBERS: [&str; 4] = ["capabilities", "concurrency", "namespace", "schemaProfile"];
/// Calls that an agent is given at once, unless it says otherwise.
const CONCURRENCY_DEFAULT: usize = 64;
const CONCURRENCY_MAX: usize = 65_536;
/// Cancels that find room behind as many calls as there may be.
const CANCELS_QUEUED: usize = 64;
