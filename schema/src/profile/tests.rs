use serde_json::json;

use super::*;
use crate::{Side, Validator};

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020_12: &str = "https://json-schema.org/draft/2020-12/schema";

fn problem(profile: Profile, schema: &Value) -> Option<String> {
    let document = schema.to_string();
    let compiled = Validator::compile_under(profile, document.as_bytes()).err();
    // What the look alone refuses, compiling refuses alike.
    if let Err(error) = profile.check(document.as_bytes()) {
        assert_eq!(compiled.as_ref(), Some(&error), "{schema}");
    }
    compiled.map(|error| error.to_string())
}

/// The schema is refused at `pointer`, or below it where it ends in a slash, with these words.
#[track_caller]
fn refused(profile: Profile, schema: &Value, pointer: &str, words: &str) {
    let Some(problem) = problem(profile, schema) else { panic!("{profile:?} takes {schema}") };
    let end = if pointer.ends_with('/') { "" } else { ": " };
    assert!(problem.starts_with(&format!("at {pointer}{end}")), "{problem}");
    assert!(problem.contains(words), "{problem}");
}

#[track_caller]
fn taken(profile: Profile, schema: &Value) {
    assert_eq!(problem(profile, schema), None, "{schema}");
}

fn of_draft(draft: &str, schema: &Value) -> Value {
    let mut schema = schema.clone();
    schema["$schema"] = draft.into();
    schema
}

/// A schema that uses `keyword` as it is meant.
fn example(keyword: &str) -> Value {
    let value = match keyword {
        "type" => json!("string"),
        "enum" | "examples" => json!([1, "a"]),
        "const" | "default" => json!({ "anything": ["at", "all"] }),
        "properties" | "definitions" | "$defs" | "patternProperties" | "dependentSchemas" => {
            json!({ "a": { "type": "string" } })
        }
        "required" => json!(["a"]),
        "additionalProperties"
        | "items"
        | "not"
        | "propertyNames"
        | "contains"
        | "if"
        | "then"
        | "else"
        | "additionalItems"
        | "unevaluatedItems"
        | "unevaluatedProperties" => json!({ "maxLength": 3 }),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => json!(1.5),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "maxProperties" | "minProperties"
        | "minContains" | "maxContains" => json!(2),
        "pattern" => json!("^a+$"),
        "uniqueItems" | "readOnly" | "writeOnly" | "deprecated" => json!(true),
        "oneOf" | "anyOf" | "allOf" | "prefixItems" => json!([{ "type": "string" }, true]),
        "$ref" => return json!({ "definitions": { "a": {} }, "$ref": "#/definitions/a" }),
        "$dynamicRef" => return json!({ "$dynamicAnchor": "a", "items": { "$dynamicRef": "#a" } }),
        "format" => json!("uuid"),
        "title" | "description" | "$comment" => json!("for people"),
        "$schema" => json!(DRAFT_7),
        "$id" => json!("https://example.com/a"),
        "$anchor" | "$dynamicAnchor" => json!("a"),
        "dependencies" => json!({ "a": ["b"], "c": { "minProperties": 2 } }),
        "dependentRequired" => json!({ "a": ["b"] }),
        "contentEncoding" => json!("base64"),
        "contentMediaType" => json!("application/json"),
        other => panic!("no example of {other}"),
    };
    json!({ keyword: value })
}

/// The list of the profile strict, as its source has it, and `$schema`.
const STRICT: [&str; 29] = [
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "$ref",
    "format",
    "title",
    "description",
    "default",
    "examples",
    "definitions",
    "$schema",
];

#[test]
fn strict_takes_its_list_and_nothing_else() {
    for keyword in keyword::KEYWORDS {
        let schema = example(keyword.name);
        if STRICT.contains(&keyword.name) {
            taken(Profile::Strict, &schema);
            taken(Profile::Strict, &of_draft(DRAFT_7, &schema));
            taken(Profile::Strict, &of_draft(DRAFT_2020_12, &schema));
        } else {
            refused(Profile::Strict, &schema, "/", "");
        }
    }
    refused(
        Profile::Strict,
        &json!({ "$comment": "x" }),
        "/$comment",
        "is not of the profile strict; accepted: type",
    );
    assert!(STRICT.iter().all(|name| Keyword::of(name).is_some_and(|keyword| keyword.strict)));
    taken(Profile::Strict, &json!(true));
    taken(Profile::Strict, &json!({ "type": ["string", "null"], "additionalProperties": false }));
}

