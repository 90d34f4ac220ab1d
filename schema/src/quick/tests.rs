use capd_proto::cbor::json::from_json;
use capd_proto::cbor::{self, Writer};
use jsonschema::Draft;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::validator::Validator;
use super::*;

fn cbor(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    from_json(value, &mut bytes);
    bytes
}

/// Whether raw CBOR is decided; what is must be what the `jsonschema` crate says.
fn decides_raw(schema: &Value, payload: &[u8]) -> bool {
    let draft = super::super::validator::draft(schema).unwrap();
    let decided = Quick::compile(schema, draft).is_some_and(|quick| quick.fits(payload));
    if decided {
        let validator = Validator::compile_any(schema.to_string().as_bytes()).unwrap();
        assert_eq!(validator.walk(payload), Ok(()), "{schema} {payload:02x?}");
    }
    decided
}

fn decides(schema: &Value, payload: &Value) -> bool {
    decides_raw(schema, &cbor(payload))
}

fn has_table(schema: &Value) -> bool {
    Quick::compile(schema, super::super::validator::draft(schema).unwrap()).is_some()
}

#[track_caller]
fn tells_apart(schema: Value, fit: &[Value], undecided: &[Value]) {
    fit.iter().for_each(|value| assert!(decides(&schema, value), "{schema} fits {value}"));
    undecided.iter().for_each(|value| assert!(!decides(&schema, value), "{schema} on {value}"));
}

#[test]
fn each_type_has_its_own_values() {
    let values = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(-1),
        json!(0.5),
        json!("a"),
        json!([]),
        json!({}),
    ];
    for (types, fit) in [
        (json!("null"), &[0][..]),
        (json!("boolean"), &[1, 2]),
        (json!("integer"), &[3, 4]),
        (json!("number"), &[3, 4, 5]),
        (json!("string"), &[6]),
        (json!("array"), &[7]),
        (json!("object"), &[8]),
        (json!(["integer", "null", "object"]), &[0, 3, 4, 8]),
    ] {
        let schema = json!({ "type": types });
        for (at, value) in values.iter().enumerate() {
            assert_eq!(decides(&schema, value), fit.contains(&at), "{schema} on {value}");
        }
    }
    values.iter().for_each(|value| {
        for any in
            [json!(true), json!({}), json!({ "title": "x", "default": 1 }), json!({ "minProperties": 0 })]
        {
            assert!(decides(&any, value), "{any} on {value}");
        }
    });
    assert!(!has_table(&json!(false)));
}

#[test]
fn bounds_hold_to_the_last_integer() {
    let (least, greatest) = (json!(i64::MIN), json!(u64::MAX));
    tells_apart(
        json!({ "minimum": -2, "maximum": 3 }),
        &[json!(-2), json!(3), json!("x")],
        &[json!(-3), json!(4), json!(0.5)],
    );
    tells_apart(
        json!({ "exclusiveMinimum": -2, "exclusiveMaximum": 3 }),
        &[json!(-1), json!(2)],
        &[json!(-2), json!(3)],
    );
    tells_apart(json!({ "minimum": 5, "exclusiveMinimum": 5 }), &[json!(6)], &[json!(5)]);
    tells_apart(json!({ "minimum": least, "maximum": greatest }), &[least.clone(), greatest.clone()], &[]);
    tells_apart(json!({ "exclusiveMinimum": least, "exclusiveMaximum": greatest }), &[], &[least, greatest]);
    // A bound that is no integer is held by nothing here.
    for keyword in ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"] {
        assert!(!has_table(&json!({ keyword: 1.5 })));
    }
    // As is a length that is none, which the `jsonschema` crate reads.
    assert!(!has_table(&json!({ "minLength": 2.0 })));
}

