//! What sidecars refuse, drop or lose in; one record each in their audit logs out, whose chains hold.

use capd::store::audit::chain::Verifier;
use capd::store::audit::{AuditFile, AuditStorage as _};
use ciborium::Value;
use serde_json::json;

use crate::agents::{
    CAP_INVOKE, Caller, ERROR, Provider, REQUEST, SOON_MS, by_id, failure, idempotent, loose, success,
    with_schema, within,
};
use crate::peer::Peer;
use crate::support::{Setup, Sidecar, field, map};

const ECHO: &str = "org.example.echo:1.0.0";
const NAME: &str = "org.example.echo";
const NUMBER: &str =
    r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a"]}"#;

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A record's fields, in their order.
fn fields(record: &serde_json::Value) -> Vec<&str> {
    record.as_object().unwrap().keys().map(String::as_str).collect()
}

fn wrong() -> Value {
    map([("a", "x".into()), ("b", "y".into())])
}

#[track_caller]
fn holds(sidecar: &Sidecar) {
    let mut file = AuditFile::read(&sidecar.audit_file()).unwrap();
    let (mut verifier, head) = (Verifier::default(), file.head().unwrap());
    for entry in file.read(0, 10_000, usize::MAX).unwrap() {
        verifier.take(&entry).unwrap();
    }
    verifier.finish(&head).unwrap();
}

#[test]
fn params_that_do_not_fit_are_one_record_with_the_seeds_fields_beside_the_caller() {
    let b = Sidecar::start();
    let a = Setup::new().set("audit.tenant", "acme").peer(&b).start();
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", NUMBER)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, wrong()));
    assert_eq!(caller.error(&id).code(), Some(4004));
    let [record] = a.audited("capability_schema_violation", 1).try_into().unwrap();
    assert_eq!(
        fields(&record),
        ["capabilityName", "correlationId", "kind", "peerId", "side", "tenantId", "ts", "violations"]
    );
    assert_eq!(
        [
            &record["capabilityName"],
            &record["correlationId"],
            &record["peerId"],
            &record["side"],
            &record["tenantId"]
        ],
        [&json!(NAME), &json!(hex(&id)), &json!(b.did), &json!("request"), &json!("acme")]
    );
    let violations = record["violations"].as_array().unwrap();
    let paths: Vec<_> = violations.iter().map(|violation| violation["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/a", "/b"]);
    assert!(violations.iter().all(|violation| fields(violation) == ["message", "path"]));
    assert_eq!(a.audit().len(), 1, "one record for the envelope");
    assert_eq!(b.audit().len(), 0, "nothing went on the wire");
    provider.heard_nothing_more();
    holds(&a);
}

#[test]
fn params_that_do_not_fit_are_a_record_beside_the_provider_with_the_callers_session() {
    let b = Sidecar::start();
    let _provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", NUMBER)]);
    let peer = Peer::serving(vec![]);
    let link = peer.connect(&b);
    let (id, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id(ECHO, wrong()));
    let _route = peer.request(&link, &envelope);
    let record = b.audited("capability_schema_violation", 1).remove(0);
    assert_eq!(
        [&record["correlationId"], &record["peerId"], &record["side"]],
        [&json!(hex(&id)), &json!(peer.did()), &json!("request")]
    );
    assert_eq!(record.get("sessionId"), None);

    let mut caller = Caller::of(&b);
    let asked = caller.link.send(
        REQUEST,
        map([("op", "negotiate".into()), ("capability", NAME.into()), ("range", "1.0.0".into())]),
    );
    let session = field(caller.about(&asked).body(), "session_id").unwrap().clone();
    let body = map([
        ("capability", NAME.into()),
        ("params", wrong()),
        ("session", map([("session_id", session.clone())])),
    ]);
    let id = caller.invoke(body);
    assert_eq!(caller.error(&id).code(), Some(4004));
    let record = b.audited("capability_schema_violation", 2).remove(1);
    assert_eq!(record["sessionId"], hex(session.as_bytes().unwrap()));
}

