//! Reads the tools that a server lists, and the skills of an agent alike: a list in; tools that can be capabilities, and
//! what is wrong with the others, out.

use capd_schema::Profile;
use capd_schema::subtype::Compiled;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::kind::Kind;

/// A tool, as it is kept and compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name at the server.
    pub name: String,
    /// What it says that it does.
    pub description: Option<String>,
    /// What its arguments must fit.
    pub input: Value,
    /// What its structured results fit, where they are structured.
    pub output: Option<Value>,
    /// What its server says of it, which nobody believes.
    pub annotations: Value,
}

/// A tool that is not served, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Its name, as far as it has one.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// What a server lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Whose list it is.
    pub kind: &'static Kind,
    /// What can be served.
    pub tools: Vec<Tool>,
    /// What cannot, and hides nothing of the others.
    pub quarantined: Vec<Quarantined>,
}

impl Listed {
    /// A list of nothing.
    pub const fn new(kind: &'static Kind) -> Self {
        Self { kind, tools: Vec::new(), quarantined: Vec::new() }
    }

    /// Takes one more tool of the list.
    pub fn take(&mut self, entry: &Value) {
        let read = if self.tools.len() >= TOOLS_MAX {
            Err(format!("the {} lists more than {TOOLS_MAX} {}s", self.kind.peer, self.kind.item))
        } else {
            Tool::read(entry).and_then(|tool| self.fits(tool))
        };
        match read {
            Ok(tool) => self.tools.push(tool),
            Err(reason) => self.refuse(entry, reason),
        }
    }

    /// Quarantines a tool of the list.
    pub fn refuse(&mut self, entry: &Value, reason: String) {
        // A list without an end is no reason to remember it.
        if self.quarantined.len() < TOOLS_MAX {
            let unnamed = || format!("a {} without a name", self.kind.item);
            let name = entry["name"].as_str().map_or_else(unnamed, str::to_owned);
            self.quarantined.push(Quarantined { name, reason });
        }
    }

    fn fits(&self, tool: Tool) -> Result<Tool, String> {
        if self.tools.iter().any(|known| known.name == tool.name) {
            return Err(format!("another {} has the same name", self.kind.item));
        }
        let bytes_of = |tool: &Tool| tool.bytes(self.kind);
        let bytes: usize = self.tools.iter().map(bytes_of).sum();
        if bytes + bytes_of(&tool) > LIST_BYTES_MAX {
            return Err(format!(
                "the {0}s before it take up the {LIST_BYTES_MAX} bytes that all {0}s may have",
                self.kind.item
            ));
        }
        Ok(tool)
    }
}

impl Tool {
    /// Reads a tool of a list. **Errors:** why it cannot be a capability.
    pub fn read(entry: &Value) -> Result<Self, String> {
        let name = entry["name"].as_str().ok_or("its name is missing or no text")?;
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(format!("its name has {} bytes; accepted: 1 to {NAME_BYTES_MAX}", name.len()));
        }
        let description = match entry.get("description") {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if text.len() <= DESCRIPTION_BYTES_MAX => Some(text.clone()),
            Some(Value::String(text)) => {
                return Err(format!(
                    "its description has {} bytes; accepted: {DESCRIPTION_BYTES_MAX}",
                    text.len()
                ));
            }
            Some(_) => return Err("its description is no text".to_owned()),
        };
        let input = schema("inputSchema", entry.get("inputSchema").ok_or("its inputSchema is missing")?)?;
        let output = entry.get("outputSchema").filter(|schema| !schema.is_null());
        let output = output.map(|output| schema("outputSchema", output)).transpose()?;
        let annotations = entry.get("annotations").cloned().unwrap_or(Value::Null);
        if annotations.to_string().len() > DESCRIPTION_BYTES_MAX {
            return Err(format!("its annotations have more than {DESCRIPTION_BYTES_MAX} bytes"));
        }
        Ok(Self { name: name.to_owned(), description, input, output, annotations })
    }

    /// A tool of the lock file. **Errors:** it was not written by us.
    pub fn of_definition(definition: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(definition).map_err(|error| error.to_string())?;
        Self::read(&value)
    }

    /// The tool in canonical form (RFC 8785), which its hash is over.
    pub fn definition(&self) -> String {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), self.name.clone().into());
        fields.insert("inputSchema".to_owned(), self.input.clone());
        fields.extend(self.description.clone().map(|text| ("description".to_owned(), text.into())));
        fields.extend(self.output.clone().map(|schema| ("outputSchema".to_owned(), schema)));
        if !self.annotations.is_null() {
            fields.insert("annotations".to_owned(), self.annotations.clone());
        }
        let value = Value::Object(fields);
        serde_json_canonicalizer::to_string(&value).unwrap_or_else(|_| value.to_string())
    }

    /// The hash of its definition.
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(self.definition());
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{digits}")
    }

    /// The schema document that its results fit as a capability's.
    pub fn result_schema(&self, kind: &Kind) -> String {
        self.output.as_ref().map_or_else(|| kind.result_schema.to_owned(), Value::to_string)
    }

    fn bytes(&self, kind: &Kind) -> usize {
        self.definition().len() + if self.output.is_none() { kind.result_schema.len() } else { 0 }
    }
}

/// A schema that capd enforces, without the extensions that assert nothing. **Errors:** what it is not.
fn schema(field: &str, value: &Value) -> Result<Value, String> {
    if !value.is_object() {
        return Err(format!("its {field} is no object"));
    }
    let schema = without_extensions(value.clone());
    let document = schema.to_string();
    if document.len() > capd_schema::validator::SCHEMA_BYTES_MAX {
        let max = capd_schema::validator::SCHEMA_BYTES_MAX;
        return Err(format!("its {field} has {} bytes; accepted: {max}", document.len()));
    }
    Profile::Full.check(document.as_bytes()).map_err(|error| format!("its {field}: {error}"))?;
    Compiled::compile(document.as_bytes()).map_err(|error| format!("its {field}: {error}"))?;
    Ok(schema)
}

/// Takes out keywords that begin with `x-`: the extensions of servers, which no validator knows.
fn without_extensions(mut schema: Value) -> Value {
    super::words::each_schema(&mut schema, &mut |fields, _| fields.retain(|key, _| !key.starts_with("x-")));
    schema
}

/// Most tools of one server.
pub const TOOLS_MAX: usize = 1_000;
/// Bytes of all tools of one server together: what one declaration on the local link may hold, with room for the rest.
const LIST_BYTES_MAX: usize = 12 * 1024 * 1024;
const NAME_BYTES_MAX: usize = 256;
const DESCRIPTION_BYTES_MAX: usize = 64 * 1024;
