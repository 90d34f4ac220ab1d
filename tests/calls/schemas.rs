//! Params and results that break their schemas, progress, warnings, documents in; what each side is told out.

use ciborium::Value;

use crate::agents::{
    CAP_DECLARE, CAP_INVOKE, CAP_QUERY, Caller, DOC_REQUEST, DOC_SEND, ERROR, INPUT_REQUIRED, PROCESSING,
    PROGRESS, Provider, SOON_MS, by_id, failure, loose, of_error, success, with_schema,
};
use crate::peer::Peer;
use crate::support::{BytePeer, Message, Setup, Sidecar, field, map};

const ECHO: &str = "org.example.echo:1.0.0";
const COUNTED: &str = r#"{"type":"object","properties":{"count":{"type":"integer"},"name":{"type":"string"}},"required":["count"],"additionalProperties":false}"#;

fn counted(count: i64) -> Value {
    map([("count", count.into())])
}

/// A descriptor that names a schema by its hash alone, as a sidecar tells it to its peers.
pub fn by_hash(id: &str, key: &str, schema: &str) -> Value {
    use sha2::Digest as _;
    let hash = sha2::Sha256::digest(schema.as_bytes()).to_vec();
    let reference = map([
        ("hash_alg", "sha-256".into()),
        ("hash", Value::Bytes(hash)),
        ("uri", "ni:///sha-256;somewhere".into()),
    ]);
    map([("id", id.into()), (key, reference)])
}

fn beside(peer: &Peer) -> Sidecar {
    Setup::new().peer_at(peer.did(), &[&peer.address()]).start()
}

/// The paths of a refusal's violations.
fn paths(message: &Message) -> Vec<String> {
    let violations =
        field(of_error(message, "details").unwrap(), "violations").and_then(Value::as_array).unwrap();
    violations.iter().map(|item| field(item, "path").and_then(Value::as_text).unwrap().to_owned()).collect()
}

fn side(message: &Message) -> Option<&str> {
    field(of_error(message, "details")?, "schema_side").and_then(Value::as_text)
}

#[test]
fn bad_params_are_refused_beside_the_caller_and_nothing_goes_on_the_wire() {
    let peer = Peer::serving(vec![
        by_hash(ECHO, "input_schema", COUNTED),
        by_hash("org.example.twin:1.0.0", "input_schema", COUNTED),
    ])
    .document(COUNTED);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let wrong = map([("count", "many".into()), ("name", 5.into()), ("more", Value::Null)]);
    // Several at once, before the schema is there.
    let ids: Vec<_> = (0..3).map(|_| caller.invoke(by_id(ECHO, wrong.clone()))).collect();
    for id in ids {
        let refusal = caller.error(&id);
        assert_eq!((refusal.code(), side(&refusal)), (Some(4004), Some("request")));
        let mut paths = paths(&refusal);
        paths.sort();
        paths.dedup();
        assert!(["/count", "/name"].iter().all(|path| paths.contains(&(*path).to_owned())), "{paths:?}");
    }
    let twin = caller.invoke(by_id("org.example.twin:1.0.0", Value::Null));
    assert_eq!(caller.error(&twin).code(), Some(4004), "null stands for {{}}, which lacks `count`");
    let id = caller.invoke(by_id(ECHO, counted(1)));
    let call = peer.heard_type(CAP_INVOKE);
    assert_eq!(call.message.id(), id, "the first call that the peer hears of is the one that fits");
    peer.succeed(&call, Value::Null);
    caller.result(&id);
    assert_eq!(peer.document_requests(), 1);
}

#[test]
fn a_schema_whose_bytes_are_others_is_5002_and_the_call_does_not_go_out() {
    // The peer answers with no bytes at all, whose hash is another.
    let peer = Peer::serving(vec![by_hash(ECHO, "input_schema", COUNTED), loose("org.example.loose:1.0.0")]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, counted(1)));
    assert_eq!(caller.error(&id).code(), Some(5002));
    let id = caller.invoke(by_id("org.example.loose:1.0.0", Value::Null));
    let call = peer.heard_type(CAP_INVOKE);
    assert_eq!(call.message.id(), id);
    peer.succeed(&call, Value::Null);
    caller.result(&id);
}

