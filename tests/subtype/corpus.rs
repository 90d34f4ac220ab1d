//! Pairs of our own in, each with its true answer; every verdict is that answer.

use capd::schema::subtype::Verdict;
use serde_json::{Value, json};

use super::support::verdict;

/// One pair a line: `name`, `sub`, `sup`, and whether every value of the one is a value of the other.
const PAIRS: &str = include_str!("pairs.jsonl");

#[test]
fn every_pair_has_its_true_verdict() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in PAIRS.lines() {
        let pair: Value = serde_json::from_str(line).unwrap();
        let verdict = verdict(&pair["sub"], &pair["sup"]);
        let is_right = match &verdict {
            Verdict::Proven => pair["truth"] == true,
            Verdict::Refuted { .. } => pair["truth"] == false,
            Verdict::Unknown { .. } => false,
        };
        count += 1;
        if !is_right {
            wrong.push(format!("{}: {verdict:?}", pair["name"]));
        }
    }
    assert!(count > 150, "only {count} pairs");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn refuted(sub: &str, sup: &str) -> (Value, String, String) {
    match verdict(&serde_json::from_str(sub).unwrap(), &serde_json::from_str(sup).unwrap()) {
        Verdict::Refuted { witness, path, rule } => (witness, path, rule),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refutation_says_where_and_by_which_rule() {
    let (_, path, rule) = refuted(
        r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"}}},"required":["a"]}"#,
        r#"{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}}}}"#,
    );
    assert_eq!((path.as_str(), rule.as_str()), ("/a/0", "type"));
    let (witness, path, rule) = refuted(r#"{"type":"object"}"#, r#"{"type":"object","required":["b"]}"#);
    assert_eq!((witness, path.as_str(), rule.as_str()), (serde_json::json!({}), "/b", "required"));
    let (_, path, _) = refuted("true", r#"{"type":"string"}"#);
    assert_eq!(path, "/");
}

#[test]
fn what_is_not_modelled_is_named() {
    let number = json!({ "type": "integer" });
    for (sub, sup, path, construct) in [
        (
            json!({ "type": "string" }),
            json!({ "type": "string", "pattern": r"^(?:\w+\b)?" }),
            "/pattern",
            "pattern",
        ),
        (
            json!({ "type": "object", "properties": { "a": number } }),
            json!({ "type": "object", "properties": { "a": {} }, "unevaluatedProperties": true }),
            "/unevaluatedProperties",
            "unevaluatedProperties",
        ),
        (
            json!({ "type": "integer" }),
            json!({ "$ref": "#one", "$defs": { "a": { "$anchor": "one", "type": "number" } } }),
            "/$ref",
            "$ref",
        ),
    ] {
        let expected = Verdict::Unknown { path: path.to_owned(), construct: construct.to_owned() };
        assert_eq!(verdict(&sub, &sup), expected, "{sub} {sup}");
    }
}
