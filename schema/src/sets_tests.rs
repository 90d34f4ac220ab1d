use serde_json::{Map, Value, json};

use super::validator::UNEVALUATED_NAMES_MAX;
use super::*;
use capd_proto::cbor::json::from_json;

fn told(schema: &Value, payload: &Value) -> Vec<String> {
    let mut bytes = Vec::new();
    from_json(payload, &mut bytes);
    let validator = Validator::compile(schema.to_string().as_bytes()).unwrap();
    let found = validator.validate(&bytes, Side::Request).err().unwrap_or_default();
    found.iter().map(|v| format!("{} {}: {}", v.path, v.keyword, v.message)).collect()
}

/// An object of so many short names.
fn names(count: usize) -> Map<String, Value> {
    (0..count).map(|n| (format!("{n:x}"), json!(1))).collect()
}

/// `schema` with each kind of branch beside `unevaluatedProperties`, all of which take and know every name.
fn with_branches() -> Vec<Value> {
    let known = json!({ "additionalProperties": { "type": "integer" } });
    vec![
        json!({ "anyOf": [known], "unevaluatedProperties": false }),
        json!({ "oneOf": [known, false], "unevaluatedProperties": false }),
        json!({ "if": known, "then": true, "unevaluatedProperties": false }),
        json!({ "dependentSchemas": { "0": known }, "unevaluatedProperties": false }),
        json!({ "$id": "https://a.example/c", "$ref": "#/$defs/d", "$defs": { "d": { "anyOf": [known] } },
                "unevaluatedProperties": false }),
        json!({ "$id": "https://a.example/d", "$dynamicRef": "#d", "unevaluatedProperties": false,
                "$defs": { "d": { "$dynamicAnchor": "d", "additionalProperties": true } } }),
        json!({ "$ref": "https://a.example/b", "$defs": { "b": {
                "$id": "https://a.example/b", "anyOf": [known], "unevaluatedProperties": false } } }),
        json!({ "allOf": [{ "anyOf": [known], "unevaluatedProperties": { "type": "null" } }] }),
    ]
}

#[test]
fn as_many_names_as_the_limit_are_collected_beside_any_branch() {
    for schema in with_branches() {
        let names = names(UNEVALUATED_NAMES_MAX);
        assert!(told(&schema, &Value::Object(names.clone())).is_empty(), "{schema}");
        let list = json!({ "items": schema, "minItems": 1 });
        assert!(told(&list, &json!(vec![Value::Object(names); 40])).is_empty(), "{schema}");
    }
}

#[test]
fn an_object_of_too_many_names_is_refused_where_it_stands() {
    for schema in with_branches() {
        let told = told(
            &json!({ "properties": { "a/b": { "items": schema } } }),
            &json!({ "a/b": [{}, names(20_000)] }),
        );
        let [told] = &told[..] else { panic!("{schema}: {told:?}") };
        assert!(told.starts_with("/a~1b/1 unevaluatedProperties: has 20000 properties"), "{told}");
        // A schema that leads elsewhere may share its room.
        let ends = [896, 1_792].map(|accepted| format!("know; accepted: at most {accepted} here"));
        assert!(ends.iter().any(|end| told.ends_with(end.as_str())), "{told}");
    }
}

#[test]
fn it_is_refused_whatever_else_a_schema_would_make_of_it() {
    let collected = json!({ "anyOf": [{ "additionalProperties": true }], "unevaluatedProperties": false });
    for schema in [
        json!({ "not": collected }),
        json!({ "anyOf": [collected, true] }),
        json!({ "if": collected, "then": true }),
    ] {
        let told = told(&schema, &Value::Object(names(20_000)));
        assert!(
            told.len() == 1 && told[0].starts_with("/ unevaluatedProperties: has 20000"),
            "{schema}: {told:?}"
        );
    }
}

#[test]
fn an_object_from_which_nothing_is_collected_may_have_any_number_of_names() {
    let known = json!({ "patternProperties": { "^[0-9a-f]+$": { "type": "integer" } } });
    let collected = json!({ "anyOf": [known], "unevaluatedProperties": false });
    let wide = Value::Object(names(20_000));
    for (schema, payload) in [
        (
            json!({ "$ref": "#/$defs/d", "$defs": { "d": known }, "unevaluatedProperties": false }),
            wide.clone(),
        ),
        (
            json!({ "allOf": [known], "properties": { "x": true }, "unevaluatedProperties": false }),
            wide.clone(),
        ),
        (
            json!({ "properties": { "few": collected, "many": { "minProperties": 3, "properties": { "1": true } } } }),
            json!({ "few": names(3), "many": wide }),
        ),
        (
            json!({ "anyOf": [{ "additionalProperties": { "minProperties": 3 } }], "unevaluatedProperties": false }),
            json!({ "many": wide }),
        ),
    ] {
        assert_eq!(told(&schema, &payload), Vec::<String>::new(), "{schema}");
    }
}

