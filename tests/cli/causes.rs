//! Real sidecars with one fault each in; the line of `capctl doctor` that has its cause and its remedy, out.
//!
//! Clocks that differ stand in `tests/calls/refused.rs`, which can set one.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use capd::provider::process::confine::Enforced;
use serde_json::Value;

use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const ECHO: &str = "version: 1\nnamespace: org.example\ncapabilities:\n\
                    - { name: echo, version: \"1.0.0\", command: [cat], inputSchema: {type: object}, outputSchema: {type: object} }\n";

fn echo() -> Setup {
    Setup::new().capabilities(ECHO)
}

/// Asks the running sidecar, with nothing but its socket: the exit code and the checks.
fn asked(words: &[&str], socket: Option<&Path>) -> (i32, Vec<Value>) {
    let output =
        run_with(capctl(socket).env("HOME", "/nonexistent").args(["doctor", "--json"]).args(words), b"");
    let checks = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap());
    (exit_code(&output), checks.collect())
}

/// The check that says `cause`, once there is one; it has a remedy that says `remedy`, and the table has both in one line.
#[track_caller]
fn finds(sidecar: &Sidecar, state: &str, exit: i32, cause: &str, remedy: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    loop {
        let (code, checks) = asked(&[], Some(&sidecar.socket));
        let check = checks.iter().find(|check| text(check, "text").contains(cause));
        if let Some(check) = check {
            assert_eq!((text(check, "state").as_str(), code), (state, exit), "{check}");
            assert!(text(check, "remedy").contains(remedy), "{check}");
            let table = run_with(capctl(Some(&sidecar.socket)).args(["doctor", "--wide"]), b"");
            let table = stdout(&table);
            let line = table.lines().find(|line| line.contains(cause) && line.contains(remedy));
            assert!(line.is_some_and(|line| line.contains("; to repair: ")), "{table}");
            return check.clone();
        }
        assert!(Instant::now() < deadline, "{checks:?}\n{}", sidecar.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Finds nothing but that the one peer answers.
#[track_caller]
fn finds_peer_alone(sidecar: &Sidecar) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (code, checks) = asked(&[], Some(&sidecar.socket));
        let peers: Vec<_> = checks.iter().filter(|check| check["check"] == "peer").collect();
        if code == 0 && peers.len() == 1 && peers[0]["state"] == "ok" {
            return;
        }
        assert!(Instant::now() < deadline, "{checks:?}\n{}", sidecar.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn quickly() -> Setup {
    Setup::new().set("timeouts.reconnect_max_ms", "300")
}

#[test]
fn a_sidecar_that_is_well_needs_no_file_to_say_so() {
    let b = echo().start();
    let yaml = "version: 1\nrequires:\n- { name: org.example.echo, version: \">=1.0.0\", inputSchema: {type: object} }\n";
    let a = Setup::new().capabilities(yaml).peer(&b).start();
    let (code, checks) = asked(&[], Some(&a.socket));
    let states: Vec<_> = checks
        .iter()
        .map(|check| format!("{} {}", check["check"], check["state"]).replace('"', ""))
        .collect();
    let expected = ["sidecar ok", "config ok", "journal ok", "audit ok", "peer ok", "requires ok"];
    assert_eq!((code, states), (0, expected.map(String::from).to_vec()), "{checks:?}");
    assert!(checks.iter().all(|check| check["remedy"].is_null()), "{checks:?}");
}

#[test]
fn a_peer_that_does_not_list_us() {
    let someone = capd::net::Seed::random().unwrap().identity().did().to_string();
    let b = Setup::new().set("peer.admit", "listed").peer_at(&someone, &[]).start();
    let a = quickly().peer(&b).start();
    let found = finds(&a, "failed", 5, "that sidecar does not list", "run `capd pair` on both sides");
    assert!(found["remedy"].as_str().unwrap().contains(&a.did), "{found}");
    finds(&b, "warning", 0, "it is not listed in [[peers]] here", "run `capd pair` on both sides");
}

#[test]
fn another_did_than_that_of_the_peer() {
    let b = Sidecar::start();
    let wanted = capd::net::Seed::random().unwrap().identity().did().to_string();
    let a = quickly().peer_at(&wanted, &[&format!("quic://{}", b.quic.unwrap())]).start();
    finds(&a, "failed", 5, &format!("is {}", b.did), "replace its did in [[peers]]");
}

#[test]
fn a_port_that_is_closed() {
    let b = Sidecar::start();
    let (did, address) = (b.did.clone(), format!("tcp://{}", b.tcp.unwrap()));
    drop(b);
    let a = quickly().peer_at(&did, &[&address]).start();
    let found = finds(&a, "failed", 5, "onnection refused", "start capd there, or correct the port");
    assert!(found["text"].as_str().unwrap().contains(&address), "{found}");
}

#[test]
fn a_port_of_quic_where_nobody_answers() {
    // It takes every packet and answers none, as a firewall does.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let did = capd::net::Seed::random().unwrap().identity().did().to_string();
    let address = format!("quic://{}", silent.local_addr().unwrap());
    let a = quickly().peer_at(&did, &[&address]).start();
    let (_, checks) = asked(&[], Some(&a.socket));
    let found = checks.iter().find(|check| check["check"] == "peer").unwrap();
    let remedy = found["remedy"].as_str().unwrap();
    // Before the first try has run out of time as well as after it.
    assert!(remedy.contains("check that capd runs there") && remedy.contains("firewall"), "{found}");
    assert!(!remedy.contains("it must connect by itself"), "{found}");
    finds(&a, "failed", 5, "did not finish in time", "no firewall drops its packets");
}

#[test]
fn a_host_that_has_no_address() {
    let did = capd::net::Seed::random().unwrap().identity().did().to_string();
    let a = quickly().peer_at(&did, &["quic://nowhere.invalid:7101"]).start();
    finds(&a, "failed", 5, "quic://nowhere.invalid:7101", "correct the host in its addresses");
}

#[test]
fn a_peer_that_grants_nothing_to_an_agent_without_requirements() {
    let b = echo().allow("").start();
    let address = format!("quic://{}", b.quic.unwrap());
    let a = Setup::new().peer_serving(&b.did, &[&address], &["org.example.*"]).start();
    finds(&a, "warning", 0, "shows this agent nothing of org.example.*", "run there: capctl doctor");
    // It does not say so of a peer that shows something.
    let b = echo().start();
    let address = format!("quic://{}", b.quic.unwrap());
    let a = Setup::new().peer_serving(&b.did, &[&address], &["org.example.*"]).start();
    finds_peer_alone(&a);
}

#[test]
fn another_program_at_the_address_of_a_peer() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // A web server without TLS, as it answers whatever it does not understand.
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let did = capd::net::Seed::random().unwrap().identity().did().to_string();
    let a = quickly().peer_at(&did, &[&address]).start();
    finds(&a, "failed", 5, "TLS", "another program listens at this address");
}

#[test]
fn versions_that_are_not_served() {
    let b = echo().start();
    let yaml = "version: 1\nrequires:\n- { name: org.example.echo, version: \">=2.0.0\" }\n";
    let a = Setup::new().capabilities(yaml).peer(&b).start();
    let found = finds(&a, "failed", 5, "in none of these versions: 1.0.0", "change version under requires");
    assert_eq!(found["about"], "org.example.echo >=2.0.0");
}

#[test]
fn a_schema_that_has_drifted() {
    let b = echo().start();
    let yaml = "version: 1\nrequires:\n- { name: org.example.echo, version: \">=1.0.0\", outputSchema: {type: object, required: [count]} }\n";
    let a = Setup::new().capabilities(yaml).peer(&b).start();
    let found = finds(&a, "failed", 4, "count", "capctl describe org.example.echo:1.0.0");
    assert_eq!(found["code"], 4902, "{found}");
}

#[test]
fn what_is_not_granted_to_a_caller() {
    let b = echo().allow("").start();
    let yaml = "version: 1\nrequires:\n- { name: org.example.echo, version: \">=1.0.0\" }\n";
    let a = Setup::new().capabilities(yaml).peer(&b).start();
    let grant = format!("capctl policy grant {} org.example.echo", a.did);
    finds(&a, "failed", 5, "nobody serves it to this agent", &grant);
    // The other side says the same of a peer that it lists.
    let b = echo().allow("").peer_at(&a.did, &[]).start();
    finds(&b, "warning", 0, "may call nothing that is served here: no rule grants it", &grant);
}

#[test]
fn a_permission_that_a_capability_declares_and_no_rule_grants() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n\
                - { name: vault, command: [cat], permissions: [\"secrets:read\"] }\n";
    let allow = "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.example.*\"]\n";
    let b = Setup::new().capabilities(yaml).allow(allow).start();
    finds(&b, "warning", 0, "does not grant secrets:read", "add the permission to this rule");
    let caller = capd::net::Seed::random().unwrap().identity().did().to_string();
    let b = Setup::new().capabilities(yaml).allow(allow).peer_at(&caller, &[]).start();
    let grant = format!("capctl policy grant {caller} org.example.vault --permission secrets:read");
    finds(&b, "warning", 0, "it declares secrets:read", &grant);
}

#[test]
fn a_command_that_went_missing_or_lost_its_right_to_run() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n\
                - { name: one, command: [./one] }\n- { name: two, command: [./two] }\n";
    let script = "#!/bin/sh\ncat\n";
    let b = Setup::new().capabilities(yaml).file("one", script).file("two", script);
    let b = b.mode("one", 0o755).mode("two", 0o755).start();
    std::fs::remove_file(b.dir.join("one")).unwrap();
    std::fs::set_permissions(b.dir.join("two"), std::fs::Permissions::from_mode(0o644)).unwrap();
    finds(&b, "failed", 2, "\"./one\" does not exist", "run: capctl reload");
    let found = finds(&b, "failed", 2, "\"./two\" is not executable", "run: capctl reload");
    assert!(found["text"].as_str().unwrap().contains("capabilities.yaml:5"), "{found}");
}

#[test]
fn an_interpreter_of_a_script_that_went_missing() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n- { name: one, command: [./one] }\n";
    let b = Setup::new().capabilities(yaml).file("one", "#!/bin/sh\ncat\n").mode("one", 0o755).start();
    std::fs::write(b.dir.join("one"), "#!/nonexistent/venv/bin/python\n").unwrap();
    let cause = "its interpreter \"/nonexistent/venv/bin/python\" does not exist";
    finds(&b, "failed", 2, cause, "run: capctl reload");
    std::fs::write(b.dir.join("one"), "#!/usr/bin/env no-such-python\n").unwrap();
    finds(
        &b,
        "failed",
        2,
        "its interpreter \"no-such-python\" is in no folder of PATH",
        "run: capctl reload",
    );
    // Before a start, `config check` says the same.
    let mut check = Command::new(env!("CARGO_BIN_EXE_capd"));
    let checked = run_with(check.args(["config", "check", "--config"]).arg(b.dir.join("capd.toml")), b"");
    assert_eq!(exit_code(&checked), 2, "{}", stderr(&checked));
    assert!(stderr(&checked).contains("no-such-python"), "{}", stderr(&checked));
}

#[test]
fn a_file_that_confinement_denies_to_a_command() {
    if !Enforced::here().told().0.split(", ").any(|enforced| enforced == "files") {
        println!("not run: this kernel keeps commands from no file");
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let data = outside.path().join("data.json");
    std::fs::write(&data, "{}").unwrap();
    let yaml = |permissions: &str| {
        format!(
            "version: 1\nnamespace: org.example\ncapabilities:\n- {{ name: one, command: [cat, {data:?}], permissions: [{permissions}] }}\n"
        )
    };
    let b = Setup::new().capabilities(&yaml("")).start();
    let a = Setup::new().peer(&b).start();
    let call = || run_with(capctl(Some(&a.socket)).args(["call", "org.example.one", "--params", "{}"]), b"");
    let called = call();
    assert_ne!(exit_code(&called), 0);
    assert!(!stderr(&called).contains("data.json"), "no caller learns of it: {}", stderr(&called));
    let cause = format!("confinement denied {} to its command", data.display());
    let found = finds(&b, "warning", 0, &cause, "declare filesystem:read under permissions");
    assert_eq!(found["about"], "org.example.one:1.0.0");
    assert!(b.log().contains("permission=filesystem:read"), "{}", b.log());
    // Declared, it works, and nothing is left to say.
    std::fs::write(b.dir.join("capabilities.yaml"), yaml("\"filesystem:read\"")).unwrap();
    let reloaded = run_with(capctl(Some(&b.socket)).arg("reload"), b"");
    assert_eq!(exit_code(&reloaded), 0, "{}", stderr(&reloaded));
    let called = call();
    assert_eq!(exit_code(&called), 0, "{}", stderr(&called));
    let (_, checks) = asked(&[], Some(&b.socket));
    assert!(
        !checks.iter().any(|check| check["text"].as_str().unwrap().contains("confinement")),
        "{checks:?}"
    );
}

#[test]
fn a_file_that_is_not_in_force() {
    let b = Setup::new().start();
    let config = b.dir.join("capd.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[limits]\nlinks_max = 7\n")).unwrap();
    finds(&b, "warning", 0, "1 change of the file not in force", "run: capctl reload");
    std::fs::write(&config, format!("{text}[limits]\nlinks_mx = 7\n")).unwrap();
    finds(&b, "failed", 2, "links_mx", "correct the file");
}

#[test]
fn a_disk_that_is_full() {
    let b = echo().meets_file_limits().start();
    b.fill_disk();
    let called = run_with(capctl(Some(&b.socket)).args(["call", "org.example.echo", "--params", "{}"]), b"");
    assert_eq!(exit_code(&called), 5, "{called:?}");
    finds(&b, "failed", 5, "it cannot be written", "free space on the disk of agent.dir");
    b.free_disk();
    let called = run_with(capctl(Some(&b.socket)).args(["call", "org.example.echo", "--params", "{}"]), b"");
    assert_eq!(exit_code(&called), 0, "{called:?}");
    assert_eq!(asked(&[], Some(&b.socket)).0, 0);
}

#[test]
fn a_journal_that_another_sidecar_has_locked() {
    let b = echo().start();
    let other = tempfile::tempdir().unwrap();
    let config = other.path().join("capd.toml");
    let socket = other.path().join("capd.sock");
    let state = b.dir.join("state");
    std::fs::write(&config, format!("[agent]\ndir = {state:?}\n[listen]\nunix = {socket:?}\n")).unwrap();
    let (code, checks) = asked(&["--config", config.to_str().unwrap()], None);
    let found = checks.last().unwrap();
    assert_eq!(code, 5, "{checks:?}");
    let (text, remedy) = (found["text"].as_str().unwrap(), found["remedy"].as_str().unwrap());
    assert!(
        text.contains(&format!("process {} has locked", b.pid())) && text.contains("journal.db"),
        "{found}"
    );
    assert!(remedy.contains("an agent.dir of its own"), "{found}");
    // Without another process it is only not started.
    drop(b);
    let (code, checks) = asked(&["--config", config.to_str().unwrap()], None);
    assert_eq!(code, 5, "{checks:?}");
    assert!(checks.last().unwrap()["remedy"].as_str().unwrap().contains("capd run"), "{checks:?}");
}

#[test]
fn a_token_that_is_wrong() {
    let b = Setup::new().set("listen.local_tcp", "127.0.0.1:0").start();
    let wrong = b.dir.join("wrong");
    std::fs::write(&wrong, "not the token").unwrap();
    let address = b.local_tcp.unwrap().to_string();
    let (code, checks) = asked(&["--address", &address, "--token-file", wrong.to_str().unwrap()], None);
    assert_eq!((code, checks.len()), (3, 1), "{checks:?}");
    assert!(
        checks[0]["remedy"].as_str().unwrap().contains("--token-file must name the token file"),
        "{checks:?}"
    );
}

#[test]
fn a_peer_that_is_waited_for_is_known_where_anyone_is_admitted() {
    let peer = Setup::new().start();
    let a = Setup::new().set("peer.admit", "any").peer_at(&peer.did, &[]).start();
    let listed = run_with(capctl(Some(&a.socket)).args(["ls", "--peers", "--json"]), b"");
    assert!(stdout(&listed).contains(&peer.did), "{}", stdout(&listed));
}
