//! The 24 bytes that let one process at a time register for an agent.

use std::fmt;

use thiserror::Error;

use crate::ledger::JournalId;
use crate::limits::FENCE_BYTES;

/// Which process of an agent may register: the last one that started, by the journal it remembers calls in.
///
/// It stands in the registry without a lease. If it lapsed with one, a paused old process could come back.
///
/// **Shape:** incarnation, 8 bytes big-endian; journal id, 16 bytes. **Source:** FLEET 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence {
    /// Counts the starts of the agent's sidecar.
    pub incarnation: u64,
    /// The journal that the process remembers calls in.
    pub journal: JournalId,
}

impl Fence {
    /// Reads a value of the registry.
    ///
    /// **Errors:** any other length.
    pub fn decode(value: &[u8]) -> Result<Self, FenceError> {
        let wrong = || FenceError(value.len());
        let (incarnation, journal) = value.split_first_chunk::<8>().ok_or_else(wrong)?;
        let journal = JournalId::from_slice(journal).ok_or_else(wrong)?;
        Ok(Self { incarnation: u64::from_be_bytes(*incarnation), journal })
    }

    /// The value for the registry.
    pub fn encode(&self) -> [u8; FENCE_BYTES] {
        let mut value = [0; FENCE_BYTES];
        value[..8].copy_from_slice(&self.incarnation.to_be_bytes());
        value[8..].copy_from_slice(&self.journal.0);
        value
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "incarnation {}, journal {}", self.incarnation, self.journal)
    }
}

/// Bytes that are no fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a fence has {FENCE_BYTES} bytes, not {0}")]
pub struct FenceError(
    /// How many there are. **Units:** bytes.
    pub usize,
);
