//! What `capctl fleet ls`, `why` and `doctor` say of a fleet that runs.

use rusqlite::Connection;
use serde_json::Value;

use crate::cell::{Cell, answered, call, declaring, until};
use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

fn fleet(sidecar: &Sidecar, line: &[&str]) -> (i32, Vec<Value>, String) {
    let output = run_with(capctl(Some(&sidecar.socket)).args(["--json", "fleet"]).args(line), b"");
    let lines = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (exit_code(&output), lines, stderr(&output).to_owned())
}

fn state(checks: &[Value], check: &str) -> String {
    let found = checks.iter().find(|line| line["check"] == check);
    found.unwrap_or_else(|| panic!("no {check}: {checks:?}"))["state"].as_str().unwrap().to_owned()
}

#[test]
fn names_are_listed_and_every_provider_of_one_is_explained() {
    let cell = Cell::in_file();
    let providers: Vec<_> = (1..=2)
        .map(|seed| {
            let setup = cell.member(seed, &["org.example.*"]);
            setup.capabilities(&declaring(&format!("p{seed}"), &["ask"])).set("fleet.zone", "a").start()
        })
        .collect();
    let caller = cell.member(10, &[]).set("fleet.links_per_name", "1").start();
    until("both are registered", || {
        let (_, names, _) = fleet(&caller, &["ls"]);
        names.first().is_some_and(|name| name["candidates"].as_array().unwrap().len() == 2)
    });
    let (_, names, _) = fleet(&caller, &["ls"]);
    assert_eq!((names.len(), &names[0]["name"]), (1, &Value::from("org.example.ask")));
    answered(&caller, "org.example.ask");
    until("one is linked, and the other is not needed", || {
        let (_, answer, _) = fleet(&caller, &["why", "org.example.ask"]);
        let candidates = answer[0]["candidates"].as_array().unwrap();
        let has = |state: &str| candidates.iter().any(|candidate| candidate["state"] == state);
        candidates.len() == 2 && has("linked") && has("spare")
    });
    let (_, answer, _) = fleet(&caller, &["why", "org.example.ask"]);
    for candidate in answer[0]["candidates"].as_array().unwrap() {
        assert!(providers.iter().any(|provider| candidate["did"] == provider.did.as_str()), "{candidate}");
        assert_eq!((&candidate["zone"], &candidate["versions"][0]), (&"a".into(), &"1.0.0".into()));
        assert!(candidate["addresses"][0].as_str().unwrap().starts_with("quic://127.0.0.1:"), "{candidate}");
    }
    let (_, nobody, _) = fleet(&caller, &["why", "org.example.nobody"]);
    assert_eq!(nobody[0]["note"], "nobody has registered it");
    let (code, _, error) = fleet(&caller, &["why", "no name"]);
    assert!(code != 0 && error.contains("no name"), "{error}");
}

#[test]
fn a_doctor_sees_whether_the_registry_answers_and_what_is_registered() {
    let cell = Cell::in_file();
    let provider = cell.member(1, &["org.example.*"]).capabilities(&declaring("one", &["ask"])).start();
    Cell::until_registered(&provider, true);
    let (code, checks, error) = fleet(&provider, &["doctor"]);
    assert_eq!(code, 0, "{checks:?} {error}");
    assert!(checks.iter().all(|check| check["state"] == "ok"), "{checks:?}");
    let locker = Connection::open(cell.file()).unwrap();
    locker.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let (code, checks, _) = fleet(&provider, &["doctor"]);
    assert_eq!((code, state(&checks, "registry").as_str()), (5, "failed"), "{checks:?}");
    locker.execute_batch("ROLLBACK").unwrap();
    until("the registry answers again", || fleet(&provider, &["doctor"]).0 == 0);
}

#[test]
fn a_sidecar_outside_of_any_fleet_says_so() {
    let sidecar = Setup::new().start();
    for line in [&["ls"][..], &["why", "org.example.ask"], &["doctor"]] {
        let (code, lines, error) = fleet(&sidecar, line);
        assert_eq!((code, lines.len()), (2, 0));
        assert!(error.contains("the sidecar is in no fleet") && error.contains("fleet.cell"), "{error}");
    }
    call(&sidecar, "org.example.ask").unwrap_err();
}
