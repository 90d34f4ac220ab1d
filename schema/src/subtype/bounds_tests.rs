//! Tests large schemas: proofs stop when their steps are used up. Tests compare counts, not times.

use serde_json::{Map, json};

use super::*;

fn compiled(schema: &Value) -> Compiled {
    Compiled::compile(schema.to_string().as_bytes()).unwrap()
}

fn names(count: usize) -> Value {
    (0..count).map(|n| format!("p{n}")).collect()
}

fn object(count: usize, member: impl Fn(usize) -> Value) -> Value {
    (0..count).map(|n| (format!("p{n}"), member(n))).collect::<Map<_, _>>().into()
}

/// Steps that a proof asked for when there were none left.
fn refused(a: &Compiled, b: &Compiled) -> u64 {
    let mut solver = Solver::new(a, b, STEPS_MAX);
    let outcome = solver.solve(&[Lit::new(0, a.root), Lit::new(1, b.root).not()]);
    assert!(!matches!(outcome, Outcome::Found(_)) || !solver.budget().is_spent());
    solver.budget().refused()
}

#[test]
fn what_has_no_steps_left_tries_no_further_ways() {
    let required = |count: usize| json!({ "type": "object", "required": names(count) });
    let needs =
        |count: usize| json!({ "dependentRequired": object(count, |n| json!([format!("p{}", n + 1)])) });
    let value = |count: usize| json!({ "const": object(count, |n| json!([n, "x"])) });
    let by_pattern: Map<String, Value> =
        (0..250).map(|n| (format!("^x{n}.*a{{{}}}$", n % 7), json!({ "minimum": n }))).collect();
    let by_pattern = json!({ "patternProperties": by_pattern });
    let unwanted: Value =
        (0..2_000).map(|n| json!({ "required": [format!("p{n}")], "maxProperties": n })).collect();
    let schemas = [
        required(6_000),
        json!({ "allOf": [required(6_000), { "maxProperties": 3 }] }),
        needs(3_000),
        value(4_000),
        by_pattern,
        json!({ "type": "object", "anyOf": unwanted }),
    ]
    .map(|schema| compiled(&schema));
    let [required, fewer, needs, value, by_pattern, unwanted] = &schemas;
    for (name, a, b) in [
        ("names that are required, fewer of them", required, fewer),
        ("names that are required, one value", required, value),
        ("names that are required, needs of each other", required, needs),
        ("patterns of names, many at once", by_pattern, unwanted),
    ] {
        let refused = refused(a, b);
        assert!(refused <= REFUSED_MAX, "{name}: {refused} times");
    }
}

/// One for each call that a proof nests, and a few on the way back from each.
const REFUSED_MAX: u64 = 2_000;
