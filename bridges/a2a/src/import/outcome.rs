//! What an agent says in the end: a task, or a message, in; a call's one result, with the truth of what ran, out.

use bytes::Bytes;
use capd_client::{WireError, to_cbor};
use capd_proto::code::Code;
use serde_json::{Value, json};

use crate::extension;

/// How a call is to go on after an update.
#[derive(Debug)]
pub(super) enum Next {
    /// It runs.
    Wait,
    /// It waits for input, which a person may give elsewhere.
    Input(String),
    /// It has ended.
    End(Result<Bytes, WireError>),
}

/// What a task says. `is_capability`: it is a call of another capd.
pub(super) fn of_task(task: &Value, is_capability: bool) -> Next {
    let status = &task["status"];
    let said = text(parts(&status["message"]));
    match status["state"].as_str().unwrap_or_default() {
        "TASK_STATE_COMPLETED" => Next::End(completed(task, is_capability)),
        "TASK_STATE_FAILED" => Next::End(Err(failed(task, &said))),
        "TASK_STATE_CANCELED" => Next::End(Err(wire(Code::CANCELLED, &said, "the agent cancelled the task"))),
        // An agent rejects what it does not do.
        "TASK_STATE_REJECTED" => Next::End(Err(refused(task, &said))),
        "TASK_STATE_AUTH_REQUIRED" => {
            let message = "the agent asks for authentication that no agent can give here";
            Next::End(Err(WireError::new(Code::INTERNAL_ERROR, format!("{message}: {said}"))))
        }
        "TASK_STATE_INPUT_REQUIRED" => Next::Input(said),
        _ => Next::Wait,
    }
}

/// A message in place of a task: it is the answer.
pub(super) fn of_message(message: &Value) -> Bytes {
    loose(parts(message), message["contextId"].as_str())
}

fn completed(task: &Value, is_capability: bool) -> Result<Bytes, WireError> {
    let artifacts = task["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let all: Vec<_> = artifacts.iter().flat_map(parts).cloned().collect();
    if is_capability {
        let data = all.iter().find_map(|part| part.get("data"));
        let missing = || WireError::new(Code::RESULT_SCHEMA_VIOLATION, "the agent's task has no data part");
        return data.map(to_cbor).ok_or_else(missing);
    }
    let context = task["contextId"].as_str();
    // Some agents answer with the message of the last status alone.
    if all.is_empty() {
        Ok(loose(parts(&task["status"]["message"]), context))
    } else {
        Ok(loose(&all, context))
    }
}

fn failed(task: &Value, said: &str) -> WireError {
    let facts = &task["metadata"][extension::URI];
    let code = match facts["outcome"].as_str() {
        Some("unknown" | "pending") => Code::INTERRUPTED,
        Some("failed") if facts["code"] == Code::UNAVAILABLE.0 => Code::UNAVAILABLE,
        Some("failed") if facts["code"] == Code::TIMEOUT.0 => Code::TIMEOUT,
        _ => Code::INTERNAL_ERROR,
    };
    with_facts(wire(code, said, "the agent failed without a word"), facts)
}

fn refused(task: &Value, said: &str) -> WireError {
    let facts = &task["metadata"][extension::URI];
    with_facts(wire(Code::UNAVAILABLE, said, "the agent rejected the task"), facts)
}

fn with_facts(error: WireError, facts: &Value) -> WireError {
    let mut details = serde_json::Map::new();
    if error.code == Code::UNAVAILABLE {
        details.insert("executed".to_owned(), false.into());
    }
    if facts.is_object() {
        details.insert("remote".to_owned(), facts.clone());
    }
    let details = (!details.is_empty()).then(|| to_cbor(&Value::Object(details)));
    WireError { details, ..error }
}

fn wire(code: Code, said: &str, otherwise: &str) -> WireError {
    let message = if said.is_empty() { otherwise } else { said };
    WireError::new(code, message.chars().take(MESSAGE_CHARS_MAX).collect::<String>())
}

fn loose(parts: &[Value], context: Option<&str>) -> Bytes {
    let mut result = json!({"text": text(parts), "parts": parts});
    if let Some(context) = context {
        result["contextId"] = context.into();
    }
    to_cbor(&result)
}

fn parts(of: &Value) -> &[Value] {
    of["parts"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The texts of parts, one after the other.
fn text(parts: &[Value]) -> String {
    parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
}

const MESSAGE_CHARS_MAX: usize = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn task(state: &str, facts: Value) -> Value {
        json!({
            "id": "t", "contextId": "c",
            "status": {"state": format!("TASK_STATE_{state}"), "message": {"parts": [{"text": "why"}]}},
            "metadata": {extension::URI: facts},
        })
    }

    #[test]
    fn each_state_is_a_truth_for_the_caller() {
        for (state, facts, code) in [
            ("FAILED", json!(null), Code::INTERNAL_ERROR),
            ("FAILED", json!({"outcome": "failed", "code": 5001}), Code::INTERNAL_ERROR),
            ("FAILED", json!({"outcome": "failed", "code": 5002}), Code::UNAVAILABLE),
            ("FAILED", json!({"outcome": "unknown", "code": 5902}), Code::INTERRUPTED),
            ("CANCELED", json!(null), Code::CANCELLED),
            ("REJECTED", json!(null), Code::UNAVAILABLE),
            ("AUTH_REQUIRED", json!(null), Code::INTERNAL_ERROR),
        ] {
            let Next::End(Err(error)) = of_task(&task(state, facts), false) else { panic!("{state}") };
            assert_eq!(error.code, code, "{state}");
            assert!(error.message.contains("why"), "{state}: {}", error.message);
        }
        for running in ["SUBMITTED", "WORKING", "OF_A_LATER_REVISION"] {
            assert!(matches!(of_task(&task(running, json!(null)), false), Next::Wait), "{running}");
        }
        assert!(
            matches!(of_task(&task("INPUT_REQUIRED", json!(null)), false), Next::Input(said) if said == "why")
        );
    }

    #[test]
    fn a_result_is_data_for_a_capability_and_parts_for_anybody_else() {
        let mut done = task("COMPLETED", json!(null));
        done["artifacts"] = json!([{"parts": [{"text": "two"}, {"data": {"n": 2}}]}]);
        let result = |is_capability| match of_task(&done, is_capability) {
            Next::End(Ok(result)) => result,
            other => panic!("{other:?}"),
        };
        assert_eq!(result(true), to_cbor(&json!({"n": 2})));
        let loose = json!({"text": "two", "parts": [{"text": "two"}, {"data": {"n": 2}}], "contextId": "c"});
        assert_eq!(result(false), to_cbor(&loose));
    }
}
