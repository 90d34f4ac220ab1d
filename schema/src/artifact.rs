//! Keeps schema documents: verifies each against its content hash, and compiles each at most once.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ahash::HashMap;
use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::message::{ContentHash, HashAlg};
use thiserror::Error;

use super::validator::{CompileError, SCHEMA_BYTES_MAX, Validator};

/// Why a document is refused, or unusable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ArtifactError {
    /// The bytes do not match the hash.
    #[error("the bytes do not have the hash {0}")]
    Mismatch(ContentHash),
    /// The document is larger than a schema may be.
    #[error("{bytes} bytes; accepted: at most {SCHEMA_BYTES_MAX}")]
    TooLarge {
        /// Its size, in bytes.
        bytes: usize,
    },
    /// The document is missing.
    #[error("the bytes of {0} are not here")]
    Missing(ContentHash),
    /// Our own documents fill the store.
    #[error(
        "no capacity for another document: {bytes} of {bytes_max} bytes, {count} of {count_max} documents"
    )]
    Full {
        /// Bytes held.
        bytes: usize,
        /// Bytes that may be held.
        bytes_max: usize,
        /// Documents held.
        count: usize,
        /// Documents that may be held.
        count_max: usize,
    },
    /// The document is not an enforceable schema.
    #[error("{hash}: {error}")]
    Unusable {
        /// Which document.
        hash: ContentHash,
        /// What is wrong with it.
        error: CompileError,
    },
}

impl ArtifactError {
    /// The code of a call that needed the document. **Source:** PROTOCOL 7.2, 9.
    pub const fn code(&self) -> Code {
        match self {
            Self::Mismatch(_) | Self::TooLarge { .. } | Self::Missing(_) => Code::UNAVAILABLE,
            Self::Full { .. } => Code::OVERLOADED,
            Self::Unusable { .. } => Code::UNSUPPORTED_SCHEMA,
        }
    }
}

/// One document, verified.
#[derive(Debug)]
pub struct Artifact {
    hash: ContentHash,
    document: Bytes,
    compiled: OnceLock<Result<Validator, CompileError>>,
}

impl Artifact {
    /// The hash it is kept under.
    pub const fn hash(&self) -> &ContentHash {
        &self.hash
    }

    /// Its exact bytes.
    pub const fn document(&self) -> &Bytes {
        &self.document
    }

    /// Whether it was compiled, with or without success: compiling a large document takes milliseconds.
    pub fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }

    /// Its compiled form, made on first use.
    ///
    /// **Errors:** [`ArtifactError::Unusable`], the same each time.
    pub fn validator(&self) -> Result<&Validator, ArtifactError> {
        self.compiled
            .get_or_init(|| Validator::compile(&self.document))
            .as_ref()
            .map_err(|error| ArtifactError::Unusable { hash: self.hash, error: error.clone() })
    }
}

/// The origin of a document, which decides whether it may be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Declared or imported here; kept.
    Own,
    /// Fetched from a peer; the least recently used is dropped when capacity runs out.
    Cached,
}

/// Documents by content hash, within a bound of bytes and of count.
///
/// A document in use stays usable after the store dropped it: its users share it.
#[derive(Debug)]
pub struct Artifacts {
    bytes_max: usize,
    count_max: usize,
    shelf: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    slots: HashMap<ContentHash, Slot>,
    uris: HashMap<String, ContentHash>,
    bytes: usize,
    /// Counts the uses of cached documents.
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    artifact: Arc<Artifact>,
    /// When a cached document was last used, by the shelf's clock; `None` is kept.
    used: Option<u64>,
}

/// Longest URI that a document is imported under, in bytes.
const URI_BYTES_MAX: usize = 2_048;

impl Artifacts {
    /// Default bound of the bytes of all documents.
    pub const BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;
    /// Default bound of the number of documents.
    pub const COUNT_MAX_DEFAULT: usize = 4_096;

    /// An empty store of these bounds.
    pub fn new(bytes_max: usize, count_max: usize) -> Self {
        Self { bytes_max, count_max, shelf: Mutex::default() }
    }

    /// Keeps a document of this agent under its SHA-256.
    ///
    /// **Errors:** [`ArtifactError::TooLarge`], [`ArtifactError::Full`].
    pub fn declare(&self, document: impl Into<Bytes>) -> Result<Arc<Artifact>, ArtifactError> {
        let document = document.into();
        self.put(ContentHash::of(HashAlg::Sha256, &document), document, Keep::Own)
    }

    /// Keeps a document that was received for `hash`.
    ///
    /// **Errors:** [`ArtifactError::Mismatch`] if it is another document, and as [`Artifacts::declare`].
    pub fn insert(
        &self,
        hash: ContentHash,
        document: impl Into<Bytes>,
        keep: Keep,
    ) -> Result<Arc<Artifact>, ArtifactError> {
        let document = document.into();
        // Checked before hashing, so that nobody makes us hash more than a schema's size.
        if document.len() > SCHEMA_BYTES_MAX {
            return Err(ArtifactError::TooLarge { bytes: document.len() });
        }
        // PROTOCOL 7.2: the hash is checked before use.
        if !hash.fits(&document) {
            return Err(ArtifactError::Mismatch(hash));
        }
        self.put(hash, document, keep)
    }

