use capd_proto::cbor::json::from_json;
use capd_proto::cbor::{self, Writer};
use serde_json::{Value, json};

use super::index::Index;
use super::node::{Cbor, Document};
use super::steps::Steps;
use super::*;

fn cbor(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    from_json(value, &mut bytes);
    cbor::check(&bytes).unwrap();
    bytes
}

fn compiled(schema: &Value) -> Validator {
    Validator::compile(schema.to_string().as_bytes()).unwrap()
}

/// The violations of raw CBOR as `path keyword: message`.
fn raw(schema: &Value, payload: &[u8]) -> Vec<String> {
    cbor::check(payload).unwrap();
    let violations = match compiled(schema).validate(payload, Side::Request) {
        Ok(()) => Vec::new(),
        Err(violations) => violations,
    };
    violations.iter().map(|v| format!("{} {}: {}", v.path, v.keyword, v.message)).collect()
}

fn violations(schema: &Value, payload: &Value) -> Vec<String> {
    raw(schema, &cbor(payload))
}

fn fits(schema: &Value, payload: &[u8]) -> bool {
    raw(schema, payload).is_empty()
}

#[test]
fn the_representation_keeps_the_validating_crate_s_contract() {
    let payload = cbor(&jsonschema::json::conformance::document());
    let mut index = Index::default();
    index.record(&payload).unwrap();
    let document = Document::within(index.values(&payload), Steps::current());
    jsonschema::json::conformance::assert_conformance::<Cbor>(&document.root());
}

#[test]
fn each_keyword_says_where_and_what_without_quoting_the_payload() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "minLength": 3, "maxLength": 5 },
            "units": { "enum": ["metric", "imperial"] },
            "days": { "type": "integer", "minimum": 1, "maximum": 14 },
            "stations": { "type": "array", "maxItems": 2, "items": {
                "type": "object", "required": ["id"], "additionalProperties": false,
                "properties": { "id": { "type": ["string", "null"] } } } },
            "fixed": { "const": 7 },
            "code": { "pattern": "^[a-z]+$" },
            "mail": { "format": "email" },
            "odd": { "not": { "multipleOf": 2 } },
            "set": { "uniqueItems": true, "minItems": 1 },
            "any": { "anyOf": [{ "type": "integer" }, { "type": "object", "required": ["x"] }] },
            "one": { "oneOf": [{ "type": "integer" }, { "minimum": 3 }] },
            "names": { "propertyNames": { "maxLength": 1 } },
            "never": false
        },
        "required": ["city", "a/b~c"]
    });
    let payload = json!({
        "units": "SECRET", "days": 99, "stations": [{ "id": 5 }, { "ID": "SECRET" }, {}], "fixed": 8, "code": "SECRET",
        "mail": "SECRET", "odd": 4, "set": ["SECRET", "SECRET"], "any": {}, "one": 5, "names": { "ab": "SECRET" },
        "never": "SECRET"
    });
    let mut found = violations(&schema, &payload);
    found.sort();
    assert_eq!(
        found,
        [
            "/any anyOf: fits none of the schemas of `anyOf`; closest is number 1: /any must be an integer",
            "/a~1b~0c required: is required and missing",
            "/city required: is required and missing",
            "/code pattern: must match the pattern \"^[a-z]+$\"",
            "/days maximum: must be at most 14",
            "/fixed const: must be 7",
            "/mail format: must be of the format \"email\"",
            "/names propertyNames: has a property whose name must have at most 1 characters",
            "/never falseSchema: nothing fits here",
            "/odd not: must not fit the schema of `not`",
            "/one oneOf: fits more than one of the schemas of `oneOf`",
            "/set uniqueItems: must have no two equal items",
            "/stations maxItems: must have at most 2 items",
            "/stations/0/id type: must be null or a string",
            "/stations/1/ID additionalProperties: is not a declared property",
            "/stations/1/id required: is required and missing",
            "/stations/2/id required: is required and missing",
            "/units enum: must be one of [\"metric\",\"imperial\"]",
        ]
    );
    assert_eq!(violations(&json!({ "type": "object" }), &json!([])), ["/ type: must be an object"]);
}

