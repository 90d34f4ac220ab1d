//! GET requests to `listen.health` in; whether a sidecar lives and is ready, and its metrics, out.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ciborium::Value;

use crate::agents::{Caller, Provider, by_id, loose, success};
use crate::support::{PATIENCE, Setup, Sidecar, capctl, run_with, stdout};

const ECHO: &str = "org.example.echo:1.0.0";

fn health(sidecar: &Sidecar) -> SocketAddr {
    sidecar.announcement["health"].as_str().expect("it listens there").parse().unwrap()
}

/// The status, the head and the body of what is answered to `request`.
fn asked(address: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

pub(super) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let (status, _, body) = asked(address, &format!("GET {path}"));
    (status, body)
}

fn with_health() -> Setup {
    Setup::new().set("listen.health", "127.0.0.1:0")
}

#[test]
fn a_sidecar_says_that_it_lives_and_is_ready_and_how_each_part_is() {
    let sidecar = with_health().start();
    let address = health(&sidecar);
    assert_eq!(get(address, "/livez"), (200, "ok\n".to_owned()));
    assert_eq!(get(address, "/readyz"), (200, "ok\n".to_owned()));
    let (status, parts) = get(address, "/readyz?verbose");
    assert_eq!(status, 200);
    let names: Vec<_> = parts.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(names, ["listeners", "journal", "audit", "policy", "agents", "peers"], "{parts}");
    assert!(parts.contains("[+] agents ok: 0 local links\n") && parts.ends_with("\nok\n"), "{parts}");
    let _agent = Caller::of(&sidecar);
    assert!(get(address, "/readyz?verbose").1.contains("[+] agents ok: 1 local links\n"));
}

#[test]
fn nothing_else_is_served_and_nothing_is_off_by_itself() {
    let sidecar = with_health().start();
    let address = health(&sidecar);
    for path in ["/", "/v1/self", "/openapi.json", "/metrics/", "/livez/x"] {
        assert_eq!(get(address, path).0, 404, "{path}");
    }
    let (status, head, _) = asked(address, "POST /livez");
    assert_eq!(status, 405);
    assert!(head.contains("\r\nallow: get, head"), "{head}");
    assert_eq!(asked(address, "HEAD /livez").2, "");
    let without = Sidecar::start();
    assert_eq!(without.announcement["health"], serde_json::Value::Null);
}

#[test]
fn metrics_are_what_capctl_prints_and_count_how_long_calls_took() {
    let sidecar = with_health().start();
    let address = health(&sidecar);
    let mut provider = Provider::of(&sidecar, vec![loose(ECHO)]);
    let mut caller = Caller::of(&sidecar);
    for round in 0..3 {
        let id = caller.invoke(by_id(ECHO, round.into()));
        provider.echo();
        success(&caller.result(&id));
    }
    let (_, head, text) = asked(address, "GET /metrics");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    let printed = run_with(capctl(Some(&sidecar.socket)).arg("metrics"), b"");
    let names = |text: &str| {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names(&text), names(stdout(&printed)));
    let of = |sample: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("capd_call_duration_seconds_{sample} ")));
        line.unwrap_or_else(|| panic!("{sample}: {text}")).parse::<f64>().unwrap()
    };
    let labels = "role=\"executor\",outcome=\"success\"";
    assert_eq!(of(&format!("count{{{labels}}}")), 3.0);
    assert_eq!(of(&format!("bucket{{le=\"+Inf\",{labels}}}")), 3.0);
    assert!(of(&format!("bucket{{le=\"0.0001\",{labels}}}")) <= of(&format!("bucket{{le=\"60\",{labels}}}")));
    let sum = of(&format!("sum{{{labels}}}"));
    assert!(sum > 0.0 && sum < PATIENCE.as_secs_f64(), "{sum}");
    assert_eq!(of("count{role=\"executor\",outcome=\"error\"}"), 0.0);
}

#[test]
fn durations_name_a_capability_only_where_the_owner_allows_it() {
    for (allowed, label) in [("off", ""), ("on", ",capability=\"org.example.echo\"")] {
        let sidecar = with_health().set("metrics.capabilities", allowed).start();
        let address = health(&sidecar);
        let mut provider = Provider::of(&sidecar, vec![loose(ECHO)]);
        let mut caller = Caller::of(&sidecar);
        let id = caller.invoke(by_id(ECHO, Value::Null));
        provider.echo();
        success(&caller.result(&id));
        let begin = Instant::now();
        let sample =
            format!("capd_call_duration_seconds_count{{role=\"executor\",outcome=\"success\"{label}}} 1");
        loop {
            let (_, text) = get(address, "/metrics");
            if text.lines().any(|line| line == sample) {
                assert_eq!(text.contains("org.example"), allowed == "on", "{text}");
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "{sample}: {text}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_full_disk_makes_it_unready_until_it_is_written_again() {
    let sidecar = with_health().meets_file_limits().start();
    let address = health(&sidecar);
    let mut provider = Provider::of(&sidecar, vec![loose(ECHO)]);
    let mut caller = Caller::of(&sidecar);
    sidecar.fill_disk();
    let id = caller.invoke(by_id(ECHO, Value::Null));
    assert_eq!(caller.error(&id).code(), Some(5002));
    let (status, parts) = get(address, "/readyz");
    assert_eq!(
        (status, parts.as_str()),
        (503, "[-] journal failed: it cannot be written; the log says why\n")
    );
    assert_eq!(get(address, "/livez").0, 200);
    sidecar.free_disk();
    let id = caller.invoke(by_id(ECHO, Value::Null));
    provider.echo();
    success(&caller.result(&id));
    assert_eq!(get(address, "/readyz"), (200, "ok\n".to_owned()));
}

#[test]
fn a_sidecar_that_drains_is_not_ready() {
    let mut sidecar = with_health().start();
    let address = health(&sidecar);
    let mut provider = Provider::of(&sidecar, vec![loose(ECHO)]);
    let mut caller = Caller::of(&sidecar);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    let pid = rustix::process::Pid::from_raw(sidecar.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let begin = Instant::now();
    // It drains for as long as the call runs.
    while get(address, "/readyz").0 == 200 {
        assert!(begin.elapsed() < PATIENCE, "it never said that it drains");
        std::thread::yield_now();
    }
    let (status, parts) = get(address, "/readyz?verbose");
    assert_eq!(status, 503);
    assert!(parts.starts_with("[-] listeners failed: the sidecar drains"), "{parts}");
    provider.succeed(&call, Value::Null);
    success(&caller.result(&id));
    drop((provider, caller));
    assert!(sidecar.wait().success());
    assert!(TcpStream::connect_timeout(&address, Duration::from_secs(5)).is_err());
}

#[test]
fn connections_that_say_nothing_leave_room_for_others() {
    let sidecar = with_health().start();
    let address = health(&sidecar);
    // More than are open at once.
    let silent: Vec<_> = (0..80).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(get(address, "/livez").0, 200);
    drop(silent);
}
