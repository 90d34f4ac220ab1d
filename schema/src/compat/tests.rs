//! Tests pairs of declarations: the outcome in each direction, to the path.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use super::version::{Bump, needed, suffices};
use super::*;

fn terms(schema: &Value) -> Terms {
    Terms::read(schema.to_string().as_bytes()).unwrap()
}

fn requests(caller: &Value, provider: &Value) -> Outcome {
    requests::compare(&terms(caller), &terms(provider), &mut Work::new())
}

fn results(provider: &Value, caller: &Value) -> Outcome {
    results::compare(&terms(provider), &terms(caller), &mut Work::new())
}

/// The lost features as `kind path`, each refutation checked against both schemas.
fn lost(outcome: &Outcome, sender: &Value, receiver: &Value) -> Vec<String> {
    let Outcome::Partial(lost) = outcome else { panic!("{outcome:?}") };
    for refutation in lost.iter().filter_map(|lost| lost.refutation.as_ref()) {
        check(refutation, sender, receiver);
    }
    lost.iter().map(|lost| format!("{} {}", lost.feature.kind(), lost.path)).collect()
}

fn check(refutation: &Refutation, sender: &Value, receiver: &Value) {
    let fits = |schema: &Value| jsonschema::validator_for(schema).unwrap().is_valid(&refutation.witness);
    assert!(fits(sender) && !fits(receiver), "{refutation:?}");
}

fn object(properties: Value, required: &[&str], is_closed: bool) -> Value {
    let mut schema = json!({"type": "object", "properties": properties, "required": required});
    if is_closed {
        schema["additionalProperties"] = false.into();
    }
    schema
}

fn asked_lost(caller: &Value, provider: &Value) -> Vec<String> {
    lost(&requests(caller, provider), caller, provider)
}

fn given_lost(provider: &Value, caller: &Value) -> Vec<String> {
    lost(&results(provider, caller), provider, caller)
}

#[track_caller]
fn refused(outcome: &Outcome, sender: &Value, receiver: &Value) -> (String, String) {
    let Outcome::Incompatible(refutation) = outcome else { panic!("{outcome:?}") };
    check(refutation, sender, receiver);
    (refutation.path.clone(), refutation.rule.clone())
}

#[test]
fn a_provider_that_takes_more_serves_a_caller_in_full() {
    let text = json!({"type": "string"});
    let old = object(json!({"code": text}), &["code"], true);
    let new = object(json!({"code": text, "context": text}), &["code"], true);
    assert_eq!(requests(&old, &new), Outcome::Full);
    assert_eq!(results(&new, &object(json!({"code": text}), &["code"], false)), Outcome::Full);
}

#[test]
fn an_optional_property_that_the_provider_refuses_is_lost() {
    let text = json!({"type": "string"});
    let old = object(json!({"code": text}), &["code"], true);
    let new = object(json!({"code": text, "context": text, "depth": {"type": "integer"}}), &["code"], true);
    assert_eq!(asked_lost(&new, &old), ["property /context", "property /depth"]);
    // One that the caller always sends cannot be given up.
    let always = object(json!({"code": text, "context": text}), &["code", "context"], true);
    let rule = refused(&requests(&always, &old), &always, &old);
    assert_eq!(rule, ("/context".to_owned(), "additionalProperties".to_owned()));
}

#[test]
fn an_optional_property_is_lost_where_the_provider_takes_less_of_it() {
    let with = |maximum: u64| {
        object(
            json!({"code": {}, "depth": {"type": "integer", "minimum": 0, "maximum": maximum}}),
            &["code"],
            true,
        )
    };
    assert_eq!(asked_lost(&with(10), &with(5)), ["property /depth"]);
    assert_eq!(requests(&with(5), &with(10)), Outcome::Full);
    let mut needed = with(10);
    needed["required"] = json!(["code", "depth"]);
    assert_eq!(refused(&requests(&needed, &with(5)), &needed, &with(5)).0, "/depth");
}

#[test]
fn what_becomes_required_breaks_a_caller_that_leaves_it_out() {
    let old = object(json!({"code": {}, "language": {}}), &["code"], true);
    let new = object(json!({"code": {}, "language": {}}), &["code", "language"], true);
    let rule = refused(&requests(&old, &new), &old, &new);
    assert_eq!(rule, ("/language".to_owned(), "required".to_owned()));
    // Inside an optional property it is that property that is lost.
    let around = |inner: &Value| object(json!({"options": inner}), &[], true);
    assert_eq!(asked_lost(&around(&old), &around(&new)), ["property /options"]);
}