#[test]
fn a_byte_string_is_checked_as_its_base64url_text() {
    let mut payload = Vec::new();
    Writer::new(&mut payload).bytes(&[0xff, 0xfe, 0xfd, 0xfc]);
    assert!(fits(&json!({ "const": "__79_A" }), &payload));
    assert!(fits(&json!({ "type": "string", "minLength": 6, "maxLength": 6 }), &payload));
    assert!(!fits(&json!({ "type": "array" }), &payload));
}

#[test]
fn text_and_containers_of_indefinite_length_are_read_alike() {
    // {_ "a": (_ "x", "yz"), "b": [_ 1]}
    let payload = b"\xbf\x61a\x7f\x61x\x62yz\xff\x61b\x9f\x01\xff\xff";
    assert!(fits(&json!({ "const": { "a": "xyz", "b": [1] } }), payload));
    let chunked_key = b"\xa1\x7f\x61x\x61y\xff\x01";
    assert!(fits(&json!({ "required": ["xy"], "properties": { "xy": { "const": 1 } } }), chunked_key));
}

#[test]
fn what_json_does_not_know_is_a_violation_at_its_path() {
    let any = json!(true);
    for (payload, path, message) in [
        (&b"\xa1\x61a\x1b\xff\xff\xff\xff\xff\xff\xff\xff"[..], "", ""),
        (&b"\xa1\x61a\x3b\xff\xff\xff\xff\xff\xff\xff\xff"[..], "/a", "integer beyond 64 bits"),
        (&b"\x82\x01\xf9\x7e\x00"[..], "/1", "not finite"),
        (&b"\x81\xf9\x7c\x00"[..], "/0", "not finite"),
        (&b"\xa1\x61a\xc0\x60"[..], "/a", "tag"),
        (&b"\xa1\x61a\xa1\x01\x02"[..], "/a", "key that is not text"),
        (&b"\xf7"[..], "/", "simple value"),
    ] {
        let found = raw(&any, payload);
        if message.is_empty() {
            assert_eq!(found, Vec::<String>::new());
        } else {
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(&format!("{path} type: is not JSON: ")), "{found:?}");
            assert!(found[0].contains(message), "{found:?}");
        }
    }
}

#[test]
fn null_params_are_an_empty_object_under_an_object_schema_only() {
    let null = cbor(&Value::Null);
    assert!(fits(&json!({ "type": "object" }), &null));
    assert_eq!(
        raw(&json!({ "type": "object", "required": ["a"] }), &null),
        ["/a required: is required and missing"]
    );
    assert!(fits(&json!({ "$ref": "#/$defs/x", "$defs": { "x": { "type": ["object", "string"] } } }), &null));
    assert!(fits(&json!({ "type": ["object", "null"], "maxProperties": 0 }), &null));
    assert_eq!(raw(&json!({ "type": "string" }), &null), ["/ type: must be a string"]);
    let object = compiled(&json!({ "type": "object" }));
    assert!(object.validate(&null, Side::Response).is_err());
}

#[test]
fn numbers_compare_by_value_and_exactly() {
    let float = |value: f64| {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).float(value);
        bytes
    };
    assert!(fits(&json!({ "const": 1 }), &float(1.0)));
    assert!(fits(&json!({ "type": "integer" }), &float(3.0)));
    assert!(!fits(&json!({ "type": "integer" }), &float(3.5)));
    assert!(fits(&json!({ "const": 1.0 }), &cbor(&json!(1))));
    assert!(fits(&json!({ "const": u64::MAX }), &cbor(&json!(u64::MAX))));
    assert!(!fits(&json!({ "const": u64::MAX }), &float(u64::MAX as f64)));
    assert!(fits(&json!({ "const": i64::MIN }), &cbor(&json!(i64::MIN))));
    assert!(!fits(
        &json!({ "maximum": 9_007_199_254_740_992_u64 }),
        &cbor(&json!(9_007_199_254_740_993_u64))
    ));
    assert!(!fits(&json!({ "enum": [1] }), &cbor(&json!(true))));
}

