//! Schemas and payloads that a hostile peer would choose, each at the size that the limits of the wire leave it.
//!
//! `tests/attacks/schemas.rs` asks what becomes of each, and `benches/schema_hostile.rs` how long it takes.

use serde_json::{Map, Value, json};

/// A schema that is compiled, and a payload whose check would take long.
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    pub(crate) schema: Value,
    pub(crate) payload: Value,
    /// Whether no check may take as many steps as it would.
    pub(crate) is_endless: bool,
}

impl Pair {
    fn endless(name: &'static str, schema: Value, payload: Value) -> Self {
        Self { name, schema, payload, is_endless: true }
    }

    fn long(name: &'static str, schema: Value, payload: Value) -> Self {
        Self { name, schema, payload, is_endless: false }
    }
}

/// `count` copies.
fn copies(value: Value, count: usize) -> Value {
    Value::Array(vec![value; count])
}

fn integers(count: usize) -> Value {
    (0..count).map(|n| json!(n)).collect()
}

/// `count` names of three letters, in no order; so short that none is kept of objects of them.
fn names(count: usize) -> impl Iterator<Item = String> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    (0..count).map(|n| {
        // Odd, so that each number comes once.
        let n = n * 40_503 % 65_536;
        [12, 6, 0].map(|shift| char::from(LETTERS[(n >> shift) % LETTERS.len()])).iter().collect()
    })
}

fn object(count: usize, member: impl Fn(usize) -> Value) -> Value {
    names(count).enumerate().map(|(n, name)| (name, member(n))).collect::<Map<_, _>>().into()
}

/// An object whose members take so many bytes that their order is kept.
fn ordered(count: usize) -> Value {
    names(count).map(|name| (format!("{name}-{name}"), json!(0))).collect::<Map<_, _>>().into()
}

