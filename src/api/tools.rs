//! Answers `GET /v1/tools`: the callable capabilities as tools of a language model.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use capd_proto::message::SchemaSource;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::Api;
use super::body::Json;
use super::capabilities::{everything, pattern};
use super::problem::Problem;
use super::query::Query;
use crate::client::{Client, Offer};

/// Whose tools.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    OpenAi,
    Anthropic,
    Mcp,
}

impl std::str::FromStr for Format {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "openai" => Ok(Self::OpenAi),
            "anthropic" => Ok(Self::Anthropic),
            "mcp" => Ok(Self::Mcp),
            _ => Err("expected openai, anthropic or mcp"),
        }
    }
}

pub(super) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Json, Problem> {
    let query = Query::read(uri.query(), &["format", "namespace"])?;
    let format = query.parsed("format")?.unwrap_or(Format::OpenAi);
    let client = api.client().await?;
    let offers = newest(everything(&client, pattern(query.text("namespace"))?).await?);
    let (mut tools, mut names, mut wrapped) = (Vec::new(), Map::new(), Vec::new());
    for offer in &offers {
        let name = tool_name(offer.id().name.as_str());
        let (schema, is_wrapped) = arguments(api.document(&client, &offer.descriptor.input_schema).await);
        let output = match format {
            Format::Mcp => api.document(&client, &offer.descriptor.output_schema).await,
            Format::OpenAi | Format::Anthropic => None,
        };
        tools.push(tool(format, &name, offer, schema, output));
        if is_wrapped {
            wrapped.push(name.clone());
        }
        names.insert(name, offer.id().to_string().into());
    }
    Ok(Json(json!({"tools": tools, "names": names, "wrapped": wrapped})))
}

impl Api {
    /// The document of one side's schema, as JSON.
    pub(super) async fn document(&self, client: &Client, source: &Option<SchemaSource>) -> Option<Value> {
        let Some(SchemaSource::Ref(schema)) = source else { return None };
        let artifact = self.fetched(client, &schema.hash).await?;
        serde_json::from_slice(artifact.document()).ok()
    }
}

/// Of each name its newest release, as its first provider declares it.
pub(super) fn newest(offers: Vec<Offer>) -> Vec<Offer> {
    let mut found: Vec<Offer> = Vec::new();
    for offer in offers {
        let is_release = !offer.id().version.is_prerelease();
        let is_known = found.last().is_some_and(|last| last.id().name == offer.id().name);
        if is_release && !is_known {
            found.push(offer);
        }
    }
    found
}

fn tool(format: Format, name: &str, offer: &Offer, schema: Value, output: Option<Value>) -> Value {
    let descriptor = &offer.descriptor;
    let description = descriptor.description.clone().unwrap_or_else(|| offer.id().to_string());
    match format {
        Format::OpenAi => json!({
            "type": "function",
            "function": {"name": name, "description": description, "parameters": schema},
        }),
        Format::Anthropic => json!({"name": name, "description": description, "input_schema": schema}),
        Format::Mcp => {
            let mut tool = json!({
                "name": name,
                "title": offer.id().to_string(),
                "description": description,
                "inputSchema": schema,
                "annotations": {"idempotentHint": descriptor.idempotent},
            });
            // MCP's structured results are objects.
            if let Some(output) = output.filter(is_object) {
                tool["outputSchema"] = output;
            }
            tool
        }
    }
}

/// The schema of a tool's arguments, which are always an object: params of another kind stand in its member `value`.
fn arguments(schema: Option<Value>) -> (Value, bool) {
    match schema {
        None => (json!({"type": "object"}), false),
        Some(schema) if is_object(&schema) => (schema, false),
        Some(schema) => {
            let wrapped = json!({"type": "object", "properties": {"value": schema}, "required": ["value"]});
            (wrapped, true)
        }
    }
}

fn is_object(schema: &Value) -> bool {
    schema["type"] == "object"
}

/// A capability's name as a tool may have it: letters, digits, `_` and `-`, at most 64 of them.
///
/// Names of capabilities have dots and no `_`, so no two meet; a long one ends with a part of its hash.
fn tool_name(name: &str) -> String {
    let plain = name.replace('.', "_");
    if plain.len() <= TOOL_NAME_MAX {
        return plain;
    }
    let digest = Sha256::digest(name);
    let tail: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{}_{tail}", &plain[..TOOL_NAME_MAX - 1 - tail.len()])
}

/// Longest name of a tool, for all three formats.
const TOOL_NAME_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_what_every_format_takes_and_never_meet() {
        assert_eq!(tool_name("org.example.to-do"), "org_example_to-do");
        let long = |end: &str| tool_name(&format!("org.example.{}{end}", "x".repeat(80)));
        assert_eq!(long("a").len(), 64);
        assert_ne!(long("a"), long("b"));
    }

    #[test]
    fn arguments_are_always_an_object() {
        assert_eq!(arguments(None), (json!({"type": "object"}), false));
        let (wrapped, is_wrapped) = arguments(Some(json!({"type": "string"})));
        assert!(is_wrapped && wrapped["properties"]["value"]["type"] == "string");
    }
}
