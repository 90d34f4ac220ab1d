//! Local connections that never finish their handshake in; a sidecar that still takes its agent's, out.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crate::support::{BytePeer, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

/// More than the places for links that are opening, which are 256.
const HALF_OPEN: usize = 300;

/// That `capctl id` finds the sidecar, soon.
#[track_caller]
fn finds(sidecar: &Sidecar, line: &[&str]) {
    let asked = Instant::now();
    let output = run_with(capctl(None).args(line).arg("id"), b"");
    assert_eq!(exit_code(&output), 0, "{line:?}: {}", stderr(&output));
    assert_eq!(stdout(&output).trim_end(), sidecar.did);
    assert!(asked.elapsed() < Duration::from_secs(5), "{line:?}: {:?}", asked.elapsed());
}

#[test]
fn half_open_local_connections_keep_nobody_out() {
    let sidecar = Sidecar::start();
    let (address, token) = (sidecar.local_tcp.unwrap(), sidecar.dir.join("state/token"));
    let over_tcp = ["--address", &address.to_string(), "--token-file", token.to_str().unwrap()];
    let over_unix = ["--socket", sidecar.socket.to_str().unwrap()];
    let silent: Vec<_> = (0..HALF_OPEN).map(|_| UnixStream::connect(&sidecar.socket).unwrap()).collect();
    finds(&sidecar, &over_unix);
    finds(&sidecar, &over_tcp);
    let silent_too: Vec<_> = (0..HALF_OPEN).map(|_| TcpStream::connect(address).unwrap()).collect();
    finds(&sidecar, &over_unix);
    finds(&sidecar, &over_tcp);
    drop((silent, silent_too));
}

#[test]
fn a_sidecar_that_takes_no_more_links_is_told_from_one_that_does_not_run() {
    let mut sidecar = Setup::new().set("limits.links_max", "2").set("limits.links_opening_max", "1").start();
    let open = [(); 2].map(|()| BytePeer::open(&sidecar.socket));
    let output = run_with(capctl(Some(&sidecar.socket)).arg("id"), b"");
    let text = stderr(&output);
    assert_eq!(exit_code(&output), 5, "{text}");
    assert!(text.contains("capd is running") && text.contains("limits.links_max"), "{text}");
    assert!(!text.contains("to start a sidecar: capd run"), "{text}");
    drop(open);
    sidecar.kill();
    let output = run_with(capctl(Some(&sidecar.socket)).arg("id"), b"");
    assert!(stderr(&output).contains("to start a sidecar: capd run"), "{}", stderr(&output));
}
