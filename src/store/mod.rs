//! Keeps begun calls, their results, given calls and reservations through any crash (PROTOCOL 8). The audit log is
//! separate, with its own file and writer: [`audit`].
//!
//! Read downwards: a [`Change`] is [submitted](Journal::submit) with a tag, the [`Writer`] groups queued changes and
//! hands them to a [`Storage`], and the tags return with their outcomes ([`Journal::completed`]). An outcome is
//! reported only after its change is durable, so its receiver may act on it.
//!
//! ```text
//! submit ──► bounded queue ──► Writer::batch ──► Storage::commit ──► completed
//!                                  ▲                   │
//!                                  └── what came in the meantime
//! ```

pub mod audit;
mod error;
mod journal;
mod medium;
mod migrations;
mod recover;
mod sqlite;
mod storage;
mod writer;

use std::sync::Arc;

use bytes::Bytes;

use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::{BodyDigest, JournalId, Key};

pub use error::{StoreError, StoreErrorKind};
pub use journal::{Counters, Desk, Done, Journal, Outcome, QueueFull, Refused, Work, journal};
pub use medium::{Folder, Medium};
pub use recover::{Recovered, recover};
pub use sqlite::{Options, Sqlite, Unused};
pub use storage::Storage;
pub use writer::{Batch, GROUP_CHANGES_MAX, Thread, Writer, spawn};

/// A row of the journal. Its number grows, and one [`Journal`] never uses it twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Row(pub u64);

/// One thing to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The call is about to go to its provider.
    Begin(Begun),
    /// Its one result.
    Finish {
        /// The row of its [`Begun`].
        row: Row,
        /// The CAP_RESULT's envelope, byte for byte.
        result: Bytes,
        /// When it finished. **Units:** milliseconds since the Unix epoch.
        finished_at_ms: u64,
    },
    /// Caller's side: the peer that gets a call, before it leaves.
    Give(Given),
    /// Caller's side: the peers that get calls of a capability, including those of a while ahead.
    Reserve {
        /// The reservation.
        reserved: Reserved,
        /// The row of the reservation that it replaces, in the same transaction.
        replaces: Option<Row>,
    },
    /// Caller's side: another peer gets the call, before it leaves again.
    Move {
        /// The peer that gets it.
        given: Given,
        /// The row of the [`Given`] that it takes the place of, in the same transaction.
        replaces: Row,
    },
    /// Executor's side: the call is refused from here on, before its caller hears of it.
    Release(Released),
    /// A key of this sidecar's agent for a call, before the call leaves.
    Key(Box<Keyed>),
    /// How the call of a key ended.
    Answer {
        /// The row of its [`Keyed`].
        row: Row,
        /// The answer for a repeated key.
        answer: Bytes,
    },
    /// This row is no longer needed: the admission was withdrawn, or a later row holds the call.
    Forget {
        /// The row of a [`Begun`], a [`Given`], a [`Reserved`], a [`Released`] or a [`Keyed`]; an absent one is no error.
        row: Row,
    },
    /// As `Forget`, because its time has passed. The store remembers the latest such time, since a clock may go back.
    Expire {
        /// The row of a [`Begun`], a [`Given`], a [`Reserved`] or a [`Released`]; an absent one is no error.
        row: Row,
        /// A `ts + ttl` that has passed, not before the row's own. **Units:** milliseconds since the Unix epoch.
        expires_at_ms: u64,
    },
}

/// A call that its provider may have seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its place.
    pub row: Row,
    /// Its key.
    pub key: Key,
    /// The digest of its body.
    pub body: BodyDigest,
    /// Its `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
    /// When it was begun. **Units:** milliseconds since the Unix epoch.
    pub started_at_ms: u64,
    /// The capability's id, for lists of calls; shared among its calls.
    pub capability: Arc<str>,
}

/// A call that was not accepted here and never will be: its caller may have given it to another sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// Its place.
    pub row: Row,
    /// The call's key.
    pub key: Key,
    /// The call's `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
}

/// A sidecar and its journal: with another journal it is another replica. **Source:** PROTOCOL 8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// The sidecar.
    pub peer: Did,
    /// Its journal; unknown for an older sidecar, which does not name it.
    pub journal: Option<JournalId>,
}