#[test]
fn a_result_that_does_not_fit_is_kept_beside_its_provider_and_not_told_to_the_caller() {
    let b = Setup::new().set("audit.raw_bytes_max", "20").start();
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "output_schema", NUMBER)]);
    let mut caller = Caller::of(&b);
    let secret = map([("a", "a secret that the caller must not see".into())]);
    for result in [secret, map([("a", Value::Bytes(vec![7; 3])), ("b", f64::NAN.into())])] {
        let id = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        provider.succeed(&call, result);
        let answer = caller.result(&id);
        assert_eq!(failure(&answer), 5901);
        assert!(!format!("{answer:?}").contains("secret"), "{answer:?}");
    }
    let violations = b.audited("capability_schema_violation", 2);
    assert_eq!([&violations[0]["side"], &violations[0]["peerId"]], [&json!("response"), &json!(b.did)]);
    let raw = b.audited("raw_result", 2);
    assert_eq!(raw[0]["correlationId"], violations[0]["correlationId"]);
    assert_eq!(
        [&raw[0]["encoding"], &raw[0]["raw"], &raw[0]["truncated"]],
        [&json!("json"), &json!(r#"{"a":"a secret that "#), &json!(true)]
    );
    assert!(raw[0]["bytes"].as_u64().unwrap() > 20 && raw[0]["sha256"].as_str().unwrap().len() == 64);
    assert_eq!((&raw[1]["encoding"], raw[1]["raw"].as_str().unwrap().len()), (&json!("cbor-hex"), 20));
    holds(&b);
}

#[test]
fn a_peers_result_that_does_not_fit_is_a_record_beside_the_caller() {
    let peer = Peer::serving(vec![with_schema(ECHO, "output_schema", NUMBER)]).document(NUMBER);
    let a = Setup::new().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = peer.heard_type(CAP_INVOKE);
    peer.succeed(&call, wrong());
    assert_eq!(failure(&caller.result(&id)), 5901);
    let record = a.audited("capability_schema_violation", 1).remove(0);
    assert_eq!(
        [&record["capabilityName"], &record["correlationId"], &record["peerId"], &record["side"]],
        [&json!(NAME), &json!(hex(&id)), &json!(peer.did()), &json!("response")]
    );
    assert_eq!(a.audit().len(), 1, "the caller has the result itself, under details.raw");
    // The peer's second answer to it matches nothing that waits.
    peer.succeed(&call, wrong());
    let late = a.audited("late_result", 1).remove(0);
    assert_eq!([&late["correlationId"], &late["peerId"]], [&json!(hex(&id)), &json!(peer.did())]);
}

#[test]
fn late_second_and_unasked_answers_are_told_apart() {
    let b = Sidecar::start();
    let other = "org.example.other:1.0.0";
    for kind in [loose as fn(&str) -> Value, idempotent] {
        let before = b.audit().len();
        let mut provider = Provider::of(&b, vec![kind(ECHO)]);
        let mut stranger = Provider::of(&b, vec![kind(other)]);
        let mut caller = Caller::of(&b);

        let late = caller.invoke(within(ECHO, Value::Null, SOON_MS));
        let call = provider.taken();
        assert_eq!(failure(&caller.result(&late)), 5003);
        provider.is_told_to_cancel(&call);
        let answer = provider.succeed(&call, Value::Null);
        provider.is_refused(&answer, 4001);

        let second = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        provider.succeed(&call, "first".into());
        let answer = provider.succeed(&call, "second".into());
        provider.is_refused(&answer, 4001);
        assert_eq!(success(&caller.result(&second)), &Value::from("first"));

        let unasked = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        let answer = stranger.succeed(&call, Value::Null);
        stranger.is_refused(&answer, 4001);
        provider.succeed(&call, Value::Null);
        caller.result(&unasked);

        b.audited("duplicate_result", if before == 0 { 2 } else { 4 });
        let told: Vec<_> = b.audit()[before..]
            .iter()
            .map(|record| {
                assert_eq!([&record["peerId"], &record["capabilityName"]], [&json!(b.did), &json!(NAME)]);
                ["kind", "correlationId", "reason"].map(|key| record[key].as_str().unwrap().to_owned())
            })
            .collect();
        let expected = [
            ["late_result".to_owned(), hex(&late), "the call had ended without it".to_owned()],
            ["duplicate_result".to_owned(), hex(&second), "the call had its result".to_owned()],
            ["duplicate_result".to_owned(), hex(&unasked), "no call waited for it".to_owned()],
        ];
        assert_eq!(told, expected);
    }
}

#[test]
fn calls_that_a_kill_or_a_stop_cut_off_are_records() {
    let mut b = Setup::new().set("timeouts.drain_ms", "0").start();
    let mut ids = Vec::new();
    for is_killed in [true, false] {
        let mut provider = Provider::of(&b, vec![loose(ECHO)]);
        let mut caller = Caller::of(&b);
        ids.push(json!(hex(&caller.invoke(by_id(ECHO, Value::Null)))));
        provider.taken();
        if !is_killed {
            b.terminate();
        }
        b = b.restart();
    }
    let records = b.audited("interrupted", 2);
    for (record, id) in records.iter().zip(&ids) {
        assert_eq!(
            [&record["correlationId"], &record["peerId"], &record["capabilityName"]],
            [id, &json!(b.did), &json!(NAME)]
        );
    }
    assert_eq!(records[0]["reason"], "the sidecar stopped while it ran");
    assert!(records[0]["startedAt"].as_u64().unwrap() <= records[0]["ts"].as_u64().unwrap());
    assert_eq!(records[1]["reason"], "the sidecar shut down while it ran");
    assert_eq!(b.audit().len(), 2, "none of them is told twice");
    holds(&b);
}

#[test]
fn a_sidecar_starts_with_a_damaged_audit_log_and_says_so_in_the_new_one() {
    let mut b = Sidecar::start();
    b.terminate();
    std::fs::write(b.audit_file(), "no database at all").unwrap();
    let b = b.restart();
    let record = b.audited("audit_replaced", 1).remove(0);
    assert_eq!(record["movedTo"], "audit.db.damaged-1");
    let aside = b.audit_file().with_file_name("audit.db.damaged-1");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "no database at all");
    assert!(b.log().contains("the audit log was damaged"), "{}", b.log());
}

