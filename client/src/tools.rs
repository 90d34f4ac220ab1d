//! Capabilities in; definitions for the tools of a language model, and the calls that its choices mean, out.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use capd_proto::capability::CapabilityPattern;
use capd_proto::code::Code;
use capd_proto::message::SchemaSource;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{CallOptions, Client, ClientError, Offer, Query, TypedCall, WireError, value_of_json};

/// Whose tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolFormat {
    /// `{"type": "function", "function": {…}}`.
    OpenAi,
    /// `{"name", "description", "input_schema"}`.
    Anthropic,
    /// `{"name", "title", "description", "inputSchema", …}`.
    Mcp,
}

impl FromStr for ToolFormat {
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

/// Tool definitions, and which capability each of them means.
#[derive(Clone, Debug)]
pub struct ToolList {
    format: ToolFormat,
    tools: Vec<Value>,
    names: BTreeMap<String, String>,
    wrapped: BTreeSet<String>,
}

impl ToolList {
    /// A list without tools.
    pub const fn new(format: ToolFormat) -> Self {
        Self { format, tools: Vec::new(), names: BTreeMap::new(), wrapped: BTreeSet::new() }
    }

    /// Whether definitions of this format say what results fit.
    pub fn shows_results(&self) -> bool {
        self.format == ToolFormat::Mcp
    }

    /// Adds a capability, with the schema of its params and, where the format shows it, of its results.
    pub fn add(&mut self, offer: &Offer, input: Option<Value>, output: Option<Value>) {
        let name = tool_name(offer.id().name.as_str());
        let (schema, is_wrapped) = arguments(input);
        self.tools.push(tool(self.format, &name, offer, schema, output));
        if is_wrapped {
            self.wrapped.insert(name.clone());
        }
        self.names.insert(name, offer.id().to_string());
    }

    /// The definitions, as the model's API takes them.
    pub fn tools(&self) -> &[Value] {
        &self.tools
    }

    /// The id of the capability that a tool means.
    pub fn capability(&self, tool: &str) -> Option<&str> {
        self.names.get(tool).map(String::as_str)
    }

    /// The definitions with the names of their capabilities, as the HTTP API gives them.
    pub fn json(&self) -> Value {
        let names: Map<_, _> = self.names.iter().map(|(name, id)| (name.clone(), json!(id))).collect();
        json!({"tools": self.tools, "names": names, "wrapped": self.wrapped})
    }

    /// The params that a tool's arguments stand for: an object, or the JSON text of one.
    fn params(&self, tool: &str, arguments: &Value) -> Result<Value, ClientError> {
        let arguments = match arguments {
            Value::String(text) => value_of_json(text.as_bytes())
                .map_err(|fault| ClientError::Invalid(format!("the arguments of {tool:?} are {fault}")))?,
            arguments => arguments.clone(),
        };
        if !self.wrapped.contains(tool) {
            return Ok(arguments);
        }
        Ok(arguments.get("value").cloned().unwrap_or(Value::Null))
    }
}

impl Client {
    /// The capabilities that may be called, or those of a namespace such as `org.example.*`, as tools of a language model:
    /// of each name its newest release.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn tools(
        &self,
        format: ToolFormat,
        namespace: Option<CapabilityPattern>,
    ) -> Result<ToolList, ClientError> {
        let pattern = namespace.unwrap_or(CapabilityPattern::Any);
        let offers = match self.query_all(&Query::new(pattern)).await {
            // PROTOCOL 7.1: nothing to list is 4002.
            Err(ClientError::Refused(error)) if error.code == Code::CAPABILITY_NOT_FOUND => Vec::new(),
            offers => offers?,
        };
        let mut list = ToolList::new(format);
        for offer in newest(offers) {
            let input = self.schema_json(offer.descriptor.input_schema.as_ref()).await?;
            let output = match list.shows_results() {
                true => self.schema_json(offer.descriptor.output_schema.as_ref()).await?,
                false => None,
            };
            list.add(&offer, input, output);
        }
        Ok(list)
    }

    /// Calls the capability that a tool of `tools` means. `arguments` are what the model gave: an object, or its JSON text.
    ///
    /// **Errors:** as [`call_typed`](Self::call_typed); a name that the model made up is a refusal with 4002, and nothing is
    /// sent. Give the model what the error says: it can mend its arguments by it.
    pub async fn call_tool(
        &self,
        tools: &ToolList,
        tool: &str,
        arguments: &Value,
        options: CallOptions,
    ) -> Result<Value, ClientError> {
        self.start_tool(tools, tool, arguments, options)?.result().await
    }

    /// As [`call_tool`](Self::call_tool), for its events.
    ///
    /// **Errors:** as [`start`](Self::start), and the refusal of a name that is none.
    pub fn start_tool(
        &self,
        tools: &ToolList,
        tool: &str,
        arguments: &Value,
        options: CallOptions,
    ) -> Result<TypedCall<Value>, ClientError> {
        let Some(capability) = tools.capability(tool) else {
            let message = format!("the tools have no {tool:?}");
            return Err(ClientError::Refused(WireError::new(Code::CAPABILITY_NOT_FOUND, message)));
        };
        self.start(capability, &tools.params(tool, arguments)?, options)
    }

    /// A schema's document as JSON; none where there is none, or none to be had.
    async fn schema_json(&self, source: Option<&SchemaSource>) -> Result<Option<Value>, ClientError> {
        let Some(SchemaSource::Ref(schema)) = source else { return Ok(None) };
        match self.document(&schema.hash, None).await {
            Ok(document) => Ok(serde_json::from_slice(&document).ok()),
            Err(ClientError::Refused(_) | ClientError::Answer(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Of each name its newest release, as its first provider declares it; `offers` are as a query lists them.
pub fn newest(offers: Vec<Offer>) -> Vec<Offer> {
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

fn tool(format: ToolFormat, name: &str, offer: &Offer, schema: Value, output: Option<Value>) -> Value {
    let descriptor = &offer.descriptor;
    let description = descriptor.description.clone().unwrap_or_else(|| offer.id().to_string());
    match format {
        ToolFormat::OpenAi => json!({
            "type": "function",
            "function": {"name": name, "description": description, "parameters": schema},
        }),
        ToolFormat::Anthropic => json!({"name": name, "description": description, "input_schema": schema}),
        ToolFormat::Mcp => {
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
