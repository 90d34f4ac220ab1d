//! Speaks to an MCP server over two byte streams: requests in; results out, with the truth of what was written.
//!
//! A request is written once. What becomes of it says whether the server may have read it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use capd_bridge::import::tool::{Listed, TOOLS_MAX};
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::KIND;
use crate::era;
use crate::lines::{self, Line};
use crate::rpc::{self, Id, METHOD_NOT_FOUND, Message, Notification, RpcError};

/// A server, and how to speak with it.
pub struct Peer {
    out: tokio::sync::Mutex<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: Mutex<HashMap<Id, Waiting>>,
    next_id: AtomicU64,
    is_modern: std::sync::OnceLock<bool>,
    closed: CancellationToken,
    list_changed: Notify,
    /// Itself, for tasks that outlive a request.
    own: Weak<Self>,
}

/// Whoever waits for one answer.
struct Waiting {
    answer: oneshot::Sender<Result<Value, RpcError>>,
    progress: Option<mpsc::Sender<Report>>,
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
    pub fn new(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Arc<Self> {
        let peer = Arc::new_cyclic(|own| Self {
            out: tokio::sync::Mutex::new(Box::new(output)),
            waiting: Mutex::default(),
            next_id: AtomicU64::new(1),
            is_modern: std::sync::OnceLock::new(),
            closed: CancellationToken::new(),
            list_changed: Notify::new(),
            own: Weak::clone(own),
        });
        let reading = Arc::clone(&peer);
        tokio::spawn(async move {
            reading.read(BufReader::new(input)).await;
            reading.close();
        });
        peer
    }

    /// Finds out which era the server is of, and begins.
    ///
    /// **Errors:** it speaks neither.
    pub async fn begin(self: &Arc<Self>) -> Result<(), PeerError> {
        let probe = self.request("server/discover", modern(Map::new()), None);
        match timeout(PROBE_WAIT, probe).await {
            Ok(Ok(found)) if lists_modern(&found["supportedVersions"]) => {
                let _ = self.is_modern.set(true);
                if found["capabilities"]["tools"]["listChanged"] == true {
                    self.subscribe();
                }
                return Ok(());
            }
            Ok(Err(error @ (PeerError::NotSent | PeerError::Broken))) => return Err(error),
            // Any other answer, and silence, are those of a legacy server.
            Ok(Ok(_) | Err(_)) | Err(_) => {}
        }
        let _ = self.is_modern.set(false);
        let params = json!({
            "protocolVersion": era::LEGACY[era::LEGACY.len() - 1],
            "capabilities": {},
            "clientInfo": era::implementation(),
        });
        let begun = timeout(BEGIN_WAIT, self.request("initialize", params, None)).await;
        begun.unwrap_or(Err(PeerError::Timeout))?;
        self.notify("notifications/initialized", &json!({})).await
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
            page["tools"].as_array().into_iter().flatten().for_each(|tool| listed.take(tool));
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
        self: &Arc<Self>,
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
        self.list_changed.notified().await;
    }

    /// Ready when the connection is gone.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Ends the connection, and every request on it.
    pub fn close(&self) {
        self.closed.cancel();
        self.waiting().clear();
    }

    /// Says in `_meta` what requests of the server's era say.
    fn dressed(&self, params: Map<String, Value>) -> Value {
        if self.is_modern.get() == Some(&true) { modern(params) } else { Value::Object(params) }
    }

    async fn request(
        &self,
        method: &str,
        mut params: Value,
        progress: Option<mpsc::Sender<Report>>,
    ) -> Result<Value, PeerError> {
        let id = Id::from(self.next_id.fetch_add(1, Ordering::Relaxed));
        if progress.is_some() {
            params["_meta"]["progressToken"] = id.json().clone();
        }
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(id.clone(), Waiting { answer: sender, progress });
        let mut asked = Asked { peer: self, id: id.clone(), is_written: false };
        // From its first byte on it may be read.
        asked.is_written = true;
        self.write(&rpc::request(&id, method, &params)).await?;
        let answer = answer.await;
        asked.is_written = false;
        match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(PeerError::Answered(error)),
            Err(_) => Err(PeerError::Broken),
        }
    }

    async fn notify(&self, method: &str, params: &Value) -> Result<(), PeerError> {
        self.write(&rpc::notification(method, params)).await
    }