#[test]
fn lengths_are_counted_in_code_points() {
    let schema = json!({ "minLength": 2, "maxLength": 3 });
    let fit = ["ab", "abc", "éé", "日本語", "😀😀", "😀😀😀"].map(Value::from);
    tells_apart(schema, &fit, &["", "a", "abcd", "é", "日", "😀", "😀😀😀😀", "éééé"].map(Value::from));
    tells_apart(json!({ "minLength": 1 }), &[json!("a"), json!("😀"), json!(0)], &[json!("")]);
    tells_apart(json!({ "maxLength": 0 }), &[json!("")], &[json!("a")]);
    for chars in 0..20 {
        for char in ["a", "é", "日", "😀"] {
            let text = json!(char.repeat(chars));
            for bound in 0..20 {
                assert_eq!(decides(&json!({ "minLength": bound }), &text), chars >= bound, "{text} {bound}");
                assert_eq!(decides(&json!({ "maxLength": bound }), &text), chars <= bound, "{text} {bound}");
            }
        }
    }
}

#[test]
fn enumerations_are_of_texts_integers_and_simple_values() {
    let schema =
        json!({ "enum": ["b", "", "aa", -1, 18_446_744_073_709_551_615_u64, true, null, 1.5, 2.0, [1], {}] });
    let fit = [json!("b"), json!(""), json!("aa"), json!(-1), json!(u64::MAX), json!(true), json!(null)];
    // Some of these fit; none of them is compared.
    let undecided = [json!("a"), json!(1), json!(false), json!(1.5), json!(2), json!([1]), json!({})];
    tells_apart(schema, &fit, &undecided);
    tells_apart(json!({ "const": 1 }), &[json!(1)], &[json!(true), json!("1"), json!(1.0)]);
    tells_apart(json!({ "const": "é" }), &[json!("é")], &[json!("e")]);
    tells_apart(json!({ "enum": ["a", 1], "type": "integer" }), &[json!(1)], &[json!("a")]);
    tells_apart(json!({ "enum": [1, 5], "maximum": 4 }), &[json!(1)], &[json!(5)]);
    assert!(!has_table(&json!({ "enum": [1], "const": 1 })));
    let texts: Vec<_> = (0..1_000).map(|n| format!("{n}")).collect();
    tells_apart(json!({ "enum": texts }), &[json!("0"), json!("500"), json!("999")], &[json!("1000")]);
    assert!(has_table(&json!({ "enum": (0..32).collect::<Vec<_>>() })));
    assert!(!has_table(&json!({ "enum": (0..33).collect::<Vec<_>>() })));
}

#[test]
fn texts_are_one_where_each_byte_is() {
    let texts: Vec<String> = (0..20).map(|length| "abcdefghijklmnopqrst"[..length].to_owned()).collect();
    for text in &texts {
        for at in 0..text.len() {
            for byte in ["\0", "z"] {
                let mut other = text.clone();
                other.replace_range(at..=at, byte);
                assert!(
                    !Text::of(text).is(other.as_bytes()) && !Text::of(&other).is(text.as_bytes()),
                    "{other:?}"
                );
            }
        }
        let longer = format!("{text}\0");
        assert!(Text::of(text).is(text.as_bytes()) && !Text::of(text).is(longer.as_bytes()), "{text}");
        assert!(!Text::of(&longer).is(text.as_bytes()), "{text}");
    }
    for count in 0..texts.len() {
        let literals = json!({ "enum": texts[..count] });
        for (at, text) in texts.iter().enumerate() {
            assert_eq!(decides(&literals, &json!(text)), at < count, "{literals} on {text}");
        }
    }
}

