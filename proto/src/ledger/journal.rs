//! Identifies a journal, which is one memory of calls.

use std::fmt;

use crate::limits::JOURNAL_ID_BYTES;

/// The id of a journal: random bytes, made and stored with it. A peer that names another id than before has lost its
/// memory of calls. **Source:** PROTOCOL 8.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalId(pub [u8; JOURNAL_ID_BYTES]);

impl JournalId {
    /// The id of these bytes, if their number is right.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for JournalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JournalId({self})")
    }
}
