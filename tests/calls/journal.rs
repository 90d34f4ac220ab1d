//! PROTOCOL 8 across kills: calls that may run only once in; their one result, or 5902, out of the journal.

use std::time::Instant;

use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, Caller, Provider, SOON_MS, by_id, failure, idempotent, loose, of_error, success, unknown_for,
    within,
};
use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, field, run_with};

const ECHO: &str = "org.example.echo:1.0.0";

fn caller_of(peers: &[&Sidecar]) -> Sidecar {
    peers.iter().fold(Setup::new(), |setup, peer| setup.peer(peer)).start()
}

#[test]
fn a_result_outlives_its_sidecars_byte_for_byte() {
    let b = Sidecar::start();
    let a = caller_of(&[&b]);
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "once".into()));
    let id = caller.link.send_envelope(&envelope);
    provider.echo();
    let first = caller.result(&id);
    let b = b.restart();
    // Nobody serves it any more, and still the call has its result.
    caller.link.send_envelope(&envelope);
    assert_eq!(caller.result(&id).bytes, first.bytes, "after the executor's end");
    let a = a.restart();
    let mut caller = Caller::of(&a);
    caller.link.send_envelope(&envelope);
    assert_eq!(caller.result(&id).bytes, first.bytes, "after the caller's sidecar's end");
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    caller.link.send_envelope(&envelope);
    assert_eq!(caller.result(&id).bytes, first.bytes, "and when it is served again");
    provider.heard_nothing_more();
}

#[test]
fn a_call_that_a_kill_cut_off_is_5902_and_never_runs_again() {
    let b = Sidecar::start();
    let a = caller_of(&[&b]);
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, "cut off".into()));
    let _taken = provider.taken();
    let b = b.restart();
    // The caller's sidecar asks again by itself.
    let result = caller.result(&id);
    assert_eq!(failure(&result), 5902);
    assert_eq!(of_error(&result, "details"), None, "it is the call's one result");
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    provider.heard_nothing_more();
    let log = b.log();
    assert!(log.contains("interrupted"), "it is audited: {log}");
    let b = b.restart();
    let again = caller.invoke(by_id(ECHO, "another".into()));
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    provider.echo();
    assert_eq!(success(&caller.result(&again)), &Value::from("another"));
}

#[test]
fn an_idempotent_call_that_a_kill_cut_off_runs_again() {
    let b = Sidecar::start();
    let a = caller_of(&[&b]);
    let mut provider = Provider::of(&b, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, "again".into()));
    let _taken = provider.taken();
    let b = b.restart();
    let mut provider = Provider::of(&b, vec![idempotent(ECHO)]);
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &Value::from("again"));
}

#[test]
fn another_body_under_the_id_of_a_former_processs_call_is_4001() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "one".into()));
    let id = caller.link.send_envelope(&envelope);
    provider.echo();
    caller.result(&id);
    let b = b.restart();
    let mut caller = Caller::of(&b);
    let mut other = envelope.clone();
    crate::support::set(&mut other, "body", by_id(ECHO, "other".into()));
    caller.link.send_envelope(&other);
    assert_eq!(caller.error(&id).code(), Some(4001));
    caller.link.send_envelope(&envelope);
    assert_eq!(success(&caller.result(&id)), &Value::from("one"));
}

#[test]
fn a_call_is_asked_about_where_it_went_first() {
    let (b, c) = (Sidecar::start(), Sidecar::start());
    let a = caller_of(&[&b, &c]);
    let mut providers = [&b, &c].map(|sidecar| Provider::of(sidecar, vec![loose(ECHO)]));
    let mut caller = Caller::of(&a);
    // Each in turn, so that one that only goes by the order of peers cannot pass.
    for (sidecar, serving) in [(&b, 0), (&c, 1)] {
        let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "once".into()));
        let mut named = envelope.clone();
        crate::support::set(&mut named, "to", sidecar.did.as_str().into());
        let id = caller.link.send_envelope(&named);
        providers[serving].echo();
        let first = caller.result(&id);
        // The same call, to whomever the sidecar chooses.
        caller.link.send_envelope(&envelope);
        assert_eq!(caller.result(&id).bytes, first.bytes);
    }
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "once".into()));
    let mut named = envelope.clone();
    crate::support::set(&mut named, "to", c.did.as_str().into());
    let id = caller.link.send_envelope(&named);
    providers[1].echo();
    let first = caller.result(&id);
    let a = a.restart();
    let mut caller = Caller::of(&a);
    caller.link.send_envelope(&envelope);
    assert_eq!(caller.result(&id).bytes, first.bytes, "also after its sidecar started again");
    for provider in &mut providers {
        provider.heard_nothing_more();
    }
}

