//! A peer's schemas and payloads in; that neither compiling the one nor checking the other goes on for long out.
//!
//! A sidecar has one thread for its links, so a verdict that takes a minute is a sidecar that is away for a minute.
//! Steps are counted and no time is taken here; `benches/schema_hostile.rs` says how long the steps take.

use capd::schema::{Side, Validator, Violation};
use capd_proto::cbor::json::from_json;
use serde_json::Value;

#[path = "pairs.rs"]
mod pairs;

fn cbor(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    from_json(value, &mut bytes);
    bytes
}

/// Whether a verdict says that its check would have taken too long.
fn ended(violations: &[Violation]) -> bool {
    let told = |what: &str| violations.len() == 1 && violations[0].message.contains(what);
    told("steps to check with this schema") || told("has more violations than can be listed")
}

#[test]
fn no_pair_of_a_schema_and_a_payload_is_checked_for_longer_than_its_steps() {
    for pairs::Pair { name, schema, payload, is_endless } in pairs::pairs() {
        let validator =
            Validator::compile(schema.to_string().as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let payload = cbor(&payload);
        capd_proto::cbor::check(&payload).unwrap_or_else(|error| panic!("{name}: {error}"));
        let verdict = validator.validate(&payload, Side::Response);
        let violations = verdict.as_ref().err().map_or(&[][..], Vec::as_slice);
        assert_eq!(ended(violations), is_endless, "{name}: {:?}", violations.first());
    }
}

#[test]
fn schemas_that_would_take_long_to_compile_are_refused() {
    for (name, schema) in pairs::schemas() {
        let schema = schema.to_string();
        assert!(schema.len() <= capd::schema::validator::SCHEMA_BYTES_MAX, "{name}");
        let error = Validator::compile(schema.as_bytes()).err().unwrap_or_else(|| panic!("{name}"));
        assert!(error.to_string().contains("accepted: "), "{name}: {error}");
    }
}

#[test]
fn schemas_as_large_as_they_may_be_are_compiled() {
    for (name, schema) in pairs::largest_schemas() {
        let schema = schema.to_string();
        Validator::compile(schema.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn what_is_no_json_is_found_at_the_end_of_the_largest_payload() {
    let (schema, payload) = pairs::not_json();
    capd_proto::cbor::check(&payload).unwrap();
    let validator = Validator::compile(schema.to_string().as_bytes()).unwrap();
    let violations = validator.validate(&payload, Side::Response).unwrap_err();
    assert_eq!(violations.iter().map(|violation| &*violation.path).collect::<Vec<_>>(), ["/7"]);
}
