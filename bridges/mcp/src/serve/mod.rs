//! Export: requests of an MCP client in; tools that are capabilities, and the results of their calls, out.
//!
//! Read in this order: `catalog` makes tools of what the sidecar lists, with the help of `names` and `schema`; `call` makes
//! one call; `words` says how it ended; `search` stands in for many tools. [`stdio`] and
//! [`http`] are the two transports.

mod call;
mod catalog;
pub mod http;
mod names;
mod schema;
mod search;
pub mod stdio;
mod words;

use std::sync::Arc;

use capd_bridge::sidecar::Sidecar;
use capd_client::{CallRequest, ClientError, Progress, Target, Trace};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::era::{self, Era};
use crate::rpc::{self, INTERNAL_ERROR, METHOD_NOT_FOUND, Request, RpcError};
use call::{Call, Ended};
pub use capd_bridge::export::Choice;
use catalog::{Catalog, Tool, Tools};

/// What a server offers.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Which capabilities are tools.
    pub choice: Choice,
    /// Whether two tools that find and call stand in for all of them.
    pub search: bool,
}

/// The MCP server of one sidecar's agent, over any transport.
pub struct Server {
    sidecar: Arc<Sidecar>,
    catalog: Catalog,
    search: bool,
    calls: Semaphore,
}

/// What a transport gives a request on its way.
pub struct Way {
    /// How it was asked.
    pub era: Era,
    /// Takes notifications that belong to it; what does not fit is dropped.
    pub notices: mpsc::Sender<Value>,
    /// Ends it.
    pub cancelled: CancellationToken,
}

impl Server {
    /// A server of what the agent behind `sidecar` may call.
    pub fn new(sidecar: Arc<Sidecar>, options: ServeOptions) -> Self {
        Self {
            sidecar,
            catalog: Catalog::new(options.choice),
            search: options.search,
            calls: Semaphore::new(CALLS_MAX),
        }
    }

    /// Looks for changes of the tools, as long as somebody listens for them.
    pub async fn follow(&self) {
        self.catalog.follow(&self.sidecar).await;
    }

    /// Answers `initialize`; the version is what the session speaks from here on.
    pub fn initialize(&self, request: &Request) -> (&'static str, Value) {
        let version = era::negotiated(request.params.get("protocolVersion").unwrap_or(&Value::Null));
        let result = json!({
            "protocolVersion": version,
            "capabilities": capabilities(),
            "serverInfo": era::implementation(),
            "instructions": INSTRUCTIONS,
        });
        (version, result)
    }

    /// Answers a request; none when it was cancelled.
    pub async fn answer(&self, request: &Request, way: &Way) -> Option<Result<Value, RpcError>> {
        let answer = match (request.method.as_str(), way.era) {
            ("server/discover", Era::Modern) => Ok(discovered()),
            ("ping", Era::Legacy(_)) => Ok(json!({})),
            ("tools/list", _) => self.list(request, way.era).await,
            ("tools/call", _) => self.call(request, way).await.transpose()?,
            ("subscriptions/listen", Era::Modern) => self.listen(request, way).await.transpose()?,
            (method, _) => Err(RpcError::new(METHOD_NOT_FOUND, format!("Method not found: {method}"))),
        };
        Some(answer.map(|result| way.era.finish(result)))
    }

    /// Passes on that the tools have changed, until `way` is cancelled; for a session that need not ask for it.
    pub async fn notify_changes(&self, way: &Way) {
        let mut changes = self.catalog.changes();
        loop {
            tokio::select! {
                () = way.cancelled.cancelled() => return,
                changed = changes.changed() => if changed.is_err() { return },
            }
            if way.notices.send(rpc::notification(LIST_CHANGED, &json!({}))).await.is_err() {
                return;
            }
        }
    }

    async fn list(&self, request: &Request, era: Era) -> Result<Value, RpcError> {
        if self.search {
            return Ok(listed(search::definitions(), None, era));
        }
        let tools = self.catalog.tools(&self.sidecar).await.map_err(|error| of_client(&error))?;
        let after = match request.params.get("cursor") {
            None => None,
            Some(cursor) => {
                let name = cursor.as_str().and_then(|cursor| cursor.strip_prefix(CURSOR));
                let known =
                    name.ok_or_else(|| RpcError::invalid_params(format!("Invalid cursor: {cursor}")))?;
                Some(known.to_owned())
            }
        };
        // A page begins behind a name, so tools that come and go in between neither hide nor repeat another one.
        let bound = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let mut rest =
            tools.range::<String, _>((bound, std::ops::Bound::Unbounded)).map(|(_, tool)| tool).peekable();
        let (mut page, mut bytes, mut last) = (Vec::new(), 0, None);
        while let Some(tool) = rest.peek() {
            let definition = tool.definition(era);
            bytes += definition.to_string().len();
            if page.len() == PAGE_TOOLS_MAX || (bytes > PAGE_BYTES_MAX && !page.is_empty()) {
                break;
            }
            page.push(definition);
            last = rest.next().map(|tool| tool.name.clone());
        }
        let next = rest.peek().and(last).map(|name| format!("{CURSOR}{name}"));
        Ok(listed(page, next, era))
    }

