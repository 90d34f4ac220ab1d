//! Schemas made to be hard in; a verdict within the bound on work out.
//!
//! The bound is a count of steps, and a verdict that ran out of them says so; no test hangs on the time. With
//! `CAPD_SUBTYPE_MEASURE=all`, what each proof took is printed as one line of JSON: the quickest of five times, by how
//! much the memory of a fresh process grew, and how much it had in all, with both schemas compiled.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use capd::schema::subtype::{Verdict, is_subtype};
use serde_json::{Value, json};

use super::hard::{Case, cases};
use super::machine;
use super::support::{compiled, validator};

/// Both ways of each case.
fn both_ways() -> impl Iterator<Item = Case> {
    cases().into_iter().flat_map(|(name, sub, sup)| {
        let back = (format!("{name}, the other way"), sup.clone(), sub.clone());
        [(name, sub, sup), back]
    })
}

#[test]
fn hard_pairs_have_a_verdict_that_holds() {
    for (name, sub, sup) in both_ways() {
        let verdict = is_subtype(&compiled(&sub), &compiled(&sup));
        println!("{name}: {}", told(&verdict));
        if let Verdict::Refuted { witness, .. } = &verdict {
            assert!(validator(&sub).is_valid(witness), "{name}: the witness is none of the first");
            assert!(!validator(&sup).is_valid(witness), "{name}: the witness is one of the second");
        }
    }
}

fn told(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Proven => "proven".to_owned(),
        Verdict::Refuted { rule, .. } => format!("refuted: {rule}"),
        Verdict::Unknown { construct, .. } => format!("unknown: {construct}"),
    }
}

/// Each pair has a process of its own, which makes no other, so that its memory is what the pair took.
#[test]
fn each_hard_pair_is_measured_by_itself_when_that_is_asked_for() {
    match std::env::var(MEASURE).as_deref() {
        Ok("all") => {
            let rows: Vec<Value> = both_ways().map(|case| measured_apart(&case)).collect();
            let (machine, commit) = (machine::description(), machine::commit());
            println!("{}", json!({ "machine": machine, "commit": commit, "pairs": rows }));
        }
        Ok(_) => {
            let [name, sub, sup]: [Value; 3] = serde_json::from_reader(std::io::stdin()).unwrap();
            println!("{ROW}{}", measured(&name, &sub, &sup));
        }
        Err(_) => {
            let row = measured(&json!("a pair"), &json!({ "type": "integer" }), &json!({ "type": "number" }));
            assert_eq!(row["verdict"], "proven");
        }
    }
}

fn measured_apart((name, sub, sup): &Case) -> Value {
    let this = "bounds::each_hard_pair_is_measured_by_itself_when_that_is_asked_for";
    let mut process = Command::new(std::env::current_exe().unwrap());
    let output = run_with(
        process.args([this, "--exact", "--nocapture"]).env(MEASURE, "one"),
        json!([name, sub, sup]).to_string().as_bytes(),
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let row = text.lines().find_map(|line| Some(line.split_once(ROW)?.1)).unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(row).unwrap()
}

fn run_with(command: &mut Command, input: &[u8]) -> Output {
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(input).unwrap();
    process.wait_with_output().unwrap()
}

#[allow(clippy::disallowed_methods, reason = "how long a proof took is told, and decides nothing")]
fn measured(name: &Value, sub: &Value, sup: &Value) -> Value {
    let (a, b) = (compiled(sub), compiled(sup));
    let before = machine::memory_in_use_kib();
    let verdict = is_subtype(&a, &b);
    let peak = machine::memory_peak_kib();
    let took = |_| {
        let begin = Instant::now();
        drop(is_subtype(&a, &b));
        begin.elapsed().as_micros() as u64
    };
    let quickest = (0..TIMES).map(took).min();
    json!({
        "pair": name,
        "verdict": told(&verdict),
        "us": quickest,
        "grown_kib": peak.saturating_sub(before),
        "process_kib": peak,
    })
}

/// `all` measures every pair, anything else the pair on stdin.
const MEASURE: &str = "CAPD_SUBTYPE_MEASURE";
const ROW: &str = "measured ";
const TIMES: usize = 5;

#[test]
fn some_hard_pairs_run_out_of_steps() {
    // Else the bound is not met by any of them, and nothing is known of it.
    let spent = |(_, sub, sup): &Case| {
        let verdict = is_subtype(&compiled(sub), &compiled(sup));
        matches!(verdict, Verdict::Unknown { construct, .. } if construct == "budget")
    };
    assert!(both_ways().filter(spent).take(4).count() == 4);
}

#[test]
fn the_same_pair_has_the_same_verdict() {
    for (name, sub, sup) in both_ways().step_by(5) {
        let (a, b) = (compiled(&sub), compiled(&sup));
        let first = is_subtype(&a, &b);
        assert_eq!(is_subtype(&a, &b), first, "{name}");
    }
}

#[test]
fn the_usual_sizes_are_decided() {
    let (_, sub, sup) = cases().into_iter().find(|(name, ..)| name == "many members").unwrap();
    let (a, b) = (compiled(&sub), compiled(&sup));
    assert_eq!(is_subtype(&a, &b), Verdict::Proven);
    assert!(matches!(is_subtype(&b, &a), Verdict::Refuted { .. }));
}
