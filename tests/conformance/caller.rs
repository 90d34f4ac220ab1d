//! PROTOCOL 7.2 to 7.4 at the caller's own sidecar: what a peer that serves says wrongly in; the code that says why out,
//! to the agent that called, and to the peer.

use ciborium::{Value, cbor};
use sha2::{Digest as _, Sha256};

use crate::fixture::{
    CAP_DECLARE, CAP_INVOKE, CAP_QUERY, CAP_RESULT, DOC_REQUEST, DOC_SEND, ERROR, Refusal, ids, loose, sha256,
};
use crate::peer::{RawLink, Transport};
use crate::support::{Message, Sidecar, field, map, set};

const ID: &str = "com.example.far:1.0.0";
const INPUT: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
const OUTPUT: &str = r#"{"type":"integer"}"#;

/// A sidecar, its agent, and a peer over TLS that answers the sidecar's question with this CAP_DECLARE.
fn with_peer(declare: &Value) -> (Sidecar, RawLink, RawLink) {
    let sidecar = Sidecar::start();
    let mut peer = RawLink::open(&sidecar, Transport::Tcp);
    let question = peer.message_of(CAP_QUERY);
    peer.answer(&question, CAP_DECLARE, declare);
    peer.ping();
    let agent = RawLink::open(&sidecar, Transport::Unix);
    (sidecar, agent, peer)
}

fn by_hash(document: &str) -> Value {
    cbor!({ "hash_alg" => "sha-256", "hash" => sha256(document.as_bytes()), "uri" => "http://127.0.0.1:9/never-fetched" })
        .unwrap()
}

fn strict() -> Value {
    let mut descriptor = loose(ID);
    set(&mut descriptor, "input_schema", by_hash(INPUT));
    set(&mut descriptor, "output_schema", by_hash(OUTPUT));
    cbor!({ "capabilities" => [descriptor], "capabilities_version" => "1.0" }).unwrap()
}

fn call(params: Value) -> Value {
    map([("id", ID.into()), ("params", params)])
}

/// Answers one DOC_REQUEST with the document that it asks for.
fn send_document(peer: &mut RawLink, change: impl FnOnce(&mut Value)) -> Message {
    let request = peer.message_of(DOC_REQUEST);
    let hash = field(request.body(), "hash").and_then(Value::as_bytes).unwrap();
    let documents = [INPUT, OUTPUT];
    let wanted =
        documents.into_iter().find(|document| Sha256::digest(document).as_slice() == hash.as_slice());
    let data = wanted.expect("a schema of ours").as_bytes();
    let mut body = cbor!({
        "content_type" => "application/schema+json",
        "filename" => "schema.json",
        "size" => data.len(),
        "hash" => Value::Bytes(hash.clone()),
        "data" => Value::Bytes(data.to_vec()),
    })
    .unwrap();
    change(&mut body);
    peer.answer(&request, DOC_SEND, &body);
    request
}

/// A peer whose schema cannot be had is asked once more what it serves.
fn asked_what_it_serves(peer: &mut RawLink, declare: &Value) {
    let question = peer.message_of(CAP_QUERY);
    peer.answer(&question, CAP_DECLARE, declare);
}

/// Answers what the sidecar asks until it sends the call.
fn invoked(peer: &mut RawLink) -> Message {
    for _ in [INPUT, OUTPUT] {
        send_document(peer, |_| {});
    }
    peer.message_of(CAP_INVOKE)
}

#[test]
fn params_that_break_the_peers_schema_never_leave() {
    let (_sidecar, mut agent, mut peer) = with_peer(&strict());
    let id = agent.send(CAP_INVOKE, call(cbor!({ "n" => "1" }).unwrap()));
    for _ in [INPUT, OUTPUT] {
        send_document(&mut peer, |_| {});
    }
    let refusal = agent.refusal(&id);
    assert_eq!(refusal.code, 4004, "{refusal:?}");
    assert_eq!(refusal.detail("schema_side"), &"request".into(), "{refusal:?}");
    let ping = peer.send(0x01, map([]));
    let next = peer
        .message_where(|message| message.typ() == CAP_INVOKE || message.reply_to().as_ref() == Some(&ping));
    assert_eq!(next.reply_to(), Some(ping), "it left: {next:?}");
}

