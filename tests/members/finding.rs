//! Members find each other by the registry: nobody lists anybody.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::cell::{Cell, answered, call, declaring, slow, until};
use crate::support::{Sidecar, capctl, exit_code, run_with, stderr, stdout};

fn provider(cell: &Cell, seed: u8, names: &[&str]) -> Sidecar {
    let who = format!("p{seed}");
    cell.member(seed, &["org.example.*"]).capabilities(&declaring(&who, names)).start()
}

#[test]
fn a_call_finds_a_provider_that_nobody_listed_and_the_next_one_when_that_dies() {
    let cell = Cell::in_file();
    let mut providers: Vec<_> = (1..=3).map(|seed| provider(&cell, seed, &["ask"])).collect();
    let caller = cell.member(10, &[]).start();
    until("somebody answers", || call(&caller, "org.example.ask").is_ok());
    let first = answered(&caller, "org.example.ask");
    // All three are linked by then, or will be; whoever it is, the others take over.
    for _ in 0..2 {
        let who = answered(&caller, "org.example.ask");
        let at = providers.iter().position(|provider| {
            provider.log().contains("peer connected") && {
                let seed: u8 = who[1..].parse().unwrap();
                provider.did == did(seed)
            }
        });
        let mut killed = providers.remove(at.unwrap());
        killed.kill();
        assert_ne!(answered(&caller, "org.example.ask"), who, "after the death of {who}, at first {first}");
    }
}

fn did(seed: u8) -> String {
    capd_proto::identity::Identity::from_seed([seed; 32]).did().to_string()
}

/// A sidecar that has started again may be asked before its agent has declared anything.
#[test]
fn a_call_that_a_provider_without_its_agent_refuses_waits_for_one_that_is_registered() {
    let cell = Cell::in_file();
    let member = |seed, yaml: &str| {
        let member =
            cell.member(seed, &["org.example.*"]).capabilities(yaml).set("fleet.ttl_ms", "60000").start();
        Cell::until_registered(&member, true);
        member
    };
    let other = member(2, &declaring("other", &["ask"]));
    // Nobody links to it meanwhile.
    other.stop();
    let asleep = declaring("first", &["ask"]).replace("printf", "sleep 60; printf");
    let first = member(1, &asleep);
    let caller = cell.member(10, &[]).start();
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| call(&caller, "org.example.ask"));
        Cell::until_executing(&first);
        let first = first.restart_with(|setup| setup.capabilities(&declaring("first", &["something"])));
        let refused = "capd_calls_total{code=\"4002\",role=\"executor\",outcome=\"refused\"}";
        until("it is refused", || {
            stdout(&run_with(capctl(Some(&first.socket)).arg("metrics"), b"")).contains(refused)
        });
        other.go_on();
        assert_eq!(asked.join().unwrap().unwrap()["who"], "other");
    });
}

/// A provider that did not answer for a while, as on a machine that has too much to do.
#[test]
fn a_provider_is_linked_again_for_a_call_that_it_has_though_enough_others_are_linked() {
    let cell = Cell::in_file();
    let providers = [1, 2, 3, 4].map(|seed| {
        let yaml = slow().replace("\\\"slow\\\"", &format!("\\\"p{seed}\\\""));
        let member = cell.member(seed, &["org.example.*"]).capabilities(&yaml);
        let member = member.set("fleet.ttl_ms", "60000").start();
        Cell::until_registered(&member, true);
        member
    });
    let caller = cell.member(10, &[]).start();
    let told = |what: &str, of: &Sidecar| {
        caller.log().lines().any(|line| line.contains(what) && line.contains(&of.did))
    };
    std::thread::scope(|scope| {
        // A dial of somebody who stands still keeps the place of another for twenty seconds.
        let mut command = capctl(Some(&caller.socket));
        command.args(["call", "org.example.slow", "--params", "{}", "--timeout", "60s"]);
        let asked = scope.spawn(move || run_with(&mut command, b""));
        let mut at = None;
        until("the call runs", || {
            at = providers.iter().position(|one| one.metric("capd_calls_in_flight{role=\"executor\"}") == 1);
            at.is_some()
        });
        let has_it = &providers[at.unwrap()];
        has_it.stop();
        until("its link is lost", || told("peer gone", has_it));
        until("all others are linked", || {
            providers.iter().all(|other| other.did == has_it.did || told("peer connected", other))
        });
        has_it.go_on();
        let output = asked.join().unwrap();
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
        assert!(stdout(&output).contains(&format!("p{}", at.unwrap() + 1)), "{}", stdout(&output));
    });
}

