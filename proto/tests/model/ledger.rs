//! Operations on a ledger in; where it does something else than the naive one, if anywhere, out.

use std::fmt::Debug;

use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::{Answerer, BodyDigest, Invoke, Kept, Key, Ledger, Limits, Release};

use super::reference::Reference;

/// What is done to both ledgers. Peers and ids are few, so that operations meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Admit {
        peer: u8,
        id: u8,
        body: u8,
        ttl_ms: u8,
        idempotent: bool,
    },
    Finish {
        peer: u8,
        id: u8,
        bytes: u8,
        by_sidecar: bool,
        journaled: bool,
    },
    Withdraw {
        peer: u8,
        id: u8,
    },
    /// A call's release is asked for.
    Release {
        peer: u8,
        id: u8,
        ttl_ms: u8,
    },
    /// The tombstone of a release is on disk, or cannot be written.
    Bury {
        peer: u8,
        id: u8,
        fails: bool,
    },
    Restore {
        peer: u8,
        id: u8,
        bytes: u8,
        ttl_ms: u8,
    },
    List {
        peer: u8,
        id: u8,
        only: bool,
    },
    Sweep,
    Pass {
        ms: u8,
    },
    ClockBack {
        ms: u8,
    },
    /// The memory is lost, and what stands in the journal restored.
    Restart,
}

/// Bounds low enough for a few operations to meet each of them.
pub(crate) const LIMITS: Limits = Limits {
    calls_max: 6,
    calls_per_peer_max: 4,
    kept_bytes_max: 30,
    kept_bytes_per_peer_max: 20,
    idempotent_bytes_max: 30,
    idempotent_bytes_per_peer_max: 20,
};
pub(crate) const PEERS: u8 = 3;
pub(crate) const IDS: u8 = 8;

/// Runs the operations on both ledgers; `tamper` has its way with the real one before each.
///
/// **Errors:** the operation after which they differ, and in what.
pub(crate) fn check(ops: &[Op], tamper: fn(&mut Ledger<u32>)) -> Result<(), String> {
    let mut both = Both {
        real: Ledger::new(LIMITS),
        naive: Reference::new(LIMITS),
        now_ms: START_MS,
        next_waiter: 0,
        next_row: 0,
    };
    for (index, &op) in ops.iter().enumerate() {
        tamper(&mut both.real);
        both.apply(op)
            .and_then(|()| both.compare())
            .map_err(|difference| format!("operation {index}, {op:?}: {difference}"))?;
    }
    Ok(())
}

/// What an honest check does to the real ledger.
pub(crate) fn untouched(_: &mut Ledger<u32>) {}

struct Both {
    real: Ledger<u32>,
    naive: Reference,
    now_ms: u64,
    next_waiter: u32,
    next_row: u64,
}

