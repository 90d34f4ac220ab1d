//! A membership opens the door, without a list and without a registry; a wrong one closes it with a reason on both sides.

use capd_proto::identity::Identity;

use crate::cell::{Cell, Terms, answered, call, declaring, until};
use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stdout};

/// A provider of `org.example.ask` in cell `test`, which lists nobody.
fn provider(cell: &Cell) -> Sidecar {
    cell.member(1, &["org.example.*"]).capabilities(&declaring("provider", &["ask"])).start()
}

/// Why the provider lets this caller in not; what both sides say.
#[track_caller]
fn refused(caller: Setup, provider: &Sidecar, why: &str) {
    let caller = caller.peer(provider).start();
    let error = call(&caller, "org.example.ask").unwrap_err();
    assert!(error.contains(why), "the caller is not told: {error}");
    let peers = run_with(capctl(Some(&caller.socket)).args(["ls", "--peers"]), b"");
    assert!(stdout(&peers).contains(why), "{}", stdout(&peers));
    until("the provider says why", || provider.log().contains(why));
    let listed = run_with(capctl(Some(&provider.socket)).args(["ls", "--peers"]), b"");
    let is_told = stdout(&listed).lines().any(|line| line.contains(&caller.did) && line.contains(why));
    assert!(is_told, "{}", stdout(&listed));
}

#[test]
fn a_member_that_nobody_lists_is_let_in_and_serves_what_its_membership_says() {
    let cell = Cell::alone("test", 200);
    let provider = provider(&cell);
    let caller = cell
        .member(2, &["org.example.back"])
        .capabilities(&declaring("caller", &["back", "beyond"]))
        .peer(&provider)
        .start();
    assert_eq!(answered(&caller, "org.example.ask"), "provider");
    // The link is there by now; the provider lists nobody, and calls what the caller's membership covers.
    assert_eq!(answered(&provider, "org.example.back"), "caller");
    let error = call(&provider, "org.example.beyond").unwrap_err();
    assert!(error.contains("nor its membership allows it"), "{error}");
}

#[test]
fn a_membership_that_does_not_count_is_refused_with_the_reason_on_both_sides() {
    let cell = Cell::alone("test", 200);
    let provider = provider(&cell);
    let ended = Terms { from_s: -7_200, until_s: -3_600, ..Terms::default() };
    refused(cell.member_on(2, &ended), &provider, "the membership has ended");
    let early = Terms { from_s: 3_600, until_s: 7_200, ..Terms::default() };
    refused(cell.member_on(3, &early), &provider, "the membership has not begun");
    let other = Cell::alone("other", 200);
    refused(other.member(4, &[]), &provider, "the membership is of another cell");
    let forged = Cell::alone("test", 201);
    refused(forged.member(5, &[]), &provider, "the membership is not signed by the cell's authority");
    // One outside of any fleet shows none.
    let stranger = Setup::new().set("peer.admit", "listed").peer(&provider).start();
    let error = call(&stranger, "org.example.ask").unwrap_err();
    assert!(error.contains("does not list"), "{error}");
}

#[test]
fn a_sidecar_starts_without_its_etcd_and_says_what_is_missing() {
    let cell = Cell::alone("test", 200);
    let https = || cell.member(2, &[]).set("fleet.endpoints", "https://127.0.0.1:1");
    let said = https().refused_to_start();
    assert!(said.contains("fleet.tls_ca") && said.contains("is missing"), "{said}");
    let said = https().set("fleet.tls_ca", "/nowhere/ca.pem").refused_to_start();
    assert!(said.contains("[fleet]: /nowhere/ca.pem"), "{said}");
    // Nobody listens there.
    let sidecar = cell.member(2, &[]).set("fleet.endpoints", "http://127.0.0.1:1").start();
    until("etcd is missed", || {
        let output = run_with(capctl(Some(&sidecar.socket)).args(["fleet", "doctor"]), b"");
        exit_code(&output) == 5 && stdout(&output).contains("does not answer")
    });
}

#[test]
fn a_sidecar_does_not_start_with_the_membership_of_another_agent() {
    let cell = Cell::alone("test", 200);
    let other = Identity::from_seed([9; 32]);
    let said = cell.setup(2, &cell.membership(&other, &Terms::default())).refused_to_start();
    assert!(said.contains(&format!("it is the membership of {}", other.did())), "{said}");
    assert!(said.contains("capctl fleet admit did:key:"), "{said}");
}
