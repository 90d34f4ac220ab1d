//! Makes a call of a message: its parts and metadata in; a capability and its params out.
//!
//! A message has one part. Where its metadata name the skill, the part is the params; otherwise it is
//! `{"capability"?: SKILL, "params"?: any}`. A part is `data`, or text that is JSON.

use std::collections::HashMap;

use a2a::{A2AError, FieldViolation, Message, PartContent, SendMessageRequest, TypedDetail, error_code};
use capd_bridge::sidecar::Sidecar;
use capd_client::value_of_json;
use serde_json::Value;

use super::skills::Catalog;
use crate::extension;

/// What a message asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Ask {
    /// A capability's id, or a name alone.
    pub(super) capability: String,
    pub(super) params: Value,
}

/// Reads a message.
///
/// **Errors:** -32602 and -32005, which say what is accepted.
pub(super) async fn ask(
    request: &SendMessageRequest,
    catalog: &Catalog,
    sidecar: &Sidecar,
) -> Result<Ask, A2AError> {
    let message = &request.message;
    check_ids(message)?;
    let content = content(message)?;
    let named = [&message.metadata, &request.metadata].into_iter().flatten().find_map(skill_of);
    let (named, params) = match named {
        Some(named) => (Some(named), content),
        None => envelope(content)?,
    };
    let capability = match named {
        Some(named) => catalog.named(&named, sidecar).await.map_err(|why| invalid("message.parts", &why))?,
        None => catalog.only(sidecar).await.ok_or_else(|| {
            invalid(
                "message.parts",
                "no skill is named, and there is not just one; give {\"capability\": SKILL}",
            )
        })?,
    };
    Ok(Ask { capability, params })
}

fn check_ids(message: &Message) -> Result<(), A2AError> {
    let ids = [
        ("message.messageId", Some(&message.message_id)),
        ("message.contextId", message.context_id.as_ref()),
        ("message.taskId", message.task_id.as_ref()),
    ];
    for (field, id) in ids {
        if id.is_some_and(|id| !(1..=ID_BYTES_MAX).contains(&id.len())) {
            return Err(invalid(field, &format!("accepted: 1 to {ID_BYTES_MAX} bytes")));
        }
    }
    Ok(())
}

fn content(message: &Message) -> Result<Value, A2AError> {
    let [part] = message.parts.as_slice() else {
        let why = format!("there are {} parts; accepted: one data part", message.parts.len());
        return Err(invalid("message.parts", &why));
    };
    match &part.content {
        PartContent::Data(data) => Ok(data.clone()),
        PartContent::Text(text) => value_of_json(text.as_bytes()).map_err(|error| {
            A2AError::new(
                error_code::CONTENT_TYPE_NOT_SUPPORTED,
                format!("a text part is accepted when it is JSON, as a data part would be: {error}"),
            )
        }),
        PartContent::Raw(_) | PartContent::Url(_) => Err(A2AError::new(
            error_code::CONTENT_TYPE_NOT_SUPPORTED,
            "a file is not accepted; send one data part {\"capability\": SKILL, \"params\": …}",
        )),
    }
}

fn skill_of(metadata: &HashMap<String, Value>) -> Option<String> {
    let ours = metadata.get(extension::URI).and_then(|ours| ours.get("capability"));
    let skill = ours.or_else(|| metadata.get("skillId")).and_then(Value::as_str);
    skill.map(str::to_owned)
}

fn envelope(content: Value) -> Result<(Option<String>, Value), A2AError> {
    let wrong = |why: &str| {
        let accepted = "accepted: {\"capability\"?: SKILL, \"params\"?: …}, or metadata that name the skill";
        invalid("message.parts", &format!("{why}; {accepted}"))
    };
    let Value::Object(mut fields) = content else { return Err(wrong("the part is no object")) };
    let named = match fields.remove("capability") {
        None => None,
        Some(Value::String(named)) => Some(named),
        Some(_) => return Err(wrong("\"capability\" is no text")),
    };
    let params = fields.remove("params").unwrap_or(Value::Null);
    match fields.keys().next() {
        Some(unknown) => Err(wrong(&format!("{unknown:?} is unknown"))),
        None => Ok((named, params)),
    }
}

/// -32602, with the field in its details.
pub(super) fn invalid(field: &str, why: &str) -> A2AError {
    let violation = FieldViolation { field: field.to_owned(), description: why.to_owned() };
    A2AError::invalid_params(format!("{field}: {why}"))
        .with_details(vec![TypedDetail::bad_request(vec![violation])])
}

/// Longest id that a client may give.
const ID_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use a2a::{Part, Role};
    use serde_json::json;

    use super::*;

    fn message(part: Part) -> Message {
        Message::new(Role::User, vec![part])
    }

    #[test]
    fn a_part_is_data_or_text_that_is_json() {
        let data = json!({"capability": "a.b", "params": {"n": 1}});
        assert_eq!(content(&message(Part::data(data.clone()))).unwrap(), data);
        assert_eq!(content(&message(Part::text(data.to_string()))).unwrap(), data);
        for part in [Part::text("translate this"), Part::raw(vec![1]), Part::url("https://a.example/")] {
            assert_eq!(content(&message(part)).unwrap_err().code, error_code::CONTENT_TYPE_NOT_SUPPORTED);
        }
        let two = Message::new(Role::User, vec![Part::text("{}"), Part::text("{}")]);
        assert_eq!(content(&two).unwrap_err().code, error_code::INVALID_PARAMS);
    }

    #[test]
    fn an_envelope_has_a_capability_and_params_and_nothing_else() {
        assert_eq!(envelope(json!({"capability": "a.b"})).unwrap(), (Some("a.b".to_owned()), Value::Null));
        assert_eq!(envelope(json!({"params": [1]})).unwrap(), (None, json!([1])));
        for wrong in [json!(1), json!({"capability": 1}), json!({"text": "a"})] {
            assert_eq!(envelope(wrong.clone()).unwrap_err().code, error_code::INVALID_PARAMS, "{wrong}");
        }
    }

    #[test]
    fn ids_are_bounded() {
        let mut message = message(Part::text("{}"));
        assert!(check_ids(&message).is_ok());
        message.context_id = Some("x".repeat(ID_BYTES_MAX + 1));
        assert!(check_ids(&message).unwrap_err().message.starts_with("message.contextId"));
        message.context_id = None;
        message.message_id = String::new();
        assert!(check_ids(&message).unwrap_err().message.starts_with("message.messageId"));
    }
}
