//! Tests that each question of the `jsonschema` crate costs steps in proportion to its answer.

use std::hint::black_box;

use capd_proto::cbor::json::from_json;
use jsonschema::json::{Array, Json as _, Node as _, Object};
use serde_json::{Map, Value, json};

use super::index::Index;
use super::node::{Cbor, Document, Ended, Node};
use super::steps::{Match, Steps, Tolls};
use super::validator::Validator;

const MANY: u64 = 1 << 40;

fn charged(payload: &Value, tolls: Tolls, ask: impl Fn(Node<'_>)) -> u64 {
    let mut bytes = Vec::new();
    from_json(payload, &mut bytes);
    let mut index = Index::default();
    index.record(&bytes).unwrap();
    let document = Document::within(index.values(&bytes), Steps::new(MANY, tolls));
    document.walk(ask).unwrap_or_else(|_| panic!("there are enough"));
    MANY - document.steps().left()
}

/// An object of names of three bytes, none of which is kept.
fn object(count: usize) -> Value {
    (0..count).map(|n| (format!("{n:03x}"), json!(0))).collect::<Map<_, _>>().into()
}

fn list(count: usize) -> Value {
    (0..count).map(|n| json!(n)).collect()
}

fn text(count: usize) -> Value {
    json!("é".repeat(count))
}

#[test]
fn whatever_is_asked_is_charged_by_the_size_of_what_it_takes() {
    type Question = (&'static str, fn(usize) -> Value, fn(Node<'_>, &Value));
    let questions: [Question; 12] = [
        ("elements", list, |node, _| assert!(node.as_array().unwrap().elements().count() > 0)),
        ("members", object, |node, _| assert!(node.as_object().unwrap().members().count() > 0)),
        ("a member that is not there", object, |node, _| {
            assert!(node.as_object().unwrap().get(&Cbor::prepare_key("zzz")).is_none());
        }),
        ("looks at names", object, |node, _| {
            assert!(node.as_object().unwrap().members().all(|(name, _)| name.as_ref() != "zzz"));
        }),
        ("names as values", object, |node, _| {
            for (name, _) in node.as_object().unwrap().members() {
                Cbor::with_string_node(&mut (), name.as_ref(), |name| {
                    assert_eq!(name.string_length(), Some(3))
                });
            }
        }),
        ("equal lists", list, |node, value| assert!(node.equals_value(value))),
        ("equal objects", object, |node, value| assert!(node.equals_value(value))),
        ("equal texts", text, |node, value| assert!(node.equals_value(value))),
        ("unlike items", list, |node, _| assert!(node.as_array().unwrap().is_unique())),
        ("the length of a text", text, |node, _| assert!(node.string_length() > Some(0))),
        ("a text", text, |node, _| assert!(node.as_string().is_some_and(|text| !text.is_empty()))),
        ("a copy", list, |node, value| assert_eq!(*node.to_value(), *value)),
    ];
    for (what, payload, ask) in questions {
        let [few, many] = [40, 4_000].map(|count| {
            let payload = payload(count);
            charged(&payload, Tolls::default(), |node| ask(node, &payload))
        });
        assert!(few > 0 && many > 40 * few && many > 4_000 / 64, "{what}: {few} and {many}");
    }
}

#[test]
fn a_look_at_one_value_is_charged() {
    type Question = (&'static str, fn(Node<'_>));
    let questions: [Question; 9] = [
        ("a type", |node| _ = black_box(node.json_type())),
        ("an object", |node| _ = black_box(node.as_object().is_some())),
        ("an array", |node| _ = black_box(node.as_array().is_some())),
        ("a number", |node| _ = black_box(node.as_number())),
        ("a boolean", |node| _ = black_box(node.as_boolean())),
        ("null", |node| _ = black_box(node.is_null())),
        ("a string", |node| _ = black_box(node.is_string())),
        ("who it is", |node| _ = black_box(node.identity())),
        ("an error", |node| _ = black_box(node.lazy_value())),
    ];
    for (what, ask) in questions {
        assert!(charged(&json!(1), Tolls::default(), ask) > 0, "{what}");
    }
}

