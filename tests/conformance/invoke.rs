//! PROTOCOL 7.3 and 10: calls that are refused before they run in, one ERROR each out; the provider sees none of them.

use ciborium::{Value, cbor};

use crate::fixture::{CAP_INVOKE, CAP_RESULT, Refusal, checked, loose, served, serving};
use crate::peer::{RawLink, Transport};
use crate::support::{Message, Setup, Sidecar, field, map, set};

const KINDS: [Transport; 3] = [Transport::Unix, Transport::Tcp, Transport::Quic];
const INPUT: &str = r#"{"type":"object","properties":{"n":{"type":"integer","maximum":9},"s":{"type":"string"}},"required":["n"],"additionalProperties":false}"#;

/// One call of each kind of link is refused like this; the provider is asked nothing.
fn each_is_refused(code: u64, calls: &[Value]) {
    let descriptors = vec![
        loose("com.example.echo:1.0.0"),
        loose("com.example.echo:2.0.0"),
        checked("com.example.strict:1.0.0", INPUT, "true"),
    ];
    let (sidecar, mut agent) = served(descriptors);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for call in calls {
            let refusal = link.refused(CAP_INVOKE, call.clone());
            assert_eq!(refusal.code, code, "{transport:?}: {call:?}: {refusal:?}");
        }
    }
    // What was sent to the agent would stand before the PONG.
    let ping = agent.send(0x01, map([]));
    let next = agent.message();
    assert_eq!(next.reply_to(), Some(ping), "the provider was asked: {next:?}");
}

fn strict(params: Value) -> Value {
    cbor!({ "id" => "com.example.strict:1.0.0", "params" => params }).unwrap()
}

#[test]
fn a_call_without_an_identity_is_4001() {
    let calls = [
        cbor!({ "params" => null }),
        cbor!({ "version" => "1.0.0", "params" => null }),
        cbor!({ "capability" => "com.example.echo", "params" => null }),
        cbor!({ "type" => "com.example.echo", "params" => null }),
        cbor!({ "negotiate" => { "range" => "1.0.0" }, "params" => null }),
        cbor!({ "session" => { "session_id" => Value::Bytes(vec![1; 16]) }, "params" => null }),
        // The session pins nothing, so nothing names a version.
        cbor!({ "capability" => "com.example.echo", "session" => { "session_id" => Value::Bytes(vec![1; 16]) }, "params" => null }),
    ];
    each_is_refused(4001, &calls.map(Result::unwrap));
}

#[test]
fn an_identity_that_contradicts_itself_is_4001() {
    let id = "com.example.echo:1.0.0";
    let calls = [
        cbor!({ "id" => id, "negotiate" => {}, "params" => null }),
        cbor!({ "id" => id, "negotiate" => { "range" => "1.0.0" }, "params" => null }),
        cbor!({ "id" => id, "capability" => "com.example.other", "params" => null }),
        cbor!({ "id" => id, "type" => "com.example.other", "params" => null }),
        cbor!({ "id" => id, "version" => "1.0.1", "params" => null }),
        cbor!({ "id" => id, "version" => "2.0.0", "params" => null }),
        cbor!({ "capability" => "com.example.echo", "version" => "1.0.0", "negotiate" => { "range" => "1.0.0" }, "params" => null }),
    ];
    each_is_refused(4001, &calls.map(Result::unwrap));
}

#[test]
fn any_delegation_is_3004() {
    let calls = [cbor!({}), cbor!("x"), cbor!(null)].map(|delegation| {
        cbor!({ "id" => "com.example.echo:1.0.0", "delegation" => delegation.unwrap(), "params" => null })
            .unwrap()
    });
    each_is_refused(3004, &calls);
}

#[test]
fn an_unknown_name_is_4002() {
    let calls = [
        cbor!({ "id" => "com.example.none:1.0.0", "params" => null }),
        cbor!({ "capability" => "com.example.none", "version" => "1.0.0", "params" => null }),
        cbor!({ "type" => "com.example.none", "version" => "1.0.0", "params" => null }),
        cbor!({ "capability" => "com.example.ECHO", "negotiate" => { "range" => ">=0.0.1" }, "params" => null }),
    ];
    each_is_refused(4002, &calls.map(Result::unwrap));
}