#[test]
fn values_of_an_enum_are_lost_one_by_one_until_none_is_left() {
    let severity = |values: Value| object(json!({"severity": {"enum": values}}), &["severity"], true);
    let caller = severity(json!(["low", "med", "high", null]));
    assert_eq!(asked_lost(&caller, &severity(json!(["low", "high"]))).len(), 2);
    let outcome = requests(&caller, &severity(json!(["low", "high"])));
    let mut values: Vec<_> = outcome.lost().iter().map(|lost| lost.feature.to_string()).collect();
    values.sort();
    assert_eq!(values, ["the provider refuses the value \"med\"", "the provider refuses the value null"]);
    let other = severity(json!(["none"]));
    assert_eq!(refused(&requests(&caller, &other), &caller, &other).0, "/severity");
}

#[test]
fn one_of_several_types_or_alternatives_is_lost() {
    let id = |schema: Value| object(json!({"id": schema}), &["id"], true);
    let (both, one) = (id(json!({"type": ["string", "null"]})), id(json!({"type": "string"})));
    assert_eq!(asked_lost(&both, &one), ["type /id"]);
    let either = id(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}));
    assert_eq!(asked_lost(&either, &one), ["type /id"]);
    let tagged = |kinds: &[&str]| {
        let branches: Vec<_> = kinds
            .iter()
            .map(|kind| {
                object(json!({"kind": {"const": kind}, *kind: {"type": "integer"}}), &["kind", *kind], true)
            })
            .collect();
        json!({"oneOf": branches})
    };
    let (three, two) = (tagged(&["a", "b", "c"]), tagged(&["a", "c"]));
    assert_eq!(asked_lost(&three, &two), ["alternative /"]);
    let Outcome::Partial(lost) = requests(&three, &two) else { panic!() };
    assert_eq!(lost[0].feature, Feature::Alternative("/oneOf/1".to_owned()));
    assert_eq!(requests(&two, &three), Outcome::Full);
}

#[test]
fn an_open_caller_may_send_what_the_provider_reads_otherwise() {
    let old = object(json!({"code": {"type": "string"}}), &["code"], false);
    let new = object(json!({"code": {"type": "string"}, "context": {"type": "string"}}), &["code"], false);
    // Nothing keeps an open caller from a `context` that is no text.
    assert_eq!(asked_lost(&old, &new), ["undeclared /"]);
    // The other way round everything is taken, and `context` has no effect.
    assert_eq!(asked_lost(&new, &old), ["ignored /context"]);
    let closed = object(json!({"code": {"type": "string"}}), &["code"], true);
    assert_eq!(asked_lost(&old, &closed), ["undeclared /"]);
}

#[test]
fn a_feature_is_found_inside_items_maps_and_references() {
    let within = |inner: Value| {
        json!({
            "type": "object",
            "properties": {
                "files": {"type": "array", "minItems": 1, "items": {"$ref": "#/definitions/file"}},
                "named": {"type": "object", "additionalProperties": {"$ref": "#/definitions/file"}},
            },
            "required": ["files"],
            "definitions": {"file": inner},
        })
    };
    let new = within(object(json!({"path": {}, "mode": {"enum": ["r", "w"]}}), &["path"], true));
    let old = within(object(json!({"path": {}}), &["path"], true));
    let mut found = asked_lost(&new, &old);
    found.sort();
    assert_eq!(found, ["property /files/*/mode", "property /named/*/mode"]);
    let less = within(object(json!({"path": {}, "mode": {"enum": ["r"]}}), &["path"], true));
    let mut found = asked_lost(&new, &less);
    found.sort();
    assert_eq!(found, ["value /files/*/mode", "value /named/*/mode"]);
}

#[test]
fn a_recursive_schema_is_compared_in_bounded_work() {
    let tree = |extra: &str| {
        let mut properties = json!({"children": {"type": "array", "items": {"$ref": "#"}}});
        properties[extra] = json!({"type": "string"});
        object(properties, &[], true)
    };
    let outcome = requests(&tree("name"), &tree("label"));
    assert!(matches!(outcome, Outcome::Partial(_) | Outcome::Incompatible(_)), "{outcome:?}");
    assert_eq!(requests(&tree("name"), &tree("name")), Outcome::Full);
}

#[test]
fn a_draft_07_root_reference_is_narrowed_behind_it() {
    let behind = |inner: Value| {
        json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/it",
            "definitions": {"it": inner},
        })
    };
    let caller = behind(object(json!({"a": {}, "b": {}}), &["a"], true));
    let provider = behind(object(json!({"a": {}}), &["a"], true));
    assert_eq!(asked_lost(&caller, &provider), ["property /b"]);
}

