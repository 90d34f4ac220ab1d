//! Carries messages to a server over HTTP, a request each. **Source:** MCP 2025-11-25 and 2026-07-28, streamable HTTP.
//!
//! A request is posted once. If the stream of its answer breaks and its events have ids, the rest of the stream is asked for,
//! never the request again. Redirects are not followed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use capd_bridge::http::client::{Answer, EventStream, ExchangeError, HttpClient, Place};
use capd_bridge::import::tool::TOOLS_MAX;
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::headers::{self, Mirrored};
use super::peer::{News, PeerError, Report, SHOWN_MAX, answer_to};
use crate::era::{LEGACY, MODERN};
use crate::rpc::{self, Id, Message};

/// A server at a URL.
pub(super) struct Remote {
    client: Arc<HttpClient>,
    place: Place,
    news: Arc<News>,
    next_id: AtomicU64,
    /// The revision of a legacy session; none before one has begun, and none with a modern server.
    version: OnceLock<String>,
    session: OnceLock<String>,
    /// Which arguments of a tool are repeated in the head of a call.
    mirrored: Mutex<HashMap<String, Mirrored>>,
}

impl Remote {
    pub(super) fn new(client: Arc<HttpClient>, place: Place, news: Arc<News>) -> Self {
        Self {
            client,
            place,
            news,
            next_id: AtomicU64::new(1),
            version: OnceLock::new(),
            session: OnceLock::new(),
            mirrored: Mutex::default(),
        }
    }

    /// A legacy session has begun, in this revision.
    pub(super) fn has_begun(&self, version: Option<&str>) {
        let known = LEGACY.into_iter().find(|known| Some(*known) == version);
        let _ = self.version.set(known.unwrap_or(LEGACY[LEGACY.len() - 1]).to_owned());
    }

    /// Learns which arguments of a tool its calls repeat in their heads. **Errors:** they cannot.
    pub(super) fn learn(&self, tool: &Value) -> Result<(), String> {
        let found = headers::mirrored(&tool["inputSchema"])?;
        let mut mirrored = self.mirrored();
        if let Some(name) = tool["name"].as_str() {
            if found.is_empty() {
                mirrored.remove(name);
            } else if mirrored.len() < TOOLS_MAX {
                mirrored.insert(name.to_owned(), found);
            }
        }
        Ok(())
    }

    pub(super) async fn request(
        self: &Arc<Self>,
        method: &str,
        mut params: Value,
        progress: Option<mpsc::Sender<Report>>,
    ) -> Result<Value, PeerError> {
        let id = Id::from(self.next_id.fetch_add(1, Ordering::Relaxed));
        if progress.is_some() {
            params["_meta"]["progressToken"] = id.json().clone();
        }
        let mut asked = Asked { remote: self, id: id.clone(), is_open: true };
        let answer = self.post(&rpc::request(&id, method, &params)).await;
        let outcome = match answer {
            Ok(answer) => self.outcome(answer, &id, progress.as_ref()).await,
            Err(error) => Err(error),
        };
        asked.is_open = false;
        outcome
    }

    pub(super) async fn notify(&self, method: &str, params: &Value) -> Result<(), PeerError> {
        self.post(&rpc::notification(method, params)).await.map(drop)
    }

    /// Follows what the server tells by itself: on a stream of its own, or by listing again from time to time. A legacy server
    /// also asks there, and is refused at once instead of waiting.
    pub(super) fn follow(self: &Arc<Self>, tells: bool, subscription: Option<Value>) {
        let remote = Arc::clone(self);
        tokio::spawn(async move {
            let closed = remote.news.closed.clone();
            let following = async {
                if tells || subscription.is_none() {
                    remote.listen(subscription, tells).await;
                }
                loop {
                    sleep(LIST_EVERY).await;
                    remote.news.list_changed.notify_one();
                }
            };
            tokio::select! {
                () = closed.cancelled() => {}
                () = following => {}
            }
        });
    }

    /// Ends the session, if there is one. Calls that run have connections of their own, and go on.
    pub(super) async fn close(&self) {
        self.news.closed.cancel();
        if self.session.get().is_some() {
            let ended = self.exchange(Method::DELETE, &[], None);
            // A server that cannot be told drops the session by itself.
            let _ = timeout(END_WAIT, ended).await;
        }
    }

