//! Describes an error as `application/problem+json`, with its consequence for the caller.
//!
//! **Source:** RFC 9457; AGENT-API 2.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use capd_proto::code::{Code, Retry};
use capd_proto::envelope::MessageId;
use serde_json::{Value, json};

use crate::client::{ClientError, Outcome, WireError};

/// An error, as it is answered. It is large, and mostly there is none.
#[derive(Clone, Debug)]
pub(super) struct Problem(Box<Told>);

#[derive(Clone, Debug)]
struct Told {
    status: StatusCode,
    code: Code,
    outcome: Outcome,
    detail: Cow<'static, str>,
    call: Option<MessageId>,
    details: Option<Value>,
    /// A further field of the answer's head.
    field: Option<(HeaderName, HeaderValue)>,
    /// Whether the connection ends with it.
    closes: bool,
}

impl Problem {
    /// A refusal with the status of its code.
    pub(super) fn refused(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code, Outcome::Refused, detail)
    }

    fn new(code: Code, outcome: Outcome, detail: impl Into<Cow<'static, str>>) -> Self {
        let (detail, status) = (detail.into(), status_of(code, outcome));
        let (call, details, field, closes) = (None, None, None, false);
        Self(Box::new(Told { status, code, outcome, detail, call, details, field, closes }))
    }

    pub(super) fn status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    pub(super) fn field(mut self, name: HeaderName, value: &'static str) -> Self {
        self.0.field = Some((name, HeaderValue::from_static(value)));
        self
    }

    pub(super) fn details(mut self, details: Value) -> Self {
        self.0.details = Some(details);
        self
    }

    /// The call that it is about.
    pub(super) fn about(mut self, call: MessageId) -> Self {
        self.0.call = Some(call);
        self
    }

    /// It ran all the same.
    pub(super) fn failed(mut self) -> Self {
        self.0.outcome = Outcome::Failed;
        self
    }

    pub(super) fn closes(mut self) -> Self {
        self.0.closes = true;
        self
    }

    /// A request that no route takes.
    pub(super) fn no_route(path: &str) -> Self {
        let detail = format!("there is no {path:?} here; the routes are listed in /openapi.json");
        Self::refused(Code::BAD_REQUEST, detail).status(StatusCode::NOT_FOUND)
    }

    /// A route that takes another method.
    pub(super) fn no_method(method: &Method, path: &str) -> Self {
        let detail = format!("{path} takes no {method}; the header Allow lists the methods it takes");
        Self::refused(Code::BAD_REQUEST, detail).status(StatusCode::METHOD_NOT_ALLOWED)
    }

    /// A request that says something else than it may, such as a parameter without a meaning.
    pub(super) fn bad(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::refused(Code::BAD_REQUEST, detail)
    }

    /// Why a request other than a call, or a call before it was sent, has no answer.
    pub(super) fn of_request(error: &ClientError) -> Self {
        match error {
            ClientError::Refused(error) | ClientError::Result(error) => {
                Self::of_wire(error, Outcome::Refused)
            }
            ClientError::Connect { .. } | ClientError::Owner { .. } | ClientError::Closed(_) => {
                Self::refused(Code::UNAVAILABLE, "the sidecar is stopping; try again when it is back")
            }
            ClientError::Unsent(why) => Self::refused(Code::OVERLOADED, format!("not sent: {why}")),
            ClientError::Timeout { after, .. } => {
                Self::refused(Code::TIMEOUT, format!("the sidecar did not answer within {after:?}"))
            }
            ClientError::Invalid(why) => Self::bad(why.clone()),
            ClientError::Answer(why) => {
                Self::refused(Code::INTERNAL_ERROR, format!("the sidecar's answer cannot be used: {why}"))
            }
        }
    }

    /// Why a call that was sent has no result.
    pub(super) fn of_call(error: &ClientError, call: MessageId) -> Self {
        let detail = match error {
            ClientError::Refused(wire) | ClientError::Result(wire) => {
                return Self::of_wire(wire, error.outcome()).about(call);
            }
            ClientError::Unsent(_)
            | ClientError::Invalid(_)
            | ClientError::Connect { .. }
            | ClientError::Owner { .. } => return Self::of_request(error).about(call),
            ClientError::Timeout { after, .. } => {
                format!("no answer within {after:?}; the call may still run")
            }
            ClientError::Closed(_) => {
                "contact was lost while the call was on its way; whether it took effect is unknown".to_owned()
            }
            ClientError::Answer(why) => {
                format!("the answer cannot be used, so whether the call took effect is unknown: {why}")
            }
        };
        Self::new(error.code(), error.outcome(), detail).about(call)
    }

    fn of_wire(error: &WireError, outcome: Outcome) -> Self {
        let mut problem = Self::new(error.code, outcome, error.message.clone());
        problem.0.details = error.details_json();
        problem
    }

    /// What an ERROR says of it: code, words, and details.
    pub(super) fn wire(&self) -> (Code, &str, Option<&Value>) {
        (self.0.code, &self.0.detail, self.0.details.as_ref())
    }

    /// The document.
    pub(super) fn json(&self) -> Value {
        let title = self.0.code.name().unwrap_or("UNKNOWN_CODE");
        let mut document = json!({
            "type": format!("urn:capd:error:{}", self.0.code.0),
            "title": title,
            "status": self.0.status.as_u16(),
            "detail": self.0.detail,
            "code": self.0.code.0,
            "retry": match self.0.code.retry() {
                Retry::No => "no",
                Retry::Yes => "yes",
                Retry::Backoff => "backoff",
            },
            "outcome": self.0.outcome.as_str(),
        });
        if let Some(call) = self.0.call {
            document["call"] = call.to_string().into();
        }
        if let Some(details) = &self.0.details {
            document["details"] = details.clone();
        }
        document
    }

    fn retry_after(&self) -> Option<u64> {
        let waits = matches!(self.0.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let seconds = self.0.details.as_ref().and_then(|details| details["retry_after_seconds"].as_f64());
        waits.then(|| seconds.map_or(1, |seconds| seconds.ceil() as u64).max(1))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.json().to_string()));
        *response.status_mut() = self.0.status;
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after() {
            fields.insert(header::RETRY_AFTER, seconds.into());
        }
        if let Some(call) = self.0.call
            && let Ok(call) = HeaderValue::try_from(call.to_string())
        {
            fields.insert(super::call::CALL, call);
        }
        if let Some((name, value)) = self.0.field {
            fields.insert(name, value);
        }
        if self.0.closes {
            fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// **Source:** AGENT-API 2.
fn status_of(code: Code, outcome: Outcome) -> StatusCode {
    if outcome == Outcome::Pending {
        return StatusCode::GATEWAY_TIMEOUT;
    }
    match code {
        Code::INVALID_MESSAGE
        | Code::INVALID_SIGNATURE
        | Code::INVALID_TIMESTAMP
        | Code::UNSUPPORTED_VERSION
        | Code::UNKNOWN_TYPE
        | Code::BAD_REQUEST => StatusCode::BAD_REQUEST,
        Code::UNAUTHORIZED | Code::DELEGATION_INVALID => StatusCode::FORBIDDEN,
        Code::CAPABILITY_NOT_FOUND => StatusCode::NOT_FOUND,
        Code::VERSION_MISMATCH | Code::CANCELLED => StatusCode::CONFLICT,
        Code::SCHEMA_VIOLATION | Code::REPAIR_EXHAUSTED => StatusCode::UNPROCESSABLE_ENTITY,
        Code::SCHEMA_DRIFT | Code::UNSUPPORTED_SCHEMA | Code::CONTRACT_ERROR => StatusCode::FAILED_DEPENDENCY,
        Code::RATE_LIMITED => StatusCode::TOO_MANY_REQUESTS,
        Code::RECIPIENT_NOT_FOUND | Code::ENDPOINT_UNREACHABLE | Code::RESULT_SCHEMA_VIOLATION => {
            StatusCode::BAD_GATEWAY
        }
        Code::UNAVAILABLE | Code::OVERLOADED => StatusCode::SERVICE_UNAVAILABLE,
        Code::TIMEOUT => StatusCode::GATEWAY_TIMEOUT,
        // A provider's own codes among them.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn wire(code: Code, details: Option<Value>) -> WireError {
        let details = details.map(|details| {
            let mut bytes = Vec::new();
            capd_proto::cbor::json::from_json(&details, &mut bytes);
            bytes.into()
        });
        WireError { code, message: "m".to_owned(), details }
    }

    #[test]
    fn an_outcome_says_what_is_known_of_the_effect() {
        let id = MessageId([1; 16]);
        let not_final = json!({"final": false});
        for (error, outcome, status) in [
            (ClientError::Refused(wire(Code::SCHEMA_VIOLATION, None)), "refused", 422),
            (ClientError::Result(wire(Code::TIMEOUT, None)), "failed", 504),
            (ClientError::Result(wire(Code::TIMEOUT, Some(not_final.clone()))), "pending", 504),
            (ClientError::Result(wire(Code::INTERRUPTED, None)), "unknown", 500),
            (ClientError::Result(wire(Code::INTERRUPTED, Some(not_final))), "unknown", 500),
            (ClientError::Result(wire(Code(77), None)), "failed", 500),
            (ClientError::Closed("x".to_owned()), "unknown", 500),
            (ClientError::Timeout { id, after: Duration::from_secs(1) }, "pending", 504),
        ] {
            let problem = Problem::of_call(&error, id).json();
            assert_eq!(
                (problem["outcome"].as_str(), problem["status"].as_u64()),
                (Some(outcome), Some(status))
            );
            assert_eq!(problem["call"], id.to_string());
        }
    }

    #[test]
    fn every_code_has_the_status_of_the_table() {
        let statuses: Vec<_> =
            Code::ALL.iter().map(|code| (code.0, status_of(*code, Outcome::Refused).as_u16())).collect();
        let table = [
            (1001, 400),
            (1002, 400),
            (1003, 400),
            (1004, 400),
            (1005, 400),
            (2001, 502),
            (2002, 502),
            (3001, 403),
            (3004, 403),
            (3005, 429),
            (4001, 400),
            (4002, 404),
            (4003, 409),
            (4004, 422),
            (4901, 409),
            (4902, 424),
            (4903, 424),
            (4904, 422),
            (4905, 424),
            (5001, 500),
            (5002, 503),
            (5003, 504),
            (5004, 503),
            (5901, 502),
            (5902, 500),
        ];
        assert_eq!(statuses, table);
    }
}