/// A call of this sidecar's agent, and the peer that got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its place.
    pub row: Row,
    /// The invoke's id.
    pub id: MessageId,
    /// The executor's sidecar.
    pub replica: Replica,
    /// The invoke's `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
    /// The sidecar that has released the call, so that it could go to this one. It is given there never again, and
    /// released nowhere else.
    pub released_by: Option<Did>,
}

/// A span of ids whose calls of one capability need no row of their own. Of two spans with the same id, the later row
/// counts; a [`Given`] overrides both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Its place.
    pub row: Row,
    /// The name of the capability.
    pub capability: Arc<str>,
    /// Ids with a later time than this. **Units:** milliseconds since the Unix epoch.
    pub after_ms: u64,
    /// Ids up to this time. **Units:** milliseconds since the Unix epoch.
    pub until_ms: u64,
    /// The executors' sidecars.
    pub replicas: Vec<Replica>,
    /// The latest `ts + ttl` that a call of the span may have. **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
}

/// An idempotency key of this sidecar's agent, and its call. **Source:** AGENT-API 3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// Its place.
    pub row: Row,
    /// The SHA-256 of the key.
    pub key: [u8; 32],
    /// The SHA-256 of the capability and the params.
    pub digest: [u8; 32],
    /// The invoke's id.
    pub id: MessageId,
    /// The other terms of the invoke, so that it can be repeated unchanged.
    pub terms: Bytes,
    /// The invoke's `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
}

/// A key from the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedKey {
    /// The key.
    pub keyed: Keyed,
    /// Whether its call is known to have ended.
    pub is_answered: bool,
}

/// The content of a journal when it was opened, in the order of rows, including expired rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Calls of other agents that were begun here.
    pub calls: Vec<LoadedCall>,
    /// Calls of this sidecar's agent that peers got.
    pub given: Vec<Given>,
    /// Reservations for further calls of this sidecar's agent.
    pub reserved: Vec<Reserved>,
    /// Calls of other agents that are refused.
    pub released: Vec<Released>,
    /// Keys of this sidecar's agent.
    pub keys: Vec<LoadedKey>,
    /// The latest `ts + ttl` of [expired](Change::Expire) rows, 0 if there were none. **Units:** milliseconds since the
    /// Unix epoch.
    pub expired_ms: u64,
}

/// A call from the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedCall {
    /// The call.
    pub begun: Begun,
    /// Its result, unless it was still executing.
    pub finished: Option<LoadedResult>,
}

/// A recorded result, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadedResult {
    /// Its length. **Units:** bytes.
    pub bytes: usize,
    /// When it was recorded. **Units:** milliseconds since the Unix epoch.
    pub finished_at_ms: u64,
}

impl Change {
    /// Its row.
    pub fn row(&self) -> Row {
        match self {
            Self::Begin(begun) => begun.row,
            Self::Give(given) | Self::Move { given, .. } => given.row,
            Self::Release(released) => released.row,
            Self::Reserve { reserved, .. } => reserved.row,
            Self::Key(keyed) => keyed.row,
            Self::Finish { row, .. }
            | Self::Answer { row, .. }
            | Self::Forget { row }
            | Self::Expire { row, .. } => *row,
        }
    }

    /// Whether it writes a row of its own, rather than adding to one or removing some.
    pub fn is_new(&self) -> bool {
        match self {
            Self::Begin(_) | Self::Give(_) | Self::Reserve { .. } | Self::Key(_) => true,
            Self::Move { .. } | Self::Release(_) => true,
            Self::Finish { .. } | Self::Answer { .. } | Self::Forget { .. } | Self::Expire { .. } => false,
        }
    }
}

impl Loaded {
    /// The first free row, for [`journal`].
    pub fn next_row(&self) -> Row {
        let calls = self.calls.iter().map(|call| call.begun.row);
        let given = self.given.iter().map(|given| given.row);
        let reserved = self.reserved.iter().map(|reserved| reserved.row);
        let released = self.released.iter().map(|released| released.row);
        let keys = self.keys.iter().map(|key| key.keyed.row);
        let all = calls.chain(given).chain(reserved).chain(released).chain(keys);
        Row(all.max().map_or(1, |Row(last)| last + 1))
    }
}

#[cfg(test)]
mod tests;
