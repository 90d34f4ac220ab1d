//! Writes a room's changes to disk, and reports the outcome of each under the room's own tag.
//!
//! The executor and the caller share one journal, and neither knows the other's tags: each holds its own [`Scribe`].
//! The worker that runs the journal knows all tags and returns each outcome to its room.

use capd_proto::code::Code;

use super::context::Refusal;
use crate::store::{Change, Counters, Journal, Refused, Row, Work};

/// The journal, as a room that tags its work with `T` uses it.
pub(in crate::daemon) trait Scribe<T>: Send + Sync {
    /// A row that nothing stands in yet.
    fn next_row(&self) -> Row;

    /// Queues work; never waits. Its outcome comes back with `tag`.
    ///
    /// **Errors:** why it is not taken.
    fn submit(&self, work: Work, tag: T) -> Result<(), Refused>;

    /// Drops the row of a call that was refused after all. A full queue leaves it to the next start.
    fn forget(&self, row: Row);

    /// Drops rows whose time has passed, the latest at `expires_at_ms`. A full queue leaves them to the next start.
    fn expire(&self, rows: Vec<Row>, expires_at_ms: u64);

    /// Takes off the disk what was forgotten. A full queue leaves it to the next time, which the next start is at the
    /// latest.
    fn tidy(&self);

    /// Has the writer look how much of the disk the journal takes. A full queue leaves it to the next time.
    fn measure(&self);

    /// What the journal's writer did so far.
    fn counters(&self) -> Counters;
}

/// The tags of all rooms.
pub(in crate::daemon) trait Tags: Send + 'static {
    /// The tag of work whose outcome no room waits for.
    fn untold() -> Self;
}

impl<T, A: Tags + From<T>> Scribe<T> for Journal<A> {
    fn next_row(&self) -> Row {
        Self::next_row(self)
    }

    fn submit(&self, work: Work, tag: T) -> Result<(), Refused> {
        Self::submit(self, work, A::from(tag)).map_err(|full| full.reason)
    }

    fn forget(&self, row: Row) {
        let _left = Self::submit(self, Work::Write(Change::Forget { row }), A::untold());
    }

    fn expire(&self, rows: Vec<Row>, expires_at_ms: u64) {
        for row in rows {
            let change = Change::Expire { row, expires_at_ms };
            if Self::submit(self, Work::Write(change), A::untold()).is_err() {
                return;
            }
        }
    }

    fn tidy(&self) {
        let _left = Self::submit(self, Work::Tidy, A::untold());
    }

    fn measure(&self) {
        let _left = Self::submit(self, Work::Measure, A::untold());
    }

    fn counters(&self) -> Counters {
        Self::counters(self)
    }
}

/// What a call is refused with whose row the journal does not take.
pub(in crate::daemon) fn untaken(reason: Refused) -> Refusal {
    let code = match reason {
        Refused::Full => Code::OVERLOADED,
        Refused::Closed => Code::UNAVAILABLE,
    };
    Refusal::new(code, "the journal accepts no more calls")
}

/// What a call is refused with whose row could not be written.
pub(in crate::daemon) fn unwritable() -> Refusal {
    Refusal::new(Code::UNAVAILABLE, "the journal cannot be written; the call was not executed")
}
