//! Where a call goes and what arrives there: by id, range, negotiation and session, over both transports, byte for byte.

use std::process::Stdio;

use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, CAP_QUERY, CAP_RESULT, Caller, ERROR, Provider, REQUEST, RESPONSE, by_id, loose, success,
};
use crate::support::{Message, Setup, Sidecar, capctl, encode, field, map, set, stderr, stdout};

/// A caller's sidecar with a link to `serving`.
fn beside(serving: &Sidecar) -> Sidecar {
    Setup::new().peer(serving).start()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    field(value, key).and_then(Value::as_text).unwrap()
}

#[test]
fn a_call_reaches_an_agent_through_two_sidecars_and_its_result_comes_back() {
    let b = Sidecar::start();
    let a = beside(&b);
    let mut provider = Provider::of(&b, vec![loose("org.example.echo:1.0.0")]);
    let mut caller = Caller::of(&a);
    let params = map([("text", "grüße".into()), ("list", Value::Array(vec![1.into(), Value::Null]))]);
    let id = caller.invoke(by_id("org.example.echo:1.0.0", params.clone()));
    let call = provider.echo();
    assert_eq!(call.id(), id, "the caller's id is the call's id on the whole way");
    assert_eq!(text(&call.value, "from"), a.did);
    assert_eq!(field(call.body(), "params"), Some(&params));
    let result = caller.result(&id);
    assert_eq!(success(&result), &params);
    assert_eq!(text(&result.value, "from"), b.did);
    caller.heard_nothing_more();
    provider.heard_nothing_more();
}

#[test]
fn a_process_serves_a_call_over_quic_and_over_tcp() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    command: [cat]\n";
    let b = Setup::new().capabilities(yaml).start();
    for a in [Setup::new().peer(&b).start(), Setup::new().peer_over_tcp(&b).start()] {
        let params = map([("a", 1.into()), ("b", Value::Array(vec![true.into(), 1.5.into()]))]);
        assert_eq!(Caller::of(&a).call(by_id("org.example.echo:1.0.0", params.clone())), params);
    }
}

#[test]
fn a_sidecar_calls_its_own_agent_the_same_way() {
    let a = Sidecar::start();
    let mut provider = Provider::of(&a, vec![loose("org.example.echo:1.0.0")]);
    let mut caller = Caller::of(&a);
    for to in [None, Some(a.did.clone())] {
        let body = by_id("org.example.echo:1.0.0", "hello".into());
        let id = match to {
            None => caller.invoke(body),
            Some(did) => caller.invoke_at(&did, body),
        };
        provider.echo();
        assert_eq!(success(&caller.result(&id)), &Value::from("hello"));
    }
}

/// CBOR that no JSON has and that nobody would write twice the same way: an indefinite array of a uint in two bytes, a
/// float in eight, a tag, a map with integer keys, undefined, an indefinite byte string.
const WILD: &[u8] = &[
    0x9f, 0x18, 0x01, 0xfb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xc1, 0x1a, 0x51, 0x4b, 0x67, 0xb0, 0xa2, 0x02,
    0x01, 0x01, 0x02, 0xf7, 0x5f, 0x41, 0xaa, 0x42, 0xbb, 0xcc, 0xff, 0xff,
];

/// An envelope with `item` in the place of a marker.
fn spliced(mut envelope: Value, body: Value, item: &[u8]) -> Vec<u8> {
    set(&mut envelope, "body", body);
    let (bytes, marker) = (encode(&envelope), encode(&marker()));
    let at = bytes.windows(marker.len()).position(|window| window == marker).expect("the marker is there");
    [&bytes[..at], item, &bytes[at + marker.len()..]].concat()
}

fn marker() -> Value {
    Value::Bytes(b"here the item goes".to_vec())
}

fn contains(message: &Message, item: &[u8]) -> bool {
    message.bytes.windows(item.len()).any(|window| window == item)
}