#[test]
fn a_result_that_breaks_its_schema_is_5901_with_the_raw_result() {
    let (_sidecar, mut agent, mut peer) = with_peer(&strict());
    let id = agent.send(CAP_INVOKE, call(cbor!({ "n" => 1 }).unwrap()));
    let invoke = invoked(&mut peer);
    peer.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => "no integer" }).unwrap());
    let result = agent.reply(&id);
    assert_eq!((result.typ(), result.code()), (CAP_RESULT, Some(5901)), "{result:?}");
    let details = field(field(result.body(), "error").unwrap(), "details").unwrap();
    assert_eq!(field(details, "schema_side"), Some(&"response".into()), "{details:?}");
    assert_eq!(field(details, "raw"), Some(&"no integer".into()), "{details:?}");
    agent.ping();
    peer.ping();
}

#[test]
fn a_schema_with_other_bytes_is_5002() {
    let changes: [&dyn Fn(&mut Value); 4] = [
        &|body| {
            set(body, "data", Value::Bytes(b"true".to_vec()));
            set(body, "size", 4.into());
        },
        &|body| {
            set(body, "data", Value::Bytes(b"true".to_vec()));
            set(body, "size", 4.into());
            set(body, "hash", sha256(b"true"));
        },
        &|body| set(body, "data", Value::Bytes(vec![])),
        &|body| set(body, "size", 1.into()),
    ];
    for change in changes {
        let (_sidecar, mut agent, mut peer) = with_peer(&strict());
        let id = agent.send(CAP_INVOKE, call(cbor!({ "n" => 1 }).unwrap()));
        send_document(&mut peer, change);
        asked_what_it_serves(&mut peer, &strict());
        let refusal = agent.refusal(&id);
        assert_eq!(refusal.code, 5002, "{refusal:?}");
        peer.ping();
    }
}

#[test]
fn a_schema_that_the_peer_does_not_have_is_5002() {
    let (_sidecar, mut agent, mut peer) = with_peer(&strict());
    let id = agent.send(CAP_INVOKE, call(cbor!({ "n" => 1 }).unwrap()));
    let request = peer.message_of(DOC_REQUEST);
    peer.answer(
        &request,
        ERROR,
        &cbor!({ "code" => 5002, "category" => "server", "message" => "gone" }).unwrap(),
    );
    asked_what_it_serves(&mut peer, &strict());
    let refusal = agent.refusal(&id);
    assert_eq!((refusal.code, refusal.message.as_str()), (5002, "gone"), "{refusal:?}");
}

#[test]
fn a_peer_that_serves_another_schema_by_now_is_called_with_that_one() {
    let mut stale = loose(ID);
    set(&mut stale, "input_schema", by_hash(r#"{"type":"string"}"#));
    let (_sidecar, mut agent, mut peer) =
        with_peer(&cbor!({ "capabilities" => [stale], "capabilities_version" => "1.0" }).unwrap());
    let id = agent.send(CAP_INVOKE, call(cbor!({ "n" => 1 }).unwrap()));
    let request = peer.message_of(DOC_REQUEST);
    let gone = cbor!({ "code" => 5002, "category" => "server", "message" => "gone" }).unwrap();
    peer.answer(&request, ERROR, &gone);
    asked_what_it_serves(&mut peer, &strict());
    let invoke = invoked(&mut peer);
    peer.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
    assert_eq!(agent.reply(&id).typ(), CAP_RESULT);
}

#[test]
fn a_newer_major_of_the_descriptor_format_is_4905() {
    let newer = cbor!({ "capabilities" => [loose(ID)], "capabilities_version" => "2.0" }).unwrap();
    let (sidecar, mut agent, mut peer) = with_peer(&newer);
    // Addressed to the peer, its answer is what cannot be read.
    let mut letter =
        agent.letter(CAP_QUERY, &cbor!({ "filter" => { "capability" => "com.example.far" } }).unwrap());
    letter.to = vec![peer.from.clone()];
    let id = agent.send_letter(&letter);
    let question = peer.message_where(|message| message.id() == id);
    peer.answer(&question, CAP_DECLARE, &newer);
    assert_eq!(agent.refusal(&id).code, 4905);
    // Addressed to nobody in particular, the name may be the peer's.
    for (typ, body) in [
        (CAP_INVOKE, call(Value::Null)),
        (CAP_QUERY, cbor!({ "filter" => { "capability" => "com.example.far" } }).unwrap()),
    ] {
        let id = agent.send(typ, body);
        let ping = agent.send(0x01, map([]));
        let first = agent.message();
        let refusal = if first.reply_to().as_ref() == Some(&ping) {
            // The peer is asked once more before the agent is told.
            let question = peer.message_of(CAP_QUERY);
            peer.answer(&question, CAP_DECLARE, &newer);
            agent.reply(&id)
        } else {
            first
        };
        assert_eq!(refusal.reply_to(), Some(id), "{refusal:?}");
        assert_eq!(Refusal::of(&refusal).code, 4905, "{refusal:?}");
    }
    drop(sidecar);
}

#[test]
fn only_the_peer_that_was_asked_may_answer() {
    let (sidecar, mut agent, mut peer) = with_peer(&cbor!({ "capabilities" => [loose(ID)] }).unwrap());
    let id = agent.send(CAP_INVOKE, call(Value::Null));
    let invoke = peer.message_of(CAP_INVOKE);
    for transport in Transport::ALL {
        let mut forger = RawLink::open(&sidecar, transport);
        let mut forged =
            forger.letter(CAP_RESULT, &cbor!({ "status" => "success", "result" => 666 }).unwrap());
        forged.reply_to = Some(invoke.id());
        let forged = forger.send_letter(&forged);
        assert_eq!(forger.refusal(&forged).code, 4001, "{transport:?}");
    }
    let unfit = peer.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success" }).unwrap());
    assert_eq!(peer.refusal(&unfit).code, 1001);
    peer.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
    assert_eq!(field(agent.reply(&id).body(), "result"), Some(&1.into()));
    let second = peer.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 2 }).unwrap());
    assert_eq!(peer.refusal(&second).code, 4001);
}

