//! Signals, mistakes and restarts in; calls that end, exit codes, and what is left on disk, out.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ciborium::Value;

use crate::agents::{Caller, ERROR, Provider, by_id, failure, loose, success};
use crate::peer::Peer;
use crate::support::{PATIENCE, PING, Setup, Sidecar, exit_code, stderr};

const ECHO: &str = "org.example.echo:1.0.0";
const SERVES_CAT: &str =
    "version: 1\nnamespace: org.example\ncapabilities:\n  - name: cat\n    command: [cat]\n";

fn signal(sidecar: &Sidecar, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(sidecar.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Calls until the sidecar takes no more; what it said then.
fn refused_once_draining(caller: &mut Caller, id: &str) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let call = caller.invoke(by_id(id, Value::Null));
        let answer = caller.about(&call);
        if answer.typ() == ERROR {
            return answer.code().unwrap();
        }
    }
    panic!("it takes calls for ever");
}

#[test]
fn on_sigterm_the_running_call_ends_new_ones_are_refused_and_the_exit_is_0() {
    let mut b = Setup::new().capabilities(SERVES_CAT).start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let (mut far, mut near) = (Caller::of(&a), Caller::of(&b));
    let running = far.invoke(by_id(ECHO, "kept".into()));
    let call = provider.taken();
    signal(&b, rustix::process::Signal::TERM);
    assert_eq!(refused_once_draining(&mut near, "org.example.cat:1.0.0"), 5002);
    provider.succeed(&call, "kept".into());
    assert_eq!(success(&far.result(&running)), &Value::from("kept"));
    assert_eq!(b.wait().code(), Some(0));
    assert!(!b.socket.exists(), "the socket is gone with it");
}

#[test]
fn a_callers_sidecar_that_stops_waits_for_the_answer_too() {
    let b = Sidecar::start();
    let mut a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let running = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    signal(&a, rustix::process::Signal::TERM);
    // GOAWAY says that it has begun.
    let mut frames = std::iter::repeat_with(|| caller.link.frame().frame_type);
    assert_eq!(frames.find(|frame_type| *frame_type != PING), Some(0x05));
    provider.succeed(&call, "late enough".into());
    assert_eq!(success(&caller.result(&running)), &Value::from("late enough"));
    assert_eq!(a.wait().code(), Some(0));
}

#[test]
fn a_call_that_does_not_end_in_the_time_for_draining_gets_its_one_result_from_the_sidecar() {
    let mut b = Setup::new().set("timeouts.drain_ms", "100").start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    provider.taken();
    assert_eq!(b.terminate().code(), Some(0));
    let code = failure(&caller.result(&id));
    assert!([5002, 5902].contains(&code), "{code}");
    let rest = caller.link.closed();
    assert!(rest.iter().all(|frame| frame.frame_type != crate::support::AMP_MESSAGE), "{rest:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut b = Setup::new().capabilities(SERVES_CAT).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    caller.invoke(by_id(ECHO, Value::Null));
    provider.taken();
    signal(&b, rustix::process::Signal::TERM);
    refused_once_draining(&mut caller, "org.example.cat:1.0.0");
    signal(&b, rustix::process::Signal::INT);
    let status = b.wait();
    assert_eq!((status.code(), status.signal()), (Some(1), None));
    assert!(b.log().contains("second signal"));
}

#[test]
fn an_idle_sidecar_ends_at_once_on_either_signal() {
    for signal_number in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let b = Sidecar::start();
        let mut a = Setup::new().peer(&b).start();
        let _caller = Caller::of(&a);
        signal(&a, signal_number);
        assert_eq!(a.wait().code(), Some(0));
    }
}

/// Runs `capd` to its end on this configuration and declaration.
fn capd(dir: &Path, command: &[&str], config: &str, declaration: &str) -> Output {
    std::fs::write(dir.join("capd.toml"), config).unwrap();
    std::fs::write(dir.join("capabilities.yaml"), declaration).unwrap();
    let mut capd = Command::new(env!("CARGO_BIN_EXE_capd"));
    capd.env_clear().current_dir(dir).args(command).args(["--config", "capd.toml"]);
    crate::support::run_with(&mut capd, b"")
}

