//! Agents that say what they were built against, and providers that keep to it or do not, in; calls that pass or are
//! refused before anybody saw them, out.

use std::time::Instant;

use ciborium::Value;

use crate::agents::{CAP_INVOKE, Caller, Provider, by_id, failure, inline, loose, of_error, success, within};
use crate::peer::Peer;
use crate::schemas::by_hash;
use crate::support::{Message, PATIENCE, Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";
const COUNTED: &str = r#"{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"],"additionalProperties":false}"#;
/// Asks for one thing more than `COUNTED` gives.
const NAMED: &str = r#"{"type":"object","properties":{"count":{"type":"integer"},"name":{"type":"string"}},"required":["count","name"],"additionalProperties":false}"#;
/// Takes what `COUNTED` has, and more.
const WIDE: &str = r#"{"type":"object","properties":{"count":{"type":"number"}}}"#;
/// Nobody can prove that it takes what `COUNTED` has.
const UNPROVABLE: &str =
    r#"{"type":"object","properties":{"count":{"type":"integer"}},"unevaluatedProperties":false}"#;

/// A declaration that requires `org.example.echo` with these schemas.
fn requires(schemas: &[(&str, &str)]) -> String {
    let mut yaml =
        "version: 1\nrequires:\n- name: org.example.echo\n  version: \">=1.0.0 <2.0.0\"\n".to_owned();
    for (key, schema) in schemas {
        yaml += &format!("  {key}: {schema}\n");
    }
    yaml
}

/// A sidecar whose agent was built against `COUNTED` both ways.
fn built_against_counted() -> Setup {
    Setup::new().capabilities(&requires(&[("inputSchema", COUNTED), ("outputSchema", COUNTED)]))
}

fn counted(count: i64) -> Value {
    map([("count", count.into())])
}

fn echo(input: &str, output: &str) -> Value {
    map([("id", ECHO.into()), ("input_schema", inline(input)), ("output_schema", inline(output))])
}

/// The findings of a refusal: side, verdict, rule or construct, and whether there is a witness.
fn findings(message: &Message) -> Vec<(String, String, String, bool)> {
    let details = of_error(message, "details").unwrap_or_else(|| panic!("{message:?}"));
    let findings = field(details, "findings").and_then(Value::as_array).unwrap();
    let told = findings.iter().map(|finding| {
        let text = |key| field(finding, key).and_then(Value::as_text).map(str::to_owned);
        let rule = text("rule").or(text("construct")).unwrap();
        (text("side").unwrap(), text("verdict").unwrap(), rule, field(finding, "witness").is_some())
    });
    told.collect()
}

fn finding(side: &str, verdict: &str, rule: &str, has_witness: bool) -> (String, String, String, bool) {
    (side.to_owned(), verdict.to_owned(), rule.to_owned(), has_witness)
}

/// Waits until a line of the log holds all of these.
#[track_caller]
fn logs(sidecar: &Sidecar, parts: &[&str]) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let log = sidecar.log();
        let count = log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).count();
        if count > 0 {
            return count;
        }
        assert!(Instant::now() < deadline, "{parts:?}\n{log}");
        std::thread::yield_now();
    }
}

/// Holds that so many proofs ended proven, drifted, unknown and unpublished.
#[track_caller]
fn proofs(sidecar: &Sidecar, counts: [u64; 4]) {
    let count =
        |verdict: &str| sidecar.metric(&format!("capd_drift_verdicts_total{{verdict=\"{verdict}\"}}"));
    assert_eq!(["proven", "drifted", "unknown", "unpublished"].map(count), counts);
}

#[test]
fn a_provider_that_asks_for_more_is_refused_with_a_value_that_shows_it() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![echo(NAMED, COUNTED)]);
    let a = built_against_counted().peer(&b).start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    let refusal = caller.error(&id);
    assert_eq!(refusal.code(), Some(4902));
    assert_eq!(findings(&refusal), [finding("request", "refuted", "required", true)]);
    let details = of_error(&refusal, "details").unwrap();
    let first = &field(details, "findings").and_then(Value::as_array).unwrap()[0];
    assert!(field(field(first, "witness").unwrap(), "count").is_some());
    let violation = &field(first, "violations").and_then(Value::as_array).unwrap()[0];
    assert_eq!(field(violation, "path"), Some(&Value::from("/name")));
    assert_eq!(field(details, "provider"), Some(&Value::from(b.did.as_str())));
    assert_eq!(field(details, "capability"), Some(&Value::from(ECHO)));
    let [record] = a.audited("drift", 1).try_into().unwrap();
    assert_eq!((&record["code"], &record["peerId"]), (&4902.into(), &b.did.as_str().into()));
    let told = &record["findings"][0];
    assert_eq!((&told["side"], &told["rule"]), (&"request".into(), &"required".into()));
    assert!(told["witness"].as_str().unwrap().contains("count"), "{record}");
    proofs(&a, [0, 1, 0, 0]);
    provider.heard_nothing_more();
}

