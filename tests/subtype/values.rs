//! A seed in; values over the same names, texts and numbers as the schemas that are made up, out.

use serde_json::{Map, Value, json};

use super::generate::{Random, number};
use super::tables::{NAMES, NUMBERS, STEPS, TEXTS};

/// A value over the same names, texts and numbers as the schemas.
pub(crate) fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 7 } else { 11 }) {
        0 => Value::Null,
        1 => json!(random.one_in(2)),
        2 | 3 => number(random),
        4 => json!(*random.of(NUMBERS) * *random.of(STEPS)),
        5 | 6 => json!(random.of(TEXTS)),
        7 | 8 => (0..random.below(4)).map(|_| value(random, depth - 1)).collect(),
        _ => (0..random.below(4))
            .map(|_| {
                let name = if random.one_in(6) { random.of(TEXTS) } else { random.of(NAMES) };
                ((*name).to_owned(), value(random, depth - 1))
            })
            .collect::<Map<_, _>>()
            .into(),
    }
}

/// A value that was made to fit a schema, as far as a glance at it tells.
pub(crate) fn value_for(random: &mut Random, root: &Value, schema: &Value, depth: usize) -> Value {
    let Some(members) = schema.as_object().filter(|_| depth > 0) else { return value(random, 1) };
    let inner = |name: &str| members.get(name);
    let pointer = inner("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix('#'));
    if let Some(target) = pointer.and_then(|pointer| root.pointer(pointer)) {
        return value_for(random, root, target, depth - 1);
    }
    if let Some(only) = inner("const") {
        return only.clone();
    }
    if let Some(values) = inner("enum").and_then(Value::as_array).filter(|values| !values.is_empty()) {
        return random.of(values).clone();
    }
    for joined in ["anyOf", "oneOf", "allOf"] {
        if let Some(parts) = inner(joined).and_then(Value::as_array).filter(|parts| !parts.is_empty())
            && !random.one_in(3)
        {
            let part = random.of(parts);
            return value_for(random, root, part, depth - 1);
        }
    }
    let kind = match inner("type") {
        Some(Value::String(kind)) => kind.clone(),
        Some(Value::Array(kinds)) if !kinds.is_empty() => {
            random.of(kinds).as_str().unwrap_or_default().to_owned()
        }
        _ if inner("properties").is_some() || inner("required").is_some() => "object".to_owned(),
        _ if inner("items").is_some() || inner("contains").is_some() => "array".to_owned(),
        _ => return value(random, depth),
    };
    match kind.as_str() {
        "null" => Value::Null,
        "boolean" => json!(random.one_in(2)),
        "integer" | "number" => {
            let near = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
            let bounds: Vec<f64> = near.iter().filter_map(|name| inner(name)?.as_f64()).collect();
            let start = if bounds.is_empty() { 0.0 } else { *random.of(&bounds) };
            let float = start + *random.of(&[0.0, 1.0, -1.0, 0.5, 2.0, 0.1, 0.25, 3.0, 6.0, -4.5]);
            if float.fract() == 0.0 { json!(float as i64) } else { json!(float) }
        }
        "string" => json!(random.of(TEXTS)),
        "array" => {
            let mut items = Vec::new();
            let item = inner("items").filter(|items| !items.is_array()).or(inner("contains"));
            let tuple = inner("prefixItems").or(inner("items")).and_then(Value::as_array);
            for at in 0..random.below(4) {
                let rule = tuple.and_then(|tuple| tuple.get(at)).or(item).unwrap_or(&Value::Bool(true));
                items.push(value_for(random, root, rule, depth - 1));
            }
            Value::Array(items)
        }
        _ => {
            let mut object = Map::new();
            let rules = inner("properties").and_then(Value::as_object);
            let required = inner("required").and_then(Value::as_array).into_iter().flatten();
            let mut wanted: Vec<String> = required.filter_map(Value::as_str).map(str::to_owned).collect();
            wanted.extend(rules.into_iter().flat_map(Map::keys).filter(|_| random.one_in(2)).cloned());
            if random.one_in(3) {
                wanted.push((*random.of(NAMES)).to_owned());
            }
            for name in wanted {
                let rule = rules.and_then(|rules| rules.get(&name)).unwrap_or(&Value::Bool(true));
                object.insert(name, value_for(random, root, rule, depth - 1));
            }
            Value::Object(object)
        }
    }
}

/// A value next to another: one part of it, somewhere inside, is another one, or gone, or one more.
pub(crate) fn next_to(random: &mut Random, of: &Value) -> Value {
    let mut near = of.clone();
    change(random, &mut near);
    near
}

fn change(random: &mut Random, at: &mut Value) {
    match at {
        Value::Array(items) if !random.one_in(4) => match random.below(3) {
            0 => items.push(value(random, 1)),
            1 => drop(items.pop()),
            _ if items.is_empty() => {}
            _ => {
                let place = random.below(items.len());
                change(random, &mut items[place]);
            }
        },
        Value::Object(members) if !random.one_in(4) => {
            let names: Vec<String> = members.keys().cloned().collect();
            match random.below(3) {
                0 => drop(members.insert((*random.of(NAMES)).to_owned(), value(random, 1))),
                _ if names.is_empty() => {}
                1 => drop(members.remove(random.of(&names))),
                _ => {
                    let name = random.of(&names);
                    change(random, &mut members[name]);
                }
            }
        }
        other => *other = value(random, 1),
    }
}