    /// Listens until the server ends that for good.
    async fn listen(self: &Arc<Self>, subscription: Option<Value>, tells: bool) {
        let (mut last_id, mut failures) = (None, 0_u32);
        loop {
            let opened = match &subscription {
                Some(params) => {
                    let id = Id::from(self.next_id.fetch_add(1, Ordering::Relaxed));
                    self.post(&rpc::request(&id, "subscriptions/listen", params)).await
                }
                None => self.reopen(last_id.as_deref()).await,
            };
            match opened {
                Ok(answer) if answer.media_type() == EVENTS => {
                    let mut events = answer.events(BYTES_MAX);
                    let begun = Instant::now();
                    self.hear(&mut events).await;
                    let is_short = begun.elapsed() < PAUSE_MAX;
                    failures = if is_short { failures.saturating_add(1) } else { 0 };
                    last_id = events.last_id.take().or(last_id);
                    if tells {
                        // Some may have been missed meanwhile.
                        self.news.list_changed.notify_one();
                    }
                }
                Ok(_) | Err(PeerError::Answered(_) | PeerError::Refused(_)) => {
                    tracing::debug!(
                        "the server has no stream of its own; its tools are listed again from time to time"
                    );
                    return;
                }
                Err(_) => failures = failures.saturating_add(1),
            }
            sleep((PAUSE_MIN * 2_u32.pow(failures.min(5))).min(PAUSE_MAX)).await;
        }
    }

    /// Takes what a stream has until it ends.
    async fn hear(&self, events: &mut EventStream) {
        while let Ok(Some(data)) = events.next().await {
            match Message::read(data.as_bytes()) {
                Ok(Message::Notification(told)) => self.news.take(&told),
                Ok(Message::Request(asked)) => self.answer(&asked).await,
                Ok(Message::Response { .. }) | Err(_) => {}
            }
        }
    }

    async fn answer(&self, asked: &rpc::Request) {
        let answer = rpc::response(Some(&asked.id), &answer_to(asked));
        // A server that does not take the answer has waited in vain.
        let _ = timeout(END_WAIT, self.post(&answer)).await;
    }

    /// What became of a request whose answer has begun.
    async fn outcome(
        &self,
        mut answer: Answer,
        id: &Id,
        progress: Option<&mpsc::Sender<Report>>,
    ) -> Result<Value, PeerError> {
        let (mut last_id, mut failures) = (None, 0);
        loop {
            if answer.media_type() != EVENTS {
                let body = answer.bytes(BYTES_MAX).await.map_err(|error| self.broken(&error))?;
                return own(&body, id).unwrap_or(Err(PeerError::Broken));
            }
            let mut events = answer.events(BYTES_MAX);
            loop {
                match events.next().await {
                    // The first event of a stream has an id and no data.
                    Ok(Some(data)) if data.is_empty() => {}
                    Ok(Some(data)) => {
                        if let Some(outcome) = self.said(&data, id, progress).await {
                            return outcome;
                        }
                        failures = 0;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "the stream of an answer broke");
                        break;
                    }
                }
            }
            let pause = events.retry.unwrap_or(PAUSE_MIN).clamp(RETRY_MIN, PAUSE_MAX);
            last_id = events.last_id.take().or(last_id);
            answer = loop {
                let Some(last_id) = last_id.as_deref().filter(|_| failures < RESUMES_MAX) else {
                    return Err(PeerError::Broken);
                };
                failures += 1;
                sleep(pause).await;
                match self.reopen(Some(last_id)).await {
                    Ok(answer) if answer.media_type() == EVENTS => break answer,
                    // The server no longer knows the stream.
                    Ok(_) | Err(PeerError::Refused(_) | PeerError::Answered(_)) => {
                        return Err(PeerError::Broken);
                    }
                    Err(_) => {}
                }
            };
        }
    }

    /// Takes a message of an answer's stream: the request's outcome, if it is that.
    async fn said(
        &self,
        data: &str,
        id: &Id,
        progress: Option<&mpsc::Sender<Report>>,
    ) -> Option<Result<Value, PeerError>> {
        match Message::read(data.as_bytes()) {
            Ok(Message::Notification(told)) if told.method == "notifications/progress" => {
                let is_ours = told.params.get("progressToken") == Some(id.json());
                if let Some(progress) = progress.filter(|_| is_ours) {
                    // A caller that reads too slowly misses some.
                    let _ = progress.try_send(Report::of(&told.params));
                }
                None
            }
            Ok(Message::Notification(told)) => {
                self.news.take(&told);
                None
            }
            Ok(Message::Request(asked)) => {
                self.answer(&asked).await;
                None
            }
            _ => own(data.as_bytes(), id),
        }
    }

    /// Opens the stream of what the server tells, from an event on.
    async fn reopen(&self, last_id: Option<&str>) -> Result<Answer, PeerError> {
        let mut head = vec![(ACCEPT, EVENTS)];
        head.extend(last_id.map(|id| (LAST_EVENT_ID, id)));
        self.exchange(Method::GET, &head, None).await
    }

    /// Posts a message once.
    async fn post(&self, message: &Value) -> Result<Answer, PeerError> {
        let (method, params) = (message["method"].as_str(), &message["params"]);
        let name = params["name"].as_str().filter(|_| method == Some("tools/call"));
        let mut fields: Vec<(HeaderName, String)> = Vec::new();
        fields.extend(method.map(|method| (MCP_METHOD, method.to_owned())));
        fields.extend(name.map(|name| (MCP_NAME, headers::field_value(name))));
        if let Some(name) = name {
            let mirrored = self.mirrored().get(name).cloned().unwrap_or_default();
            fields.extend(headers::fields(&mirrored, &params["arguments"]));
        }
        let head = [(ACCEPT, "application/json, text/event-stream"), (CONTENT_TYPE, "application/json")];
        let fields = fields.iter().map(|(name, value)| (name.clone(), value.as_str()));
        let head: Vec<_> = head.into_iter().chain(fields).collect();
        let answer = self.exchange(Method::POST, &head, Some(message)).await?;
        if method == Some("initialize")
            && let Some(session) = answer.field(&SESSION)
        {
            let _ = self.session.set(session.to_owned());
        }
        Ok(answer)
    }

    async fn exchange(
        &self,
        method: Method,
        head: &[(HeaderName, &str)],
        message: Option<&Value>,
    ) -> Result<Answer, PeerError> {
        let mut head = head.to_vec();
        let initializes = message.is_some_and(|message| message["method"] == "initialize");
        if !initializes {
            head.push((MCP_VERSION, self.version.get().map_or(MODERN, String::as_str)));
        }
        head.extend(self.session.get().map(|session| (SESSION, session.as_str())));
        let body = message.map(|message| Bytes::from(message.to_string())).unwrap_or_default();
        let answer = self.client.exchange(method, &self.place, &head, body).await;
        let answer = answer.map_err(|error| self.broken(&error))?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(self.refusal(answer, message).await)
    }

    /// Why a request has another status than success.
    async fn refusal(&self, answer: Answer, message: Option<&Value>) -> PeerError {
        let status = answer.status;
        if status == StatusCode::NOT_FOUND && self.session.get().is_some() {
            // PROTOCOL: the server has ended the session and took nothing of it; the next one begins anew.
            tracing::info!("the server has ended the session");
            self.news.closed.cancel();
            return PeerError::NotSent;
        }
        let body = timeout(END_WAIT, answer.bytes(REFUSAL_BYTES_MAX)).await;
        let id = message.and_then(|message| message.get("id")).and_then(Id::of);
        if let (Ok(Ok(body)), Some(id)) = (body, id)
            && let Some(Err(error)) = own(&body, &id)
        {
            return error;
        }
        if status == StatusCode::REQUEST_TIMEOUT || status.is_server_error() {
            // What stands before the server may have passed the request on.
            return PeerError::Broken;
        }
        PeerError::Refused(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!(
                "{status}: it wants a bearer token; give it with --token-file, or in CAPD_REMOTE_TOKEN"
            ),
            _ if status.is_redirection() => {
                format!("{status}: redirects are not followed; use the URL that the server has moved to")
            }
            _ => status.to_string(),
        })
    }

    fn broken(&self, error: &ExchangeError) -> PeerError {
        tracing::debug!(%error, "a request failed");
        match error {
            ExchangeError::NotSent(why) => {
                let why: String = why.chars().take(SHOWN_MAX).collect();
                tracing::warn!(why, "the server cannot be reached");
                self.news.closed.cancel();
                PeerError::NotSent
            }
            ExchangeError::Broken(_) => PeerError::Broken,
        }
    }

    fn mirrored(&self) -> MutexGuard<'_, HashMap<String, Mirrored>> {
        // The table changes in single steps, so a panic leaves none half done.
        self.mirrored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that was made; in a legacy session, one that is left behind is cancelled. A modern server sees that nobody reads.
