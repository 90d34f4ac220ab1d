//! PROTOCOL 7.2: declarations that contradict themselves or their schemas in, the code that says why out; and what was
//! declared before stands.

use ciborium::{Value, cbor};
use sha2::{Digest as _, Sha512};

use crate::fixture::{CAP_DECLARE, CAP_QUERY, checked, declare, ids, inline, loose, serving, sha256};
use crate::peer::{RawLink, Transport};
use crate::support::{Sidecar, field, set};

const KEPT: &str = "com.example.kept:1.0.0";

fn query() -> Value {
    cbor!({ "filter" => { "capability" => "*" } }).unwrap()
}

/// Each of these declarations is refused, and what the link declared before stands.
fn each_is_refused(code: u64, declarations: Vec<Value>) {
    let sidecar = Sidecar::start();
    for transport in Transport::LOCAL {
        let mut agent = RawLink::open(&sidecar, transport);
        declare(&mut agent, vec![loose(KEPT)]);
        for body in &declarations {
            let refusal = agent.refused(CAP_DECLARE, body.clone());
            assert_eq!(refusal.code, code, "{transport:?}: {body:?}: {refusal:?}");
            assert_eq!(ids(&agent.ask(CAP_QUERY, query())), [KEPT], "{transport:?}: {body:?}");
        }
    }
}

fn with(key: &str, value: Value) -> Value {
    let mut descriptor = loose("com.example.echo:1.2.0");
    set(&mut descriptor, key, value);
    cbor!({ "capabilities" => [descriptor] }).unwrap()
}

#[test]
fn a_descriptor_that_disagrees_with_its_id_is_4001() {
    let twice = cbor!({ "capabilities" => [loose("com.example.echo:1.2.0"), loose("com.example.echo:1.2")] });
    let ids = ["", "com.example.echo", "echo:1.0.0", "com.example.echo:1", "com.example.echo:^1.0.0"];
    let mut declarations = vec![
        with("name", "com.example.other".into()),
        with("name", "COM.example.echo".into()),
        with("version", "1.2.1".into()),
        with("version", "1.20".into()),
        with("supported_ranges", cbor!(["^1.0.0"]).unwrap()),
        with("deprecated_ranges", cbor!([">=1.0.0 || <0.1.0"]).unwrap()),
        with("deprecated_versions", cbor!(["1.x"]).unwrap()),
        with("min_schema_version", "1.2.1".into()),
        twice.unwrap(),
    ];
    declarations.extend(ids.map(|id| cbor!({ "capabilities" => [{ "id" => id }] }).unwrap()));
    // One that is wrong is enough for all of a declaration to be refused.
    declarations
        .push(cbor!({ "capabilities" => [loose("com.example.fine:1.0.0"), { "id" => "x" }] }).unwrap());
    each_is_refused(4001, declarations);
}

#[test]
fn a_descriptor_that_agrees_with_its_id_in_other_words_is_taken() {
    let sidecar = Sidecar::start();
    let mut descriptor = loose("com.example.echo:1.2");
    set(&mut descriptor, "name", "com.example.echo".into());
    set(&mut descriptor, "version", "1.2.0".into());
    let mut agent = serving(&sidecar, vec![descriptor]);
    assert_eq!(agent.ask(CAP_QUERY, query()).typ(), CAP_DECLARE);
}

