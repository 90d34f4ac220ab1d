//! Classifies failures of a request by their cause: the peer's refusal, a lost link, a timeout, or a mistake of the
//! program.

use std::time::Duration;

use bytes::Bytes;
use capd_proto::cbor::json::to_json;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use serde_json::Value;

/// Why a request of the client failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// No link to the sidecar: nobody listens there, it refused the client, or it does not speak the protocol.
    #[error("no link to the sidecar at {place}: {reason}")]
    Connect {
        /// The socket path or the address.
        place: String,
        /// What the system or the sidecar said.
        reason: String,
        /// Whether a sidecar answered and refused the client.
        is_refused: bool,
        /// Whether a sidecar answered and has no capacity for another link.
        is_full: bool,
    },
    /// The unix socket belongs to another user, who could pose as any sidecar.
    #[error("the socket {place} was opened by user {owner}, not by root or by user {own}, who connects")]
    Owner {
        /// The socket's path.
        place: String,
        /// The user id that listens.
        owner: u32,
        /// The user id that connects.
        own: u32,
    },
    /// An ERROR came back: nothing was executed.
    #[error("{0}")]
    Refused(WireError),
    /// A CAP_RESULT with status `error` came back: the call was accepted and failed.
    #[error("{0}")]
    Result(WireError),
    /// Nothing came back in time. It is unknown whether the call was executed.
    #[error("no answer to {id} within {after:?}")]
    Timeout {
        /// The request's id.
        id: MessageId,
        /// How long the client waited.
        after: Duration,
    },
    /// The link closed with the request in flight. It is unknown whether a call was executed.
    #[error("the link to the sidecar closed: {0}")]
    Closed(String),
    /// The request was not sent: too large, or the link's queue or the table of open requests is full.
    #[error("not sent: {0}")]
    Unsent(String),
    /// The answer does not match the request, or its hash.
    #[error("unusable answer: {0}")]
    Answer(String),
    /// The request violates the protocol; nothing was sent.
    #[error("{0}")]
    Invalid(String),
}

/// The content of an ERROR, or of the error of a CAP_RESULT. **Source:** PROTOCOL 7.4, 9.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct WireError {
    /// The code; unknown codes are kept.
    pub code: Code,
    /// A message for people.
    pub message: String,
    /// **Shape:** one CBOR item.
    pub details: Option<Bytes>,
}

/// One place where a payload does not fit its schema. **Source:** PROTOCOL 9.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// **Shape:** JSON pointer into the payload.
    pub path: String,
    /// What is wrong there.
    pub message: String,
    /// The violated keyword.
    pub keyword: String,
}

impl WireError {
    /// An error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    /// `details` as JSON, if present and representable.
    pub fn details_json(&self) -> Option<Value> {
        self.details.as_deref().and_then(|details| to_json(details).ok())
    }

    /// Whether an error result is the call's one result. Otherwise it comes from the own sidecar because no answer came
    /// in time; repeat the call under its id to get the executor's answer.
    ///
    /// **Shape:** `details` with `"final": false` if it is not.
    pub fn is_final(&self) -> bool {
        self.details_json().is_none_or(|details| details["final"] != Value::Bool(false))
    }

    /// The violations that `details` lists; entries of another shape are omitted.
    pub fn violations(&self) -> Vec<Violation> {
        let details = self.details_json();
        let listed = details.as_ref().and_then(|details| details["violations"].as_array());
        let text = |entry: &Value, key: &str| entry[key].as_str().map(str::to_owned);
        listed
            .into_iter()
            .flatten()
            .filter_map(|entry| {
                Some(Violation {
                    path: text(entry, "path")?,
                    message: text(entry, "message")?,
                    keyword: text(entry, "keyword").unwrap_or_default(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use capd_proto::cbor::json::from_json;
    use serde_json::json;

    use super::*;

    fn with_details(details: &Value) -> WireError {
        let mut bytes = Vec::new();
        from_json(details, &mut bytes);
        WireError { code: Code::SCHEMA_VIOLATION, message: "m".to_owned(), details: Some(bytes.into()) }
    }

    #[test]
    fn violations_are_read_and_entries_of_another_shape_left_out() {
        let details = json!({"violations": [
            {"path": "/code", "message": "is a number", "keyword": "type"},
            {"path": 1}, "x", {"path": "/", "message": "no keyword"},
        ]});
        let paths: Vec<_> =
            with_details(&details).violations().into_iter().map(|violation| violation.path).collect();
        assert_eq!(paths, ["/code", "/"]);
        for details in [json!(null), json!([]), json!({"violations": 1})] {
            assert_eq!(with_details(&details).violations(), vec![]);
        }
    }

    #[test]
    fn only_an_error_that_says_so_is_not_the_last_word() {
        assert!(!with_details(&json!({"final": false, "more": 1})).is_final());
        for details in [json!({"final": true}), json!({"final": null}), json!({}), json!(false), json!(null)]
        {
            assert!(with_details(&details).is_final(), "{details}");
        }
        assert!(WireError { code: Code::TIMEOUT, message: String::new(), details: None }.is_final());
    }

    #[test]
    fn details_that_do_not_fit_json_are_no_error() {
        let error = WireError { code: Code(9999), message: String::new(), details: Some(vec![0xf7].into()) };
        assert_eq!(error.details_json(), None);
        assert_eq!(error.violations(), vec![]);
    }
}
