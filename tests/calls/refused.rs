//! Sidecars that do not let each other in; the cause, at once and wherever somebody looks for it, out.

use std::time::{Duration, Instant};

use capd::config::Config;
use capd::daemon::Daemon;
use capd::net::{Clock, Seed, System, WallClock};
use capd::store::Folder;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

/// Runs `capctl` beside a sidecar: its exit code, and all it printed.
fn run(sidecar: &Sidecar, line: &[&str]) -> (i32, String) {
    let output = run_with(capctl(Some(&sidecar.socket)).args(line), b"");
    (exit_code(&output), format!("{}{}", stdout(&output), stderr(&output)))
}

/// What `ls --peers` of a sidecar says of a peer, once it says this state.
#[track_caller]
fn listed(sidecar: &Sidecar, peer: &str, state: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (code, text) = run(sidecar, &["ls", "--peers", "--json"]);
        assert_eq!(code, 0, "{text}");
        let mut peers = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let about = peers.find(|listed| listed["did"] == peer && listed["state"] == state);
        if let Some(listed) = about {
            return listed["reason"].as_str().unwrap_or_default().to_owned();
        }
        assert!(Instant::now() < deadline, "not {state}: {text}\n{}", sidecar.log());
    }
}

/// That `cause` reaches whoever waits for `peer`, at once: a call, `ping`, `doctor` and `ls --peers`; and the log, once.
#[track_caller]
fn says(sidecar: &Sidecar, peer: &str, cause: &str) {
    let asked = Instant::now();
    let config = sidecar.dir.join("capd.toml");
    let found = run(sidecar, &["doctor"]).1;
    let found = found.lines().find(|line| line.contains(cause)).unwrap_or_else(|| panic!("{found}"));
    assert!(found.starts_with("failed") && found.contains("; to repair: "), "{found}");
    assert!(!cause.contains("clock") || found.contains("timedatectl set-ntp true"), "{found}");
    let lines: [&[&str]; 3] = [
        &["call", "org.example.echo:1.0.0", "--timeout", "20s"],
        &["ping", peer, "--timeout", "20s"],
        &["doctor", "--config", config.to_str().unwrap()],
    ];
    for line in lines {
        let (code, text) = run(sidecar, line);
        assert_eq!(code, 5, "{line:?}: {text}");
        assert!(text.contains(cause), "{line:?}: {text}");
    }
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert!(listed(sidecar, peer, "refused").contains(cause));
    warned(sidecar, peer, cause);
}

/// That the log has one warning about `peer`, with the cause.
#[track_caller]
fn warned(sidecar: &Sidecar, peer: &str, cause: &str) {
    let log = sidecar.log();
    let is_about = |line: &&str| line.contains(" WARN ") && line.contains(peer);
    let lines: Vec<_> = log.lines().filter(is_about).collect();
    let [line] = lines.as_slice() else { panic!("{} warnings about {peer}: {lines:?}", lines.len()) };
    assert!(line.contains(cause), "{line}");
}

#[test]
fn a_peer_that_does_not_list_us_is_named_with_what_it_lacks() {
    let someone = Seed::random().unwrap().identity().did().to_string();
    let b = Setup::new().set("peer.admit", "listed").peer_at(&someone, &[]).start();
    let a = Setup::new().set("timeouts.reconnect_max_ms", "300").peer(&b).start();
    says(&a, &b.did, &format!("that sidecar does not list {} in [[peers]]", a.did));
    // The other side knows who it was, and how to let it in.
    let reason = listed(&b, &a.did, "refused");
    assert!(reason.contains("not listed in [[peers]]"), "{reason}");
    warned(&b, &a.did, "not listed in [[peers]]");
}

#[test]
fn another_identity_at_a_peers_address_is_named() {
    let b = Sidecar::start();
    let wanted = Seed::random().unwrap().identity().did().to_string();
    for address in [format!("quic://{}", b.quic.unwrap()), format!("tcp://{}", b.tcp.unwrap())] {
        let a = Setup::new().set("timeouts.reconnect_max_ms", "300").peer_at(&wanted, &[&address]).start();
        says(&a, &wanted, &format!("{address} is {}", b.did));
    }
    // The other side cannot know who it was, only that somebody wanted another.
    let log = b.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(line.contains("expects another identity") && line.contains(&b.did), "{line}");
}

