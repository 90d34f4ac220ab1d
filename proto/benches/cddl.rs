//! The CDDL run on bodies of each message type, beside `cbor::check` and the `cddl` crate with a reused syntax tree.
//!
//! Bars: at most 1/6 of the crate on 174 bytes of CAP_INVOKE, 1/20 on 18 KB, and never more than twice the check. The
//! table at the end names each body's ratio to the check, from the minima of rounds that take turns.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock to tell what its figures are")]

#[path = "cddl/rows.rs"]
mod rows;

use std::hint::black_box;
use std::time::{Duration, Instant};

use capd_proto::cbor::{self, Writer};
use capd_proto::cddl::Program;
use capd_proto::cddl::bodies::bodies;
use cddl::validator::Validator;
use criterion::{Criterion, criterion_group};

/// The one rule, and less of it than ours, that the other crate is measured with: its cost grows with the text.
const BASELINE: &str = r#"cap-invoke-body = {? "id": tstr, ? "capability": tstr, ? "type": tstr, ? "version": tstr, "params": any, ? "timeout_ms": uint}"#;
/// Rounds of the table; each takes the contestants in turn.
const ROUNDS: usize = 200;
/// What one turn in a round takes at least.
const TURN: Duration = Duration::from_micros(100);

/// A CAP_INVOKE body whose params list as many stations.
fn invoke(stations: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.map(3).text("id").text("weather.forecast@1").text("params").map(4);
    writer.text("city").text("Amsterdam Noord, Buikslotermeerplein 12").text("days").uint(5);
    writer.text("stations").array(stations);
    for n in 0..stations {
        writer.map(2).text("w").uint([1, 25, 300][(n % 3) as usize]).text("id").text(&format!("NL-{n:04}-A"));
    }
    writer.text("units").text("metric").text("timeout_ms").uint(5_000);
    out
}

fn by_crate(tree: &cddl::ast::CDDL<'_>, body: &[u8]) -> bool {
    let value = cddl::validator::cbor_value::decode_cbor(body).expect("it is CBOR");
    let mut validator = cddl::validator::cbor::CBORValidator::new(tree, value, None);
    let verdict: Result<(), cddl::validator::cbor::Error<std::io::Error>> = validator.validate();
    verdict.is_ok()
}

fn compare(c: &mut Criterion) {
    let tree = cddl::cddl_from_str(BASELINE, false).expect("the baseline's schema parses");
    let rule = bodies().rule(0x22).expect("CAP_INVOKE has a rule");
    let program: &Program = bodies().program();
    for stations in [3, 1_000] {
        let body = invoke(stations);
        let mut group = c.benchmark_group(format!("cap-invoke-{}B", body.len()));
        group.bench_function("ours", |b| b.iter(|| program.run(rule, black_box(&body)).expect("it matches")));
        group.bench_function("check", |b| {
            b.iter(|| cbor::check(black_box(&body)).expect("it is well-formed"))
        });
        group.bench_function("cddl-crate", |b| b.iter(|| assert!(by_crate(&tree, black_box(&body)))));
        group.finish();
    }
}

/// Nanoseconds of one call, over as many as fill a turn.
fn turn(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    call();
    // The clock is read so seldom that what it takes itself does not show.
    let calls = (TURN.as_nanos() / start.elapsed().as_nanos().max(20)).clamp(1, 4_096);
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn ratios(rounds: usize) {
    println!(
        "{:<36} {:>7} {:>10} {:>10} {:>6} {:>12}",
        "body", "bytes", "ours ns", "check ns", "ratio", "crate ns"
    );
    let text = rows::crate_text();
    for row in rows::rows() {
        let rule = bodies().rule(row.typ).expect("each row's type has a rule");
        let program: &Program = bodies().program();
        if let Err(mismatch) = program.run(rule, &row.body) {
            panic!("{}: {mismatch}", row.name);
        }
        let (mut ours, mut check, mut other) = (f64::MAX, f64::MAX, f64::MAX);
        for _ in 0..rounds {
            ours = ours.min(turn(|| program.run(rule, black_box(&row.body)).expect("it matches")));
            check = check.min(turn(|| cbor::check(black_box(&row.body)).expect("it is well-formed")));
        }
        // The crate takes milliseconds, and not every body that its own RFC allows.
        let name = bodies_name(row.typ);
        let rooted = format!("root = {name}\n{text}");
        if let Ok(tree) = cddl::cddl_from_str(&rooted, false)
            && by_crate(&tree, &row.body)
        {
            for _ in 0..3 {
                let start = Instant::now();
                black_box(by_crate(&tree, black_box(&row.body)));
                other = other.min(start.elapsed().as_nanos() as f64);
            }
        }
        let other = if other == f64::MAX { "refused".to_string() } else { format!("{other:.0}") };
        println!(
            "{:<36} {:>7} {ours:>10.0} {check:>10.0} {:>6.2} {other:>12}",
            row.name,
            row.body.len(),
            ours / check
        );
    }
}

fn bodies_name(typ: u64) -> &'static str {
    let messages = capd_proto::cddl::bodies::Bodies::messages();
    messages.iter().find(|(code, _)| *code == typ).map_or("", |(_, name)| *name)
}

criterion_group!(benches, compare);

fn main() {
    // `--test` and the like want one run of each, no figures.
    let measured = std::env::args().any(|argument| argument == "--bench");
    ratios(if measured { ROUNDS } else { 1 });
    benches();
    Criterion::default().configure_from_args().final_summary();
}
