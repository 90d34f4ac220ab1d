//! The transport of a client that started us: one message a line in; one message a line out.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Server, Way};
use crate::era::Era;
use crate::lines::{self, Line};
use crate::rpc::{self, Id, Malformed, Message, Notification, PARSE_ERROR, Request, RpcError};
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;

/// Serves one client until its stream ends, then lets calls in flight end for a while.
///
/// **Errors:** those of the streams.
pub async fn serve(
    server: Arc<Server>,
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (out, messages) = mpsc::channel(MESSAGES_MAX);
    let writer = tokio::spawn(write(output, messages));
    let mut session = Session {
        server,
        out,
        era: None,
        requests: Arc::default(),
        ended: CancellationToken::new(),
        tasks: JoinSet::new(),
    };
    while let Some(line) = lines::next(&mut input, LINE_BYTES_MAX).await? {
        match line {
            Line::TooLong(bytes) => session.refuse(&Malformed {
                id: None,
                error: RpcError::new(
                    PARSE_ERROR,
                    format!("a message of {bytes} bytes; accepted: {LINE_BYTES_MAX}"),
                ),
            }),
            Line::Whole(line) if line.trim_ascii().is_empty() => {}
            Line::Whole(line) => session.take(&line).await,
        }
        while session.tasks.try_join_next().is_some() {}
    }
    session.end().await;
    writer.await.unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
}

/// The client of one process.
struct Session {
    server: Arc<Server>,
    out: mpsc::Sender<Value>,
    /// What was agreed by `initialize`, if it was.
    era: Option<Era>,
    requests: Arc<Mutex<HashMap<Id, CancellationToken>>>,
    ended: CancellationToken,
    tasks: JoinSet<()>,
}

impl Session {
    async fn take(&mut self, line: &[u8]) {
        match Message::read(line) {
            Ok(Message::Request(request)) => self.on_request(request).await,
            Ok(Message::Notification(notification)) => self.on_notification(&notification),
            // We ask nothing of clients.
            Ok(Message::Response { id, .. }) => tracing::debug!(%id, "an answer to nothing was dropped"),
            Err(malformed) => self.refuse(&malformed),
        }
    }

    async fn on_request(&mut self, request: Request) {
        let era = match self.era_of(&request) {
            Ok(era) => era,
            Err(error) => return self.send(rpc::response(Some(&request.id), &Err(error))).await,
        };
        if request.method == "initialize" && era != Era::Modern {
            let (version, result) = self.server.initialize(&request);
            self.era = Some(Era::Legacy(version));
            return self.send(rpc::response(Some(&request.id), &Ok(result))).await;
        }
        let cancelled = self.ended.child_token();
        let is_known = match lock(&self.requests).entry(request.id.clone()) {
            Entry::Occupied(_) => true,
            Entry::Vacant(place) => {
                place.insert(cancelled.clone());
                false
            }
        };
        if is_known {
            let error = RpcError::new(rpc::INVALID_REQUEST, "a request with this id is in flight");
            return self.send(rpc::response(Some(&request.id), &Err(error))).await;
        }
        let (server, out, requests) =
            (Arc::clone(&self.server), self.out.clone(), Arc::clone(&self.requests));
        self.tasks.spawn(async move {
            let way = Way { era, notices: out.clone(), cancelled };
            let answer = server.answer(&request, &way).await;
            lock(&requests).remove(&request.id);
            if let Some(answer) = answer {
                // The client is gone.
                let _ = out.send(rpc::response(Some(&request.id), &answer)).await;
            }
        });
    }

    /// How a request was asked. **Errors:** it says no version, and no session was begun.
    fn era_of(&self, request: &Request) -> Result<Era, RpcError> {
        if let Some(era) = Era::of(request)? {
            return Ok(era);
        }
        match (self.era, request.method.as_str()) {
            (Some(era), _) => Ok(era),
            (None, "initialize" | "ping") => Ok(Era::Legacy(crate::era::LEGACY_UNNAMED)),
            (None, _) => Err(RpcError::invalid_params(format!(
                "_meta[\"{}\"] is missing; give each request its protocol version, or send initialize first",
                crate::era::PROTOCOL_VERSION
            ))),
        }
    }

    fn on_notification(&mut self, notification: &Notification) {
        match notification.method.as_str() {
            "notifications/cancelled" => {
                let id = notification.params.get("requestId").and_then(Id::of);
                if let Some(cancelled) = id.and_then(|id| lock(&self.requests).remove(&id)) {
                    cancelled.cancel();
                }
            }
            "notifications/initialized" if self.era.is_some() => {
                let way = Way {
                    era: self.era.unwrap_or(Era::Modern),
                    notices: self.out.clone(),
                    cancelled: self.ended.child_token(),
                };
                let server = Arc::clone(&self.server);
                self.tasks.spawn(async move { server.notify_changes(&way).await });
            }
            method => tracing::debug!(method, "a notification was ignored"),
        }
    }

    fn refuse(&self, malformed: &Malformed) {
        // A client that sends more nonsense than it reads answers to is not answered.
        let _ = self.out.try_send(rpc::response(malformed.id.as_ref(), &Err(malformed.error.clone())));
    }

    async fn send(&self, message: Value) {
        // The client is gone.
        let _ = self.out.send(message).await;
    }

    /// No more requests come: those in flight may end, and what only listens stops.
    async fn end(mut self) {
        let calls = async {
            loop {
                let is_done = lock(&self.requests).is_empty();
                if is_done || self.tasks.join_next().await.is_none() {
                    return;
                }
            }
        };
        let _ = timeout(END_WAIT, calls).await;
        self.ended.cancel();
        self.tasks.shutdown().await;
    }
}

async fn write(mut output: impl AsyncWrite + Unpin, mut messages: mpsc::Receiver<Value>) -> io::Result<()> {
    while let Some(message) = messages.recv().await {
        let mut line = message.to_string();
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        // Whatever waits already goes out together.
        if messages.is_empty() {
            output.flush().await?;
        }
    }
    output.shutdown().await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Maps change in single steps, so a panic leaves none half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Longest message: what a call's params may be at most. **Units:** bytes.
const LINE_BYTES_MAX: usize = MSG_SIZE_BYTES_DEFAULT as usize;
/// Messages that wait for a slow reader.
const MESSAGES_MAX: usize = 256;
/// How long calls in flight may take once the client's stream has ended.
const END_WAIT: Duration = Duration::from_secs(5);
