//! PROTOCOL 7.5: what cannot be agreed on in, 4003 out; what was agreed on stands until it is gone.

use ciborium::{Value, cbor};

use crate::fixture::{CAP_INVOKE, CAP_RESULT, REQUEST, RESPONSE, declare, loose, served};
use crate::peer::{RawLink, Transport};
use crate::support::{Message, field, map, set};

const KINDS: [Transport; 3] = [Transport::Unix, Transport::Tcp, Transport::Quic];

fn three() -> Vec<Value> {
    ["com.example.echo:1.0.0", "com.example.echo:1.5.0", "com.example.echo:2.0.0"].map(loose).to_vec()
}

fn negotiate(fields: Value) -> Value {
    let mut request = cbor!({ "op" => "negotiate", "capability" => "com.example.echo" }).unwrap();
    for (key, value) in fields.as_map().unwrap() {
        set(&mut request, key.as_text().unwrap(), value.clone());
    }
    request
}

fn accepted(link: &mut RawLink, fields: Value) -> (String, Value) {
    let response = link.ask(REQUEST, negotiate(fields));
    assert_eq!(response.typ(), RESPONSE, "{response:?}");
    let body = response.body();
    assert_eq!(field(body, "op"), Some(&"accept".into()), "{response:?}");
    assert_eq!(field(body, "capability"), Some(&"com.example.echo".into()), "{response:?}");
    assert_eq!(field(body, "session_id").and_then(Value::as_bytes).map(Vec::len), Some(16), "{response:?}");
    let expires_at: u64 = field(body, "expires_at").and_then(Value::as_integer).unwrap().try_into().unwrap();
    assert!(expires_at > crate::peer::now_ms(), "{response:?}");
    let version = field(body, "agreed_version").and_then(Value::as_text).unwrap().to_owned();
    (version, field(body, "session_id").cloned().unwrap())
}

#[test]
fn preferred_then_acceptable_then_the_highest_in_range() {
    let (sidecar, _agent) = served(three());
    let cases = [
        (cbor!({ "preferred_version" => "1.0.0", "range" => ">=1.0.0" }), "1.0.0"),
        (
            cbor!({ "preferred_version" => "3.0.0", "acceptable_versions" => ["4.0.0", "1.0.0", "2.0.0"] }),
            "1.0.0",
        ),
        (
            cbor!({ "preferred_version" => "3.0.0", "acceptable_versions" => ["4.0.0"], "range" => "<2.0.0" }),
            "1.5.0",
        ),
        (cbor!({ "range" => ">=1.0.0" }), "2.0.0"),
        (cbor!({ "preferred_version" => "1.5" }), "1.5.0"),
    ];
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for (fields, version) in &cases {
            let fields = fields.as_ref().unwrap();
            assert_eq!(accepted(&mut link, fields.clone()).0, *version, "{transport:?}: {fields:?}");
        }
    }
}

#[test]
fn what_is_not_served_is_4003_with_what_is() {
    let (sidecar, _agent) = served(three());
    let cases = [
        cbor!({ "preferred_version" => "3.0.0" }),
        cbor!({ "acceptable_versions" => ["3.0.0", "1.0.1"] }),
        cbor!({ "range" => ">2.0.0" }),
        cbor!({ "preferred_version" => "2.0.0-rc.1", "range" => "<1.0.0" }),
    ];
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for fields in &cases {
            let refusal = link.refused(REQUEST, negotiate(fields.as_ref().unwrap().clone()));
            assert_eq!(refusal.code, 4003, "{transport:?}: {fields:?}: {refusal:?}");
            assert_eq!(refusal.available(), ["2.0.0", "1.5.0", "1.0.0"], "{transport:?}: {fields:?}");
        }
        let unknown = cbor!({ "op" => "negotiate", "capability" => "com.example.none", "range" => "1.0.0" });
        assert_eq!(link.refused(REQUEST, unknown.unwrap()).code, 4002, "{transport:?}");
    }
}