#[test]
fn equal_items_are_found_in_small_and_large_arrays() {
    let unique = json!({ "uniqueItems": true });
    for count in [2_usize, 16, 17, 500] {
        let mut items: Vec<Value> = (0..count).map(|n| json!({ "n": n, "t": [n, "x"] })).collect();
        assert!(fits(&unique, &cbor(&json!(items))), "{count}");
        items[0] = json!({ "t": [(count - 1) as f64, "x"], "n": count - 1 });
        assert!(!fits(&unique, &cbor(&json!(items))), "{count}");
    }
    let mut zeros = vec![json!(0)];
    zeros.extend((1..20).map(|n| json!(n)));
    let mut bytes = vec![0x95];
    zeros.iter().for_each(|zero| from_json(zero, &mut bytes));
    Writer::new(&mut bytes).float(-0.0);
    assert!(!fits(&unique, &bytes));
}

#[test]
fn members_are_found_in_small_and_large_objects_in_any_order() {
    for count in [1_usize, 8, 9, 300] {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).map(count as u64);
        for n in (0..count).rev() {
            Writer::new(&mut bytes).text(&format!("k{n}")).array(1).map(1).text("inner").uint(n as u64);
        }
        for n in 0..count {
            let right = json!({ "required": [format!("k{n}")], "properties": { format!("k{n}"): { "const": [{ "inner": n }] } } });
            assert!(fits(&right, &bytes), "{n} of {count}");
        }
        assert_eq!(raw(&json!({ "required": ["k"] }), &bytes), ["/k required: is required and missing"]);
        let whole: Value = (0..count)
            .map(|n| (format!("k{n}"), json!([{ "inner": n }])))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert!(fits(&json!({ "const": whole }), &bytes));
    }
}

#[test]
fn at_most_64_violations_are_told_and_the_work_for_them_is_bounded() {
    let schema = json!({ "items": { "anyOf": [{ "type": "string" }, { "type": "object" }] } });
    let payload = json!((0..60_000).collect::<Vec<_>>());
    let found = violations(&schema, &payload);
    assert_eq!(found.len(), 64);
    assert_eq!(found[63].split(' ').next(), Some("/63"));
    let long = "k".repeat(4 * 1024 * 1024);
    let payload = json!({ long: (0..60_000).collect::<Vec<_>>() });
    let found = violations(&json!({ "additionalProperties": { "items": { "type": "null" } } }), &payload);
    assert!((1..=64).contains(&found.len()));
    assert!(found.iter().all(|violation| violation.len() < 2_000));
    let many: Vec<String> = (0..500).map(|n| format!("r{n}")).collect();
    assert_eq!(violations(&json!({ "required": many }), &json!({})).len(), 64);
    let undeclared: serde_json::Map<String, Value> =
        many.iter().map(|name| (name.clone(), json!(1))).collect();
    assert_eq!(
        violations(
            &json!({ "properties": { "x": {} }, "additionalProperties": false }),
            &Value::Object(undeclared)
        )
        .len(),
        64
    );
    let wide = json!({ "enum": (0..60_000).collect::<Vec<_>>().iter().step_by(2).collect::<Vec<_>>() });
    assert!(violations(&wide, &json!("x"))[0].len() < 700);
}

#[test]
fn names_that_are_known_leave_room_for_what_is_told_of_others() {
    let closed = json!({
        "type": "object", "properties": { "a": {} }, "required": ["a"], "additionalProperties": false
    });
    let mut items = vec![json!({ "a": 1 }); 5_000];
    items.push(json!({ "a": 1, "b": 2 }));
    let told = violations(&json!({ "items": closed }), &json!(items));
    assert_eq!(told, ["/5000/b additionalProperties: is not a declared property"]);

    let patterns = json!({ "^x": { "type": "integer" }, "^..": { "minimum": 0 } });
    let schema = json!({ "patternProperties": patterns, "additionalProperties": false });
    let mut dictionary: serde_json::Map<String, Value> =
        (0..5_000).map(|n| (format!("x{n}"), json!(n))).collect();
    dictionary.insert("z".into(), json!(1));
    let told = violations(&schema, &Value::Object(dictionary));
    assert_eq!(told, ["/z additionalProperties: is not a declared property"]);
}

