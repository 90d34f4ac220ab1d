//! The registry is locked, gone or empty: calls go on, and what was found stays found.

use std::fs;
use std::thread;

use rusqlite::Connection;

use crate::cell::{Cell, answered, call, declaring, slow, until};
use crate::support::{capctl, run_with, stdout};

#[test]
fn a_locked_registry_ends_no_call_and_is_used_again_when_it_is_free() {
    let cell = Cell::in_file();
    let provider = cell.member(1, &["org.example.*"]).capabilities(&slow()).start();
    let caller = cell.member(10, &[]).start();
    until("the provider is found", || call(&caller, "org.example.quick").is_ok());
    let locker = Connection::open(cell.file()).unwrap();
    thread::scope(|scope| {
        let in_flight = scope.spawn(|| answered(&caller, "org.example.slow"));
        Cell::until_executing(&provider);
        locker.execute_batch("BEGIN EXCLUSIVE").unwrap();
        assert_eq!(in_flight.join().unwrap(), "slow");
    });
    // Longer than a registration lives without renewal.
    Cell::until_registered(&provider, false);
    assert_eq!(answered(&caller, "org.example.quick"), "quick");
    locker.execute_batch("ROLLBACK").unwrap();
    Cell::until_registered(&provider, true);
    assert_eq!(answered(&caller, "org.example.quick"), "quick");
}

#[test]
fn a_removed_registry_ends_no_call_and_the_sidecars_meet_in_the_next_one() {
    let cell = Cell::in_file();
    let provider = cell.member(1, &["org.example.*"]).capabilities(&slow()).start();
    let caller = cell.member(10, &[]).start();
    until("the provider is found", || call(&caller, "org.example.quick").is_ok());
    thread::scope(|scope| {
        let in_flight = scope.spawn(|| answered(&caller, "org.example.slow"));
        Cell::until_executing(&provider);
        for suffix in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{suffix}", cell.file().display()));
        }
        assert_eq!(in_flight.join().unwrap(), "slow");
    });
    assert_eq!(answered(&caller, "org.example.quick"), "quick");
    let late = cell.member(2, &["org.example.*"]).capabilities(&declaring("late", &["late"])).start();
    until("both meet in the new file", || call(&caller, "org.example.late").is_ok());
    drop(late);
    let known = run_with(capctl(Some(&caller.socket)).args(["metrics"]), b"");
    assert!(stdout(&known).contains("capd_fleet_"), "{}", stdout(&known));
}

#[test]
fn a_sidecar_that_starts_without_a_usable_registry_says_why() {
    let cell = Cell::in_file();
    fs::write(cell.file(), "this is no registry, and longer than the header of one would have to be to pass")
        .unwrap();
    let said = cell.member(1, &[]).refused_to_start();
    assert!(said.contains("config key fleet.file") && said.contains("fleet.db"), "{said}");
}
