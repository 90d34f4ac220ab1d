//! Writes a call as one line of JSON, and reads an answer from one.

use capd_proto::cbor::json::{JsonError, from_json, to_json_text};
use capd_proto::code::Code;
use capd_proto::envelope::Envelope;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::super::message::{check_document, excerpt};
use crate::provider::{Invocation, Outcome, error_result};

/// A line that answers no call.
///
/// The text is safe for a caller; what the process wrote is not in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Junk {
    /// It is not one JSON object.
    #[error("the provider's line is not one JSON object: {0}")]
    NotJson(String),
    /// It does not have the members of an answer.
    #[error("the provider's line is not an answer: {0}")]
    NotAnswer(&'static str),
    /// The process has no such call, or has answered it.
    #[error("the provider answered call {0}, which it does not have")]
    Unknown(u64),
    /// The line does not end.
    #[error("the provider wrote a line of more than {0} bytes")]
    TooLong(usize),
}

/// Appends the line of a call to `out`.
///
/// **Shape:** `{"id", "call", "capability", "caller", "deadline_ms", ? "traceparent", "params"}` and a line feed. `id` is
/// the first member and `params` the last; no other line feed is in it.
///
/// **Errors:** the params are no JSON; `out` is as before.
pub(super) fn write(
    id: u64,
    invocation: &Invocation,
    now: Instant,
    out: &mut Vec<u8>,
) -> Result<(), JsonError> {
    let params = to_json_text(&invocation.params)?;
    let left = invocation.deadline.saturating_duration_since(now);
    let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    // None of these has a character that JSON escapes.
    let (call, capability, caller) =
        (invocation.key.id, &invocation.capability, invocation.key.from.as_str());
    out.extend_from_slice(
        format!(
            r#"{{"id":{id},"call":"{call}","capability":"{capability}","caller":"{caller}","deadline_ms":{left},"#
        )
        .as_bytes(),
    );
    if let Ok(envelope) = Envelope::decode(&invocation.envelope)
        && let Some(trace) = envelope.ext_text("traceparent")
    {
        out.extend_from_slice(format!(r#""traceparent":{},"#, Value::from(trace.as_ref())).as_bytes());
    }
    out.extend_from_slice(br#""params":"#);
    out.extend_from_slice(params.as_bytes());
    out.extend_from_slice(b"}\n");
    Ok(())
}

/// The call that a line answers, and how it ended.
///
/// **Shape:** `{"id", "result"}` or `{"id", "error"}`, where `error` is a text or `{? "code", ? "message", ? "details"}`.
/// Other members are ignored.
pub(super) fn read(line: &[u8]) -> Result<(u64, Outcome), Junk> {
    check_document(line).map_err(Junk::NotJson)?;
    let mut answer: Map<String, Value> =
        serde_json::from_slice(line).map_err(|error| Junk::NotJson(error.to_string()))?;
    let id = answer.get("id").and_then(Value::as_u64).ok_or(Junk::NotAnswer("it has no id of a call"))?;
    let outcome = match (answer.remove("result"), answer.remove("error")) {
        (Some(result), None) => {
            let mut item = Vec::with_capacity(line.len());
            from_json(&result, &mut item);
            Outcome::Success(item.into())
        }
        (None, Some(error)) => failed(&error).ok_or(Junk::NotAnswer("its error is no text and no object"))?,
        (None, None) => return Err(Junk::NotAnswer("it has neither result nor error")),
        (Some(_), Some(_)) => return Err(Junk::NotAnswer("it has both result and error")),
    };
    Ok((id, outcome))
}

fn failed(error: &Value) -> Option<Outcome> {
    match error {
        Value::String(message) => Some(error_result(Code::INTERNAL_ERROR, message, &Value::Null)),
        Value::Object(error) => {
            let code = error.get("code").and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok());
            let message = error.get("message").and_then(Value::as_str);
            let message = message.unwrap_or("the provider gave no reason");
            let details = error.get("details").unwrap_or(&Value::Null);
            Some(error_result(code.map_or(Code::INTERNAL_ERROR, Code), message, details))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// The beginning of a line, as the log shows it.
pub(super) fn shown(line: &[u8]) -> String {
    excerpt(line)
}
