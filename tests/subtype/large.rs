//! Schemas of the largest size in, or close to it: each leans on one part of compiling.

use serde_json::{Map, Value, json};

use super::hard::Case;

/// A schema of so many parts.
type Of = fn(usize) -> Value;

/// Each of at most `bytes`, beside one that is close to it.
pub(crate) fn cases(bytes: usize) -> Vec<Case> {
    let parts: [(&str, Of, Value); 15] = [
        ("members", members, json!({ "maxProperties": 3 })),
        ("branches", branches, json!({ "minProperties": 1 })),
        ("one of many", one_of, json!({ "minProperties": 1 })),
        ("texts", texts, json!({ "maxLength": 6 })),
        ("lists of values", lists, json!({ "maxItems": 3 })),
        ("one value", value, json!({ "minProperties": 1 })),
        ("references", references, json!({ "type": "object" })),
        ("names that are required", required, json!({ "maxProperties": 3 })),
        ("needs of each other", dependencies, json!({ "minProperties": 2 })),
        ("small patterns", small_patterns, json!({ "maxLength": 9 })),
        ("a few large patterns", few_large_patterns, json!({ "maxLength": 9 })),
        ("many patterns over all characters", unicode_patterns, json!({ "maxLength": 9 })),
        ("patterns of names", name_patterns, json!({ "maxProperties": 9 })),
        ("conditions", conditions, json!({ "minProperties": 1 })),
        ("nesting", nesting, json!({ "minProperties": 1 })),
    ];
    let each = parts.into_iter().map(|(name, of, more)| {
        let schema = largest(bytes, &of);
        let close = largest(bytes, &|count| beside(of(count), &more));
        (format!("{name}, {} KiB", schema.to_string().len() / 1024), schema, close)
    });
    each.collect()
}

/// References go on to lead where they led.
fn beside(mut schema: Value, more: &Value) -> Value {
    match &mut schema["allOf"] {
        Value::Array(all) => all.push(more.clone()),
        none => *none = json!([more]),
    }
    schema
}

/// The one of most parts that is within the bound.
fn largest(bytes: usize, of: &dyn Fn(usize) -> Value) -> Value {
    let fits = |count: usize| of(count).to_string().len() <= bytes;
    let (mut least, mut most) = (1, bytes / PART_BYTES_MIN);
    while least < most {
        let middle = (least + most).div_ceil(2);
        if fits(middle) { least = middle } else { most = middle - 1 }
    }
    of(least)
}

fn object(count: usize, member: impl Fn(usize) -> (String, Value)) -> Value {
    (0..count).map(member).collect::<Map<_, _>>().into()
}

fn members(count: usize) -> Value {
    json!({ "type": "object", "properties": object(count, |n| (format!("p{n}"), json!({ "minimum": n }))) })
}

fn branch(n: usize) -> Value {
    json!({ "type": "object", "properties": { "kind": { "const": n }, "x": { "minimum": n } }, "required": ["kind"] })
}

fn branches(count: usize) -> Value {
    json!({ "anyOf": (0..count.min(SPREAD)).map(branch).collect::<Value>(), "title": padding(count) })
}

fn one_of(count: usize) -> Value {
    json!({ "oneOf": (0..count.min(SPREAD)).map(branch).collect::<Value>(), "title": padding(count) })
}

/// What fills a document whose parts may only be so many.
fn padding(count: usize) -> String {
    "t".repeat(100 * count.saturating_sub(SPREAD))
}

fn texts(count: usize) -> Value {
    json!({ "enum": (0..count).map(|n| format!("t{n}")).collect::<Value>() })
}

fn lists(count: usize) -> Value {
    json!({ "enum": (0..count.min(SPREAD)).map(|n| json!([n, { "a": [n] }])).collect::<Value>(), "title": padding(count) })
}

fn value(count: usize) -> Value {
    json!({ "const": object(count, |n| (format!("p{n}"), json!([n, "x"]))) })
}

fn references(count: usize) -> Value {
    let next =
        |n: usize| json!({ "properties": { "a": { "$ref": format!("#/$defs/d{}", (n * 7 + 1) % count) } } });
    json!({ "$ref": "#/$defs/d0", "$defs": object(count, |n| (format!("d{n}"), next(n))) })
}

fn required(count: usize) -> Value {
    json!({ "type": "object", "required": (0..count).map(|n| format!("p{n}")).collect::<Value>() })
}

fn dependencies(count: usize) -> Value {
    json!({ "dependentRequired": object(count, |n| (format!("p{n}"), json!([format!("p{}", n + 1)]))) })
}

fn small_patterns(count: usize) -> Value {
    let source = |n: usize| format!("^[a-z]{{1,{}}}{n}$", 1 + n % 9);
    json!({ "allOf": (0..count.min(PATTERNS)).map(|n| json!({ "pattern": source(n) })).collect::<Value>() })
}

/// What they share is bounded, so they are either few or not so large.
fn few_large_patterns(count: usize) -> Value {
    let source = |n: usize| format!(r"^(\p{{L}}|\p{{N}}|[{n}-~]){{1,{}}}\p{{Lu}}$", 4 + n % 5);
    json!({ "anyOf": (0..count.min(3)).map(|n| json!({ "pattern": source(n) })).collect::<Value>(), "title": padding(count) })
}

fn unicode_patterns(count: usize) -> Value {
    let source = |n: usize| format!(r"^[\p{{Lu}}{n}]+$");
    json!({ "anyOf": (0..count.min(UNICODE_PATTERNS)).map(|n| json!({ "pattern": source(n) })).collect::<Value>() })
}

fn name_patterns(count: usize) -> Value {
    json!({ "patternProperties": object(count.min(PATTERNS), |n| (format!("^x{n}.*(a|b){{{}}}$", n % 7), json!({ "minimum": n }))) })
}

fn conditions(count: usize) -> Value {
    let condition = |n: usize| json!({ "if": { "required": [format!("p{n}")] }, "then": { "minProperties": n }, "else": { "maxProperties": n } });
    json!({ "type": "object", "allOf": (0..count.min(SPREAD / 4)).map(condition).collect::<Value>(), "title": padding(count) })
}

fn nesting(count: usize) -> Value {
    let wide = |inner: Value| json!({ "properties": object(count.div_ceil(40), |n| (format!("p{n}"), inner.clone())), "items": inner });
    let chain = (0..40).fold(
        json!({ "type": "integer" }),
        |inner, _| json!({ "properties": { "a": inner, "b": { "minimum": 1 } } }),
    );
    wide(chain)
}

/// Bytes of the smallest part of any of them.
const PART_BYTES_MIN: usize = 6;
/// Schemas that one value may be held against, with room for those around them.
const SPREAD: usize = 1_000;
/// Patterns that a document may have.
const PATTERNS: usize = 250;
/// As many of them have a part of what all patterns share that does for a class of Unicode.
const UNICODE_PATTERNS: usize = 80;
