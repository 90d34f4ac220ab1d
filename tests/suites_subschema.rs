//! The public pairs of schemas in, each with a label made by hand; every verdict that differs from its label is listed
//! here, and a witness decides between them.
//!
//! Run with `CAPD_SUITES=DIR cargo test --test suites_subschema`.

#![allow(clippy::unwrap_used, reason = "a test target's helper functions; a panic is its failure")]

use std::fmt::Write;
use std::path::Path;

use capd::schema::subtype::{Compiled, Verdict, is_subtype};
use jsonschema::{Draft, Validator};
use serde_json::Value;

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

/// Labels that differ from our verdict for one reason. Where the label says that the one schema is within the other,
/// the witness of the verdict decides, and it is given here as well.
struct Difference {
    file: &'static str,
    /// What the pairs' ids begin with, up to the colon, and the witness where there is one.
    pairs: &'static [(&'static str, &'static str)],
    reason: &'static str,
}

const IBM: &str = "ibm.json";
const SUBSET: &str = "is-json-schema-subset.json";

const DIFFERENCES: &[Difference] = &[
    Difference {
        file: IBM,
        pairs: &[
            ("487", r#"{"emaik":"","name":""}"#),
            ("489", r#"{"emaik":""}"#),
            ("491", r#"{"emaik":""}"#),
            ("493", r#"{"emaik":"aaaaaaaaaa"}"#),
        ],
        reason: "formats are asserted here; the label takes them for annotations",
    },
    Difference {
        file: SUBSET,
        pairs: &[
            ("1", r#"["a:","a@a.aa",null]"#),
            ("79", "{}"),
            ("84", r#"{"foo":null}"#),
            ("123", r#"{"bar":null,"foo":null}"#),
        ],
        reason: "the label overlooks what an open tuple, an optional or an undeclared member may hold",
    },
    Difference {
        file: SUBSET,
        pairs: &[
            ("192", ""),
            ("237", ""),
            ("240", ""),
            ("241", ""),
            ("247", ""),
            ("248", ""),
            ("249", ""),
            ("251", ""),
            ("252", ""),
            ("253", ""),
            ("254", ""),
            ("255", ""),
            ("287", ""),
            ("288", ""),
            ("289", ""),
        ],
        reason: "the label takes formats of different names to be apart; all strings of the one are strings of the other",
    },
];

/// Pairs in a hundred that may stay undecided.
const UNDECIDED_PERCENT_MAX: usize = 3;

/// The schema as draft-07 has it: of the drafts of the suites, only draft-04 writes anything else that they use.
fn as_draft_7(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("$schema");
            for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
                match members.get(exclusive) {
                    Some(Value::Bool(true)) => {
                        let limit = members.remove(bound).expect("draft-04 has it beside the bound");
                        members.insert(exclusive.to_owned(), limit);
                    }
                    Some(Value::Bool(false)) => {
                        members.remove(exclusive);
                    }
                    _ => {}
                }
            }
            members.values_mut().for_each(as_draft_7);
        }
        Value::Array(items) => items.iter_mut().for_each(as_draft_7),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn as_written(schema: &Value) -> Value {
    let mut schema = schema.clone();
    as_draft_7(&mut schema);
    if let Some(members) = schema.as_object_mut() {
        members.insert("$schema".to_owned(), DRAFT_7.into());
    }
    schema
}

fn validator(schema: &Value) -> Validator {
    jsonschema::options().with_draft(Draft::Draft7).should_validate_formats(true).build(schema).unwrap()
}

fn is_listed(file: &str, id: &str, verdict: &Verdict) -> bool {
    let of_file = DIFFERENCES.iter().filter(|listed| listed.file == file);
    of_file.flat_map(|listed| listed.pairs).any(|(pair, witness)| {
        let is_alike = match verdict {
            Verdict::Refuted { witness: found, .. } => {
                let found = found.to_string();
                found == *witness
            }
            Verdict::Proven | Verdict::Unknown { .. } => witness.is_empty(),
        };
        id.split(':').next() == Some(pair) && is_alike
    })
}

fn run(file: &str) {
    let suites = std::env::var("CAPD_SUITES").expect("CAPD_SUITES names the folder of the public suites");
    let path = Path::new(&suites).join("subschema").join(file);
    let pairs: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let (mut alike, mut listed, mut undecided, mut invalid) = (0, 0, Vec::new(), 0);
    let mut unlisted = String::new();
    for pair in &pairs {
        let (sub, sup) = (as_written(&pair["sub"]), as_written(&pair["sup"]));
        let compile = |schema: &Value| Compiled::compile(schema.to_string().as_bytes());
        let (Ok(a), Ok(b)) = (compile(&sub), compile(&sup)) else {
            // No valid schema of any draft.
            invalid += 1;
            continue;
        };
        let (id, truth) = (pair["id"].as_str().unwrap(), pair["truth"] == 1);
        let verdict = is_subtype(&a, &b);
        match &verdict {
            Verdict::Unknown { .. } => undecided.push(id),
            Verdict::Proven if truth => alike += 1,
            Verdict::Refuted { witness, .. } => {
                assert!(
                    validator(&sub).is_valid(witness) && !validator(&sup).is_valid(witness),
                    "{id}: {witness}"
                );
                alike += usize::from(!truth);
            }
            Verdict::Proven => {}
        }
        if matches!((&verdict, truth), (Verdict::Proven, false) | (Verdict::Refuted { .. }, true)) {
            listed += 1;
            if !is_listed(file, id, &verdict) {
                writeln!(unlisted, "{id} | {truth} | {verdict:?}").unwrap();
            }
        }
    }
    println!(
        "{file}: {} pairs: {alike} as labelled, {listed} listed, {invalid} without a valid schema, undecided {undecided:?}",
        pairs.len()
    );
    assert!(unlisted.is_empty(), "verdicts that differ and are not listed:\n{unlisted}");
    let differences: usize =
        DIFFERENCES.iter().filter(|listed| listed.file == file).map(|listed| listed.pairs.len()).sum();
    assert_eq!(listed, differences, "a difference is listed that there is none of: {:?}", reasons(file));
    assert!(invalid <= 1, "{invalid} pairs were not looked at");
    assert!(undecided.len() * 100 <= pairs.len() * UNDECIDED_PERCENT_MAX, "{} undecided", undecided.len());
}

fn reasons(file: &str) -> Vec<&'static str> {
    DIFFERENCES.iter().filter(|listed| listed.file == file).map(|listed| listed.reason).collect()
}

#[test]
fn verdicts_on_the_pairs_of_jsonsubschema_are_their_labels() {
    run(IBM);
}

#[test]
fn verdicts_on_the_pairs_of_is_json_schema_subset_are_their_labels() {
    run(SUBSET);
}