#[test]
fn a_result_property_that_the_provider_does_not_declare_is_absent() {
    let old = object(json!({"issues": {"type": "array"}}), &["issues"], false);
    let new = |required: &[&str]| {
        object(json!({"issues": {"type": "array"}, "score": {"type": "number"}}), required, false)
    };
    assert_eq!(given_lost(&old, &new(&["issues"])), ["absent /score"]);
    let mut closed = old.clone();
    closed["additionalProperties"] = false.into();
    assert_eq!(given_lost(&closed, &new(&["issues"])), ["absent /score"]);
    // A caller that needs it refuses every result.
    let needs = new(&["issues", "score"]);
    let rule = refused(&results(&old, &needs), &old, &needs);
    assert_eq!(rule, ("/score".to_owned(), "required".to_owned()));
    assert_eq!(results(&needs, &old), Outcome::Full);
}

#[test]
fn a_caller_cannot_give_up_what_it_is_sent() {
    let with = |values: Value| object(json!({"verdict": {"enum": values}}), &[], true);
    let (more, less) = (with(json!(["yes", "no", "later"])), with(json!(["yes", "no"])));
    assert_eq!(refused(&results(&more, &less), &more, &less).0, "/verdict");
    let closed = object(json!({"verdict": {"enum": ["yes", "no"]}}), &[], true);
    let wider = object(json!({"verdict": {"enum": ["yes", "no"]}, "why": {"type": "string"}}), &[], true);
    assert_eq!(refused(&results(&wider, &closed), &wider, &closed).0, "/why");
    let open = object(json!({"verdict": {"enum": ["yes", "no"]}}), &[], false);
    assert_eq!(given_lost(&open, &closed), ["undeclared /"]);
}

