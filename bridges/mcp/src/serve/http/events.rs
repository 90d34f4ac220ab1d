//! The stream of events that answers a request which says something before it ends.

use std::time::Duration;

use bytes::Bytes;
use capd_bridge::http::body::{self, Body};
use hyper::Response;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::era::Era;

/// The answer of a request's task: the message, and the code of an error in it.
type Task = JoinHandle<Option<(Value, Option<i64>)>>;

/// How a request is bound to the connection that it came on.
pub(super) struct Pipe {
    /// Cancels the request when the client hangs up. Only modern clients mean that by it.
    guard: Option<DropGuard>,
}

impl Pipe {
    pub(super) fn new(era: Era, cancelled: CancellationToken) -> Self {
        Self { guard: (era == Era::Modern).then(|| cancelled.drop_guard()) }
    }

    /// Passes on notifications, then the answer.
    pub(super) fn stream(
        self,
        first: Value,
        mut messages: mpsc::Receiver<Value>,
        task: Task,
    ) -> Response<Body> {
        let (out, events) = mpsc::channel(EVENTS_MAX);
        tokio::spawn(async move {
            if out.send(event(&first)).await.is_err() {
                return;
            }
            loop {
                let sent = match timeout(KEEP_ALIVE, messages.recv()).await {
                    Ok(Some(message)) => out.send(event(&message)).await,
                    Ok(None) => break,
                    Err(_) => out.send(Bytes::from_static(b":\n\n")).await,
                };
                if sent.is_err() {
                    return;
                }
            }
            if let Ok(Some((answer, _))) = task.await {
                // The client is gone.
                let _ = out.send(event(&answer)).await;
            }
        });
        body::events(events, self.guard)
    }
}

/// JSON has no line ends between its quotes, so one line is one message.
fn event(message: &Value) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}

/// Events that wait for a slow reader.
const EVENTS_MAX: usize = 16;
/// How often a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
