//! Repeats arguments of a call in the head of its request, where the tool's schema asks for that: a schema and arguments in;
//! header fields out. **Source:** MCP 2026-07-28, transports, `x-mcp-header`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::header::HeaderName;
use serde_json::Value;

/// The arguments that are repeated: the keys that lead to each, and its header.
pub(super) type Mirrored = Vec<(Vec<String>, HeaderName)>;

/// What a schema asks for.
///
/// **Errors:** an annotation that no client may follow, so that the tool must not be called.
pub(super) fn mirrored(schema: &Value) -> Result<Mirrored, String> {
    let mut found = Mirrored::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    Ok(found)
}

fn collect(schema: &Value, path: &mut Vec<String>, found: &mut Mirrored) -> Result<(), String> {
    if path.len() >= DEPTH_MAX {
        return Ok(());
    }
    for (key, property) in schema["properties"].as_object().into_iter().flatten() {
        path.push(key.clone());
        if let Some(annotation) = property.get("x-mcp-header") {
            let wrong = |why: &str| format!("its x-mcp-header {annotation} of {key:?} {why}");
            let header = annotation.as_str().and_then(|name| name_of(name).ok());
            let header = header.ok_or_else(|| wrong("is no name of a header"))?;
            if !matches!(property["type"].as_str(), Some("string" | "integer" | "boolean")) {
                return Err(wrong("is of a property that is neither a string, an integer nor a boolean"));
            }
            if found.iter().any(|(_, known)| *known == header) {
                return Err(wrong("is there twice"));
            }
            if found.len() >= HEADERS_MAX {
                return Err(format!("its schema has more than {HEADERS_MAX} x-mcp-header"));
            }
            found.push((path.clone(), header));
        }
        collect(property, path, found)?;
        path.pop();
    }
    Ok(())
}

fn name_of(name: &str) -> Result<HeaderName, ()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(());
    }
    format!("mcp-param-{name}").parse().map_err(drop)
}

/// The fields for a call with these arguments.
pub(super) fn fields(mirrored: &Mirrored, arguments: &Value) -> Vec<(HeaderName, String)> {
    let field = |(path, header): &(Vec<String>, HeaderName)| {
        let value = path.iter().try_fold(arguments, |at, key| at.get(key))?;
        let text = match value {
            Value::String(text) => field_value(text),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some((header.clone(), text))
    };
    mirrored.iter().filter_map(field).collect()
}

/// A text as a field has it: as it is where that is safe, else encoded.
pub(super) fn field_value(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && text.trim() == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if is_plain { text.to_owned() } else { format!("=?base64?{}?=", BASE64.encode(text)) }
}

/// How deep properties are looked for.
const DEPTH_MAX: usize = 32;
/// Headers of one tool.
const HEADERS_MAX: usize = 64;
const NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotated_arguments_are_repeated_and_others_are_not() {
        let schema = json!({"properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "n": {"type": "integer", "x-mcp-header": "N"},
            "gone": {"type": "boolean", "x-mcp-header": "Gone"},
            "plain": {"type": "string"},
            "in": {"type": "object", "properties": {"deep": {"type": "boolean", "x-mcp-header": "Deep"}}},
        }});
        let mirrored = mirrored(&schema).unwrap();
        let arguments = json!({"region": " é", "n": 4, "gone": null, "plain": "x", "in": {"deep": false}});
        let mut found = fields(&mirrored, &arguments);
        found.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            found,
            [("mcp-param-deep", "false"), ("mcp-param-n", "4"), ("mcp-param-region", "=?base64?IMOp?=")]
        );
    }

    #[test]
    fn a_value_that_would_not_arrive_as_it_is_is_encoded() {
        for plain in ["", "us west 1", "a=?b"] {
            assert_eq!(field_value(plain), plain);
        }
        for unsafe_text in [" a", "a ", "a\nb", "a\tb", "\r\nx: y", "ü", "=?base64?YQ==?="] {
            let encoded = field_value(unsafe_text);
            let inner = encoded.strip_prefix("=?base64?").unwrap().strip_suffix("?=").unwrap();
            assert_eq!(BASE64.decode(inner).unwrap(), unsafe_text.as_bytes());
        }
    }

    #[test]
    fn annotations_that_no_client_may_follow_are_named() {
        let one =
            |kind: &str, name: Value| json!({"properties": {"a": {"type": kind, "x-mcp-header": name}}});
        for wrong in [
            one("string", json!("")),
            one("string", json!(7)),
            one("string", json!("My Region")),
            one("string", json!("Region:Primary")),
            one("string", json!("Région")),
            one("string", json!("a\r\nb")),
            one("number", json!("Score")),
            one("object", json!("Data")),
            json!({"properties": {
                "a": {"type": "string", "x-mcp-header": "MyField"},
                "b": {"type": "string", "x-mcp-header": "myfield"},
            }}),
        ] {
            assert!(mirrored(&wrong).unwrap_err().contains("x-mcp-header"), "{wrong}");
        }
    }
}
