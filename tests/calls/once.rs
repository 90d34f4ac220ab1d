//! PROTOCOL 8: repeated calls, late, second and unasked answers, and lost providers in; exactly one result out.

use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, CAP_RESULT, Caller, ERROR, Provider, SOON_MS, by_id, failure, idempotent, loose, of_error,
    success, unknown_for, within,
};
use crate::peer::Peer;
use crate::support::{Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";

#[test]
fn a_call_repeated_while_it_runs_is_run_once_and_answered_to_both() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let peer = Peer::serving(vec![]);
    let (first, second) = (peer.connect(&b), peer.connect(&b));
    let (id, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id(ECHO, "once".into()));
    let _first = peer.request(&first, &envelope);
    let call = provider.taken();
    let _second = peer.request(&second, &envelope);
    // A message on the same link that is handled after the repeated call.
    let (_, other) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id("org.example.none:1.0.0", Value::Null));
    let _other = peer.request(&second, &other);
    peer.heard_type(ERROR);
    provider.heard_nothing_more();
    provider.succeed(&call, "done".into());
    let answers = [peer.heard_type(CAP_RESULT), peer.heard_type(CAP_RESULT)];
    assert_eq!(answers[0].message.reply_to(), Some(id));
    assert_eq!(answers[0].message.bytes, answers[1].message.bytes);
    assert!(!std::sync::Arc::ptr_eq(&answers[0].link, &answers[1].link), "each link has its answer");
}

#[test]
fn a_call_repeated_at_the_callers_sidecar_goes_out_once() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let (mut caller, mut again) = (Caller::of(&a), Caller::of(&a));
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "once".into()));
    let id = caller.link.send_envelope(&envelope);
    let call = provider.taken();
    again.link.send_envelope(&envelope);
    assert!(again.link.ping().is_empty(), "it waits");
    provider.heard_nothing_more();
    provider.succeed(&call, "done".into());
    let (one, other) = (caller.result(&id), again.result(&id));
    assert_eq!(success(&one), &Value::from("done"));
    assert_eq!(one.bytes, other.bytes);
}

#[test]
fn a_call_repeated_after_its_end_gets_the_recorded_result_byte_for_byte() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    for descriptor in [loose(ECHO), idempotent(ECHO)] {
        let mut provider = Provider::of(&b, vec![descriptor]);
        let mut caller = Caller::of(&a);
        let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "once".into()));
        let id = caller.link.send_envelope(&envelope);
        provider.echo();
        let first = caller.result(&id);
        caller.link.send_envelope(&envelope);
        assert_eq!(caller.result(&id).bytes, first.bytes);
        provider.heard_nothing_more();
        // What is served by then does not matter.
        drop(provider);
        caller.link.send_envelope(&envelope);
        assert_eq!(caller.result(&id).bytes, first.bytes);
    }
}

#[test]
fn a_call_repeated_past_its_time_is_1003_and_does_not_run() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    for descriptor in [loose(ECHO), idempotent(ECHO)] {
        let mut provider = Provider::of(&b, vec![descriptor]);
        let mut caller = Caller::of(&a);
        let mut envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "once".into()));
        set(&mut envelope, "ttl", 1_500.into());
        let id = caller.link.send_envelope(&envelope);
        provider.echo();
        let first = caller.result(&id);
        // Until its time has passed it is answered as it was.
        let refusal = loop {
            caller.link.send_envelope(&envelope);
            let answer = caller.about(&id);
            if answer.typ() != CAP_RESULT {
                break answer;
            }
            // A result that expires on its way back does not arrive; that is no result either.
            let details = of_error(&answer, "details");
            if details.and_then(|details| field(details, "final")) != Some(&Value::Bool(false)) {
                assert_eq!(answer.bytes, first.bytes);
            }
        };
        assert_eq!((refusal.typ(), refusal.code()), (ERROR, Some(1003)), "{refusal:?}");
        provider.heard_nothing_more();
    }
}

#[test]
fn an_id_with_another_body_is_4001_while_the_call_runs_and_after_its_end() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let a = Setup::new().peer(&b).start();
    // Through two sidecars, and at the one that executes.
    for sidecar in [&a, &b] {
        let mut caller = Caller::of(sidecar);
        let mut envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "once".into()));
        let id = caller.link.send_envelope(&envelope);
        let call = provider.taken();
        set(&mut envelope, "body", by_id(ECHO, "twice".into()));
        caller.link.send_envelope(&envelope);
        assert_eq!(caller.error(&id).code(), Some(4001));
        provider.succeed(&call, "done".into());
        assert_eq!(success(&caller.result(&id)), &Value::from("done"));
        caller.link.send_envelope(&envelope);
        // The executor says so; the caller's sidecar, which has forgotten the first body, knows that something ran.
        let code =
            if sidecar.did == b.did { caller.error(&id).code() } else { unknown_for(&caller.result(&id)) };
        assert_eq!(code, Some(4001));
        provider.heard_nothing_more();
    }
}

#[test]
fn a_call_out_of_time_ends_with_5003_and_the_late_answer_is_refused() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    for sidecar in [&a, &b] {
        let mut caller = Caller::of(sidecar);
        let id = caller.invoke(within(ECHO, Value::Null, SOON_MS));
        let call = provider.taken();
        assert_eq!(failure(&caller.result(&id)), 5003);
        provider.is_told_to_cancel(&call);
        let late = provider.succeed(&call, "late".into());
        provider.is_refused(&late, 4001);
        caller.heard_nothing_more();
    }
}

