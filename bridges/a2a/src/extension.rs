//! What capd adds to A2A, as the protocol's extensions do: schemas and versions of skills, and the promise that a message runs
//! at most once.
//!
//! **Shape:** an entry of a card's `capabilities.extensions` with the URI [`URI`], whose `params` are
//! `{"agent": DID, "promise": {"key": ["caller", "messageId"], "seconds": uint}, "skills": {SKILL: {"input"?: {"sha256", "schema"},
//! "output"?: {"sha256", "schema"}, "idempotent": bool}}}`. A hash is over the schema in canonical form (RFC 8785).

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// The extension's name. It is also the key of its part of every `metadata`.
pub const URI: &str = "urn:capd:a2a:capabilities:1";

/// How long a message is remembered. **Units:** seconds.
pub const PROMISE_SECONDS: u64 = 24 * 3_600;

/// The schemas of one skill, as the extension has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schemas {
    /// What params fit.
    pub input: Option<Value>,
    /// What results fit.
    pub output: Option<Value>,
    /// Whether running a call twice does no harm, as its provider declares.
    pub is_idempotent: bool,
}

impl Schemas {
    /// As `params.skills` has it.
    pub fn json(&self) -> Value {
        let mut fields = Map::new();
        for (name, schema) in [("input", &self.input), ("output", &self.output)] {
            if let Some(schema) = schema {
                fields.insert(name.to_owned(), json!({"sha256": hash(schema), "schema": schema}));
            }
        }
        fields.insert("idempotent".to_owned(), self.is_idempotent.into());
        Value::Object(fields)
    }

    /// Reads an entry of `params.skills`.
    ///
    /// **Errors:** a schema that does not have its hash.
    pub fn read(entry: &Value) -> Result<Self, String> {
        let side = |name: &str| match entry.get(name).map(|side| (&side["schema"], &side["sha256"])) {
            None => Ok(None),
            Some((schema, sha256)) if *sha256 == hash(schema) => Ok(Some(schema.clone())),
            Some(_) => Err(format!("its {name} schema does not have the hash beside it")),
        };
        let is_idempotent = entry["idempotent"] == true;
        Ok(Self { input: side("input")?, output: side("output")?, is_idempotent })
    }
}

/// The `params` of the extension for an agent and its skills.
pub fn params(agent: &str, skills: Map<String, Value>) -> Value {
    json!({
        "agent": agent,
        "promise": {"key": ["caller", "messageId"], "seconds": PROMISE_SECONDS},
        "skills": skills,
    })
}

/// The SHA-256 of a document in canonical form, in hexadecimal digits.
pub fn hash(document: &Value) -> String {
    let canonical = serde_json_canonicalizer::to_vec(document).unwrap_or_default();
    Sha256::digest(canonical).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_come_back_and_a_changed_one_is_told() {
        let schemas = Schemas {
            input: Some(json!({"type": "object", "properties": {"a": {}}})),
            output: None,
            is_idempotent: true,
        };
        let mut entry = schemas.json();
        assert_eq!(Schemas::read(&entry), Ok(schemas));
        entry["input"]["schema"]["properties"] = json!({});
        assert!(Schemas::read(&entry).unwrap_err().contains("input"));
    }
}