/// Letters of which every third or so is an `a`.
fn letters(count: usize) -> String {
    let mut random = 1_u64;
    let next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if random.is_multiple_of(3) { 'a' } else { 'b' }
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Definitions of which each refers to the next one as `hop` has it, the first of which is asked for.
fn chain(count: usize, hop: impl Fn(Value) -> Value, last: Value) -> Value {
    let next = |n: usize| json!({ "$ref": format!("#/$defs/d{}", n + 1) });
    let mut definitions: Map<String, Value> = (0..count).map(|n| (format!("d{n}"), hop(next(n)))).collect();
    definitions.insert(format!("d{count}"), last);
    json!({ "$defs": definitions, "items": { "$ref": "#/$defs/d0" } })
}

fn nested(count: usize, value: Value, around: impl Fn(Value) -> Value) -> Value {
    (0..count).fold(value, |inner, _| around(inner))
}

/// Whatever a check could take long for.
pub(crate) fn pairs() -> Vec<Pair> {
    [by_names(), by_items(), by_branches(), by_scalars(), told()].into_iter().flatten().collect()
}

/// A schema that no short way decides, and a payload as large as it may be, the last item of which is no JSON.
pub(crate) fn not_json() -> (Value, Vec<u8>) {
    let mut bytes = Vec::new();
    capd_proto::cbor::json::from_json(&copies(ordered(65_000), 7), &mut bytes);
    // One item more: `undefined`.
    bytes[0] += 1;
    bytes.push(0xf7);
    (json!({ "then": true }), bytes)
}

fn by_names() -> Vec<Pair> {
    let many = || object(65_000, |_| json!(0));
    let required = |count| names(count).map(Value::from).collect::<Value>();
    let regexes: Map<String, Value> = (0..250).map(|n| (format!("[a-q]{n}.x"), json!(true))).collect();
    let prefixes: Map<String, Value> = (0..250).map(|n| (format!("^a{n}"), json!(true))).collect();
    vec![
        Pair::endless(
            "propertyNames",
            json!({ "propertyNames": { "allOf": copies(json!({ "minLength": 0 }), 4_000) } }),
            many(),
        ),
        Pair::endless(
            "propertyNames, a definition each",
            json!({ "propertyNames": { "$ref": "#/$defs/a" }, "$defs": { "a": { "allOf": copies(json!({ "pattern": "^." }), 200) } } }),
            many(),
        ),
        Pair::endless(
            "propertyNames, nothing looked at",
            json!({ "propertyNames": { "allOf": copies(json!({}), 4_000) } }),
            many(),
        ),
        Pair::endless("patternProperties", json!({ "patternProperties": regexes }), many()),
        Pair::endless("patternProperties, prefixes", json!({ "patternProperties": prefixes }), many()),
        Pair::endless(
            "patternProperties, closed",
            json!({ "patternProperties": regexes, "additionalProperties": { "type": "integer" } }),
            many(),
        ),
        Pair::endless(
            "patternProperties, ways without number",
            json!({ "patternProperties": { "[ab]*a[ab]{900}c": true } }),
            json!({ letters(60_000): 1 }),
        ),
        Pair::endless(
            "patternProperties, alternatives",
            json!({ "patternProperties": { format!("^({})$", names(30_000).collect::<Vec<_>>().join("|")): true } }),
            many(),
        ),
        Pair::endless("required", json!({ "required": required(20_000), "then": true }), many()),
        Pair::endless(
            "dependentRequired",
            json!({ "dependentRequired": object(100, |_| required(200)) }),
            many(),
        ),
        Pair::endless(
            "dependentSchemas",
            json!({ "dependentSchemas": object(4_000, |_| json!({ "required": ["aaa"] })) }),
            many(),
        ),
        Pair::endless(
            "properties of many branches",
            json!({ "allOf": copies(json!({ "properties": { "a": {}, "b": { "type": "null" } } }), 2_000) }),
            many(),
        ),
        Pair::endless(
            "unevaluatedProperties of objects",
            json!({ "items": { "anyOf": copies(json!({ "properties": object(6, |_| json!(true)) }), 400), "unevaluatedProperties": { "type": "integer" } } }),
            copies(object(400, |_| json!(0)), 150),
        ),
        Pair::endless(
            "unevaluatedProperties, nested",
            nested(
                10,
                json!({ "properties": { "a": true } }),
                |inner| json!({ "unevaluatedProperties": { "type": "integer" }, "anyOf": [inner] }),
            ),
            object(100, |_| json!(0)),
        ),
        Pair::long(
            "required, ordered",
            json!({ "required": required(20_000), "then": true }),
            ordered(65_000),
        ),
        Pair::long(
            "many objects in no order",
            json!({ "then": true, "items": { "required": ["zzz-zzz"] } }),
            copies(ordered(65_000), 7),
        ),
    ]
}

fn by_items() -> Vec<Pair> {
    let many = || integers(65_000);
    let wide = |value: Value| copies(copies(value, 60_000), 15);
    let unique =
        nested(50, json!({ "uniqueItems": true }), |inner| json!({ "uniqueItems": true, "items": inner }));
    let deep = nested(50, many(), |inner| {
        let mut items = vec![inner];
        items.extend((0..20).map(|n| json!(n)));
        Value::Array(items)
    });
    let objects: Value = (0..8_000).map(|n| json!({ "a": 0, "b": 0, "c": { "d": [0, 1, 2, n] } })).collect();
    // Equal as floats, and unequal.
    let alike: Value = (0..60_000_u64).map(|n| json!(u64::MAX - n)).collect();
    vec![
        Pair::endless(
            "uniqueItems in branches",
            json!({ "allOf": copies(json!({ "uniqueItems": true }), 4_000) }),
            many(),
        ),
        Pair::endless("uniqueItems, nested", unique, deep),
        Pair::endless(
            "uniqueItems of objects",
            json!({ "allOf": copies(json!({ "uniqueItems": true }), 40) }),
            objects,
        ),
        Pair::endless("uniqueItems, alike", json!({ "uniqueItems": true }), alike),
        Pair::endless(
            "unevaluatedItems",
            json!({ "anyOf": copies(json!({ "contains": { "const": 64_999 } }), 4_000), "unevaluatedItems": { "type": "integer" } }),
            many(),
        ),
        Pair::endless(
            "unevaluatedItems, branches at no cost",
            json!({ "anyOf": copies(json!({ "type": "array" }), 4_000), "unevaluatedItems": { "type": "integer" } }),
            many(),
        ),
        Pair::endless(
            "contains",
            json!({ "allOf": copies(json!({ "contains": { "type": "integer" }, "minContains": 65_000 }), 4_000) }),
            many(),
        ),
        Pair::endless(
            "contains of contains",
            nested(
                3,
                json!({ "const": 1 }),
                |inner| json!({ "contains": inner, "minContains": 0, "maxContains": 70_000, "allOf": copies(json!({ "contains": { "const": -1 }, "minContains": 0 }), 60) }),
            ),
            copies(copies(json!([0]), 60_000), 8),
        ),
        Pair::endless(
            "items in branches",
            json!({ "allOf": copies(json!({ "items": { "type": "integer" } }), 2_000) }),
            many(),
        ),
        Pair::long(
            "as many values as there may be",
            json!({ "then": true, "items": { "items": { "minimum": 0 } } }),
            wide(json!(0)),
        ),
    ]
}

fn by_branches() -> Vec<Pair> {
    let wide = || copies(integers(60_000), 15);
    let items = |schema: Value| json!({ "items": { "items": schema } });
    let any_of_false = [vec![json!(false); 4_000], vec![json!(true)]].concat();
    let tree =
        nested(9, json!({ "type": "string" }), |inner| json!({ "oneOf": [inner, { "anyOf": [inner] }] }));
    let circle = json!({ "type": "array", "anyOf": [{ "items": { "$ref": "#" } }, { "items": { "$ref": "#" }, "minItems": 1 }] });
    let not = nested(90, json!({}), |inner| json!({ "not": inner }));
    // What is on each level is held against the first definition again; small lists are not remembered, when there are many.
    let ways = |count, last: Value| {
        let last = json!({ "allOf": [last, { "items": { "$ref": "#/$defs/d0" } }] });
        chain(count, |next| json!({ "allOf": [next, next] }), last)
    };
    let deep = || copies(nested(60, json!(1), |inner| json!([inner])), 5_000);
    vec![
        Pair::endless(
            "allOf of types",
            items(json!({ "allOf": copies(json!({ "type": "integer" }), 4_000) })),
            wide(),
        ),
        Pair::endless("allOf of nothing", items(json!({ "allOf": copies(json!({}), 4_000) })), wide()),
        Pair::endless("allOf of true", items(json!({ "allOf": copies(json!(true), 4_000) })), wide()),
        Pair::endless("anyOf of false", items(json!({ "anyOf": any_of_false })), wide()),
        Pair::endless("oneOf in anyOf", items(json!({ "not": tree })), wide()),
        Pair::endless("not", items(not), wide()),
        Pair::endless("references", chain(900, |next| next, json!({})), integers(65_000)),
        Pair::long(
            "references, few",
            chain(6, |next| json!({ "type": "integer", "allOf": [next] }), json!({})),
            integers(65_000),
        ),
        Pair::endless(
            "references, typed",
            chain(300, |next| json!({ "type": "integer", "allOf": [next] }), json!({})),
            integers(65_000),
        ),
        Pair::endless(
            "references that double",
            chain(9, |next| json!({ "allOf": [next, next] }), json!({})),
            integers(65_000),
        ),
        Pair::endless("a circle that doubles", circle, nested(60, json!(1), |inner| json!([inner]))),
        Pair::endless("ways that double on each level", ways(9, json!({})), deep()),
        Pair::endless(
            "ways that double on each level, none of which fits",
            ways(9, json!({ "maxItems": 0 })),
            deep(),
        ),
        Pair::long(
            "a circle on long ways",
            json!({ "$defs": { "n": nested(20, json!({ "items": { "$ref": "#/$defs/n" } }), |inner| json!({ "allOf": [inner, { "items": { "$ref": "#/$defs/n" } }] })) }, "$ref": "#/$defs/n" }),
            nested(60, integers(60), |inner| json!([inner])),
        ),
    ]
}

fn by_scalars() -> Vec<Pair> {
    let all_of = |schema: Value, count: usize| json!({ "allOf": copies(schema, count) });
    let floats = || copies(copies(json!(1.7e300), 60_000), 15);
    let pairs: Value = (0..9_000).map(|n| json!([n, "aaaa"])).collect();
    let spelled: Value = (0..20_000).map(|n| json!(n)).chain([json!(1.5)]).collect();
    let text = "e".repeat(120_000);
    vec![
        Pair::endless(
            "enum of lists",
            json!({ "items": { "enum": pairs } }),
            copies(json!([8_999, "aaaa"]), 60_000),
        ),
        Pair::endless("enum of numbers", json!({ "items": { "enum": spelled } }), copies(json!(1.5), 60_000)),
        Pair::endless(
            "const of objects",
            json!({ "items": { "const": object(9_000, |_| json!(0)) } }),
            copies(object(9_000, |_| json!(0)), 55),
        ),
        Pair::long(
            "const, long",
            json!({ "items": { "const": text, "then": true } }),
            copies(json!(text), 120),
        ),
        Pair::endless("minLength", all_of(json!({ "minLength": 1 }), 4_000), json!("é".repeat(5_000_000))),
        Pair::endless("prefix", all_of(json!({ "pattern": "^é" }), 250), json!("é".repeat(5_000_000))),
        Pair::endless(
            "format",
            all_of(json!({ "format": "uri-reference" }), 4_000),
            json!("e/".repeat(2_000_000)),
        ),
        Pair::endless(
            "pattern, small automaton",
            all_of(json!({ "pattern": "^[a-z]+$" }), 250),
            json!("e".repeat(10_000_000)),
        ),
        Pair::endless(
            "pattern, ways without number",
            json!({ "pattern": "[ab]*a[ab]{900}c" }),
            json!(letters(300_000)),
        ),
        Pair::endless(
            "pattern, ways back without number",
            json!({ "pattern": "[ab]{900}a[ab]*$" }),
            json!(format!("{}c", letters(300_000))),
        ),
        Pair::endless(
            "pattern, repeated in itself",
            json!({ "pattern": "(([ab]{1,30}){1,30}){1,5}c" }),
            json!(letters(300_000)),
        ),
        Pair::long(
            "pattern, as long as it may be",
            json!({ "pattern": "[ab]*a[ab]{900}c" }),
            json!(letters(200)),
        ),
        Pair::long(
            "pattern, repeated, as long as it may be",
            json!({ "pattern": "(([ab]{1,30}){1,30}){1,5}c" }),
            json!(letters(40)),
        ),
        Pair::endless(
            "pattern, many short ones",
            json!({ "items": { "pattern": "[ab]*a[ab]{100}c" } }),
            (0..60_000).map(|n| letters(64 + n % 7)).map(Value::from).collect(),
        ),
        Pair::endless("multipleOf", json!({ "items": { "items": { "multipleOf": 1e-300 } } }), floats()),
        Pair::endless(
            "multipleOf in branches",
            json!({ "items": { "allOf": copies(json!({ "multipleOf": 1e-9 }), 400) } }),
            copies(json!(1e15), 60_000),
        ),
    ]
}

/// Payloads of which much is told.
fn told() -> Vec<Pair> {
    let deep = |leaf: Value| nested(60, leaf, |inner| json!({ "a-name-of-a-usual-length": inner }));
    let tree =
        nested(9, json!({ "type": "string" }), |inner| json!({ "oneOf": [inner, { "anyOf": [inner] }] }));
    vec![
        Pair::long(
            "violations, one each",
            json!({ "items": { "items": { "type": "string" } } }),
            copies(integers(60_000), 15),
        ),
        Pair::long(
            "violations, deep",
            json!({ "additionalProperties": { "$ref": "#" }, "items": { "type": "string", "minimum": 70_000 } }),
            deep(integers(60_000)),
        ),
        Pair::long("violations in branches", json!({ "items": tree }), integers(60_000)),
        Pair::long(
            "names that nobody knows",
            json!({ "properties": { "a": {} }, "additionalProperties": false }),
            object(65_000, |_| json!(0)),
        ),
    ]
}

/// Schemas that would take long to compile, or whose checks nothing would end.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let by_anchor = |count: usize| -> Map<String, Value> {
        let hop = |n: usize| json!({ "$ref": format!("#a{}", n + 1) });
        let mut all: Map<String, Value> = (0..count)
            .map(|n| (format!("d{n}"), json!({ "$anchor": format!("a{n}"), "allOf": [hop(n), hop(n)] })))
            .collect();
        all.insert("end".into(), json!({ "$anchor": format!("a{count}") }));
        all
    };
    let unevaluated = |count: usize| {
        chain(count, |next| json!({ "unevaluatedProperties": false, "allOf": [next] }), json!({}))
    };
    let by_name: Map<String, Value> = (0..256).map(|n| (format!("^x{n}\\pL{{0,9}}$"), json!(true))).collect();
    vec![
        ("references by anchor that double", json!({ "$defs": by_anchor(40), "$ref": "#a0" })),
        ("unevaluatedProperties along references", unevaluated(900)),
        (
            "schemas below a long name",
            json!({ "properties": { "k".repeat(60_000): { "allOf": copies(json!({ "minLength": 1 }), 4_000) } } }),
        ),
        ("schemas without number", json!({ "prefixItems": copies(json!({}), 80_000) })),
        ("classes without number", json!({ "pattern": r"\w".repeat(60_000) })),
        ("classes of white space", json!({ "pattern": r"\s".repeat(2_000) })),
        ("classes of Unicode", json!({ "pattern": r"\pL".repeat(60_000) })),
        ("classes that are folded", json!({ "pattern": format!("(?i){}", "[^a]".repeat(2_000)) })),
        ("patterns of Unicode", json!({ "patternProperties": by_name })),
        (
            "many references to one name",
            json!({ "$defs": (0..4_000).map(|n| (format!("{n}"), json!({ "$anchor": "a", "$ref": format!("x{n}#a") }))).collect::<Map<_, _>>() }),
        ),
    ]
}

