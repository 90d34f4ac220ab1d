//! Tests costly declarations: outcomes within the step limit. No test depends on time.

use serde_json::{Map, Value, json};

use super::super::{Outcome, Terms, requests, results};
use super::*;

fn terms(schema: &Value) -> Terms {
    Terms::read(schema.to_string().as_bytes()).unwrap()
}

/// Both directions with the work of each, and the steps that were taken.
fn compared(caller: &Value, provider: &Value) -> [(Outcome, u64); 2] {
    let (caller, provider) = (terms(caller), terms(provider));
    let steps = |compare: &dyn Fn(&mut Work) -> Outcome| {
        let mut work = Work::new();
        let outcome = compare(&mut work);
        (outcome, STEPS_MAX - work.budget.left())
    };
    [
        steps(&|work| requests::compare(&caller, &provider, work)),
        steps(&|work| results::compare(&provider, &caller, work)),
    ]
}

/// `count` properties of three values each, the last of which is `last`.
fn enums(count: usize, last: &str) -> Value {
    let members: Map<String, Value> =
        (0..count).map(|n| (format!("p{n}"), json!({ "enum": ["a", "b", last] }))).collect();
    json!({ "type": "object", "properties": members, "additionalProperties": false })
}

/// A tree of `count` kinds of nodes, each with a list of further ones.
fn kinds(count: usize, least: i64) -> Value {
    let branch = |n| {
        json!({
            "type": "object",
            "properties": {
                "kind": { "const": n },
                "weight": { "type": "integer", "minimum": least },
                "next": { "type": "array", "items": { "$ref": "#/$defs/node" } },
            },
            "required": ["kind"],
        })
    };
    let branches: Value = (0..count).map(branch).collect();
    json!({ "$ref": "#/$defs/node", "$defs": { "node": { "anyOf": branches } } })
}

#[test]
fn a_large_comparison_ends_within_its_steps() {
    for (caller, provider) in [
        (enums(1_000, "c"), enums(1_000, "d")),
        (enums(1_000, "c"), enums(999, "c")),
        (kinds(40, 0), kinds(40, 1)),
        (kinds(40, 0), kinds(39, 0)),
    ] {
        for (outcome, steps) in compared(&caller, &provider) {
            assert!(steps <= STEPS_MAX, "{steps}: {outcome:?}");
        }
    }
}

#[test]
fn what_is_refuted_stays_so_when_the_steps_are_used_up() {
    // Each of the thousand loses a value, and each value that is given up compiles the thousand again.
    let [(outcome, steps), _] = compared(&enums(1_000, "c"), &enums(1_000, "d"));
    let Outcome::Incompatible(refutation) = &outcome else { panic!("{outcome:?}") };
    assert_eq!((steps, refutation.rule.as_str()), (STEPS_MAX, "enum"));
    let values = refutation.witness.as_object().unwrap().values();
    assert!(values.into_iter().any(|value| value == "c"), "{refutation:?}");
}

#[test]
fn the_usual_comparison_takes_a_small_part_of_its_steps() {
    let [(outcome, steps), _] = compared(&enums(20, "c"), &enums(20, "d"));
    assert_eq!(outcome.lost().len(), 20, "{outcome:?}");
    assert!(steps < STEPS_MAX / 4, "{steps} steps");
}
