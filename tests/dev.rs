//! `capd dev`, as a newcomer meets it: two processes on loopback, a first call, and nothing left behind.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{capctl, exit_code, run_with, stderr, stdout};

/// A running `capd dev`, told to stop by SIGINT as by Ctrl-C.
struct Dev {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Dev {
    fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
        command.arg("dev").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    fn interrupt(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success());
        rest
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _ended_already = self.process.wait();
    }
}

fn sidecar(line: &Value, is_agent: bool) -> &Value {
    let sidecars = line["sidecars"].as_array().unwrap();
    assert_eq!(sidecars.len(), 2);
    sidecars.iter().find(|sidecar| sidecar["agent"] == is_agent).unwrap()
}

#[test]
fn one_json_line_says_all_that_a_program_needs_to_make_a_call() {
    let mut dev = Dev::start(&["--json"]);
    let line: Value = serde_json::from_str(&dev.line()).unwrap();
    let (caller, provider) = (sidecar(&line, false), sidecar(&line, true));
    for sidecar in [caller, provider] {
        for key in ["name", "did", "quic", "tcp", "socket", "dir"] {
            assert!(sidecar[key].is_string(), "{key}");
        }
        for key in ["quic", "tcp"] {
            let address: std::net::SocketAddr = sidecar[key].as_str().unwrap().parse().unwrap();
            assert!(address.ip().is_loopback());
        }
    }
    let capability = line["capability"].as_str().unwrap();
    let socket = PathBuf::from(caller["socket"].as_str().unwrap());
    let params = r#"{"code": "fn main() { x.unwrap() }", "language": "rust"}"#;
    for (version, has_score) in [("1.5.0", false), ("2.0.0", true)] {
        let mut call = capctl(Some(&socket));
        call.args(["--json", "call", capability, "--version", version, "--params", params]);
        let called = run_with(&mut call, b"");
        assert_eq!(exit_code(&called), 0, "{}", stderr(&called));
        let said: Value = serde_json::from_str(stdout(&called)).unwrap();
        let text = said.to_string();
        assert!(text.contains("issues") && text.contains("unwrap"), "{text}");
        assert_eq!(text.contains("\"score\""), has_score, "{version}: {text}");
    }
    let dir = Path::new(caller["dir"].as_str().unwrap()).parent().unwrap().to_owned();
    assert!(dir.is_dir());
    dev.interrupt();
    assert!(!dir.exists(), "state is left in {}", dir.display());
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_err(), "a sidecar is left");
}

#[test]
fn the_tour_shows_a_first_call_and_a_command_to_paste() {
    let mut dev = Dev::start(&[]);
    let mut shown = String::new();
    while !shown.contains("Ctrl-C") {
        let line = dev.line();
        assert!(!line.is_empty(), "ended early: {shown}");
        shown.push_str(&line);
    }
    let lessons: Vec<_> = shown.lines().filter(|line| line.contains("capctl --socket ")).collect();
    let home = tempfile::tempdir().unwrap();
    let told: Vec<_> = lessons
        .iter()
        .map(|command| {
            let mut shell = Command::new("sh");
            let output = run_with(shell.args(["-c", command]).current_dir(home.path()), b"");
            (exit_code(&output), format!("{}{}", stdout(&output), stderr(&output)))
        })
        .collect();
    dev.interrupt();
    let expected = [(0, "\"issues\""), (0, "org.agentries.code-review:2.0.0"), (4, "/lang"), (4, "context")];
    for ((code, text), (wanted, part)) in told.iter().zip(expected) {
        assert!(*code == wanted && text.contains(part), "{code}: {text}");
    }
    // What was killed ran nothing.
    let [.., (code, text)] = &told[..] else { panic!("{shown}") };
    assert!(told.len() == 5 && *code != 0 && text.starts_with("capctl: "), "{code}: {text}");
    assert!(shown.contains("proto/src/frame.rs"), "{shown}");
    assert!(shown.contains("\"issues\"") && shown.contains("\"score\""), "{shown}");
    assert_eq!(shown.matches("did:key:z6Mk").count(), 2, "{shown}");
    assert!(shown.contains("capctl") && shown.contains(" call org.agentries.code-review "), "{shown}");
}

