//! Records the number of the last acknowledged commit, to detect a journal that lost its tail.
//!
//! SQLite takes a damaged frame of its log for the end of the log, and silently drops the rest. The mark is written
//! after each commit and before its outcomes are reported, into the page cache only. It survives `kill -9`; after a
//! power cut it may be behind the log, never ahead of it.
//!
//! **Shape:** `"capdmark"`, the number (`u64`, little-endian), the first eight bytes of the SHA-256 of both.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use sha2::{Digest, Sha256};

/// What a mark file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    /// There is no such file.
    Absent,
    /// Its content is not a mark.
    Damaged,
    /// This many commits were acknowledged.
    At(u64),
}

/// The open file, for [`write`](MarkFile::write).
#[derive(Debug)]
pub(super) struct MarkFile(File);

impl Mark {
    /// Reads the file at `path`. **Errors:** the system refuses; that there is none is no error.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Absent),
            other => other?,
        };
        let mut bytes = Vec::with_capacity(MARK_BYTES + 1);
        file.take(MARK_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        let number = bytes.get(MAGIC.len()..MAGIC.len() + 8).and_then(|number| number.try_into().ok());
        let number = number.map(u64::from_le_bytes);
        Ok(number.filter(|number| bytes == encode(*number)).map_or(Self::Damaged, Self::At))
    }
}

impl MarkFile {
    /// Opens the file at `path` for writing, and makes it when there is none.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(Self)
    }

    /// Gives the file its right length, whatever it had.
    pub(super) fn trim(&self) -> io::Result<()> {
        self.0.set_len(MARK_BYTES as u64)
    }

    /// Replaces the number, in place and without a sync.
    pub(super) fn write(&self, number: u64) -> io::Result<()> {
        self.0.write_all_at(&encode(number), 0)
    }
}

fn encode(number: u64) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let sum = Sha256::digest(&bytes[..16]);
    bytes[16..].copy_from_slice(&sum[..8]);
    bytes
}

const MAGIC: &[u8; 8] = b"capdmark";
/// Bytes of the file.
const MARK_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_written_and_never_as_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.mark");
        assert_eq!(Mark::read(&path).unwrap(), Mark::Absent);
        let file = MarkFile::open(&path).unwrap();
        file.write(7).unwrap();
        file.write(u64::MAX - 1).unwrap();
        assert_eq!(Mark::read(&path).unwrap(), Mark::At(u64::MAX - 1));
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                std::fs::write(&path, &bad).unwrap();
                assert_eq!(Mark::read(&path).unwrap(), Mark::Damaged);
            }
            std::fs::write(&path, &good[..at]).unwrap();
            assert_eq!(Mark::read(&path).unwrap(), Mark::Damaged);
        }
        std::fs::write(&path, [&good[..], b"x"].concat()).unwrap();
        assert_eq!(Mark::read(&path).unwrap(), Mark::Damaged);
        file.trim().unwrap();
        assert_eq!(Mark::read(&path).unwrap(), Mark::At(u64::MAX - 1));
    }
}