    async fn call(&self, request: &Request, way: &Way) -> Result<Option<Value>, RpcError> {
        let name = request.params.get("name").and_then(Value::as_str);
        let name =
            name.ok_or_else(|| RpcError::invalid_params("tools/call: \"name\" is missing or no text"))?;
        let empty = Value::Object(Map::new());
        let arguments = request.params.get("arguments").unwrap_or(&empty);
        if !arguments.is_object() {
            return Err(RpcError::invalid_params("tools/call: \"arguments\" is no object"));
        }
        if self.search {
            return self.call_meta(name, arguments, request, way).await;
        }
        self.call_tool(name, arguments, request, way).await
    }

    /// A call of one of the two tools that stand in for all.
    async fn call_meta(
        &self,
        name: &str,
        arguments: &Value,
        request: &Request,
        way: &Way,
    ) -> Result<Option<Value>, RpcError> {
        match name {
            search::FIND => {
                let tools = self.catalog.tools(&self.sidecar).await.map_err(|error| of_client(&error))?;
                Ok(Some(found(&tools, arguments, way.era)))
            }
            search::CALL => {
                let empty = Value::Object(Map::new());
                match (arguments["name"].as_str(), arguments.get("arguments").unwrap_or(&empty)) {
                    (Some(name), arguments) if arguments.is_object() => {
                        match self.call_tool(name, arguments, request, way).await {
                            // Here the name is an argument, which a model can correct.
                            Err(error) if error.code == rpc::INVALID_PARAMS => {
                                Ok(Some(words::refusal(&error.message)))
                            }
                            other => other,
                        }
                    }
                    _ => Ok(Some(words::refusal(
                        "call_capability takes {\"name\": a text, \"arguments\": an object}",
                    ))),
                }
            }
            _ => Err(RpcError::invalid_params(format!(
                "Unknown tool: {name}; there are find_capability and call_capability"
            ))),
        }
    }

    async fn call_tool(
        &self,
        name: &str,
        arguments: &Value,
        request: &Request,
        way: &Way,
    ) -> Result<Option<Value>, RpcError> {
        let started = Instant::now();
        let found = self.catalog.tool(name, &self.sidecar).await.map_err(|error| of_client(&error))?;
        let tool = found.map_err(|unknown| RpcError::invalid_params(unknown.to_string()))?;
        let Ok(_running) = self.calls.try_acquire() else {
            return Ok(Some(words::refusal(&format!("{CALLS_MAX} calls are in flight; call again later"))));
        };
        let meta = Meta::of(request);
        let mut call = match self.prepared(&tool, arguments, &meta, way) {
            Ok(call) => call,
            Err(why) => return Ok(Some(words::refusal(&why))),
        };
        let mut reports = Reports { token: meta.progress_token, last: None, notices: &way.notices };
        let ended = call.run(|progress| reports.pass_on(&progress)).await;
        tracing::info!(
            tool = tool.name,
            capability = %tool.id,
            request = %request.id,
            trace = meta.trace.parent.as_deref().unwrap_or("none"),
            outcome = ended.outcome(),
            ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "a tool was called"
        );
        if matches!(ended, Ended::Cancelled) {
            return Ok(None);
        }
        Ok(Some(words::result(&tool, &ended, call.id, way.era)))
    }

    /// The call that a tool stands for. **Errors:** why nothing may be sent.
    fn prepared<'a>(
        &'a self,
        tool: &Tool,
        arguments: &Value,
        meta: &Meta,
        way: &'a Way,
    ) -> Result<Call<'a>, String> {
        let params = if tool.arguments.is_wrapped {
            let value = arguments.get("value");
            value.ok_or("/value: it is missing; the tool takes {\"value\": …}")?
        } else {
            arguments
        };
        let params = capd_client::to_cbor(params);
        let mut request = CallRequest::new(Target::Id(tool.id.clone())).params_cbor(params.clone());
        request = request.trace(meta.trace.clone());
        if let Some(thread) = &meta.thread {
            request = request.thread_id(thread.clone().into_bytes());
        }
        let is_keyed = meta.key.is_some();
        if let Some(key) = &meta.key {
            if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
                return Err(format!("the idempotency key must have 1 to {KEY_BYTES_MAX} bytes"));
            }
            // The sidecar keeps it on disk, so that it outlives this process as well.
            request = request.key(key.as_str());
        }
        let (sidecar, cancelled) = (&*self.sidecar, &way.cancelled);
        Ok(Call { sidecar, request, is_keyed, may_have_run: false, cancelled, id: None })
    }

    /// A subscription to changes; its answer is its end.
    async fn listen(&self, request: &Request, way: &Way) -> Result<Option<Value>, RpcError> {
        let wants = request.params.get("notifications").and_then(Value::as_object);
        let wants =
            wants.ok_or_else(|| RpcError::invalid_params("\"notifications\" is missing or no object"))?;
        let wants_tools = wants.get("toolsListChanged") == Some(&Value::Bool(true));
        let meta = json!({era::SUBSCRIPTION: request.id.json()});
        let honoured = if wants_tools { json!({"toolsListChanged": true}) } else { json!({}) };
        let mut changes = self.catalog.changes();
        let acknowledged = json!({"_meta": meta, "notifications": honoured});
        let acknowledged = rpc::notification("notifications/subscriptions/acknowledged", &acknowledged);
        if way.notices.send(acknowledged).await.is_err() {
            return Ok(None);
        }
        loop {
            tokio::select! {
                () = way.cancelled.cancelled() => return Ok(None),
                () = way.notices.closed() => return Ok(None),
                changed = changes.changed(), if wants_tools => if changed.is_err() {
                    return Ok(Some(json!({"_meta": meta})));
                },
            }
            if way.notices.send(rpc::notification(LIST_CHANGED, &json!({"_meta": meta}))).await.is_err() {
                return Ok(None);
            }
        }
    }
}

