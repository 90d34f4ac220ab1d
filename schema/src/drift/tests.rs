//! Tests pairs of contracts: what is proven, refuted or left open.

use capd_proto::capability::Version;
use capd_proto::negotiate::Served;
use serde_json::json;

use super::gate::{CASES_MAX, Passage};
use super::*;
use crate::Artifacts;

const OPEN: &str = r#"{"type":"object"}"#;
const COUNTED: &str = r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"],"additionalProperties":false}"#;
const NAMED: &str = r#"{"type":"object","properties":{"count":{"type":"integer"},"name":{"type":"string"}},"required":["count","name"],"additionalProperties":false}"#;

fn artifact(schema: &str) -> Arc<Artifact> {
    Artifacts::default().declare(schema.as_bytes().to_vec()).unwrap()
}

fn needed(input: Option<&str>, output: Option<&str>) -> Needed {
    Needed { input: input.map(artifact), output: output.map(artifact) }
}

fn told(schema: Option<&str>) -> Told {
    schema.map_or(Told::Anything, |schema| Told::Schema(artifact(schema)))
}

fn offered(input: Option<&str>, output: Option<&str>) -> Offered {
    Offered { input: told(input), output: told(output) }
}

fn findings(standing: &Standing) -> &[Finding] {
    let Standing::Broken(findings) = standing else { panic!("{standing:?}") };
    findings
}

#[test]
fn params_that_a_provider_no_longer_takes_are_refuted_with_one_that_it_refuses() {
    let standing = prove(&needed(Some(COUNTED), None), &offered(Some(NAMED), None));
    let [Finding { side: Side::Request, fault: Fault::Refuted { witness, rule, violations, .. } }] =
        findings(&standing)
    else {
        panic!("{standing:?}")
    };
    let witness = witness.as_ref().unwrap();
    assert!(witness["count"].is_number() && witness.get("name").is_none(), "{witness}");
    assert_eq!((rule.as_str(), violations[0].path.as_str()), ("required", "/name"));
    assert_eq!(code(findings(&standing)), Code::SCHEMA_DRIFT);
}

#[test]
fn results_that_a_caller_does_not_know_are_refuted_the_other_way_round() {
    let standing = prove(&needed(None, Some(COUNTED)), &offered(None, Some(NAMED)));
    assert_eq!(findings(&standing)[0].side, Side::Response);
    // What gives less is no drift.
    let gives_less = r#"{"type":"object","properties":{"count":{"enum":[1,2]}},"required":["count"],"additionalProperties":false}"#;
    assert_eq!(prove(&needed(None, Some(COUNTED)), &offered(None, Some(gives_less))), Standing::Proven);
    // What takes more is none either.
    assert_eq!(prove(&needed(Some(COUNTED), None), &offered(Some(OPEN), None)), Standing::Proven);
}

#[test]
fn both_sides_are_looked_at_and_each_that_does_not_hold_is_told() {
    let standing = prove(&needed(Some(COUNTED), Some(COUNTED)), &offered(Some(NAMED), Some(NAMED)));
    let sides: Vec<_> = findings(&standing).iter().map(|finding| finding.side).collect();
    assert_eq!(sides, [Side::Request, Side::Response]);
    let shown = findings(&standing)[0].json();
    assert_eq!((&shown["side"], &shown["verdict"]), (&json!("request"), &json!("refuted")));
    assert_eq!(shown["violations"][0]["keyword"], "required");
}

#[test]
fn a_side_without_a_schema_takes_anything_and_gives_anything() {
    assert_eq!(prove(&needed(Some(COUNTED), None), &offered(None, Some(OPEN))), Standing::Proven);
    let standing = prove(&needed(None, Some(COUNTED)), &offered(Some(OPEN), None));
    assert!(matches!(findings(&standing)[0].fault, Fault::Refuted { .. }), "{standing:?}");
    assert_eq!(prove(&needed(None, Some("true")), &offered(Some(OPEN), None)), Standing::Proven);
}