#[test]
fn mistakes_are_exit_2_with_file_line_and_key() {
    let dir = own_folder();
    let good = "[agent]\ndir = \"state\"\ncapabilities = \"capabilities.yaml\"\n";
    for (config, declaration, said) in [
        (
            "[agent]\ndir = \"state\"\n[listen]\nquick = \"127.0.0.1:0\"\n",
            "",
            &["capd.toml:4", "listen.quick"][..],
        ),
        (
            "[agent]\ndir = \"state\"\n[timeouts]\ncall_ms = \"soon\"\n",
            "",
            &["capd.toml:4", "timeouts.call_ms"],
        ),
        ("[agent\n", "", &["capd.toml:1"]),
        (good, "version: 1\ncapabilities:\n  - nam: echo\n", &["capabilities.yaml:3", "nam"]),
        (
            good,
            "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    command: [cat]\n    inputSchema:\n      type: wrong\n",
            &["capabilities.yaml:7: org.example.echo:1.0.0: at /type: \"wrong\" is no type"],
        ),
        (
            good,
            "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    outputSchema: { patternProperties: {} }\n",
            &[
                "capabilities.yaml:5: org.example.echo:1.0.0: at /patternProperties: is not of the profile strict",
            ],
        ),
    ] {
        for command in [&["run"][..], &["config", "check"]] {
            let output = capd(dir.path(), command, config, declaration);
            assert_eq!(exit_code(&output), 2, "{config}{declaration}\n{}", stderr(&output));
            for part in said {
                assert!(stderr(&output).contains(part), "{part:?} in {}", stderr(&output));
            }
        }
    }
    let full = "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    schemaProfile: full\n    \
                outputSchema: { patternProperties: {} }\n";
    let output = capd(dir.path(), &["config", "check"], good, full);
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    let output = capd(dir.path(), &["config", "check"], good, SERVES_CAT);
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
}

#[test]
fn what_the_system_refuses_is_exit_1() {
    let b = Sidecar::start();
    let dir = own_folder();
    let taken = format!("[agent]\ndir = \"state\"\n[listen]\ntcp = \"{}\"\n", b.tcp.unwrap());
    let output = capd(dir.path(), &["run"], &taken, "");
    assert_eq!(exit_code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains(&b.tcp.unwrap().to_string()), "{}", stderr(&output));
    // A socket that another sidecar answers on is not taken from it.
    let taken = format!("[agent]\ndir = \"state\"\n[listen]\nunix = {:?}\n", b.socket);
    let output = capd(dir.path(), &["run"], &taken, "");
    assert_eq!(exit_code(&output), 1, "{}", stderr(&output));
    Caller::of(&b).link.ping();
}

