//! Sequences of operations worth keeping: those that failed once, as they were printed, and those chosen by hand.

use super::sidecar::Fault;
use super::{calls, ledger, link};

// What `wrong_ledgers_are_found_and_printed_as_a_test` prints for a blind ledger.
#[test]
fn ledger_knows_an_id_again_whatever_else_is_new_about_it() {
    use ledger::Op::*;
    let ops = [
        Admit { peer: 0, id: 0, body: 0, ttl_ms: 0, idempotent: false },
        Admit { peer: 0, id: 0, body: 0, ttl_ms: 0, idempotent: false },
    ];
    assert_eq!(ledger::check(&ops, ledger::untouched), Ok(()));
}

#[test]
fn ledger_refuses_what_may_be_forgotten_when_the_clock_goes_back() {
    use ledger::Op::*;
    let ops = [
        Admit { peer: 0, id: 0, body: 0, ttl_ms: 9, idempotent: false },
        Finish { peer: 0, id: 0, bytes: 3, by_sidecar: false, journaled: true },
        Pass { ms: 10 },
        Sweep,
        ClockBack { ms: 10 },
        Admit { peer: 0, id: 0, body: 0, ttl_ms: 9, idempotent: false },
        Admit { peer: 0, id: 1, body: 0, ttl_ms: 9, idempotent: true },
        Admit { peer: 0, id: 2, body: 0, ttl_ms: 10, idempotent: false },
    ];
    assert_eq!(ledger::check(&ops, ledger::untouched), Ok(()));
}

#[test]
fn ledger_keeps_the_first_row_of_a_tombstone_that_is_reported_twice() {
    use ledger::Op::*;
    let ops = [
        Release { peer: 1, id: 6, ttl_ms: 0 },
        Bury { peer: 1, id: 6, fails: false },
        Admit { peer: 0, id: 0, body: 0, ttl_ms: 0, idempotent: false },
        Bury { peer: 1, id: 6, fails: false },
        Pass { ms: 1 },
        Sweep,
    ];
    assert_eq!(ledger::check(&ops, ledger::untouched), Ok(()));
}

#[test]
fn ledger_restored_past_its_bounds_gives_way_only_where_it_may() {
    use ledger::Op::*;
    let ops = [
        Restore { peer: 0, id: 0, bytes: 9, ttl_ms: 30 },
        Restore { peer: 0, id: 1, bytes: 9, ttl_ms: 20 },
        Restore { peer: 0, id: 2, bytes: 9, ttl_ms: 10 },
        Restore { peer: 0, id: 2, bytes: 1, ttl_ms: 90 },
        Admit { peer: 1, id: 0, body: 0, ttl_ms: 9, idempotent: true },
        Finish { peer: 1, id: 0, bytes: 21, by_sidecar: true, journaled: false },
        Admit { peer: 0, id: 3, body: 0, ttl_ms: 9, idempotent: false },
        Restart,
        Pass { ms: 25 },
        Sweep,
        Admit { peer: 0, id: 3, body: 0, ttl_ms: 9, idempotent: false },
        List { peer: 0, id: 0, only: true },
    ];
    assert_eq!(ledger::check(&ops, ledger::untouched), Ok(()));
}

#[test]
fn call_whose_sidecar_crashed_before_the_result_was_on_disk_ends_as_unknown() {
    use calls::Op::*;
    let ops = [
        Call { idempotent: false, time_s: 20 },
        Duplicate { n: 0 },
        Deliver { n: 0 },
        Trap { at: 1 },
        Answer { n: 0, error: false },
        Deliver { n: 0 },
        Answer { n: 0, error: false },
        Deliver { n: 0 },
    ];
    assert_eq!(calls::check(&ops, Fault::None), Ok(()));
    assert!(calls::check(&ops, Fault::NoExecutingRow).is_err(), "without its row it is executed twice");
}

#[test]
fn result_that_was_on_disk_when_the_sidecar_crashed_is_the_call_s_result() {
    use calls::Op::*;
    let ops = [
        Call { idempotent: false, time_s: 20 },
        Deliver { n: 0 },
        Trap { at: 2 },
        Answer { n: 0, error: false },
        Again { n: 0 },
        Deliver { n: 0 },
        Lose { n: 0 },
        Crash,
        Again { n: 0 },
        Deliver { n: 0 },
        Deliver { n: 0 },
    ];
    assert_eq!(calls::check(&ops, Fault::None), Ok(()));
    assert!(calls::check(&ops, Fault::NoExecutingRow).is_err(), "without its row it is executed twice");
}

#[test]
fn call_refused_for_a_full_disk_is_tried_again_under_its_id() {
    use calls::Op::*;
    let ops = [
        Call { idempotent: false, time_s: 20 },
        Disk { full: true },
        Deliver { n: 0 },
        Deliver { n: 0 },
        Disk { full: false },
        Pass { ms: 1_000 },
        Deliver { n: 0 },
        Answer { n: 0, error: false },
        Deliver { n: 0 },
    ];
    assert_eq!(calls::check(&ops, Fault::None), Ok(()));
}

#[test]
fn cancel_that_crosses_the_result_changes_nothing() {
    use calls::Op::*;
    let ops = [
        Call { idempotent: false, time_s: 20 },
        Deliver { n: 0 },
        Answer { n: 0, error: false },
        Cancel { n: 0 },
        Deliver { n: 1 },
        Again { n: 0 },
        Deliver { n: 1 },
        Deliver { n: 0 },
    ];
    assert_eq!(calls::check(&ops, Fault::None), Ok(()));
}

#[test]
fn call_forgotten_before_the_clock_went_back_may_be_refused_for_any_reason() {
    use calls::Op::*;
    let ops = [
        Call { idempotent: false, time_s: 1 },
        Deliver { n: 0 },
        Answer { n: 0, error: false },
        Pass { ms: 3001 },
        ClockJump { s: 1, back: true },
        Again { n: 0 },
        Gate { closed: true },
        Deliver { n: 157 },
    ];
    assert_eq!(calls::check(&ops, Fault::None), Ok(()));
}

#[test]
fn message_that_crosses_goaway_still_arrives() {
    use link::Op::*;
    let ops = [
        Arrive { server: true },
        Arrive { server: false },
        Arrive { server: true },
        Arrive { server: false },
        InFlight { server: false, calls: 1 },
        Say { server: true },
        Drain { server: false },
        Arrive { server: false },
        Arrive { server: true },
        Say { server: true },
        InFlight { server: false, calls: 0 },
    ];
    assert_eq!(link::check(&ops), Ok(()));
}

#[test]
fn link_that_is_silent_while_it_opens_ends_on_both_sides() {
    use link::Op::*;
    let ops = [Arrive { server: true }, Wait { server: false }, Arrive { server: true }];
    assert_eq!(link::check(&ops), Ok(()));
}
