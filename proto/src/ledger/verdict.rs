//! Defines the answers of the ledger about an invoke, a result or a call.

use smallvec::SmallVec;

use super::Kept;

/// Those who wait for one call's result, oldest first: mostly one.
pub type Waiters<W> = SmallVec<[W; 1]>;

/// What to do with an invoke.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission<W> {
    /// Execute it; the waiter is kept until it finishes.
    New,
    /// It runs already; the waiter gets its result too.
    Attached {
        /// The oldest waiter, if there were too many.
        displaced: Option<W>,
    },
    /// It finished; its recorded CAP_RESULT is sent again, byte for byte.
    Replay {
        /// Where the recorded envelope is.
        kept: Kept,
        /// The waiter, back.
        waiter: W,
    },
    /// The id belongs to a call with another body: ERROR 4001.
    Conflict(W),
    /// Its `ts + ttl` is not after that of a call already forgotten, so it may be that call: ERROR 1003. It takes a
    /// clock that went back, or a `ts + ttl` that passed since it was checked.
    Forgotten(W),
    /// There is no room: ERROR 5004.
    Full {
        /// The bound that was met.
        bound: Bound,
        /// The waiter, back.
        waiter: W,
    },
}

/// Which of [`Limits`](super::Limits) was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Limits::calls_max`](super::Limits::calls_max).
    Calls,
    /// [`Limits::calls_per_peer_max`](super::Limits::calls_per_peer_max).
    PeerCalls,
    /// [`Limits::kept_bytes_max`](super::Limits::kept_bytes_max).
    KeptBytes,
    /// [`Limits::kept_bytes_per_peer_max`](super::Limits::kept_bytes_per_peer_max).
    PeerKeptBytes,
}

/// Who a result comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// The provider.
    Provider,
    /// This sidecar, in the provider's place: timeout, cancel, provider lost, shutdown.
    Sidecar,
}

/// What became of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Finish<W> {
    /// It is the call's one result; these wait for it, oldest first.
    Recorded(Waiters<W>),
    /// The sidecar had answered already: drop it and audit it; ERROR 4001 to the provider.
    Late,
    /// The provider had answered already: drop it and audit it; ERROR 4001 to the provider.
    Second,
    /// No such call, or one forgotten: drop it and audit it; ERROR 4001 to the provider.
    Unknown,
}

/// Where a call stands, for a cancel's answer and for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Never seen, or forgotten.
    Unknown,
    /// Admitted and not finished.
    Executing,
    /// Its result is recorded.
    Finished,
}
