//! Reads the body of a request within bounds of size and time: as bytes, or as JSON.

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
use crate::net::Tasks;

impl Api {
    /// Does what takes long for so many bytes of JSON or CBOR: on the compute pool, unless they are few.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        apart(&self.system.tasks, bytes, work).await
    }

    /// All of a body. **Errors:** 413, 408, or 400 for one that breaks off.
    pub(super) async fn read(&self, head: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
        let bytes_max = self.options().body_bytes_max;
        let length = head.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: u64| length > bytes_max as u64) {
            return Err(too_large(bytes_max));
        }
        let read = timeout(self.options().request_timeout, Limited::new(body, bytes_max).collect()).await;
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
                    self.options().request_timeout
                );
                let problem = Problem::refused(Code::INVALID_MESSAGE, detail);
                Err(problem.status(StatusCode::REQUEST_TIMEOUT).closes())
            }
        }
    }
}

/// What [`Api::apart`] does.
pub(super) async fn apart<T: Send + 'static>(
    tasks: &Tasks,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes < APART_BYTES_MIN {
        return work();
    }
    match tasks.compute(work).await {
        Some(done) => done,
        // A panic ends the process.
        None => std::future::pending().await,
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

/// A number that is a natural one, as JSON Schema means it: `7` and `7.0` alike.
pub(super) fn integer(value: &Value) -> Option<u64> {
    let whole = |number: f64| {
        let is_exact = number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&number);
        is_exact.then_some(number as u64)
    };
    value.as_u64().or_else(|| value.as_f64().and_then(whole))
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

/// Up to here a double holds every integer.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// From here on JSON may take longer to read or write than links may wait: some 100 microseconds.
const APART_BYTES_MIN: usize = 8 * 1024;
/// CBOR's `null`.
const CBOR_NULL: u8 = 0xf6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_natural_number_is_one_however_it_is_written() {
        for (text, number) in [("7", 7), ("7.0", 7), ("0.0", 0), ("18446744073709551615", u64::MAX)] {
            assert_eq!(integer(&document(text.as_bytes()).unwrap()), Some(number), "{text}");
        }
        for text in ["7.5", "-1", "-1.0", "1e300", "\"7\"", "null", "true"] {
            assert_eq!(integer(&document(text.as_bytes()).unwrap()), None, "{text}");
        }
    }
}
