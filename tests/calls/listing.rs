//! REQUEST `calls` of an agent in; the calls that its sidecar relays, runs and remembers out.

use std::time::{Duration, Instant};

use ciborium::Value;

use crate::agents::{
    Caller, ERROR, Provider, REQUEST, RESPONSE, by_id, failure, idempotent, loose, success, within,
};
use crate::peer::Peer;
use crate::support::{Message, Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";

fn ask(caller: &mut Caller, fields: Vec<(&str, Value)>) -> Message {
    let mut body = map([("op", "calls".into())]);
    for (key, value) in fields {
        set(&mut body, key, value);
    }
    let id = caller.link.send(REQUEST, body);
    caller.about(&id)
}

#[track_caller]
fn listed(answer: &Message) -> Vec<Value> {
    assert_eq!(answer.typ(), RESPONSE, "{answer:?}");
    assert_eq!(field(answer.body(), "op"), Some(&"calls".into()));
    field(answer.body(), "calls").and_then(Value::as_array).unwrap().clone()
}

/// The calls of one id.
fn of(caller: &mut Caller, id: &[u8]) -> Vec<Value> {
    listed(&ask(caller, vec![("target", Value::Bytes(id.to_vec()))]))
}

/// The one call of an id.
#[track_caller]
fn one(caller: &mut Caller, id: &[u8]) -> Value {
    let mut calls = of(caller, id);
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!(field(&calls[0], "id"), Some(&Value::Bytes(id.to_vec())));
    calls.remove(0)
}

#[track_caller]
fn says(call: &Value, fields: &[(&str, &str)]) {
    for (key, text) in fields {
        assert_eq!(field(call, key).and_then(Value::as_text), Some(*text), "{key}: {call:?}");
    }
}

#[track_caller]
fn number(call: &Value, key: &str) -> u64 {
    let number = field(call, key).and_then(Value::as_integer).unwrap_or_else(|| panic!("{key}: {call:?}"));
    number.try_into().unwrap()
}

/// The time in an id.
fn made_ms(id: &[u8]) -> u64 {
    u64::from_be_bytes(id[..8].try_into().unwrap())
}

#[test]
fn a_call_is_listed_on_both_sides_while_it_runs_and_by_its_executor_afterwards() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    for (name, descriptor, journaled) in [
        ("org.example.once", loose("org.example.once:1.0.0"), true),
        ("org.example.again", idempotent("org.example.again:1.0.0"), false),
    ] {
        let capability = &format!("{name}:1.0.0");
        let mut provider = Provider::of(&b, vec![descriptor]);
        let (mut caller, mut owner) = (Caller::of(&a), Caller::of(&b));
        let id = caller.invoke(within(capability, "x".into(), 20_000));
        let call = provider.taken();

        let relayed = one(&mut caller, &id);
        says(&relayed, &[("role", "caller"), ("state", "sent"), ("from", &a.did), ("peer", &b.did)]);
        says(&relayed, &[("capability", name)]);
        let running = one(&mut owner, &id);
        says(
            &running,
            &[("role", "executor"), ("state", "executing"), ("from", &a.did), ("capability", capability)],
        );
        assert_eq!(number(&running, "waiters"), 1);
        for call in [&relayed, &running] {
            assert_eq!(field(call, "journaled"), Some(&journaled.into()), "{call:?}");
        }
        assert_eq!(number(&running, "expires_at_ms"), made_ms(&id) + 60_000);
        let (started, deadline) = (number(&running, "started_at_ms"), number(&running, "deadline_at_ms"));
        assert!(
            made_ms(&id) <= started + 1_000 && deadline.abs_diff(started + 20_000) < 1_000,
            "{running:?}"
        );
        assert_eq!(field(&running, "finished_at_ms"), None);

        provider.succeed(&call, "done".into());
        success(&caller.result(&id));
        let made = one(&mut caller, &id);
        says(&made, &[("role", "caller"), ("state", "finished"), ("status", "success"), ("peer", &b.did)]);
        says(&made, &[("from", &a.did), ("capability", capability)]);
        assert!(number(&made, "finished_at_ms") + 1_000 >= made_ms(&id), "{made:?}");
        assert_eq!((number(&made, "waiters"), field(&made, "bytes")), (0, None));
        let finished = one(&mut owner, &id);
        says(
            &finished,
            &[("role", "executor"), ("state", "finished"), ("from", &a.did), ("capability", capability)],
        );
        says(&finished, &[("status", "success")]);
        assert!(number(&finished, "finished_at_ms") + 1_000 >= started, "{finished:?}");
        assert!(number(&finished, "bytes") > 100, "{finished:?}");
        assert_eq!((number(&finished, "waiters"), field(&finished, "code")), (0, None));
        assert_eq!(field(&finished, "journaled"), Some(&journaled.into()), "{finished:?}");
    }
}

