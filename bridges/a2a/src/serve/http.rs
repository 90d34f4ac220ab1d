//! Both bindings over HTTP: requests in; documents, streams of events, and errors as each binding writes them, out.
//!
//! The card is for everybody of this machine. Every other request says its version of the protocol, and its caller's token
//! where tokens are known.

use std::io;
use std::sync::Arc;

use a2a::{A2AError, SVC_PARAM_EXTENSIONS, SVC_PARAM_VERSION, VERSION, error_code};
use bytes::Bytes;
use capd_bridge::http::body::{self, Body, empty, json as json_answer};
use capd_bridge::http::server;
use capd_client::value_of_json;
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Server;
use super::methods::Reply;
use super::route::{CARD, RPC, of_query, route};
use crate::extension;

/// Serves clients until `stopped`.
///
/// **Errors:** those of the listening socket.
pub async fn serve(server: Arc<Server>, listener: TcpListener, stopped: CancellationToken) -> io::Result<()> {
    server::serve(listener, stopped, move |request| {
        let server = Arc::clone(&server);
        async move { server.handle(request).await }
    })
    .await
}

impl Server {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        if let Err(status) = server::check_origin(&head.headers, Some(server::host_of(&self.url))) {
            return empty(status);
        }
        if head.uri.path() == CARD {
            return match head.method {
                Method::GET => self.card_answer().await,
                _ => not_allowed("GET"),
            };
        }
        let Some(caller) = self.callers.of(&head.headers) else { return unauthorized() };
        let mut answer = if head.uri.path() == RPC {
            self.on_rpc(&head, body, caller).await
        } else {
            self.on_rest(&head, body, caller).await
        };
        if activates(&head.headers) {
            answer.headers_mut().insert(EXTENSIONS, HeaderValue::from_static(extension::URI));
        }
        answer
    }

    async fn card_answer(&self) -> Response<Body> {
        match self.card().await {
            Ok(card) => {
                let mut answer = json_answer(StatusCode::OK, &card);
                answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=5"));
                answer
            }
            Err(error) => {
                tracing::warn!(%error, "the sidecar's capabilities were not read");
                empty(StatusCode::SERVICE_UNAVAILABLE)
            }
        }
    }

    async fn on_rpc(&self, head: &Parts, body: Incoming, caller: &str) -> Response<Body> {
        if head.method != Method::POST {
            return not_allowed("POST");
        }
        let body = match accepted_body(head, body).await {
            Ok(body) => body,
            Err(status) => return empty(status),
        };
        let request = match value_of_json(&body) {
            Ok(request) => request,
            Err(error) => return rpc_error(&Value::Null, &A2AError::parse_error(error.to_string())),
        };
        let id = &request["id"];
        let is_id = id.is_string() || id.is_i64() || id.is_u64();
        let (true, "2.0", Some(method)) =
            (is_id, request["jsonrpc"].as_str().unwrap_or_default(), request["method"].as_str())
        else {
            let id = if is_id { id } else { &Value::Null };
            let why = "not a JSON-RPC 2.0 request: it needs jsonrpc, a method, and an id that is a text or an integer";
            return rpc_error(id, &A2AError::invalid_request(why));
        };
        let params = request.get("params").cloned().unwrap_or_else(|| json!({}));
        let asked = match check_version(head) {
            Ok(()) => self.answer(caller, method, params).await,
            Err(error) => Err(error),
        };
        let id = id.clone();
        match asked {
            Ok(Reply::Document(result)) => {
                json_answer(StatusCode::OK, &json!({"jsonrpc": "2.0", "id": id, "result": result}))
            }
            Ok(Reply::Stream(task)) => {
                let form = move |update| json!({"jsonrpc": "2.0", "id": id, "result": update});
                body::events(super::stream::events(task, form), None)
            }
            Err(error) => rpc_error(&id, &error),
        }
    }

    async fn on_rest(&self, head: &Parts, body: Incoming, caller: &str) -> Response<Body> {
        match self.rest_reply(head, body, caller).await {
            Err(Refused::Status(status)) => empty(status),
            Err(Refused::Error(error)) => rest_error(&error),
            Ok(Reply::Document(document)) => of_rest(StatusCode::OK, &document),
            Ok(Reply::Stream(task)) => body::events(super::stream::events(task, |update| update), None),
        }
    }

    async fn rest_reply(&self, head: &Parts, body: Incoming, caller: &str) -> Result<Reply, Refused> {
        let path = head.uri.path();
        let Some(route) = route(&head.method, path) else {
            return Err(Refused::Status(StatusCode::NOT_FOUND));
        };
        check_version(head)?;
        let mut params = if route.has_body {
            let body = accepted_body(head, body).await.map_err(Refused::Status)?;
            // Cancelling needs no body.
            let text: &[u8] = if body.is_empty() { b"{}" } else { &body };
            value_of_json(text).map_err(|error| A2AError::parse_error(error.to_string()))?
        } else {
            Value::Object(of_query(head.uri.query().unwrap_or_default())?)
        };
        if let (Some(id), Value::Object(fields)) = (route.id, &mut params) {
            fields.insert("id".to_owned(), id.into());
        }
        Ok(self.answer(caller, route.method, params).await?)
    }
}