/// What a call says of itself in `_meta`.
struct Meta {
    key: Option<String>,
    thread: Option<String>,
    trace: Trace,
    progress_token: Option<Value>,
}

impl Meta {
    fn of(request: &Request) -> Self {
        let meta = request.params.get("_meta");
        let field = |name: &str| meta.and_then(|meta| meta.get(name));
        let text = |name: &str| field(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            key: text(KEY),
            thread: text(THREAD),
            trace: Trace { parent: text("traceparent"), state: text("tracestate") },
            progress_token: field("progressToken").cloned(),
        }
    }
}

/// Passes reports on to a client that asked for them.
struct Reports<'a> {
    token: Option<Value>,
    last: Option<f64>,
    notices: &'a mpsc::Sender<Value>,
}

impl Reports<'_> {
    fn pass_on(&mut self, progress: &Progress) {
        let Some(token) = &self.token else { return };
        // Each number must be above the one before; words alone move it by next to nothing.
        let (number, message) = match progress {
            Progress::Processing { status_text, .. } => (self.next(), status_text.clone()),
            Progress::Progress { pct } => (f64::from(*pct), None),
            Progress::InputRequired { prompt } => (self.next(), Some(format!("waits for input: {prompt}"))),
        };
        if self.last.is_some_and(|last| number <= last) {
            return;
        }
        self.last = Some(number);
        let mut params = json!({"progressToken": token, "progress": number, "total": 100});
        if let Some(message) = message {
            params["message"] = message.into();
        }
        // A client that reads too slowly misses some.
        let _ = self.notices.try_send(rpc::notification("notifications/progress", &params));
    }

    /// The number that words alone come with.
    fn next(&self) -> f64 {
        self.last.map_or(0.0, |last| last + WORDS_STEP)
    }
}

fn capabilities() -> Value {
    let key = json!({"io.capd/idempotency-key": {"_meta": KEY}});
    json!({"tools": {"listChanged": true}, "experimental": key})
}

fn discovered() -> Value {
    let mut capabilities = capabilities();
    capabilities["extensions"] = json!({"io.capd/idempotency-key": {}});
    let supported: Vec<_> = std::iter::once(era::MODERN).chain(era::LEGACY.into_iter().rev()).collect();
    json!({
        "supportedVersions": supported,
        "capabilities": capabilities,
        "instructions": INSTRUCTIONS,
        "ttlMs": TTL_MS,
        "cacheScope": "private",
    })
}

fn listed(tools: Vec<Value>, next: Option<String>, era: Era) -> Value {
    let mut result = json!({"tools": tools});
    if let Some(next) = next {
        result["nextCursor"] = next.into();
    }
    if era == Era::Modern {
        result["ttlMs"] = TTL_MS.into();
        result["cacheScope"] = "private".into();
    }
    result
}

fn found(tools: &Tools, arguments: &Value, era: Era) -> Value {
    match search::find(tools, arguments, era) {
        Ok(found) => json!({
            "content": [crate::content::block(&found.to_string())],
            "structuredContent": found,
            "isError": false,
        }),
        Err(why) => words::refusal(&why),
    }
}

fn of_client(error: &ClientError) -> RpcError {
    RpcError::new(INTERNAL_ERROR, format!("the sidecar cannot be asked: {error}"))
}

/// The field of `_meta` that makes a call run at most once, however often it is sent.
pub const KEY: &str = "io.capd/idempotency-key";
/// The field of `_meta` that says which turn a call belongs to.
pub const THREAD: &str = "io.capd/thread-id";
/// Longest key. **Source:** AGENT-API 3.
const KEY_BYTES_MAX: usize = 255;
const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// Calls in flight at once.
const CALLS_MAX: usize = 1_024;
/// Tools and bytes on one page of a list.
const PAGE_TOOLS_MAX: usize = 100;
const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// What a cursor begins with.
const CURSOR: &str = "after:";
/// How long a client may take a list for the current one.
const TTL_MS: u64 = 3_000;
/// How much words alone move a progress.
const WORDS_STEP: f64 = 0.01;
const INSTRUCTIONS: &str = "Each tool is a capability with a checked contract. An error begins with what happened: \
                            \"Not executed\", \"Executed, and it failed\", or \"Unknown whether it was executed\". Repeat a \
                            call that may have run only with the same _meta[\"io.capd/idempotency-key\"].";