#[test]
fn an_error_result_is_listed_with_its_code_and_a_refused_call_with_no_status() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    provider.fail(&call, 90_210);
    assert_eq!(failure(&caller.result(&id)), 90_210);
    let finished = one(&mut caller, &id);
    says(&finished, &[("state", "finished"), ("status", "error"), ("from", &b.did)]);
    assert_eq!(number(&finished, "code"), 90_210);
    let refused = caller.invoke(by_id("org.example.none:1.0.0", Value::Null));
    assert_eq!(caller.error(&refused).code(), Some(4002));
    let listed = one(&mut caller, &refused);
    says(&listed, &[("role", "caller"), ("state", "finished")]);
    assert_eq!((number(&listed, "code"), field(&listed, "status")), (4002, None));
}

#[test]
fn what_the_journal_kept_is_listed_after_a_kill() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let ended = caller.invoke(by_id(ECHO, Value::Null));
    provider.echo();
    caller.result(&ended);
    let finished = one(&mut caller, &ended);
    let cut_off = caller.invoke(by_id(ECHO, Value::Null));
    let _taken = provider.taken();
    let answer = ask(&mut caller, vec![]);
    let journal = field(answer.body(), "journal").unwrap();
    assert_eq!((number(journal, "changes"), number(journal, "failures")), (3, 0), "{journal:?}");
    assert!((1..=3).contains(&number(journal, "commits")), "{journal:?}");

    let b = b.restart();
    let mut caller = Caller::of(&b);
    let kept = one(&mut caller, &ended);
    says(&kept, &[("state", "finished"), ("capability", ECHO), ("from", &b.did)]);
    for key in ["bytes", "expires_at_ms"] {
        assert_eq!(field(&kept, key), field(&finished, key), "{key}");
    }
    assert!(
        number(&kept, "finished_at_ms").abs_diff(number(&finished, "finished_at_ms")) < 1_000,
        "{kept:?}"
    );
    assert_eq!(field(&kept, "status"), None, "it stands in the result, which nobody has asked for");
    let interrupted = one(&mut caller, &cut_off);
    says(&interrupted, &[("state", "finished"), ("status", "error"), ("capability", ECHO)]);
    assert_eq!(number(&interrupted, "code"), 5902);
}

#[test]
fn a_call_that_waits_for_its_peer_says_so() {
    let peer = Peer::serving(vec![loose(ECHO)]);
    let address = peer.address();
    let a = Setup::new().peer_at(peer.did(), &[&address]).start();
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let heard = peer.heard_type(crate::agents::CAP_INVOKE);
    // Refused for now, so that it waits a second for its next try.
    peer.refuse(&heard, 5004, "server");
    loop {
        let relayed = one(&mut caller, &id);
        says(&relayed, &[("role", "caller"), ("peer", peer.did())]);
        if field(&relayed, "state") == Some(&"waiting".into()) {
            break;
        }
    }
    let heard = peer.heard_type(crate::agents::CAP_INVOKE);
    peer.succeed(&heard, Value::Null);
    success(&caller.result(&id));
}

