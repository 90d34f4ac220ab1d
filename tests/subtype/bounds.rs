//! Schemas made to be hard in; a verdict within the bound on work out.
//!
//! The bound is a count of steps, and a verdict that ran out of them says so; no test hangs on the time. With
//! `CAPD_SUBTYPE_MEASURE=all`, what compiling and proving took is printed as one line of JSON: the quickest of five
//! times, by how much the memory of a fresh process grew, and how much it had in all. So are the slowest of all pairs of
//! these schemas, each held against each, and schemas of the largest size.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use capd::schema::subtype::{Compiled, Verdict, is_subtype};
use capd::schema::validator::SCHEMA_BYTES_MAX;
use serde_json::{Value, json};

use super::hard::{Case, cases};
use super::support::{compiled, validator};
use super::{large, machine};

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

/// The pairs whose proofs take the longest, of each schema against each.
fn slowest_crossed() -> (usize, Vec<Case>) {
    let schemas: Vec<(String, Value, Compiled)> = both_ways()
        .chain(large::cases(SCHEMA_BYTES_MAX))
        .filter_map(|(name, schema, _)| {
            let compiled = Compiled::compile(schema.to_string().as_bytes()).ok()?;
            Some((name, schema, compiled))
        })
        .collect();
    let mut slowest: Vec<(u64, usize, usize)> = Vec::new();
    for (one, (_, _, a)) in schemas.iter().enumerate() {
        for (other, (_, _, b)) in schemas.iter().enumerate() {
            slowest.push((quickest_us(1, || drop(is_subtype(a, b))), one, other));
        }
        slowest.sort_unstable_by(|a, b| b.cmp(a));
        slowest.truncate(CROSSED_TOLD);
    }
    let case = |&(_, one, other): &(u64, usize, usize)| {
        let ((one, a, _), (other, b, _)) = (&schemas[one], &schemas[other]);
        (format!("{one} / {other}"), a.clone(), b.clone())
    };
    (schemas.len() * schemas.len(), slowest.iter().map(case).collect())
}

/// Each pair has a process of its own, which makes no other, so that its memory is what the pair took.
#[test]
fn each_hard_pair_is_measured_by_itself_when_that_is_asked_for() {
    match std::env::var(MEASURE).as_deref() {
        Ok("all") => {
            let (machine, commit) = (machine::description(), machine::commit());
            let (crossed, slowest) = slowest_crossed();
            let cases = both_ways().chain(large::cases(SCHEMA_BYTES_MAX)).chain(slowest);
            let rows: Vec<Value> = cases.map(|case| measured_apart(&case)).collect();
            let pairs = json!({ "machine": machine, "commit": commit, "crossed": crossed, "pairs": rows });
            println!("{pairs}");
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

fn measured(name: &Value, sub: &Value, sup: &Value) -> Value {
    let texts = [sub, sup].map(|schema| schema.to_string());
    let compile = |text: &String| Compiled::compile(text.as_bytes());
    // What compiling needs once in a process is no cost of these schemas.
    drop(compile(&"{}".to_owned()));
    let before_compiling = machine::memory_in_use_kib();
    let (a, b) = match (compile(&texts[0]), compile(&texts[1])) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(error), _) | (_, Err(error)) => return json!({ "pair": name, "refused": error.to_string() }),
    };
    let compiled_peak = machine::memory_peak_kib();
    let before = machine::memory_in_use_kib();
    let verdict = is_subtype(&a, &b);
    let peak = machine::memory_peak_kib();
    let compile_us = texts.iter().map(|text| quickest_us(TIMES, || drop(compile(text)))).max();
    json!({
        "pair": name,
        "bytes": texts.map(|text| text.len()),
        "verdict": told(&verdict),
        "us": quickest_us(TIMES, || drop(is_subtype(&a, &b))),
        "grown_kib": peak.saturating_sub(before),
        "slower_compile_us": compile_us,
        "compiles_grown_kib": compiled_peak.saturating_sub(before_compiling),
        "process_kib": peak.max(compiled_peak),
    })
}

fn quickest_us(times: usize, mut work: impl FnMut()) -> u64 {
    (0..times).map(|_| machine::timed(&mut work).1.as_micros() as u64).min().unwrap_or_default()
}

/// `all` measures every pair, anything else the pair on stdin.
const MEASURE: &str = "CAPD_SUBTYPE_MEASURE";
const ROW: &str = "measured ";
const TIMES: usize = 5;
/// Pairs of each against each that are told.
const CROSSED_TOLD: usize = 20;

#[test]
fn large_schemas_have_a_verdict_that_holds() {
    // The largest take their time where nothing is optimised; `CAPD_SUBTYPE_MEASURE` goes up to them.
    for (name, sub, sup) in large::cases(SCHEMA_BYTES_MAX / 16) {
        let verdict = is_subtype(&compiled(&sub), &compiled(&sup));
        println!("{name}: {}", told(&verdict));
        if let Verdict::Refuted { witness, .. } = &verdict {
            assert!(validator(&sub).is_valid(witness), "{name}: the witness is none of the first");
            assert!(!validator(&sup).is_valid(witness), "{name}: the witness is one of the second");
        }
    }
}

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