#[test]
fn clocks_that_differ_are_named_with_the_difference() {
    for (skew_ms, there, here) in [(125_000, "behind", "ahead of"), (-125_000, "ahead of", "behind")] {
        let a = Skewed::start(skew_ms, &[]);
        let b = Setup::new()
            .set("peer.admit", "listed")
            .set("timeouts.reconnect_max_ms", "300")
            .peer_at(&a.did, &[&a.address])
            .start();
        // The peer measured how far our clock is off its own.
        let reason = listed(&b, &a.did, "refused");
        assert!(reason.contains("HELLO is 12"), "{reason}");
        says(&b, &a.did, &format!("s {there} the receiver's clock"));
        drop(a);

        let b = Setup::new().set("peer.admit", "listed");
        let a = Seed::random().unwrap();
        let b = b.peer_at(a.identity().did().as_str(), &[]).start();
        let a = Skewed::start_as(&a, skew_ms, &[(&b.did, &format!("quic://{}", b.quic.unwrap()))]);
        let reason = listed(&b, &a.did, "refused");
        assert!(reason.contains("HELLO is 12"), "{reason}");
        warned(&b, &a.did, &format!("s {here} the receiver's clock"));
    }
}

#[test]
fn a_peer_that_is_not_there_is_waited_for_and_named_with_what_the_system_said() {
    let b = Sidecar::start();
    let address = format!("tcp://{}", b.tcp.unwrap());
    let did = b.did.clone();
    drop(b);
    let a = Setup::new().set("timeouts.reconnect_max_ms", "300").peer_at(&did, &[&address]).start();
    assert!(listed(&a, &did, "unreachable").contains("onnection refused"));
    let asked = Instant::now();
    let (code, text) = run(&a, &["call", "org.example.echo:1.0.0", "--timeout", "1500ms"]);
    assert!(asked.elapsed() >= Duration::from_millis(1_400), "it may come yet: {:?}", asked.elapsed());
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("2002") && text.contains("onnection refused") && text.contains(&address), "{text}");
    let (code, text) = run(&a, &["ping", &did, "--timeout", "1500ms"]);
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("onnection refused"), "{text}");
    let (code, text) = run(&a, &["doctor", "--config", a.dir.join("capd.toml").to_str().unwrap()]);
    assert_eq!(code, 5, "{text}");
    assert!(text.contains("onnection refused"), "{text}");
    assert_eq!(a.log().matches(" WARN ").count(), 0, "{}", a.log());
}

#[test]
fn a_peer_that_lists_us_later_is_linked_and_no_longer_named() {
    let b = Setup::new().set("peer.admit", "listed").start();
    let b_did = b.did.clone();
    let a = Setup::new().set("timeouts.reconnect_max_ms", "300").peer(&b).start();
    listed(&a, &b_did, "refused");
    let b = b.restart_with(|setup| setup.set("peer.admit", "any"));
    assert_eq!(listed(&a, &b_did, "connected"), "");
    assert_eq!(run(&a, &["ping", &b.did]).0, 0);
}

/// A sidecar in the test's own process, whose clock is wrong.
struct Skewed {
    did: String,
    address: String,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Skewed {
    fn start(skew_ms: i64, peers: &[(&str, &str)]) -> Self {
        Self::start_as(&Seed::random().unwrap(), skew_ms, peers)
    }

    fn start_as(seed: &Seed, skew_ms: i64, peers: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let environment = [("HOME".to_owned(), dir.path().display().to_string())];
        let flags = ["listen.quic=127.0.0.1:0", "listen.unix=off", "peer.admit=any", "audit.file=off"];
        let flags =
            flags.map(|flag| flag.split_once('=').unwrap()).map(|(k, v)| (k.to_owned(), v.to_owned()));
        let mut config = Config::layer(None, &environment, &flags).unwrap();
        config.peers = peers
            .iter()
            .map(|(did, address)| capd::config::Peer {
                name: None,
                did: (*did).to_owned(),
                addresses: vec![quic_address(address)],
                serves: Vec::new(),
            })
            .collect();
        let seed = seed.clone();
        let (sender, started) = std::sync::mpsc::sync_channel(1);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
                let wall_ms = u64::try_from(now.as_millis()).unwrap().saturating_add_signed(skew_ms);
                let system = System { clock: Clock::set_by(WallClock::at(wall_ms)), ..System::real() };
                let journal = Folder::new(dir.path());
                let daemon = Daemon::start_on(system, config, &seed, None, &journal).await.unwrap();
                sender.send(daemon.announcement()).unwrap();
                stopped.cancelled().await;
                daemon.shutdown().await;
            });
        });
        let announced: Value = serde_json::from_str(&started.recv_timeout(PATIENCE).unwrap()).unwrap();
        Self {
            did: announced["did"].as_str().unwrap().to_owned(),
            address: format!("quic://{}", announced["quic"].as_str().unwrap()),
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Skewed {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say: a panic there has said so.
            let _panicked = thread.join();
        }
    }
}

fn quic_address(text: &str) -> capd::config::Address {
    let at: std::net::SocketAddr = text.strip_prefix("quic://").unwrap().parse().unwrap();
    capd::config::Address {
        transport: capd::config::Transport::Quic,
        host: at.ip().to_string(),
        port: at.port(),
        is_shared: false,
    }
}