#[test]
fn a_full_disk_costs_audit_records_and_no_calls() {
    let b = Setup::new().meets_file_limits().start();
    let mut provider = Provider::of(&b, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(&b);
    let mut second_answer = || {
        let id = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        provider.succeed(&call, Value::Null);
        let answer = provider.succeed(&call, Value::Null);
        provider.is_refused(&answer, 4001);
        caller.result(&id);
        id
    };
    b.fill_disk();
    for _ in 0..3 {
        second_answer();
    }
    b.free_disk();
    let last = second_answer();
    // The writer takes what has queued up at once or apart: some of the first may be written with the last or before it.
    b.audited_about("duplicate_result", &hex(&last));
    let written = b.audited("duplicate_result", 1).len();
    let lost: u64 = b.audited("audit_lost", 0).iter().map(|record| record["records"].as_u64().unwrap()).sum();
    assert_eq!(written as u64 + lost, 4);
    holds(&b);
}

#[test]
fn a_peer_learns_nothing_of_the_log() {
    let b = Sidecar::start();
    let peer = Peer::serving(vec![]);
    let link = peer.connect(&b);
    for op in ["audit", "audit-prune", "no such operation"] {
        let body = map([("op", op.into()), ("before_ms", 1.into())]);
        let (id, envelope) = peer.sealed(&b.did, REQUEST, None, &body);
        let _route = peer.request(&link, &envelope);
        let refusal = peer.heard_type(ERROR).message;
        assert_eq!((refusal.code(), refusal.reply_to()), (Some(4001), Some(id)), "{op}: {refusal:?}");
        let said = field(refusal.body(), "message").unwrap().as_text().unwrap();
        assert_eq!(said, format!("the operation {op:?} is not known here"));
    }
}

#[test]
fn a_log_that_is_off_is_no_file() {
    let b = Setup::new().set("audit.file", "off").start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    provider.succeed(&call, Value::Null);
    let answer = provider.succeed(&call, Value::Null);
    provider.is_refused(&answer, 4001);
    caller.result(&id);
    assert!(!b.audit_file().exists());
}