#[test]
fn both_sides_are_told_and_what_only_narrows_is_no_drift() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![echo(NAMED, WIDE)]);
    let a = built_against_counted().peer(&b).start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    let sides: Vec<_> = findings(&caller.error(&id)).into_iter().map(|(side, ..)| side).collect();
    assert_eq!(sides, ["request", "response"]);
    provider.heard_nothing_more();
    provider.declare(vec![echo(WIDE, COUNTED)]);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &counted(1));
}

#[test]
fn a_schema_that_changes_while_calls_go_on_is_proven_again_and_so_is_the_next() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![echo(COUNTED, COUNTED)]);
    let a = built_against_counted().peer(&b).start();
    let mut caller = Caller::of(&a);
    for count in 0..3 {
        let id = caller.invoke(by_id(ECHO, counted(count)));
        provider.echo();
        caller.result(&id);
    }
    provider.declare(vec![echo(NAMED, COUNTED)]);
    // The provider's sidecar refuses what its schema does not take, and from that the caller's learns of it.
    let id = caller.invoke(by_id(ECHO, counted(4)));
    assert_eq!(caller.error(&id).code(), Some(4004));
    logs(&a, &["does not meet a requirement"]);
    let id = caller.invoke(by_id(ECHO, counted(4)));
    assert_eq!(caller.error(&id).code(), Some(4902));
    provider.heard_nothing_more();
    // Mended again, it is found out by the next call, and what was proven before holds.
    provider.declare(vec![echo(COUNTED, COUNTED)]);
    let id = caller.invoke(by_id(ECHO, counted(5)));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &counted(5));
    assert_eq!(logs(&a, &["a requirement is proven"]), 1);
}

#[test]
fn calls_that_come_together_wait_for_one_proof() {
    let peer = Peer::serving(vec![by_hash(ECHO, "input_schema", WIDE)]).document(WIDE);
    let a = Setup::new()
        .capabilities(&requires(&[("inputSchema", COUNTED)]))
        .peer_at(peer.did(), &[&peer.address()])
        .start();
    let mut caller = Caller::of(&a);
    let ids: Vec<_> = (0..40).map(|count| caller.invoke(by_id(ECHO, counted(count)))).collect();
    for _ in &ids {
        let call = peer.heard_type(CAP_INVOKE);
        peer.succeed(&call, Value::Null);
    }
    for id in &ids {
        caller.result(id);
    }
    assert_eq!((logs(&a, &["a requirement is proven"]), peer.document_requests()), (1, 1));
    proofs(&a, [1, 0, 0, 0]);
}

#[test]
fn a_construct_that_cannot_be_proven_is_4903_and_nothing_is_sent() {
    let peer = Peer::serving(vec![by_hash(ECHO, "input_schema", UNPROVABLE)]).document(UNPROVABLE);
    let a = built_against_counted().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    // Its results may be anything, which is refuted; the agent that only sends is told of what is not known.
    let id = caller.invoke(by_id(ECHO, counted(1)));
    assert_eq!(caller.error(&id).code(), Some(4902));
    let sends = Setup::new()
        .capabilities(&requires(&[("inputSchema", COUNTED)]))
        .peer_at(peer.did(), &[&peer.address()])
        .start();
    let mut caller = Caller::of(&sends);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    let refusal = caller.error(&id);
    assert_eq!(refusal.code(), Some(4903));
    assert_eq!(findings(&refusal), [finding("request", "unknown", "unevaluatedProperties", false)]);
    proofs(&sends, [0, 0, 1, 0]);
}