#[test]
fn a_schema_that_did_not_come_in_one_calls_time_is_asked_for_again_for_the_next() {
    let peer = Peer::serving(vec![by_hash(ECHO, "input_schema", COUNTED)]).document(COUNTED);
    peer.withhold_documents(true);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let hasty = map([("id", ECHO.into()), ("params", counted(1)), ("timeout_ms", SOON_MS.into())]);
    let id = caller.invoke(hasty);
    assert_eq!(caller.error(&id).code(), Some(5003));
    peer.withhold_documents(false);
    let id = caller.invoke(by_id(ECHO, counted(2)));
    let call = peer.heard_type(CAP_INVOKE);
    assert_eq!(call.message.id(), id);
    peer.succeed(&call, Value::Null);
    caller.result(&id);
    assert_eq!(peer.document_requests(), 2);
}

#[test]
fn an_object_of_too_many_names_beside_branches_is_refused_with_how_many_may_be() {
    const CLOSED: &str = r#"{"properties":{"more":{"anyOf":[{"additionalProperties":{"type":"integer"}}],"unevaluatedProperties":false}}}"#;
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", CLOSED)]);
    let mut caller = Caller::of(&b);
    let names = |count: i64| Value::Map((0..count).map(|n| (format!("{n:x}").into(), n.into())).collect());
    let id = caller.invoke(by_id(ECHO, map([("more", names(5_000))])));
    let refusal = caller.error(&id);
    assert_eq!((refusal.code(), side(&refusal)), (Some(4004), Some("request")));
    let violations = field(of_error(&refusal, "details").unwrap(), "violations").and_then(Value::as_array);
    let [violation] = &violations.unwrap()[..] else { panic!("{violations:?}") };
    let told =
        ["path", "keyword", "message"].map(|name| field(violation, name).and_then(Value::as_text).unwrap());
    assert_eq!(
        told,
        [
            "/more",
            "unevaluatedProperties",
            "has 5000 properties, too many to check which of them the branches beside `unevaluatedProperties` know; \
             accepted: at most 896 here",
        ]
    );
    // As many as always may be, and as many as this payload was told.
    for count in [448, 896] {
        let id = caller.invoke(by_id(ECHO, map([("more", names(count))])));
        let call = provider.taken();
        provider.succeed(&call, Value::Null);
        caller.result(&id);
    }
}

#[test]
fn the_providers_sidecar_checks_params_whoever_sent_them() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", COUNTED)]);
    let peer = Peer::serving(vec![]);
    let link = peer.connect(&b);
    for (params, at) in [
        (map([("count", 1.5.into())]), "/count"),
        (map([("count", Value::Tag(1, Box::new(1.into())))]), "/count"),
        (map([("count", Value::from(2_i128.pow(64)))]), "/count"),
        (map([("count", f64::NAN.into())]), "/count"),
        ("text".into(), "/"),
    ] {
        let (_, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id(ECHO, params.clone()));
        let _route = peer.request(&link, &envelope);
        let refusal = peer.heard_type(ERROR).message;
        assert_eq!((refusal.code(), side(&refusal)), (Some(4004), Some("request")), "{params:?}");
        assert!(paths(&refusal).iter().any(|path| path == at), "{params:?} {:?}", paths(&refusal));
    }
    provider.heard_nothing_more();
}

#[test]
fn a_result_that_breaks_its_schema_stays_at_the_providers_sidecar() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "output_schema", COUNTED)]);
    for sidecar in [&a, &b] {
        let mut caller = Caller::of(sidecar);
        let id = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        provider.succeed(&call, map([("count", 1.into()), ("secret", "of the provider".into())]));
        let result = caller.result(&id);
        assert_eq!((failure(&result), side(&result)), (5901, Some("response")));
        assert_eq!(field(of_error(&result, "details").unwrap(), "raw"), None);
        let secret = b"of the provider";
        assert!(!result.bytes.windows(secret.len()).any(|window| window == secret));
        let id = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        provider.succeed(&call, counted(2));
        assert_eq!(success(&caller.result(&id)), &counted(2));
        caller.heard_nothing_more();
    }
}