#[test]
fn members_and_items_are_counted_and_held_against_their_schemas() {
    let object = json!({
        "properties": { "a": { "type": "integer" }, "bb": true, "never": false },
        "required": ["a", "other"], "additionalProperties": { "type": "string" }
    });
    let fit =
        [json!({ "a": 1, "other": "" }), json!({ "a": 1, "bb": [[]], "other": "x", "z": "y" }), json!([])];
    let undecided = [
        json!({}),
        json!({ "a": 1 }),
        json!({ "other": "" }),
        json!({ "a": "", "other": "" }),
        json!({ "a": 1, "other": 2 }),
        json!({ "a": 1, "other": "", "z": 3 }),
        json!({ "a": 1, "other": "", "never": "" }),
    ];
    tells_apart(object, &fit, &undecided);
    tells_apart(json!({ "additionalProperties": false }), &[json!({})], &[json!({ "": 0 })]);
    let counted = json!({ "minProperties": 1, "maxProperties": 2, "minItems": 1, "maxItems": 2 });
    let fit = [json!({ "a": 0 }), json!({ "a": 0, "b": 0 }), json!([0]), json!([0, 0]), json!(0)];
    tells_apart(counted, &fit, &[json!({}), json!({ "a": 0, "b": 0, "c": 0 }), json!([]), json!([0, 0, 0])]);
    tells_apart(
        json!({ "items": { "type": "null" } }),
        &[json!([]), json!([null, null])],
        &[json!([null, 0])],
    );
    tells_apart(json!({ "items": false }), &[json!([])], &[json!([0])]);
}

#[test]
fn as_many_names_are_required_as_there_are_bits() {
    let names = |count: usize| (0..count).map(|n| format!("{n}")).collect::<Vec<_>>();
    let object =
        |count: usize| Value::Object(names(count).into_iter().map(|name| (name, json!(0))).collect());
    let schema = json!({ "type": "object", "required": names(64) });
    tells_apart(schema, &[object(64), object(65)], &[object(63)]);
    assert!(!has_table(&json!({ "type": "object", "required": names(65) })));
}

#[test]
fn members_are_found_in_any_order() {
    let long = ["n".repeat(23), "n".repeat(24), "n".repeat(300)];
    let [short, longer, longest] = long.each_ref().map(String::as_str);
    let short_ones = ["", "a", "b", "aa", "ab", "zzz", "seven_b", "eight_by", "station_1", "station_2"];
    let names = [&short_ones[..], &[short, longer, longest]].concat();
    let properties: Map<_, _> =
        names.iter().enumerate().map(|(n, name)| (name.to_string(), json!({ "const": n }))).collect();
    let schema = json!({ "properties": properties, "required": names, "additionalProperties": false });
    for first in 0..names.len() {
        for step in [1, 5] {
            let mut payload = Vec::new();
            Writer::new(&mut payload).map(names.len() as u64);
            for n in (0..names.len()).map(|n| (first + n * step) % names.len()) {
                Writer::new(&mut payload).text(names[n]).uint(n as u64);
            }
            cbor::check(&payload).unwrap();
            assert!(decides_raw(&schema, &payload), "{first} {step}");
        }
    }
}

#[test]
fn what_is_not_json_is_not_decided_wherever_it_stands() {
    let float = |bits: f64| {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).float(bits);
        bytes
    };
    let mut not_json: Vec<Vec<u8>> = vec![
        vec![0xc0, 0x60],                            // a tag
        vec![0xf7],                                  // undefined
        vec![0xf0],                                  // another simple value
        vec![0xf8, 0x20],                            // the same, in two bytes
        vec![0x3b, 0x80, 0, 0, 0, 0, 0, 0, 0],       // below every i64
        vec![0xa1, 0x01, 0x02],                      // a key that is no text
        vec![0xa1, 0x41, b'a', 0x02],                // a key of bytes
        vec![0xc2, 0x49, 1, 0, 0, 0, 0, 0, 0, 0, 0], // a bignum
    ];
    not_json.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(float));
    for item in not_json {
        cbor::check(&item).unwrap();
        for (before, after) in [
            (&[][..], &[][..]),
            (&[0x82, 0x00], &[]),
            (&[0xa2, 0x60, 0x00, 0x61, b'a'], &[]),
            (&[0x82], &[0x00]),
        ] {
            let payload = [before, &item, after].concat();
            for schema in [
                json!(true),
                json!({ "properties": { "a": { "minLength": 0 } } }),
                json!({ "items": { "maxItems": 9 } }),
            ] {
                assert!(!decides_raw(&schema, &payload), "{schema} {payload:02x?}");
            }
        }
    }
}

