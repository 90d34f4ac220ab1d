//! Two tools in place of hundreds: one that finds capabilities, and one that calls what was found.

use serde_json::{Value, json};

use super::catalog::Tools;
use crate::era::Era;

/// The definitions of both.
pub(super) fn definitions() -> Vec<Value> {
    vec![
        json!({
            "name": FIND,
            "title": "Find a capability",
            "description": "Finds capabilities by words of their names and descriptions. Returns the best matches with \
                            the schema of their arguments; call one with call_capability.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Words to look for; without any, all are listed."},
                    "limit": {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": "Most matches."},
                },
                "required": ["query"],
                "additionalProperties": false,
            },
            "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
        }),
        json!({
            "name": CALL,
            "title": "Call a capability",
            "description": "Calls a capability that find_capability returned, with arguments that fit its inputSchema.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "The name, as find_capability returned it."},
                    "arguments": {"type": "object", "description": "The arguments."},
                },
                "required": ["name"],
                "additionalProperties": false,
            },
        }),
    ]
}

/// What `find_capability` answers.
///
/// **Errors:** what is wrong with its arguments, for a model.
pub(super) fn find(tools: &Tools, arguments: &Value, era: Era) -> Result<Value, String> {
    let query = arguments["query"]
        .as_str()
        .ok_or("find_capability takes {\"query\": a text, \"limit\"?: a number}")?;
    let limit = match &arguments["limit"] {
        Value::Null => LIMIT_DEFAULT,
        limit => {
            let limit = limit.as_u64().filter(|limit| (1..=LIMIT_MAX).contains(limit));
            limit.ok_or_else(|| format!("/limit: accepted: a whole number from 1 to {LIMIT_MAX}"))?
        }
    };
    let words: Vec<String> = query
        .split(|char: char| !char.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let mut found: Vec<_> = tools
        .values()
        .filter_map(|tool| {
            let (name, description) = (tool.name.to_lowercase(), tool.description.to_lowercase());
            let score: usize = words
                .iter()
                .map(|word| 3 * usize::from(name.contains(word)) + usize::from(description.contains(word)))
                .sum();
            (score > 0 || words.is_empty()).then_some((std::cmp::Reverse(score), tool))
        })
        .collect();
    found.sort_by(|(a, one), (b, other)| (a, &one.name).cmp(&(b, &other.name)));
    let total = found.len();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let shown: Vec<_> = found.into_iter().take(limit).map(|(_, tool)| tool.definition(era)).collect();
    Ok(json!({"capabilities": shown, "matches": total, "of": tools.len()}))
}

/// The tool that finds.
pub(super) const FIND: &str = "find_capability";
/// The tool that calls.
pub(super) const CALL: &str = "call_capability";
const LIMIT_DEFAULT: u64 = 10;
const LIMIT_MAX: u64 = 50;
