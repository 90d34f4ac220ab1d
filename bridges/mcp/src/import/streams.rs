//! Carries messages to a server over two byte streams, a line each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};

use super::peer::{News, PeerError, Report, SHOWN_MAX, answer_to};
use crate::lines::{self, Line};
use crate::rpc::{self, Id, Message, Notification, RpcError};

/// A server behind two streams.
pub(super) struct Streams {
    out: tokio::sync::Mutex<Box<dyn AsyncWrite + Send + Unpin>>,
    waiting: Mutex<HashMap<Id, Waiting>>,
    next_id: AtomicU64,
    news: Arc<News>,
    /// Itself, for tasks that outlive a request.
    own: Weak<Self>,
}

/// Whoever waits for one answer.
struct Waiting {
    answer: oneshot::Sender<Result<Value, RpcError>>,
    progress: Option<mpsc::Sender<Report>>,
}

impl Streams {
    pub(super) fn new(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
        news: Arc<News>,
    ) -> Arc<Self> {
        let streams = Arc::new_cyclic(|own| Self {
            out: tokio::sync::Mutex::new(Box::new(output)),
            waiting: Mutex::default(),
            next_id: AtomicU64::new(1),
            news,
            own: Weak::clone(own),
        });
        let reading = Arc::clone(&streams);
        tokio::spawn(async move {
            reading.read(BufReader::new(input)).await;
            reading.close();
        });
        streams
    }

    /// Ends the connection, and every request on it.
    pub(super) fn close(&self) {
        self.news.closed.cancel();
        self.waiting().clear();
    }

    pub(super) async fn request(
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
        let mut asked = Asked { streams: self, id: id.clone(), is_written: false };
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

    pub(super) async fn notify(&self, method: &str, params: &Value) -> Result<(), PeerError> {
        self.write(&rpc::notification(method, params)).await
    }

    /// Writes a message as a whole. **Errors:** whether nothing of it or something of it was written.
    async fn write(&self, message: &Value) -> Result<(), PeerError> {
        let mut line = message.to_string();
        line.push('\n');
        let mut out = self.out.lock().await;
        if self.news.closed.is_cancelled() {
            return Err(PeerError::NotSent);
        }
        let mut rest = line.as_bytes();
        let mut begun = Begun { news: &self.news, is_whole: true };
        while !rest.is_empty() {
            match out.write(rest).await {
                Ok(count) if count > 0 => rest = &rest[count..],
                Ok(_) | Err(_) => {
                    self.news.closed.cancel();
                    let is_untouched = rest.len() == line.len();
                    return Err(if is_untouched { PeerError::NotSent } else { PeerError::Broken });
                }
            }
            begun.is_whole = rest.is_empty();
        }
        out.flush().await.map_err(|_| PeerError::Broken)
    }

    async fn read(self: &Arc<Self>, mut input: BufReader<impl AsyncRead + Unpin>) {
        loop {
            let line = tokio::select! {
                () = self.news.closed.cancelled() => return,
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
                let (streams, answer) =
                    (Arc::clone(self), rpc::response(Some(&request.id), &answer_to(&request)));
                tokio::spawn(async move {
                    // The connection is gone.
                    let _ = streams.write(&answer).await;
                });
            }
            Err(malformed) => {
                let said = String::from_utf8_lossy(&line[..line.len().min(SHOWN_MAX)]).into_owned();
                tracing::warn!(error = %malformed.error, said, "a line of the server is no message");
            }
        }
    }

    fn on_notification(&self, notification: &Notification) {
        if notification.method != "notifications/progress" {
            return self.news.take(notification);
        }
        let id = notification.params.get("progressToken").and_then(Id::of);
        let waiting = self.waiting();
        if let Some(progress) =
            id.and_then(|id| waiting.get(&id)).and_then(|waiting| waiting.progress.as_ref())
        {
            // A caller that reads too slowly misses some.
            let _ = progress.try_send(Report::of(&notification.params));
        }
    }

    /// Asks to be told of changes, for as long as the connection lasts.
    pub(super) fn subscribe(self: &Arc<Self>, params: Value) {
        let streams = Arc::clone(self);
        tokio::spawn(async move {
            let ended = streams.request("subscriptions/listen", params, None).await;
            tracing::debug!(?ended, "the server tells no changes of its tools any more");
        });
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Id, Waiting>> {
        // The table changes in single steps, so a panic leaves none half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line that is being written. Whoever is cancelled in the middle of one has a server that does not read, and what is written
/// after half a line is part of it; so the connection ends.
struct Begun<'a> {
    news: &'a News,
    is_whole: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.is_whole {
            self.news.closed.cancel();
        }
    }
}

/// A request that was made; one that is left behind is cancelled.
struct Asked<'a> {
    streams: &'a Streams,
    id: Id,
    is_written: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.streams.waiting().remove(&self.id);
        if !self.is_written || self.streams.news.closed.is_cancelled() {
            return;
        }
        let params =
            json!({"requestId": self.id.json(), "reason": "the call was cancelled, or its time ran out"});
        self.streams.cancels(rpc::notification("notifications/cancelled", &params));
    }
}

impl Streams {
    /// Writes a cancellation without waiting; it needs the streams for as long as that takes.
    fn cancels(&self, message: Value) {
        if let Some(streams) = self.own.upgrade() {
            tokio::spawn(async move {
                // The connection is gone.
                let _ = streams.write(&message).await;
            });
        }
    }
}
