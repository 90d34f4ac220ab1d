//! Two processes have the key of one provider, each with a journal of its own: which of them would remember a call?

use std::time::{Duration, Instant};

use crate::cell::{Cell, answered, call, declaring, until};
use crate::support::{Setup, Sidecar, capctl, run_with, stdout};

/// The one provider: `org.example.ask` may run again, `org.example.once` may not.
fn provider(cell: &Cell, who: &str) -> Setup {
    let script = format!("printf '{{\"who\": \"{who}\"}}'");
    let once = format!("  - name: once\n    command: [sh, -c, {script:?}]\n");
    cell.member(1, &["org.example.*"]).capabilities(&(declaring(who, &["ask"]) + &once))
}

fn said(sidecar: &Sidecar, words: &[&str]) -> String {
    stdout(&run_with(capctl(Some(&sidecar.socket)).args(words), b"")).to_owned()
}

#[test]
fn no_call_that_may_run_only_once_goes_to_two_processes_of_one_provider_until_one_is_gone() {
    // Long enough that all questions are asked within two lives of a registration.
    let cell = Cell::in_file().with("fleet.ttl_ms", "6000");
    let caller =
        cell.member(10, &[]).set("timeouts.keep_alive_ms", "500").set("timeouts.idle_ms", "2000").start();
    // Both processes dial by themselves, as no registry names both of them.
    let at_caller = format!("tcp://{}", caller.tcp.unwrap());
    let provider = |who| provider(&cell, who).peer_at(&caller.did, &[&at_caller]);
    let mut first = provider("first").start();
    until("the provider is found", || call(&caller, "org.example.once").is_ok());
    assert_eq!(answered(&caller, "org.example.ask"), "first");
    let second = provider("second").start();
    assert_eq!(second.did, first.did);
    Cell::until_registered(&second, true);
    caller.audited("split_identity", 1);

    for _ in 0..3 {
        let error = call(&caller, "org.example.once").unwrap_err();
        assert!(error.contains("5002") && error.contains("two processes of did:key:"), "{error}");
        answered(&caller, "org.example.ask");
    }
    let remedy = "stop one of the two; a second machine needs a key of its own: capd init";
    for words in [&["fleet", "why", "org.example.once"][..], &["fleet", "doctor"], &["doctor"]] {
        let said = said(&caller, words);
        let line = said.lines().find(|line| line.contains("two processes have its identity"));
        assert!(line.is_some_and(|line| line.contains(&first.did) && line.contains(remedy)), "{said}");
    }
    let about = caller.audited("split_identity", 1);
    assert_eq!(about.len(), 1, "once for each finding: {about:?}");
    assert_eq!(about[0]["peerId"], first.did.as_str(), "{about:?}");

    first.kill();
    let began = Instant::now();
    until("the one that is left gets calls again", || call(&caller, "org.example.once").is_ok());
    assert_eq!(answered(&caller, "org.example.once"), "second");
    assert!(began.elapsed() < Duration::from_secs(20), "two lives of a registration, and no more");
    let said = said(&caller, &["doctor"]);
    assert!(!said.contains("two processes"), "{said}");
}

#[test]
fn a_process_that_comes_back_with_its_journal_is_no_split() {
    let cell = Cell::in_file();
    let provider = provider(&cell, "one").start();
    let caller = cell.member(10, &[]).start();
    until("the provider is found", || call(&caller, "org.example.once").is_ok());
    let provider = provider.restart();
    until("it is found again", || call(&caller, "org.example.once").is_ok());
    assert!(caller.audit().iter().all(|record| record["kind"] != "split_identity"));
    assert!(!said(&caller, &["fleet", "why", "org.example.once"]).contains("two processes"));
    drop(provider);
}
