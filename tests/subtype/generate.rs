//! A seed in; schemas over the keywords the proof models, and others close to them, out.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::tables::{FORMATS, NAMES, NUMBERS, PATTERNS, STEPS, TYPES};
use super::values::value;

/// Choices: those that are given, a byte each, and after them a small generator's, the same everywhere.
/// **Source:** SplitMix64.
pub(crate) struct Random {
    given: VecDeque<u8>,
    state: u64,
}

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self { given: VecDeque::new(), state: seed }
    }

    pub(crate) fn given(bytes: &[u8]) -> Self {
        Self { given: bytes.iter().copied().collect(), state: bytes.len() as u64 }
    }

    fn next(&mut self) -> u64 {
        if let Some(byte) = self.given.pop_front() {
            return u64::from(byte);
        }
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

pub(crate) fn number(random: &mut Random) -> Value {
    if random.one_in(16) {
        return match random.below(8) {
            0 => json!(u64::MAX),
            1 => json!(i64::MIN),
            2 => json!((1_i64 << 53) + random.below(3) as i64 - 1),
            3 => json!(-(1_i64 << 53) + random.below(3) as i64 - 1),
            4 => json!(1e20),
            5 => json!(-1e300),
            6 => json!(1e-7),
            // Written with a fraction, and whole.
            _ => json!(2.0),
        };
    }
    let number = *random.of(NUMBERS);
    if number.fract() == 0.0 { json!(number as i64) } else { json!(number) }
}

/// A schema that nests about `depth` deep; `draft_7` keeps to what that draft knows.
fn schema(random: &mut Random, depth: usize, draft_7: bool) -> Value {
    if depth == 0 || random.one_in(12) {
        return match random.below(8) {
            0 => json!(true),
            1 => json!(false),
            2 if depth < 3 => json!({ "$ref": "#/$defs/one" }),
            _ => json!({ "type": random.of(TYPES) }),
        };
    }
    let mut members = Map::new();
    if !random.one_in(4) {
        let mut types = vec![json!(random.of(TYPES))];
        if random.one_in(4) {
            let other = json!(random.of(TYPES));
            if other != types[0] {
                types.push(other);
            }
        }
        let types = if types.len() == 1 { types.remove(0) } else { Value::Array(types) };
        members.insert("type".into(), types);
    }
    for _ in 0..1 + random.below(3) {
        keyword(random, depth, draft_7, &mut members);
    }
    Value::Object(members)
}

fn keyword(random: &mut Random, depth: usize, draft_7: bool, into: &mut Map<String, Value>) {
    let kind = into.get("type").and_then(Value::as_str).unwrap_or("").to_owned();
    let group = match (kind.as_str(), random.below(5)) {
        ("integer" | "number", 1..) => 0,
        ("string", 1..) => 1,
        ("array", 1..) => 2,
        ("object", 1..) => 3,
        _ => random.below(5),
    };
    match group {
        0 => numbers(random, into),
        1 => strings(random, into),
        2 => arrays(random, depth, draft_7, into),
        3 => objects(random, depth, draft_7, into),
        _ => joins(random, depth, draft_7, into),
    }
}

fn numbers(random: &mut Random, into: &mut Map<String, Value>) {
    let (keyword, value) = match random.below(5) {
        0 => ("minimum", number(random)),
        1 => ("maximum", number(random)),
        2 => ("exclusiveMinimum", number(random)),
        3 => ("exclusiveMaximum", number(random)),
        _ => ("multipleOf", json!(random.of(STEPS))),
    };
    into.insert(keyword.into(), value);
}

fn strings(random: &mut Random, into: &mut Map<String, Value>) {
    let (keyword, value) = match random.below(5) {
        0 => ("minLength", json!(random.below(4))),
        1 => ("maxLength", json!(random.below(5))),
        2 | 3 => ("pattern", json!(random.of(PATTERNS))),
        _ => ("format", json!(random.of(FORMATS))),
    };
    into.insert(keyword.into(), value);
}

fn list(random: &mut Random, depth: usize, draft_7: bool, from: usize) -> Value {
    (0..from + random.below(2)).map(|_| schema(random, depth - 1, draft_7)).collect()
}

fn arrays(random: &mut Random, depth: usize, draft_7: bool, into: &mut Map<String, Value>) {
    match random.below(7) {
        0 | 1 => drop(into.insert("items".into(), schema(random, depth - 1, draft_7))),
        2 => {
            let tuple = list(random, depth, draft_7, 1);
            if draft_7 {
                into.insert("items".into(), tuple);
                if random.one_in(2) {
                    into.insert("additionalItems".into(), schema(random, depth - 1, draft_7));
                }
            } else {
                into.insert("prefixItems".into(), tuple);
            }
        }
        3 => drop(into.insert("minItems".into(), json!(random.below(4)))),
        4 => drop(into.insert("maxItems".into(), json!(random.below(4)))),
        5 => drop(into.insert("uniqueItems".into(), json!(!random.one_in(4)))),
        _ => {
            into.insert("contains".into(), schema(random, depth - 1, draft_7));
            if !draft_7 && random.one_in(2) {
                into.insert("minContains".into(), json!(random.below(3)));
            }
            if !draft_7 && random.one_in(3) {
                into.insert("maxContains".into(), json!(1 + random.below(2)));
            }
        }
    }
}

fn names(random: &mut Random) -> Value {
    let mut names: Vec<Value> = (0..1 + random.below(2)).map(|_| json!(random.of(NAMES))).collect();
    names.sort_by_key(Value::to_string);
    names.dedup();
    Value::Array(names)
}

fn objects(random: &mut Random, depth: usize, draft_7: bool, into: &mut Map<String, Value>) {
    match random.below(9) {
        0..=2 => {
            let count = 1 + random.below(3);
            let members: Map<String, Value> = (0..count)
                .map(|_| ((*random.of(NAMES)).to_owned(), schema(random, depth - 1, draft_7)))
                .collect();
            into.insert("properties".into(), Value::Object(members));
        }
        3 => drop(into.insert("required".into(), names(random))),
        4 => drop(into.insert("additionalProperties".into(), schema(random, (depth - 1).min(1), draft_7))),
        5 => {
            let by_pattern: Map<String, Value> = (0..1 + random.below(2))
                .map(|_| ((*random.of(PATTERNS)).to_owned(), schema(random, depth - 1, draft_7)))
                .collect();
            into.insert("patternProperties".into(), Value::Object(by_pattern));
        }
        6 => {
            let keyword = if random.one_in(2) { "minProperties" } else { "maxProperties" };
            into.insert(keyword.into(), json!(random.below(4)));
        }
        7 => drop(into.insert("propertyNames".into(), {
            let mut inner = Map::new();
            strings(random, &mut inner);
            Value::Object(inner)
        })),
        _ => {
            let name = *random.of(NAMES);
            let (keyword, needed) = match (random.one_in(2), draft_7) {
                (true, true) => ("dependencies", names(random)),
                (true, false) => ("dependentRequired", names(random)),
                (false, true) => ("dependencies", schema(random, depth - 1, draft_7)),
                (false, false) => ("dependentSchemas", schema(random, depth - 1, draft_7)),
            };
            into.insert(keyword.into(), json!({ name: needed }));
        }
    }
}

fn joins(random: &mut Random, depth: usize, draft_7: bool, into: &mut Map<String, Value>) {
    match random.below(8) {
        0 => drop(into.insert("allOf".into(), list(random, depth, draft_7, 1))),
        1 | 2 => drop(into.insert("anyOf".into(), list(random, depth, draft_7, 2))),
        3 => drop(into.insert("oneOf".into(), list(random, depth, draft_7, 2))),
        4 => drop(into.insert("not".into(), schema(random, depth - 1, draft_7))),
        5 => {
            into.insert("if".into(), schema(random, depth - 1, draft_7));
            into.insert("then".into(), schema(random, depth - 1, draft_7));
            if random.one_in(2) {
                into.insert("else".into(), schema(random, depth - 1, draft_7));
            }
        }
        6 => {
            let mut values: Vec<Value> = Vec::new();
            for _ in 0..1 + random.below(4) {
                let value = value(random, 1);
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            into.insert("enum".into(), Value::Array(values));
        }
        _ => drop(into.insert("const".into(), value(random, 2))),
    }
}

/// A whole document: a schema and what it refers to, which may refer to itself below a member or an item.
fn document(random: &mut Random, draft_7: bool) -> Value {
    let depth = 1 + random.below(3);
    let mut root = schema(random, depth, draft_7);
    let inner = match random.below(4) {
        0 => {
            json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/one" } }, "required": ["kind"] })
        }
        1 => json!({ "type": ["array", "null"], "items": { "$ref": "#/$defs/one" } }),
        2 => {
            json!({ "anyOf": [{ "type": "integer" }, { "type": "array", "items": { "$ref": "#/$defs/one" } }] })
        }
        _ => schema(random, 1, draft_7),
    };
    // A circle of references alone says nothing, and is refused before it gets here.
    let inner = if inner.get("$ref").is_some() { json!({}) } else { without_own_reference(inner) };
    if let Value::Object(members) = &mut root {
        members.insert("$defs".into(), json!({ "one": inner }));
        if draft_7 {
            members.insert("$schema".into(), super::support::DRAFT_7.into());
        }
    }
    root
}

/// `allOf` and the like must not lead a definition straight back to itself.
fn without_own_reference(inner: Value) -> Value {
    let joined = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependencies", "dependentSchemas"];
    let leads_back = joined.iter().any(|keyword| {
        inner.get(keyword).is_some_and(|part| {
            let at_once = |part: &Value| part.get("$ref").is_some();
            at_once(part)
                || part.as_array().is_some_and(|parts| parts.iter().any(at_once))
                || part.as_object().is_some_and(|parts| parts.values().any(at_once))
        })
    });
    if leads_back { json!({ "type": "integer" }) } else { inner }
}

/// Two schemas of one draft, close to each other or not.
pub(crate) fn pair(random: &mut Random) -> (Value, Value) {
    let draft_7 = random.one_in(2);
    let sub = document(random, draft_7);
    let sup = if random.one_in(3) { document(random, draft_7) } else { close_to(random, &sub, draft_7) };
    (sub, sup)
}

/// A schema a few edits from another.
fn close_to(random: &mut Random, schema: &Value, draft_7: bool) -> Value {
    let mut edited = schema.clone();
    for _ in 0..1 + random.below(2) {
        edit(random, &mut edited, 2, draft_7);
    }
    // What was put in the place of all of it still refers to what it was next to.
    if let (Value::Object(members), Some(inner)) = (&mut edited, schema.get("$defs")) {
        members.insert("$defs".into(), inner.clone());
        if draft_7 {
            members.insert("$schema".into(), super::support::DRAFT_7.into());
        }
    } else if !schema.is_object() {
        return document(random, draft_7);
    }
    edited
}

fn edit(random: &mut Random, schema: &mut Value, depth: usize, draft_7: bool) {
    match schema {
        Value::Object(members) => {
            let inner: Vec<String> = members
                .iter()
                .filter(|(key, member)| (member.is_object() || member.is_array()) && *key != "$defs")
                .map(|(key, _)| key.clone())
                .collect();
            if !inner.is_empty() && !random.one_in(3) {
                let key = random.of(&inner).clone();
                let is_data = matches!(key.as_str(), "enum" | "const" | "required" | "type" | "$ref")
                    || (key.starts_with("dependen") && random.one_in(2));
                if !is_data {
                    edit_inside(random, members.get_mut(&key).unwrap(), depth, draft_7, &key);
                    return;
                }
            }
            let own: Vec<String> = members.keys().filter(|key| !key.starts_with('$')).cloned().collect();
            if !own.is_empty() && random.one_in(2) {
                let gone = random.of(&own).clone();
                members.remove(&gone);
            } else if !members.contains_key("$ref") {
                keyword(random, depth.max(1), draft_7, members);
            }
        }
        other => *other = self::schema(random, 1, draft_7),
    }
}

fn edit_inside(random: &mut Random, value: &mut Value, depth: usize, draft_7: bool, key: &str) {
    let depth = depth.saturating_sub(1).max(1);
    match value {
        Value::Array(parts) if !parts.is_empty() => {
            let at = random.below(parts.len());
            edit(random, &mut parts[at], depth, draft_7);
        }
        Value::Object(members)
            if key.ends_with("roperties") && key != "additionalProperties" || key.starts_with("dependen") =>
        {
            let keys: Vec<String> = members.keys().cloned().collect();
            if keys.is_empty() {
                return;
            }
            let key = random.of(&keys).clone();
            if members[&key].is_array() {
                return;
            }
            edit(random, members.get_mut(&key).unwrap(), depth, draft_7);
        }
        other => edit(random, other, depth, draft_7),
    }
}
