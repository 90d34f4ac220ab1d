//! Speaks to an MCP server of either era: requests in; results out, with the truth of what was written.
//!
//! How the messages travel is `streams` or `remote`. Both write a request once. What
//! becomes of it says whether the server may have read it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use capd_bridge::http::client::{HttpClient, Place};
use capd_bridge::import::tool::{Listed, TOOLS_MAX};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::KIND;
use super::remote::Remote;
use super::streams::Streams;
use crate::era;
use crate::rpc::{METHOD_NOT_FOUND, Notification, Request, RpcError, UNSUPPORTED_VERSION};

/// A server, and how to speak with it.
pub struct Peer {
    wire: Wire,
    is_modern: OnceLock<bool>,
    news: Arc<News>,
}

enum Wire {
    Streams(Arc<Streams>),
    Remote(Arc<Remote>),
}

/// What a server says by itself.
#[derive(Default)]
pub(super) struct News {
    /// The connection, or the session, is gone.
    pub(super) closed: CancellationToken,
    /// Its tools have changed.
    pub(super) list_changed: Notify,
}

/// What a server says of a request that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How much is done, where that is told. **Units:** percent.
    pub pct: Option<u8>,
    /// Words for people.
    pub message: Option<String>,
}

/// How a request ends that has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// The server answered with an error.
    #[error("the server answered: {0}")]
    Answered(RpcError),
    /// The server, or something before it, did not take the request.
    #[error("the server did not take the request: {0}")]
    Refused(String),
    /// Not a byte of it was written.
    #[error("the server does not run")]
    NotSent,
    /// The connection broke after some of it was written: the server may have run it.
    #[error("the connection to the server broke after the request was written")]
    Broken,
    /// No answer came in time.
    #[error("the server did not answer in time")]
    Timeout,
}

impl Peer {
    /// A server behind these streams; what it says is read from here on.
    pub fn over_streams(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let news = Arc::<News>::default();
        Self::new(Wire::Streams(Streams::new(input, output, Arc::clone(&news))), news)
    }

    /// A server at a URL.
    pub fn over_http(client: Arc<HttpClient>, place: Place) -> Self {
        let news = Arc::<News>::default();
        Self::new(Wire::Remote(Arc::new(Remote::new(client, place, Arc::clone(&news)))), news)
    }

    const fn new(wire: Wire, news: Arc<News>) -> Self {
        Self { wire, is_modern: OnceLock::new(), news }
    }

    /// Finds out which era the server is of, and begins.
    ///
    /// **Errors:** it speaks neither.
    pub async fn begin(&self) -> Result<(), PeerError> {
        let mut begun = self.begin_once().await;
        if let Err(PeerError::Answered(error)) = &begun
            && error.code == UNSUPPORTED_VERSION
        {
            // A modern server that took longer to start than a probe waits: it has answered by now.
            begun = self.begin_once().await;
        }
        begun
    }

    async fn begin_once(&self) -> Result<(), PeerError> {
        if let Some(found) = self.probe().await? {
            let _ = self.is_modern.set(true);
            self.follow(&found["capabilities"]);
            return Ok(());
        }
        let params = json!({
            "protocolVersion": era::LEGACY[era::LEGACY.len() - 1],
            "capabilities": {},
            "clientInfo": era::implementation(),
        });
        let begun = timeout(BEGIN_WAIT, self.request("initialize", params, None)).await;
        let begun = begun.unwrap_or(Err(PeerError::Timeout))?;
        if let Wire::Remote(remote) = &self.wire {
            remote.has_begun(begun["protocolVersion"].as_str());
        }
        self.notify("notifications/initialized", &json!({})).await?;
        self.follow(&begun["capabilities"]);
        Ok(())
    }

