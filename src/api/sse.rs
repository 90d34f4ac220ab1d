//! Streams events as a response (`text/event-stream`).

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::time::timeout;

use super::body::apart;
use crate::net::Tasks;

/// One event.
pub(super) struct Event {
    /// Its number, which a client names to go on behind it.
    number: Option<u64>,
    /// How much its data is made of. **Units:** bytes, about.
    bytes: usize,
    data: Data,
}

/// Makes an event's name and its data.
type Data = Box<dyn FnOnce() -> (&'static str, Value) + Send>;

impl Event {
    /// A small one without a number.
    pub(super) fn new(name: &'static str, data: Value) -> Self {
        Self { number: None, bytes: 0, data: Box::new(move || (name, data)) }
    }

    /// One whose data is made of so many bytes.
    pub(super) fn of(bytes: usize, data: impl FnOnce() -> (&'static str, Value) + Send + 'static) -> Self {
        Self { number: None, bytes, data: Box::new(data) }
    }

    /// The same with a number.
    pub(super) fn numbered(self, number: u64) -> Self {
        Self { number: Some(number), ..self }
    }
}

/// What tells events.
pub(super) trait Source: Send + 'static {
    /// The next one; `None` at the end. Dropping the future loses nothing.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Event>> + Send + '_>>;
}

/// The response. A comment keeps it alive while nothing is told.
pub(super) fn response(source: impl Source, tasks: &Tasks) -> Response {
    let pieces = unfold((source, tasks.clone()), |(mut source, tasks)| async move {
        let piece = match timeout(COMMENT_INTERVAL, source.next()).await {
            Ok(event) => {
                let event = event?;
                apart(&tasks, event.bytes, move || written(event)).await
            }
            Err(_elapsed) => Bytes::from_static(b": still here\n\n"),
        };
        Some((Ok::<_, std::convert::Infallible>(piece), (source, tasks)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn written(event: Event) -> Bytes {
    let number = event.number.map(|number| format!("id: {number}\n")).unwrap_or_default();
    // JSON on one line has no line breaks of its own.
    let (name, data) = (event.data)();
    format!("{number}event: {name}\ndata: {data}\n\n").into()
}

/// How long nothing may be told before a comment is. **Source:** AGENT-API 4.
const COMMENT_INTERVAL: Duration = Duration::from_secs(10);