    /// Keeps a document of this agent that descriptors name by a plain URL; a later import of the URI replaces it.
    ///
    /// **Errors:** as [`Artifacts::declare`].
    pub fn import(&self, uri: &str, document: impl Into<Bytes>) -> Result<Arc<Artifact>, ArtifactError> {
        if uri.len() > URI_BYTES_MAX {
            return Err(ArtifactError::TooLarge { bytes: uri.len() });
        }
        let artifact = self.declare(document)?;
        self.shelf().uris.insert(uri.to_owned(), artifact.hash);
        Ok(artifact)
    }

    /// Lets a document of this agent be dropped when capacity runs out: it is declared no more.
    pub fn release(&self, hash: &ContentHash) {
        let mut shelf = self.shelf();
        shelf.clock += 1;
        let clock = shelf.clock;
        if let Some(slot) = shelf.slots.get_mut(hash) {
            slot.used.get_or_insert(clock);
        }
    }

    /// The document of this hash, if it is here.
    pub fn find(&self, hash: &ContentHash) -> Option<Arc<Artifact>> {
        self.shelf().touch(hash)
    }

    /// The document imported under `uri`, if any. Nothing is ever fetched. **Source:** PROTOCOL 7.2.
    pub fn find_uri(&self, uri: &str) -> Option<Arc<Artifact>> {
        let mut shelf = self.shelf();
        let hash = *shelf.uris.get(uri)?;
        shelf.touch(&hash)
    }

    /// The document of this hash.
    ///
    /// **Errors:** [`ArtifactError::Missing`].
    pub fn need(&self, hash: &ContentHash) -> Result<Arc<Artifact>, ArtifactError> {
        self.find(hash).ok_or(ArtifactError::Missing(*hash))
    }

    fn put(&self, hash: ContentHash, document: Bytes, keep: Keep) -> Result<Arc<Artifact>, ArtifactError> {
        if document.len() > SCHEMA_BYTES_MAX {
            return Err(ArtifactError::TooLarge { bytes: document.len() });
        }
        let mut shelf = self.shelf();
        if let Some(artifact) = shelf.touch(&hash) {
            if keep == Keep::Own {
                shelf.pin(&hash);
            }
            return Ok(artifact);
        }
        let has_room = |shelf: &Shelf| {
            shelf.bytes + document.len() <= self.bytes_max && shelf.slots.len() < self.count_max
        };
        shelf.forget_until(has_room);
        if !has_room(&shelf) {
            return Err(ArtifactError::Full {
                bytes: shelf.bytes,
                bytes_max: self.bytes_max,
                count: shelf.slots.len(),
                count_max: self.count_max,
            });
        }
        // The store's own copy: the bytes may be a slice of a far larger frame.
        let document = Bytes::copy_from_slice(&document);
        Ok(shelf.add(Artifact { hash, document, compiled: OnceLock::new() }, keep))
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // No step below leaves the shelf half changed, so a panic elsewhere does not spoil it.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Artifacts {
    fn default() -> Self {
        Self::new(Self::BYTES_MAX_DEFAULT, Self::COUNT_MAX_DEFAULT)
    }
}

impl Shelf {
    fn add(&mut self, artifact: Artifact, keep: Keep) -> Arc<Artifact> {
        let artifact = Arc::new(artifact);
        self.clock += 1;
        let used = match keep {
            Keep::Own => None,
            Keep::Cached => Some(self.clock),
        };
        self.bytes += artifact.document.len();
        self.slots.insert(artifact.hash, Slot { artifact: Arc::clone(&artifact), used });
        artifact
    }

    fn touch(&mut self, hash: &ContentHash) -> Option<Arc<Artifact>> {
        let slot = self.slots.get_mut(hash)?;
        if let Some(used) = &mut slot.used {
            self.clock += 1;
            *used = self.clock;
        }
        Some(Arc::clone(&slot.artifact))
    }

    fn pin(&mut self, hash: &ContentHash) {
        if let Some(slot) = self.slots.get_mut(hash) {
            slot.used = None;
        }
    }

    /// Lets cached documents go, the longest unused first, until there is enough room or there are none.
    fn forget_until(&mut self, has_room: impl Fn(&Self) -> bool) {
        if has_room(self) {
            return;
        }
        // Every call uses documents and few are ever forgotten, so it is here that they are put in order.
        let used = |(hash, slot): (&ContentHash, &Slot)| slot.used.map(|used| (used, *hash));
        let mut cached: Vec<_> = self.slots.iter().filter_map(used).collect();
        cached.sort_unstable();
        for (_, hash) in cached {
            if has_room(self) {
                return;
            }
            if let Some(slot) = self.slots.remove(&hash) {
                self.bytes -= slot.artifact.document.len();
            }
        }
    }
}