    /// Writes a message as a whole. **Errors:** whether nothing of it or something of it was written.
    async fn write(&self, message: &Value) -> Result<(), PeerError> {
        let mut line = message.to_string();
        line.push('\n');
        let mut out = self.out.lock().await;
        if self.closed.is_cancelled() {
            return Err(PeerError::NotSent);
        }
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match out.write(rest).await {
                Ok(count) if count > 0 => rest = &rest[count..],
                Ok(_) | Err(_) => {
                    self.closed.cancel();
                    let is_untouched = rest.len() == line.len();
                    return Err(if is_untouched { PeerError::NotSent } else { PeerError::Broken });
                }
            }
        }
        out.flush().await.map_err(|_| PeerError::Broken)
    }

    async fn read(self: &Arc<Self>, mut input: BufReader<impl AsyncRead + Unpin>) {
        loop {
            let line = tokio::select! {
                () = self.closed.cancelled() => return,
                line = lines::next(&mut input, MSG_SIZE_BYTES_DEFAULT as usize) => line,
            };
            match line {
                Ok(Some(Line::Whole(line))) => self.take(&line),
                Ok(Some(Line::TooLong(bytes))) => {
                    // Whose answer it was is not known, so all of them are in doubt.
                    tracing::warn!(bytes, "a message of the server is too long; the connection ends");
                    return;
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%error, "the server's output was not read");
                    return;
                }
            }
        }
    }

    fn take(self: &Arc<Self>, line: &[u8]) {
        match Message::read(line) {
            Ok(Message::Response { id, outcome }) => {
                let waiting = self.waiting().remove(&id);
                if let Some(waiting) = waiting {
                    // Whoever asked may have left.
                    let _ = waiting.answer.send(outcome);
                }
            }
            Ok(Message::Notification(notification)) => self.on_notification(&notification),
            Ok(Message::Request(request)) => {
                let outcome = match request.method.as_str() {
                    "ping" => Ok(json!({})),
                    method => {
                        let message = format!("Method not found: {method}; no agent can answer it here");
                        Err(RpcError::new(METHOD_NOT_FOUND, message))
                    }
                };
                let (peer, answer) = (Arc::clone(self), rpc::response(Some(&request.id), &outcome));
                tokio::spawn(async move {
                    // The connection is gone.
                    let _ = peer.write(&answer).await;
                });
            }
            Err(malformed) => {
                let said = String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]).into_owned();
                tracing::warn!(error = %malformed.error, said, "a line of the server is no message");
            }
        }
    }

    fn on_notification(&self, notification: &Notification) {
        match notification.method.as_str() {
            "notifications/tools/list_changed" => self.list_changed.notify_one(),
            "notifications/progress" => {
                let id = notification.params.get("progressToken").and_then(Id::of);
                let waiting = self.waiting();
                let waiting =
                    id.and_then(|id| waiting.get(&id)).and_then(|waiting| waiting.progress.as_ref());
                if let Some(progress) = waiting {
                    // A caller that reads too slowly misses some.
                    let _ = progress.try_send(Report::of(&notification.params));
                }
            }
            "notifications/message" => {
                let said = Value::Object(notification.params.clone()).to_string();
                tracing::info!(said = said.get(..SHOWN_MAX).unwrap_or(&said), "the server says");
            }
            _ => {}
        }
    }

    /// Asks to be told of changes, for as long as the connection lasts.
    fn subscribe(self: &Arc<Self>) {
        let peer = Arc::clone(self);
        tokio::spawn(async move {
            let mut params = Map::new();
            params.insert("notifications".to_owned(), json!({"toolsListChanged": true}));
            let ended = peer.request("subscriptions/listen", modern(params), None).await;
            tracing::debug!(?ended, "the server tells no changes of its tools any more");
        });
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Id, Waiting>> {
        // The table changes in single steps, so a panic leaves none half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that was made; one that is left behind is cancelled.
struct Asked<'a> {
    peer: &'a Peer,
    id: Id,
    is_written: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.peer.waiting().remove(&self.id);
        if !self.is_written || self.peer.closed.is_cancelled() {
            return;
        }
        let params =
            json!({"requestId": self.id.json(), "reason": "the call was cancelled, or its time ran out"});
        self.peer.cancels(rpc::notification("notifications/cancelled", &params));
    }
}

impl Peer {
    /// Writes a cancellation without waiting; it needs the peer for as long as that takes.
    fn cancels(&self, message: Value) {
        if let Some(peer) = self.own.upgrade() {
            tokio::spawn(async move {
                // The connection is gone.
                let _ = peer.write(&message).await;
            });
        }
    }
}

impl Report {
    fn of(params: &Map<String, Value>) -> Self {
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

fn modern(mut params: Map<String, Value>) -> Value {
    let meta = params.entry("_meta").or_insert_with(|| json!({}));
    if let Value::Object(meta) = meta {
        meta.extend(era::request_meta());
    }
    Value::Object(params)
}

fn lists_modern(versions: &Value) -> bool {
    versions.as_array().is_some_and(|versions| versions.iter().any(|version| version == era::MODERN))
}

/// How long a server may be silent before it is taken for a legacy one. Legacy servers answer at once, with an error.
const PROBE_WAIT: Duration = Duration::from_secs(10);
/// How long the beginning of a session, and a page of tools, may take.
const BEGIN_WAIT: Duration = Duration::from_secs(60);
/// Pages of one list.
const PAGES_MAX: usize = TOOLS_MAX;
/// Bytes of foreign text in a log line.
const SHOWN_MAX: usize = 1_000;
