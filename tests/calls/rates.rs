//! Calls that come too often in; 3005 with when to come back out, and nothing taken from anybody else (PROTOCOL 7.3).

use ciborium::Value;

use crate::agents::{
    CAP_DECLARE, Caller, ERROR, Provider, by_id, idempotent, of_error, success, with_schema,
};
use crate::support::{BytePeer, Message, Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";

/// A descriptor that may be called so often.
fn limited(requests: u64, period: &str) -> Value {
    let limit = map([("requests", requests.into()), ("period", period.into())]);
    map([("id", ECHO.into()), ("idempotent", true.into()), ("rate_limit", limit)])
}

/// Asserts that this is 3005; the seconds until the next call is taken.
#[track_caller]
fn rate_limited(message: &Message, limit: u64) -> u64 {
    assert_eq!((message.typ(), message.code()), (ERROR, Some(3005)), "{message:?}");
    let details = of_error(message, "details").unwrap();
    assert_eq!(field(details, "limit"), Some(&limit.into()));
    assert_eq!(field(details, "remaining"), Some(&0.into()));
    let reset_at = field(details, "reset_at").and_then(Value::as_text).unwrap();
    assert!(reset_at.len() == 20 && reset_at.ends_with('Z'), "{reset_at}");
    let seconds = field(details, "retry_after_seconds").and_then(Value::as_integer).unwrap();
    u64::try_from(seconds).unwrap()
}

#[test]
fn a_caller_past_its_limit_is_refused_and_another_is_not() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![limited(2, "2h")]);
    let a = Setup::new().peer(&b).start();
    let (mut near, mut far) = (Caller::of(&b), Caller::of(&a));
    let mut call = |caller: &mut Caller| {
        let id = caller.invoke(by_id(ECHO, 7.into()));
        provider.echo();
        assert_eq!(success(&caller.result(&id)), &Value::from(7));
    };
    call(&mut near);
    call(&mut near);
    let refused = near.invoke(by_id(ECHO, 7.into()));
    let after_s = rate_limited(&near.error(&refused), 2);
    assert!((3_500..=3_600).contains(&after_s), "{after_s}");
    // One of two is back an hour later, so the sidecar that has a minute for the call tells its agent at once.
    call(&mut far);
    call(&mut far);
    let refused = far.invoke(by_id(ECHO, 7.into()));
    rate_limited(&far.error(&refused), 2);
    provider.heard_nothing_more();
}

#[test]
fn a_call_that_is_asked_for_again_is_not_counted_again() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![limited(1, "1h")]);
    let mut caller = Caller::of(&b);
    let envelope = caller.link.envelope(crate::agents::CAP_INVOKE, by_id(ECHO, 1.into()));
    let id = caller.link.send_envelope(&envelope);
    provider.echo();
    let first = caller.result(&id);
    for _ in 0..3 {
        assert_eq!(caller.link.send_envelope(&envelope), id);
        assert_eq!(success(&caller.result(&id)), success(&first));
    }
    let refused = caller.invoke(by_id(ECHO, 1.into()));
    rate_limited(&caller.error(&refused), 1);
}

#[test]
fn the_rate_is_looked_at_behind_the_version_and_before_the_params() {
    let b = Sidecar::start();
    let mut descriptor = with_schema(ECHO, "input_schema", r#"{"type": "integer"}"#);
    let limit = map([("requests", 1.into()), ("period", "1h".into())]);
    set(&mut descriptor, "rate_limit", limit);
    let _provider = Provider::of(&b, vec![descriptor]);
    let mut caller = Caller::of(&b);
    for _ in 0..2 {
        let id = caller.invoke(by_id("org.example.echo:2.0.0", 1.into()));
        assert_eq!(caller.error(&id).code(), Some(4003));
    }
    let id = caller.invoke(by_id(ECHO, "no integer".into()));
    assert_eq!(caller.error(&id).code(), Some(4004));
    let id = caller.invoke(by_id(ECHO, "no integer".into()));
    rate_limited(&caller.error(&id), 1);
}

#[test]
fn the_callers_sidecar_waits_as_long_as_it_is_told_and_asks_again() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![limited(1, "5s")]);
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    let ids: Vec<_> = (0..2).map(|_| caller.invoke(by_id(ECHO, Value::Null))).collect();
    let mut taken: Vec<_> = ids.iter().map(|_| provider.echo().id()).collect();
    for id in &ids {
        caller.result(id);
    }
    taken.sort();
    let mut ids = ids;
    ids.sort();
    assert_eq!(taken, ids, "each under its own id, once");
    assert!(b.log().contains("3005"), "one of them was refused at first");
    caller.heard_nothing_more();
}

#[test]
fn the_owner_bounds_what_each_peer_and_all_of_them_call() {
    let b = Setup::new().set("limits.call_rate_per_peer", "2/1h").set("limits.call_rate", "3/1h").start();
    let mut provider = Provider::of(&b, vec![idempotent(ECHO)]);
    let sidecars = [(); 2].map(|()| Setup::new().peer(&b).start());
    let [mut one, mut other] = [Caller::of(&sidecars[0]), Caller::of(&sidecars[1])];
    let mut call = |caller: &mut Caller| {
        let id = caller.invoke(by_id(ECHO, Value::Null));
        provider.echo();
        caller.result(&id);
    };
    call(&mut one);
    call(&mut one);
    let id = one.invoke(by_id(ECHO, Value::Null));
    rate_limited(&one.error(&id), 2);
    call(&mut other);
    let id = other.invoke(by_id(ECHO, Value::Null));
    rate_limited(&other.error(&id), 3);
    // The agent itself is no peer.
    let mut own = Caller::of(&b);
    for _ in 0..4 {
        call(&mut own);
    }
}

#[test]
fn a_limit_that_nobody_could_keep_is_not_declared() {
    let b = Sidecar::start();
    let mut agent = BytePeer::open(&b.socket);
    for (limited, said) in [(limited(0, "1m"), "`requests`"), (limited(1, "1 week"), "`period`")] {
        let id = agent.send(CAP_DECLARE, map([("capabilities", Value::Array(vec![limited]))]));
        let message = agent.message();
        assert_eq!((message.code(), message.reply_to().as_ref()), (Some(4001), Some(&id)));
        let text = of_error(&message, "message").and_then(Value::as_text).unwrap().to_owned();
        assert!(text.contains(said) && text.contains(ECHO), "{text}");
    }
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    assert_eq!(caller.error(&id).code(), Some(4002));
}
