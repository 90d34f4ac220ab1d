//! Calls and limits in; what `capctl metrics` tells of them out.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use capd::admin::METRICS;
use capd::config::keys::{KEYS, Kind};
use ciborium::Value;
use serde_json::Value as Json;

use crate::agents::{Caller, Provider, by_id, loose, success, within};
use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const ECHO: &str = "org.example.echo:1.0.0";

fn families(sidecar: &Sidecar) -> Vec<Json> {
    let output = run_with(capctl(Some(&sidecar.socket)).args(["metrics", "--json"]), b"");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn calls(role: &str, outcome: &str, code: &str) -> String {
    format!("capd_calls_total{{code=\"{code}\",role=\"{role}\",outcome=\"{outcome}\"}}")
}

#[test]
fn every_metric_is_told_and_every_limit_under_its_key() {
    let peer = Sidecar::start();
    let sidecar = Setup::new().peer(&peer).start();
    until_links(&sidecar, &peer, 1.0);
    let families = families(&sidecar);
    let told: Vec<_> = families.iter().map(|family| family["name"].as_str().unwrap()).collect();
    assert_eq!(told, METRICS.iter().map(|metric| metric.name).collect::<Vec<_>>());
    for (family, metric) in families.iter().zip(METRICS) {
        assert_eq!(family["type"], metric.kind.as_str());
        let samples = family["samples"].as_array().unwrap();
        assert!(!samples.is_empty(), "{}", metric.name);
        for sample in samples {
            let mut labels: Vec<_> = sample["labels"].as_object().unwrap().keys().collect();
            let mut expected: Vec<_> = metric.labels.to_vec();
            if sample["part"] == "bucket" {
                expected.push("le");
            }
            labels.sort();
            expected.sort_unstable();
            assert_eq!(labels, expected, "{}", metric.name);
        }
    }
    let limits: BTreeSet<_> = families
        .iter()
        .flat_map(|family| family["samples"].as_array().unwrap())
        .filter_map(|sample| sample["labels"]["limit"].as_str())
        .collect();
    for limit in limits.iter().filter(|limit| **limit != "rateLimit") {
        assert!(KEYS.iter().any(|key| key.path == *limit), "{limit}");
    }
    for key in KEYS.iter().filter(|key| key.path.starts_with("limits.")) {
        assert!(limits.contains(key.path), "{} has no metric", key.path);
    }
    // What a limit is set to is what is told of it.
    let max = |key: &str| sidecar.metric(&format!("capd_limit_max{{limit=\"{key}\"}}"));
    for key in ["limits.links_max", "limits.queue_bytes_max", "limits.calls_in_flight_max"] {
        let Some(Kind::Integer { max: most, .. }) = capd::config::keys::Key::find(key).map(|key| key.kind)
        else {
            panic!("{key}")
        };
        assert!((1..=most).contains(&max(key)), "{key}");
    }
}

#[test]
fn calls_are_counted_by_how_they_end_on_both_sides() {
    let b = Setup::new().set("limits.calls_in_flight_per_capability_max", "1").start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, 1.into()));
    let call = provider.taken();
    assert_eq!(a.metric("capd_calls_in_flight{role=\"caller\"}"), 1);
    assert_eq!(b.metric("capd_calls_in_flight{role=\"executor\"}"), 1);
    let level = "capd_limit_level{limit=\"limits.calls_in_flight_per_capability_max\"}";
    assert_eq!(b.metric(level), 1);
    let mut own = Caller::of(&b);
    let over = own.invoke(by_id(ECHO, 2.into()));
    assert_eq!(own.error(&over).code(), Some(5004));
    b.refused("limits.calls_in_flight_per_capability_max", 1);
    assert_eq!(b.metric(&calls("caller", "refused", "5004")), 1);
    provider.succeed(&call, Value::Null);
    success(&caller.result(&id));

    let id = caller.invoke(by_id(ECHO, 3.into()));
    let call = provider.taken();
    provider.fail(&call, 5001);
    assert_eq!(caller.result(&id).code(), Some(5001));
    for (sidecar, role) in [(&a, "caller"), (&b, "executor")] {
        assert_eq!(sidecar.metric(&calls(role, "success", "")), 1, "{role}");
        assert_eq!(sidecar.metric(&calls(role, "error", "5001")), 1, "{role}");
        assert_eq!(sidecar.metric(&format!("capd_calls_in_flight{{role=\"{role}\"}}")), 0);
    }
    assert_eq!(b.metric(level), 0);
    assert_eq!(a.metric("capd_links{kind=\"quic\"}"), 1);
    // Each side tells of the other, also the one that has no configured peer.
    for (sidecar, peer) in [(&a, &b), (&b, &a)] {
        let of_peer = |name: &str| fraction(sidecar, &format!("{name}{{peer=\"{}\"}}", peer.did));
        assert_eq!(of_peer("capd_peer_links"), Some(1.0));
        assert!(
            of_peer("capd_peer_round_trip_seconds").is_some_and(|seconds| seconds > 0.0 && seconds < 5.0)
        );
        assert!(of_peer("capd_peer_lost_ratio").is_some_and(|ratio| (0.0..=1.0).contains(&ratio)));
    }
    assert!(b.metric("capd_received_bytes_total") > 0 && b.metric("capd_sent_bytes_total") > 0);
    // A loose capability is not idempotent: both calls went through the journal.
    assert!(b.metric("capd_journal_changes_total") >= 4);
}