/// Why a request of the HTTP+JSON binding has no reply.
enum Refused {
    /// It is none of the protocol.
    Status(StatusCode),
    Error(A2AError),
}

impl From<A2AError> for Refused {
    fn from(error: A2AError) -> Self {
        Self::Error(error)
    }
}

/// The body of a request that has one in JSON. **Errors:** 415, 413 and 408.
async fn accepted_body(head: &Parts, body: Incoming) -> Result<Bytes, StatusCode> {
    let kind = server::media_type(&head.headers);
    let is_json = kind.eq_ignore_ascii_case("application/json") || kind.eq_ignore_ascii_case(A2A_JSON);
    // A form of a browser's page cannot send JSON.
    let has_body =
        head.headers.contains_key(header::CONTENT_TYPE) || !hyper::body::Body::is_end_stream(&body);
    if has_body && !is_json {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    server::read_body(body, BODY_BYTES_MAX).await
}

/// Holds the version that a request says against ours. One that says none speaks 0.3. **Source:** A2A 1.0, versioning.
///
/// **Errors:** -32009.
fn check_version(head: &Parts) -> Result<(), A2AError> {
    let field =
        head.headers.get(SVC_PARAM_VERSION).map(|value| value.to_str().unwrap_or_default().to_owned());
    let query = head.uri.query().unwrap_or_default();
    let in_query = || {
        let mut fields = form_urlencoded::parse(query.as_bytes());
        fields.find(|(key, _)| key == SVC_PARAM_VERSION).map(|(_, value)| value.into_owned())
    };
    let named = field.or_else(in_query).filter(|version| !version.is_empty());
    let named = named.unwrap_or_else(|| ABSENT_VERSION.to_owned());
    // A patch number changes nothing of the protocol.
    if named == VERSION || named.strip_prefix(VERSION).is_some_and(|rest| rest.starts_with('.')) {
        return Ok(());
    }
    let named: String = named.chars().take(VERSION_SHOWN_MAX).collect();
    Err(A2AError::new(
        error_code::VERSION_NOT_SUPPORTED,
        format!("version {named:?} is not spoken here; accepted: {SVC_PARAM_VERSION}: {VERSION}"),
    ))
}

fn activates(head: &HeaderMap) -> bool {
    let named = head.get_all(EXTENSIONS).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).any(|uri| uri.trim() == extension::URI)
}

fn rpc_error(id: &Value, error: &A2AError) -> Response<Body> {
    let error = serde_json::to_value(error.to_jsonrpc_error()).unwrap_or_default();
    json_answer(StatusCode::OK, &json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn rest_error(error: &A2AError) -> Response<Body> {
    let status = StatusCode::from_u16(error.http_status_code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let details = error.to_jsonrpc_error().data.unwrap_or_default();
    let error = json!({
        "code": status.as_u16(),
        "status": status_name(error.code),
        "message": error.message,
        "details": details,
    });
    of_rest(status, &json!({"error": error}))
}

/// The name of an error in `google.rpc.Code`. **Source:** A2A 1.0, error mappings.
const fn status_name(code: i32) -> &'static str {
    match code {
        error_code::TASK_NOT_FOUND => "NOT_FOUND",
        error_code::TASK_NOT_CANCELABLE
        | error_code::UNSUPPORTED_OPERATION
        | error_code::PUSH_NOTIFICATION_NOT_SUPPORTED
        | error_code::EXTENDED_CARD_NOT_CONFIGURED
        | error_code::EXTENSION_SUPPORT_REQUIRED
        | error_code::VERSION_NOT_SUPPORTED => "FAILED_PRECONDITION",
        error_code::CONTENT_TYPE_NOT_SUPPORTED
        | error_code::PARSE_ERROR
        | error_code::INVALID_REQUEST
        | error_code::INVALID_PARAMS => "INVALID_ARGUMENT",
        error_code::METHOD_NOT_FOUND => "UNIMPLEMENTED",
        _ => "INTERNAL",
    }
}

fn of_rest(status: StatusCode, document: &Value) -> Response<Body> {
    let mut answer = json_answer(status, document);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(A2A_JSON));
    answer
}

fn unauthorized() -> Response<Body> {
    let mut answer = empty(StatusCode::UNAUTHORIZED);
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

fn not_allowed(accepted: &'static str) -> Response<Body> {
    let mut answer = empty(StatusCode::METHOD_NOT_ALLOWED);
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(accepted));
    answer
}

const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
const _: () = assert!(SVC_PARAM_EXTENSIONS.len() == "a2a-extensions".len());
const A2A_JSON: &str = "application/a2a+json";
/// The version of a request that names none.
const ABSENT_VERSION: &str = "0.3";
const VERSION_SHOWN_MAX: usize = 32;
/// Longest body. **Units:** bytes.
const BODY_BYTES_MAX: usize = MSG_SIZE_BYTES_DEFAULT as usize;
