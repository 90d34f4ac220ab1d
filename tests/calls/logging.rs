//! A log that nobody reads in; calls all the same, and a count of what it lacks, out.

use std::io::{BufRead as _, BufReader};
use std::time::Instant;

use ciborium::Value;

use crate::agents::{Caller, Provider, by_id, idempotent, success};
use crate::support::{PATIENCE, Setup, Sidecar};

const ECHO: &str = "org.example.echo:1.0.0";
const DROPPED: &str = "capd_log_lines_dropped_total";

/// Makes calls until the sidecar has dropped lines.
fn call_until_lines_are_dropped(sidecar: &Sidecar) {
    let mut provider = Provider::of(sidecar, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(sidecar);
    let deadline = Instant::now() + 4 * PATIENCE;
    while sidecar.metric(DROPPED) == 0 {
        assert!(Instant::now() < deadline, "no line is dropped");
        for _ in 0..500 {
            let id = caller.invoke(by_id(ECHO, "on".into()));
            provider.echo();
            assert_eq!(success(&caller.result(&id)), &Value::from("on"));
        }
    }
}

#[test]
fn a_log_that_nobody_reads_stops_no_call_and_tells_later_how_many_lines_it_lacks() {
    let mut sidecar = Setup::new().pipes_log().set("log.level", "trace").start();
    call_until_lines_are_dropped(&sidecar);
    let log = sidecar.take_log();
    let mut lines = BufReader::new(log).lines().map(Result::unwrap);
    let told = lines.find(|line| line.contains("log lines were dropped while stderr was blocked"));
    let told = told.expect("the pipe stays open");
    let dropped = told.rsplit_once("dropped=").unwrap().1.parse::<u64>().unwrap();
    assert!(told.contains(" WARN ") && dropped > 0, "{told}");
    let reading = std::thread::spawn(move || lines.for_each(drop));
    // While the first lines of the queue were read, more may have been dropped.
    assert!(sidecar.metric(DROPPED) >= dropped);
    assert!(sidecar.terminate().success());
    reading.join().unwrap();
}

#[test]
fn a_log_that_nobody_reads_keeps_no_sidecar_from_ending() {
    let mut sidecar = Setup::new().pipes_log().set("log.level", "trace").start();
    call_until_lines_are_dropped(&sidecar);
    assert!(sidecar.terminate().success());
}

#[test]
fn a_log_that_nobody_reads_keeps_no_fault_from_ending_the_sidecar() {
    // The pipe is full before it starts.
    let full = ["sh", "-c", "head -c 65536 /dev/zero >&2; exec \"$0\" \"$@\""];
    let setup = Setup::new().pipes_log().through(&full);
    let mut sidecar = setup.environment("TEST_HOOK_PANIC", "as the test asked").start();
    assert_eq!(sidecar.wait().code(), Some(70));
}

#[test]
fn a_log_filter_overrides_the_level_by_module() {
    // The tests' own level is debug.
    let sidecar = Setup::new().environment("CAPD_LOG", "warn, access=info, capd_net=debug").start();
    let mut provider = Provider::of(&sidecar, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(&sidecar);
    let id = caller.invoke(by_id(ECHO, "on".into()));
    provider.echo();
    caller.result(&id);
    let log = sidecar.log();
    assert!(
        log.contains(" access: ") && log.contains(" DEBUG capd_net::") && !log.contains(" INFO capd::daemon"),
        "{log}"
    );
}

#[test]
fn variables_that_kubernetes_makes_are_named_in_one_line() {
    let setup = Setup::new().environment("CAPD_PORT", "tcp://10.96.0.7:7001");
    let mut sidecar = setup.environment("CAPD_SERVICE_HOST", "10.96.0.7").start();
    assert!(sidecar.terminate().success());
    let log = sidecar.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("CAPD_")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("Kubernetes") && lines[0].contains("CAPD_PORT, CAPD_SERVICE_HOST"), "{log}");
    let refused = Setup::new().environment("CAPD_PORT", "7001").refused_to_start();
    assert!(refused.contains("environment CAPD_PORT: CAPD_PORT: unknown variable"), "{refused}");
}
