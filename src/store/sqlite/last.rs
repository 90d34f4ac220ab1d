//! Detects a restored journal: compares the journal of a folder with the one it had last.
//!
//! A journal restored from a copy is intact, but it has forgotten calls. A separate file reveals this, because no copy
//! of the journal's own files replaces it. capd writes it after each commit, into the page cache only, and durably when
//! the journal is opened. After a power cut it may be behind the journal, never ahead of it.
//!
//! **Shape:** `"capdlast"`, the journal's id, the number of its last commit (`u64`, little-endian), the first eight
//! bytes of the SHA-256 of all three.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use capd_proto::ledger::JournalId;
use sha2::{Digest, Sha256};

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// There is no such file.
    Absent,
    /// Its content is not what was written.
    Damaged,
    /// The folder had this journal, with so many commits.
    Had { journal: JournalId, commits: u64 },
}

/// Why a journal may have forgotten calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forgotten {
    /// It is made anew, where there was another.
    Replaced,
    /// It is an older copy of what was there.
    Older,
    /// It is another one than was there.
    Other,
    /// Nothing says what was there.
    Untold,
}

/// The open file, for [`write`](LastFile::write).
#[derive(Debug)]
pub(super) struct LastFile(File);

impl Last {
    /// Reads the file at `path`. **Errors:** the system refuses; that there is none is no error.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Absent),
            other => other?,
        };
        let mut bytes = Vec::with_capacity(FILE_BYTES + 1);
        file.take(FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        let journal = bytes.get(8..24).and_then(JournalId::from_slice);
        let commits = bytes.get(24..32).and_then(|number| number.try_into().ok()).map(u64::from_le_bytes);
        let (Some(journal), Some(commits)) = (journal, commits) else { return Ok(Self::Damaged) };
        let is_sound = bytes == encode(journal, commits);
        Ok(if is_sound { Self::Had { journal, commits } } else { Self::Damaged })
    }

    /// What the journal `id` with so many `commits` may have forgotten; one without an id is of an earlier version.
    pub(super) fn forgotten_by(self, id: Option<JournalId>, commits: u64) -> Option<Forgotten> {
        let Some(id) = id else { return (self != Self::Absent).then_some(Forgotten::Other) };
        match self {
            // It was made just now.
            Self::Absent | Self::Damaged if commits == 0 => None,
            Self::Had { journal, .. } if commits == 0 && journal != id => Some(Forgotten::Replaced),
            Self::Absent | Self::Damaged => Some(Forgotten::Untold),
            Self::Had { journal, .. } if journal != id => Some(Forgotten::Other),
            Self::Had { commits: had, .. } => (commits < had).then_some(Forgotten::Older),
        }
    }
}

impl Forgotten {
    /// For the log.
    pub(super) const fn reason(self) -> &'static str {
        match self {
            Self::Replaced => "the journal is new, and this sidecar had another",
            Self::Older => "the journal is an older copy",
            Self::Other => "the journal is not the one that this sidecar had last",
            Self::Untold => "no file last-journal says whether the journal is an older copy",
        }
    }
}

impl LastFile {
    /// Opens the file at `path` for writing, and makes it when there is none.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(Self)
    }

    /// Replaces what it says, in place and without a sync.
    pub(super) fn write(&self, journal: JournalId, commits: u64) -> io::Result<()> {
        self.0.write_all_at(&encode(journal, commits), 0)
    }

    /// Replaces all that it holds, and waits until that is on disk.
    pub(super) fn write_durably(&self, journal: JournalId, commits: u64) -> io::Result<()> {
        self.0.set_len(FILE_BYTES as u64)?;
        self.write(journal, commits)?;
        self.0.sync_all()
    }
}

fn encode(journal: JournalId, commits: u64) -> [u8; FILE_BYTES] {
    let mut bytes = [0; FILE_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..24].copy_from_slice(&journal.0);
    bytes[24..32].copy_from_slice(&commits.to_le_bytes());
    let sum = Sha256::digest(&bytes[..32]);
    bytes[32..].copy_from_slice(&sum[..8]);
    bytes
}

const MAGIC: &[u8; 8] = b"capdlast";
/// Bytes of the file.
const FILE_BYTES: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: JournalId = JournalId([1; 16]);
    const OTHER: JournalId = JournalId([2; 16]);

    #[test]
    fn the_file_is_read_as_written_and_never_as_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("last-journal");
        assert_eq!(Last::read(&path).unwrap(), Last::Absent);
        let file = LastFile::open(&path).unwrap();
        file.write(OTHER, 7).unwrap();
        file.write(ONE, u64::MAX - 1).unwrap();
        let had = Last::Had { journal: ONE, commits: u64::MAX - 1 };
        assert_eq!(Last::read(&path).unwrap(), had);
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                std::fs::write(&path, &bad).unwrap();
                assert_eq!(Last::read(&path).unwrap(), Last::Damaged);
            }
            std::fs::write(&path, &good[..at]).unwrap();
            assert_eq!(Last::read(&path).unwrap(), Last::Damaged);
        }
        std::fs::write(&path, [&good[..], b"x"].concat()).unwrap();
        assert_eq!(Last::read(&path).unwrap(), Last::Damaged);
        file.write_durably(ONE, u64::MAX - 1).unwrap();
        assert_eq!(Last::read(&path).unwrap(), had);
    }

    #[test]
    fn a_journal_is_held_against_what_was_there() {
        let had = Last::Had { journal: ONE, commits: 5 };
        for (last, id, commits, forgotten) in [
            (had, Some(ONE), 5, None),
            // After a power cut the file may be behind.
            (had, Some(ONE), 6, None),
            (had, Some(ONE), 4, Some(Forgotten::Older)),
            (had, Some(OTHER), 9, Some(Forgotten::Other)),
            (had, Some(OTHER), 0, Some(Forgotten::Replaced)),
            (had, None, 9, Some(Forgotten::Other)),
            (Last::Absent, None, 9, None),
            (Last::Absent, Some(ONE), 0, None),
            (Last::Absent, Some(ONE), 1, Some(Forgotten::Untold)),
            (Last::Damaged, Some(ONE), 1, Some(Forgotten::Untold)),
            (Last::Damaged, Some(ONE), 0, None),
        ] {
            assert_eq!(last.forgotten_by(id, commits), forgotten, "{last:?} {id:?} {commits}");
        }
    }
}
