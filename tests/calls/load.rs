//! Large and many calls at once in; every one of them intact, and none in the way of another, out.

use capd::net::Settings;
use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, CAP_RESULT, Caller, ERROR, Provider, by_id, idempotent, loose, of_error, success, with_schema,
};
use crate::peer::Peer;
use crate::support::{AMP_MESSAGE, BytePeer, Setup, Sidecar, encode, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";
const LARGE: &str = "org.example.large:1.0.0";
const MIB: usize = 1024 * 1024;

/// Bytes that differ from place to place.
fn bytes(count: usize) -> Value {
    Value::Bytes((0..count).map(|at| (at.wrapping_mul(2_654_435_761) >> 16) as u8).collect())
}

#[test]
fn a_mebibyte_passes_both_ways_over_quic_and_tcp() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    for a in [Setup::new().peer(&b).start(), Setup::new().peer_over_tcp(&b).start()] {
        let mut caller = Caller::of(&a);
        let params = bytes(MIB);
        for _ in 0..3 {
            let id = caller.invoke(by_id(ECHO, params.clone()));
            provider.echo();
            assert!(success(&caller.result(&id)) == &params, "the result is what was sent");
        }
    }
}

#[test]
fn a_mebibyte_that_nobody_signs_passes_both_ways_and_is_answered_again_byte_for_byte() {
    let unsigned = || Setup::new().set("peer.signatures", "channel");
    let b = unsigned().start();
    for a in [unsigned().peer(&b).start(), unsigned().peer_over_tcp(&b).start()] {
        for descriptor in [loose(ECHO), idempotent(ECHO)] {
            let mut provider = Provider::of(&b, vec![descriptor]);
            let mut caller = Caller::of(&a);
            let params = bytes(MIB);
            let (name, version) = ECHO.split_once(':').unwrap();
            // The provider's sidecar adds what was chosen to one that names no id.
            let by_name =
                map([("capability", name.into()), ("version", version.into()), ("params", params.clone())]);
            for body in [by_id(ECHO, params.clone()), by_name] {
                let envelope = caller.link.envelope(CAP_INVOKE, body);
                let id = caller.link.send_envelope(&envelope);
                provider.echo();
                let first = caller.result(&id);
                assert!(success(&first) == &params, "the result is what was sent");
                caller.link.send_envelope(&envelope);
                assert!(caller.result(&id).bytes == first.bytes, "it is the recorded result");
                provider.heard_nothing_more();
            }
        }
    }
}

#[test]
fn a_mebibyte_passes_through_a_command() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    command: [cat]\n";
    let b = Setup::new().capabilities(yaml).start();
    let a = Setup::new().peer(&b).start();
    let params = Value::from("x\u{e9}".repeat(MIB / 3));
    assert!(Caller::of(&a).call(by_id(ECHO, params.clone())) == params);
}

#[test]
fn a_result_beyond_the_largest_message_is_an_error_result() {
    let b = Setup::new().set("limits.msg_size_bytes_max", "2097152").start();
    // The caller's sidecar takes less than the provider's may send.
    let a = Setup::new().set("limits.msg_size_bytes_max", "1048576").peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    provider.succeed(&call, bytes(MIB + MIB / 2));
    let result = caller.result(&id);
    let said = of_error(&result, "message").and_then(Value::as_text).unwrap_or_default();
    assert_eq!(result.code(), Some(5001), "{said}");
    assert!(said.contains("larger"), "{said}");
    // The link is as good as before.
    let id = caller.invoke(by_id(ECHO, 1.into()));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &Value::from(1));
}

#[test]
fn two_hundred_calls_at_once_each_get_their_own_result() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    for a in [Setup::new().peer(&b).start(), Setup::new().peer_over_tcp(&b).start()] {
        let mut caller = Caller::of(&a);
        let ids: Vec<_> = (0..200).map(|number| caller.invoke(by_id(ECHO, number.into()))).collect();
        let mut calls: Vec<_> = ids.iter().map(|_| provider.taken()).collect();
        // Answered in another order than asked.
        calls.reverse();
        for call in &calls {
            let params = field(call.body(), "params").unwrap().clone();
            provider.succeed(call, params);
        }
        for (number, id) in ids.iter().enumerate() {
            let number = Value::from(u64::try_from(number).unwrap());
            assert_eq!(success(&caller.result(id)), &number);
        }
        caller.heard_nothing_more();
        provider.heard_nothing_more();
    }
}

