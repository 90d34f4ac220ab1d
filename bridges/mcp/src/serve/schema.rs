//! Prepares schemas for clients that resolve no references and want an object: a contract's schema in; what a tool shows,
//! out.

use capd_schema::subtype::{Compiled, Verdict, is_subtype};
use serde_json::{Map, Value, json};

/// The schema of a tool's arguments, which are always an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    /// What the tool shows.
    pub(super) schema: Value,
    /// Whether the capability's params stand in the member `value`, because they need not be an object.
    pub(super) is_wrapped: bool,
}

/// What arguments must fit so that the params of a capability with this input schema fit it.
pub(super) fn arguments(schema: Option<&Value>) -> Arguments {
    let Some(schema) = schema else {
        return Arguments { schema: json!({"type": "object"}), is_wrapped: false };
    };
    let inlined = inlined(schema);
    match as_object(&inlined) {
        Some(schema) => Arguments { schema, is_wrapped: false },
        None => Arguments { schema: wrapped(inlined), is_wrapped: true },
    }
}

/// The same schema with `"type": "object"` at its root; none where other values fit it.
pub(super) fn as_object(schema: &Value) -> Option<Value> {
    if schema["type"] == "object" {
        return Some(schema.clone());
    }
    let Value::Object(fields) = schema else { return None };
    if fields.contains_key("type") {
        return None;
    }
    let narrow = Compiled::compile(schema.to_string().as_bytes()).ok()?;
    let object = Compiled::compile(br#"{"type": "object"}"#).ok()?;
    (is_subtype(&narrow, &object) == Verdict::Proven).then(|| {
        let mut fields = fields.clone();
        fields.insert("type".to_owned(), "object".into());
        Value::Object(fields)
    })
}

/// The schema without references, where they can be replaced by what they name; a schema that contains itself keeps those
/// that lead back.
pub(super) fn inlined(document: &Value) -> Value {
    let is_draft7 = document["$schema"].as_str().is_some_and(|uri| uri.contains("draft-07"));
    let mut inliner = Inliner {
        document,
        is_draft7,
        open: Vec::new(),
        values_left: VALUES_MAX,
        keeps: false,
        gives_up: false,
    };
    let mut schema = inliner.schema(document);
    if inliner.gives_up {
        return document.clone();
    }
    if let Value::Object(fields) = &mut schema {
        for key in DEFINITIONS {
            match document.get(key).filter(|_| inliner.keeps) {
                Some(named) => drop(fields.insert(key.to_owned(), named.clone())),
                None => drop(fields.remove(key)),
            }
        }
    }
    schema
}

fn wrapped(mut schema: Value) -> Value {
    let dialect = schema.as_object_mut().and_then(|fields| fields.remove("$schema"));
    // What leads back into the document finds it one level lower.
    moved(&mut schema, "/properties/value");
    let mut outer = json!({"type": "object", "properties": {"value": schema}, "required": ["value"]});
    if let Some(dialect) = dialect {
        outer["$schema"] = dialect;
    }
    outer
}

fn moved(schema: &mut Value, below: &str) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(target) if key == "$ref" && target.starts_with('#') => {
                        *target = format!("#{below}{}", &target[1..]);
                    }
                    value => moved(value, below),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| moved(item, below)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

struct Inliner<'a> {
    document: &'a Value,
    is_draft7: bool,
    /// The references that are being replaced.
    open: Vec<&'a str>,
    values_left: usize,
    /// Whether a reference is kept.
    keeps: bool,
    /// Whether something cannot be told, so that nothing is replaced.
    gives_up: bool,
}

impl<'a> Inliner<'a> {
    fn schema(&mut self, schema: &'a Value) -> Value {
        self.values_left = self.values_left.saturating_sub(1);
        // A name of its own changes what references beneath it mean.
        let has_own_names =
            |fields: &Map<String, Value>| OWN_NAMES.iter().any(|key| fields.contains_key(*key));
        let Value::Object(fields) = schema else { return schema.clone() };
        self.gives_up |= self.values_left == 0 || has_own_names(fields);
        if self.gives_up {
            return Value::Null;
        }
        match fields.get("$ref").map(Value::as_str) {
            None => self.members(fields, &[]),
            Some(Some(target)) => self.reference(fields, target),
            Some(None) => {
                self.gives_up = true;
                Value::Null
            }
        }
    }

    fn reference(&mut self, fields: &'a Map<String, Value>, target: &'a str) -> Value {
        let named = target.strip_prefix('#').and_then(|pointer| self.document.pointer(pointer));
        let Some(named) = named else {
            self.gives_up = true;
            return Value::Null;
        };
        if target == "#" || self.open.contains(&target) {
            self.keeps = true;
            return self.members(fields, &[]);
        }
        self.open.push(target);
        let replaced = self.schema(named);
        self.open.pop();
        let skipped: Vec<&str> = ["$ref"].into_iter().chain(DEFINITIONS).collect();
        let beside = fields.keys().any(|key| !skipped.contains(&key.as_str()) && key != "$schema");
        if !beside {
            return match (replaced, fields.get("$schema")) {
                (Value::Object(mut replaced), Some(dialect)) => {
                    replaced.insert("$schema".to_owned(), dialect.clone());
                    Value::Object(replaced)
                }
                (replaced, _) => replaced,
            };
        }
        let Value::Object(mut outer) = self.members(fields, &skipped) else { return Value::Null };
        match replaced {
            // Draft-07 asserts nothing of what stands beside a reference; it is there for readers.
            Value::Object(replaced) if self.is_draft7 => {
                let kept = outer.into_iter().filter(|(key, _)| ANNOTATIONS.contains(&key.as_str()));
                Value::Object(replaced.into_iter().chain(kept).collect())
            }
            replaced => {
                let all = outer.entry("allOf").or_insert_with(|| json!([]));
                if let Value::Array(all) = all {
                    all.push(replaced);
                }
                Value::Object(outer)
            }
        }
    }