#[test]
fn params_and_result_of_a_loose_capability_pass_byte_for_byte() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose("org.example.echo:1.0.0")]);
    for a in [Setup::new().peer(&b).start(), Setup::new().peer_over_tcp(&b).start()] {
        let mut caller = Caller::of(&a);
        let envelope = caller.link.envelope(CAP_INVOKE, Value::Null);
        let id = field(&envelope, "id").and_then(Value::as_bytes).unwrap().clone();
        let bytes = spliced(envelope, by_id("org.example.echo:1.0.0", marker()), WILD);
        caller.link.send_frame(crate::support::AMP_MESSAGE, &bytes);
        let call = provider.taken();
        assert!(contains(&call, WILD), "{:02x?}", call.bytes);
        let mut answer = provider.link.envelope(crate::agents::CAP_RESULT, Value::Null);
        set(&mut answer, "to", field(&call.value, "from").unwrap().clone());
        set(&mut answer, "reply_to", Value::Bytes(call.id()));
        let body = map([("status", "success".into()), ("result", marker())]);
        provider.link.send_frame(crate::support::AMP_MESSAGE, &spliced(answer, body, WILD));
        let result = caller.result(&id);
        assert!(contains(&result, WILD), "{:02x?}", result.bytes);
    }
}

#[test]
fn a_call_names_its_version_by_id_by_range_and_by_preference() {
    let b = Sidecar::start();
    let a = beside(&b);
    let served = ["1.0.0", "1.5.0", "2.0.0"].map(|version| loose(&format!("org.example.echo:{version}")));
    let mut providers: Vec<_> =
        served.into_iter().map(|descriptor| Provider::of(&b, vec![descriptor])).collect();
    let mut caller = Caller::of(&a);
    let name = || ("capability", Value::from("org.example.echo"));
    let params = || ("params", Value::Null);
    let versions = |list: &[&str]| Value::Array(list.iter().map(|version| (*version).into()).collect());
    let range = map([("range", ">=1.0.0 <2.0.0".into())]);
    let preferred = map([("preferred", "1.0.0".into()), ("range", ">=1.0.0".into())]);
    let acceptable = map([("preferred", "3.0.0".into()), ("acceptable", versions(&["1.7.0", "1.5.0"]))]);
    let cases = [
        (map([("id", "org.example.echo:1.0.0".into()), params()]), 0),
        (map([name(), ("version", "1.5.0".into()), params()]), 1),
        (map([("type", "org.example.echo".into()), ("version", "2.0".into()), params()]), 2),
        (map([name(), ("negotiate", range), params()]), 1),
        (map([name(), ("negotiate", preferred), params()]), 0),
        (map([name(), ("negotiate", acceptable), params()]), 1),
        (map([name(), ("negotiate", map([("range", ">=1.0.0".into())])), params()]), 2),
    ];
    for (body, serves) in cases {
        let id = caller.invoke(body.clone());
        let call = providers[serves].taken();
        assert_eq!(call.id(), id, "{body:?}");
        providers[serves].succeed(&call, Value::Null);
        caller.result(&id);
    }
    for (body, code) in [
        (map([name(), ("negotiate", map([("range", ">=3.0.0".into())])), params()]), 4003),
        (by_id("org.example.echo:1.0.1", Value::Null), 4003),
        (by_id("org.example.unknown:1.0.0", Value::Null), 4002),
        (map([name(), params()]), 4001),
        (map([name(), ("negotiate", map([("range", "^1.0".into())])), params()]), 4001),
    ] {
        let id = caller.invoke(body.clone());
        assert_eq!(caller.error(&id).code(), Some(code), "{body:?}");
    }
    for provider in &mut providers {
        provider.heard_nothing_more();
    }
}

