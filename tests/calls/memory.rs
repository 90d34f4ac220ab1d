//! A provider's journal that is gone, or an older copy of it, in; 5902, and never a second run, out (PROTOCOL 8, *A ledger
//! belongs to one journal*).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use capd::net::CloseReason;
use capd_proto::ledger::JournalId;
use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, Caller, ERROR, Provider, REQUEST, by_id, failure, loose, of_error, retried_soon, success,
    unknown_for,
};
use crate::peer::{Heard, Peer, beside};
use crate::support::{Message, PATIENCE, Setup, Sidecar, field, map, set};

const ONCE: &str = "org.example.once:1.0.0";

/// The files of a sidecar's journal, those that are there.
fn journal(sidecar: &Sidecar) -> Vec<PathBuf> {
    let state = sidecar.dir.join("state");
    let files = ["journal.db", "journal.db-wal", "journal.mark"].map(|name| state.join(name));
    files.into_iter().filter(|file| file.exists()).collect()
}

/// It is the caller's sidecar's word that nobody knows what became of the call.
#[track_caller]
pub(super) fn is_unknown(result: &Message) {
    assert_eq!(failure(result), 5902, "{result:?}");
    let details = of_error(result, "details").expect("it says that it is not the last word");
    assert_eq!(field(details, "final"), Some(&Value::Bool(false)));
}

/// A call that is asked for while its provider has it, and then while the provider's journal is another: what `replace`
/// makes of it while the sidecar is down. It has been down once before, for `prepare`.
fn never_runs_again(prepare: impl FnOnce(Sidecar) -> Sidecar, replace: impl FnOnce(&Sidecar)) -> Sidecar {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    let first = caller.invoke(by_id(ONCE, "first".into()));
    provider.echo();
    success(&caller.result(&first));
    let mut b = prepare(b);
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ONCE, "once".into()));
    let id = caller.link.send_envelope(&envelope);
    let _held = provider.taken();
    b.kill();
    replace(&b);
    let b = b.restart();
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    is_unknown(&caller.result(&id));
    // The journal that it has by now never knew the call.
    caller.link.send_envelope(&envelope);
    is_unknown(&caller.result(&id));
    provider.heard_nothing_more();
    // New calls are none of that.
    let other = caller.invoke(by_id(ONCE, "other".into()));
    provider.echo();
    assert_eq!(success(&caller.result(&other)), &Value::from("other"));
    let a = a.restart();
    let mut caller = Caller::of(&a);
    caller.link.send_envelope(&envelope);
    is_unknown(&caller.result(&id));
    provider.heard_nothing_more();
    b
}

#[test]
fn a_session_ends_with_the_journal_of_the_process_that_agreed_on_it() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    let first = caller.invoke(by_id(ONCE, "first".into()));
    provider.echo();
    success(&caller.result(&first));
    let negotiate = || {
        map([
            ("op", "negotiate".into()),
            ("capability", "org.example.once".into()),
            ("range", ">=1.0.0".into()),
        ])
    };
    let agreed = |caller: &mut Caller| {
        let asked = caller.link.send(REQUEST, negotiate());
        let session = field(caller.about(&asked).body(), "session_id").unwrap().clone();
        let session = map([("session_id", session)]);
        map([("capability", "org.example.once".into()), ("params", Value::Null), ("session", session)])
    };
    let in_session = agreed(&mut caller);
    let id = caller.invoke(in_session.clone());
    provider.echo();
    success(&caller.result(&id));

    let mut b = b;
    b.kill();
    journal(&b).iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let b = b.restart();
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    // What is sent on the link that broke may have been executed, so it is waited for the next one.
    let deadline = Instant::now() + PATIENCE;
    while a.log().matches("peer connected").count() < 2 {
        assert!(Instant::now() < deadline, "no second link: {}", a.log());
        std::thread::yield_now();
    }
    let other = caller.invoke(by_id(ONCE, "other".into()));
    provider.echo();
    success(&caller.result(&other));
    for _ in 0..2 {
        let id = caller.invoke(in_session.clone());
        let refused = caller.error(&id);
        assert_eq!(refused.code(), Some(5002), "{refused:?}");
        let message = field(refused.body(), "message").and_then(Value::as_text).unwrap();
        assert!(message.contains("negotiate anew"), "{message}");
    }
    let anew = agreed(&mut caller);
    let id = caller.invoke(anew);
    provider.echo();
    success(&caller.result(&id));
    provider.heard_nothing_more();
}

