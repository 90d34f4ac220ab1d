//! The content blocks of a tool without an output schema, as a capability's result.
//!
//! Import declares them under one fixed schema; export knows that schema again and passes the blocks on as they are.

use capd_proto::message::{ContentHash, HashAlg, SchemaRef};
use serde_json::{Value, json};

/// The schema document of such a result, always the same bytes.
pub const SCHEMA: &str = include_str!("content.json");

/// Its hash.
pub fn hash() -> ContentHash {
    SchemaRef::inline(HashAlg::Sha256, SCHEMA.as_bytes()).hash
}

/// The texts of blocks, one after the other; other kinds of block are named.
pub fn text(blocks: &[Value]) -> String {
    let texts = blocks.iter().map(|block| match (block["type"].as_str(), block["text"].as_str()) {
        (Some("text"), Some(text)) => text.to_owned(),
        (kind, _) => format!("[{}]", kind.unwrap_or("a block without a type")),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A block of text.
pub fn block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[cfg(test)]
mod tests {
    use capd_schema::{Profile, Side, Validator};

    use super::*;

    #[test]
    fn the_schema_is_enforceable_and_takes_every_kind_of_block() {
        Profile::Full.check(SCHEMA.as_bytes()).unwrap();
        let validator = Validator::compile(SCHEMA.as_bytes()).unwrap();
        let blocks = json!({"content": [
            {"type": "text", "text": "a", "annotations": {"priority": 0.5}},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "a"}},
            {"type": "of a later revision"},
        ]});
        assert_eq!(validator.validate_json(&blocks, Side::Response), Ok(()));
        for wrong in [json!({}), json!({"content": {}}), json!({"content": ["a"]}), json!({"content": [{}]})]
        {
            assert!(validator.validate_json(&wrong, Side::Response).is_err(), "{wrong}");
        }
    }
}
