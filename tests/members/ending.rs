//! A membership ends: links end with it, none opens, and a later membership opens them again.

use std::thread;

use crate::cell::{Cell, answered, call, declaring, slow, until};
use crate::support::{capctl, run_with, stdout};

#[test]
fn a_revoked_caller_ends_its_call_in_flight_loses_its_link_and_gets_none() {
    let cell = Cell::in_file();
    let provider = cell.member(1, &["org.example.*"]).capabilities(&slow()).start();
    let caller = cell.member(10, &[]).start();
    let other = cell.member(11, &[]).start();
    until("the provider is found", || call(&caller, "org.example.quick").is_ok());
    thread::scope(|scope| {
        let in_flight = scope.spawn(|| answered(&caller, "org.example.slow"));
        Cell::until_executing(&provider);
        cell.revoke(10);
        assert_eq!(in_flight.join().unwrap(), "slow");
    });
    until("the caller is refused", || {
        call(&caller, "org.example.quick").is_err_and(|error| error.contains("the membership is revoked"))
    });
    let peers = run_with(capctl(Some(&provider.socket)).args(["ls", "--peers"]), b"");
    assert!(stdout(&peers).contains("the membership is revoked"), "{}", stdout(&peers));
    // Nobody else is concerned.
    assert_eq!(answered(&other, "org.example.quick"), "quick");
    // A later membership counts.
    let caller = {
        cell.renew(10);
        caller.restart()
    };
    until("the caller is back", || call(&caller, "org.example.quick").is_ok());
}

#[test]
fn a_revoked_provider_gets_no_call() {
    let cell = Cell::in_file();
    let provider = cell.member(1, &["org.example.*"]).capabilities(&declaring("one", &["ask"])).start();
    let caller = cell.member(10, &[]).start();
    until("the provider is found", || call(&caller, "org.example.ask").is_ok());
    cell.revoke(1);
    until("nobody serves it", || call(&caller, "org.example.ask").is_err());
    let error = call(&caller, "org.example.ask").unwrap_err();
    assert!(error.contains("4002") || error.contains("2002"), "{error}");
    drop(provider);
}

#[test]
fn a_drained_provider_is_withdrawn_from_the_registry_and_calls_go_to_the_other() {
    let cell = Cell::in_file();
    let start =
        |seed, who| cell.member(seed, &["org.example.*"]).capabilities(&declaring(who, &["ask"])).start();
    let (one, two) = (start(1, "one"), start(2, "two"));
    let caller = cell.member(10, &[]).start();
    let registered = || {
        let listed = run_with(capctl(Some(&caller.socket)).args(["fleet", "ls", "--json"]), b"");
        [&one, &two].map(|provider| stdout(&listed).contains(&provider.did))
    };
    until("both are registered", || registered() == [true, true]);
    let drained = run_with(capctl(Some(&one.socket)).arg("drain"), b"");
    assert!(drained.status.success(), "{drained:?}");
    until("one is withdrawn", || registered() == [false, true]);
    assert_eq!(one.metric("capd_fleet_registered"), 0);
    let doctor = run_with(capctl(Some(&one.socket)).args(["fleet", "doctor"]), b"");
    assert!(stdout(&doctor).contains("nothing is registered"), "{}", stdout(&doctor));
    for _ in 0..5 {
        assert_eq!(answered(&caller, "org.example.ask"), "two");
    }
}