struct Asked<'a> {
    remote: &'a Arc<Remote>,
    id: Id,
    is_open: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.is_open || self.remote.version.get().is_none() {
            return;
        }
        let params =
            json!({"requestId": self.id.json(), "reason": "the call was cancelled, or its time ran out"});
        let remote = Arc::clone(self.remote);
        tokio::spawn(async move {
            // A server that cannot be told finds out by itself.
            let _ = timeout(END_WAIT, remote.notify("notifications/cancelled", &params)).await;
        });
    }
}

/// The outcome that a message has for a request; none if it is another message.
fn own(body: &[u8], of: &Id) -> Option<Result<Value, PeerError>> {
    match Message::read(body) {
        Ok(Message::Response { id, outcome }) if id == *of => Some(outcome.map_err(PeerError::Answered)),
        _ => None,
    }
}

const MCP_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const MCP_METHOD: HeaderName = HeaderName::from_static("mcp-method");
const MCP_NAME: HeaderName = HeaderName::from_static("mcp-name");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: &str = "text/event-stream";
/// Bytes of an answer, or of an event.
const BYTES_MAX: usize = MSG_SIZE_BYTES_DEFAULT as usize;
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
/// How often the tools of a server are listed that does not tell of changes.
const LIST_EVERY: Duration = Duration::from_secs(60);
/// How often in a row the rest of a stream is asked for in vain.
const RESUMES_MAX: u32 = 5;
/// Pauses before a stream is opened again.
const RETRY_MIN: Duration = Duration::from_millis(100);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long something may take whose outcome does not matter.
const END_WAIT: Duration = Duration::from_secs(2);