#[test]
fn names_that_a_payload_pays_for_are_collected_however_many_they_are() {
    let schema = json!({ "anyOf": [{ "additionalProperties": true }], "unevaluatedProperties": false });
    let large: Map<String, Value> = (0..20_000).map(|n| (format!("{n}"), json!("x".repeat(100)))).collect();
    assert!(told(&schema, &Value::Object(large)).is_empty());
}

#[test]
fn other_faults_are_told_beside_what_is_collected() {
    let schema = json!({
        "properties": { "0": { "type": "string" } },
        "anyOf": [{ "additionalProperties": true }], "unevaluatedProperties": false
    });
    let told = told(&schema, &Value::Object(names(UNEVALUATED_NAMES_MAX)));
    assert_eq!(told, ["/0 type: must be a string"]);
}

#[test]
fn a_payload_may_have_the_name_that_schemas_are_marked_with() {
    let mark = "\u{0}unevaluatedProperties";
    let open = json!({ "anyOf": [true], "unevaluatedProperties": { "type": "integer" } });
    assert!(told(&open, &json!({ mark: 1 })).is_empty());
    let closed = json!({ "anyOf": [true], "unevaluatedProperties": false });
    assert_eq!(told(&closed, &json!({ mark: 1 })).len(), 1);
    let asked = json!({ "required": [mark], "properties": { mark: { "type": "integer" } } });
    assert!(told(&asked, &json!({ mark: 1 })).is_empty());
    assert_eq!(told(&asked, &json!({})).len(), 1);
}

#[test]
fn a_property_named_as_the_keyword_is_no_keyword() {
    let schema = json!({
        "properties": { "unevaluatedProperties": { "type": "integer" }, "anyOf": true },
        "additionalProperties": false,
        "const": { "unevaluatedProperties": 1, "anyOf": 1 }
    });
    assert!(told(&schema, &json!({ "unevaluatedProperties": 1, "anyOf": 1 })).is_empty());
    assert_eq!(told(&schema, &json!({ "dependentRequired": 1 })).len(), 2);
}

#[test]
fn items_are_collected_in_as_many_schemas_as_they_pay_for() {
    let within = |levels: usize| {
        let leaf = json!({ "anyOf": [{ "prefixItems": [true] }], "unevaluatedItems": {} });
        (1..levels).fold(leaf, |inner, _| json!({ "anyOf": [inner], "unevaluatedItems": {} }))
    };
    let wide = json!(vec![1; 60_000]);
    assert!(told(&within(1), &wide).is_empty());
    assert!(told(&within(10), &json!(vec![1; 1_000])).is_empty());
    let told = told(&json!({ "properties": { "a": within(10) } }), &json!({ "a": wide }));
    assert!(told.len() == 1 && told[0].starts_with("/a unevaluatedItems: has 60000 items"), "{told:?}");
}

#[test]
fn items_that_no_schema_describes_are_counted_as_far_as_they_are_listed() {
    let schema = json!({ "prefixItems": [true], "unevaluatedItems": false });
    assert_eq!(
        told(&schema, &json!([1, [2, 3], "x"])),
        ["/ unevaluatedItems: has 2 items that no schema describes"]
    );
    let told = told(&schema, &json!(vec![1; 5_000]));
    assert!(told.len() == 1 && told[0].contains(" or more items that no schema describes"), "{told:?}");
}

#[test]
fn a_large_tree_that_two_schemas_look_at_on_each_level_is_checked_to_its_end() {
    let schema = json!({
        "anyOf": [{ "properties": { "v": { "type": "integer" }, "kids": { "items": { "$ref": "#" } } } }],
        "unevaluatedProperties": false
    });
    let tree =
        |leaf: Value| (0..6).fold(leaf, |inner, _| json!({ "v": 1, "kids": [inner, inner, inner, inner] }));
    assert!(told(&schema, &tree(json!({ "v": 1 }))).is_empty());
    assert!(!told(&schema, &tree(json!({ "v": "x" }))).is_empty());
    let mut one_wrong = tree(json!({ "v": 1 }));
    one_wrong["kids"][3]["kids"][3]["kids"][0]["v"] = json!("x");
    let told = told(&schema, &one_wrong);
    assert!(!told.iter().any(|told| told.contains("steps to check")), "{told:?}");
}
