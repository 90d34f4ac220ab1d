//! Random operations in; claims that the ledger, the machines of a call, and two links do what naive models of them do.
//!
//! What fails is shrunk and printed as a test to paste into `regressions.rs`. Wrong ledgers are looked at as well, since
//! a check that finds nothing wrong with them would prove nothing.

mod calls;
mod ledger;
mod link;
mod naive_link;
mod oracle;
mod printed;
mod reference;
mod regressions;
mod sidecar;

use capd_proto::ledger::{Key, Ledger, Status};
use proptest::prelude::*;

use printed::{hold, look};
use sidecar::Fault;

#[test]
fn ledger_does_what_the_naive_one_does() {
    hold("ledger::check(&ops, ledger::untouched)", 1_000, 80, ledger_op(), |ops| {
        ledger::check(ops, ledger::untouched)
    });
}

#[test]
fn caller_and_executor_keep_to_one_result_over_a_bad_channel_and_crashes() {
    hold("calls::check(&ops, Fault::None)", 1_500, 60, call_op(), |ops| calls::check(ops, Fault::None));
}

#[test]
fn two_links_do_what_naive_ones_do() {
    hold("link::check(&ops)", 1_000, 60, link_op(), link::check);
}

/// A blind ledger, one that forgets running calls, and one that forgets finished ones before their time.
#[test]
fn wrong_ledgers_are_found_and_printed_as_a_test() {
    let wrong: [fn(&mut Ledger<u32>); 3] = [
        |ledger| ledger.set_blind(true),
        |ledger| {
            let mut running = ledger.list(None, None).filter(|call| call.status == Status::Executing);
            if let Some(key) = running.nth(1).map(|call| Key { from: call.from.clone(), id: call.id }) {
                drop(running);
                ledger.withdraw(&key);
            }
        },
        |ledger| {
            ledger.sweep(u64::MAX, &mut Vec::new());
        },
    ];
    for tamper in wrong {
        let found = look("ledger::check(&ops, ledger::untouched)", 1_000, 80, ledger_op(), |ops| {
            ledger::check(ops, tamper)
        });
        let test = found.expect_err("a wrong ledger is found out");
        assert!(test.contains("#[test]\nfn ledger_to_be_named() {\n    use ledger::Op::*;\n"), "{test}");
        assert!(
            test.contains("    ];\n    assert_eq!(ledger::check(&ops, ledger::untouched), Ok(()));\n}"),
            "{test}"
        );
        let ops = test.lines().filter(|line| line.starts_with("        ")).count();
        assert!((1..=10).contains(&ops), "it is shrunk: {test}");
    }
}

/// The duplicate check switched off, then the row that says `Executing`, then the caller's doubt in a late ERROR.
#[test]
fn faults_of_a_sidecar_are_found_and_printed_as_a_test() {
    for fault in [Fault::BlindLedger, Fault::NoExecutingRow, Fault::CredulousCaller] {
        let found =
            look("calls::check(&ops, Fault::None)", 4_000, 60, call_op(), |ops| calls::check(ops, fault));
        let test = found.expect_err("a fault is found out");
        let broken = [
            "was executed twice",
            "has a second result",
            "got its result, and then ERROR",
            "was executed, and its agent was told that it is refused",
            "was executed after its agent was told that it is refused",
        ];
        assert!(broken.iter().any(|promise| test.contains(promise)), "{test}");
        assert!(test.contains("#[test]\nfn calls_to_be_named() {\n    use calls::Op::*;\n"), "{test}");
        assert!(test.contains("        Call { idempotent: false, time_s: "), "{test}");
    }
}

