//! Defines the inputs, outputs and outcomes of a call on the caller's side.

use crate::code::Code;

/// Which of a call's ids: 0 is the first; each retry under a new id adds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u32);

/// What happened to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The invoke asked for by [`Output::Send`] went out.
    Sent,
    /// PROCESSING, PROGRESS or INPUT_REQUIRED came.
    Notice {
        /// Whose `reply_to` it carries.
        generation: Generation,
    },
    /// CAP_RESULT came, checked.
    Result {
        /// Whose `reply_to` it carries.
        generation: Generation,
        /// The error's code, or `None` for success.
        error: Option<Code>,
        /// The pause that the error asks for, if it does. **Units:** milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// ERROR came, or the sidecar itself cannot send the call (no route, too large, no capacity).
    Error {
        /// Whose `reply_to` it carries.
        generation: Generation,
        /// What it says.
        error: Refused,
    },
    /// The link that the invoke went out on is gone.
    LinkLost,
    /// The agent cancels the call.
    Cancel,
    /// The executor does not know the call that [`Output::SendCancel`] named.
    CancelUnknown,
    /// The executor has not accepted the call that [`Output::AskRelease`] named, and refuses it from here on.
    Released,
    /// The executor has accepted that call, or nobody can say.
    Unreleased,
    /// The time that [`Caller::poll_timeout`](super::Caller::poll_timeout) named may have come.
    Timeout,
}

impl Input {
    /// Whether this input may begin a pause, the only case in which [`Caller::handle`](super::Caller::handle) needs
    /// randomness.
    pub const fn may_pause(&self) -> bool {
        match self {
            Self::Result { error: Some(_), .. } | Self::Error { .. } => true,
            Self::LinkLost | Self::Unreleased => true,
            Self::Result { error: None, .. } | Self::Sent | Self::Notice { .. } => false,
            Self::Cancel | Self::CancelUnknown | Self::Released | Self::Timeout => false,
        }
    }
}

/// What an ERROR says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its code.
    pub code: Code,
    /// Its `retry`, if it has one; else the code decides.
    pub retry: Option<bool>,
    /// The pause that it asks for, if it does. **Units:** milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Whether another executor could take the call at once.
    pub another: bool,
    /// Whether the executor has a durable tombstone in the call's place: no copy of it ran there, or will. **Source:**
    /// PROTOCOL 8.
    pub released: bool,
}

/// An action for the daemon, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send the invoke as soon as there is a link, then say [`Input::Sent`]. The id is the generation's; a new
    /// generation gets a new id.
    Send {
        /// Which id.
        generation: Generation,
        /// Which try, from 1.
        attempt: u32,
        /// Whether no executor has accepted the call, nor will any that had a copy of it: another may get it. **Source:**
        /// PROTOCOL 8.
        proven_unaccepted: bool,
    },
    /// As `Send`, to another executor than the one that has just refused the call. If none is left, to that one again.
    Move {
        /// Which id.
        generation: Generation,
    },
    /// Send REQUEST `release` for this id to the executor, then say [`Input::Released`] or [`Input::Unreleased`].
    AskRelease {
        /// Which id.
        generation: Generation,
    },
    /// Nothing to do until then; only for the log. **Units:** milliseconds.
    Pause {
        /// When the next try is made.
        until_ms: u64,
        /// Which id it will have.
        generation: Generation,
    },
    /// Pass the message just handled on to the agent.
    Relay,
    /// Send REQUEST `cancel` for this id (or reset its stream), if there is a link.
    SendCancel {
        /// Which id.
        generation: Generation,
    },
    /// Give the agent its one answer; the call is done.
    Deliver(Delivery),
    /// Drop the message just handled.
    Drop,
    /// Drop the CAP_RESULT just handled and answer it with ERROR 4001.
    RefuseResult,
}

/// The agent's one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The CAP_RESULT just handled.
    Result,
    /// The ERROR just handled: nothing was executed under the call's id, and nothing will be.
    Error,
    /// CAP_RESULT error 5902 in place of the ERROR just handled: an earlier copy may have been executed. **Source:**
    /// PROTOCOL 8.
    Unknown,
    /// An ERROR of this code from this sidecar: no copy left within the call's time.
    Refusal(Code),
    /// A CAP_RESULT error from this sidecar, because no other answer will come. 5003: the deadline passed without an
    /// answer. 2002: the links of an idempotent call kept breaking. 5902: they did so, or the deadline passed between
    /// two copies, and nobody knows whether the call took effect. 4901: the agent cancelled a call, and no executor can
    /// be asked about it.
    Own(Code),
}

/// How long a call may take. **Units:** milliseconds, on the clock of [`Caller::handle`](super::Caller::handle).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    /// No copy leaves at or after this moment: the call's deadline or its `ts + ttl`, whichever is first.
    pub ends_ms: u64,
    /// How long to wait after that for the answer to a sent copy, so that the executor's own timeout can arrive.
    pub grace_ms: u64,
}

impl Time {
    pub(super) const fn answered_by_ms(self) -> u64 {
        self.ends_ms.saturating_add(self.grace_ms)
    }
}