#[test]
fn pages_neither_skip_nor_repeat_while_calls_come_and_go() {
    let b = Sidecar::start();
    let peer = Peer::serving(vec![loose("org.example.far:1.0.0")]);
    let address = peer.address();
    let a = Setup::new().peer(&b).peer_at(peer.did(), &[&address]).start();
    let mut provider = Provider::of(&a, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    // Two that are relayed, and five that run here.
    let mut ids: Vec<_> =
        (0..2).map(|_| caller.invoke(by_id("org.example.far:1.0.0", Value::Null))).collect();
    let _held = (peer.heard_type(crate::agents::CAP_INVOKE), peer.heard_type(crate::agents::CAP_INVOKE));
    for _ in 0..5 {
        ids.push(caller.invoke(by_id(ECHO, Value::Null)));
        provider.echo();
        caller.result(&ids[ids.len() - 1]);
    }
    for limit in 1..=8 {
        let (mut paged, mut cursor) = (Vec::new(), None);
        loop {
            let mut fields = vec![("limit", limit.into())];
            fields.extend(cursor.map(|cursor| ("cursor", cursor)));
            let answer = ask(&mut caller, fields);
            let page = listed(&answer);
            assert!(page.len() <= usize::try_from(limit).unwrap());
            paged
                .extend(page.iter().map(|call| field(call, "id").and_then(Value::as_bytes).unwrap().clone()));
            cursor = field(answer.body(), "cursor").cloned();
            if cursor.is_none() {
                break;
            }
            if paged.len() <= 4 {
                // A call that comes in meanwhile stands behind all that are there.
                ids.push(caller.invoke(by_id(ECHO, Value::Null)));
                provider.echo();
                caller.result(&ids[ids.len() - 1]);
            }
        }
        assert_eq!(paged, ids, "limit {limit}");
    }
}

#[test]
fn a_question_that_makes_no_sense_is_4001() {
    let b = Sidecar::start();
    let mut caller = Caller::of(&b);
    for fields in [
        vec![("limit", 0.into())],
        vec![("cursor", Value::Bytes(vec![]))],
        vec![("cursor", Value::Bytes(vec![9; 40]))],
    ] {
        let answer = ask(&mut caller, fields);
        assert_eq!((answer.typ(), answer.code()), (ERROR, Some(4001)), "{answer:?}");
    }
}

#[test]
fn a_peer_learns_of_no_calls_and_not_even_of_the_question() {
    let b = Sidecar::start();
    let peer = Peer::serving(vec![]);
    let link = peer.connect(&b);
    let asked = ["calls", "unheard-of"].map(|op| {
        let (_, question) = peer.sealed(&b.did, REQUEST, None, &map([("op", op.into())]));
        let _route = peer.request(&link, &question);
        let refusal = peer.heard_type(ERROR).message;
        assert_eq!(refusal.code(), Some(4001), "{refusal:?}");
        field(refusal.body(), "message").and_then(Value::as_text).unwrap().replace(op, "")
    });
    assert_eq!(asked[0], asked[1]);
}

#[test]
fn a_flood_of_calls_leaves_a_bounded_number_of_timelines() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![idempotent(ECHO)]);
    let (mut caller, mut owner) = (Caller::of(&a), Caller::of(&b));
    let begin = Instant::now();
    let mut ids = Vec::new();
    for _ in 0..FLOOD / 50 {
        let some: Vec<_> = (0..50).map(|_| caller.invoke(by_id(ECHO, Value::Null))).collect();
        for _ in &some {
            provider.echo();
        }
        for id in &some {
            success(&caller.result(id));
        }
        ids.extend(some);
    }
    // Where all of it took less than a second, those with a timeline were the first, and are forgotten.
    let timed =
        |side: &mut Caller, id: &Vec<u8>| of(side, id).iter().any(|call| field(call, "timeline").is_some());
    let (mut is_kept_here, mut is_kept_there) = (false, false);
    while !(is_kept_here && is_kept_there) {
        assert!(begin.elapsed() < Duration::from_secs(60), "no timeline is kept any more");
        let id = caller.invoke(by_id(ECHO, Value::Null));
        provider.echo();
        success(&caller.result(&id));
        is_kept_here |= timed(&mut caller, &id);
        is_kept_there |= timed(&mut owner, &id);
        ids.push(id);
    }
    let seconds = begin.elapsed().as_secs() as usize + 2;
    for (side, kept_max) in [(&mut caller, 1_024), (&mut owner, 1_024)] {
        let kept = ids.iter().filter(|id| timed(side, id)).count();
        assert!((1..=kept_max.min(500 * seconds)).contains(&kept), "{kept} in {seconds} s");
    }
}

/// Calls of a flood: more than are remembered on the caller's side.
const FLOOD: usize = 2_000;
