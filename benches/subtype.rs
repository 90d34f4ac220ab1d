//! The subtype proof of two tool schemas, once compiled, beside the validating crate's own check.

use std::hint::black_box;

use capd::schema::subtype::{Compiled, Verdict, is_subtype};
use criterion::{Criterion, criterion_group, criterion_main};
use jsonschema::canonical::{self, Containment};
use serde_json::{Value, json};

/// What a caller was built against: 20 properties, two levels.
fn caller() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": { "type": "string", "minLength": 1, "maxLength": 80 },
            "country": { "type": "string", "pattern": "^[A-Z]{2}$" },
            "units": { "enum": ["metric", "imperial"] },
            "days": { "type": "integer", "minimum": 1, "maximum": 7 },
            "hourly": { "type": "boolean" },
            "language": { "type": "string", "maxLength": 8 },
            "since": { "type": "string", "format": "date-time" },
            "threshold": { "type": "number", "minimum": 0, "maximum": 100 },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 32 }, "maxItems": 8 },
            "contact": { "type": ["string", "null"], "format": "email" },
            "location": {
                "type": "object",
                "properties": {
                    "latitude": { "type": "number", "minimum": -90, "maximum": 90 },
                    "longitude": { "type": "number", "minimum": -180, "maximum": 180 },
                    "altitude": { "type": "integer" },
                    "name": { "type": "string" }
                },
                "required": ["latitude", "longitude"],
                "additionalProperties": false
            },
            "stations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": { "type": "string", "minLength": 3 },
                        "weight": { "type": "integer", "minimum": 0, "maximum": 10 },
                        "active": { "type": "boolean" }
                    },
                    "required": ["id"],
                    "additionalProperties": false
                }
            }
        },
        "required": ["city", "units"],
        "additionalProperties": false
    })
}

/// What its provider takes: wider everywhere.
fn provider() -> Value {
    let mut schema = caller();
    let properties = &mut schema["properties"];
    properties["city"]["maxLength"] = json!(200);
    properties["country"] = json!({ "type": "string", "pattern": "^[A-Z]{2,3}$" });
    properties["units"] = json!({ "enum": ["metric", "imperial", "standard"] });
    properties["days"]["maximum"] = json!(14);
    properties["language"] = json!({ "type": ["string", "null"] });
    properties["threshold"] = json!({ "type": "number" });
    properties["tags"]["maxItems"] = json!(16);
    properties["location"]["properties"]["altitude"] = json!({ "type": "number" });
    properties["stations"]["items"]["properties"]["weight"] = json!({ "type": "number", "minimum": 0 });
    properties["debug"] = json!({ "type": "boolean" });
    schema["required"] = json!(["city"]);
    schema
}

fn compiled(schema: &Value) -> Compiled {
    Compiled::compile(schema.to_string().as_bytes()).expect("the schema is valid")
}

fn proofs(criterion: &mut Criterion) {
    let (caller, provider) = (caller(), provider());
    let (a, b) = (compiled(&caller), compiled(&provider));
    let canonical = |schema: &Value| {
        let options = canonical::options().should_validate_formats(true);
        options.canonicalize(schema).expect("the schema is valid")
    };
    let (canonical_a, canonical_b) = (canonical(&caller), canonical(&provider));
    let mut group = criterion.benchmark_group("subtype/20 properties");
    group.bench_function("proven", |bench| {
        bench.iter(|| assert_eq!(is_subtype(black_box(&a), black_box(&b)), Verdict::Proven));
    });
    group.bench_function("refuted", |bench| {
        bench.iter(|| {
            assert!(matches!(is_subtype(black_box(&b), black_box(&a)), Verdict::Refuted { .. }));
        });
    });
    group.bench_function("the same schema", |bench| {
        bench.iter(|| assert_eq!(is_subtype(black_box(&a), black_box(&a)), Verdict::Proven));
    });
    group.bench_function("baseline: covers, proven", |bench| {
        bench.iter(|| {
            let verdict = canonical_b.covers(black_box(&canonical_a)).expect("operands are alike");
            // It leaves this pair undecided.
            assert_ne!(verdict, Containment::No);
        });
    });
    group.bench_function("baseline: covers, refuted", |bench| {
        bench.iter(|| {
            let verdict = canonical_a.covers(black_box(&canonical_b)).expect("operands are alike");
            assert_ne!(verdict, Containment::Yes);
        });
    });
    group.bench_function("compile", |bench| bench.iter(|| compiled(black_box(&caller))));
    group.finish();
}

criterion_group!(benches, proofs);
criterion_main!(benches);