#[test]
fn a_peers_refusal_reaches_the_agent_as_it_is() {
    let (_sidecar, mut agent, mut peer) = with_peer(&cbor!({ "capabilities" => [loose(ID)] }).unwrap());
    let id = agent.send(CAP_INVOKE, call(Value::Null));
    let invoke = peer.message_of(CAP_INVOKE);
    let body = cbor!({ "code" => 3999, "category" => "security", "message" => "no", "details" => { "why" => 1 }, "retry" => false });
    peer.answer(&invoke, ERROR, &body.unwrap());
    let refusal = agent.refusal(&id);
    assert_eq!((refusal.code, refusal.message.as_str()), (3999, "no"), "{refusal:?}");
    assert_eq!(refusal.detail("why"), &1.into(), "{refusal:?}");
}

#[test]
fn an_error_is_never_answered_by_one() {
    let sidecar = Sidecar::start();
    for transport in Transport::PEER {
        let mut peer = RawLink::open(&sidecar, transport);
        let body = cbor!({ "code" => 1003, "category" => "protocol", "message" => "x" }).unwrap();
        let mut expired = peer.letter(ERROR, &body);
        expired.ts -= 120_000;
        expired.id = crate::peer::id_at(expired.ts);
        let mut astray = peer.letter(ERROR, &body);
        astray.to = vec!["did:web:example.com".to_owned()];
        let mut ids: Vec<_> = [expired, astray].iter().map(|letter| Some(peer.send_letter(letter))).collect();
        let ping = peer.send(0x01, map([]));
        ids.push(Some(ping.clone()));
        let first = peer.message_where(|message| ids.contains(&message.reply_to()));
        assert_eq!(first.reply_to(), Some(ping), "{transport:?}: {first:?}");
    }
}

#[test]
fn an_older_answer_of_what_a_peer_serves_never_replaces_a_newer_one() {
    let sidecar = Sidecar::start();
    let mut peer = RawLink::open(&sidecar, Transport::Tcp);
    let serves = |id: &str| cbor!({ "capabilities" => [loose(id)] }).unwrap();
    let everything = || cbor!({ "filter" => { "capability" => "*" } }).unwrap();
    let older = peer.message_of(CAP_QUERY);
    let mut agent = RawLink::open(&sidecar, Transport::Unix);
    let listed = agent.send(CAP_QUERY, everything());
    let newer = peer.message_of(CAP_QUERY);
    peer.answer(&newer, CAP_DECLARE, &serves("com.example.far:2.0.0"));
    assert_eq!(ids(&agent.reply(&listed)), ["com.example.far:2.0.0"]);
    peer.answer(&older, CAP_DECLARE, &serves("com.example.far:1.0.0"));
    for _ in 0..3 {
        peer.ping();
        // Within a second of its last question the sidecar answers from what it knows.
        let listed = agent.send(CAP_QUERY, everything());
        assert_eq!(ids(&agent.reply(&listed)), ["com.example.far:2.0.0"]);
    }
}
