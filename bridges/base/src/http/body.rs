//! What a bridge answers with: a document at once, or a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Frame};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Response, StatusCode, header};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

/// The body of every answer.
pub type Body = Either<Full<Bytes>, Events>;

/// Server-sent events; whatever the guard stands for is cancelled when the client hangs up.
#[derive(Debug)]
pub struct Events {
    events: mpsc::Receiver<Bytes>,
    _guard: Option<DropGuard>,
}

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.events.poll_recv(context).map(|event| event.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Left(Full::default()));
    *response.status_mut() = status;
    response
}

/// An answer of JSON.
pub fn json(status: StatusCode, document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::Left(Full::from(document.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer of events as they come.
pub fn events(events: mpsc::Receiver<Bytes>, guard: Option<DropGuard>) -> Response<Body> {
    let mut response = Response::new(Body::Right(Events { events, _guard: guard }));
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// The length that a request says its body has at least.
pub(super) fn lower_bound(body: &hyper::body::Incoming) -> u64 {
    body.size_hint().lower()
}
