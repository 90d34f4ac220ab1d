//! Defines the inputs of the ledger: a call, its outcome, and the bounds.

use crate::envelope::{Encoded, MessageId};
use crate::identity::Did;
use crate::limits::{
    LEDGER_CALLS_DEFAULT, LEDGER_CALLS_PER_PEER_DEFAULT, LEDGER_IDEMPOTENT_BYTES_DEFAULT,
    LEDGER_IDEMPOTENT_BYTES_PER_PEER_DEFAULT, LEDGER_KEPT_BYTES_DEFAULT, LEDGER_KEPT_BYTES_PER_PEER_DEFAULT,
};

/// The key of a call: its caller, and its invoke's id. **Source:** PROTOCOL 8.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The invoke's `from`.
    pub from: Did,
    /// The invoke's `id`.
    pub id: MessageId,
}

/// A digest of an invoke's body, to detect another body under the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BodyDigest(pub [u8; 32]);

/// An invoke that passed every check before that of capacity.
#[derive(Clone, Debug)]
pub struct Invoke {
    /// The call's key.
    pub key: Key,
    /// The digest of its body.
    pub body: BodyDigest,
    /// Its `ts + ttl`. **Units:** milliseconds since the Unix epoch.
    pub expires_at_ms: u64,
    /// Whether the capability is declared `idempotent: true`.
    pub idempotent: bool,
}

/// Where a call's recorded CAP_RESULT envelope is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In the ledger.
    Held(Encoded),
    /// In the journal. Other calls never displace such a call, idempotent or not.
    Journaled {
        /// The row in the journal.
        row: u64,
        /// The envelope's length. **Units:** bytes.
        bytes: usize,
    },
}

impl Kept {
    /// The envelope's length. **Units:** bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Held(envelope) => envelope.len(),
            Self::Journaled { bytes, .. } => *bytes,
        }
    }
}

/// The bounds of the ledger. **Units:** calls and bytes, as the names say.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Calls in all.
    pub calls_max: usize,
    /// Calls of one `from`.
    pub calls_per_peer_max: usize,
    /// Results of calls that are not idempotent, in all, wherever they are kept: beyond it, such calls are refused.
    /// Running calls may still exceed it, each by its result.
    pub kept_bytes_max: usize,
    /// The same, of one `from`.
    pub kept_bytes_per_peer_max: usize,
    /// Results of idempotent calls, in all: beyond it, the oldest are forgotten.
    pub idempotent_bytes_max: usize,
    /// The same, of one `from`.
    pub idempotent_bytes_per_peer_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls_max: LEDGER_CALLS_DEFAULT,
            calls_per_peer_max: LEDGER_CALLS_PER_PEER_DEFAULT,
            kept_bytes_max: LEDGER_KEPT_BYTES_DEFAULT,
            kept_bytes_per_peer_max: LEDGER_KEPT_BYTES_PER_PEER_DEFAULT,
            idempotent_bytes_max: LEDGER_IDEMPOTENT_BYTES_DEFAULT,
            idempotent_bytes_per_peer_max: LEDGER_IDEMPOTENT_BYTES_PER_PEER_DEFAULT,
        }
    }
}