#[test]
fn without_a_schema_a_receiver_takes_anything_and_a_sender_promises_nothing() {
    let number = terms(&json!({"type": "number"}));
    let gone = Terms::Unknown { reason: "no document under https://example.org/in.json".to_owned() };
    assert_eq!(requests::compare(&number, &Terms::Undeclared, &mut Work::new()), Outcome::Full);
    assert_eq!(requests::compare(&gone, &Terms::Undeclared, &mut Work::new()), Outcome::Full);
    for sender in [&Terms::Undeclared, &gone] {
        assert_eq!(requests::compare(sender, &number, &mut Work::new()).verdict(), Verdict::Unknown);
        assert_eq!(results::compare(sender, &number, &mut Work::new()).verdict(), Verdict::Unknown);
    }
    assert_eq!(requests::compare(&Terms::Undeclared, &terms(&json!({})), &mut Work::new()), Outcome::Full);
    assert_eq!(results::compare(&Terms::Undeclared, &terms(&json!(true)), &mut Work::new()), Outcome::Full);
    assert_eq!(results::compare(&number, &gone, &mut Work::new()).verdict(), Verdict::Unknown);
    let refused = Terms::read_foreign(br#"{"type": "text"}"#);
    assert!(matches!(&refused, Terms::Unknown { reason } if reason.contains("/type")), "{refused:?}");
}

#[test]
fn a_caller_that_loses_more_than_the_bound_is_incompatible() {
    let many = |count: usize| {
        let names = (0..count).map(|number| (format!("p{number:03}"), json!({})));
        object(Value::Object(names.collect()), &[], true)
    };
    let none = object(json!({}), &[], true);
    let outcome = requests(&many(LOST_MAX), &none);
    assert_eq!(outcome.lost().len(), LOST_MAX, "{outcome:?}");
    assert_eq!(requests(&many(LOST_MAX + 1), &none).verdict(), Verdict::Incompatible);
}

fn contract(input: &Value, output: &Value) -> Contract {
    Contract { input: terms(input), output: terms(output) }
}

#[test]
fn the_whole_is_as_good_as_its_worse_direction() {
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    let both = compare(&contract(&text, &text), &contract(&text, &number));
    assert_eq!((both.requests.verdict(), both.verdict()), (Verdict::Full, Verdict::Incompatible));
    let loose = Contract { input: terms(&text), output: Terms::Undeclared };
    assert_eq!(compare(&contract(&text, &text), &loose).verdict(), Verdict::Unknown);
    let worse = Contract { input: terms(&number), output: Terms::Undeclared };
    assert_eq!(compare(&contract(&text, &text), &worse).verdict(), Verdict::Incompatible);
}

#[test]
fn a_change_needs_the_step_that_tells_its_callers() {
    let text = json!({"type": "string"});
    let old = object(json!({"code": text}), &["code"], true);
    let new = object(json!({"code": text, "context": text}), &["code"], true);
    let reworded = json!({"allOf": [old], "description": "The same."});
    let step = |one: &Value, two: &Value| needed(&contract(one, &text), &contract(two, &text));
    assert_eq!(step(&old, &old), None);
    assert_eq!(step(&old, &reworded), Some(Bump::Patch));
    assert_eq!(step(&old, &new), Some(Bump::Minor));
    assert_eq!(step(&new, &old), Some(Bump::Major));
    let loose = Contract { input: Terms::Undeclared, output: Terms::Undeclared };
    assert_eq!(needed(&loose, &contract(&old, &text)), Some(Bump::Major));
}

#[test]
fn a_version_must_follow_by_as_much_as_the_change_needs() {
    let enough =
        |needed, old: &str, new: &str| suffices(needed, &old.parse().unwrap(), &new.parse().unwrap());
    for (bump, old, new, expected) in [
        (Some(Bump::Major), "1.5.0", "2.0.0", true),
        (Some(Bump::Major), "1.5.0", "1.6.0", false),
        (Some(Bump::Minor), "1.5.0", "1.6.0", true),
        (Some(Bump::Minor), "1.5.0", "1.5.1", false),
        (Some(Bump::Minor), "1.5.0", "2.0.0", true),
        (Some(Bump::Patch), "1.5.0", "1.5.1", true),
        (Some(Bump::Patch), "1.5.0", "1.5.0", false),
        (None, "1.5.0", "1.5.0", true),
        (None, "1.5.0", "1.4.0", false),
        (Some(Bump::Patch), "1.5.0", "1.4.9", false),
        (Some(Bump::Major), "0.3.1", "0.4.0", true),
        (Some(Bump::Major), "0.3.1", "0.3.2", false),
        (Some(Bump::Minor), "0.3.1", "0.3.2", true),
        (Some(Bump::Major), "1.5.0", "2.0.0-rc.1", true),
        (Some(Bump::Major), "2.0.0-rc.1", "2.0.0-rc.2", true),
        (Some(Bump::Major), "2.0.0-rc.1", "2.0.0", true),
        (Some(Bump::Major), "2.0.0", "2.0.0-rc.2", false),
        (Some(Bump::Patch), "2.0.0-rc.2", "2.0.0-rc.2", false),
    ] {
        assert_eq!(enough(bump, old, new), expected, "{bump:?} {old} {new}");
    }
}

fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        select(vec!["string", "integer", "null", "boolean"]).prop_map(|kind| json!({"type": kind})),
        subsequence(vec![json!("x"), json!("y"), json!(1), Value::Null], 1..=4)
            .prop_map(|values| json!({"enum": values})),
        (0..4, 4..8).prop_map(|(low, high)| json!({"type": "integer", "minimum": low, "maximum": high})),
        subsequence(vec!["string", "integer", "null"], 2..=3).prop_map(|kinds| json!({"type": kinds})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let names = ["a", "b", "c"];
        prop_oneof![
            4 => (
                prop::collection::btree_map(select(names.to_vec()), inner.clone(), 1..=3),
                subsequence(names.to_vec(), 0..=1),
                any::<bool>(),
            )
                .prop_map(|(properties, required, is_closed)| {
                    object(json!(properties), &required, is_closed)
                }),
            1 => inner.clone().prop_map(|items| json!({"type": "array", "items": items})),
            1 => prop::collection::vec(inner, 2..=2).prop_map(|branches| json!({"anyOf": branches})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_refutation_is_one_for_both_validators(one in any_schema(), two in any_schema()) {
        for outcome in [requests(&one, &two), results(&one, &two)] {
            match &outcome {
                Outcome::Incompatible(refutation) => check(refutation, &one, &two),
                Outcome::Partial(lost) => {
                    lost.iter().filter_map(|lost| lost.refutation.as_ref()).for_each(|refutation| {
                        check(refutation, &one, &two);
                    });
                    for (index, entry) in lost.iter().enumerate() {
                        let is_again = |other: &Lost| (&other.path, &other.feature) == (&entry.path, &entry.feature);
                        prop_assert!(!lost[index + 1..].iter().any(is_again), "{lost:?}");
                    }
                }
                Outcome::Full | Outcome::Unknown { .. } => {}
            }
        }
    }

    #[test]
    fn a_schema_serves_its_own_callers_in_full(schema in any_schema()) {
        prop_assert_eq!(requests(&schema, &schema), Outcome::Full);
        prop_assert_eq!(results(&schema, &schema), Outcome::Full);
    }
}