#[test]
fn what_json_has_in_another_form_is_decided_where_no_schema_looks() {
    assert!(decides_raw(&json!(true), b"\x41a"));
    assert!(!decides_raw(&json!({ "type": "string" }), b"\x41a"));
    // Long and chunked ones are left alone.
    for payload in [
        &b"\x9f\xff"[..],
        b"\xbf\xff",
        b"\x7f\x61a\xff",
        b"\xa1\x7f\x61a\xff\x00",
        b"\x58\x18aaaaaaaaaaaaaaaaaaaaaaaa",
    ] {
        cbor::check(payload).unwrap();
        assert!(!decides_raw(&json!(true), payload), "{payload:02x?}");
    }
    assert!(decides_raw(&json!({ "const": "a" }), b"\x79\x00\x01a"));
    assert!(decides_raw(&json!({ "required": ["a"] }), b"\xb8\x01\x78\x01a\x00"));
}

#[test]
fn a_payload_ends_where_its_item_does() {
    let schemas = [
        json!(true),
        json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "items": { "minimum": 0 } } } }),
    ];
    let payload = cbor(
        &json!({ "a": "x".repeat(30), "b": [1, 300, 70_000, 5_000_000_000_u64], "cc": [0.5, null, {}, "y", -300] }),
    );
    for schema in schemas {
        assert!(decides_raw(&schema, &payload));
        let quick = Quick::compile(&schema, Draft::Draft202012).unwrap();
        for cut in 0..payload.len() {
            assert!(!quick.fits(&payload[..cut]), "{cut}");
        }
        assert!(!quick.fits(&[&payload[..], &[0x00]].concat()));
        for length in [0x9b, 0xbb, 0x7b] {
            assert!(!quick.fits(&[length, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00]));
        }
    }
}

#[test]
fn depth_ends_where_the_index_ends_it() {
    for schema in [json!(true), json!({ "items": { "$ref": "#" }, "type": ["array", "integer"] })] {
        let nested = |depth: usize| [vec![0x81; depth], vec![0x00]].concat();
        assert!(decides_raw(&schema, &nested(CBOR_DEPTH_MAX)));
        let quick = Quick::compile(&schema, Draft::Draft202012).unwrap();
        assert!(!quick.fits(&nested(CBOR_DEPTH_MAX + 1)));
        assert!(!quick.fits(&nested(1_000_000)));
    }
}

#[test]
fn references_lead_to_definitions() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/a", "$ref": "#/$defs/Tree",
        "$defs": {
            "Tree": { "type": "object", "required": ["size"], "additionalProperties": false, "properties": {
                "size": { "$ref": "#/$defs/Size", "description": "of it", "default": 1 },
                "parts": { "type": "array", "items": { "$ref": "#/$defs/Tree" } } } },
            "Size": { "$ref": "#/definitions/Count" }
        },
        "definitions": { "Count": { "type": "integer", "minimum": 0 } }
    });
    let fit = json!({ "size": 1, "parts": [{ "size": 2 }, { "size": 3, "parts": [] }] });
    tells_apart(
        schema,
        &[fit],
        &[json!({ "size": -1 }), json!({ "size": 1, "parts": [{ "size": 2, "parts": [{}] }] })],
    );
}

#[test]
fn what_is_beside_a_reference_is_read_as_the_draft_reads_it() {
    let schema = |draft: &str| {
        json!({
            "$schema": draft, "properties": { "a": { "$ref": "#/definitions/x", "minimum": 5 } },
            "definitions": { "x": { "type": "integer" } }
        })
    };
    let seven = schema("http://json-schema.org/draft-07/schema#");
    tells_apart(seven, &[json!({ "a": 1 })], &[json!({ "a": "" })]);
    // Two schemas for one value are not looked at.
    tells_apart(
        schema("https://json-schema.org/draft/2020-12/schema"),
        &[json!({})],
        &[json!({ "a": 1 }), json!({ "a": 5 })],
    );
}

