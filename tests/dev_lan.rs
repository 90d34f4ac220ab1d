//! `capd dev --lan`, as two desks meet it: one prints a code, the other joins with it, and each calls the other.
//!
//! Both are on loopback, on a port of mDNS of their own.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;
use support::{capctl, exit_code, run_with, stderr, stdout};

/// A port that nobody has; the desks share it.
fn port() -> String {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port().to_string()
}

fn command(port: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
    command.args(["dev", "--lan", "--address", "127.0.0.1", "--mdns-port", port]).args(args);
    command
}

/// A running desk, and the lines that it says.
struct Desk {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Desk {
    fn start(port: &str, args: &[&str]) -> Self {
        let mut command = command(port, &["--json"]);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// The next line that says something under this key.
    fn said(&mut self, key: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended before it said {key}");
            let line: Value = serde_json::from_str(&line).unwrap();
            if !line[key].is_null() {
                return line;
            }
        }
    }

    fn text(&mut self, key: &str) -> String {
        self.said(key)[key].as_str().unwrap().to_owned()
    }

    fn socket(&mut self) -> PathBuf {
        self.said("desk")["desk"]["socket"].as_str().unwrap().into()
    }

    fn interrupt(mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _ended_already = self.process.wait();
    }
}

#[track_caller]
fn call(socket: &Path, name: &str) -> Value {
    let output =
        run_with(capctl(Some(socket)).args(["call", name, "--params", "{}", "--timeout", "20s"]), b"");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap()
}

fn failed(port: &str, args: &[&str]) -> (i32, String) {
    let output = run_with(&mut command(port, args), b"");
    (exit_code(&output), stderr(&output).to_owned())
}

#[test]
fn a_desk_that_joins_by_a_code_is_found_and_called_and_gone_when_it_leaves() {
    let port = port();
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("ben").display().to_string();
    let mut first = Desk::start(&port, &["--name", "anna"]);
    let ours = first.socket();
    let code = first.text("join");
    let mut second = Desk::start(&port, &["--name", "ben", "--dir", &folder, "--join", &code]);
    let authority = second.text("joined");
    let theirs = second.socket();
    let admitted = first.said("admitted");
    assert_eq!(admitted["serves"], "com.example.ben");
    assert_ne!(admitted["admitted"], authority.as_str());

    assert_eq!(first.text("found"), "com.example.ben");
    assert_eq!(call(&ours, "com.example.ben")["text"], "hello from ben");
    assert_eq!(second.text("found"), "com.example.anna");
    assert_eq!(call(&theirs, "com.example.anna")["text"], "hello from anna");

    second.interrupt();
    assert_eq!(first.text("gone"), "com.example.ben");
    // It is a member from then on.
    let (status, said) = failed(&port, &["--name", "ben", "--dir", &folder, "--join", &code]);
    assert!(status == 2 && said.contains("run without --join"), "{said}");
    let mut again = Desk::start(&port, &["--name", "ben", "--dir", &folder]);
    assert_eq!(again.text("found"), "com.example.anna");
    again.interrupt();
    first.interrupt();
}

#[test]
fn a_desk_without_the_code_or_with_a_name_that_is_taken_is_not_let_in() {
    let port = port();
    let mut first = Desk::start(&port, &["--name", "anna"]);
    let code = first.text("join");
    let (_, at) = code.split_once('@').unwrap();
    let (status, said) = failed(&port, &["--name", "ben", "--join", &format!("0000-0000@{at}")]);
    assert!(status == 1 && said.contains("the code does not match"), "{said}");
    let (status, said) = failed(&port, &["--name", "anna", "--join", &code]);
    assert!(status == 1 && said.contains("declined; its screen says why"), "{said}");
    // The code is used, and the next one lets in whoever has it.
    let next = first.text("join");
    assert_ne!(next, code);
    let mut second = Desk::start(&port, &["--name", "ben", "--join", &next]);
    assert_eq!(second.text("found"), "com.example.anna");
    second.interrupt();
    // Nobody without a membership: a first desk on the same network has a cell of its own.
    let mut other = Desk::start(&port, &["--name", "carl"]);
    let socket = other.socket();
    let output = run_with(
        capctl(Some(&socket)).args(["call", "com.example.anna", "--params", "{}", "--timeout", "5s"]),
        b"",
    );
    assert!(stderr(&output).contains("4002"), "{}", stderr(&output));
    other.interrupt();
    first.interrupt();
}

#[test]
fn what_is_wrong_with_a_network_or_a_name_is_said_with_what_to_do() {
    let port = port();
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_capd"));
    let output = run_with(elsewhere.args(["dev", "--lan", "--address", "192.0.2.77", "--name", "anna"]), b"");
    assert!(exit_code(&output) != 0 && stderr(&output).contains("192.0.2.77"), "{}", stderr(&output));
    let (status, said) = failed(&port, &["--name", "Not A Name"]);
    assert!(status == 2 && said.contains("--name Not A Name"), "{said}");
    let (status, said) = failed(&port, &["--name", "ben", "--join", "7Q2K-9XHD@127.0.0.1:9"]);
    assert!(status == 1 && said.contains("is `capd dev --lan` still running there"), "{said}");
    let taken = UdpSocket::bind(format!("0.0.0.0:{port}")).unwrap();
    let (status, said) = failed(&port, &["--name", "anna"]);
    assert!(status != 0 && said.contains("in use by a program that does not share it"), "{said}");
    drop(taken);
}
