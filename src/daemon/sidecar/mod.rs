//! Messages and outcomes in; the room that each is for told.

mod dispatch;
mod request;
mod workers;

use super::journal::Tags;
use super::{caller, executor};

/// What a piece of the journal's work was for, in whichever room.
pub(in crate::daemon) enum Written {
    Executor(executor::Written),
    Caller(caller::Written),
    /// Rows that nobody needs any more.
    Forgotten,
}

impl From<executor::Written> for Written {
    fn from(tag: executor::Written) -> Self {
        Self::Executor(tag)
    }
}

impl From<caller::Written> for Written {
    fn from(tag: caller::Written) -> Self {
        Self::Caller(tag)
    }
}

impl Tags for Written {
    fn untold() -> Self {
        Self::Forgotten
    }
}