#[test]
fn circles_and_long_ways_of_references_make_no_table() {
    let circle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } });
    assert!(!has_table(&circle));
    assert!(!has_table(&json!({ "$ref": "#" })));
    let chain = |length: usize| {
        let mut defs: Map<_, _> =
            (1..length).map(|n| (format!("{n}"), json!({ "$ref": format!("#/$defs/{}", n + 1) }))).collect();
        defs.insert(format!("{length}"), json!({ "type": "null" }));
        json!({ "$ref": "#/$defs/1", "$defs": defs })
    };
    assert!(decides(&chain(15), &json!(null)));
    assert!(!has_table(&chain(16)));
}

#[test]
fn references_that_may_start_elsewhere_are_not_followed() {
    for schema in [
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$id": "https://example.com/b", "type": "null" } } }),
        json!({ "type": "null", "$defs": { "a": { "$schema": "http://json-schema.org/draft-07/schema#" } } }),
        json!({ "$ref": "#a", "$defs": { "a": { "$anchor": "a", "type": "null" } } }),
        json!({ "$ref": "#/$defs/a~1b", "$defs": { "a/b": { "type": "null" } } }),
        json!({ "$ref": "#/$defs/a%62", "$defs": { "ab": { "type": "null" } } }),
        json!({ "$ref": "#/$defs/a/properties/b", "$defs": { "a": { "properties": { "b": { "type": "null" } } } } }),
        json!({ "$ref": "#/properties/a", "properties": { "a": { "type": "null" } } }),
    ] {
        assert!(!has_table(&schema), "{schema}");
    }
    // Such names of members are no keywords.
    let named =
        json!({ "properties": { "$id": { "type": "null" }, "$schema": true, "$ref": { "type": "null" } } });
    tells_apart(named, &[json!({ "$id": null, "$ref": null })], &[json!({ "$id": 0 }), json!({ "$ref": 0 })]);
}

#[test]
fn other_keywords_leave_their_schema_undecided() {
    let keywords = json!({
        "format": "uuid", "pattern": "a", "allOf": [true], "anyOf": [true], "oneOf": [true], "not": false, "if": true,
        "then": true, "else": true, "dependentRequired": {}, "dependentSchemas": {}, "dependencies": {},
        "contains": true, "minContains": 0, "maxContains": 9, "uniqueItems": false, "prefixItems": [true],
        "additionalItems": true, "unevaluatedItems": true, "unevaluatedProperties": true, "patternProperties": {},
        "propertyNames": true, "multipleOf": 1, "$dynamicRef": "#", "$dynamicAnchor": "a", "$recursiveRef": "#",
        "contentEncoding": "base64", "contentMediaType": "application/json", "x-unknown": 1, "$vocabulary": {}
    });
    for (keyword, value) in keywords.as_object().unwrap() {
        let schema = json!({ "type": ["string", "null"], keyword: value });
        assert!(!has_table(&schema), "{schema}");
        let optional = json!({ "type": "object", "properties": { "a": schema } });
        tells_apart(optional, &[json!({ "b": 1 })], &[json!({ "a": null })]);
        let required = json!({ "type": "object", "required": ["a"], "properties": { "a": schema } });
        assert!(!has_table(&required), "{required}");
        let far = json!({ "type": "object", "required": ["b"], "properties": { "b": { "$ref": "#/$defs/b" } }, "$defs": { "b": required } });
        assert!(!has_table(&far), "{far}");
    }
}