#[test]
fn a_call_never_runs_again_where_the_journal_was_deleted() {
    never_runs_again(Sidecar::restart, |b| {
        journal(b).iter().for_each(|file| std::fs::remove_file(file).unwrap())
    });
}

#[test]
fn a_call_never_runs_again_where_the_journal_was_replaced_by_an_older_copy() {
    let kept = tempfile::tempdir().unwrap();
    let copy = |from: &PathBuf, to: PathBuf| assert!(std::fs::copy(from, to).unwrap() > 0);
    let prepare = |mut b: Sidecar| {
        b.kill();
        for file in journal(&b) {
            copy(&file, kept.path().join(file.file_name().unwrap()));
        }
        b.restart()
    };
    let b = never_runs_again(prepare, |b| {
        journal(b).iter().for_each(|file| std::fs::remove_file(file).unwrap());
        for entry in std::fs::read_dir(kept.path()).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), b.dir.join("state").join(entry.file_name()));
        }
    });
    let log = b.log();
    assert_eq!(log.matches("the journal is an older copy").count(), 1, "{log}");
}

const ONE: JournalId = JournalId([1; 16]);
const OTHER: JournalId = JournalId([2; 16]);

/// The journal that a call names.
fn named(heard: &Heard) -> Option<JournalId> {
    let named = field(field(&heard.message.value, "ext")?, "capd-journal")?;
    JournalId::from_slice(named.as_bytes().unwrap())
}

fn break_link(heard: &Heard) {
    heard.link.close(CloseReason::Local("as told".to_owned()));
}

#[test]
fn a_call_names_the_journal_that_it_is_given_to_and_keeps_what_its_agent_said() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    peer.remember_in(Some(ONE));
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let mut envelope = caller.link.envelope(CAP_INVOKE, by_id(ONCE, Value::Null));
    let own = Value::Bytes(vec![9; 16]);
    set(&mut envelope, "ext", map([("note", "kept".into()), ("capd-journal", own)]));
    let id = caller.link.send_envelope(&envelope);
    let heard = peer.heard_type(CAP_INVOKE);
    assert_eq!(named(&heard), Some(ONE));
    let ext = field(&heard.message.value, "ext").unwrap();
    assert_eq!(field(ext, "note"), Some(&Value::from("kept")));
    peer.succeed(&heard, "done".into());
    success(&caller.result(&id));
}

#[test]
fn a_peer_that_comes_back_with_another_journal_is_never_sent_the_call_again() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    peer.remember_in(Some(ONE));
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ONCE, Value::Null));
    let id = caller.link.send_envelope(&envelope);
    let heard = peer.heard_type(CAP_INVOKE);
    peer.remember_in(Some(OTHER));
    break_link(&heard);
    assert_eq!(unknown_for(&caller.result(&id)), Some(5902));
    caller.link.send_envelope(&envelope);
    assert_eq!(unknown_for(&caller.result(&id)), Some(5902));
    // What it is sent next is another call.
    let other = caller.invoke(by_id(ONCE, Value::Null));
    let heard = peer.heard_type(CAP_INVOKE);
    assert_eq!((heard.message.id(), named(&heard)), (other.clone(), Some(OTHER)));
    peer.succeed(&heard, "done".into());
    success(&caller.result(&other));
}

#[test]
fn a_peer_that_has_its_journal_still_is_sent_the_call_again() {
    // An older one names none, and so may one that was brought up to date in between.
    for (first, then) in [(Some(ONE), Some(ONE)), (None, None), (None, Some(ONE))] {
        let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
        peer.remember_in(first);
        let a = beside(&peer);
        let mut caller = Caller::of(&a);
        let id = caller.invoke(by_id(ONCE, Value::Null));
        let heard = peer.heard_type(CAP_INVOKE);
        assert_eq!(named(&heard), first);
        peer.remember_in(then);
        break_link(&heard);
        let again = peer.heard_type(CAP_INVOKE);
        assert_eq!((again.message.id(), named(&again)), (id.clone(), first));
        peer.succeed(&again, "done".into());
        assert_eq!(success(&caller.result(&id)), &Value::from("done"));
    }
}

