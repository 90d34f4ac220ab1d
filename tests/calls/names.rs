//! Peers whose addresses are host names: resolved at each dial, and named where that fails.

use std::time::{Duration, Instant};

use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const ECHO: &str = "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    idempotent: true\n    command: [cat]\n";

/// Runs `capctl` beside a sidecar: its exit code, and all it printed.
fn run(sidecar: &Sidecar, line: &[&str]) -> (i32, String) {
    let output = run_with(capctl(Some(&sidecar.socket)).args(line), b"");
    (exit_code(&output), format!("{}{}", stdout(&output), stderr(&output)))
}

#[test]
fn a_peer_is_reached_by_a_name_over_both_transports() {
    let b = Setup::new().capabilities(ECHO).start();
    let addresses = [
        format!("quic+dns://localhost:{}", b.quic.unwrap().port()),
        format!("tcp+dns://localhost:{}", b.tcp.unwrap().port()),
    ];
    for address in addresses {
        // Where localhost is ::1 first, that address costs a handshake that nobody answers.
        let a = Setup::new().set("timeouts.handshake_ms", "1000").peer_at(&b.did, &[&address]).start();
        let (code, text) =
            run(&a, &["call", "org.example.echo", "--params", "{\"n\": 1}", "--timeout", "20s"]);
        assert_eq!(code, 0, "{address}: {text}");
        assert!(a.log().contains(&format!("address={address}")), "{}", a.log());
    }
}

#[test]
fn a_name_of_several_sidecars_gives_the_one_whose_key_is_wanted_or_nobody() {
    let (b, other) = (Setup::new().capabilities(ECHO).start(), Sidecar::start());
    // Only another sidecar answers under the name so far; this one may yet.
    let at_other = format!("tcp+dns://localhost:{}", other.tcp.unwrap().port());
    let at_b = format!("tcp+dns://localhost:{}", b.tcp.unwrap().port());
    let a = Setup::new().peer_at(&b.did, &[&at_other, &at_b]).start();
    assert_eq!(run(&a, &["ping", &b.did, "--timeout", "20s"]).0, 0);
    let alone = Setup::new().set("timeouts.reconnect_max_ms", "300").peer_at(&b.did, &[&at_other]).start();
    let (code, text) = run(&alone, &["ping", &b.did, "--timeout", "2s"]);
    assert_eq!(code, 5, "{text}");
    assert!(text.contains(&format!("{at_other}: {} answered, and nobody else yet", other.did)), "{text}");
}

#[test]
fn a_name_that_does_not_resolve_is_told_everywhere_and_keeps_nothing_from_starting() {
    let b = Setup::new().capabilities(ECHO).start();
    let nowhere = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
    // RFC 6761: no name under `invalid` ever stands for anything.
    let address = "quic+dns://capd-headless.invalid:7001";
    let a = Setup::new().peer(&b).peer_at(nowhere, &[address]).start();
    assert_eq!(run(&a, &["call", "org.example.echo", "--params", "{}", "--timeout", "20s"]).0, 0);

    let cause = format!("{address}: the host name cannot be resolved: ");
    let asked = Instant::now();
    let line = loop {
        let (_, text) = run(&a, &["doctor"]);
        let line = text.lines().find(|line| line.contains(&cause)).map(str::to_owned);
        if let Some(line) = line {
            break line;
        }
        assert!(asked.elapsed() < Duration::from_secs(30), "{text}\n{}", a.log());
    };
    assert!(
        line.contains("; tried again within ") && line.contains("; to repair: correct the host"),
        "{line}"
    );
    let (code, text) = run(&a, &["ping", nowhere, "--timeout", "2s"]);
    assert!(code == 5 && text.contains(&cause), "{text}");
    let log = a.log();
    let warned: Vec<_> =
        log.lines().filter(|line| line.contains(" WARN ") && line.contains(nowhere)).collect();
    assert!(warned.len() == 1 && warned[0].contains(&cause), "{warned:?}\n{log}");
}
