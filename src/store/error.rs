//! Classifies storage errors: an error from below in; a kind to act on, and a sentence for the owner's log, out.

use std::fmt;
use std::sync::Arc;

/// Why an operation of the store failed.
///
/// Its text names the file, so it is for the log and the terminal, never for the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    place: Arc<str>,
    what: Arc<str>,
    /// In place of what the kind says.
    remedy: Option<&'static str>,
}

/// The remedy for a [`StoreError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// Another process has the journal open.
    Locked,
    /// The disk is full, or a quota or a limit was reached.
    Full,
    /// The file, its folder or its file system may not be written.
    ReadOnly,
    /// The content is not what was acknowledged.
    Corrupt,
    /// The file is not a journal.
    Foreign,
    /// A later capd wrote it.
    Newer {
        /// The file's schema version.
        found: u32,
        /// The latest that this capd knows.
        known: u32,
    },
    /// There is no result in that row.
    Missing,
    /// The change contradicts the content: a row that is in use, or a result without its call. This is a bug of capd.
    Conflict,
    /// The writer has ended.
    Closed,
    /// The system refused for another reason.
    Io,
}

impl StoreError {
    /// An error of `kind` about the file `place`; `what` says briefly what was found or refused.
    pub fn new(kind: StoreErrorKind, place: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self { kind, place: place.to_string().into(), what: what.to_string().into(), remedy: None }
    }

    /// The same error with another remedy than its kind's.
    pub fn remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// What was found or refused, without the place.
    pub(super) fn what(&self) -> &str {
        &self.what
    }

    /// Its kind, which determines the remedy.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl StoreErrorKind {
    /// What its owner can do.
    fn remedy(self) -> &'static str {
        match self {
            Self::Locked => {
                "another process has it open: stop the other capd, or give each its own agent.dir"
            }
            Self::Full => "free space on its disk, or raise the quota; nothing that was acknowledged is lost",
            Self::ReadOnly => {
                "let capd's user write the file and its folder, or mount the file system writable"
            }
            Self::Corrupt => {
                "keep a copy of all journal files, then restore a backup of all of them, or move them away \
                 to start without memory of earlier calls"
            }
            Self::Foreign => "move that file away, or give capd another agent.dir",
            Self::Newer { .. } => "start the capd that wrote it, or a later one",
            Self::Missing => "the call may have expired",
            Self::Conflict => "this is a bug in capd: please report it",
            Self::Closed => "the store has been shut down",
            Self::Io => "check the system's log for disk errors",
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.what, self.remedy.unwrap_or_else(|| self.kind.remedy()))
    }
}

impl std::error::Error for StoreError {}
