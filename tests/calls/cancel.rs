//! Cancels of running, waiting, finished and foreign calls in; 4901, or nothing changed, out (PROTOCOL 7.6).

use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, CAP_RESULT, Caller, Provider, REQUEST, RESPONSE, by_id, failure, idempotent, loose, success,
};
use crate::peer::Peer;
use crate::support::{Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";
const LOOK: &str = "org.example.look:1.0.0";

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

#[test]
fn a_call_that_comes_behind_its_cancel_ends_with_4901_and_does_not_run() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO), idempotent(LOOK)]);
    let peer = Peer::serving(vec![]);
    let link = peer.connect(&b);
    for capability in [ECHO, LOOK] {
        let (id, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id(capability, Value::Null));
        let (_, cancel) = peer.sealed(&b.did, REQUEST, None, &cancel_of(&id));
        let _cancel = peer.request(&link, &cancel);
        let answer = peer.heard_type(RESPONSE).message;
        assert_eq!(field(answer.body(), "state").and_then(Value::as_text), Some("unknown"));
        for _ in 0..2 {
            let _route = peer.request(&link, &envelope);
            let result = peer.heard_type(CAP_RESULT).message;
            assert_eq!((failure(&result), result.reply_to()), (4901, Some(id.clone())));
        }
    }
    provider.heard_nothing_more();
    // Another call runs, under an id that nobody cancelled.
    let (_, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id(ECHO, "runs".into()));
    let _route = peer.request(&link, &envelope);
    provider.echo();
    assert_eq!(success(&peer.heard_type(CAP_RESULT).message), &Value::from("runs"));
}

#[test]
fn a_cancel_goes_behind_its_call_on_the_same_stream() {
    let peer = Peer::serving(vec![loose(ECHO)]);
    let a = Setup::new().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    // Some calls in flight, so that each shared stream has its share of them.
    let calls: Vec<_> = (0..9)
        .map(|_| {
            let id = caller.invoke(by_id(ECHO, Value::Null));
            (id, peer.heard_type(CAP_INVOKE))
        })
        .collect();
    for (id, call) in calls.into_iter().rev() {
        assert_eq!(caller.cancel(&id), "cancelling");
        let cancel = peer.heard_type(REQUEST);
        assert_eq!(cancel.message.body(), &cancel_of(&id));
        assert!(cancel.route.is_same(&call.route), "it took another stream");
        peer.fail(&call, 4901);
        assert_eq!(failure(&caller.result(&id)), 4901);
    }
}

#[test]
fn a_call_that_its_peer_does_not_know_can_be_asked_for_again_once_it_is_cancelled() {
    let peer = Peer::serving(vec![loose(ECHO)]);
    let a = Setup::new().peer_at(peer.did(), &[&peer.address()]).start();
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, Value::Null));
    let id = caller.link.send_envelope(&envelope);
    let unanswered = peer.heard_type(CAP_INVOKE);
    assert_eq!(caller.cancel(&id), "cancelling");
    let cancel = peer.heard_type(REQUEST);
    let state =
        map([("op", "cancel".into()), ("target", Value::Bytes(id.clone())), ("state", "unknown".into())]);
    peer.answer(&cancel, RESPONSE, &state);
    assert_eq!(failure(&caller.result(&id)), 4901);
    // Nothing waits under its id any more: not another ask, nor a shutdown.
    caller.link.send_envelope(&envelope);
    let again = peer.heard_type(CAP_INVOKE);
    peer.succeed(&again, "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
    drop(unanswered);
}