#[test]
fn a_result_that_only_the_callers_sidecar_finds_wanting_is_shown_to_the_caller() {
    let peer = Peer::serving(vec![by_hash(ECHO, "output_schema", COUNTED)]).document(COUNTED);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    peer.succeed(&peer.heard_type(CAP_INVOKE), "wrong".into());
    let result = caller.result(&id);
    assert_eq!((failure(&result), side(&result)), (5901, Some("response")));
    assert_eq!(field(of_error(&result, "details").unwrap(), "raw"), Some(&Value::from("wrong")));
}

#[test]
fn a_result_that_an_error_cannot_hold_is_left_out_of_it_and_the_call_is_answered() {
    let peer = Peer::serving(vec![by_hash(ECHO, "output_schema", COUNTED)]).document(COUNTED);
    let a = Setup::new()
        .peer_at(peer.did(), &[&peer.address()])
        .set("limits.msg_size_bytes_max", "1048576")
        .start();
    let mut caller = Caller::of(&a);
    let too_deep = (0..62).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let too_long = Value::from("x".repeat(1_048_000));
    for result in [too_deep, too_long] {
        let id = caller.invoke(by_id(ECHO, Value::Null));
        peer.succeed(&peer.heard_type(CAP_INVOKE), result);
        let answer = caller.result(&id);
        assert_eq!((failure(&answer), side(&answer)), (5901, Some("response")));
        assert_eq!(field(of_error(&answer, "details").unwrap(), "raw"), None);
    }
}

#[test]
fn null_params_are_checked_as_an_empty_object_and_arrive_as_null() {
    let open = r#"{"type":"object"}"#;
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", open)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.echo();
    assert_eq!(field(call.body(), "params"), Some(&Value::Null));
    caller.result(&id);
}

#[test]
fn what_a_provider_says_while_it_runs_is_relayed_and_ends_nothing() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let over_quic = Setup::new().peer(&b).start();
    let over_tcp = Setup::new().peer_over_tcp(&b).start();
    for sidecar in [&over_quic, &over_tcp, &b] {
        let mut caller = Caller::of(sidecar);
        let id = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        let said = [
            (PROCESSING, map([("status_text", "begun".into())])),
            (PROGRESS, map([("progress_pct", 40.into()), ("unknown", true.into())])),
            (INPUT_REQUIRED, map([("prompt", "sure?".into())])),
            (PROGRESS, map([("progress_pct", 90.into())])),
        ];
        for (typ, body) in &said {
            provider.link.answer(&call, *typ, body.clone());
        }
        provider.succeed(&call, "done".into());
        for (typ, body) in &said {
            let message = caller.about(&id);
            assert_eq!((message.typ(), message.body()), (*typ, body));
        }
        assert_eq!(success(&caller.result(&id)), &Value::from("done"));
        // After the end it is nobody's.
        provider.link.answer(&call, PROGRESS, map([("progress_pct", 99.into())]));
        provider.heard_nothing_more();
        caller.heard_nothing_more();
    }
    // More than all of it is no progress.
    let mut caller = Caller::of(&over_quic);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    let wrong = provider.link.answer(&call, PROGRESS, map([("progress_pct", 101.into())]));
    provider.is_refused(&wrong, 1001);
    provider.succeed(&call, Value::Null);
    caller.result(&id);
}

