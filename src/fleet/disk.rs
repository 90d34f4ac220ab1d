//! Keeps what a later process of the sidecar begins with: its last incarnation, and what it knew of its fleet.
//!
//! | file in `agent.dir` | content |
//! |---|---|
//! | `fleet.incarnation` | the incarnation in decimal digits and a newline; written durably before the registry gets it |
//! | `fleet.cache` | magic, time, keys with their signed values, SHA-256 of all that; replaced as a whole |
//!
//! The cache is only a hint: every value in it is still signed, and checked like one from the registry. A cache that is
//! damaged is ignored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use capd_proto::capability::CapabilityName;
use capd_proto::fleet::{Cell, Key};
use sha2::{Digest as _, Sha256};

/// Where a sidecar keeps these files.
#[derive(Clone, Debug)]
pub enum Disk {
    /// In this folder.
    Folder(PathBuf),
    /// Nowhere; each start of the process is its first. The incarnation it begins with is given.
    Memory(u64),
}

/// What a former process knew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// When the revocations among it were last known to be complete. **Units:** milliseconds since 1970.
    pub saved_ms: u64,
    /// Keys and values.
    pub items: Vec<(String, Bytes)>,
}

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {action}: {source}", path.display())]
pub struct DiskError {
    /// The file.
    pub path: PathBuf,
    /// The attempted action.
    pub action: &'static str,
    /// What the system said.
    pub source: io::Error,
}

impl Disk {
    /// The last incarnation; 0 where there is none.
    ///
    /// **Errors:** the file cannot be read, or holds no number. Starting at 0 would be no harm: the registry knows better.
    pub fn incarnation(&self) -> Result<u64, DiskError> {
        let path = match self {
            Self::Folder(folder) => folder.join(INCARNATION_FILE),
            Self::Memory(incarnation) => return Ok(*incarnation),
        };
        let failed = |action, source| DiskError { path: path.clone(), action, source };
        let text = match read(&path, 32) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed("read", error)),
        };
        let text = std::str::from_utf8(&text).ok().and_then(|text| text.strip_suffix('\n'));
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| failed("read", io::Error::other("not a decimal number and a newline")))
    }

    /// Writes the incarnation; it is on disk when this returns.
    ///
    /// **Errors:** the system refuses.
    pub fn keep(&self, incarnation: u64) -> Result<(), DiskError> {
        match self {
            Self::Folder(folder) => {
                replace(&folder.join(INCARNATION_FILE), format!("{incarnation}\n").as_bytes())
            }
            Self::Memory(_) => Ok(()),
        }
    }

    /// The cache of a former process in the same cell; none where there is none, or a damaged one.
    ///
    /// **Errors:** the file cannot be read.
    pub fn cache(&self, cell: &Cell) -> Result<Option<Cache>, DiskError> {
        let Self::Folder(folder) = self else { return Ok(None) };
        let path = folder.join(CACHE_FILE);
        match read(&path, CACHE_BYTES_MAX) {
            Ok(bytes) => Ok(Cache::decode(&bytes).filter(|cache| cache.is_of(cell))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(DiskError { path, action: "read", source }),
        }
    }

    /// Replaces the cache.
    ///
    /// **Errors:** the system refuses.
    pub fn save(&self, cache: &Cache) -> Result<(), DiskError> {
        match self {
            Self::Folder(folder) => replace(&folder.join(CACHE_FILE), &cache.encode()),
            Self::Memory(_) => Ok(()),
        }
    }
}

