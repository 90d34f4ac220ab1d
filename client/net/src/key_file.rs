//! Reads the identity's seed from its file, which the first start makes.
//!
//! **Shape:** 64 lowercase hexadecimal digits and a newline, mode 0600. The seed is the whole identity: the DID, the
//! envelope signatures and the TLS certificate all follow from it (PROTOCOL 2).

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use capd_proto::identity::Identity;

/// The 32 secret bytes an Ed25519 identity is made from; never printed.
///
/// **Shape:** an Ed25519 seed (RFC 8032 5.1.5). **Source:** PROTOCOL 2.
#[derive(Clone)]
pub struct Seed([u8; SEED_BYTES]);

impl Seed {
    /// A seed of these bytes.
    pub const fn new(bytes: [u8; SEED_BYTES]) -> Self {
        Self(bytes)
    }

    /// A fresh seed from the system's random source. **Errors:** the source is not available.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; SEED_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    /// The identity of this seed.
    pub fn identity(&self) -> Identity {
        Identity::from_seed(self.0)
    }

    /// The secret bytes, for the TLS key.
    pub(super) const fn expose(&self) -> &[u8; SEED_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(..)")
    }
}

/// Why a key file could not be read or made; each names the file, none quotes its content.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system refused.
    #[error("identity key {}: {action}: {source}", path.display())]
    Io {
        /// The key file.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Others than the owner may read or write the file.
    #[error("identity key {}: mode is {mode:03o}, and only its owner may read it (chmod 600)", path.display())]
    Exposed {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The content is not a seed.
    #[error("identity key {}: not 64 hexadecimal digits and a newline", path.display())]
    Malformed {
        /// The key file.
        path: PathBuf,
    },
}

/// Reads the seed at `path`; makes the file first if there is none. Two starts at once agree on one seed.
///
/// **Errors:** [`KeyFileError`]; an existing file is never replaced, however broken it is.
pub fn load_or_create(path: &Path) -> Result<Seed, KeyFileError> {
    match load(path) {
        Err(KeyFileError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    create(path)?;
    // Whoever linked the file first has decided the seed, so it is read back, not assumed.
    load(path)
}

/// Reads the seed at `path`. **Errors:** [`KeyFileError`].
pub fn load(path: &Path) -> Result<Seed, KeyFileError> {
    let failed = |action| move |source| KeyFileError::Io { path: path.to_owned(), action, source };
    let file = File::open(path).map_err(failed("open"))?;
    let mode = file.metadata().map_err(failed("stat"))?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = Vec::with_capacity(FILE_BYTES_MAX);
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut text).map_err(failed("read"))?;
    parse(&text).map(Seed).ok_or_else(|| KeyFileError::Malformed { path: path.to_owned() })
}

/// Writes a random seed beside `path`, then links it there: the name never shows a half-written file.
fn create(path: &Path) -> Result<(), KeyFileError> {
    let failed = |action| move |source| KeyFileError::Io { path: path.to_owned(), action, source };
    let seed = Seed::random().map_err(failed("draw a random seed"))?;
    let mut suffix = [0; 8];
    getrandom::fill(&mut suffix).map_err(|error| failed("draw a name")(io::Error::other(error)))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.tmp", u64::from_be_bytes(suffix)));
    let temporary = path.with_file_name(name);

    let written = write_new(&temporary, &seed);
    let linked = written.and_then(|()| match fs::hard_link(&temporary, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let removed = fs::remove_file(&temporary);
    linked.map_err(failed("create"))?;
    removed.map_err(failed("remove the temporary file"))?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed("sync its directory"))
}

fn write_new(path: &Path, seed: &Seed) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut text = String::with_capacity(FILE_BYTES_MAX);
    for byte in seed.expose() {
        text.push_str(&format!("{byte:02x}"));
    }
    text.push('\n');
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn parse(text: &[u8]) -> Option<[u8; SEED_BYTES]> {
    let digits = text.strip_suffix(b"\n").unwrap_or(text);
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let mut seed = [0; SEED_BYTES];
    if pairs.len() != seed.len() {
        return None;
    }
    for (byte, [high, low]) in seed.iter_mut().zip(pairs) {
        let digit = |character: u8| char::from(character).to_digit(16);
        *byte = u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()?;
    }
    Some(seed)
}

/// Bytes of a seed.
const SEED_BYTES: usize = 32;
/// Bytes of a whole key file.
const FILE_BYTES_MAX: usize = 2 * SEED_BYTES + 1;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn first_start_makes_a_private_file_and_the_second_reads_the_same_seed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.key");
        let first = load_or_create(&path).unwrap();
        let second = load_or_create(&path).unwrap();
        assert_eq!(first.expose(), second.expose());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&path).unwrap().len(), FILE_BYTES_MAX);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
        assert_eq!(format!("{first:?}"), "Seed(..)");
    }

    #[test]
    fn starts_at_once_agree_on_one_seed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.key");
        let seeds: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| load_or_create(&path).unwrap())).collect();
            threads.into_iter().map(|thread| *thread.join().unwrap().expose()).collect()
        });
        assert!(seeds.iter().all(|seed| seed == &seeds[0]));
    }

    #[test]
    fn a_file_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.key");
        load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = load_or_create(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::Exposed { mode: found, .. } if found == mode), "{error}");
        }
    }

    #[test]
    fn a_broken_file_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity.key");
        let good = "ab".repeat(32);
        for text in
            ["", "\n", &good[1..], &format!("{good}0"), &format!("{good}\n\n"), &good.replace('a', "g")]
        {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = load_or_create(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::Malformed { .. }), "{text:?}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = load_or_create(&dir.path().join("absent/identity.key")).unwrap_err();
        assert!(error.to_string().contains("absent/identity.key"), "{error}");
    }
}