#[test]
fn strict_refuses_tuples_other_formats_and_other_references() {
    let tuple = json!({ "properties": { "a": { "items": [{ "type": "string" }] } } });
    refused(Profile::Strict, &of_draft(DRAFT_7, &tuple), "/properties/a/items", "tuple");
    for format in ["uuid", "email", "uri", "uri-reference", "date-time"] {
        taken(Profile::Strict, &json!({ "format": format }));
    }
    for format in ["date", "ipv4", "regex", "no-such"] {
        refused(Profile::Strict, &json!({ "format": format }), "/format", "uri-reference, date-time");
    }
    let definitions = json!({ "a": { "definitions": { "b": {} } } });
    for reference in
        ["#", "#/properties/a", "#/definitions/a/definitions/b", "#/definitions/", "other.json", "#a"]
    {
        let schema = json!({ "definitions": definitions, "properties": { "a": { "$ref": reference } } });
        refused(Profile::Strict, &schema, "/properties/a/$ref", "accepted: #/definitions/<name>");
    }
}

#[test]
fn full_takes_every_keyword_of_the_draft_that_the_document_names() {
    for keyword in keyword::KEYWORDS.iter().filter(|keyword| keyword.name != "$schema") {
        let schema = example(keyword.name);
        for (draft, uri) in [(Draft::Draft7, DRAFT_7), (Draft::Draft202012, DRAFT_2020_12)] {
            let schema = of_draft(uri, &schema);
            if keyword.drafts.has(draft) {
                taken(Profile::Full, &schema);
            } else {
                refused(Profile::Full, &schema, "/", "; accepted: ");
            }
        }
        // Without `$schema` a document is of 2020-12.
        assert_eq!(problem(Profile::Full, &schema).is_none(), keyword.drafts.has(Draft::Draft202012));
    }
}

