//! The body of a request in; its bytes, within bounds of size and time, or the JSON that they are, out.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use capd_proto::code::Code;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Api;
use super::problem::Problem;
use crate::client::{JsonFault, cbor_of_json, value_of_json};

impl Api {
    /// All of a body. **Errors:** 413, 408, or 400 for one that breaks off.
    pub(super) async fn read(&self, head: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
        let bytes_max = self.options.body_bytes_max;
        let length = head.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > bytes_max as u64) {
            return Err(too_large(bytes_max));
        }
        let read = timeout(self.options.request_timeout, Limited::new(body, bytes_max).collect()).await;
        match read {
            Ok(Ok(collected)) => Ok(collected.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(bytes_max)),
            Ok(Err(error)) => {
                let detail = format!("the body broke off: {error}");
                Err(Problem::refused(Code::INVALID_MESSAGE, detail).closes())
            }
            Err(_elapsed) => {
                let detail = format!(
                    "the body did not arrive within {:?} (timeouts.frame_ms)",
                    self.options.request_timeout
                );
                let problem = Problem::refused(Code::INVALID_MESSAGE, detail);
                Err(problem.status(StatusCode::REQUEST_TIMEOUT).closes())
            }
        }
    }
}

fn too_large(bytes_max: usize) -> Problem {
    let detail = format!("the body is larger than {bytes_max} bytes (limits.msg_size_bytes_max)");
    Problem::bad(detail).status(StatusCode::PAYLOAD_TOO_LARGE).closes()
}

/// The payload that a body stands for; an empty body is `null`.
pub(super) fn payload(body: &[u8]) -> Result<Vec<u8>, Problem> {
    if body.trim_ascii().is_empty() {
        return Ok(vec![CBOR_NULL]);
    }
    cbor_of_json(body).map_err(|fault| problem(&fault))
}

/// A body that is a JSON document of ours.
pub(super) fn document(body: &[u8]) -> Result<Value, Problem> {
    value_of_json(body).map_err(|fault| problem(&fault))
}

fn problem(fault: &JsonFault) -> Problem {
    match fault {
        JsonFault::Malformed(_) => Problem::refused(Code::INVALID_MESSAGE, format!("the body is {fault}")),
        JsonFault::Integer { number, at } => Problem::refused(Code::SCHEMA_VIOLATION, fault.to_string())
            .details(json!({"number": number, "byte": at, "schema_side": "request"})),
    }
}

/// An answer that is one JSON document.
pub(super) struct Json(pub(super) Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        Text(self.0.to_string()).into_response()
    }
}

/// An object with one more member, whose value is JSON already: large values are not copied into a tree first.
pub(super) fn with_member(mut object: String, name: &str, value: &str) -> String {
    let end = object.pop();
    debug_assert_eq!(end, Some('}'), "it is an object");
    let separator = if object.ends_with('{') { "\"" } else { ",\"" };
    for part in [separator, name, "\":", value, "}"] {
        object.push_str(part);
    }
    object
}

/// An answer that is JSON already.
pub(super) struct Text(pub(super) String);

impl IntoResponse for Text {
    fn into_response(self) -> Response {
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        (kind, self.0).into_response()
    }
}

/// CBOR's `null`.
const CBOR_NULL: u8 = 0xf6;
