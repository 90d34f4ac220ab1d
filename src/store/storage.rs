//! Defines what the [writer](super::Writer) needs of a disk: groups of changes in, durable rows out.

use std::path::Path;

use bytes::Bytes;

use capd_proto::ledger::JournalId;

use super::{Change, Loaded, Row, StoreError, StoreErrorKind};

/// Stores rows: SQLite in the daemon, a simulated disk in the simulation.
pub trait Storage {
    /// What names it. It stays the same for as long as nothing that was acknowledged has been lost.
    fn journal_id(&self) -> JournalId;

    /// Everything that is there, in the order of rows.
    ///
    /// **Errors:** the storage cannot be read, or what it holds is damaged.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Writes all of `batch` durably, in order.
    ///
    /// **Errors:** none of it is there, as far as is known; later commits may succeed again.
    fn commit(&mut self, batch: &[Change]) -> Result<(), StoreError>;

    /// A recorded result, byte for byte.
    ///
    /// **Errors:** there is none, it cannot be read, or it is not what was written.
    fn read(&mut self, row: Row) -> Result<Bytes, StoreError>;

    /// Takes off the disk what was forgotten before, as far as it still stands in places that nothing refers to.
    ///
    /// **Errors:** it may still be there; everything else is as it was.
    fn tidy(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// How much of the disk it takes; 0 where that is unknown. **Units:** bytes.
    fn bytes(&self) -> u64 {
        0
    }

    /// Copies everything into a new file, in steps. Between two steps `between` may use the storage: the copy has what
    /// stands when the last step is done.
    ///
    /// **Errors:** the file exists, it cannot be written, or this storage has no files.
    fn copy(&mut self, to: &Path, between: &mut dyn FnMut(&mut dyn Storage)) -> Result<(), StoreError> {
        let _unused = between;
        Err(StoreError::new(StoreErrorKind::Io, to.display(), "this storage has no file to copy"))
    }
}
