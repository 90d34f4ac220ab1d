//! Finds the key that verifies a `from`, among `did:key`s and DID documents; caches a bounded number of decompressed
//! keys.

use std::collections::BTreeMap;

use super::authcrypt::AgreementKey;
use super::did::Did;
use super::document::DidDocument;
use super::key::PublicKey;

/// Finds the keys of DIDs: of a `did:key` from the DID itself, of other methods from documents.
#[derive(Debug)]
pub struct Keyring {
    documents: BTreeMap<Did, DidDocument>,
    recent: BTreeMap<Box<str>, PublicKey>,
    older: BTreeMap<Box<str>, PublicKey>,
    generation_keys_max: usize,
}

impl Keyring {
    /// A keyring without documents that caches at most `keys_max` decompressed keys.
    pub fn new(keys_max: usize) -> Self {
        Self {
            documents: BTreeMap::new(),
            recent: BTreeMap::new(),
            older: BTreeMap::new(),
            generation_keys_max: (keys_max / 2).max(1),
        }
    }

    /// Adds a document, or replaces the one of the same DID. A document for a `did:key` has no effect: the DID is the
    /// key.
    pub fn insert(&mut self, document: DidDocument) {
        self.documents.insert(document.did().clone(), document);
    }

    /// The key that verifies signatures of `from`.
    ///
    /// **Errors:** `None` means 3001 UNAUTHORIZED. **Source:** PROTOCOL 2, AMP 001 §8.9.
    pub fn resolve(&mut self, from: &str) -> Option<PublicKey> {
        if !is_did_key(from) {
            return self.documents.get(Did::bare_of(from))?.signing_key(from);
        }
        if let Some(key) = self.recent.get(from) {
            return Some(*key);
        }
        let key = match self.older.get(from) {
            Some(key) => *key,
            None => PublicKey::from_did(from).ok()?,
        };
        self.remember(from, key);
        Some(key)
    }

    /// The X25519 key to encrypt for `did`, or to open its messages.
    ///
    /// **Source:** AMP 001 §8.9; a `did:key` has the one that its Ed25519 key maps to.
    pub fn resolve_agreement(&mut self, did: &str) -> Option<AgreementKey> {
        if is_did_key(did) {
            return self.resolve(did).map(|key| key.agreement_key());
        }
        self.documents.get(Did::bare_of(did))?.agreement_key()
    }

    /// Two generations: the older one is dropped whole when the recent one is full, so the cost stays constant.
    fn remember(&mut self, from: &str, key: PublicKey) {
        if self.recent.len() >= self.generation_keys_max {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(from.into(), key);
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.recent.len() + self.older.len()
    }
}

fn is_did_key(did: &str) -> bool {
    did.starts_with("did:key:")
}
