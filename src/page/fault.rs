//! Writes why a request of the page has no answer, as JSON that the page shows.

use std::fmt;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::client::ClientError;

/// Why there is no answer. **Shape:** `{"status", "detail", ? "code"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    status: StatusCode,
    detail: String,
    code: Option<u32>,
}

impl Fault {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), code: None }
    }

    /// A request that says something else than it may.
    pub(super) fn bad(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail.to_string())
    }

    /// The sidecar is not there, or does not answer as it should.
    pub(super) fn away(detail: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, detail.to_string())
    }

    /// With the code of the protocol.
    pub(super) fn code(self, code: u32) -> Self {
        Self { code: Some(code), ..self }
    }

    #[cfg(test)]
    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Refused(wire) | ClientError::Result(wire) => Self {
                status: StatusCode::UNPROCESSABLE_ENTITY,
                detail: wire.to_string(),
                code: Some(wire.code.0),
            },
            ClientError::Invalid(why) => Self::bad(why),
            ClientError::Unsent(_)
            | ClientError::Connect { .. }
            | ClientError::Owner { .. }
            | ClientError::Timeout { .. }
            | ClientError::Closed(_)
            | ClientError::Answer(_) => Self::away(&error),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let mut document = json!({"status": self.status.as_u16(), "detail": self.detail});
        if let Some(code) = self.code {
            document["code"] = code.into();
        }
        let mut response = Json(document).into_response();
        *response.status_mut() = self.status;
        response
    }
}

/// An answer that is one JSON document.
pub(super) struct Json(pub(super) Value);

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.0.to_string()));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}