#[test]
fn names_that_are_unknown_are_told_up_to_64_however_many_there_are() {
    let names: serde_json::Map<String, Value> = (0..20_000).map(|n| (format!("n{n}"), json!(1))).collect();
    for (schema, keyword) in [
        (json!({ "properties": { "a": true }, "additionalProperties": false }), "additionalProperties"),
        (
            json!({ "patternProperties": { "^a": true }, "additionalProperties": false }),
            "additionalProperties",
        ),
        (json!({ "properties": { "a": true }, "unevaluatedProperties": false }), "unevaluatedProperties"),
    ] {
        let told = violations(&schema, &Value::Object(names.clone()));
        assert_eq!(told.len(), 64, "{schema}");
        assert!(told.iter().all(|told| told.contains(keyword)), "{schema}: {told:?}");
    }
    // What is missing is told of no object whose names were not all seen.
    let schema =
        json!({ "properties": { "a": true, "zz": true }, "required": ["zz"], "additionalProperties": false });
    let mut with_zz = names;
    with_zz.insert("zz".into(), json!(1));
    let told = violations(&schema, &Value::Object(with_zz));
    assert!(told.len() == 64 && told.iter().all(|told| !told.contains("missing")), "{told:?}");
}

#[test]
fn a_member_that_was_not_seen_to_its_end_is_not_told_as_a_violation() {
    let known: serde_json::Map<String, Value> = (0..200).map(|n| (format!("k{n:03}"), json!(true))).collect();
    let whole = json!({
        "type": "object", "properties": known, "required": ["k199"], "additionalProperties": false
    });
    let schema = json!({ "properties": { "a": true }, "unevaluatedProperties": whole });
    let told = violations(&schema, &json!({ "ok": known, "wrong": 1 }));
    assert!(!told.is_empty() && told.iter().all(|told| !told.starts_with("/ok")), "{told:?}");
}

#[test]
fn a_list_of_long_violations_ends_early() {
    let name = |n: usize| format!("{n:03}{}", "k".repeat(900));
    let payload: serde_json::Map<String, Value> = (0..64).map(|n| (name(n), json!("x"))).collect();
    let told = violations(&json!({ "additionalProperties": { "type": "integer" } }), &Value::Object(payload));
    assert!((8..64).contains(&told.len()), "{}", told.len());
}

#[test]
fn formats_are_asserted_uuid_under_both_drafts() {
    for draft in ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"] {
        for (format, good, bad) in [
            ("uuid", "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2eb8aa08-aa98-11ea-b4aa73b441d16380"),
            ("email", "a@b.example", "a"),
            ("uri", "https://a.example/b", "/b"),
            ("uri-reference", "/b", "\\\\b"),
            ("date-time", "2026-01-01T00:00:00Z", "2026-01-01"),
        ] {
            let schema = json!({ "$schema": draft, "format": format });
            assert!(fits(&schema, &cbor(&json!(good))), "{draft} {format}");
            assert!(!fits(&schema, &cbor(&json!(bad))), "{draft} {format}");
            assert!(fits(&schema, &cbor(&json!(7))), "{draft} {format}");
        }
    }
}

