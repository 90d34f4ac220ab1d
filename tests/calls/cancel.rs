//! Cancels of running, waiting, finished and foreign calls in; 4901, or nothing changed, out (PROTOCOL 7.6).

use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, CAP_RESULT, Caller, Provider, REQUEST, RESPONSE, by_id, failure, loose, success,
};
use crate::peer::Peer;
use crate::support::{Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";

fn cancel_of(target: &[u8]) -> Value {
    map([("op", "cancel".into()), ("target", Value::Bytes(target.to_vec()))])
}

#[test]
fn a_cancelled_call_ends_with_4901_and_its_provider_is_told() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let over_quic = Setup::new().peer(&b).start();
    let over_tcp = Setup::new().peer_over_tcp(&b).start();
    for sidecar in [&over_quic, &over_tcp, &b] {
        let mut caller = Caller::of(sidecar);
        let id = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        assert_eq!(caller.cancel(&id), "cancelling");
        provider.is_told_to_cancel(&call);
        assert_eq!(failure(&caller.result(&id)), 4901);
        let late = provider.succeed(&call, "late".into());
        provider.is_refused(&late, 4001);
        caller.heard_nothing_more();
    }
}

#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    for sidecar in [&b, &a] {
        let mut caller = Caller::of(sidecar);
        let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "done".into()));
        let id = caller.link.send_envelope(&envelope);
        provider.echo();
        let result = caller.result(&id);
        assert_eq!(caller.cancel(&id), "finished");
        caller.link.send_envelope(&envelope);
        assert_eq!(caller.result(&id).bytes, result.bytes);
        provider.heard_nothing_more();
    }
    let mut caller = Caller::of(&a);
    assert_eq!(caller.cancel(&[9; 16]), "unknown");
}

#[test]
fn a_cancel_may_name_the_sidecar_that_executes() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    provider.echo();
    caller.result(&id);
    let mut envelope = caller.link.envelope(REQUEST, cancel_of(&id));
    set(&mut envelope, "to", b.did.as_str().into());
    let request = caller.link.send_envelope(&envelope);
    assert_eq!(caller.cancel_state(&request), "finished");
}

#[test]
fn only_the_calls_own_sender_may_cancel_it() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    let stranger = Peer::serving(vec![]);
    let link = stranger.connect(&b);
    let (_, envelope) = stranger.sealed(&b.did, REQUEST, None, &cancel_of(&id));
    let _route = stranger.request(&link, &envelope);
    let answer = stranger.heard_type(RESPONSE).message;
    assert_eq!(field(answer.body(), "state").and_then(Value::as_text), Some("unknown"));
    // Nor may the agent of the executing sidecar.
    assert_eq!(Caller::of(&b).cancel(&id), "unknown");
    provider.heard_nothing_more();
    provider.succeed(&call, "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
}

#[test]
fn resetting_the_stream_of_a_single_call_cancels_it() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let peer = Peer::serving(vec![]);
    let link = peer.connect(&b);
    // Too large for a shared stream.
    let body = by_id(ECHO, Value::Bytes(vec![1; 100 * 1024]));
    let (id, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &body);
    let route = peer.request(&link, &envelope);
    let call = provider.taken();
    assert!(route.cancel(), "the stream is its own");
    provider.is_told_to_cancel(&call);
    let late = provider.succeed(&call, "late".into());
    provider.is_refused(&late, 4001);
    // The result is recorded, though nobody waited for it.
    let _again = peer.request(&link, &envelope);
    let result = peer.heard_type(CAP_RESULT).message;
    assert_eq!((failure(&result), result.reply_to()), (4901, Some(id)));
}

#[test]
fn a_call_cancelled_before_it_could_be_sent_is_never_sent() {
    let mut b = Sidecar::start();
    let a = Setup::new()
        .set("timeouts.reconnect_initial_ms", "10")
        .set("timeouts.reconnect_max_ms", "50")
        .peer(&b)
        .start();
    b.kill();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    assert_eq!(caller.cancel(&id), "cancelling");
    assert_eq!(failure(&caller.result(&id)), 4901);
    let b = b.restart();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    // A later call arrives, so the link is up, and the cancelled one would have come before it.
    let other = caller.invoke(by_id(ECHO, "later".into()));
    assert_eq!(provider.echo().id(), other);
    caller.result(&other);
    provider.heard_nothing_more();
    caller.heard_nothing_more();
}