/// Schemas of which each part is as large as it may be, so that they are compiled.
pub(crate) fn largest_schemas() -> Vec<(&'static str, Value)> {
    let repeated = |count: usize, class: &str, times: usize| {
        let patterns: Map<String, Value> =
            (0..count).map(|n| (format!("^x{n}({class}){{0,{times}}}$"), json!(true))).collect();
        json!({ "patternProperties": patterns })
    };
    let deep = nested(90, json!({}), |inner| json!({ "not": inner }));
    let pointer = format!("#/$defs/x{}", "/not".repeat(45));
    let pointers = nested(
        40,
        json!({ "allOf": copies(json!({ "$ref": pointer }), 80) }),
        |inner| json!({ "allOf": [inner] }),
    );
    vec![
        ("properties", json!({ "properties": object(25_000, |_| json!({})) })),
        ("required", json!({ "required": names(28_000).collect::<Vec<_>>() })),
        ("enum", json!({ "enum": (0..30_000).map(|n| json!({ "a": n })).take(12_000).collect::<Vec<_>>() })),
        ("classes", json!({ "allOf": copies(json!({ "pattern": r"\w".repeat(24) }), 20) })),
        ("a pattern", repeated(1, "[ab]", 5_000)),
        ("four patterns", repeated(4, "[ab]", 5_000)),
        ("patterns of any character", repeated(250, ".", 15)),
        ("patterns", repeated(250, "[ab]", 85)),
        ("patterns of letters", repeated(48, "\\pL", 2)),
        ("long pattern", json!({ "pattern": "[ab]x".repeat(8_000) })),
        ("deep pointers", json!({ "$defs": { "x": deep }, "allOf": [pointers] })),
        (
            "unevaluatedProperties",
            chain(
                90,
                |next| json!({ "unevaluatedProperties": false, "allOf": [next] }),
                json!({ "properties": object(100, |_| json!({})) }),
            ),
        ),
    ]
}