fn ledger_op() -> impl Strategy<Value = ledger::Op> {
    use ledger::Op;
    let (peer, id) = (0..ledger::PEERS, 0..ledger::IDS);
    prop_oneof![
        12 => (peer.clone(), id.clone(), 0_u8..8, 0_u8..40, any::<bool>())
            .prop_map(|(peer, id, body, ttl_ms, idempotent)| Op::Admit { peer, id, body, ttl_ms, idempotent }),
        12 => (peer.clone(), id.clone(), 0_u8..24, any::<bool>(), any::<bool>()).prop_map(
            |(peer, id, bytes, by_sidecar, journaled)| Op::Finish { peer, id, bytes, by_sidecar, journaled }
        ),
        2 => (peer.clone(), id.clone()).prop_map(|(peer, id)| Op::Withdraw { peer, id }),
        3 => (peer.clone(), id.clone(), 0_u8..40)
            .prop_map(|(peer, id, ttl_ms)| Op::Release { peer, id, ttl_ms }),
        3 => (peer.clone(), id.clone(), any::<bool>())
            .prop_map(|(peer, id, fails)| Op::Bury { peer, id, fails }),
        1 => (peer.clone(), id.clone(), 0_u8..24, 0_u8..40)
            .prop_map(|(peer, id, bytes, ttl_ms)| Op::Restore { peer, id, bytes, ttl_ms }),
        1 => (peer, id, any::<bool>()).prop_map(|(peer, id, only)| Op::List { peer, id, only }),
        3 => Just(Op::Sweep),
        4 => (0_u8..20).prop_map(|ms| Op::Pass { ms }),
        1 => (0_u8..40).prop_map(|ms| Op::ClockBack { ms }),
        1 => Just(Op::Restart),
    ]
}

fn call_op() -> impl Strategy<Value = calls::Op> {
    use calls::Op;
    prop_oneof![
        3 => (any::<bool>(), 1_u8..30).prop_map(|(idempotent, time_s)| Op::Call { idempotent, time_s }),
        12 => any::<u8>().prop_map(|n| Op::Deliver { n }),
        2 => any::<u8>().prop_map(|n| Op::Lose { n }),
        4 => any::<u8>().prop_map(|n| Op::Duplicate { n }),
        3 => any::<u8>().prop_map(|n| Op::Again { n }),
        6 => (any::<u8>(), any::<bool>()).prop_map(|(n, error)| Op::Answer { n, error }),
        1 => (any::<u8>(), any::<bool>()).prop_map(|(n, another)| Op::Leave { n, another }),
        1 => any::<u8>().prop_map(|n| Op::Notice { n }),
        2 => Just(Op::Crash),
        2 => (0_u8..3).prop_map(|at| Op::Trap { at }),
        1 => Just(Op::Shutdown),
        1 => any::<bool>().prop_map(|up| Op::Link { up }),
        1 => any::<u8>().prop_map(|n| Op::Cancel { n }),
        1 => any::<bool>().prop_map(|full| Op::Disk { full }),
        1 => any::<bool>().prop_map(|closed| Op::Gate { closed }),
        4 => (0_u16..8_000).prop_map(|ms| Op::Pass { ms }),
        1 => (0_u8..60, any::<bool>()).prop_map(|(s, back)| Op::ClockJump { s, back }),
    ]
}

fn link_op() -> impl Strategy<Value = link::Op> {
    use link::Op;
    let side = any::<bool>();
    prop_oneof![
        12 => side.prop_map(|server| Op::Arrive { server }),
        4 => side.prop_map(|server| Op::Say { server }),
        2 => (side, any::<bool>()).prop_map(|(server, large)| Op::Ping { server, large }),
        1 => side.prop_map(|server| Op::Drain { server }),
        3 => (side, 0_u8..3).prop_map(|(server, calls)| Op::InFlight { server, calls }),
        2 => (0_u16..20_000).prop_map(|ms| Op::Pass { ms }),
        2 => side.prop_map(|server| Op::Wait { server }),
        1 => side.prop_map(|server| Op::Cut { server }),
        1 => (side, 0_u8..link::FRAMES).prop_map(|(server, frame)| Op::Forge { server, frame }),
    ]
}
