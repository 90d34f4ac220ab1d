//! Schema checks over CBOR bytes, beside the same crate over a tree and beside the copy into one.

use std::hint::black_box;

use capd::schema::{Side, Validator};
use capd_proto::cbor::json::from_json;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::{Value, json};

#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "of the measurements between processes only the bodies are taken"
)]
#[path = "e2e/src/payload.rs"]
mod payload;

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "minLength": 1, "maxLength": 80 },
            "units": { "enum": ["metric", "imperial", "standard"] },
            "days": { "type": "integer", "minimum": 1, "maximum": 14 },
            "stations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": { "id": { "type": "string" }, "w": { "type": "integer", "minimum": 0 } },
                    "required": ["id"],
                    "additionalProperties": false
                }
            }
        },
        "required": ["city", "units"],
        "additionalProperties": false
    })
}

/// The same schema, left to the validating crate for a keyword that asserts nothing without `if`.
fn walked(schema: &Value) -> String {
    let mut schema = schema.clone();
    schema["then"] = true.into();
    schema.to_string()
}

fn params(stations: usize) -> Value {
    let stations: Vec<Value> =
        (0..stations).map(|n| json!({ "id": format!("NL-{n:04}-A"), "w": n })).collect();
    json!({ "city": "Amsterdam Noord, Buikslotermeerplein 12", "units": "metric", "days": 5, "stations": stations })
}

fn checks(criterion: &mut Criterion) {
    let schema = schema();
    let ours = Validator::compile(schema.to_string().as_bytes()).expect("the schema is valid");
    let walks = Validator::compile(walked(&schema).as_bytes()).expect("the schema is valid");
    let theirs = jsonschema::validator_for(&schema).expect("the schema is valid");
    for stations in [3, 1_000] {
        let tree = params(stations);
        let mut bytes = Vec::new();
        from_json(&tree, &mut bytes);
        let mut group = criterion.benchmark_group(format!("schema/{}B", bytes.len()));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function("cbor bytes", |bench| {
            bench.iter(|| ours.validate(black_box(&bytes), Side::Request).expect("it fits"));
        });
        group.bench_function("cbor bytes, walked", |bench| {
            bench.iter(|| walks.validate(black_box(&bytes), Side::Request).expect("it fits"));
        });
        group.bench_function("baseline: serde_json tree, ready made", |bench| {
            bench.iter(|| assert!(theirs.is_valid(black_box(&tree))));
        });
        group.bench_function("baseline: ciborium value, copied to a serde_json tree", |bench| {
            bench.iter(|| {
                let value: ciborium::Value =
                    ciborium::from_reader(black_box(&bytes[..])).expect("it is CBOR");
                let tree = value.deserialized::<Value>().expect("it is JSON");
                assert!(theirs.is_valid(&tree));
            });
        });
        group.bench_function("baseline: ciborium straight to a serde_json tree", |bench| {
            bench.iter(|| {
                let tree: Value = ciborium::from_reader(black_box(&bytes[..])).expect("it is CBOR");
                assert!(theirs.is_valid(&tree));
            });
        });
        group.finish();
    }
    let mut group = criterion.benchmark_group("schema/refused");
    let mut bad = params(3);
    bad["days"] = 99.into();
    let mut bytes = Vec::new();
    from_json(&bad, &mut bytes);
    group.bench_function("cbor bytes", |bench| {
        bench.iter(|| ours.validate(black_box(&bytes), Side::Request).expect_err("it does not fit"));
    });
    group.bench_function("cbor bytes, walked", |bench| {
        bench.iter(|| walks.validate(black_box(&bytes), Side::Request).expect_err("it does not fit"));
    });
    group.bench_function("baseline: serde_json tree, all errors", |bench| {
        bench.iter(|| theirs.iter_errors(black_box(&bad)).map(|error| error.to_string()).collect::<Vec<_>>());
    });
    group.finish();
}

/// Both bodies of a call, as it is measured between processes: most fit a table of shapes, which tells at once.
fn bodies(criterion: &mut Criterion) {
    let params = (payload::INPUT_SCHEMA, payload::request(payload::REQUEST_BYTES), Side::Request);
    let result = (payload::OUTPUT_SCHEMA, payload::response(payload::REQUEST_BYTES), Side::Response);
    for (schema, bytes, side) in [params, result] {
        let mut group = criterion.benchmark_group(format!("schema/{side:?}, {}B", bytes.len()));
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let walked = walked(&serde_json::from_str(schema).expect("it is JSON"));
        for (name, schema) in [("cbor bytes", schema.to_owned()), ("cbor bytes, walked", walked)] {
            let validator = Validator::compile(schema.as_bytes()).expect("the schema is valid");
            group.bench_function(name, |bench| {
                bench.iter(|| validator.validate(black_box(&bytes), side).expect("it fits"));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, checks, bodies);
criterion_main!(benches);
