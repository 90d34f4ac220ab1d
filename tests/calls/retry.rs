//! A peer that refuses, fails, leaves and says too much in; one call and one result for the agent out (PROTOCOL 8).

use capd::net::CloseReason;
use capd_proto::code::Code;
use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, CAP_RESULT, Caller, ERROR, Provider, SOON_MS, by_id, failure, loose, success, within,
};
use crate::peer::{Heard, Peer, beside};
use crate::support::{Setup, Sidecar, map};

const ECHO: &str = "org.example.echo:1.0.0";

/// A descriptor whose retries are quick.
fn retried(idempotent: bool, attempts: u64) -> Value {
    let policy = map([
        ("max_attempts", attempts.into()),
        ("initial_delay_ms", 10.into()),
        ("retry_on", Value::Array(vec![5002.into(), "timeout".into()])),
    ]);
    map([("id", ECHO.into()), ("idempotent", idempotent.into()), ("retry_policy", policy)])
}

fn invoked(peer: &Peer) -> Heard {
    peer.heard_type(CAP_INVOKE)
}

#[test]
fn a_retryable_refusal_is_tried_again_under_the_same_id() {
    let peer = Peer::serving(vec![retried(false, 5)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, "again".into()));
    for _ in 0..2 {
        let refused = invoked(&peer);
        assert_eq!(refused.message.id(), id);
        peer.refuse(&refused, 5004, "server");
    }
    let taken = invoked(&peer);
    assert_eq!(taken.message.id(), id);
    peer.succeed(&taken, "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
    caller.heard_nothing_more();
}

#[test]
fn the_last_refusal_is_told_when_no_try_is_left() {
    let peer = Peer::serving(vec![retried(true, 2)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    for _ in 0..2 {
        peer.refuse(&invoked(&peer), 5004, "server");
    }
    assert_eq!(caller.error(&id).code(), Some(5004));
    // A refusal that nothing can come of is told at once.
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let refused = invoked(&peer);
    assert_eq!(refused.message.id(), id, "no third try came before");
    peer.refuse(&refused, 3001, "security");
    assert_eq!(caller.error(&id).code(), Some(3001));
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let refused = invoked(&peer);
    assert_eq!(refused.message.id(), id);
    let body = map([
        ("code", 5004.into()),
        ("category", "server".into()),
        ("message", "not again".into()),
        ("retry", false.into()),
    ]);
    peer.answer(&refused, ERROR, &body);
    assert_eq!(caller.error(&id).code(), Some(5004));
    caller.heard_nothing_more();
}

#[test]
fn no_try_is_made_that_would_begin_after_the_deadline() {
    let peer = Peer::serving(vec![loose(ECHO)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    // The peer asks for a pause that is longer than the call may take.
    let id = caller.invoke(within(ECHO, Value::Null, SOON_MS));
    let refused = invoked(&peer);
    let body = map([
        ("code", 5004.into()),
        ("category", "server".into()),
        ("message", "much later".into()),
        ("details", map([("retry_after_seconds", 60.into())])),
    ]);
    peer.answer(&refused, ERROR, &body);
    assert_eq!(caller.error(&id).code(), Some(5004));
}

#[test]
fn an_error_result_that_asks_for_a_pause_beyond_the_deadline_is_the_result() {
    let peer = Peer::serving(vec![retried(true, 5)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let error = map([
        ("code", 5002.into()),
        ("message", "much later".into()),
        ("details", map([("retry_after_seconds", 3_600.into())])),
    ]);
    peer.answer(&invoked(&peer), CAP_RESULT, &map([("status", "error".into()), ("error", error)]));
    assert_eq!(failure(&caller.result(&id)), 5002);
    caller.heard_nothing_more();
}

#[test]
fn a_retry_policy_counts_the_first_try() {
    let peer = Peer::serving(vec![retried(true, 3)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    for _ in 0..3 {
        peer.fail(&invoked(&peer), 5002);
    }
    assert_eq!(failure(&caller.result(&id)), 5002);
    caller.heard_nothing_more();
}

#[test]
fn an_idempotent_call_is_tried_again_under_a_new_id_after_an_error_that_its_policy_names() {
    let peer = Peer::serving(vec![retried(true, 5)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let first = invoked(&peer);
    peer.fail(&first, 5002);
    let second = invoked(&peer);
    assert_ne!(second.message.id(), id);
    assert_eq!(second.message.body(), first.message.body());
    // What still comes for the old id is nobody's.
    let late = peer.succeed(&first, "old".into());
    let told = peer.heard_type(ERROR).message;
    assert_eq!((told.code(), told.reply_to()), (Some(4001), Some(late)));
    peer.succeed(&second, "new".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("new"));
    // So is one that it names by a word.
    let id = caller.invoke(by_id(ECHO, Value::Null));
    peer.fail(&invoked(&peer), 5003);
    peer.succeed(&invoked(&peer), "newer".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("newer"));
    // An error that it does not name is the result.
    let id = caller.invoke(by_id(ECHO, Value::Null));
    peer.fail(&invoked(&peer), 5001);
    assert_eq!(failure(&caller.result(&id)), 5001);
    caller.heard_nothing_more();
}

#[test]
fn a_call_that_is_not_idempotent_is_not_run_twice_whatever_its_policy_names() {
    let peer = Peer::serving(vec![retried(false, 5)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    peer.fail(&invoked(&peer), 5002);
    assert_eq!(failure(&caller.result(&id)), 5002);
    caller.heard_nothing_more();
}

#[test]
fn a_call_whose_link_breaks_is_asked_for_again_under_the_same_id() {
    let peer = Peer::serving(vec![retried(false, 5)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let lost = invoked(&peer);
    lost.link.close(CloseReason::Local("the test says so".to_owned()));
    let again = invoked(&peer);
    assert_eq!(again.message.id(), id);
    assert_eq!(again.message.body(), lost.message.body());
    peer.succeed(&again, "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
    caller.heard_nothing_more();
}

#[test]
fn a_peer_that_never_answers_is_given_up_and_its_late_result_refused() {
    let peer = Peer::serving(vec![loose(ECHO)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(within(ECHO, Value::Null, SOON_MS));
    let silent = invoked(&peer);
    assert_eq!(failure(&caller.result(&id)), 5003);
    let late = peer.succeed(&silent, "late".into());
    let told = peer.heard_type(ERROR).message;
    assert_eq!((told.code(), told.reply_to()), (Some(4001), Some(late)));
    caller.heard_nothing_more();
}

#[test]
fn a_peers_second_and_unasked_results_are_refused() {
    let peer = Peer::serving(vec![loose(ECHO)]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = invoked(&peer);
    peer.succeed(&call, "first".into());
    let second = peer.succeed(&call, "second".into());
    assert_eq!(peer.heard_type(ERROR).message.reply_to(), Some(second));
    assert_eq!(success(&caller.result(&id)), &Value::from("first"));
    let unasked = map([("status", "success".into()), ("result", Value::Null)]);
    let (sent, envelope) = peer.sealed(&a.did, CAP_RESULT, Some(&[3; 16]), &unasked);
    let _route = peer.request(&call.link, &envelope);
    let told = peer.heard_type(ERROR).message;
    assert_eq!((told.code(), told.reply_to()), (Some(4001), Some(sent)));
    caller.heard_nothing_more();
}

#[test]
fn a_peer_cannot_answer_what_another_was_asked() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let stranger = Peer::serving(vec![]);
    let a = Setup::new().peer(&b).start();
    let link = stranger.connect(&a);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    let forged = map([("status", "success".into()), ("result", "forged".into())]);
    let (sent, envelope) = stranger.sealed(&a.did, CAP_RESULT, Some(&id), &forged);
    let _route = stranger.request(&link, &envelope);
    let told = stranger.heard_type(ERROR).message;
    assert_eq!((told.code(), told.reply_to()), (Some(4001), Some(sent)));
    provider.succeed(&call, "true".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("true"));
}

/// A provider whose own policy would have it called a thousand times, without a pause.
#[test]
fn a_providers_policy_makes_no_more_than_ten_tries_and_none_without_a_pause() {
    let all: Vec<Value> = Code::ALL.iter().map(|code| code.0.into()).collect();
    let policy = map([
        ("max_attempts", 1_000_000.into()),
        ("initial_delay_ms", 0.into()),
        ("max_delay_ms", 0.into()),
        ("backoff_multiplier", Value::Float(0.0)),
        ("retry_on", Value::Array(all)),
    ]);
    let descriptor = map([("id", ECHO.into()), ("idempotent", true.into()), ("retry_policy", policy)]);
    let peer = Peer::serving(vec![descriptor]);
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let begin = std::time::Instant::now();
    for _ in 0..10 {
        peer.fail(&invoked(&peer), 5001);
    }
    // Nine pauses, each of 10 ms less half of it at most.
    assert!(begin.elapsed() >= std::time::Duration::from_millis(9 * 5), "{:?}", begin.elapsed());
    assert_eq!(failure(&caller.result(&id)), 5001);
    caller.heard_nothing_more();
}
