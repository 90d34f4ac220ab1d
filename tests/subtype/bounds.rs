//! Schemas made to be hard in; a verdict within the bound on work out.
//!
//! Time is not read here: the bound is a count of steps, and a verdict that ran out of them says so.

use capd::schema::subtype::Verdict;
use serde_json::{Map, Value, json};

use super::support::{compiled, verdict};

fn cases() -> Vec<(&'static str, Value, Value)> {
    let wide = |count: usize, schema: Value| -> Value {
        let members: Map<String, Value> = (0..count).map(|n| (format!("p{n}"), schema.clone())).collect();
        json!({ "type": "object", "properties": members })
    };
    let cross = |count: usize, value: i64| -> Value {
        (0..count).map(|n| json!({ "properties": { format!("p{n}"): { "const": value }, format!("p{}", (n * 7 + 3) % count): { "const": 1 } } })).collect()
    };
    let nested = |count: usize, leaf: Value| {
        (0..count).fold(leaf, |inner, _| json!({ "type": "array", "items": inner, "minItems": 60 }))
    };
    let doubling: Map<String, Value> = (0..11)
        .map(|n| {
            let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
            (
                format!("d{n}"),
                json!({ "anyOf": [{ "properties": { "a": next } }, { "properties": { "b": next } }] }),
            )
        })
        .chain([("d11".to_owned(), json!({ "type": "integer" }))])
        .collect();
    vec![
        ("many members", wide(2_000, json!({ "type": "integer" })), wide(2_000, json!({ "type": "number" }))),
        ("many branches that cross", json!({ "type": "object" }), json!({ "anyOf": cross(30, 0) })),
        (
            "many branches on both sides",
            json!({ "type": "object", "anyOf": cross(20, 2) }),
            json!({ "anyOf": cross(20, 0) }),
        ),
        ("many of one", json!({ "type": "object" }), json!({ "oneOf": cross(400, 0) })),
        (
            "a witness that doubles",
            nested(12, json!({ "type": "number" })),
            nested(12, json!({ "type": "integer" })),
        ),
        (
            "references that double",
            json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": doubling }),
            json!({ "type": "object", "maxProperties": 3, "$ref": "#/$defs/d0", "$defs": doubling }),
        ),
        (
            "long patterns",
            json!({ "type": "string", "pattern": "^(a|b)*a(a|b){8}$" }),
            json!({ "type": "string", "pattern": "^(a|b)*b(a|b){8}$", "maxLength": 4000 }),
        ),
        (
            "long and alike",
            json!({ "type": "string", "pattern": "^((a|b){7})*$", "minLength": 2000 }),
            json!({ "type": "string", "pattern": "^((a|b){11})*$" }),
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
            "many members by number",
            json!({ "type": "object", "minProperties": 1_500 }),
            json!({ "type": "object", "maxProperties": 10 }),
        ),
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
            "many patterns of names",
            json!({ "type": "object", "patternProperties": (0..12).map(|n| (format!("^.{{{n}}}a"), json!({ "minimum": n }))).collect::<Map<_, _>>() }),
            json!({ "type": "object", "patternProperties": (0..12).map(|n| (format!("b.{{{n}}}$"), json!({ "minimum": n }))).collect::<Map<_, _>>() }),
        ),
    ]
}

#[test]
fn hard_pairs_have_a_verdict_that_holds() {
    for (name, sub, sup) in cases() {
        // A witness is looked at once more in there.
        let forth = verdict(&sub, &sup);
        let back = verdict(&sup, &sub);
        println!("{name}: {} {}", short(&forth), short(&back));
    }
}

fn short(verdict: &Verdict) -> String {
    let text = format!("{verdict:?}");
    text.chars().take(60).collect()
}

#[test]
fn the_same_pair_has_the_same_verdict() {
    for (name, sub, sup) in cases().into_iter().take(4) {
        let (a, b) = (compiled(&sub), compiled(&sup));
        let first = capd::schema::subtype::is_subtype(&a, &b);
        assert_eq!(capd::schema::subtype::is_subtype(&a, &b), first, "{name}");
    }
}

#[test]
fn the_usual_sizes_are_decided() {
    let (a, b) = (&cases()[0].1, &cases()[0].2);
    assert_eq!(verdict(a, b), Verdict::Proven);
    assert!(matches!(verdict(b, a), Verdict::Refuted { .. }));
}
