//! Tests that a shape accepts everything that its schema accepts, against the validator.

use capd_proto::cbor::json::from_json;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::merge::{Fuel, settled, settled_document};
use super::super::model::{Additional, Document, Node, Shape};
use super::super::read;
use crate::schema::validator::{Side, Validator};

/// Bytes that are drawn from; none are left at the end, and zero is drawn from there on.
struct Draw<'b>(&'b [u8]);

const TYPES: [&str; 7] = ["object", "string", "integer", "number", "array", "null", "boolean"];
const KEYS: [&str; 3] = ["a", "b", "c"];

impl Draw<'_> {
    fn below(&mut self, limit: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % limit
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth > 2 { 5 } else { 9 }) {
            0 => Value::Null,
            1 => true.into(),
            2 => json!(self.below(3)),
            3 => json!(self.below(5) as f64 / 2.0),
            4 => KEYS[self.below(3)].into(),
            5 => (0..self.below(3)).map(|_| self.value(depth + 1)).collect(),
            _ => Value::Object(
                (0..self.below(4)).map(|_| (KEYS[self.below(3)].to_owned(), self.value(depth + 1))).collect(),
            ),
        }
    }

    fn schemas(&mut self, depth: usize) -> Value {
        (0..=self.below(3)).map(|_| self.schema(depth + 1)).collect()
    }

    fn schema(&mut self, depth: usize) -> Value {
        let mut schema = Map::new();
        if depth > 5 {
            return true.into();
        }
        for _ in 0..=self.below(3) {
            let (keyword, value) = match self.below(13) {
                0 => ("type", json!(TYPES[self.below(7)])),
                1 => ("type", json!(["null", TYPES[self.below(5)]])),
                2 => ("enum", (0..4).map(|_| self.value(2)).collect()),
                3 => ("const", self.value(2)),
                4 => ("required", json!([KEYS[self.below(3)]])),
                5 => (
                    "additionalProperties",
                    if self.below(2) == 0 { false.into() } else { self.schema(depth + 1) },
                ),
                6 => ("items", self.schema(depth + 1)),
                7 => ("anyOf", self.schemas(depth)),
                8 => ("oneOf", self.schemas(depth)),
                9 => ("allOf", self.schemas(depth)),
                10 => ("not", self.schema(depth + 1)),
                11 if schema.is_empty() => {
                    return json!({ "$ref": format!("#/definitions/{}", KEYS[self.below(3)]) });
                }
                _ => {
                    let members =
                        (0..=self.below(3)).map(|_| (KEYS[self.below(3)].to_owned(), self.schema(depth + 1)));
                    ("properties", Value::Object(members.collect()))
                }
            };
            if matches!(keyword, "properties" | "required" | "additionalProperties") && self.below(4) != 0 {
                schema.insert("type".to_owned(), "object".into());
            }
            schema.insert(keyword.to_owned(), value);
        }
        schema.into()
    }
}

/// Whether a value has a shape. Where `fuel` is given, parts that all hold are brought together first.
fn fits(document: &Document, node: &Node, value: &Value, fuel: &mut Option<Fuel>) -> bool {
    let node = match fuel {
        Some(fuel) => settled(document, node, fuel),
        None => std::borrow::Cow::Borrowed(node),
    };
    match (&node.shape, value) {
        (Shape::Any | Shape::Unsaid(_), _) => true,
        (Shape::Null, Value::Null) | (Shape::Boolean, Value::Bool(_)) | (Shape::String, Value::String(_)) => {
            true
        }
        (Shape::Number, Value::Number(_)) => true,
        (Shape::Integer(_), Value::Number(number)) => number.as_f64().unwrap().fract() == 0.0,
        (Shape::Literals(values), value) => values.contains(value),
        (Shape::Array(items), Value::Array(values)) => {
            values.iter().all(|value| fits(document, items, value, fuel))
        }
        (Shape::Object(object), Value::Object(members)) => {
            let has_required = object
                .properties
                .iter()
                .all(|(name, property)| !property.is_required || members.contains_key(name));
            has_required
                && members.iter().all(|(name, value)| {
                    match (object.properties.get(name), &object.additional) {
                        (Some(property), _) => fits(document, &property.node, value, fuel),
                        (None, Additional::Open) => true,
                        (None, Additional::Closed) => false,
                        (None, Additional::Of(node)) => fits(document, node, value, fuel),
                    }
                })
        }
        (Shape::Union(members), value) => members.iter().any(|member| fits(document, member, value, fuel)),
        (Shape::All(parts), value) => parts.iter().all(|part| fits(document, part, value, fuel)),
        (Shape::Named(at), value) => fits(document, &document.definitions[*at].node, value, fuel),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_shape_takes_every_value_that_its_schema_takes(bytes in prop::collection::vec(any::<u8>(), 0..160), values in prop::collection::vec(any::<u8>(), 160)) {
        let mut draw = Draw(&bytes);
        let mut schema = draw.schema(0);
        let definitions: Map<_, _> = KEYS.iter().map(|key| ((*key).to_owned(), draw.schema(2))).collect();
        if let Value::Object(members) = &mut schema {
            members.insert("definitions".to_owned(), definitions.into());
        }
        let text = super::Schema::read(schema.to_string().as_bytes()).unwrap().json;
        // Some references lead only in a circle, and compile to nothing.
        let Ok(validator) = Validator::compile(text.as_bytes()) else { return Ok(()) };
        let schema = serde_json::from_str(&text).unwrap();
        let document = read::document(&schema);
        let together = settled_document(&document, &mut Fuel::default());
        let mut draw = Draw(&values);
        for _ in 0..12 {
            // 1 and 1.0 are one value, which the canonical form writes in one way.
            let value = super::Schema::read(draw.value(0).to_string().as_bytes()).unwrap().json;
            let value = serde_json::from_str(&value).unwrap();
            let mut payload = Vec::new();
            from_json(&value, &mut payload);
            if validator.validate(&payload, Side::Response).is_err() {
                continue;
            }
            prop_assert!(fits(&document, &document.definitions[0].node, &value, &mut None), "{} takes {}\n{:#?}", schema, value, document);
            let root = &together.definitions[0].node;
            prop_assert!(fits(&together, root, &value, &mut Some(Fuel::default())), "together: {} takes {}\n{:#?}", schema, value, together);
        }
    }
}