#[test]
fn a_schema_whose_hash_is_wrong_or_whose_bytes_are_missing_is_5002() {
    let mut wrong = inline(r#"{"type":"object"}"#);
    set(&mut wrong, "hash", sha256(br#"{"type":"array"}"#));
    let mut wrong_512 = inline("{}");
    set(&mut wrong_512, "hash_alg", "sha-512".into());
    set(&mut wrong_512, "hash", Value::Bytes(Sha512::digest(b"true").to_vec()));
    let missing = cbor!({ "hash_alg" => "sha-256", "hash" => sha256(b"nobody has it"), "uri" => "http://127.0.0.1:1/x" });
    let missing = missing.unwrap();
    let both = |schema: Value| [with("input_schema", schema.clone()), with("output_schema", schema)];
    each_is_refused(5002, [both(wrong), both(wrong_512), both(missing)].concat());
}

#[test]
fn a_schema_that_cannot_be_enforced_is_4001() {
    let mut no_document = inline("{}");
    set(&mut no_document, "inline", 7.into());
    let unusable = [inline("{"), inline(r#"{"type":"objekt"}"#), inline(r#"{"minimum":"1"}"#), no_document];
    each_is_refused(4001, unusable.map(|schema| with("input_schema", schema)).to_vec());
}

#[test]
fn a_newer_major_of_the_descriptor_format_is_4905() {
    let version = |version: &str| {
        cbor!({ "capabilities" => [loose("com.example.new:1.0.0")], "capabilities_version" => version })
            .unwrap()
    };
    each_is_refused(4905, vec![version("2.0"), version("10.1"), version("new"), version("")]);
    let sidecar = Sidecar::start();
    let mut agent = RawLink::open(&sidecar, Transport::Unix);
    for taken in ["1.0", "1.9", "0.9"] {
        agent.send(CAP_DECLARE, version(taken));
        assert_eq!(ids(&agent.ask(CAP_QUERY, query())), ["com.example.new:1.0.0"], "{taken}");
    }
}

#[test]
fn a_peer_cannot_declare_unasked() {
    let sidecar = Sidecar::start();
    let mut agent = serving(&sidecar, vec![loose(KEPT)]);
    for transport in Transport::PEER {
        let mut peer = RawLink::open(&sidecar, transport);
        let refusal = peer
            .refused(CAP_DECLARE, cbor!({ "capabilities" => [loose("com.example.forged:1.0.0")] }).unwrap());
        assert_eq!(refusal.code, 4001, "{transport:?}: {refusal:?}");
        // A peer that is there would be asked what it serves before the agent is told.
        drop(peer);
        assert_eq!(ids(&agent.ask(CAP_QUERY, query())), [KEPT], "{transport:?}");
    }
}

#[test]
fn unknown_fields_of_a_descriptor_are_passed_on() {
    let sidecar = Sidecar::start();
    let mut descriptor = loose("com.example.echo:1.0.0");
    let extra = cbor!({ "nested" => [1, 2.5, null] }).unwrap();
    set(&mut descriptor, "zz_unknown", extra.clone());
    let _agent = serving(&sidecar, vec![descriptor]);
    for transport in [Transport::Unix, Transport::Tcp, Transport::Quic] {
        let declare = RawLink::open(&sidecar, transport).ask(CAP_QUERY, query());
        let listed = &field(declare.body(), "capabilities").and_then(Value::as_array).unwrap()[0];
        assert_eq!(field(listed, "zz_unknown"), Some(&extra), "{transport:?}");
        assert_eq!(field(declare.body(), "capabilities_version"), Some(&"1.0".into()), "{transport:?}");
    }
}

#[test]
fn inline_schemas_leave_as_references_by_hash() {
    let sidecar = Sidecar::start();
    let _agent = serving(&sidecar, vec![checked("com.example.echo:1.0.0", "true", r#"{"type":"object"}"#)]);
    for transport in [Transport::Unix, Transport::Tcp, Transport::Quic] {
        let declare = RawLink::open(&sidecar, transport).ask(CAP_QUERY, query());
        let listed = &field(declare.body(), "capabilities").and_then(Value::as_array).unwrap()[0];
        let schema = field(listed, "output_schema").unwrap();
        assert_eq!(field(schema, "inline"), None, "{transport:?}");
        assert_eq!(field(schema, "hash"), Some(&sha256(br#"{"type":"object"}"#)), "{transport:?}");
    }
}

#[test]
fn a_later_declaration_replaces_the_links_own_and_closing_withdraws_it() {
    let sidecar = Sidecar::start();
    let mut first = serving(&sidecar, vec![loose("com.example.a:1.0.0"), loose("com.example.b:1.0.0")]);
    let second = serving(&sidecar, vec![loose("com.example.c:1.0.0")]);
    declare(&mut first, vec![loose("com.example.b:1.0.0")]);
    assert_eq!(ids(&first.ask(CAP_QUERY, query())), ["com.example.b:1.0.0", "com.example.c:1.0.0"]);
    drop(second);
    let deadline = std::time::Instant::now() + crate::support::PATIENCE;
    while ids(&first.ask(CAP_QUERY, query())) != ["com.example.b:1.0.0"] {
        assert!(std::time::Instant::now() < deadline, "closing the link does not withdraw what it declared");
    }
}