impl Both {
    fn apply(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Admit { peer, id, body, ttl_ms, idempotent } => {
                let invoke = Invoke {
                    key: key(peer, id),
                    // One copy in a few has another body.
                    body: BodyDigest([u8::from(body % 8 == 7); 32]),
                    expires_at_ms: self.now_ms + u64::from(ttl_ms),
                    idempotent,
                };
                self.next_waiter += 1;
                let waiter = self.next_waiter;
                same("admit", self.real.admit(invoke.clone(), waiter), self.naive.admit(invoke, waiter))
            }
            Op::Finish { peer, id, bytes, by_sidecar, journaled } => {
                let by = if by_sidecar { Answerer::Sidecar } else { Answerer::Provider };
                let kept = self.kept(bytes, journaled);
                let key = key(peer, id);
                same("finish", self.real.finish(&key, kept.clone(), by), self.naive.finish(&key, kept, by))
            }
            Op::Withdraw { peer, id } => {
                let key = key(peer, id);
                same(
                    "withdraw",
                    self.real.withdraw(&key).map(|waiters| waiters.into_vec()),
                    self.naive.withdraw(&key),
                )
            }
            Op::Release { peer, id, ttl_ms } => {
                self.next_waiter += 1;
                let (key, asker) = (key(peer, id), self.next_waiter);
                let expires_at_ms = self.now_ms + u64::from(ttl_ms);
                let real: Release<u32> = self.real.release(&key, expires_at_ms, asker);
                same("release", real, self.naive.release(&key, expires_at_ms, asker))
            }
            Op::Bury { peer, id, fails } => {
                let key = key(peer, id);
                self.next_row += 1;
                let row = self.next_row;
                let real = if fails { self.real.unreleased(&key) } else { self.real.released(&key, row) };
                same("askers", real.into_vec(), self.naive.bury(&key, (!fails).then_some(row)))
            }
            Op::Restore { peer, id, bytes, ttl_ms } => {
                let kept = self.kept(bytes, true);
                let invoke = Invoke {
                    key: key(peer, id),
                    body: BodyDigest([0; 32]),
                    expires_at_ms: self.now_ms + u64::from(ttl_ms),
                    idempotent: false,
                };
                self.restore(invoke, kept, Answerer::Provider)
            }
            Op::List { peer, id, only } => {
                let after = key(peer, id);
                let from = only.then(|| key(id, 0).from);
                let page: Vec<_> = self.real.list(Some(&after), from.as_ref()).take(2).collect();
                let mut naive = self.naive.list(Some(&after), from.as_ref());
                naive.truncate(2);
                same("a page", page, naive)
            }
            Op::Sweep => {
                let mut rows = Vec::new();
                let swept = self.real.sweep(self.now_ms, &mut rows);
                let (mut naive, naive_swept) = self.naive.sweep(self.now_ms);
                rows.sort_unstable();
                naive.sort_unstable();
                same("sweep", (rows, swept), (naive, naive_swept))
            }
            Op::Pass { ms } => {
                self.now_ms += u64::from(ms);
                Ok(())
            }
            Op::ClockBack { ms } => {
                self.now_ms -= u64::from(ms).min(self.now_ms);
                Ok(())
            }
            Op::Restart => self.restart(),
        }
    }

    fn restart(&mut self) -> Result<(), String> {
        let before = std::mem::replace(&mut self.naive, Reference::new(LIMITS));
        self.real = Ledger::new(LIMITS);
        for call in before.calls.into_iter().filter(|call| call.row().is_some()) {
            match (call.tombstone, call.result) {
                (Some(row), _) => {
                    let (key, expires_at_ms) = (call.invoke.key, call.invoke.expires_at_ms);
                    let naive = self.naive.restore_released(&key, row, expires_at_ms);
                    same("restore", self.real.restore_released(&key, row, expires_at_ms), naive)?;
                }
                (None, Some((kept, by, _))) => self.restore(call.invoke, kept, by)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn restore(&mut self, invoke: Invoke, kept: Kept, by: Answerer) -> Result<(), String> {
        let naive = self.naive.restore(invoke.clone(), kept.clone(), by);
        same("restore", self.real.restore(invoke, kept, by), naive)
    }

    fn kept(&mut self, bytes: u8, journaled: bool) -> Kept {
        let bytes = usize::from(bytes);
        self.next_row += 1;
        let row = self.next_row;
        if journaled {
            Kept::Journaled { row, bytes }
        } else {
            Kept::Held(vec![row.to_be_bytes()[7]; bytes].into())
        }
    }

    fn compare(&self) -> Result<(), String> {
        let (real, naive) = (&self.real, &self.naive);
        same("calls", real.calls(), naive.calls.len())?;
        same("bytes", real.bytes(), naive.bytes(true, None) + naive.bytes(false, None))?;
        same("the time to sweep", real.poll_timeout(), naive.poll_timeout())?;
        let list = naive.list(None, None);
        for id in 0..IDS {
            let of_id: Vec<_> = list.iter().filter(|call| call.id == key(0, id).id).copied().collect();
            same("the calls of an id", real.find(key(0, id).id).collect(), of_id)?;
            for peer in 0..PEERS {
                let key = key(peer, id);
                same("a status", real.status(&key), naive.status(&key))?;
                same("a release", real.is_released(&key), naive.is_released(&key))?;
            }
        }
        same("the list", real.list(None, None).collect(), list)?;
        Ok(())
    }
}

fn same<T: PartialEq + Debug>(what: &str, real: T, naive: T) -> Result<(), String> {
    if real == naive { Ok(()) } else { Err(format!("{what} is {real:?}, and was to be {naive:?}")) }
}

fn key(peer: u8, id: u8) -> Key {
    let from = Did::parse(&format!("did:example:{}", peer % PEERS)).expect("it is a DID");
    Key { from, id: MessageId([id % IDS; 16]) }
}

const START_MS: u64 = 1_000;
