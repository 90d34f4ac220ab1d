//! Bytes in, read as a sequence of operations; the claim that the ledger does what a naive one does.
//!
//! The operations and the naive ledger are those of the model test, `proto/tests/model/`.

#[path = "../../proto/tests/model/ledger.rs"]
mod ledger;
#[path = "../../proto/tests/model/reference.rs"]
mod reference;

use ledger::Op;

/// Four bytes are an operation: which one and two flags, on whom, and two numbers.
pub(crate) fn run(bytes: &[u8]) {
    let ops: Vec<Op> =
        bytes.chunks_exact(4).take(OPS_MAX).map(|four| op(four[0], four[1], four[2], four[3])).collect();
    if let Err(difference) = ledger::check(&ops, ledger::untouched) {
        panic!("{difference}\n{ops:#?}");
    }
}

fn op(which: u8, whom: u8, first: u8, second: u8) -> Op {
    let (peer, id) = (whom >> 4, whom & 0xf);
    let (flag, other_flag) = (which & 0x80 != 0, which & 0x40 != 0);
    match which % 16 {
        0..=3 => Op::Admit { peer, id, body: first, ttl_ms: second, idempotent: flag },
        4 => Op::Release { peer, id, ttl_ms: second },
        5 => Op::Bury { peer, id, fails: flag },
        6 | 7 => Op::Finish { peer, id, bytes: first, by_sidecar: flag, journaled: other_flag },
        8 => Op::Withdraw { peer, id },
        9 => Op::Restore { peer, id, bytes: first, ttl_ms: second },
        10 => Op::List { peer, id, only: flag },
        11 | 12 => Op::Sweep,
        13 => Op::Pass { ms: first },
        14 => Op::ClockBack { ms: first },
        _ => Op::Restart,
    }
}

/// Enough to meet every bound many times, and few enough for the naive ledger.
const OPS_MAX: usize = 256;