    /// What a modern server says of itself; none of a legacy one.
    async fn probe(&self) -> Result<Option<Value>, PeerError> {
        for _ in 0..PROBES {
            let probe = self.request("server/discover", modern(Map::new()), None);
            match timeout(PROBE_WAIT, probe).await {
                Ok(Ok(found)) if lists_modern(&found["supportedVersions"]) => return Ok(Some(found)),
                Ok(Err(error @ (PeerError::NotSent | PeerError::Refused(_)))) if error.is_final() => {
                    return Err(error);
                }
                // PROTOCOL: a server that names the versions that it speaks is asked again with one of them.
                Ok(Err(PeerError::Answered(error)))
                    if error.code == UNSUPPORTED_VERSION
                        && error.data.as_ref().is_some_and(|data| lists_modern(&data["supported"])) => {}
                // Any other answer, and silence, are those of a legacy server.
                Ok(Ok(_) | Err(_)) | Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Asks to be told of changes, for as long as the connection lasts.
    fn follow(&self, capabilities: &Value) {
        let tells = capabilities["tools"]["listChanged"] == true;
        let is_modern = self.is_modern();
        match &self.wire {
            Wire::Streams(streams) if tells && is_modern => streams.subscribe(subscription()),
            // A legacy server tells without being asked.
            Wire::Streams(_) => {}
            Wire::Remote(remote) => remote.follow(tells, is_modern.then(subscription)),
        }
    }

    /// Every tool that the server lists, page by page.
    ///
    /// **Errors:** as [`Peer::call`].
    pub async fn tools(&self) -> Result<Listed, PeerError> {
        let (mut listed, mut cursor) = (Listed::new(&KIND), None);
        for _ in 0..PAGES_MAX {
            let mut params = Map::new();
            params.extend(cursor.take().map(|cursor: Value| ("cursor".to_owned(), cursor)));
            let asked = self.request("tools/list", self.dressed(params), None);
            let page = timeout(BEGIN_WAIT, asked).await.unwrap_or(Err(PeerError::Timeout))?;
            for tool in page["tools"].as_array().into_iter().flatten() {
                match &self.wire {
                    Wire::Streams(_) => listed.take(tool),
                    Wire::Remote(remote) => match remote.learn(tool) {
                        Ok(()) => listed.take(tool),
                        Err(reason) => listed.refuse(tool, reason),
                    },
                }
            }
            match page.get("nextCursor") {
                Some(next) if next.is_string() => cursor = Some(next.clone()),
                _ => return Ok(listed),
            }
        }
        Ok(listed)
    }

    /// Calls a tool; each report goes to `progress`. Dropping the future tells the server that nobody waits any more.
    ///
    /// **Errors:** [`PeerError`].
    pub async fn call(
        &self,
        tool: &str,
        arguments: Value,
        meta: Map<String, Value>,
        progress: mpsc::Sender<Report>,
    ) -> Result<Value, PeerError> {
        let mut params = Map::new();
        params.insert("name".to_owned(), tool.into());
        params.insert("arguments".to_owned(), arguments);
        params.insert("_meta".to_owned(), Value::Object(meta));
        self.request("tools/call", self.dressed(params), Some(progress)).await
    }

    /// Ready when the server says that its tools have changed.
    pub async fn list_changed(&self) {
        self.news.list_changed.notified().await;
    }

    /// Ready when the connection is gone.
    pub async fn closed(&self) {
        self.news.closed.cancelled().await;
    }

    /// Ends the connection, and on streams every request on it.
    pub async fn close(&self) {
        match &self.wire {
            Wire::Streams(streams) => streams.close(),
            Wire::Remote(remote) => remote.close().await,
        }
    }

    async fn request(
        &self,
        method: &str,
        params: Value,
        progress: Option<mpsc::Sender<Report>>,
    ) -> Result<Value, PeerError> {
        match &self.wire {
            Wire::Streams(streams) => streams.request(method, params, progress).await,
            Wire::Remote(remote) => remote.request(method, params, progress).await,
        }
    }

    async fn notify(&self, method: &str, params: &Value) -> Result<(), PeerError> {
        match &self.wire {
            Wire::Streams(streams) => streams.notify(method, params).await,
            Wire::Remote(remote) => remote.notify(method, params).await,
        }
    }

    fn is_modern(&self) -> bool {
        self.is_modern.get() == Some(&true)
    }

    /// Says in `_meta` what requests of the server's era say.
    fn dressed(&self, params: Map<String, Value>) -> Value {
        if self.is_modern() { modern(params) } else { Value::Object(params) }
    }
}

impl PeerError {
    /// Whether asking in the way of another era is in vain.
    fn is_final(&self) -> bool {
        match self {
            Self::NotSent => true,
            // A server that wants a token wants it in every era.
            Self::Refused(why) => why.starts_with("401") || why.starts_with("403"),
            Self::Answered(_) | Self::Broken | Self::Timeout => false,
        }
    }
}

impl News {
    /// Takes what a server tells; progress is for whoever waits for it.
    pub(super) fn take(&self, told: &Notification) {
        match told.method.as_str() {
            "notifications/tools/list_changed" => self.list_changed.notify_one(),
            "notifications/message" => {
                let said = Value::Object(told.params.clone()).to_string();
                let said: String = said.chars().take(SHOWN_MAX).collect();
                tracing::info!(said, "the server says");
            }
            _ => {}
        }
    }
}

impl Report {
    /// The report of `notifications/progress`.
    pub(super) fn of(params: &Map<String, Value>) -> Self {
        let number = |key: &str| params.get(key).and_then(Value::as_f64);
        let share = match (number("progress"), number("total")) {
            (Some(progress), Some(total)) if total > 0.0 => {
                Some((progress / total * 100.0).clamp(0.0, 100.0))
            }
            _ => None,
        };
        // It is between 0 and 100.
        let pct = share.map(|share| share as u8);
        Self { pct, message: params.get("message").and_then(Value::as_str).map(str::to_owned) }
    }
}

/// What is answered to a request of the server's.
pub(super) fn answer_to(request: &Request) -> Result<Value, RpcError> {
    match request.method.as_str() {
        "ping" => Ok(json!({})),
        method => {
            let message = format!("Method not found: {method}; no agent can answer it here");
            Err(RpcError::new(METHOD_NOT_FOUND, message))
        }
    }
}

fn modern(mut params: Map<String, Value>) -> Value {
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    if let Value::Object(meta) = meta {
        meta.extend(era::request_meta());
    }
    Value::Object(params)
}

/// The params with which a modern server is asked to tell of changes.
fn subscription() -> Value {
    let mut params = Map::new();
    params.insert("notifications".to_owned(), json!({"toolsListChanged": true}));
    modern(params)
}

fn lists_modern(versions: &Value) -> bool {
    versions.as_array().is_some_and(|versions| versions.iter().any(|version| version == era::MODERN))
}

/// How often a server is asked which versions it speaks.
const PROBES: usize = 2;
/// How long a server may be silent before it is taken for a legacy one. Legacy servers answer at once, with an error.
const PROBE_WAIT: Duration = Duration::from_secs(10);
/// How long the beginning of a session, and a page of tools, may take.
const BEGIN_WAIT: Duration = Duration::from_secs(60);
/// Pages of one list.
const PAGES_MAX: usize = TOOLS_MAX;
/// Characters of foreign text in a log line.
pub(super) const SHOWN_MAX: usize = 1_000;