#[test]
fn a_call_that_nobody_remembers_is_asked_about_where_such_calls_went() {
    let (b, c) = (Sidecar::start(), Sidecar::start());
    let a = caller_of(&[&b, &c]);
    let mut at_b = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    // The first has its peer written down; those that follow leave because of it.
    let mut firsts = Vec::new();
    for text in ["first", "second"] {
        let envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, text.into()));
        let id = caller.link.send_envelope(&envelope);
        at_b.echo();
        let first = caller.result(&id);
        firsts.push((envelope, id, first));
    }
    // By the time that they are asked for again only the other peer serves the capability.
    drop(at_b);
    let mut at_c = Provider::of(&c, vec![loose(ECHO)]);
    let a = a.restart();
    let mut caller = Caller::of(&a);
    let other = caller.invoke_at(&c.did, by_id(ECHO, "other".into()));
    // It may have been given to the first peer, and may have run there.
    assert_eq!(unknown_for(&caller.result(&other)), Some(5002));
    for (envelope, id, first) in &firsts {
        caller.link.send_envelope(envelope);
        assert_eq!(caller.result(id).bytes, first.bytes);
        let mut named = envelope.clone();
        crate::support::set(&mut named, "to", b.did.as_str().into());
        caller.link.send_envelope(&named);
        assert_eq!(caller.result(id).bytes, first.bytes);
    }
    at_c.heard_nothing_more();
}

#[test]
fn an_idempotent_call_goes_on_at_another_peer() {
    let (b, c) = (Sidecar::start(), Sidecar::start());
    let a = caller_of(&[&b, &c]);
    let mut at_b = Provider::of(&b, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, "call".into()));
    let _held = at_b.taken();
    let mut at_c = Provider::of(&c, vec![idempotent(ECHO)]);
    // Known at the caller's sidecar once a call went there: the first keeps the one peer busier.
    let other = caller.invoke_at(&c.did, by_id(ECHO, "other".into()));
    at_c.echo();
    caller.result(&other);
    // Its links are gone, and it serves nothing any more.
    let _b = b.restart();
    assert_eq!(at_c.echo().id(), id);
    assert_eq!(success(&caller.result(&id)), &Value::from("call"));
}

#[test]
fn an_answer_of_the_callers_own_sidecar_says_that_it_is_not_the_last_word() {
    let b = Sidecar::start();
    let a = caller_of(&[&b]);
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, within(ECHO, "slow".into(), SOON_MS));
    let id = caller.link.send_envelope(&envelope);
    let _taken = provider.taken();
    let mut b = b;
    b.kill();
    let own = caller.result(&id);
    let code = failure(&own);
    assert!(code == 5902 || code == 5003, "{code}: the link broke or went silent, and nobody knows");
    let details = of_error(&own, "details").expect("it says so");
    assert_eq!(field(details, "final"), Some(&Value::Bool(false)));
    // What became of it is known again once the executor is back, and linked.
    let b = b.restart();
    let begun = Instant::now();
    while exit_code(&run_with(capctl(Some(&a.socket)).args(["ping", &b.did]), b"")) != 0 {
        assert!(begun.elapsed() < PATIENCE, "the executor is not linked again");
    }
    caller.link.send_envelope(&envelope);
    let result = caller.result(&id);
    assert_eq!((failure(&result), of_error(&result, "details")), (5902, None));
}

#[test]
fn with_a_full_disk_only_calls_that_may_run_again_run() {
    let b = Setup::new().meets_file_limits().start();
    let other = "org.example.other:1.0.0";
    let mut provider = Provider::of(&b, vec![loose(ECHO), idempotent(other)]);
    let mut caller = Caller::of(&b);
    let before = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "before".into()));
    let running = caller.link.send_envelope(&before);
    let call = provider.taken();
    b.fill_disk();
    for _ in 0..3 {
        let id = caller.invoke(by_id(ECHO, "full".into()));
        assert_eq!(caller.error(&id).code(), Some(5002));
        let id = caller.invoke(by_id(other, "again".into()));
        provider.echo();
        assert_eq!(success(&caller.result(&id)), &Value::from("again"));
    }
    // Its result is kept back until it is on disk.
    provider.succeed(&call, "done".into());
    caller.heard_nothing_more();
    b.free_disk();
    let first = caller.result(&running);
    assert_eq!(success(&first), &Value::from("done"));
    let id = caller.invoke(by_id(ECHO, "after".into()));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &Value::from("after"));
    provider.heard_nothing_more();
    let b = b.restart();
    let mut caller = Caller::of(&b);
    caller.link.send_envelope(&before);
    assert_eq!(caller.result(&running).bytes, first.bytes);
}
