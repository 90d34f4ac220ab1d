//! Says to a model how a call ended: an outcome in; the tool's result, whose text the model can act on, out.

use capd_client::proto::envelope::MessageId;
use capd_client::{Answer, Violation, WireError};
use capd_proto::code::{Code, Retry};
use serde_json::{Map, Value, json};

use super::call::Ended;
use super::catalog::{Output, Tool};
use crate::content;
use crate::era::Era;

/// The result of `tools/call`.
pub(super) fn result(tool: &Tool, ended: &Ended, call: Option<MessageId>, era: Era) -> Value {
    let (code, mut result) = match ended {
        Ended::Done(answer) => (None, done(tool, answer, era)),
        Ended::NotExecuted(error) => (Some(error.code), failed(&not_executed(tool, error), error)),
        Ended::Failed(error) => (Some(error.code), failed(&executed(error), error)),
        Ended::Unknown(error) => (Some(error.code), failed(&unknown(error), error)),
        Ended::Cancelled => (Some(Code::CANCELLED), error_result(CANCELLED, Vec::new())),
    };
    let mut meta = Map::new();
    meta.insert("io.capd/outcome".to_owned(), ended.outcome().into());
    meta.insert("io.capd/capability".to_owned(), tool.id.to_string().into());
    if let Some(code) = code {
        meta.insert("io.capd/code".to_owned(), code.0.into());
    }
    if let Some(call) = call {
        meta.insert("io.capd/call".to_owned(), call.to_string().into());
    }
    result["_meta"] = Value::Object(meta);
    result
}

/// A refusal of ours, before anything was sent.
pub(super) fn refusal(why: &str) -> Value {
    error_result(&format!("Not executed: {why}."), Vec::new())
}

fn done(tool: &Tool, answer: &Answer, era: Era) -> Value {
    let Some(value) = answer.json() else {
        return json!({"content": [content::block(NO_JSON)], "isError": false});
    };
    if let (Output::Blocks, Some(Value::Array(blocks))) = (&tool.output, value.get("content")) {
        let mut result = json!({"content": blocks, "isError": false});
        if let Some(structured) = value.get("structuredContent") {
            result["structuredContent"] = structured.clone();
        }
        return result;
    }
    let mut result = json!({"content": [content::block(&value.to_string())], "isError": false});
    // Legacy clients take objects only.
    if tool.output_schema(era).is_some() || (value.is_object() && tool.output == Output::Undeclared) {
        result["structuredContent"] = value;
    }
    result
}

fn failed(text: &str, error: &WireError) -> Value {
    // What an imported tool said beside its text, such as a picture.
    let details = error.details_json();
    let blocks = details.as_ref().and_then(|details| details["content"].as_array());
    let others = blocks.into_iter().flatten().filter(|block| block["type"] != "text").cloned();
    error_result(text, others.collect())
}

fn error_result(text: &str, others: Vec<Value>) -> Value {
    let blocks: Vec<_> = std::iter::once(content::block(text)).chain(others).collect();
    json!({"content": blocks, "isError": true})
}

fn not_executed(tool: &Tool, error: &WireError) -> String {
    let violations = error.violations();
    let named = named(error);
    if violations.is_empty() {
        let next = match (error.code, error.code.retry()) {
            (Code::CAPABILITY_NOT_FOUND | Code::VERSION_MISMATCH, _) => {
                " The tool is not available at the moment; list the tools again."
            }
            (Code::UNAUTHORIZED, _) => " Do not call it again: its owner must grant the call first.",
            (_, Retry::Yes | Retry::Backoff) => " You may call it again later.",
            (_, Retry::No) => " Calling it again with the same arguments will fail again.",
        };
        return format!("Not executed: {named}.{next}");
    }
    let places: Vec<_> = violations.iter().map(|violation| place(tool, violation)).collect();
    let places = places.join("\n");
    if error.code == Code::REPAIR_EXHAUSTED {
        return format!(
            "Not executed: {named}.\n{places}\nThis turn is over: the corrections that it allows are used up. Do not call \
             this tool again in this turn; say what is missing instead."
        );
    }
    format!(
        "Not executed: the arguments do not fit the tool's schema.\n{places}\nCorrect these arguments and call again."
    )
}

fn executed(error: &WireError) -> String {
    if matches!(error.code, Code::UNAVAILABLE | Code::OVERLOADED) {
        // The call was accepted, and its provider says that it did not get to it.
        return format!("Not executed, as its provider says: {}. You may call it again later.", named(error));
    }
    format!(
        "Executed, and it failed: {}. It may have had effects before it failed; look before you call it again.",
        named(error)
    )
}

fn unknown(error: &WireError) -> String {
    format!(
        "Unknown whether it was executed: {}. Do not repeat this call without looking at its effect first. With the same \
         _meta[\"{}\"] it never runs twice.",
        named(error),
        super::KEY
    )
}

/// The message without a full stop, then the code.
fn named(error: &WireError) -> String {
    let message = error.message.trim_end().trim_end_matches('.');
    match error.code.name() {
        Some(name) => format!("{message} ({} {name})", error.code.0),
        None => format!("{message} ({})", error.code.0),
    }
}

/// One violation: where, what is wrong, and what is accepted there.
fn place(tool: &Tool, violation: &Violation) -> String {
    let pointer = if violation.path == "/" { "" } else { violation.path.as_str() };
    let at = if tool.arguments.is_wrapped { format!("/value{pointer}") } else { pointer.to_owned() };
    let accepted = accepted(&tool.arguments.schema, &at).map(|schema| format!("; accepted: {schema}"));
    let at = if at.is_empty() { "the arguments".to_owned() } else { at };
    format!("- {at}: {}{}", violation.message, accepted.unwrap_or_default())
}

/// The schema at a place of the payload, as far as properties and items lead there; none when it says too much.
fn accepted(schema: &Value, pointer: &str) -> Option<String> {
    let mut schema = schema;
    for part in pointer.split('/').skip(1) {
        let name = part.replace("~1", "/").replace("~0", "~");
        let items = || part.parse::<usize>().ok().and_then(|_| schema.get("items"));
        schema = schema.get("properties").and_then(|named| named.get(&name)).or_else(items)?;
    }
    // In one order, whatever order the JSON library keeps members in.
    let text = serde_json_canonicalizer::to_string(schema).ok()?;
    (!pointer.is_empty() && text.len() <= ACCEPTED_BYTES_MAX).then_some(text)
}

const NO_JSON: &str = "Executed. The result is CBOR that has no form in JSON, so it cannot be shown.";
const CANCELLED: &str = "Cancelled. The call may have had effects before it was stopped.";
/// Longest schema that a violation quotes.
const ACCEPTED_BYTES_MAX: usize = 400;