#[test]
fn the_time_limit_is_the_capabilitys_when_the_call_names_none() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let descriptor = map([("id", ECHO.into()), ("timeout_ms", SOON_MS.into())]);
    let mut provider = Provider::of(&b, vec![descriptor]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    assert_eq!(failure(&caller.result(&id)), 5003);
    provider.is_told_to_cancel(&call);
}

#[test]
fn the_callers_sidecar_waits_as_long_as_the_capability_may_take() {
    let b = Sidecar::start();
    // Its own default is far below what the capability asks for.
    let a = Setup::new().set("timeouts.call_ms", "1").peer(&b).start();
    let descriptor = map([("id", ECHO.into()), ("timeout_ms", 2_600.into())]);
    let mut provider = Provider::of(&b, vec![descriptor]);
    let mut caller = Caller::of(&a);
    // The peer's capabilities are known once this has been answered.
    let id = caller.invoke(within(ECHO, Value::Null, 10_000));
    provider.echo();
    caller.result(&id);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    // The executor's own timeout is the call's result; a caller's sidecar that went by its own default would have
    // answered before.
    let result = caller.result(&id);
    assert_eq!(failure(&result), 5003);
    assert_eq!(crate::support::field(&result.value, "from"), Some(&Value::from(b.did.as_str())));
    provider.is_told_to_cancel(&call);
}

#[test]
fn a_second_answer_is_dropped_and_said_to_the_provider() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    provider.succeed(&call, "first".into());
    let second = provider.succeed(&call, "second".into());
    let third = provider.fail(&call, 5001);
    provider.is_refused(&second, 4001);
    provider.is_refused(&third, 4001);
    assert_eq!(success(&caller.result(&id)), &Value::from("first"));
    caller.heard_nothing_more();
    assert!(b.log().contains("duplicate_result"), "it is audited");
}

#[test]
fn an_answer_to_a_call_that_an_agent_never_got_is_4001() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut other = Provider::of(&b, vec![loose("org.example.other:1.0.0")]);
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    let foreign = other.succeed(&call, "not mine".into());
    other.is_refused(&foreign, 4001);
    // Nor may one answer that serves nothing at all.
    let mut nobody = Provider { link: crate::support::BytePeer::open(&b.socket) };
    let unasked = nobody.succeed(&call, "not mine".into());
    nobody.is_refused(&unasked, 4001);
    provider.succeed(&call, "mine".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("mine"));
    caller.heard_nothing_more();
}

#[test]
fn a_provider_that_leaves_with_a_call_that_is_not_idempotent_is_5002() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut standby = Provider::of(&b, vec![loose(ECHO)]);
    for sidecar in [&a, &b] {
        // The least loaded one has the call, so the standby is kept busy.
        let mut busy = Caller::of(&b);
        let kept = busy.invoke(by_id(ECHO, Value::Null));
        let held = standby.taken();
        let mut provider = Provider::of(&b, vec![loose(ECHO)]);
        let mut caller = Caller::of(sidecar);
        let id = caller.invoke(by_id(ECHO, Value::Null));
        provider.taken();
        drop(provider);
        assert_eq!(failure(&caller.result(&id)), 5002);
        standby.succeed(&held, Value::Null);
        busy.result(&kept);
        standby.heard_nothing_more();
    }
}

#[test]
fn an_idempotent_call_goes_on_with_another_provider() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    for params in [Value::from("call"), Value::Bytes(vec![7; 200_000])] {
        let mut one = Provider::of(&b, vec![idempotent(ECHO)]);
        let mut caller = Caller::of(&a);
        let first = caller.invoke(by_id(ECHO, params.clone()));
        let _held = one.taken();
        let mut two = Provider::of(&b, vec![idempotent(ECHO)]);
        let second = caller.invoke(by_id(ECHO, params.clone()));
        // The second provider is the less loaded one; then it leaves.
        assert_eq!(two.taken().id(), second);
        drop(two);
        let call = one.taken();
        assert_eq!(call.id(), second);
        assert!(field(call.body(), "params") == Some(&params), "the call is given on as it was");
        one.succeed(&call, "done".into());
        assert_eq!(success(&caller.result(&second)), &Value::from("done"));
        // With nobody left it is lost.
        drop(one);
        assert_eq!(failure(&caller.result(&first)), 5002);
        caller.heard_nothing_more();
    }
}

#[test]
fn a_refused_call_may_be_tried_again_under_its_id() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    for sidecar in [&a, &b] {
        let mut caller = Caller::of(sidecar);
        let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "again".into()));
        let id = caller.link.send_envelope(&envelope);
        assert_eq!(caller.error(&id).code(), Some(4002));
        let mut provider = Provider::of(&b, vec![loose(ECHO)]);
        caller.link.send_envelope(&envelope);
        provider.echo();
        assert_eq!(success(&caller.result(&id)), &Value::from("again"));
        caller.heard_nothing_more();
    }
}

#[test]
fn an_error_of_the_providers_is_the_calls_result() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    provider.fail(&call, 90_210);
    assert_eq!(failure(&caller.result(&id)), 90_210, "a code of its own passes as it is");
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    let refusal = map([("code", 4001.into()), ("category", "client".into()), ("message", "no".into())]);
    provider.link.answer(&call, ERROR, refusal);
    assert_eq!(failure(&caller.result(&id)), 4001, "an accepted call ends with a result, never with ERROR");
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    let shapeless = provider.link.answer(&call, CAP_RESULT, map([("status", "perhaps".into())]));
    provider.is_refused(&shapeless, 1001);
    // It has not answered yet.
    provider.succeed(&call, "well".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("well"));
}