#[test]
fn a_version_that_is_not_served_is_4003_with_what_is() {
    let calls = [
        cbor!({ "id" => "com.example.echo:1.0.1", "params" => null }),
        cbor!({ "capability" => "com.example.echo", "version" => "3.0.0", "params" => null }),
        cbor!({ "capability" => "com.example.echo", "negotiate" => { "range" => ">=3.0.0" }, "params" => null }),
        cbor!({ "capability" => "com.example.echo", "negotiate" => { "preferred" => "1.0.1", "acceptable" => ["1.1.0"] }, "params" => null }),
    ]
    .map(Result::unwrap);
    each_is_refused(4003, &calls);
    let (sidecar, _agent) = served(vec![loose("com.example.echo:1.0.0"), loose("com.example.echo:2.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for call in &calls {
            let refusal = link.refused(CAP_INVOKE, call.clone());
            assert_eq!(refusal.available(), ["2.0.0", "1.0.0"], "{transport:?}: {call:?}");
        }
    }
}

/// Path and keyword of each violation.
fn violations(refusal: &Refusal) -> Vec<(&str, &str)> {
    assert_eq!(refusal.detail("schema_side"), &"request".into(), "{refusal:?}");
    let list = refusal.detail("violations").as_array().unwrap();
    let text = |violation, key| field(violation, key).and_then(Value::as_text).unwrap();
    assert!(list.iter().all(|violation| !text(violation, "message").is_empty()), "{refusal:?}");
    let mut found: Vec<_> =
        list.iter().map(|violation| (text(violation, "path"), text(violation, "keyword"))).collect();
    found.sort_unstable();
    found
}

#[test]
fn params_that_break_the_input_schema_are_4004_with_every_violation() {
    let (sidecar, mut agent) = served(vec![checked("com.example.strict:1.0.0", INPUT, "true")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let mut found = |params: Value| {
            let refusal = link.refused(CAP_INVOKE, strict(params));
            assert_eq!(refusal.code, 4004, "{transport:?}: {refusal:?}");
            violations(&refusal)
                .into_iter()
                .map(|(path, keyword)| format!("{path} {keyword}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(cbor!({}).unwrap()), ["/n required"], "{transport:?}");
        // Under an object schema null is validated as the empty object.
        assert_eq!(found(Value::Null), ["/n required"], "{transport:?}");
        assert_eq!(found(cbor!([]).unwrap()), ["/ type"], "{transport:?}");
        assert_eq!(found(cbor!({ "n" => 10 }).unwrap()), ["/n maximum"], "{transport:?}");
        assert_eq!(found(cbor!({ "n" => "1", "s" => 2 }).unwrap()), ["/n type", "/s type"], "{transport:?}");
        assert_eq!(
            found(cbor!({ "n" => 1, "x" => 2 }).unwrap()),
            ["/x additionalProperties"],
            "{transport:?}"
        );
    }
    let ping = agent.send(0x01, map([]));
    assert_eq!(agent.message().reply_to(), Some(ping), "the provider was asked");
}

#[test]
fn at_most_64_violations_are_told() {
    let schema = r#"{"type":"array","items":{"type":"integer"}}"#;
    let (sidecar, _agent) = served(vec![checked("com.example.strict:1.0.0", schema, "true")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let refusal = link.refused(CAP_INVOKE, strict(vec![Value::from("x"); 1_000].into()));
        assert_eq!((refusal.code, violations(&refusal).len()), (4004, 64), "{transport:?}");
    }
}

#[test]
fn params_outside_the_json_data_model_are_4004_at_their_path() {
    let (sidecar, _agent) = served(vec![checked("com.example.strict:1.0.0", "true", "true")]);
    let outside = [
        ("/a/b~1c", cbor!({ "a" => { "b/c" => f64::NAN } }).unwrap()),
        ("/0", cbor!([f64::INFINITY]).unwrap()),
        ("/x", map([("x", Value::Integer((-i128::from(u64::MAX)).try_into().unwrap()))])),
        ("/x", map([("x", Value::Tag(1, Box::new(1.into())))])),
        // The payload itself is `/`.
        ("/", Value::Map(vec![(1.into(), 1.into())])),
    ];
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for (path, params) in &outside {
            let refusal = link.refused(CAP_INVOKE, strict(params.clone()));
            assert_eq!(refusal.code, 4004, "{transport:?}: {params:?}: {refusal:?}");
            assert_eq!(violations(&refusal)[0].0, *path, "{transport:?}: {params:?}: {refusal:?}");
        }
    }
}

#[test]
fn the_first_failing_check_of_a_call_wins() {
    let none = "com.example.none:1.0.0";
    let shape = [
        cbor!({ "id" => none, "negotiate" => 1, "params" => null }),
        cbor!({ "id" => none, "timeout_ms" => "x", "params" => null }),
        cbor!({ "id" => "x", "session" => {}, "delegation" => {}, "params" => null }),
        cbor!({ "id" => none }),
    ];
    each_is_refused(1001, &shape.map(Result::unwrap));
    let identity = [
        cbor!({ "id" => none, "negotiate" => {}, "delegation" => {}, "params" => null }),
        cbor!({ "id" => none, "version" => "2.0.0", "delegation" => {}, "params" => null }),
        cbor!({ "capability" => "com.example.none", "delegation" => {}, "params" => null }),
    ];
    each_is_refused(4001, &identity.map(Result::unwrap));
    let delegation = [
        cbor!({ "id" => none, "delegation" => {}, "params" => null }),
        cbor!({ "id" => "com.example.strict:9.0.0", "delegation" => {}, "params" => [] }),
    ];
    each_is_refused(3004, &delegation.map(Result::unwrap));
    each_is_refused(4002, &[cbor!({ "id" => none, "params" => [] }).unwrap()]);
    each_is_refused(4003, &[cbor!({ "id" => "com.example.strict:9.0.0", "params" => [] }).unwrap()]);
    each_is_refused(4004, &[strict(cbor!([]).unwrap())]);
}

#[test]
fn params_come_before_capacity() {
    let sidecar = Setup::new().set("limits.calls_in_flight_per_peer_max", "1").start();
    let mut agent = serving(&sidecar, vec![checked("com.example.strict:1.0.0", INPUT, "true")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let running = link.send(CAP_INVOKE, strict(cbor!({ "n" => 1 }).unwrap()));
        let at_provider = agent.message_of(CAP_INVOKE);
        assert_eq!(link.refused(CAP_INVOKE, strict(cbor!({}).unwrap())).code, 4004, "{transport:?}");
        let full = link.refused(CAP_INVOKE, strict(cbor!({ "n" => 2 }).unwrap()));
        assert_eq!(full.code, 5004, "{transport:?}: {full:?}");
        agent.answer(&at_provider, CAP_RESULT, &cbor!({ "status" => "success", "result" => null }).unwrap());
        assert_eq!(link.reply(&running).typ(), CAP_RESULT, "{transport:?}");
    }
}

/// Sends a call, lets the provider answer it with its own params, and gives both ends of it.
fn echo(link: &mut RawLink, agent: &mut RawLink, call: Value) -> (Message, Message) {
    let id = link.send(CAP_INVOKE, call);
    let invoke = agent.message_of(CAP_INVOKE);
    let params = field(invoke.body(), "params").cloned().unwrap();
    agent.answer(&invoke, CAP_RESULT, &map([("status", "success".into()), ("result", params)]));
    let result = link.reply(&id);
    assert_eq!(result.typ(), CAP_RESULT, "{result:?}");
    assert_eq!(invoke.id(), id);
    (invoke, result)
}

#[test]
fn a_good_call_runs_over_each_kind_of_link_and_carries_what_nobody_knows() {
    let (sidecar, mut agent) =
        served(vec![loose("com.example.echo:1.0.0"), checked("com.example.strict:1.0.0", INPUT, "true")]);
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let mut call = strict(cbor!({ "n" => 1 }).unwrap());
        set(&mut call, "newer", cbor!({ "a" => [1] }).unwrap());
        let (invoke, result) = echo(&mut link, &mut agent, call.clone());
        assert_eq!(invoke.body(), &call, "{transport:?}: the provider gets the body as it was");
        assert_eq!(field(result.body(), "result"), Some(&cbor!({ "n" => 1 }).unwrap()), "{transport:?}");
        // A capability without a schema takes any CBOR.
        let loose = map([
            ("t", Value::Tag(0, Box::new("2026-01-01T00:00:00Z".into()))),
            ("b", Value::Bytes(vec![0, 255])),
        ]);
        let call =
            cbor!({ "capability" => "com.example.echo", "version" => "1.0", "params" => null }).unwrap();
        let mut call = call;
        set(&mut call, "params", loose.clone());
        let (_, result) = echo(&mut link, &mut agent, call);
        assert_eq!(field(result.body(), "result"), Some(&loose), "{transport:?}");
    }
}

#[test]
fn a_call_to_a_stranger_is_2001() {
    let sidecar = Sidecar::start();
    let stranger =
        capd_proto::identity::Identity::from_seed(crate::peer::fresh_seed()).did().as_str().to_owned();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let mut letter =
            link.letter(CAP_INVOKE, &cbor!({ "id" => "com.example.echo:1.0.0", "params" => null }).unwrap());
        letter.to = vec![stranger.clone()];
        let id = link.send_letter(&letter);
        assert_eq!(link.refusal(&id).code, 2001, "{transport:?}");
    }
}