#[test]
fn a_provider_that_tells_too_little_is_neither_proven_nor_refuted() {
    let both = needed(Some(COUNTED), Some(COUNTED));
    assert_eq!(prove(&both, &offered(None, None)), Standing::Untold);
    let unseen = Offered { input: Told::Unknown, output: told(Some(COUNTED)) };
    assert_eq!(prove(&both, &unseen), Standing::Untold);
    let half = Offered { input: Told::Unknown, output: told(Some(NAMED)) };
    assert_eq!(findings(&prove(&both, &half)).len(), 1, "what is told is held to");
    assert_eq!(prove(&Needed::default(), &offered(Some(NAMED), None)), Standing::Proven);
}

#[test]
fn what_cannot_be_proven_is_told_from_what_is_refuted() {
    let closed =
        r#"{"type":"object","properties":{"count":{"type":"integer"}},"unevaluatedProperties":false}"#;
    let standing = prove(&needed(Some(COUNTED), None), &offered(Some(closed), None));
    let [Finding { fault: Fault::Unknown { construct, .. }, .. }] = findings(&standing) else {
        panic!("{standing:?}")
    };
    assert_eq!(construct, "unevaluatedProperties");
    assert_eq!(code(findings(&standing)), Code::UNSUPPORTED_SCHEMA);
    let refuted = prove(&needed(Some(COUNTED), Some(COUNTED)), &offered(Some(closed), Some(NAMED)));
    assert_eq!(code(findings(&refuted)), Code::SCHEMA_DRIFT, "what is refuted weighs more");
    let unknown = [Finding {
        side: Side::Request,
        fault: Fault::Unknown { path: "/a".to_owned(), construct: "format".to_owned() },
    }];
    assert_eq!(code(&unknown), Code::UNSUPPORTED_SCHEMA);
    assert_eq!(unknown[0].json()["construct"], "format");
    assert_eq!(unknown[0].to_string(), "params: format at /a cannot be proven");
}

#[test]
fn a_schema_that_no_payload_can_be_held_against_proves_nothing() {
    let misspelt = r#"{"type":"object","requird":["count"]}"#;
    for (needed, offered) in [
        (needed(Some(COUNTED), None), offered(Some(misspelt), None)),
        (needed(None, Some(OPEN)), offered(None, Some(misspelt))),
        (needed(Some(misspelt), None), offered(Some(misspelt), None)),
    ] {
        let standing = prove(&needed, &offered);
        let Fault::Unknown { construct, .. } = &findings(&standing)[0].fault else { panic!("{standing:?}") };
        assert!(construct.contains("requird"), "{construct}");
    }
}

