//! Keeps the audit log: events in; one chained record each on disk, and pages of them, out.
//!
//! Read downwards: [`Audit::record`] queues a [`Record`], never waits and never fails. An [`AuditWriter`] passes what is
//! queued to an [`AuditStorage`], which appends each record to the [`chain`]. Records that could not be written are
//! [counted](AuditCounters), and the next written record says how many are missing before it.
//!
//! ```text
//! record ──► bounded queue ──► AuditWriter::batch ──► AuditStorage::append ──► audit.db
//! page, prune ─────┘                 └──► answer
//! ```
//!
//! In the daemon the handle is `account.audit`; `daemon/account/audit.rs` makes the records.

pub mod chain;
mod file;
mod log;
mod page;
mod place;
mod record;

use super::StoreError;
use chain::{Entry, Head};

pub use file::AuditFile;
pub use log::{Audit, AuditBatch, AuditCounters, AuditWriter, audit};
pub use page::{Filter, Page, Pruned, Query, page, prune};
pub use place::{AuditOptions, AuditPlace};
pub use record::{Finding, Kind, Record, short};

/// Stores the records: SQLite in the daemon, a simulated disk in the simulation.
pub trait AuditStorage: Send + 'static {
    /// Puts records, each in canonical form, behind the last one: all of them or none.
    ///
    /// **Errors:** none of them is there, as far as is known; later ones may succeed again.
    fn append(&mut self, records: &[String]) -> Result<(), StoreError>;

    /// The last record's place and hash.
    ///
    /// **Errors:** it cannot be read.
    fn head(&mut self) -> Result<Head, StoreError>;

    /// Entries behind the place `after`, in their order: at most `rows_max`, and no more once they have `bytes_max` bytes.
    ///
    /// **Errors:** they cannot be read.
    fn read(&mut self, after: u64, rows_max: usize, bytes_max: usize) -> Result<Vec<Entry>, StoreError>;

    /// How much of its bound is in use, in percent; 0 for one without a bound.
    ///
    /// **Errors:** it cannot be read.
    fn used_percent(&mut self) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Empties the entries of these places, both ends included, and appends the `note` that says so: both or neither.
    ///
    /// **Errors:** neither is done, as far as is known.
    fn erase(&mut self, places: &[(u64, u64)], note: &str) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests;