#[test]
fn what_a_document_makes_the_crate_do_is_charged_with_each_value() {
    let tolls = Tolls {
        value: 1_000,
        identity: 1_000,
        number: 1_000,
        string: Match { once: 1_000, per_byte: 10 },
        name: Match { once: 1_000, per_byte: 10 },
        flags: 1_000,
        circles: false,
    };
    let least = |payload: &Value, steps: u64, ask: fn(Node<'_>)| {
        let charged = charged(payload, tolls, ask);
        assert!((steps..2 * steps).contains(&charged), "{charged}");
    };
    least(&json!([0, 0, 0]), 3_000, |node| _ = black_box(node.as_array().unwrap().elements().count()));
    least(&json!({ "a": 0 }), 1_000, |node| _ = black_box(node.as_object().unwrap().members().count()));
    least(&json!({ "a": 0 }), 1_000, |node| {
        _ = black_box(node.as_object().unwrap().get(&Cbor::prepare_key("a")))
    });
    least(&json!({ "a": 0 }), 2_000, |node| {
        node.as_object().unwrap().members().for_each(|(name, _)| assert_eq!(name.as_ref(), "a"));
    });
    least(&json!("a"), 1_000, |node| _ = black_box(node.identity()));
    least(&json!(1.5), 1_000, |node| _ = black_box(node.as_number()));
    least(&json!("x".repeat(1_000)), 11_000, |node| _ = black_box(node.as_string()));
    // More of a number that is farther from those it is divided by.
    least(&json!(1.5e300), 1_080, |node| _ = black_box(node.as_number()));
}

#[test]
fn flags_of_items_are_charged_for_each_schema_that_goes_through_them() {
    let value = json!(vec![0; 1_000]);
    let mut payload = Vec::new();
    from_json(&value, &mut payload);
    let [few, many] = [40, 80].map(|branches| {
        let branches = vec![json!({ "type": "array" }); branches];
        let schema = json!({ "anyOf": branches, "unevaluatedItems": { "type": "integer" } });
        let validator = Validator::compile(schema.to_string().as_bytes()).unwrap();
        // Of a payload, and of a value of a schema that is held against another.
        [validator.steps(&payload), validator.judge(&value, MANY).1]
    });
    for (few, many) in few.into_iter().zip(many) {
        assert!(many - few > 40 * 1_000 / 8, "{few} and {many}");
    }
}

#[test]
fn a_walk_that_has_ended_sees_nothing_any_more() {
    let payload = json!({ "list": [1, 2], "text": "é", "number": 7, "true": true });
    let mut bytes = Vec::new();
    from_json(&payload, &mut bytes);
    let mut index = Index::default();
    index.record(&bytes).unwrap();
    let steps = Steps::new(1_000, Tolls::default());
    let document = Document::within(index.values(&bytes), steps);
    let ended = document.walk(|node| {
        let object = node.as_object().unwrap();
        let mut members = object.members();
        let (name, _) = members.next().unwrap();
        let values =
            ["list", "text", "number", "true"].map(|name| object.get(&Cbor::prepare_key(name)).unwrap());
        let list = values[0].as_array().unwrap();
        let mut elements = list.elements();
        assert!(elements.next().is_some() && node.identity().is_some());
        while document.steps().take(1) {}
        assert!(members.next().is_none() && elements.next().is_none() && name.as_ref().is_empty());
        assert_eq!((Array::len(&list), Object::len(&object)), (0, 0));
        assert!(object.get(&Cbor::prepare_key("text")).is_none());
        for value in values {
            assert!(value.is_null() && value.as_array().is_none() && value.as_string().is_none());
            assert!(
                value.as_number().is_none() && value.as_boolean().is_none() && value.identity().is_none()
            );
            assert!(value.string_length().is_none() && *value.to_value() == Value::Null);
        }
    });
    assert!(matches!(ended, Err(Ended::Steps)) && document.steps().left() == 0);
}

#[test]
fn names_that_become_values_are_charged_to_the_walk_that_gives_them() {
    let payload = object(1_000);
    let mut bytes = Vec::new();
    from_json(&payload, &mut bytes);
    let mut index = Index::default();
    index.record(&bytes).unwrap();
    let steps = Steps::new(60_000, Tolls::default());
    let document = Document::within(index.values(&bytes), steps);
    // A hundred looks at each name are more than there are steps, though few of them at any one.
    let ended = document.walk(|node| {
        for (name, _) in node.as_object().unwrap().members() {
            Cbor::with_string_node(&mut (), name.as_ref(), |name| {
                (0..100).for_each(|_| _ = black_box(name.is_null()))
            });
        }
    });
    assert!(ended.is_err());
}
