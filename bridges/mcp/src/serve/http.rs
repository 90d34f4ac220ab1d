//! The transport of clients that connect: a POST a message in; JSON or a stream of events out.
//!
//! It listens on loopback only and believes no page of a browser: `Host` must be this machine, and `Origin`, where there is
//! one, too. No session is kept: an id that a legacy client gets only tells its cancellations from those of others.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use capd_bridge::http::body::{Body, empty, json};
use capd_bridge::http::server;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request as HttpRequest, Response, StatusCode, header};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Server, Way};
use crate::era::{self, Era};
use crate::rpc::{
    self, HEADER_MISMATCH, INVALID_REQUEST, Id, METHOD_NOT_FOUND, Malformed, Message, Request, RpcError,
    UNSUPPORTED_VERSION,
};
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use events::Pipe;

mod events;

/// An MCP endpoint on a listening socket.
pub struct Endpoint {
    server: Arc<Server>,
    /// Requests of legacy sessions that can be cancelled by a later message.
    cancels: Mutex<HashMap<(String, Id), CancellationToken>>,
}

impl Endpoint {
    /// An endpoint of `server`.
    pub fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self { server, cancels: Mutex::default() })
    }

    /// Serves clients until `stopped`.
    ///
    /// **Errors:** those of the listening socket.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stopped: CancellationToken) -> io::Result<()> {
        server::serve(listener, stopped, move |request| Arc::clone(&self).handle(request)).await
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
        let body = match server::read_body(body, BODY_BYTES_MAX).await {
            Ok(body) => body,
            Err(status) => return empty(status),
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

/// Refuses what is no request to this endpoint, or comes from another site.
fn admitted(request: &HttpRequest<Incoming>) -> Result<(), StatusCode> {
    let head = request.headers();
    server::check_origin(head, None)?;
    if request.uri().path() != PATH {
        return Err(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if !server::media_type(head).eq_ignore_ascii_case("application/json") {
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
/// Notifications that wait for a slow reader.
const NOTICES_MAX: usize = 64;