#[test]
fn a_large_document_has_a_table_of_bounded_size() {
    let properties = |count: usize| -> Map<_, _> {
        (0..count).map(|n| (format!("p{n}"), json!({ "type": "null" }))).collect()
    };
    let schema = |count: usize| json!({ "type": "object", "properties": properties(count) });
    assert_eq!(Quick::compile(&schema(100), Draft::Draft202012).unwrap().shapes.len(), 103);
    assert!(!has_table(&schema(5_000)));
    // Half of it has room.
    let partly = schema(3_000);
    assert!(Quick::compile(&partly, Draft::Draft202012).unwrap().shapes.len() <= 4_096);
    assert!(decides(&partly, &json!({})));
}

#[test]
fn what_is_decided_takes_fewer_steps_than_a_check_may_take() {
    let ends = |mut all: Value| {
        let more = json!({
            "minimum": 0, "maximum": 9, "exclusiveMinimum": -1, "exclusiveMaximum": 10, "minLength": 0, "maxLength": 9,
            "minItems": 0, "maxItems": 9, "items": { "$ref": "#" }, "minProperties": 0, "maxProperties": 9,
            "properties": { "a": { "$ref": "#/$defs/1" } }, "required": ["a"], "additionalProperties": { "$ref": "#" }
        });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let chain =
        (1..14).map(|n| (format!("{n}"), json!({ "$ref": format!("#/$defs/{}", n + 1), "title": "x" })));
    let schema = |end: Value| {
        let mut defs: Map<_, _> = chain.clone().collect();
        defs.insert("14".to_owned(), ends(end));
        json!({ "items": { "$ref": "#/$defs/1" }, "$defs": defs })
    };
    let mixed: Vec<_> = (1..32).map(|n| json!(n + 1_000_000)).chain([json!(7)]).collect();
    for (end, value) in [
        (json!({ "type": ["integer", "null"], "enum": mixed }), json!(7)),
        (json!({ "type": ["object", "integer"] }), json!({ "a": { "a": { "a": 7 } } })),
        (json!({ "type": ["string", "integer"] }), json!("a")),
    ] {
        let (schema, payload) = (schema(end), json!(vec![value; 1_000]));
        assert!(decides(&schema, &payload), "{schema}");
        let validator = Validator::compile(schema.to_string().as_bytes()).unwrap();
        let (fits, steps) = validator.judge(&payload, u64::MAX);
        // A check may take 1,000 for each value.
        assert!(fits == Some(true) && steps < 600 * 1_000, "{steps}");
    }
}

/// Choices out of bytes, so that a found case shrinks; none are left, and each is the first one.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, count: usize) -> usize {
        self.0.next().map_or(0, |byte| usize::from(*byte)) % count
    }

    fn of<T: Clone>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())].clone()
    }

    fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        all.iter().filter(|_| self.below(2) == 1).cloned().collect()
    }
}

const NAMES: [&str; 5] = ["a", "b", "cc", "é", ""];
const TEXTS: [&str; 7] = ["", "a", "b", "é", "日本", "abc", "😀a😀"];
const NAMED_TYPES: [&str; 7] = ["object", "array", "string", "integer", "null", "boolean", "number"];

fn integer_of(choices: &mut Choices<'_>) -> Value {
    let edge =
        [json!(0), json!(1), json!(2), json!(-1), json!(300), json!(-300), json!(i64::MIN), json!(u64::MAX)];
    choices.of(&edge)
}

fn literal_of(choices: &mut Choices<'_>) -> Value {
    match choices.below(4) {
        0 => json!(choices.of(&TEXTS)),
        1 => integer_of(choices),
        _ => choices.of(&[json!(null), json!(true), json!(false)]),
    }
}

