//! Events in; a response that tells them one by one (`text/event-stream`) out.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use tokio::time::timeout;

/// One event.
pub(super) struct Event {
    /// Its number, which a client names to go on behind it.
    pub(super) number: Option<u64>,
    pub(super) name: &'static str,
    /// JSON on one line.
    pub(super) data: String,
}

/// What tells events.
pub(super) trait Source: Send + 'static {
    /// The next one; `None` at the end. Dropping the future loses nothing.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Event>> + Send + '_>>;
}

/// The response. A comment keeps it alive while nothing is told.
pub(super) fn response(source: impl Source) -> Response {
    let pieces = unfold(source, |mut source| async move {
        let piece = match timeout(COMMENT_INTERVAL, source.next()).await {
            Ok(event) => written(&event?),
            Err(_elapsed) => Bytes::from_static(b": still here\n\n"),
        };
        Some((Ok::<_, std::convert::Infallible>(piece), source))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn written(event: &Event) -> Bytes {
    let number = event.number.map(|number| format!("id: {number}\n")).unwrap_or_default();
    [&number, "event: ", event.name, "\ndata: ", &event.data, "\n\n"].concat().into()
}

/// How long nothing may be told before a comment is. **Source:** AGENT-API 4.
const COMMENT_INTERVAL: Duration = Duration::from_secs(10);