#[test]
fn descriptors_of_a_newer_format_are_4905() {
    let peer = Peer::serving(vec![loose(ECHO)]);
    peer.write_format("2.0");
    let a = built_against_counted().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    assert_eq!(caller.error(&id).code(), Some(4905));
}

#[test]
fn a_provider_that_tells_no_schemas_is_called_and_what_passes_is_held_to_the_agents_own() {
    let peer = Peer::serving(vec![loose(ECHO)]);
    let a = built_against_counted().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, map([("count", "many".into())])));
    assert_eq!(caller.error(&id).code(), Some(4004));
    let id = caller.invoke(by_id(ECHO, counted(1)));
    peer.succeed(&peer.heard_type(CAP_INVOKE), "no count".into());
    let result = caller.result(&id);
    assert_eq!(failure(&result), 5901);
    assert_eq!(field(of_error(&result, "details").unwrap(), "raw"), Some(&Value::from("no count")));
    let id = caller.invoke(by_id(ECHO, counted(2)));
    peer.succeed(&peer.heard_type(CAP_INVOKE), counted(2));
    assert_eq!(success(&caller.result(&id)), &counted(2));
    assert_eq!(logs(&a, &["does not publish its schemas"]), 1);
    proofs(&a, [0, 0, 0, 1]);
}

#[test]
fn a_peer_from_before_documents_is_asked_once_and_called_unproven() {
    let peer = Peer::serving(vec![by_hash(ECHO, "input_schema", NAMED)]);
    peer.refuse_documents(1005);
    let a = built_against_counted().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    // Nothing is known of its input. That its results may be anything is what it tells, so the agent that takes them
    // is not let through; one that only sends is.
    let id = caller.invoke(by_id(ECHO, counted(1)));
    assert_eq!(caller.error(&id).code(), Some(4902));
    let sends = Setup::new()
        .capabilities(&requires(&[("inputSchema", COUNTED)]))
        .peer_at(peer.did(), &[&peer.address()])
        .start();
    let asked = peer.document_requests();
    // A call before that has the peer asked what it serves once more, and so a second time ahead.
    logs(&sends, &["peer serves"]);
    let mut caller = Caller::of(&sends);
    for count in 0..5 {
        let id = caller.invoke(by_id(ECHO, counted(count)));
        peer.succeed(&peer.heard_type(CAP_INVOKE), Value::Null);
        caller.result(&id);
    }
    assert_eq!(logs(&sends, &["does not publish its schemas"]), 1);
    assert!(peer.document_requests() <= asked + 2, "each way to it asks once: ahead, and the first call");
}

#[test]
fn what_nobody_serves_is_told_at_the_start_and_an_error_at_the_call() {
    let a = built_against_counted().start();
    assert_eq!(logs(&a, &["a required capability has no provider", "org.example.echo >=1.0.0 <2.0.0"]), 1);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    assert_eq!(caller.error(&id).code(), Some(4002));
}

#[test]
fn a_required_peer_that_is_down_is_told_of_once_and_proven_when_it_is_back() {
    let mut b = Sidecar::start();
    let setup = built_against_counted().peer(&b);
    b.kill();
    let a = setup.start();
    assert_eq!(
        logs(
            &a,
            &[
                "a required capability has no provider",
                "org.example.echo >=1.0.0 <2.0.0",
                "peers_known=false"
            ]
        ),
        1
    );
    let mut caller = Caller::of(&a);
    // It may come back and serve it, so that the call waits for a link, and ends as one to any peer that is down.
    let id = caller.invoke(within(ECHO, counted(1), 300));
    assert_eq!(caller.error(&id).code(), Some(2002));
    let b = b.restart();
    let mut provider = Provider::of(&b, vec![echo(NAMED, COUNTED)]);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    assert_eq!(caller.error(&id).code(), Some(4902), "the first call to it is held against what it serves");
    provider.declare(vec![echo(WIDE, COUNTED)]);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &counted(1));
    assert_eq!(logs(&a, &["a required capability has no provider"]), 1);
}