#[test]
fn a_witness_that_no_reader_would_take_is_left_out() {
    let long = format!(r#"{{"type":"string","minLength":{}}}"#, WITNESS_BYTES_MAX + 1);
    let standing = prove(&needed(Some(&long), None), &offered(Some(r#"{"type":"integer"}"#), None));
    let Fault::Refuted { witness: None, violations, .. } = &findings(&standing)[0].fault else {
        panic!("{standing:?}")
    };
    assert_eq!(violations[0].keyword, "type");
    let deep = (0..=WITNESS_DEPTH_MAX).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(fitting(deep), None);
}

fn requirement(version: Option<&str>, input: &str) -> Requirement {
    Requirement {
        name: "org.example.echo".parse().unwrap(),
        version: version.map(|range| range.parse().unwrap()),
        needed: needed(Some(input), None),
    }
}

fn served(version: &str) -> Served {
    Served::only(version.parse::<Version>().unwrap())
}

/// Asks, decides what is asked back, and asks again.
fn pass(gate: &Gate, version: &str, offered: &Offered) -> Passage {
    loop {
        match gate.passage("org.example.echo", &served(version), offered) {
            Passage::Undecided(question) => {
                let standing = prove(&question.requirement.needed, &question.offered);
                gate.decide(question.case, standing);
            }
            passage => return passage,
        }
    }
}

#[test]
fn a_case_is_decided_once_and_another_schema_is_another_case() {
    let gate = Gate::new(vec![requirement(None, COUNTED)]);
    assert!(matches!(
        gate.passage("org.example.none", &served("1.0.0"), &offered(None, None)),
        Passage::Free
    ));
    let open = offered(Some(OPEN), None);
    assert!(matches!(pass(&gate, "1.0.0", &open), Passage::Open(_)));
    let again = gate.passage("org.example.echo", &served("1.7.0"), &offered(Some(OPEN), None));
    assert!(matches!(again, Passage::Open(_)), "{again:?}");
    let other = gate.passage("org.example.echo", &served("1.0.0"), &offered(Some(NAMED), None));
    assert!(matches!(other, Passage::Undecided(_)), "{other:?}");
    assert!(matches!(pass(&gate, "1.0.0", &offered(Some(NAMED), None)), Passage::Shut(..)));
    assert!(matches!(pass(&gate, "1.0.0", &offered(None, None)), Passage::Unproven(_)));
}

#[test]
fn of_several_requirements_those_hold_that_are_about_the_version() {
    let gate =
        Gate::new(vec![requirement(Some("<2.0.0"), COUNTED), requirement(Some(">=2.0.0 <3.0.0"), NAMED)]);
    let takes_named = offered(Some(NAMED), None);
    assert!(matches!(pass(&gate, "1.0.0", &takes_named), Passage::Shut(..)));
    assert!(matches!(pass(&gate, "2.0.0", &takes_named), Passage::Open(_)));
    assert!(matches!(pass(&gate, "3.0.0", &takes_named), Passage::Shut(..)), "outside of both, both hold");
    assert!(matches!(pass(&gate, "3.0.0", &offered(Some(OPEN), None)), Passage::Open(_)));
}

#[test]
fn a_requirement_without_a_schema_holds_to_its_range() {
    let only = |range: &str| Requirement { needed: Needed::default(), ..requirement(Some(range), OPEN) };
    let gate = Gate::new(vec![only(">=1.0.0 <2.0.0")]);
    let anything = offered(None, None);
    assert!(matches!(pass(&gate, "1.9.0", &anything), Passage::Open(_)));
    let Passage::Shut(_, standing) = pass(&gate, "2.0.0", &anything) else { panic!("it passes") };
    let [finding] = findings(&standing) else { panic!("{standing:?}") };
    assert_eq!(finding.to_string(), "version 2.0.0 is not in >=1.0.0 <2.0.0");
    assert_eq!(code(findings(&standing)), Code::SCHEMA_DRIFT);
    // Another requirement of the name may be about the version.
    let gate = Gate::new(vec![only(">=1.0.0 <2.0.0"), requirement(Some(">=2.0.0"), OPEN)]);
    assert!(matches!(pass(&gate, "2.0.0", &offered(Some(OPEN), None)), Passage::Open(_)));
    assert!(matches!(pass(&gate, "0.9.0", &offered(Some(OPEN), None)), Passage::Shut(..)));
    // One who serves older callers is in the range of those.
    let mut newer = served("2.4.0");
    newer.supported_ranges = vec![">=1.0.0 <2.0.0".parse().unwrap()];
    let gate = Gate::new(vec![only(">=1.0.0 <2.0.0")]);
    let first = gate.passage("org.example.echo", &newer, &anything);
    assert!(matches!(first, Passage::Undecided(_)), "{first:?}");
}

#[test]
fn a_provider_of_older_versions_is_met_by_what_is_required_of_those() {
    let mut newer = served("1.4.0");
    newer.supported_ranges = vec![">=1.0.0 <2.0.0".parse().unwrap()];
    assert!(requirement(Some("1.0.0"), OPEN).is_about(&newer));
    assert!(!requirement(Some("2.0.0"), OPEN).is_about(&newer));
}

#[test]
fn the_oldest_verdicts_go_when_there_are_too_many() {
    let gate = Gate::new(vec![requirement(None, OPEN)]);
    let schema = |number: usize| format!(r#"{{"type":"object","maxProperties":{number}}}"#);
    let ask =
        |number| gate.passage("org.example.echo", &served("1.0.0"), &offered(Some(&schema(number)), None));
    for number in 0..=CASES_MAX {
        let Passage::Undecided(question) = ask(number) else { panic!("{number}") };
        gate.decide(question.case, Standing::Proven);
    }
    assert!(matches!(ask(0), Passage::Undecided(_)));
    assert!(matches!(ask(1), Passage::Open(_)));
    assert!(matches!(ask(CASES_MAX), Passage::Open(_)));
}
