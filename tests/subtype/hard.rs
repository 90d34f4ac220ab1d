//! Pairs of schemas made to be hard: each leans on one part of the proof.

use serde_json::{Map, Value, json};

/// A name, and two schemas to be held against each other both ways.
pub(crate) type Case = (String, Value, Value);

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = joined();
    cases.extend(texts());
    cases.extend(numbers());
    cases.extend(items());
    cases.extend(members());
    cases.into_iter().map(|(name, sub, sup)| (name.to_owned(), sub, sup)).collect()
}

type Named = (&'static str, Value, Value);

fn wide(count: usize, schema: &Value) -> Value {
    let members: Map<String, Value> = (0..count).map(|n| (format!("p{n}"), schema.clone())).collect();
    json!({ "type": "object", "properties": members })
}

fn cross(count: usize, value: i64) -> Value {
    let way = |n| {
        json!({ "properties": {
            format!("p{n}"): { "const": value },
            format!("p{}", (n * 7 + 3) % count): { "const": 1 },
        } })
    };
    (0..count).map(way).collect()
}

fn doubling(leaf: &Value) -> Value {
    let next = |n| json!({ "$ref": format!("#/$defs/d{}", n + 1) });
    let way =
        |n| json!({ "anyOf": [{ "properties": { "a": next(n) } }, { "properties": { "b": next(n) } }] });
    let doubling: Map<String, Value> =
        (0..11).map(|n| (format!("d{n}"), way(n))).chain([("d11".to_owned(), leaf.clone())]).collect();
    json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": doubling })
}

/// `allOf`, `anyOf`, `oneOf`, references.
fn joined() -> Vec<Named> {
    let mut narrower = doubling(&json!({ "type": "integer" }));
    narrower["maxProperties"] = json!(3);
    let large = wide(
        300,
        &json!({ "type": "object", "properties": { "a": { "type": "integer" }, "b": { "maxLength": 3 } } }),
    );
    let again = |count: usize| -> Value {
        (0..count)
            .map(|n| json!({ "allOf": [{ "required": [format!("r{n}")] }, { "$ref": "#/$defs/large" }] }))
            .collect()
    };
    let clauses = |seed: usize| -> Value {
        let literal = |n: usize| json!({ "properties": { format!("v{}", n % 24): { "const": n % 2 } }, "required": [format!("v{}", n % 24)] });
        (0..100)
            .map(|n| json!({ "anyOf": [literal(n * 7 + seed), literal(n * 13 + 5), literal(n * 29 + 11)] }))
            .collect()
    };
    vec![
        ("many branches that cross", json!({ "type": "object" }), json!({ "anyOf": cross(30, 0) })),
        (
            "many branches on both sides",
            json!({ "type": "object", "anyOf": cross(20, 2) }),
            json!({ "anyOf": cross(20, 0) }),
        ),
        ("many of one", json!({ "type": "object" }), json!({ "oneOf": cross(400, 0) })),
        ("references that double", doubling(&json!({ "type": "integer" })), narrower),
        (
            "a large part on every branch",
            json!({ "$defs": { "large": large }, "anyOf": again(900) }),
            json!({ "allOf": [large, { "maxProperties": 2_000 }] }),
        ),
        (
            "clauses",
            json!({ "type": "object", "allOf": clauses(0) }),
            json!({ "type": "object", "allOf": clauses(3) }),
        ),
        (
            "one of many of one",
            json!({ "allOf": (0..12).map(|n| json!({ "oneOf": cross(12 + n, n as i64) })).collect::<Value>() }),
            json!({ "oneOf": cross(25, 3) }),
        ),
        (
            "many unwanted at once",
            json!({ "type": "object", "minProperties": 1 }),
            json!({ "anyOf": (0..2_000).map(|n| json!({ "required": [format!("p{n}")], "maxProperties": n })).collect::<Value>() }),
        ),
    ]
}

/// Patterns, formats and lengths.
fn texts() -> Vec<Named> {
    let late = |n: usize| json!({ "pattern": format!("(a|b)*a(a|b){{{n}}}$") });
    let sources: Map<String, Value> =
        (0..50).map(|n| (format!("s{n}"), json!({ "pattern": format!("c{n}") }))).collect();
    let again: Value = (0..2_000).map(|n| json!({ "$ref": format!("#/$defs/s{}", n % 50) })).collect();
    vec![
        (
            "long patterns",
            json!({ "type": "string", "pattern": "^(a|b)*a(a|b){8}$" }),
            json!({ "type": "string", "pattern": "^(a|b)*b(a|b){8}$", "maxLength": 4_000 }),
        ),
        (
            "long and alike",
            json!({ "type": "string", "pattern": "^((a|b){7})*$", "minLength": 2_000 }),
            json!({ "type": "string", "pattern": "^((a|b){11})*$" }),
        ),
        (
            "many patterns at once",
            json!({ "type": "string", "allOf": (0..9).map(late).collect::<Value>() }),
            json!({ "allOf": (0..9).map(|n| late(n + 1)).collect::<Value>(), "pattern": "^a*$" }),
        ),
        (
            "patterns over all characters",
            json!({ "type": "string", "pattern": r"^\p{Lu}*[^\p{Lt}]{9}\p{L}*$", "minLength": 30 }),
            json!({ "type": "string", "pattern": r"^\p{L}*\d{3}[^\p{Ll}]*$" }),
        ),
        (
            "a long witness under many patterns",
            json!({ "type": "string", "minLength": 19_000, "pattern": "^a*$" }),
            json!({ "anyOf": (0..200).map(|n| json!({ "pattern": format!("^a{{{n}}}$|b{n}") })).collect::<Value>() }),
        ),
        (
            "a long text under many patterns",
            json!({ "enum": ["ab".repeat(50_000)] }),
            json!({ "anyOf": again, "$defs": sources }),
        ),
        (
            "a long text that is an expression",
            json!({ "enum": [r"\q\e".repeat(20_000), "(a|b)".repeat(9_000)] }),
            json!({ "format": "regex", "minLength": 1 }),
        ),
        (
            "many texts and all formats",
            json!({ "enum": (0..3_000).map(|n| format!("a{n}@example.com/{n}")).collect::<Value>() }),
            json!({ "anyOf": super::tables::FORMATS.iter().map(|format| json!({ "format": format, "maxLength": 9 })).collect::<Value>() }),
        ),
        (
            "formats against each other",
            json!({ "type": "string", "format": "iri", "minLength": 300 }),
            json!({ "anyOf": [{ "format": "uri" }, { "format": "email" }, { "format": "hostname" }, { "format": "uri-template" }] }),
        ),
    ]
}

/// Bounds, multiples and long lists.
fn numbers() -> Vec<Named> {
    vec![
        (
            "steps without a common multiple nearby",
            json!({ "type": "integer", "multipleOf": 9_007_199_254_740_881_i64, "minimum": 1 }),
            json!({ "not": { "multipleOf": 9_007_199_254_740_847_i64 } }),
        ),
        (
            "all but many",
            json!({ "type": "integer", "minimum": 0, "maximum": 3_000 }),
            json!({ "enum": (0..3_000).collect::<Vec<_>>() }),
        ),
        (
            "all but many, again and again",
            json!({ "type": "integer", "minimum": 0, "maximum": 3_000 }),
            json!({ "anyOf": (0..40).map(|n| json!({ "enum": (n * 70..n * 70 + 75).collect::<Vec<_>>() })).collect::<Value>() }),
        ),
        (
            "many steps",
            json!({ "type": "integer", "minimum": 1, "maximum": 4_000 }),
            json!({ "anyOf": (2..60).map(|n| json!({ "multipleOf": n })).collect::<Value>() }),
        ),
        (
            "close to each other",
            json!({ "type": "number", "exclusiveMinimum": 0.1, "exclusiveMaximum": 0.100_000_000_000_000_02 }),
            json!({ "anyOf": (1..200).map(|n| json!({ "multipleOf": f64::from(n) / 1_000.0 })).collect::<Value>() }),
        ),
    ]
}

/// Lengths, counts and items that differ.
fn items() -> Vec<Named> {
    let nested = |count: usize, leaf: Value| {
        (0..count).fold(leaf, |inner, _| json!({ "type": "array", "items": inner, "minItems": 60 }))
    };
    let tuple = |count: usize| (0..count).map(|n| json!({ "const": n })).collect::<Value>();
    let counted = |from: usize| -> Value {
        (from..from + 4)
            .map(|n| json!({ "contains": { "multipleOf": n }, "minContains": n, "maxContains": n + 9 }))
            .collect()
    };
    vec![
        (
            "a witness that doubles",
            nested(12, json!({ "type": "number" })),
            nested(12, json!({ "type": "integer" })),
        ),
        (
            "a long least",
            json!({ "type": "array", "minItems": 1_000_000_000 }),
            json!({ "type": "array", "uniqueItems": true }),
        ),
        (
            "many items, all unique",
            json!({ "type": "array", "minItems": 900, "uniqueItems": true }),
            json!({ "type": "array", "maxItems": 800 }),
        ),
        (
            "a long tuple, all unique",
            json!({ "type": "array", "prefixItems": tuple(4_000), "minItems": 4_000, "uniqueItems": true }),
            json!({ "type": "array", "maxItems": 3_999 }),
        ),
        (
            "a long tuple with a repetition",
            json!({ "type": "array", "prefixItems": tuple(1_000), "items": { "minimum": 5 } }),
            json!({ "type": "array", "uniqueItems": true }),
        ),
        (
            "many long items, all unique",
            json!({ "type": "array", "minItems": 900, "uniqueItems": true, "items": { "type": "string", "minLength": 19_000 } }),
            json!({ "type": "array", "maxItems": 800 }),
        ),
        (
            "many large members",
            json!({
                "type": "object",
                "required": (0..200).map(|n| format!("p{n}")).collect::<Vec<_>>(),
                "additionalProperties": { "type": "string", "minLength": 15_000 },
            }),
            json!({ "anyOf": [{ "maxProperties": 190 }, { "additionalProperties": { "maxLength": 14_999 } }, { "required": ["x"] }] }),
        ),
        (
            "many counts",
            json!({ "type": "array", "allOf": counted(2), "maxItems": 40 }),
            json!({ "type": "array", "allOf": counted(3) }),
        ),
        (
            "few values in many places",
            json!({ "type": "array", "items": { "enum": [0, 1, 2, 3, 4, 5, 6, 7, 8] }, "minItems": 10, "uniqueItems": true }),
            json!(false),
        ),
    ]
}

/// Names and members.
fn members() -> Vec<Named> {
    let by_pattern = |of: &dyn Fn(usize) -> String, count: usize| -> Value {
        (0..count).map(|n| (of(n), json!({ "minimum": n }))).collect::<Map<_, _>>().into()
    };
    vec![
        (
            "many members",
            wide(2_000, &json!({ "type": "integer" })),
            wide(2_000, &json!({ "type": "number" })),
        ),
        (
            "many members, most alike",
            json!({ "allOf": [wide(900, &json!({ "type": "integer" })), wide(900, &json!({ "minimum": 3 }))] }),
            json!({ "anyOf": [wide(900, &json!({ "minimum": 4 })), wide(900, &json!({ "maximum": 3 }))] }),
        ),
        (
            "many members by number",
            json!({ "type": "object", "minProperties": 1_500 }),
            json!({ "type": "object", "maxProperties": 10 }),
        ),
        (
            "many members by number and name",
            json!({ "type": "object", "minProperties": 1_500, "propertyNames": { "pattern": "^[a-e]{3,8}$", "format": "hostname" } }),
            json!({ "type": "object", "maxProperties": 10 }),
        ),
        (
            "many patterns of names",
            json!({ "type": "object", "patternProperties": by_pattern(&|n| format!("^.{{{n}}}a"), 12) }),
            json!({ "type": "object", "patternProperties": by_pattern(&|n| format!("b.{{{n}}}$"), 12) }),
        ),
        (
            "as many patterns of names as are told apart",
            json!({ "type": "object", "patternProperties": by_pattern(&|n| format!("^.{{{n}}}a"), 3), "minProperties": 40 }),
            json!({ "type": "object", "patternProperties": by_pattern(&|n| format!("b.{{{n}}}$"), 3), "additionalProperties": false }),
        ),
        (
            "many to break at once",
            wide(60, &json!(true)),
            json!({ "anyOf": (0..6).map(|n| wide(60, &json!({ "type": ["integer", "null"], "minimum": n }))).collect::<Value>() }),
        ),
    ]
}
