//! Copies of a call that are lost, and ERRORs to later ones, in; 5902 in the place of a refusal that nobody can know to be
//! true, out (PROTOCOL 8).

use std::time::{Duration, Instant};

use capd::net::CloseReason;
use ciborium::Value;

use crate::agents::{CAP_INVOKE, Caller, ERROR, by_id, failure, retried_soon, success, unknown_for, within};
use crate::peer::{Heard, Peer, beside};
use crate::support::{Setup, map, set};

const ONCE: &str = "org.example.once:1.0.0";

/// The next copy of the call, whose link breaks before anything answers it.
fn lost(peer: &Peer) -> Heard {
    let heard = peer.heard_type(CAP_INVOKE);
    heard.link.close(CloseReason::Local("as told".to_owned()));
    heard
}

#[test]
fn an_error_to_a_later_copy_is_no_refusal_of_a_call_whose_first_copy_was_lost() {
    for code in [4002, 3001, 1003] {
        let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
        let a = beside(&peer);
        let mut caller = Caller::of(&a);
        let id = caller.invoke(by_id(ONCE, Value::Null));
        assert_eq!(lost(&peer).message.id(), id);
        let again = peer.heard_type(CAP_INVOKE);
        assert_eq!(again.message.id(), id);
        peer.refuse(&again, code, "client");
        assert_eq!(unknown_for(&caller.result(&id)), Some(code));
        caller.heard_nothing_more();
    }
}

#[test]
fn an_error_to_a_later_copy_of_an_idempotent_call_is_its_answer() {
    let peer = Peer::serving(vec![retried_soon(ONCE, true)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ONCE, Value::Null));
    lost(&peer);
    peer.refuse(&peer.heard_type(CAP_INVOKE), 4002, "client");
    assert_eq!(caller.error(&id).code(), Some(4002));
}

#[test]
fn a_call_that_was_answered_is_never_refused_when_it_is_asked_for_again() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ONCE, Value::Null));
    let id = caller.link.send_envelope(&envelope);
    peer.succeed(&peer.heard_type(CAP_INVOKE), "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
    caller.link.send_envelope(&envelope);
    peer.refuse(&peer.heard_type(CAP_INVOKE), 3001, "security");
    assert_eq!(unknown_for(&caller.result(&id)), Some(3001));
    // Nor after a restart, which has forgotten that it was answered.
    let a = a.restart();
    let mut caller = Caller::of(&a);
    caller.link.send_envelope(&envelope);
    peer.refuse(&peer.heard_type(CAP_INVOKE), 3001, "security");
    assert_eq!(unknown_for(&caller.result(&id)), Some(3001));
}

#[test]
fn a_call_that_was_refused_may_be_refused_again_and_run_later() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ONCE, Value::Null));
    let id = caller.link.send_envelope(&envelope);
    for _ in 0..2 {
        peer.refuse(&peer.heard_type(CAP_INVOKE), 3001, "security");
        assert_eq!(caller.error(&id).code(), Some(3001));
        caller.link.send_envelope(&envelope);
    }
    peer.succeed(&peer.heard_type(CAP_INVOKE), "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
}

/// The body of an ERROR to a copy that meets a tombstone.
fn released() -> Value {
    map([
        ("code", 5002.into()),
        ("category", "server".into()),
        ("message", "as told".into()),
        ("retry", false.into()),
        ("details", map([("released", true.into())])),
    ])
}

#[test]
fn a_call_that_its_agent_addresses_to_the_peer_that_released_it_goes_to_nobody_else() {
    let [peer, other] = [(); 2].map(|()| Peer::serving(vec![retried_soon(ONCE, false)]));
    let a = Setup::new().peer_at(peer.did(), &[&peer.address()]).peer_at(other.did(), &[&other.address()]);
    let a = a.start();
    let mut caller = Caller::of(&a);
    let mut envelope = caller.link.envelope(CAP_INVOKE, by_id(ONCE, Value::Null));
    set(&mut envelope, "to", peer.did().into());
    for _ in 0..2 {
        let id = caller.link.send_envelope(&envelope);
        peer.answer(&peer.heard_type(CAP_INVOKE), ERROR, &released());
        assert_eq!(caller.error(&id).code(), Some(5002));
    }
}

#[test]
fn a_call_that_its_peer_has_released_goes_to_another_once_there_is_one() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    let other = Peer::serving(Vec::new());
    let a = Setup::new().peer_at(peer.did(), &[&peer.address()]).peer_at(other.did(), &[&other.address()]);
    let a = a.start();
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ONCE, Value::Null));
    let id = caller.link.send_envelope(&envelope);
    peer.answer(&peer.heard_type(CAP_INVOKE), ERROR, &released());
    assert_eq!(caller.error(&id).code(), Some(5002));
    caller.link.send_envelope(&envelope);
    let refusal = caller.error(&id);
    assert_eq!(refusal.code(), Some(4002), "nobody else serves it yet");
    assert!(format!("{refusal:?}").contains("has released the call"), "{refusal:?}");
    other.serve(vec![retried_soon(ONCE, false)]);
    caller.link.send_envelope(&envelope);
    other.succeed(&other.heard_type(CAP_INVOKE), "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
}

#[test]
fn a_call_whose_peer_stays_away_after_a_lost_copy_ends_as_unknown_and_one_that_never_left_is_refused() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(within(ONCE, Value::Null, 700));
    let first = peer.heard_type(CAP_INVOKE);
    // Its sidecar is gone for good: nobody answers at its address.
    drop(first);
    drop(peer);
    assert_eq!(unknown_for(&caller.result(&id)), None);
    let id = caller.invoke(within(ONCE, Value::Null, 200));
    let refusal = caller.about(&id);
    assert_eq!((refusal.typ(), refusal.code()), (ERROR, Some(2002)));
}

#[test]
fn a_call_that_nobody_answers_takes_its_own_time_and_not_seconds_more() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let began = Instant::now();
    let id = caller.invoke(within(ONCE, Value::Null, 1_000));
    let _unanswered = peer.heard_type(CAP_INVOKE);
    assert_eq!(failure(&caller.result(&id)), 5003);
    let took = began.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_millis(2_500)).contains(&took), "{took:?}");
}