#[test]
fn a_document_that_cannot_be_enforced_is_refused_with_its_place() {
    let refused = |document: &str| Validator::compile(document.as_bytes()).expect_err(document).to_string();
    for (document, parts) in [
        ("{\n\"type\": object}", &["not JSON, line 2", "draft-07 or 2020-12"][..]),
        (r#"{"properties": {"a": {"type": "strng"}}}"#, &["at /properties/a/type"]),
        (r#"{"minLength": -1}"#, &["at /minLength"]),
        (
            r#"{"$ref": "http://127.0.0.1:9/x.json"}"#,
            &["http://127.0.0.1:9/x.json", "references inside the document"],
        ),
        (r#"{"$ref": "file:///etc/passwd"}"#, &["references inside the document"]),
        (r##"{"$ref": "#/$defs/none"}"##, &["/$defs/none", "references inside the document"]),
        (r#"{"$schema": "http://json-schema.org/draft-04/schema#"}"#, &["draft-04", "draft-07", "2020-12"]),
        (r#"{"$schema": 7}"#, &["$schema is 7"]),
        (r#"{"properties": {"a": {"pattern": "(?=x)"}}}"#, &["/properties/a/pattern"]),
        (r#"{"pattern": "(a{1000}){1000}"}"#, &["/pattern"]),
        ("3", &["at /"]),
    ] {
        let message = refused(document);
        for part in parts {
            assert!(message.contains(part), "{document}: {message:?} does not say {part:?}");
        }
    }
    assert!(refused(&" ".repeat(300_000)).contains("at most 262144 bytes"));
    let deep = format!("{}{}{}", r#"{"not":"#.repeat(110), "true", "}".repeat(110));
    assert!(refused(&deep).contains("levels of nesting; accepted: at most 100"));
    let patterns =
        json!({ "allOf": (0..300).map(|n| json!({ "pattern": format!("a{n}") })).collect::<Vec<_>>() });
    assert!(refused(&patterns.to_string()).contains("patterns; accepted: at most 256"));
}

#[test]
fn the_patterns_of_a_document_share_the_bound_on_their_size() {
    let with = |count: usize, pattern: &str| {
        let patterns = (0..count).map(|n| json!({ "pattern": format!("{pattern}{n}$") }));
        json!({ "anyOf": patterns.collect::<Vec<_>>() }).to_string()
    };
    let ordinary = r"^[a-z][a-z0-9_.-]{0,31}-\d+";
    Validator::compile(with(256, ordinary).as_bytes()).expect("as many as there may be, of an ordinary size");
    let large = r"^(\p{L}|\p{N}){1,6}";
    for count in [1, 4] {
        Validator::compile(with(count, large).as_bytes()).expect("few may be large");
    }
    let message = Validator::compile(with(250, large).as_bytes()).expect_err("many may not").to_string();
    assert!(message.contains("/anyOf/0/pattern"), "{message}");
    assert!(message.contains("too large beside the other patterns"), "{message}");
}

#[test]
fn references_that_lead_back_end() {
    let list = json!({
        "type": "object", "required": ["v"],
        "properties": { "v": { "type": "integer" }, "next": { "$ref": "#" } }
    });
    assert_eq!(
        violations(&list, &json!({ "v": 1, "next": { "v": 2, "next": { "v": "x" } } })),
        ["/next/next/v type: must be an integer"]
    );
}

/// A schema of `count` definitions, each reaching the next by `hop` and the last leading back one payload level down.
fn circle(count: usize, hop: impl Fn(Value) -> Value) -> Value {
    let mut definitions = serde_json::Map::new();
    for n in 0..count {
        let next = if n + 1 < count {
            json!({ "$ref": format!("#/$defs/d{}", n + 1) })
        } else {
            json!({ "type": ["array", "integer"], "items": { "$ref": "#/$defs/d0" } })
        };
        definitions.insert(format!("d{n}"), hop(next));
    }
    json!({ "$defs": definitions, "$ref": "#/$defs/d0" })
}

#[test]
fn the_deepest_walks_taken_stay_on_their_stack() {
    let nested = |height: usize, leaf: Value| (0..height).fold(leaf, |inner, _| json!([inner]));
    let hops: [fn(Value) -> Value; 5] = [
        |next| json!({ "allOf": [next] }),
        |next| json!({ "anyOf": [false, next] }),
        |next| json!({ "oneOf": [next, false] }),
        |next| json!({ "not": { "not": next } }),
        |next| json!({ "if": true, "then": next, "unevaluatedItems": {} }),
    ];
    // On the stack of a worker thread: with the most levels that run on it, and far above.
    for (count, height) in [(80, 1), (160, 0), (300, 60)] {
        for (which, hop) in hops.iter().enumerate() {
            let schema = circle(if which == 4 { count.min(40) } else { count }, hop);
            let walk = move || {
                let validator = compiled(&schema);
                let _ = validator.validate(&cbor(&nested(height, json!(1))), Side::Request);
                let _ = validator.validate(&cbor(&nested(height, json!("x"))), Side::Request);
            };
            std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(walk).unwrap().join().unwrap();
        }
    }
}

#[test]
fn a_walk_that_no_stack_could_hold_is_refused() {
    let schema = circle(400, |next| json!({ "allOf": [next], "properties": { "a": {}, "b": {}, "c": {} } }));
    let payload = (0..63).fold(json!(1), |inner, _| json!([inner]));
    let refused = ["/ $ref: is nested too deeply for a schema of this size"];
    assert_eq!(violations(&schema, &payload), refused);
    // Also where a table of shapes would have told in little.
    let members: serde_json::Map<_, _> = (0..2_100).map(|n| (format!("p{n}"), json!({}))).collect();
    assert_eq!(violations(&json!({ "properties": members, "items": { "$ref": "#" } }), &payload), refused);
}

#[test]
fn a_schema_whose_visits_double_with_each_definition_is_refused() {
    let hops: [fn(Value) -> Value; 5] = [
        |next| json!({ "allOf": [next, next] }),
        |next| json!({ "anyOf": [next, next] }),
        |next| json!({ "if": next, "then": next }),
        |next| json!({ "$ref": next["$ref"], "not": next }),
        |next| json!({ "dependentSchemas": { "a": next, "b": next } }),
    ];
    for hop in hops {
        for leaf in [json!({ "type": "integer" }), json!({ "items": { "$ref": "#/$defs/d0" } })] {
            let mut definitions = serde_json::Map::new();
            for n in 0..20 {
                definitions.insert(format!("d{n}"), hop(json!({ "$ref": format!("#/$defs/d{}", n + 1) })));
            }
            definitions.insert("d20".into(), leaf);
            let schema = json!({ "$defs": definitions, "properties": { "x": { "$ref": "#/$defs/d0" } } });
            let error = Validator::compile(schema.to_string().as_bytes()).unwrap_err().to_string();
            assert!(error.contains("schemas for one value"), "{error}");
        }
    }
}

#[test]
fn a_walk_whose_visits_double_with_each_payload_level_ends() {
    let tree = json!({
        "type": "array",
        "anyOf": [{ "items": { "$ref": "#" } }, { "items": { "$ref": "#" }, "minItems": 1 }]
    });
    let payload = (0..63).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(violations(&tree, &payload), ["/ schema: does not fit, in more ways than can be listed"]);
}

#[test]
fn a_walk_of_too_many_steps_ends_with_a_violation() {
    let options: Vec<Value> = (0..2_000).map(|n| json!({ "const": [n] })).collect();
    let payload = json!((0..4_000).map(|n| json!([n + 2_000])).collect::<Vec<_>>());
    assert_eq!(violations(&json!({ "items": { "not": { "anyOf": options } } }), &payload), [TOO_MANY_STEPS]);
}

const TOO_MANY_STEPS: &str = "/ $ref: takes more than 10000000 steps to check with this schema, or so many for its size; \
                              accepted: a smaller payload, or a simpler schema";

#[test]
fn validators_work_from_many_threads_at_once() {
    let validator =
        compiled(&json!({ "type": "object", "required": ["n"], "properties": { "n": { "minimum": 10 } } }));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let validator = &validator;
            scope.spawn(move || {
                for n in 0..200 {
                    let verdict = validator.validate(&cbor(&json!({ "n": n + thread })), Side::Request);
                    assert_eq!(verdict.is_ok(), n + thread >= 10);
                }
            });
        }
    });
}

mod artifacts {
    use capd_proto::message::{ContentHash, HashAlg};

    fn sha_256(document: &[u8]) -> ContentHash {
        ContentHash::of(HashAlg::Sha256, document)
    }

    use super::*;

    #[test]
    fn a_document_is_found_by_its_hash_and_by_its_uri() {
        let artifacts = Artifacts::default();
        let declared = artifacts.declare(&b"{}"[..]).unwrap();
        assert_eq!(
            declared.hash().to_string(),
            "sha-256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
        assert_eq!(artifacts.find(declared.hash()).unwrap().document().as_ref(), b"{}");
        let imported = artifacts.import("https://a.example/x.json", &b"true"[..]).unwrap();
        assert_eq!(artifacts.find_uri("https://a.example/x.json").unwrap().hash(), imported.hash());
        assert!(artifacts.find_uri("https://a.example/y.json").is_none());
        let missing = sha_256(b"other");
        assert_eq!(artifacts.need(&missing).unwrap_err(), ArtifactError::Missing(missing));
    }

    #[test]
    fn bytes_that_are_not_the_hash_s_are_5002() {
        let artifacts = Artifacts::default();
        let hash = sha_256(b"{}");
        let error = artifacts.insert(hash, &b"{ }"[..], Keep::Cached).unwrap_err();
        assert_eq!(error, ArtifactError::Mismatch(hash));
        assert_eq!(error.code(), capd_proto::code::Code::UNAVAILABLE);
        assert!(artifacts.find(&hash).is_none());
        let long = ContentHash::of(HashAlg::Sha512, b"{}");
        assert_eq!(long.alg().as_str(), "sha-512");
        assert!(artifacts.insert(long, &b"{}"[..], Keep::Cached).is_ok());
        let large = vec![b' '; 300_000];
        let error = artifacts.insert(sha_256(&large), large, Keep::Cached).unwrap_err();
        assert_eq!(error, ArtifactError::TooLarge { bytes: 300_000 });
    }

    #[test]
    fn the_longest_unused_of_peers_documents_goes_first_and_ours_stay() {
        let artifacts = Artifacts::new(1_000, 3);
        let cached = |text: &'static str| {
            artifacts.insert(sha_256(text.as_bytes()), text.as_bytes(), Keep::Cached).map(|a| *a.hash())
        };
        let own = *artifacts.declare(&b"1"[..]).unwrap().hash();
        let (two, three) = (cached("2").unwrap(), cached("3").unwrap());
        assert!(artifacts.find(&two).is_some());
        let four = cached("4").unwrap();
        assert!(artifacts.find(&three).is_none());
        assert!([own, two, four].iter().all(|hash| artifacts.find(hash).is_some()));
        artifacts.declare(&b"2"[..]).unwrap();
        artifacts.declare(&b"4"[..]).unwrap();
        let error = cached("5").unwrap_err();
        assert!(matches!(error, ArtifactError::Full { count: 3, .. }), "{error}");
        let small = Artifacts::new(10, 100);
        assert!(matches!(small.declare(vec![b' '; 11]), Err(ArtifactError::Full { .. })));
    }

    #[test]
    fn a_document_is_compiled_once_and_its_refusal_is_kept() {
        let artifacts = Artifacts::default();
        let good = artifacts.declare(&br#"{"type":"object"}"#[..]).unwrap();
        let first: *const Validator = good.validator().unwrap();
        let again = artifacts.find(good.hash()).unwrap();
        assert!(std::ptr::eq(first, again.validator().unwrap()));
        let bad = artifacts.declare(&br#"{"type":"objct"}"#[..]).unwrap();
        let error = bad.validator().unwrap_err();
        assert!(error.to_string().contains("at /type"), "{error}");
        assert_eq!(error.code(), capd_proto::code::Code::UNSUPPORTED_SCHEMA);
        assert_eq!(bad.validator().unwrap_err(), error);
    }
}
