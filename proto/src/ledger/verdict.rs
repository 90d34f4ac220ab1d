//! Defines the answers of the ledger about an invoke, a result or a call.

use smallvec::SmallVec;

use super::Kept;

/// The waiters of one call's result, oldest first; usually one.
pub type Waiters<W> = SmallVec<[W; 1]>;

/// What to do with an invoke.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission<W> {
    /// Execute it; the waiter is kept until it finishes.
    New,
    /// It already runs; the waiter also gets its result.
    Attached {
        /// The oldest waiter, if there were too many.
        displaced: Option<W>,
    },
    /// It finished; its recorded CAP_RESULT is sent again, byte for byte.
    Replay {
        /// Where the recorded envelope is.
        kept: Kept,
        /// The waiter, returned.
        waiter: W,
    },
    /// The id belongs to a call with another body: ERROR 4001.
    Conflict(W),
    /// It was released: its caller may have given it to another executor. ERROR 5002.
    Released(W),
    /// Its `ts + ttl` is not after that of a forgotten call, so it may be that call: ERROR 1003. This happens only if a
    /// clock went back, or if `ts + ttl` passed since the check.
    Forgotten(W),
    /// No capacity: ERROR 5004.
    Full {
        /// The bound that was reached.
        bound: Bound,
        /// The waiter, returned.
        waiter: W,
    },
}

/// What to do with a request to release a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Release<W> {
    /// The call was unknown. Make the tombstone durable; the asker is kept until then.
    New,
    /// The tombstone is being written; the asker is told with the others.
    Attached {
        /// The oldest asker, if there were too many.
        displaced: Option<W>,
    },
    /// The tombstone is durable.
    Released(W),
    /// The call was accepted: it runs, or has its result.
    Accepted(W),
    /// The call may be one that was accepted and forgotten: ERROR 1003.
    Forgotten(W),
    /// No capacity for the tombstone: ERROR 5004.
    Full {
        /// The bound that was reached.
        bound: Bound,
        /// The asker, returned.
        asker: W,
    },
}

/// The bound of [`Limits`](super::Limits) that was reached.
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

/// The source of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// The provider.
    Provider,
    /// This sidecar, in the provider's place: timeout, cancel, provider lost, shutdown.
    Sidecar,
}

/// The fate of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Finish<W> {
    /// It is the call's one result; these waiters get it, oldest first.
    Recorded(Waiters<W>),
    /// The sidecar had answered already: drop it and audit it; ERROR 4001 to the provider.
    Late,
    /// The provider had answered already: drop it and audit it; ERROR 4001 to the provider.
    Second,
    /// An unknown or forgotten call: drop it and audit it; ERROR 4001 to the provider.
    Unknown,
}

/// The state of a call, for a cancel's answer and for lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Never seen, or forgotten.
    Unknown,
    /// Admitted and not finished.
    Executing,
    /// Its result is recorded.
    Finished,
}