#[test]
fn what_would_not_be_enforced_is_refused_wherever_it_stands() {
    type Place = (&'static str, fn(Value) -> Value);
    let places: [Place; 9] = [
        ("", |inner| inner),
        ("/not", |inner| json!({ "not": inner })),
        ("/definitions/unused", |inner| json!({ "definitions": { "unused": inner } })),
        ("/properties/a~1b~0c", |inner| json!({ "properties": { "a/b~c": inner } })),
        ("/items", |inner| json!({ "items": inner })),
        ("/additionalProperties", |inner| json!({ "additionalProperties": inner })),
        ("/anyOf/1", |inner| json!({ "anyOf": [true, inner] })),
        ("/allOf/0/oneOf/0", |inner| json!({ "allOf": [{ "oneOf": [inner] }] })),
        (
            "/definitions/a/not/items",
            |inner| json!({ "definitions": { "a": { "not": { "items": inner } } } }),
        ),
    ];
    for (at, place) in places {
        for (schema, below, words) in [
            (json!({ "minLenght": 3 }), "/minLenght", "is no"),
            (json!({ "type": "strng" }), "/type", "\"strng\" is no type; accepted: object, array"),
            (json!({ "type": ["string", "any"] }), "/type", "\"any\" is no type"),
            (json!({ "type": 3 }), "/type", "3 is no type"),
            (json!({ "format": "phone" }), "/format", "\"phone\" is no format"),
            (json!({ "pattern": "(" }), "/pattern", "linear time"),
            (json!({ "pattern": "(?=x)y" }), "/pattern", "linear time"),
            (json!({ "pattern": "(a)\\1" }), "/pattern", "linear time"),
            (json!({ "pattern": "((a{1000}){1000}){9}" }), "/pattern", "linear time"),
        ] {
            for profile in [Profile::Strict, Profile::Full] {
                refused(profile, &place(schema.clone()), &format!("{at}{below}"), words);
            }
        }
        for (reference, words) in [
            ("https://example.com/other.json", "leads outside the document"),
            ("http://json-schema.org/draft-07/schema#", "leads outside the document"),
            ("other.json#/definitions/a", "leads outside the document"),
            ("#/definitions/none", "leads to nothing"),
            ("#none", "leads to nothing"),
        ] {
            let schema = place(json!({ "$ref": reference }));
            refused(Profile::Full, &schema, &format!("{at}/$ref"), words);
        }
        let nothing = place(json!({ "$ref": "#/definitions/none" }));
        refused(Profile::Strict, &nothing, &format!("{at}/$ref"), "leads to nothing");
        let key = place(json!({ "patternProperties": { "(?<!x)/": {} } }));
        refused(Profile::Full, &key, &format!("{at}/patternProperties/(?<!x)~1"), "linear time");
    }
}

#[test]
fn names_and_values_that_look_like_keywords_are_none() {
    let schema = json!({
        "properties": { "minLenght": {}, "$ref": {}, "type": { "type": "string" } },
        "required": ["format"],
        "const": { "type": "strng", "$ref": "x", "nested": { "format": 1 } },
        "enum": [{ "pattern": "(" }],
        "default": { "$schema": 1, "$id": "x" },
        "examples": [{ "unknown": 1 }]
    });
    taken(Profile::Strict, &schema);
    taken(Profile::Full, &schema);
}

#[test]
fn references_lead_to_schemas_and_not_to_values() {
    for reference in ["#/const", "#/examples/0", "#/definitions", "#/properties", "#/required", "#/enum/0"] {
        let schema = json!({
            "const": { "unknown": 1 }, "examples": [{}], "enum": [true], "required": ["a"],
            "definitions": { "a": {} }, "properties": { "a": {}, "b": { "$ref": reference } }
        });
        refused(Profile::Full, &schema, "/properties/b/$ref", "no schema");
    }
    let schema = json!({
        "$id": "https://example.com/root",
        "$defs": {
            "a": { "$id": "sub/a", "$anchor": "here", "items": { "$ref": "#here" }, "$defs": { "x": { "type": "string" } } },
            "a b/c%": true
        },
        "prefixItems": [
            { "$ref": "sub/a" }, { "$ref": "/sub/a#here" }, { "$ref": "https://example.com/sub/a#/$defs/x" },
            { "$ref": "#/$defs/a/$defs/x" }, { "$ref": "#/$defs/a%20b~1c%25" }, { "$ref": "" }
        ]
    });
    taken(Profile::Full, &schema);
    let wrong = json!({ "$defs": { "a": { "$id": "sub/a", "items": { "$ref": "#/$defs/a" } } } });
    refused(Profile::Full, &wrong, "/$defs/a/items/$ref", "leads to nothing");
    let anchor = json!({ "$schema": DRAFT_7, "definitions": { "a": { "$id": "#here" } }, "items": { "$ref": "#here" } });
    taken(Profile::Full, &anchor);
}

#[test]
fn a_reference_that_leads_only_to_itself_is_refused_and_recursion_over_parts_is_not() {
    for (schema, at) in [
        (json!({ "$ref": "#" }), "/$ref"),
        (json!({ "definitions": { "a": { "$ref": "#/definitions/a" } } }), "/definitions/a/$ref"),
        (
            json!({ "definitions": { "a": { "$ref": "#/definitions/b" }, "b": { "$ref": "#/definitions/a" } } }),
            "/definitions/",
        ),
        (json!({ "not": { "$ref": "#" } }), "/not/$ref"),
        (
            json!({ "type": "object", "allOf": [{ "anyOf": [true, { "$ref": "#" }] }] }),
            "/allOf/0/anyOf/1/$ref",
        ),
        (json!({ "dependentSchemas": { "a": { "$ref": "#" } } }), "/dependentSchemas/a/$ref"),
        (json!({ "$dynamicAnchor": "a", "if": { "$dynamicRef": "#a" } }), "/if/$dynamicRef"),
    ] {
        let problem = problem(Profile::Full, &schema).unwrap_or_else(|| panic!("takes {schema}"));
        assert!(problem.starts_with(&format!("at {at}")), "{problem}");
        assert!(problem.contains("leads back to itself"), "{problem}");
    }
    let list = json!({
        "definitions": { "list": {
            "type": "object",
            "properties": { "next": { "anyOf": [{ "$ref": "#/definitions/list" }, { "type": "null" }] } }
        } },
        "$ref": "#/definitions/list"
    });
    taken(Profile::Strict, &list);
    taken(Profile::Full, &json!({ "additionalProperties": { "$ref": "#" } }));
    // The same schema twice on one value is no circle.
    taken(
        Profile::Full,
        &json!({ "$defs": { "a": {} }, "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] }),
    );
}

#[test]
fn a_chain_of_references_as_long_as_a_document_is_followed() {
    let mut definitions = serde_json::Map::new();
    for n in 0..4_000 {
        definitions.insert(format!("d{n}"), json!({ "$ref": format!("#/definitions/d{}", n + 1) }));
    }
    definitions.insert("d4000".to_owned(), json!({ "$ref": "#/definitions/d0" }));
    let schema = json!({ "definitions": definitions });
    assert!(problem(Profile::Full, &schema).is_some());
}

#[test]
fn draft_07_reads_nothing_beside_a_reference_so_nothing_that_asserts_may_stand_there() {
    let beside = json!({ "definitions": { "a": {} }, "properties": { "x": { "$ref": "#/definitions/a", "minLength": 3 } } });
    refused(Profile::Full, &of_draft(DRAFT_7, &beside), "/properties/x/minLength", "no effect beside $ref");
    refused(Profile::Strict, &of_draft(DRAFT_7, &beside), "/properties/x/minLength", "no effect beside $ref");
    let validator = Validator::compile(of_draft(DRAFT_2020_12, &beside).to_string().as_bytes()).unwrap();
    let mut payload = Vec::new();
    capd_proto::cbor::json::from_json(&json!({ "x": "ab" }), &mut payload);
    assert!(validator.validate(&payload, Side::Request).is_err());
    let described = json!({ "definitions": { "a": {} }, "description": "x", "$ref": "#/definitions/a" });
    taken(Profile::Strict, &of_draft(DRAFT_7, &described));
}

#[test]
fn draft_07_may_call_its_definitions_as_2020_12_does() {
    let schema = json!({ "$schema": DRAFT_7, "$defs": { "a": { "type": "string" } }, "$ref": "#/$defs/a" });
    taken(Profile::Full, &schema);
    let unused = json!({ "$schema": DRAFT_7, "$defs": { "a": { "items": { "minLength": -1 } } } });
    refused(Profile::Full, &unused, "/$defs/a", "is not valid");
    refused(Profile::Full, &json!({ "$schema": DRAFT_7, "$defs": { "a": 3 } }), "/$defs/a", "");
}

#[test]
fn every_listed_format_and_content_is_asserted() {
    let fits = |schema: &Value, text: &str| {
        let mut payload = Vec::new();
        capd_proto::cbor::json::from_json(&json!(text), &mut payload);
        Validator::compile(schema.to_string().as_bytes()).unwrap().validate(&payload, Side::Request).is_ok()
    };
    for (draft, uri) in [(Draft::Draft7, DRAFT_7), (Draft::Draft202012, DRAFT_2020_12)] {
        for format in keyword::formats(Profile::Full, draft) {
            let unfit = if *format == "regex" { "(" } else { "\\ {no} %%" };
            assert!(!fits(&json!({ "$schema": uri, "format": format }), unfit), "{uri} {format}");
        }
    }
    refused(Profile::Full, &json!({ "$schema": DRAFT_7, "format": "duration" }), "/format", "no format");
    for encoding in CONTENT_ENCODINGS {
        assert!(!fits(&json!({ "$schema": DRAFT_7, "contentEncoding": encoding }), "!"), "{encoding}");
    }
    let json_text = json!({ "$schema": DRAFT_7, "contentMediaType": "application/json" });
    assert!(!fits(&json_text, "{"));
    for (keyword, value) in [("contentEncoding", "7bit"), ("contentMediaType", "text/html")] {
        let schema = json!({ "$schema": DRAFT_7, keyword: value });
        refused(Profile::Full, &schema, &format!("/{keyword}"), "is not enforced");
    }
    let remark = json!({ "contentMediaType": "application/json" });
    refused(Profile::Full, &remark, "/contentMediaType", "checks nothing");
}

#[test]
fn names_of_resources_are_bounded() {
    let named = |count: usize| {
        let inner = (0..count).map(|n| (format!("d{n}"), json!({ "$id": format!("r{n}") })));
        json!({ "$defs": inner.collect::<Map<_, _>>() })
    };
    taken(Profile::Full, &named(256));
    refused(Profile::Full, &named(257), "/$defs/", "is one too many or too long");
    let long = json!({ "$id": format!("https://example.com/{}", "x".repeat(2_048)) });
    refused(Profile::Full, &long, "/$id", "too long");
    refused(Profile::Full, &json!({ "items": { "$schema": DRAFT_7 } }), "/items/$schema", "at its root");
}

#[test]
fn a_refusal_is_short_however_long_the_names_are() {
    let long = "k".repeat(100_000);
    let schema = json!({ "properties": { long.clone(): { long.clone(): 1 } } });
    let problem = problem(Profile::Full, &schema).unwrap();
    assert!(problem.len() < 2_000, "{} bytes", problem.len());
}

#[test]
fn without_a_profile_what_the_draft_ignores_is_ignored() {
    let schema = json!({ "$schema": DRAFT_7, "x-unit": "m", "definitions": { "a": {} }, "items": { "$ref": "#/definitions/a", "minimum": 3 } });
    refused(Profile::Full, &schema, "/", "");
    assert!(Validator::compile_any(schema.to_string().as_bytes()).is_ok());
    assert!(Validator::compile_any(b"{\"type\": \"strng\"}").is_err());
}