#[test]
fn a_name_that_nobody_registers_is_unknown_at_once() {
    let cell = Cell::in_file();
    let _provider = provider(&cell, 1, &["ask"]);
    let caller = cell.member(10, &[]).start();
    let began = Instant::now();
    let error = call(&caller, "org.example.nobody").unwrap_err();
    assert!(error.contains("4002"), "{error}");
    assert!(began.elapsed().as_secs() < 10, "it waited for its timeout");
}

#[test]
fn a_new_registration_reaches_a_caller_that_wants_the_name() {
    let cell = Cell::in_file();
    let caller = cell.member(10, &[]).start();
    call(&caller, "org.example.late").unwrap_err();
    let late = provider(&cell, 1, &["late"]);
    let began = Instant::now();
    until("the late provider is found", || call(&caller, "org.example.late").is_ok());
    eprintln!("first answer {} ms after the provider said that it listens", began.elapsed().as_millis());
    drop(late);
}

#[test]
fn a_second_process_of_one_identity_fences_the_first() {
    let cell = Cell::in_file();
    let setup = || cell.member(1, &["org.example.*"]).capabilities(&declaring("one", &["ask"]));
    let first = setup().start();
    until("the first one is registered", || first.metric("capd_fleet_registered") == 1);
    let second = setup().start();
    until("the first one is fenced", || first.metric("capd_fleet_fenced") == 1);
    first.audited("split_identity", 1);
    until("the second one is registered", || second.metric("capd_fleet_registered") == 1);
    assert_eq!(second.metric("capd_fleet_fenced"), 0);
    let doctor = |sidecar: &Sidecar| run_with(capctl(Some(&sidecar.socket)).arg("doctor"), b"");
    let found = doctor(&first);
    assert_eq!(exit_code(&found), 5, "{}", stdout(&found));
    let line = stdout(&found).lines().find(|line| line.contains("another process has this identity"));
    assert!(line.is_some_and(|line| line.contains("; to repair: stop one of the two")), "{}", stdout(&found));
    assert_eq!(exit_code(&doctor(&second)), 0, "{}", stdout(&doctor(&second)));
    let parts = run_with(capctl(Some(&first.socket)).args(["metrics"]), b"");
    assert!(stdout(&parts).contains("capd_fleet_refused_total"), "{}", stdout(&parts));
}

/// Who answers a call of this affinity.
fn answered_for(caller: &Sidecar, affinity: &str) -> String {
    let mut command = capctl(Some(&caller.socket));
    command.args(["call", "org.example.ask", "--params", "{}", "--timeout", "20s", "--affinity", affinity]);
    let output = run_with(&mut command, b"");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    let result: serde_json::Value = serde_json::from_str(stdout(&output)).unwrap();
    result["who"].as_str().unwrap().to_owned()
}

#[test]
fn calls_of_one_affinity_stay_at_one_member_and_those_of_a_dead_one_move() {
    let cell = Cell::in_file();
    let mut providers: Vec<_> = (1..=3).map(|seed| provider(&cell, seed, &["ask"])).collect();
    let caller = cell.member(10, &[]).start();
    let mut linked = BTreeSet::new();
    until("all three have answered", || {
        linked.extend(call(&caller, "org.example.ask").map(|result| result["who"].to_string()));
        linked.len() == 3
    });
    let homes = || {
        let affinities = (0..6).map(|number| format!("customer-{number}"));
        affinities.map(|affinity| answered_for(&caller, &affinity)).collect::<Vec<_>>()
    };
    let before = homes();
    assert_eq!(homes(), before);
    let lost = before[0].clone();
    let at: usize = lost[1..].parse().unwrap();
    providers[at - 1].kill();
    for (was, is) in before.iter().zip(homes()) {
        assert_eq!(*was == lost, *was != is, "{was}, then {is}; {lost} was lost");
    }
}
