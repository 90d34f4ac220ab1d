//! A service manager that listens, or does not, in; what it hears of a sidecar, out.

use std::os::unix::net::UnixDatagram;

use ciborium::Value;

use crate::agents::{Caller, Provider, by_id, idempotent, success};
use crate::support::{PATIENCE, Setup};

const ECHO: &str = "org.example.echo:1.0.0";

/// A manager's socket, and a sidecar that it has started.
fn managed(watchdog_us: &str) -> (tempfile::TempDir, UnixDatagram, Setup) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let setup = Setup::new()
        .environment("NOTIFY_SOCKET", path.to_str().unwrap())
        .environment("WATCHDOG_USEC", watchdog_us);
    (dir, socket, setup)
}

fn heard(socket: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let length = socket.recv(&mut message).expect("it is told in time");
    String::from_utf8(message[..length].to_vec()).unwrap()
}

#[test]
fn a_service_manager_hears_that_a_sidecar_is_ready_lives_and_stops() {
    let (_dir, socket, setup) = managed("20000");
    let mut sidecar = setup.start();
    assert_eq!(heard(&socket), "READY=1");
    for _ in 0..3 {
        assert_eq!(heard(&socket), "WATCHDOG=1");
    }
    assert!(sidecar.terminate().success());
    let mut last = heard(&socket);
    while last == "WATCHDOG=1" {
        last = heard(&socket);
    }
    assert_eq!(last, "STOPPING=1");
}

#[test]
fn a_service_manager_that_does_not_read_holds_nothing_up() {
    let (_dir, socket, setup) = managed("1000");
    let sidecar = setup.start();
    // Its queue is full once the oldest message still stands after many more were due.
    let mut provider = Provider::of(&sidecar, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(&sidecar);
    for number in 0..200 {
        let id = caller.invoke(by_id(ECHO, number.into()));
        provider.echo();
        assert_eq!(success(&caller.result(&id)), &Value::from(number));
    }
    assert_eq!(heard(&socket), "READY=1", "nothing was read before");
}