#[test]
fn the_key_is_made_once_for_its_owner_alone_and_the_identity_stays() {
    let b = Sidecar::start();
    let did = b.did.clone();
    let secrets = ["state/identity.key", "state/token"].map(|name| b.dir.join(name));
    let read = || secrets.clone().map(|path| std::fs::read(path).unwrap());
    let before = read();
    for path in &secrets {
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    let b = b.restart();
    assert_eq!(b.did, did);
    assert_eq!(read(), before);
    // A key that others may read is not used.
    let mut b = b;
    b.kill();
    std::fs::set_permissions(&secrets[0], std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = {
        let mut capd = Command::new(env!("CARGO_BIN_EXE_capd"));
        capd.env_clear().current_dir(&b.dir).args(["run", "--config", "capd.toml"]);
        crate::support::run_with(&mut capd, b"")
    };
    assert_eq!(exit_code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("identity"), "{}", stderr(&output));
}

#[test]
fn it_ends_with_the_standard_input_of_whoever_started_it() {
    let dir = own_folder();
    let config = "[agent]\ndir = \"state\"\n";
    let output = capd(dir.path(), &["run", "--stop-with-stdin"], config, "");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    assert!(!dir.path().join("state/capd.sock").exists());
}

/// A variable of a running sidecar's environment.
#[cfg(target_env = "gnu")]
fn variable(sidecar: &Sidecar, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{}/environ", sidecar.pid())).unwrap();
    let text = String::from_utf8(environment).unwrap();
    text.split('\0').find_map(|variable| Some(variable.strip_prefix(name)?.strip_prefix('=')?.to_owned()))
}

#[test]
#[cfg(target_env = "gnu")]
fn the_allocator_is_set_in_the_same_process_unless_its_owner_has() {
    let mut sidecar = Sidecar::start();
    let settings = variable(&sidecar, "GLIBC_TUNABLES").unwrap();
    assert!(settings.contains("glibc.malloc.tcache_count=32"), "{settings}");
    signal(&sidecar, rustix::process::Signal::TERM);
    assert_eq!(sidecar.wait().code(), Some(0));
    let own = "glibc.malloc.check=0";
    let sidecar = Setup::new().environment("GLIBC_TUNABLES", own).start();
    assert_eq!(variable(&sidecar, "GLIBC_TUNABLES").as_deref(), Some(own));
}

/// A folder that nobody else can reach, whatever the mask is.
fn own_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    dir
}

#[test]
fn a_sidecar_that_is_drained_ends_its_calls_takes_no_new_ones_and_stays() {
    let mut b = Setup::new().set("listen.health", "127.0.0.1:0").capabilities(SERVES_CAT).start();
    let health: std::net::SocketAddr = b.announcement["health"].as_str().unwrap().parse().unwrap();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let (mut far, mut near) = (Caller::of(&a), Caller::of(&b));
    let envelope = far.link.envelope(crate::agents::CAP_INVOKE, by_id(ECHO, "kept".into()));
    let running = far.link.send_envelope(&envelope);
    let call = provider.taken();
    let drain = |timeout: &str| {
        crate::support::run_with(
            crate::support::capctl(Some(&b.socket)).args(["drain", "--timeout", timeout]),
            b"",
        )
    };
    let late = drain("300ms");
    assert_eq!(exit_code(&late), 5, "{}", stderr(&late));
    assert!(stderr(&late).contains("1 in flight: 1 executed here, 0 made"), "{}", stderr(&late));
    assert_eq!(refused_once_draining(&mut near, "org.example.cat:1.0.0"), 5002);
    assert_eq!(crate::health::get(health, "/readyz").0, 503);
    // It waits for the call, however long that takes.
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| drain("30s"));
        provider.succeed(&call, "kept".into());
        assert_eq!(success(&far.result(&running)), &Value::from("kept"));
        let drained = drained.join().unwrap();
        assert_eq!(exit_code(&drained), 0, "{}", stderr(&drained));
        assert!(crate::support::stdout(&drained).starts_with("drained"), "{drained:?}");
    });
    // It is there, and knows what it has done.
    far.link.send_envelope(&envelope);
    assert_eq!(success(&far.result(&running)), &Value::from("kept"));
    provider.heard_nothing_more();
    assert_eq!(b.audited("operator", 1).len(), 1, "asked again, it is no other act");
    assert_eq!(b.terminate().code(), Some(0));
}

#[test]
fn a_drained_sidecar_says_so_on_a_link_that_a_newcomer_opens() {
    let b = Sidecar::start();
    let (early, late) = (Peer::serving(Vec::new()), Peer::serving(Vec::new()));
    let open = early.connect(&b);
    let drain = || crate::support::run_with(crate::support::capctl(Some(&b.socket)).arg("drain"), b"");
    assert_eq!(exit_code(&drain()), 0);
    is_told_to_go(&open);
    // Nothing is in flight, and nothing is remembered of either.
    for peer in [&early, &late] {
        is_told_to_go(&peer.connect(&b));
    }
}

#[test]
fn a_drained_sidecar_dials_nobody_once_it_has_no_call_to_finish() {
    let b = Sidecar::start();
    let a = Setup::new()
        .set("timeouts.reconnect_initial_ms", "10")
        .set("timeouts.reconnect_max_ms", "20")
        .peer(&b)
        .start();
    let links = format!("capd_peer_links{{peer=\"{}\"}}", b.did);
    let until_links = |wanted: u64| {
        let deadline = Instant::now() + PATIENCE;
        while a.metric(&links) != wanted {
            assert!(Instant::now() < deadline, "never {wanted} links");
        }
    };
    until_links(1);
    let drained = crate::support::run_with(crate::support::capctl(Some(&a.socket)).arg("drain"), b"");
    assert_eq!(exit_code(&drained), 0, "{}", stderr(&drained));
    until_links(0);
    let connected = || b.log().lines().filter(|line| line.contains("peer connected")).count();
    // Dozens of pauses between two dials.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((connected(), a.metric(&links)), (1, 0));
}

/// Waits until the other side has said GOAWAY, and the link is closed.
#[track_caller]
fn is_told_to_go(link: &capd::net::Link) {
    let deadline = Instant::now() + PATIENCE;
    while !(link.is_draining() && link.is_closed()) {
        assert!(Instant::now() < deadline, "the link stays");
        std::thread::yield_now();
    }
}