#[test]
fn a_session_keeps_its_version_until_that_is_gone_and_never_another() {
    let b = Sidecar::start();
    let a = beside(&b);
    let mut old = Provider::of(&b, vec![loose("org.example.echo:1.0.0")]);
    let mut caller = Caller::of(&a);
    // The caller's sidecar knows of the capability once a call has asked for it.
    let id = caller.invoke(by_id("org.example.echo:1.0.0", Value::Null));
    old.echo();
    caller.result(&id);
    let body = map([
        ("op", "negotiate".into()),
        ("capability", "org.example.echo".into()),
        ("range", ">=1.0.0".into()),
    ]);
    let request = caller.link.send(REQUEST, body);
    let accept = caller.about(&request);
    assert_eq!(accept.typ(), RESPONSE, "{accept:?}");
    assert_eq!(text(accept.body(), "agreed_version"), "1.0.0");
    let session = map([("session_id", field(accept.body(), "session_id").unwrap().clone())]);
    let pinned = || {
        map([
            ("capability", "org.example.echo".into()),
            ("params", Value::Null),
            ("session", session.clone()),
        ])
    };

    let mut new = Provider::of(&b, vec![loose("org.example.echo:1.1.0")]);
    let id = caller.invoke(pinned());
    old.echo();
    assert_eq!(success(&caller.result(&id)), &Value::Null);

    old.declare(vec![loose("org.example.other:1.0.0")]);
    let id = caller.invoke(pinned());
    assert_eq!(caller.error(&id).code(), Some(4003));
    new.heard_nothing_more();
    old.heard_nothing_more();
}

#[test]
fn a_session_that_nobody_agreed_on_pins_nothing() {
    let b = Sidecar::start();
    let a = beside(&b);
    let mut provider = Provider::of(&b, vec![loose("org.example.echo:1.0.0")]);
    let mut caller = Caller::of(&a);
    let session = map([("session_id", Value::Bytes(vec![7; 16]))]);
    let id = caller.invoke(map([
        ("capability", "org.example.echo".into()),
        ("params", Value::Null),
        ("session", session),
    ]));
    assert_eq!(caller.error(&id).code(), Some(4001));
    provider.heard_nothing_more();
}

#[test]
fn what_is_served_is_listed_with_who_serves_it() {
    let b = Sidecar::start();
    let a = beside(&b);
    let _provider = Provider::of(&b, vec![loose("org.example.echo:1.0.0")]);
    let mut caller = Caller::of(&a);
    // A call to a name that is not served makes the sidecar ask its peers again.
    let id = caller.invoke(by_id("org.example.none:1.0.0", Value::Null));
    assert_eq!(caller.error(&id).code(), Some(4002));
    let query = map([("filter", map([("capability", "org.example.echo".into())]))]);
    let id = caller.link.send(CAP_QUERY, query);
    let listed = caller.about(&id);
    let descriptors = field(listed.body(), "capabilities").and_then(Value::as_array).unwrap().clone();
    assert_eq!(descriptors.len(), 1);
    assert_eq!(text(&descriptors[0], "id"), "org.example.echo:1.0.0");
    assert_eq!(text(&descriptors[0], "provider"), b.did);
    let query = map([("filter", map([("capability", "org.example.unknown".into())]))]);
    let id = caller.link.send(CAP_QUERY, query);
    let error = caller.about(&id);
    assert_eq!((error.typ(), error.code()), (ERROR, Some(4002)));
}

#[test]
fn what_a_call_cost_reaches_whoever_asked() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose("org.example.echo:1.0.0")]);
    for json in [true, false] {
        let mut command = capctl(Some(&a.socket));
        command.args(["call", "org.example.echo:1.0.0"]).args(json.then_some("--json"));
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let call = provider.taken();
        let cost = map([("usd", 0.25.into()), ("tokens", 120.into())]);
        let body = map([("status", "success".into()), ("result", 7.into()), ("cost_estimate", cost)]);
        provider.link.answer(&call, CAP_RESULT, body);
        let output = child.wait_with_output().unwrap();
        let (out, errors) = (stdout(&output), stderr(&output));
        if json {
            let document: serde_json::Value = serde_json::from_str(out).unwrap();
            assert_eq!(document["cost_estimate"], serde_json::json!({"usd": 0.25, "tokens": 120}), "{out}");
        } else {
            assert_eq!(out, "7\n");
            assert!(errors.contains("estimated cost") && errors.contains("\"usd\":0.25"), "{errors}");
        }
    }
}