impl Cache {
    /// **Shape:** magic, 8 bytes; `saved_ms`, 8 bytes big-endian; each item as the length of its key, 2 bytes, its key, the
    /// length of its value, 4 bytes, its value; SHA-256 of all before. What does not fit is left out.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.saved_ms.to_be_bytes());
        for (path, value) in &self.items {
            let (Ok(path_len), Ok(value_len)) = (u16::try_from(path.len()), u32::try_from(value.len()))
            else {
                continue;
            };
            if bytes.len() + path.len() + value.len() + 6 + HASH_BYTES > CACHE_BYTES_MAX {
                break;
            }
            bytes.extend(path_len.to_be_bytes());
            bytes.extend(path.as_bytes());
            bytes.extend(value_len.to_be_bytes());
            bytes.extend(value);
        }
        let hash = Sha256::digest(&bytes);
        bytes.extend(hash.as_slice());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH_BYTES)?)?;
        if Sha256::digest(bytes).as_slice() != hash {
            return None;
        }
        let rest = bytes.strip_prefix(MAGIC)?;
        let (saved_ms, mut rest) = rest.split_first_chunk::<8>()?;
        let mut items = Vec::new();
        while !rest.is_empty() {
            let (path_len, after) = rest.split_first_chunk::<2>()?;
            let (path, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*path_len)))?;
            let (value_len, after) = after.split_first_chunk::<4>()?;
            let value_len = usize::try_from(u32::from_be_bytes(*value_len)).ok()?;
            let (value, after) = after.split_at_checked(value_len)?;
            items.push((String::from_utf8(path.to_vec()).ok()?, Bytes::copy_from_slice(value)));
            rest = after;
        }
        Some(Self { saved_ms: u64::from_be_bytes(*saved_ms), items })
    }

    /// The revocations of one cell say nothing of another cell's.
    fn is_of(&self, cell: &Cell) -> bool {
        self.items.iter().all(|(path, _)| Key::parse(cell, path).is_ok())
    }

    /// The names of which it has registrations.
    pub(super) fn names(&self, cell: &Cell) -> std::collections::BTreeSet<CapabilityName> {
        let of = |path: &str| match Key::parse(cell, path) {
            Ok(Key::Registration { name, .. }) => Some(name),
            Ok(Key::Fence(_) | Key::Revocation(_)) | Err(_) => None,
        };
        self.items.iter().filter_map(|(path, _)| of(path)).collect()
    }
}

fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::other(format!("longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Writes beside the name and renames, so that the name never shows a part; durable when this returns.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let failed = |action| move |source| DiskError { path: path.to_owned(), action, source };
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(failed("write"))?;
    fs::rename(&temporary, path).map_err(failed("rename"))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync its folder"))
}

const INCARNATION_FILE: &str = "fleet.incarnation";
const CACHE_FILE: &str = "fleet.cache";
const MAGIC: &[u8; 8] = b"capdFLT1";
const HASH_BYTES: usize = 32;
/// The longest cache; ours: some twenty thousand registrations of the usual length.
const CACHE_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        "test".parse().unwrap()
    }

    fn cache() -> Cache {
        let agent = capd_proto::identity::Identity::from_seed([1; 32]).public_key().into();
        let path = Key::registration("org.example.a".parse().unwrap(), agent).path(&cell());
        let revoked = Key::Revocation(agent).path(&cell());
        let items = vec![(path, Bytes::from_static(b"value")), (revoked, Bytes::new())];
        Cache { saved_ms: 7, items }
    }

    #[test]
    fn a_cache_comes_back_as_it_was_saved_and_no_damaged_one_does() {
        let bytes = cache().encode();
        assert_eq!(Cache::decode(&bytes), Some(cache()));
        for length in 0..bytes.len() {
            assert_eq!(Cache::decode(&bytes[..length]), None, "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Cache::decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn files_are_replaced_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::Folder(folder.path().to_owned());
        assert_eq!(disk.incarnation().unwrap(), 0);
        assert_eq!(disk.cache(&cell()).unwrap(), None);
        for incarnation in [5, 6] {
            disk.keep(incarnation).unwrap();
            assert_eq!(disk.incarnation().unwrap(), incarnation);
        }
        disk.save(&Cache::default()).unwrap();
        disk.save(&cache()).unwrap();
        assert_eq!(disk.cache(&cell()).unwrap(), Some(cache()));
        assert_eq!(disk.cache(&"other".parse().unwrap()).unwrap(), None, "another cell's says nothing");
        fs::write(folder.path().join(INCARNATION_FILE), "7").unwrap();
        let error = disk.incarnation().unwrap_err().to_string();
        assert!(error.ends_with("fleet.incarnation: read: not a decimal number and a newline"), "{error}");
    }

    #[test]
    fn a_cache_has_a_bound() {
        let value = Bytes::from(vec![0; 1 << 20]);
        let items = (0..20).map(|number| (format!("{number}"), value.clone())).collect();
        let bytes = Cache { saved_ms: 1, items }.encode();
        assert!(bytes.len() <= CACHE_BYTES_MAX);
        assert_eq!(Cache::decode(&bytes).unwrap().items.len(), 15);
    }
}