/// It stays with the peer that refused it, whatever that remembers by now: nothing ran there.
#[test]
fn a_call_that_was_refused_for_what_it_is_is_given_to_the_peers_next_journal() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    peer.remember_in(Some(ONE));
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let envelope = caller.link.envelope(CAP_INVOKE, by_id(ONCE, Value::Null));
    let id = caller.link.send_envelope(&envelope);
    let heard = peer.heard_type(CAP_INVOKE);
    peer.refuse(&heard, 4004, "client");
    assert_eq!(caller.error(&id).code(), Some(4004));
    peer.remember_in(Some(OTHER));
    break_link(&heard);
    let deadline = Instant::now() + PATIENCE;
    // On the next link: what is sent on the one that breaks may have run.
    while a.log().split("peer connected").nth(2).is_none_or(|since| !since.contains("peer serves")) {
        assert!(Instant::now() < deadline, "the peer is not there again");
        std::thread::sleep(Duration::from_millis(5));
    }
    caller.link.send_envelope(&envelope);
    let again = peer.heard_type(CAP_INVOKE);
    assert_eq!((again.message.id(), named(&again)), (id.clone(), Some(OTHER)));
    peer.refuse(&again, 4004, "client");
    assert_eq!(caller.error(&id).code(), Some(4004));
    caller.link.send_envelope(&envelope);
    let again = peer.heard_type(CAP_INVOKE);
    assert_eq!((again.message.id(), named(&again)), (id.clone(), Some(OTHER)));
    peer.succeed(&again, "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
}

#[test]
fn an_idempotent_call_is_sent_whatever_the_peer_remembers() {
    let peer = Peer::serving(vec![retried_soon(ONCE, true)]);
    peer.remember_in(Some(ONE));
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ONCE, Value::Null));
    let heard = peer.heard_type(CAP_INVOKE);
    assert_eq!(named(&heard), None);
    peer.remember_in(Some(OTHER));
    break_link(&heard);
    let again = peer.heard_type(CAP_INVOKE);
    peer.succeed(&again, "done".into());
    assert_eq!(success(&caller.result(&id)), &Value::from("done"));
}

#[test]
fn an_executors_word_that_its_journal_is_another_ends_the_call_as_unknown() {
    let peer = Peer::serving(vec![retried_soon(ONCE, false)]);
    peer.remember_in(Some(ONE));
    let a = beside(&peer);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ONCE, Value::Null));
    let heard = peer.heard_type(CAP_INVOKE);
    let body = map([
        ("code", 5902.into()),
        ("category", "server".into()),
        ("message", "as told".into()),
        // Even so it is not sent again.
        ("retry", true.into()),
    ]);
    peer.answer(&heard, ERROR, &body);
    assert_eq!(unknown_for(&caller.result(&id)), Some(5902));
    let other = caller.invoke(by_id(ONCE, Value::Null));
    assert_eq!(peer.heard_type(CAP_INVOKE).message.id(), other);
}

#[test]
fn a_call_that_was_given_to_another_journal_is_refused_before_anything_runs() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    let peer = Peer::serving(Vec::new());
    let link = peer.connect(&b);
    let journal = link.journal().expect("HELLO_ACK names it");
    let invoke = |named: JournalId| {
        let ext = map([("capd-journal", Value::Bytes(named.0.to_vec()))]);
        let (id, envelope) = peer.sealed_with(&b.did, CAP_INVOKE, &by_id(ONCE, "call".into()), &ext);
        let _route = peer.request(&link, &envelope);
        let heard = peer.heard();
        assert_eq!(heard.message.reply_to(), Some(id));
        heard.message
    };
    let other = JournalId(journal.0.map(|byte| !byte));
    let refused = invoke(other);
    assert_eq!((refused.typ(), refused.code()), (ERROR, Some(5902)), "{refused:?}");
    provider.heard_nothing_more();
    // It is the sidecar's own for as long as it keeps its memory.
    let b = b.restart();
    let link = peer.connect(&b);
    assert_eq!(link.journal(), Some(journal));
}
