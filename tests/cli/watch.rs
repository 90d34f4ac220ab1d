//! Sidecars whose calls begin and end meanwhile; what `calls --watch`, `calls --peer` and `top` print of them, out.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::{Setup, Sidecar, capctl, exit_code, map, run_with, stderr, stdout};
use crate::with_sidecar::loose;

/// A capctl that runs until it is dropped.
struct Running {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(sidecar: &Sidecar, line: &[&str]) -> Self {
        let mut command = capctl(Some(&sidecar.socket));
        command.args(line).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn json(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn run(sidecar: &Sidecar, line: &[&str]) -> (i32, String, String) {
    let output = run_with(capctl(Some(&sidecar.socket)).args(line), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

#[test]
fn a_watch_prints_each_change_of_each_call_that_matches() {
    let far = Sidecar::start();
    let near = Setup::new().peer(&far).start();
    let mut agent = loose(&far);
    let mut every = Running::start(&far, &["calls", "--watch", "--json"]);
    let mut ended =
        Running::start(&far, &["calls", "-w", "--state", "finished", "--wide", "--peer", &near.did]);
    assert!(ended.line().starts_with("ID  "));
    let mut other = Running::start(&far, &["calls", "-w", "--json", "--capability", "org.example.other"]);

    let mut call = capctl(Some(&near.socket));
    let mut call = call.args(["call", "org.example.loose"]).stdout(Stdio::null()).spawn().unwrap();
    let invoke = agent.message();
    let mut seen = every.json();
    while seen["state"] != "executing" {
        assert_eq!((&seen["role"], &seen["state"]), (&json!("executor"), &json!("accepted")));
        seen = every.json();
    }
    agent.answer(&invoke, 0x23, map([("status", "success".into()), ("result", "done".into())]));
    assert_eq!(call.wait().unwrap().code(), Some(0));
    let last = every.json();
    assert_eq!(
        (&last["id"], &last["state"], &last["status"]),
        (&seen["id"], &json!("finished"), &json!("success"))
    );
    // Of this call the first that it prints is its end.
    let line = ended.line();
    assert!(line.starts_with(&format!("{}  finished  ", seen["id"].as_str().unwrap())), "{line}");
    assert!(line.ends_with(&near.did) && line.contains("org.example.loose:1.0.0"), "{line}");
    // A call of another capability is the first that the third one prints.
    let (code, _, _) = run(&far, &["call", "org.example.other", "--timeout", "1s"]);
    assert_ne!(code, 0);
    assert_eq!(other.json()["capability"], "org.example.other");

    let count =
        |peer: &str| run(&far, &["calls", "--role", "served", "--peer", peer, "--json"]).1.lines().count();
    assert_eq!((count(&near.did), count(&far.did)), (1, 0));
    let (code, _, errors) = run(&far, &["calls", "--peer", "nobody"]);
    assert_eq!((code, errors.contains("neither a DID nor the name of a peer")), (3, true), "{errors}");
}

#[test]
fn top_shows_rates_limits_and_peers() {
    let far = Sidecar::start();
    let near = Setup::new().peer(&far).start();
    let (code, out, errors) = run(&near, &["top", "--count", "2", "--interval", "100ms", "--json"]);
    assert_eq!((code, errors.as_str(), out.lines().count()), (0, "", 2));
    let document: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!((&document["did"], &document["peers"][0]["did"]), (&json!(near.did), &json!(far.did)));
    assert!(document["limits"].as_array().is_some_and(|limits| !limits.is_empty()), "{document}");

    // Calls end all the time; a reading of one interval is of many.
    let mut top = Running::start(&near, &["top", "--interval", "200ms", "--json"]);
    let failed = |document: &Value| document["roles"]["caller"]["codes"][0]["rate"].as_f64();
    loop {
        run(&near, &["call", "org.example.none", "--timeout", "1s"]);
        if failed(&top.json()).is_some_and(|rate| rate > 0.0) {
            break;
        }
    }
    let (code, screen, errors) = run(&near, &["top", "--count", "1", "--interval", "50ms"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(screen.starts_with(&format!("{}  up ", near.did)), "{screen}");
    assert!(
        screen.contains("\nROLE ") && screen.contains("\nmade ") && screen.contains("\nserved "),
        "{screen}"
    );
    assert!(!screen.contains('\u{1b}'), "no terminal is steered where there is none");
}