    /// The members of a schema, those that are schemas inlined.
    fn members(&mut self, fields: &'a Map<String, Value>, skipped: &[&str]) -> Value {
        let members = fields.iter().filter(|(key, _)| !skipped.contains(&key.as_str()));
        let members = members.map(|(key, value)| {
            let value = match (key.as_str(), value) {
                (key, value) if DEFINITIONS.contains(&key) => value.clone(),
                (key, Value::Object(named)) if NAMED.contains(&key) => {
                    named.iter().map(|(name, schema)| (name.clone(), self.schema(schema))).collect()
                }
                (key, Value::Array(schemas)) if LISTED.contains(&key) => {
                    schemas.iter().map(|schema| self.schema(schema)).collect()
                }
                (key, schema) if SINGLE.contains(&key) => self.schema(schema),
                (_, value) => value.clone(),
            };
            (key.clone(), value)
        });
        Value::Object(members.collect())
    }
}

/// Keywords whose members are schemas under names.
const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];
/// Keywords that are lists of schemas.
const LISTED: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords that are schemas.
const SINGLE: [&str; 12] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "contentSchema",
];
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
const OWN_NAMES: [&str; 6] =
    ["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"];
const ANNOTATIONS: [&str; 5] = ["title", "description", "default", "examples", "$comment"];
/// Most schemas that an inlined one has: references can name each other many times over.
const VALUES_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_by_what_they_name() {
        let document = json!({
            "type": "object",
            "properties": {
                "a": {"$ref": "#/definitions/a"},
                "list": {"type": "array", "items": {"$ref": "#/definitions/a"}},
                "$ref": {"type": "string"},
            },
            "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"enum": [1, {"$ref": "#/x"}]}},
        });
        let b = json!({"enum": [1, {"$ref": "#/x"}]});
        assert_eq!(
            inlined(&document),
            json!({
                "type": "object",
                "properties": {"a": b, "list": {"type": "array", "items": b}, "$ref": {"type": "string"}},
            })
        );
    }

    #[test]
    fn what_stands_beside_a_reference_counts_in_2020_12_and_annotates_in_draft_07() {
        let document = |dialect: &str| {
            json!({
                "$schema": dialect,
                "properties": {"a": {"$ref": "#/$defs/a", "description": "d", "minLength": 2}},
                "$defs": {"a": {"type": "string", "description": "e"}},
            })
        };
        let new = inlined(&document("https://json-schema.org/draft/2020-12/schema"));
        assert_eq!(
            new["properties"]["a"],
            json!({"description": "d", "minLength": 2, "allOf": [{"type": "string", "description": "e"}]})
        );
        let old = inlined(&document("http://json-schema.org/draft-07/schema#"));
        assert_eq!(old["properties"]["a"], json!({"type": "string", "description": "d"}));
    }

    #[test]
    fn a_schema_that_contains_itself_keeps_the_references_that_lead_back() {
        let document = json!({
            "$ref": "#/$defs/node",
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        });
        let inlined = inlined(&document);
        assert_eq!(inlined["type"], "object");
        assert_eq!(inlined["properties"]["next"], json!({"$ref": "#/$defs/node"}));
    }

    #[test]
    fn references_that_name_each_other_many_times_over_are_left_alone() {
        let mut defs = Map::new();
        defs.insert("d0".to_owned(), json!({"type": "string"}));
        for level in 1..40 {
            let below = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            defs.insert(format!("d{level}"), json!({"properties": {"a": below, "b": below}}));
        }
        let document = json!({"$ref": "#/$defs/d39", "$defs": defs});
        assert_eq!(inlined(&document), document);
    }

    #[test]
    fn arguments_are_always_an_object() {
        assert_eq!(arguments(None).schema, json!({"type": "object"}));
        let text = arguments(Some(&json!({"type": "string"})));
        assert!(text.is_wrapped && text.schema["properties"]["value"]["type"] == "string");
        let either =
            json!({"oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}]});
        let either = arguments(Some(&either));
        assert!(!either.is_wrapped);
        assert_eq!(either.schema["type"], "object");
    }

    #[test]
    fn a_wrapped_schema_that_contains_itself_still_leads_to_itself() {
        let list = json!({
            "$ref": "#/$defs/list",
            "$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}},
        });
        let wrapped = arguments(Some(&list));
        assert!(wrapped.is_wrapped);
        let target = wrapped.schema["properties"]["value"]["items"]["$ref"].as_str().unwrap().to_owned();
        let named = wrapped.schema.pointer(target.strip_prefix('#').unwrap()).unwrap();
        assert_eq!(named["type"], "array");
        Compiled::compile(wrapped.schema.to_string().as_bytes()).unwrap();
    }
}
