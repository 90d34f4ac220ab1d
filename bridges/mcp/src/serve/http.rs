//! The transport of clients that connect: a POST a message in; JSON or a stream of events out.
//!
//! It listens on loopback only and believes no page of a browser: `Host` must be this machine, and `Origin`, where there is
//! one, too. No session is kept: an id that a legacy client gets only tells its cancellations from those of others.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request as HttpRequest, Response, StatusCode, header};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Server, Way};
use crate::era::{self, Era};
use crate::rpc::{
    self, HEADER_MISMATCH, INVALID_REQUEST, Id, METHOD_NOT_FOUND, Malformed, Message, Request, RpcError,
    UNSUPPORTED_VERSION,
};
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use events::{Events, Pipe};

mod events;

/// An MCP endpoint on a listening socket.
pub struct Endpoint {
    server: Arc<Server>,
    /// Requests of legacy sessions that can be cancelled by a later message.
    cancels: Mutex<HashMap<(String, Id), CancellationToken>>,
}

/// The body of every answer.
type Body = http_body_util::Either<Full<Bytes>, Events>;

impl Endpoint {
    /// An endpoint of `server`.
    pub fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self { server, cancels: Mutex::default() })
    }

    /// Serves clients until `stopped`.
    ///
    /// **Errors:** those of the listening socket.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stopped: CancellationToken) -> io::Result<()> {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(place) = Arc::clone(&connections).acquire_owned().await else { return Ok(()) };
            let stream = tokio::select! {
                () = stopped.cancelled() => return Ok(()),
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                },
            };
            let endpoint = Arc::clone(&self);
            let stopped = stopped.clone();
            tokio::spawn(async move {
                let _place = place;
                let service = service_fn(|request| {
                    let endpoint = Arc::clone(&endpoint);
                    async move { Ok::<_, Infallible>(endpoint.handle(request).await) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_WAIT)
                    .max_buf_size(HEAD_BYTES_MAX)
                    .serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    () = stopped.cancelled() => {}
                    ended = connection => if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended");
                    },
                }
            });
        }
    }

    async fn handle(self: Arc<Self>, request: HttpRequest<Incoming>) -> Response<Body> {
        if let Err(status) = admitted(&request) {
            let mut refused = empty(status);
            if status == StatusCode::METHOD_NOT_ALLOWED {
                refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
            }
            return refused;
        }
        let (head, body) = request.into_parts();
        if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
            return empty(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let body = match timeout(BODY_WAIT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => return empty(StatusCode::PAYLOAD_TOO_LARGE),
            Err(_) => return empty(StatusCode::REQUEST_TIMEOUT),
        };
        match Message::read(&body) {
            Ok(Message::Request(request)) => self.on_request(&head.headers, request).await,
            Ok(Message::Notification(notification)) => {
                if notification.method == "notifications/cancelled"
                    && let Some(id) = notification.params.get("requestId").and_then(Id::of)
                    && let Some(cancelled) = self.cancels().remove(&(session(&head.headers), id))
                {
                    cancelled.cancel();
                }
                empty(StatusCode::ACCEPTED)
            }
            Ok(Message::Response { .. }) => empty(StatusCode::ACCEPTED),
            Err(malformed) => refused(&malformed),
        }
    }

    async fn on_request(self: Arc<Self>, head: &HeaderMap, request: Request) -> Response<Body> {
        let era = match era_of(head, &request) {
            Ok(era) => era,
            Err(error) => {
                return json(StatusCode::BAD_REQUEST, &rpc::response(Some(&request.id), &Err(error)));
            }
        };
        if let (Era::Legacy(_), "initialize") = (era, request.method.as_str()) {
            let (_, result) = self.server.initialize(&request);
            let mut answer = json(StatusCode::OK, &rpc::response(Some(&request.id), &Ok(result)));
            if let Some(session) = new_session() {
                answer.headers_mut().insert(SESSION, session);
            }
            return answer;
        }
        self.run(head, request, era).await
    }

    /// Runs a request, and answers with JSON when it ends before it says anything, else with events.
    async fn run(self: Arc<Self>, head: &HeaderMap, request: Request, era: Era) -> Response<Body> {
        let (notices, mut messages) = mpsc::channel(NOTICES_MAX);
        let cancelled = CancellationToken::new();
        let place = (session(head), request.id.clone());
        self.cancels().insert(place.clone(), cancelled.clone());
        let pipe = Pipe::new(era, cancelled.clone());
        let (id, method) = (request.id.clone(), request.method.clone());
        // A task of its own: where the client hangs up, a legacy call goes on.
        let task = tokio::spawn(async move {
            let way = Way { era, notices, cancelled };
            let answer = self.server.answer(&request, &way).await;
            self.cancels().remove(&place);
            answer.map(|answer| {
                (rpc::response(Some(&request.id), &answer), answer.err().map(|error| error.code))
            })
        });
        let Some(first) = messages.recv().await else {
            return match task.await.ok().flatten() {
                Some((answer, code)) => json(status_of(era, code), &answer),
                // It was cancelled, so nobody waits for this.
                None => empty(StatusCode::NO_CONTENT),
            };
        };
        tracing::debug!(%id, method, "a request is answered with a stream of events");
        pipe.stream(first, messages, task)
    }

    fn cancels(&self) -> std::sync::MutexGuard<'_, HashMap<(String, Id), CancellationToken>> {
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Binds a loopback address. **Errors:** another address; those of the system.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        let message =
            format!("{address} is no loopback address; put a proxy that authenticates clients before it");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    TcpListener::bind(address).await
}

