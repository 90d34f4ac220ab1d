//! The CDDL run on CAP_INVOKE bodies, beside the `cddl` crate with a reused syntax tree and beside `cbor::check`.
//!
//! Bars: at most 1/6 of the crate on 174 bytes, 1/20 on 18 KB, and never more than twice the check.

use std::hint::black_box;

use capd_proto::cbor::{self, Writer};
use capd_proto::cddl::Program;
use capd_proto::cddl::bodies::bodies;
use cddl::validator::Validator;
use criterion::{Criterion, criterion_group, criterion_main};

/// The one rule, and less of it than ours, that the other crate is measured with: its cost grows with the text.
const BASELINE: &str = r#"cap-invoke-body = {? "id": tstr, ? "capability": tstr, ? "type": tstr, ? "version": tstr, "params": any, ? "timeout_ms": uint}"#;

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
        group.bench_function("cddl-crate", |b| {
            b.iter(|| {
                let value = cddl::validator::cbor_value::decode_cbor(black_box(&body)).expect("it is CBOR");
                let mut validator = cddl::validator::cbor::CBORValidator::new(&tree, value, None);
                let verdict: Result<(), cddl::validator::cbor::Error<std::io::Error>> = validator.validate();
                verdict.expect("it matches");
            });
        });
        group.finish();
    }
    // Maps all the way down, so that every byte is looked at by a rule and none is skipped.
    let mut declare = Vec::new();
    let mut writer = Writer::new(&mut declare);
    writer.map(1).text("capabilities").array(100);
    for n in 0..100u64 {
        writer.map(3).text("id").text(&format!("org.example.capability-{n}:1.0.0"));
        writer.text("idempotent").bool(true);
        writer.text("input_schema").map(3).text("uri").text("https://example.org/schema");
        writer.text("hash").bytes(&[7; 32]).text("hash_alg").text("sha-256");
    }
    let rule = bodies().rule(0x21).expect("CAP_DECLARE has a rule");
    let mut group = c.benchmark_group(format!("cap-declare-{}B", declare.len()));
    group.bench_function("ours", |b| b.iter(|| program.run(rule, black_box(&declare)).expect("it matches")));
    group
        .bench_function("check", |b| b.iter(|| cbor::check(black_box(&declare)).expect("it is well-formed")));
    group.finish();
}

criterion_group!(benches, compare);
criterion_main!(benches);