#[test]
fn supported_ranges_serve_but_not_below_the_minimum() {
    let mut descriptor = loose("com.example.echo:2.0.0");
    set(&mut descriptor, "supported_ranges", cbor!([">=1.0.0 <2.0.0"]).unwrap());
    set(&mut descriptor, "min_schema_version", "1.5.0".into());
    let (sidecar, _agent) = served(vec![descriptor]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let chosen = accepted(&mut link, cbor!({ "preferred_version" => "1.6.0" }).unwrap()).0;
        assert_eq!(chosen, "2.0.0", "{transport:?}: what is chosen is a descriptor's own version");
        let below = link.refused(REQUEST, negotiate(cbor!({ "preferred_version" => "1.4.0" }).unwrap()));
        assert_eq!(below.code, 4003, "{transport:?}: {below:?}");
    }
}

#[test]
fn supported_ranges_serve_nothing_from_before_the_capability_was_there() {
    let mut descriptor = loose("com.example.echo:2.0.0");
    set(&mut descriptor, "supported_ranges", cbor!([">=1.0.0 <2.0.0"]).unwrap());
    set(&mut descriptor, "min_schema_version", "1.2.0".into());
    set(&mut descriptor, "since", "1.5.0".into());
    let (sidecar, _agent) = served(vec![descriptor]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        assert_eq!(accepted(&mut link, cbor!({ "preferred_version" => "1.5.0" }).unwrap()).0, "2.0.0");
        for fields in [cbor!({ "preferred_version" => "1.4.0" }), cbor!({ "range" => ">=1.2.0 <1.5.0" })] {
            let below = link.refused(REQUEST, negotiate(fields.unwrap()));
            assert_eq!(below.code, 4003, "{transport:?}: {below:?}");
            assert_eq!(below.available(), ["2.0.0"], "{transport:?}");
        }
    }
}

/// Calls by session alone and lets the provider answer; gives what the provider got.
fn call_in_session(link: &mut RawLink, agent: &mut RawLink, session: &Value) -> Message {
    let session = map([("session_id", session.clone())]);
    let call =
        map([("capability", "com.example.echo".into()), ("session", session), ("params", Value::Null)]);
    let id = link.send(CAP_INVOKE, call);
    let invoke = agent.message_of(CAP_INVOKE);
    agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
    assert_eq!(link.reply(&id).typ(), CAP_RESULT);
    invoke
}

fn by_session(session: &Value) -> Value {
    let session = map([("session_id", session.clone())]);
    map([("capability", "com.example.echo".into()), ("session", session), ("params", Value::Null)])
}

#[test]
fn a_pinned_version_that_is_gone_is_4003_and_never_another() {
    let (sidecar, mut agent) = served(three());
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let (version, session) = accepted(&mut link, cbor!({ "preferred_version" => "1.5.0" }).unwrap());
        assert_eq!(version, "1.5.0");
        call_in_session(&mut link, &mut agent, &session);
        declare(&mut agent, vec![loose("com.example.echo:1.5.1"), loose("com.example.echo:2.0.0")]);
        let refusal = link.refused(CAP_INVOKE, by_session(&session));
        assert_eq!(refusal.code, 4003, "{transport:?}: {refusal:?}");
        assert_eq!(refusal.available(), ["2.0.0", "1.5.1"], "{transport:?}");
        declare(&mut agent, three());
        call_in_session(&mut link, &mut agent, &session);
    }
}

#[test]
fn a_session_pins_only_its_own_agents_calls_of_its_own_capability() {
    let (sidecar, _agent) = served([three(), vec![loose("com.example.other:1.0.0")]].concat());
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let (_, session) = accepted(&mut link, cbor!({ "preferred_version" => "1.5.0" }).unwrap());
        let mut other_name = by_session(&session);
        set(&mut other_name, "capability", "com.example.other".into());
        assert_eq!(link.refused(CAP_INVOKE, other_name).code, 4001, "{transport:?}");
        let mut other_version = by_session(&session);
        set(&mut other_version, "version", "2.0.0".into());
        assert_eq!(link.refused(CAP_INVOKE, other_version).code, 4001, "{transport:?}");
        let mut stranger = RawLink::open(&sidecar, Transport::Tcp);
        let refusal = stranger.refused(CAP_INVOKE, by_session(&session));
        assert_eq!(refusal.code, 4001, "{transport:?}: {refusal:?}");
    }
}