/// A schema of what is decided.
fn schema_of(choices: &mut Choices<'_>, depth: usize) -> Value {
    let inner =
        |choices: &mut Choices<'_>| if depth == 0 { json!(true) } else { schema_of(choices, depth - 1) };
    let mut schema = Map::new();
    match choices.below(12) {
        0 => return json!(choices.below(8) > 0),
        1 => schema
            .insert("$ref".into(), choices.of(&[json!("#"), json!("#/$defs/x"), json!("#/definitions/y")])),
        2 => schema.insert("const".into(), literal_of(choices)),
        3 => schema.insert("enum".into(), (0..=choices.below(4)).map(|_| literal_of(choices)).collect()),
        4 => schema.insert("type".into(), json!(choices.some(&NAMED_TYPES[..6]))),
        _ => schema.insert("type".into(), json!(choices.of(&NAMED_TYPES))),
    };
    if choices.below(4) == 0 {
        schema.insert("description".into(), json!("x"));
    }
    if schema.contains_key("$ref") {
        return schema.into();
    }
    if schema.get("type").is_some_and(|types| *types == json!([])) {
        schema.remove("type");
    }
    let types = schema.get("type").cloned().unwrap_or_default();
    for (keyword, about) in [
        ("properties", "object"),
        ("properties", "object"),
        ("required", "object"),
        ("additionalProperties", "object"),
        ("minProperties", "object"),
        ("maxProperties", "object"),
        ("items", "array"),
        ("minItems", "array"),
        ("maxItems", "array"),
        ("minLength", "string"),
        ("maxLength", "string"),
        ("minimum", "integer"),
        ("maximum", "integer"),
        ("exclusiveMinimum", "integer"),
        ("exclusiveMaximum", "integer"),
    ] {
        let is_about = types == about || choices.below(8) == 1;
        if !is_about || choices.below(2) == 0 {
            continue;
        }
        let value = match keyword {
            "properties" => {
                choices.some(&NAMES).into_iter().map(|name| (name.to_owned(), inner(choices))).collect()
            }
            "required" => json!(choices.some(&NAMES)),
            "items" | "additionalProperties" => inner(choices),
            "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum" => integer_of(choices),
            keyword if keyword.starts_with("min") => json!(choices.below(2)),
            _ => json!(choices.below(4)),
        };
        schema.insert(keyword.into(), value);
    }
    schema.into()
}

/// A document of what is decided, and of anything else where `is_plain` is not asked for.
fn document_of(choices: &mut Choices<'_>, is_plain: bool) -> Value {
    let mut document = schema_of(choices, 3);
    if document.is_boolean() || document.get("$ref") == Some(&json!("#")) {
        document = json!({ "items": document });
    }
    let [x, y] = [0; 2].map(|_| schema_of(choices, 1));
    // No circle of bare references: the crate takes one for true.
    let x = if x.get("$ref").is_some() { json!({ "type": "array", "items": x }) } else { x };
    let y = if y.get("$ref").is_some() { json!({ "$ref": "#/$defs/x" }) } else { y };
    document["$defs"] = json!({ "x": x });
    document["definitions"] = json!({ "y": y });
    if choices.below(2) == 1 {
        document["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    }
    if !is_plain {
        disturb(choices, &mut document);
    }
    document
}

/// Adds keywords that are not decided, or are read otherwise beside others.
fn disturb(choices: &mut Choices<'_>, value: &mut Value) {
    let Value::Object(members) = value else { return };
    members.values_mut().for_each(|member| disturb(choices, member));
    if (members.contains_key("type") || members.contains_key("$ref")) && choices.below(3) == 0 {
        let (keyword, value) = choices.of(&[
            ("not", json!({ "type": "integer" })),
            ("pattern", json!("a")),
            ("multipleOf", json!(2)),
            ("uniqueItems", json!(true)),
            ("anyOf", json!([{ "minimum": 1 }, { "type": "string" }])),
            ("enum", json!([1.0, [], {}, "a", 0])),
            ("const", json!(1.0)),
            ("minimum", json!(0.5)),
            ("maxLength", json!(2.0)),
            ("propertyNames", json!({ "maxLength": 1 })),
            ("format", json!("uuid")),
            ("$ref", json!("#/$defs/x")),
            ("$ref", json!("#")),
            ("type", json!("integer")),
            ("unknown", json!(1)),
            ("contains", json!({ "type": "null" })),
            ("maximum", json!(1e300)),
            ("patternProperties", json!({ "a": false })),
            ("$comment", json!("x")),
        ]);
        members.insert(keyword.into(), value);
    }
}

/// A value that may well fit.
fn value_of(choices: &mut Choices<'_>, document: &Value, schema: &Value, depth: usize) -> Value {
    let inner = |choices: &mut Choices<'_>, schema: Option<&Value>| {
        if depth == 0 {
            json!(0)
        } else {
            value_of(choices, document, schema.unwrap_or(&json!(true)), depth - 1)
        }
    };
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = document.pointer(&reference[1..]).unwrap();
        return inner(choices, Some(target));
    }
    if let Some(literal) = schema.get("const") {
        return literal.clone();
    }
    if let Some(Value::Array(literals)) = schema.get("enum") {
        return choices.of(literals);
    }
    let named = match schema.get("type") {
        Some(Value::String(name)) => name.as_str(),
        Some(Value::Array(names)) => names[choices.below(names.len())].as_str().unwrap(),
        _ => choices.of(&NAMED_TYPES[..6]),
    };
    match named {
        "object" => {
            let properties = schema.get("properties");
            let mut names: Vec<&str> =
                schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            names.extend(choices.some(&NAMES));
            let member = |name: &str| {
                properties
                    .and_then(|properties| properties.get(name))
                    .or_else(|| schema.get("additionalProperties"))
            };
            names.retain(|name| member(name) != Some(&json!(false)));
            names.into_iter().map(|name| (name.to_owned(), inner(choices, member(name)))).collect()
        }
        "array" => (0..choices.below(4)).map(|_| inner(choices, schema.get("items"))).collect(),
        "string" => json!(choices.of(&TEXTS)),
        "integer" | "number" => {
            let near = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
                .iter()
                .find_map(|bound| schema[bound].as_i64());
            match (near, choices.below(4)) {
                (Some(bound), by @ 0..3) => json!(bound.saturating_add(by as i64 - 1)),
                _ => integer_of(choices),
            }
        }
        "boolean" => json!(choices.below(2) == 1),
        _ => Value::Null,
    }
}