#[test]
fn results_of_a_deprecated_version_carry_a_warning() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let old = map([("id", ECHO.into()), ("deprecated_versions", Value::Array(vec!["1.0.0".into()]))]);
    let mut provider = Provider::of(&b, vec![old, loose("org.example.echo:1.1.0")]);
    for sidecar in [&a, &b] {
        let mut caller = Caller::of(sidecar);
        for (id, is_deprecated) in [(ECHO, true), ("org.example.echo:1.1.0", false)] {
            let id = caller.invoke(by_id(id, Value::Null));
            provider.echo();
            let result = caller.result(&id);
            let warning = field(&result.value, "ext").and_then(|ext| field(ext, "deprecated"));
            assert_eq!(warning == Some(&Value::Bool(true)), is_deprecated, "{result:?}");
        }
    }
}

#[test]
fn a_deprecated_version_is_logged_once_for_each_caller_and_capability() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let deprecated =
        |id: &str| map([("id", id.into()), ("deprecated_versions", Value::Array(vec!["1.0.0".into()]))]);
    let other = "org.example.other:1.0.0";
    let current = loose("org.example.echo:1.1.0");
    let mut provider = Provider::of(&b, vec![deprecated(ECHO), deprecated(other), current]);
    for sidecar in [&a, &b] {
        let mut caller = Caller::of(sidecar);
        for id in [ECHO, "org.example.echo:1.1.0", ECHO, other, ECHO] {
            let id = caller.invoke(by_id(id, Value::Null));
            provider.echo();
            caller.result(&id);
        }
    }
    let warned = |sidecar: &Sidecar, caller: &Sidecar, id: &str| {
        let log = sidecar.log();
        let lines = log.lines().filter(|line| line.contains("asks for a deprecated version"));
        lines.filter(|line| line.contains(&caller.did) && line.contains(id)).count()
    };
    for id in [ECHO, other] {
        assert_eq!((warned(&a, &a, id), warned(&b, &a, id), warned(&b, &b, id)), (1, 1, 1), "{id}");
    }
    assert_eq!(warned(&b, &a, "org.example.echo:1.1.0"), 0);
}

#[test]
fn a_peers_schema_can_be_read_by_its_hash() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let _provider = Provider::of(&b, vec![with_schema(ECHO, "input_schema", COUNTED)]);
    let mut caller = Caller::of(&a);
    // A refused call makes the sidecar ask its peers what they serve.
    let id = caller.invoke(by_id("org.example.none:1.0.0", Value::Null));
    caller.error(&id);
    let query = map([("filter", map([("capability", "org.example.echo".into())]))]);
    let id = caller.link.send(CAP_QUERY, query);
    let listed = caller.about(&id);
    assert_eq!(listed.typ(), CAP_DECLARE, "{listed:?}");
    let descriptor = &field(listed.body(), "capabilities").and_then(Value::as_array).unwrap()[0];
    let reference = field(descriptor, "input_schema").unwrap();
    assert_eq!(field(reference, "inline"), None, "a peer is told the hash alone");
    let hash = field(reference, "hash").unwrap().clone();
    let id = caller.link.send(DOC_REQUEST, map([("hash", hash)]));
    let document = caller.about(&id);
    assert_eq!(document.typ(), DOC_SEND, "{document:?}");
    assert_eq!(field(document.body(), "data"), Some(&Value::Bytes(COUNTED.as_bytes().to_vec())));
    let id = caller.link.send(DOC_REQUEST, map([("hash", Value::Bytes(vec![0; 32]))]));
    assert_eq!(caller.error(&id).code(), Some(5002));
}

#[test]
fn a_declaration_whose_schema_cannot_be_kept_is_refused_whole() {
    let b = Sidecar::start();
    let mut agent = BytePeer::open(&b.socket);
    let unknown = with_schema(ECHO, "input_schema", r#"{"type":"wrong"}"#);
    let declaration = map([("capabilities", Value::Array(vec![loose("org.example.fine:1.0.0"), unknown]))]);
    let id = agent.send(CAP_DECLARE, declaration);
    let refusal = agent.message();
    assert_eq!((refusal.typ(), refusal.code(), refusal.reply_to()), (ERROR, Some(4001), Some(id)));
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id("org.example.fine:1.0.0", Value::Null));
    assert_eq!(caller.error(&id).code(), Some(4002));
}
