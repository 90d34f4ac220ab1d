//! A pattern of a scenario and what was seen in; where they differ out. The rules are those of `sdk/conformance/matching.py`.

use serde_json::{Map, Value};

/// What `$bind` has bound so far.
pub type Bound = Map<String, Value>;

/// `None` when it fits; else the place, what was expected there, and what was seen.
pub fn difference(pattern: &Value, seen: Option<&Value>, bound: &mut Bound, path: &str) -> Option<String> {
    let place = if path.is_empty() { "/" } else { path };
    if let Value::Object(members) = pattern
        && let (1, Some((name, argument))) = (members.len(), members.iter().next())
        && name.starts_with('$')
        && !["$ref", "$schema"].contains(&name.as_str())
    {
        return matcher(name, argument, seen, bound, path);
    }
    let Some(seen) = seen else { return Some(format!("{place}: expected {pattern}, saw nothing")) };
    match (pattern, seen) {
        (Value::Object(pattern), Value::Object(found)) => {
            for (name, inner) in pattern {
                let differs = difference(inner, found.get(name), bound, &format!("{path}/{name}"));
                if differs.is_some() {
                    return differs;
                }
            }
            let surplus = found.iter().find(|(name, _)| !pattern.contains_key(*name));
            surplus.map(|(name, value)| format!("{path}/{name}: expected nothing, saw {value}"))
        }
        (Value::Array(pattern), Value::Array(found)) => {
            if pattern.len() != found.len() {
                return Some(format!("{place}: expected {} items, saw {seen}", pattern.len()));
            }
            let pairs = pattern.iter().zip(found).enumerate();
            pairs
                .map(|(at, (inner, item))| difference(inner, Some(item), bound, &format!("{path}/{at}")))
                .find_map(|it| it)
        }
        _ => (!equal(pattern, seen)).then(|| format!("{place}: expected {pattern}, saw {seen}")),
    }
}

fn matcher(
    name: &str,
    argument: &Value,
    seen: Option<&Value>,
    bound: &mut Bound,
    path: &str,
) -> Option<String> {
    let text = || argument.as_str().expect("a text");
    let fits = match (name, seen) {
        ("$absent", seen) => seen.is_none(),
        (_, None) => false,
        ("$any", Some(_)) => true,
        ("$bind", Some(seen)) => equal(bound.entry(text()).or_insert_with(|| seen.clone()), seen),
        ("$other_than", Some(seen)) => bound.get(text()).is_none_or(|other| !equal(other, seen)),
        ("$regex", Some(seen)) => seen.as_str().is_some_and(|seen| is_match(text(), seen)),
        ("$subset", Some(seen)) => {
            for (member, pattern) in argument.as_object().expect("an object") {
                let differs = difference(pattern, seen.get(member), bound, &format!("{path}/{member}"));
                if differs.is_some() {
                    return differs;
                }
            }
            seen.is_object()
        }
        ("$has", Some(seen)) => {
            let (patterns, items) = (argument.as_array().expect("a list"), seen.as_array());
            let is_there = |pattern: &Value| {
                let mut items = items.into_iter().flatten();
                items.any(|item| difference(pattern, Some(item), &mut bound.clone(), "").is_none())
            };
            items.is_some() && patterns.iter().all(is_there)
        }
        ("$duration_ms", Some(seen)) => {
            let ms = seen.as_str().and_then(|text| text.strip_suffix("ms")?.parse::<u64>().ok());
            ms.is_some() && ms == argument.as_u64()
        }
        (name, Some(_)) => panic!("{path}: there is no matcher {name}"),
    };
    (!fits).then(|| format!("{path}: expected {name} {argument}, saw {}", seen.unwrap_or(&Value::Null)))
}

/// Numbers are equal by value, to the last digit.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => match (left.as_i128(), right.as_i128()) {
            (Some(left), Some(right)) => left == right,
            (_, _) => left.as_f64() == right.as_f64(),
        },
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let is_same =
                |(name, value): (&String, &Value)| right.get(name).is_some_and(|it| equal(value, it));
            left.len() == right.len() && left.iter().all(is_same)
        }
        (left, right) => left == right,
    }
}

/// The expressions that the scenarios use, which are few.
fn is_match(expression: &str, text: &str) -> bool {
    let literal = |part: &str| {
        assert!(!part.contains(['*', '[', '(', '?', '\\', '|', '+']), "{expression} is more than this reads");
    };
    if let Some(part) = expression.strip_prefix("(?!.*").and_then(|rest| rest.strip_suffix(").*")) {
        literal(part);
        return !text.contains(part);
    }
    let (is_open, rest) = match expression.strip_prefix(".*") {
        Some(rest) => (true, rest),
        None => (false, expression),
    };
    let part = rest.strip_suffix(".*").unwrap_or_else(|| panic!("{expression} is more than this reads"));
    literal(part);
    if is_open { text.contains(part) } else { text.starts_with(part) }
}