#[test]
fn its_files_are_a_start_of_one_s_own() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("mine");
    let mut print = Command::new(env!("CARGO_BIN_EXE_capd"));
    print.arg("dev").arg("--dir").arg(&dir).arg("--print-config");
    let printed = run_with(&mut print, b"");
    assert_eq!(exit_code(&printed), 0, "{}", stderr(&printed));
    let text = stdout(&printed).to_owned();
    for name in ["provider", "caller"] {
        let file = dir.join(name).join("capd.toml");
        let content = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(&format!("# {}\n\n{content}", file.display())), "{text}");
    }
    // A second time it keeps what is there, and says the same.
    assert_eq!(stdout(&run_with(&mut print, b"")), text);
    let commands: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("#   ")).map(str::to_owned).collect();
    let [provider, caller, call] = &commands[..] else { panic!("{text}") };
    let folder = Path::new(env!("CARGO_BIN_EXE_capd")).parent().unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env("PATH", &path).current_dir(home.path());
        shell
    };
    let run = |line: &str| {
        let mut process = shell(&format!("exec {line} --stop-with-stdin --announce"));
        let mut process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("did:key:"), "{line}: {said}");
        process
    };
    let running = [run(provider), run(caller)];
    let called = run_with(&mut shell(call), b"");
    for mut process in running {
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    assert_eq!(exit_code(&called), 0, "{}", stderr(&called));
    assert!(stdout(&called).contains("\"issues\""), "{}", stdout(&called));
}

/// What `capd dev` with these arguments says on stderr, and its exit code.
fn refused(args: &[&str], path: &Path) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
    let output = run_with(command.arg("dev").args(args).env("PATH", path), b"");
    assert_eq!(stdout(&output), "");
    (exit_code(&output), stderr(&output).to_owned())
}

#[test]
fn a_fleet_without_an_etcd_is_told_two_ways_to_get_one() {
    let empty = tempfile::tempdir().unwrap();
    let (code, said) = refused(&["--fleet", "5"], empty.path());
    assert_eq!(code, 1, "{said}");
    for way in ["apt-get install etcd-server", "https://github.com/etcd-io/etcd/releases", "--etcd PATH"] {
        assert!(said.contains(way), "{said}");
    }
    let (code, said) = refused(&["--fleet", "5", "--etcd", "/nowhere/etcd"], empty.path());
    assert!(code == 2 && said.contains("--etcd /nowhere/etcd: No such file"), "{said}");
    let (code, said) = refused(&["--fleet", "5", "--etcd", env!("CARGO_BIN_EXE_capctl")], empty.path());
    assert!(code == 2 && said.contains("it is no etcd"), "{said}");
}

#[test]
fn a_fleet_has_2_to_16_sidecars_and_files_of_its_own() {
    let empty = tempfile::tempdir().unwrap();
    for (args, part) in [
        (&["--fleet", "1"][..], "1 is not in 2..=16"),
        (&["--fleet", "17"], "17 is not in 2..=16"),
        (&["--fleet", "5", "--dir", "mine"], "cannot be used with"),
        (&["--etcd", "/usr/bin/etcd"], "--fleet <N>"),
    ] {
        let (code, said) = refused(args, empty.path());
        assert!(code == 2 && said.contains(part), "{args:?}: {said}");
    }
}

#[test]
fn an_etcd_that_ends_at_once_is_shown_with_what_it_said() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().unwrap();
    let etcd = home.path().join("etcd");
    let script = "#!/bin/sh\n[ \"$1\" != --version ] || { echo 'etcd Version: 0.0.1'; exit; }\n\
                  echo 'member count is unequal' >&2; exit 1\n";
    std::fs::write(&etcd, script).unwrap();
    std::fs::set_permissions(&etcd, std::fs::Permissions::from_mode(0o755)).unwrap();
    let temporary = home.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
    command.args(["dev", "--fleet", "3", "--etcd"]).arg(&etcd).env("TMPDIR", &temporary);
    let output = run_with(&mut command, b"");
    let said = stderr(&output);
    assert!(exit_code(&output) == 1 && said.contains("member count is unequal"), "{said}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "files are left");
}