/// Encodes with the members of an object from any one on.
fn encode(choices: &mut Choices<'_>, value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Array(items) => {
            Writer::new(out).array(items.len() as u64);
            items.iter().for_each(|item| encode(choices, item, out));
        }
        Value::Object(members) if !members.is_empty() => {
            Writer::new(out).map(members.len() as u64);
            let from = choices.below(members.len());
            for (name, member) in members.iter().cycle().skip(from).take(members.len()) {
                Writer::new(out).text(name);
                encode(choices, member, out);
            }
        }
        _ => from_json(value, out),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn of_plain_schemas_and_values_exactly_what_fits_is_decided(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut choices = Choices(bytes.iter());
        let document = document_of(&mut choices, true);
        let validator = Validator::compile_any(document.to_string().as_bytes()).unwrap();
        for _ in 0..4 {
            let mut payload = Vec::new();
            let value = value_of(&mut choices, &document, &document, 6);
            encode(&mut choices, &value, &mut payload);
            let fits = validator.walk(&payload).is_ok();
            prop_assert_eq!(decides_raw(&document, &payload), fits, "{} on {}", document, value);
        }
    }

    #[test]
    fn whatever_is_decided_fits(bytes in prop::collection::vec(any::<u8>(), 0..400), (at, to) in any::<(usize, u8)>()) {
        let mut choices = Choices(bytes.iter());
        let document = document_of(&mut choices, false);
        prop_assume!(Validator::compile_any(document.to_string().as_bytes()).is_ok());
        for _ in 0..4 {
            let mut payload = Vec::new();
            let value = value_of(&mut choices, &document, &document, 6);
            encode(&mut choices, &value, &mut payload);
            decides_raw(&document, &payload);
            let at = at % payload.len();
            payload[at] = to;
            if cbor::check(&payload).is_ok() {
                decides_raw(&document, &payload);
            }
        }
    }
}
