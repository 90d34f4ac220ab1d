//! The stream of events that answers a request which says something before it ends.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, header};
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

/// The body of such an answer.
pub(super) struct Events {
    events: mpsc::Receiver<Bytes>,
    _guard: Option<DropGuard>,
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
    ) -> Response<super::Body> {
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
        let events = Events { events, _guard: self.guard };
        let mut response = Response::new(http_body_util::Either::Right(events));
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        fields.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
        response
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.events.poll_recv(context).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
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