#[test]
fn a_provider_beside_the_agent_is_held_to_it_as_well() {
    let a = built_against_counted().start();
    let mut provider = Provider::of(&a, vec![echo(NAMED, COUNTED)]);
    let mut caller = Caller::of(&a);
    let ids: Vec<_> = (0..5).map(|count| caller.invoke(by_id(ECHO, counted(count)))).collect();
    for id in ids {
        assert_eq!(caller.error(&id).code(), Some(4902));
    }
    provider.heard_nothing_more();
    provider.declare(vec![echo(WIDE, COUNTED)]);
    let id = caller.invoke(by_id(ECHO, map([("count", 1.5.into())])));
    assert_eq!(
        caller.error(&id).code(),
        Some(4004),
        "the provider would take it, the agent was not built for it"
    );
    let id = caller.invoke(by_id(ECHO, counted(1)));
    provider.echo();
    caller.result(&id);
    // It tells nothing, so results are held against what the agent takes.
    provider.declare(vec![loose(ECHO)]);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    let call = provider.taken();
    provider.succeed(&call, "no count".into());
    assert_eq!(failure(&caller.result(&id)), 5901);
    provider.heard_nothing_more();
}

#[test]
fn a_range_without_a_schema_keeps_calls_from_other_versions() {
    let b = Sidecar::start();
    let newer = "org.example.echo:2.0.0";
    let mut provider = Provider::of(&b, vec![loose(newer)]);
    let a = Setup::new().capabilities(&requires(&[])).peer(&b).start();
    let mut caller = Caller::of(&a);
    let any = map([("range", ">=1.0.0".into())]);
    let newest = map([("capability", "org.example.echo".into()), ("negotiate", any), ("params", counted(1))]);
    for call in [by_id(newer, counted(1)), newest] {
        let id = caller.invoke(call);
        let refusal = caller.error(&id);
        assert_eq!(refusal.code(), Some(4902));
        assert_eq!(findings(&refusal), [finding("request", "refuted", "version", true)]);
        let message = of_error(&refusal, "message").and_then(Value::as_text).unwrap();
        assert!(
            message.contains("version 2.0.0 is not in >=1.0.0") && message.contains("<2.0.0"),
            "{message}"
        );
    }
    assert_eq!(a.audited("drift", 2)[0]["findings"][0]["rule"], "version");
    provider.heard_nothing_more();
    provider.declare(vec![loose("org.example.echo:1.9.0")]);
    let id = caller.invoke(by_id("org.example.echo:1.9.0", counted(1)));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &counted(1));
}

#[test]
fn another_capability_and_another_agents_calls_pass_as_ever() {
    let b = built_against_counted().start();
    let mut provider = Provider::of(&b, vec![echo(NAMED, NAMED), loose("org.example.other:1.0.0")]);
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    let named = map([("count", 1.into()), ("name", "x".into())]);
    let id = caller.invoke(by_id(ECHO, named.clone()));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &named, "what b's agent requires is nothing to a's");
    let mut own = Caller::of(&b);
    let id = own.invoke(by_id("org.example.other:1.0.0", Value::Null));
    provider.echo();
    own.result(&id);
}

#[test]
fn a_call_that_was_given_away_is_asked_about_whatever_has_drifted_since() {
    let peer = Peer::serving(vec![by_hash(ECHO, "input_schema", COUNTED)]).document(COUNTED).document(NAMED);
    let a = Setup::new()
        .capabilities(&requires(&[("inputSchema", COUNTED)]))
        .peer_at(peer.did(), &[&peer.address()])
        .start();
    let mut caller = Caller::of(&a);
    let mut envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, counted(1)));
    set(&mut envelope, "ttl", 600_000.into());
    let id = caller.link.send_envelope(&envelope);
    let call = peer.heard_type(CAP_INVOKE);
    peer.succeed(&call, counted(1));
    caller.result(&id);
    peer.serve(vec![by_hash(ECHO, "input_schema", NAMED)]);
    // What the peer says of a new call makes the sidecar look again.
    let other = caller.invoke(by_id(ECHO, counted(2)));
    peer.refuse(&peer.heard_type(CAP_INVOKE), 4004, "client");
    assert_eq!(caller.error(&other).code(), Some(4004));
    logs(&a, &["does not meet a requirement"]);
    let other = caller.invoke(by_id(ECHO, counted(3)));
    assert_eq!(caller.error(&other).code(), Some(4902));
    assert_eq!(caller.link.send_envelope(&envelope), id);
    let again = peer.heard_type(CAP_INVOKE);
    assert_eq!(again.message.id(), id);
    peer.succeed(&again, counted(1));
    caller.result(&id);
}