#[test]
fn a_call_that_comes_too_soon_is_counted_under_the_rate_that_refused_it() {
    let b = Setup::new().set("limits.call_rate_per_peer", "1/1h").start();
    let a = Setup::new().peer(&b).start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&a);
    let id = caller.invoke(by_id(ECHO, 1.into()));
    provider.echo();
    success(&caller.result(&id));
    let id = caller.invoke(within(ECHO, 2.into(), 500));
    caller.about(&id);
    let refusals = "capd_limit_refusals_total{limit=\"limits.call_rate_per_peer\"}";
    assert!(b.metric(refusals) >= 1);
    assert_eq!(b.metric("capd_limit_refusals_total{limit=\"limits.call_rate\"}"), 0);
}

#[test]
fn a_configured_peer_that_is_away_has_no_link_and_no_round_trip() {
    let mut b = Setup::new().start();
    let a = Setup::new().peer(&b).start();
    until_links(&a, &b, 1.0);
    assert!(b.terminate().success());
    until_links(&a, &b, 0.0);
    assert_eq!(fraction(&a, &format!("capd_peer_round_trip_seconds{{peer=\"{}\"}}", b.did)), None);
}

#[test]
fn the_size_of_the_journal_is_that_of_its_files_once_they_rest() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let size = |file: &str| std::fs::metadata(b.dir.join("state").join(file)).unwrap().len();
    let before = size("journal.db-wal");
    for number in 0..8 {
        let id = caller.invoke(by_id(ECHO, number.into()));
        provider.echo();
        success(&caller.result(&id));
    }
    assert!(size("journal.db-wal") > before);
    let deadline = Instant::now() + PATIENCE;
    while b.metric("capd_journal_bytes") != size("journal.db") + size("journal.db-wal") {
        assert!(Instant::now() < deadline, "{}", b.metric("capd_journal_bytes"));
    }
}

#[test]
fn a_loop_that_stands_still_is_told_of_as_late() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let of = |part: &str| fraction(&b, &format!("capd_event_loop_lag_seconds_{part}")).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let measured_twice = || {
        let before = of("count");
        while of("count") < before + 2.0 {
            assert!(Instant::now() < deadline, "nothing is measured");
        }
    };
    // Without calls it is looked at now and then, too.
    measured_twice();
    let id = caller.invoke(by_id(ECHO, 1.into()));
    let call = provider.taken();
    measured_twice();
    let before = of("sum");
    b.stop();
    // Its timer is due within a second, since a call runs here, and fires when it goes on.
    std::thread::sleep(Duration::from_millis(1_700));
    b.go_on();
    while of("sum") < before + 0.6 {
        assert!(Instant::now() < deadline, "nothing was late");
    }
    provider.succeed(&call, 1.into());
    success(&caller.result(&id));
}

#[test]
fn bytes_of_a_peer_are_counted_over_all_its_links() {
    let b = Setup::new().start();
    let a = Setup::new().peer(&b).start();
    until_links(&a, &b, 1.0);
    let did = b.did.clone();
    let carried = |name: &str| a.metric(&format!("capd_peer_{name}_bytes_total{{peer=\"{did}\"}}"));
    let before = ["received", "sent"].map(carried);
    assert!(before.into_iter().all(|bytes| bytes > 0), "{before:?}");
    let b = b.restart();
    let deadline = Instant::now() + PATIENCE;
    // The link that ended carried one HANDSHAKE, and so does the next.
    while ["received", "sent"]
        .map(carried)
        .into_iter()
        .zip(before)
        .any(|(bytes, first)| bytes < 3 * first / 2)
    {
        assert!(Instant::now() < deadline, "{before:?}");
    }
    until_links(&a, &b, 1.0);
    assert!(a.metric("capd_sent_bytes_total") >= carried("sent"));
}

/// The value of a sample that may have a fraction, if there is one.
fn fraction(sidecar: &Sidecar, sample: &str) -> Option<f64> {
    let output = run_with(capctl(Some(&sidecar.socket)).arg("metrics"), b"");
    stdout(&output).lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

/// Waits until a sidecar has so many links to a peer.
#[track_caller]
fn until_links(sidecar: &Sidecar, peer: &Sidecar, wanted: f64) {
    let links = format!("capd_peer_links{{peer=\"{}\"}}", peer.did);
    let deadline = Instant::now() + PATIENCE;
    while fraction(sidecar, &links) != Some(wanted) {
        assert!(Instant::now() < deadline, "never {wanted} links");
    }
}