#[test]
fn a_large_call_on_its_way_does_not_hold_up_a_small_one() {
    // The peer lets in little of one stream at a time, so the large call needs many turns.
    let settings = Settings { stream_window_bytes: 64 * 1024, ..Settings::default() };
    let peer = Peer::with(vec![loose(ECHO)], settings, true);
    let a = Setup::new().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    // The peer is known once this has been answered.
    let first = caller.invoke(by_id(ECHO, Value::Null));
    peer.succeed(&peer.heard_type(CAP_INVOKE), Value::Null);
    caller.result(&first);
    let large = caller.invoke(by_id(ECHO, bytes(12 * MIB)));
    let small = caller.invoke(by_id(ECHO, 1.into()));
    let (one, two) = (peer.heard_type(CAP_INVOKE), peer.heard_type(CAP_INVOKE));
    assert_eq!((one.message.id(), two.message.id()), (small.clone(), large.clone()));
    for call in [&two, &one] {
        peer.succeed(call, map([]));
    }
    caller.result(&small);
    caller.result(&large);
}

/// A schema that takes long to check by the number of elements, and elements that fit it.
fn long_to_check() -> (&'static str, Value) {
    let elements = (0..20_000).map(|at| Value::from(format!("element {at}")));
    (r#"{"type":"array","uniqueItems":true,"items":{"type":"string"}}"#, Value::Array(elements.collect()))
}

/// Sends envelopes in one write, so that all of them are there when the sidecar looks.
fn send_together(link: &mut BytePeer, envelopes: &[Value]) {
    let frame = |envelope: &Value| {
        let envelope = encode(envelope);
        let length = u32::try_from(envelope.len() + 1).unwrap().to_be_bytes();
        [&length[..], &[AMP_MESSAGE], &envelope].concat()
    };
    link.send_raw(&envelopes.iter().map(frame).collect::<Vec<_>>().concat());
}

fn id_of(envelope: &Value) -> Vec<u8> {
    field(envelope, "id").and_then(Value::as_bytes).unwrap().clone()
}

#[test]
fn params_that_take_long_to_check_hold_up_no_small_call() {
    let b = Sidecar::start();
    let (schema, params) = long_to_check();
    let mut provider = Provider::of(&b, vec![with_schema(LARGE, "input_schema", schema), loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let bodies = [by_id(LARGE, params.clone()), by_id(ECHO, 1.into())];
    let envelopes = bodies.map(|body| caller.link.envelope(CAP_INVOKE, body));
    send_together(&mut caller.link, &envelopes);
    for expected in [Value::from(1), params] {
        let call = provider.echo();
        assert!(field(call.body(), "params") == Some(&expected), "the small call comes first");
    }
    for envelope in &envelopes {
        success(&caller.result(&id_of(envelope)));
    }
}

#[test]
fn a_result_that_takes_long_to_check_holds_up_no_small_one() {
    let b = Sidecar::start();
    let (schema, result) = long_to_check();
    let mut provider = Provider::of(&b, vec![with_schema(LARGE, "output_schema", schema), loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let large = caller.invoke(by_id(LARGE, Value::Null));
    let small = caller.invoke(by_id(ECHO, 1.into()));
    let calls = [provider.taken(), provider.taken()];
    let answers = [result.clone(), 1.into()].map(|result| {
        let body = map([("status", "success".into()), ("result", result)]);
        provider.link.envelope(CAP_RESULT, body)
    });
    let mut answers = answers;
    for (answer, call) in answers.iter_mut().zip(&calls) {
        set(answer, "reply_to", Value::Bytes(call.id()));
    }
    send_together(&mut provider.link, &answers);
    assert_eq!(caller.link.message().reply_to(), Some(small), "the small call is answered first");
    assert!(success(&caller.result(&large)) == &result);
}

#[test]
fn params_that_take_long_to_check_and_do_not_fit_are_refused_with_what_is_wrong() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let (schema, mut params) = long_to_check();
    let mut provider = Provider::of(&b, vec![with_schema(LARGE, "input_schema", schema)]);
    for value in params.as_array_mut().unwrap().iter_mut().rev().take(1) {
        *value = 1.into();
    }
    for sidecar in [&b, &a] {
        let mut caller = Caller::of(sidecar);
        let id = caller.invoke(by_id(LARGE, params.clone()));
        let refusal = caller.about(&id);
        assert_eq!((refusal.typ(), refusal.code()), (ERROR, Some(4004)));
        let details = format!("{:?}", of_error(&refusal, "details"));
        assert!(details.contains("/19999"), "{details}");
    }
    provider.heard_nothing_more();
}

#[test]
fn half_a_frame_of_one_agent_does_not_hold_up_another() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut slow = Caller::of(&b);
    let envelope = crate::support::encode(&slow.link.envelope(CAP_INVOKE, by_id(ECHO, bytes(MIB))));
    let length = u32::try_from(envelope.len() + 1).unwrap().to_be_bytes();
    let frame = [&length[..], &[crate::support::AMP_MESSAGE], &envelope].concat();
    let (half, rest) = frame.split_at(frame.len() / 2);
    slow.link.send_raw(half);
    let mut quick = Caller::of(&b);
    let id = quick.invoke(by_id(ECHO, 1.into()));
    assert_eq!(provider.echo().id(), id);
    quick.result(&id);
    slow.link.send_raw(rest);
    provider.echo();
    assert_eq!(slow.link.message().typ(), crate::agents::CAP_RESULT);
}

#[test]
fn one_call_more_than_a_peer_may_have_in_flight_is_refused_with_5004() {
    let b = Setup::new().set("limits.calls_in_flight_per_peer_max", "2").start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let held: Vec<_> = (0..2).map(|_| caller.invoke(by_id(ECHO, Value::Null))).collect();
    let calls: Vec<_> = held.iter().map(|_| provider.taken()).collect();
    let over = caller.invoke(by_id(ECHO, Value::Null));
    assert_eq!(caller.error(&over).code(), Some(5004));
    // Another peer has room of its own.
    let a = Setup::new().peer(&b).start();
    let mut other = Caller::of(&a);
    let id = other.invoke(by_id(ECHO, 1.into()));
    provider.echo();
    other.result(&id);
    for (id, call) in held.iter().zip(&calls) {
        provider.succeed(call, Value::Null);
        caller.result(id);
    }
    let id = caller.invoke(by_id(ECHO, 2.into()));
    provider.echo();
    caller.result(&id);
}

#[test]
fn one_call_more_than_a_capability_may_have_in_flight_is_refused_with_5004() {
    let b = Setup::new().set("limits.calls_in_flight_per_capability_max", "2").start();
    let other = "org.example.other:1.0.0";
    let mut provider = Provider::of(&b, vec![loose(ECHO), loose(other)]);
    let mut caller = Caller::of(&b);
    let held: Vec<_> = (0..2).map(|_| caller.invoke(by_id(ECHO, Value::Null))).collect();
    let calls: Vec<_> = held.iter().map(|_| provider.taken()).collect();
    let a = Setup::new().peer(&b).start();
    let mut stranger = Caller::of(&a);
    let over = caller.invoke(by_id(ECHO, Value::Null));
    assert_eq!(caller.error(&over).code(), Some(5004));
    // Another capability has room of its own.
    let id = stranger.invoke(by_id(other, 1.into()));
    provider.echo();
    stranger.result(&id);
    for (id, call) in held.iter().zip(&calls) {
        provider.succeed(call, Value::Null);
        caller.result(id);
    }
    let id = caller.invoke(by_id(ECHO, 2.into()));
    provider.echo();
    caller.result(&id);
}