/// Refuses what is no request to this endpoint, or comes from another site.
fn admitted(request: &HttpRequest<Incoming>) -> Result<(), StatusCode> {
    let is_here = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
        let host = authority.rsplit_once(':').map_or(authority, |(host, port)| {
            if port.bytes().all(|byte| byte.is_ascii_digit()) { host } else { authority }
        });
        matches!(host, "localhost" | "127.0.0.1" | "[::1]")
    };
    let head = request.headers();
    let mut hosts = head.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) if is_here(host) => {}
        _ => return Err(StatusCode::MISDIRECTED_REQUEST),
    }
    if !head.get_all(header::ORIGIN).iter().all(is_here) {
        return Err(StatusCode::FORBIDDEN);
    }
    if request.uri().path() != PATH {
        return Err(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let kind = head.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    Ok(())
}

/// How a request was asked. **Errors:** its head says otherwise than its body, or a version that is not spoken.
fn era_of(head: &HeaderMap, request: &Request) -> Result<Era, RpcError> {
    let named = match head.get(&VERSION).map(HeaderValue::to_str) {
        None => None,
        Some(Ok(text)) => Some(text),
        Some(Err(_)) => return Err(mismatch("MCP-Protocol-Version is no text")),
    };
    if request.method == "initialize" && named != Some(era::MODERN) {
        return Ok(Era::Legacy(era::LEGACY_UNNAMED));
    }
    let in_body = request.params.get("_meta").and_then(|meta| meta.get(era::PROTOCOL_VERSION));
    match (named, in_body) {
        (None, None) => Ok(Era::Legacy(era::LEGACY_UNNAMED)),
        (Some(named), None) => match era::LEGACY.into_iter().find(|version| *version == named) {
            Some(version) => Ok(Era::Legacy(version)),
            None if named == era::MODERN => {
                let message = format!("_meta[\"{}\"] is missing", era::PROTOCOL_VERSION);
                Err(RpcError::invalid_params(message))
            }
            None => Err(era::unsupported(&named.into())),
        },
        (None, Some(_)) => Err(mismatch("the header MCP-Protocol-Version is missing")),
        (Some(named), Some(body)) if body != named => {
            Err(mismatch(&format!("MCP-Protocol-Version is {named:?}, and the body says {body}")))
        }
        (Some(_), Some(_)) => {
            let era = Era::of(request)?.unwrap_or(Era::Modern);
            agree(head, request)?;
            Ok(era)
        }
    }
}

/// Holds the headers that mirror the body against it. **Errors:** -32020.
fn agree(head: &HeaderMap, request: &Request) -> Result<(), RpcError> {
    let method = mirrored(head, &METHOD)?;
    if method.as_deref() != Some(request.method.as_str()) {
        return Err(mismatch(&format!("Mcp-Method is {method:?}, and the body says {:?}", request.method)));
    }
    let field = match request.method.as_str() {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let name = mirrored(head, &NAME)?;
    let in_body = request.params.get(field).and_then(Value::as_str);
    if name.as_deref() != in_body {
        return Err(mismatch(&format!("Mcp-Name is {name:?}, and the body says {in_body:?}")));
    }
    Ok(())
}

/// The text of a header that mirrors the body; one that no header can hold comes in Base64.
fn mirrored(head: &HeaderMap, name: &HeaderName) -> Result<Option<String>, RpcError> {
    let Some(value) = head.get(name) else { return Ok(None) };
    let wrong = || mismatch(&format!("{name} has characters that no header may have"));
    let text = value.to_str().map_err(|_| wrong())?.trim();
    let encoded = text.strip_prefix("=?base64?").and_then(|text| text.strip_suffix("?="));
    match encoded {
        None => Ok(Some(text.to_owned())),
        Some(encoded) => {
            let bytes = BASE64.decode(encoded).map_err(|_| wrong())?;
            String::from_utf8(bytes).map(Some).map_err(|_| wrong())
        }
    }
}

fn mismatch(message: &str) -> RpcError {
    RpcError::new(HEADER_MISMATCH, format!("Header mismatch: {message}"))
}

/// **Source:** MCP 2026-07-28, streamable-http; legacy errors are answers like others.
fn status_of(era: Era, code: Option<i64>) -> StatusCode {
    match (era, code) {
        (Era::Modern, Some(METHOD_NOT_FOUND)) => StatusCode::NOT_FOUND,
        (Era::Modern, Some(UNSUPPORTED_VERSION | HEADER_MISMATCH)) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn session(head: &HeaderMap) -> String {
    head.get(&SESSION).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned()
}

fn new_session() -> Option<HeaderValue> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).ok()?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(text).ok()
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Left(Full::default()));
    *response.status_mut() = status;
    response
}

fn json(status: StatusCode, document: &Value) -> Response<Body> {
    let mut response = Response::new(Body::Left(Full::from(document.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(malformed: &Malformed) -> Response<Body> {
    debug_assert!(malformed.error.code == INVALID_REQUEST || malformed.error.code == rpc::PARSE_ERROR);
    json(StatusCode::BAD_REQUEST, &rpc::response(malformed.id.as_ref(), &Err(malformed.error.clone())))
}

/// The one path.
pub const PATH: &str = "/mcp";
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Longest message. **Units:** bytes.
const BODY_BYTES_MAX: usize = MSG_SIZE_BYTES_DEFAULT as usize;
const HEAD_BYTES_MAX: usize = 64 * 1024;
const HEAD_WAIT: Duration = Duration::from_secs(30);
const BODY_WAIT: Duration = Duration::from_secs(60);
/// Connections at once; more of them wait.
const CONNECTIONS_MAX: usize = 512;
/// Notifications that wait for a slow reader.
const NOTICES_MAX: usize = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
