//! Makes keys: an Ed25519 identity and its `did:key` from a seed, a verifying key from a DID or bytes.

use std::fmt;

use aws_lc_rs::signature::Ed25519KeyPair;
use curve25519_dalek::edwards::EdwardsPoint;
use ed25519_dalek::{SigningKey, VerifyingKey};
use thiserror::Error;
use zeroize::Zeroizing;

use super::authcrypt::{AgreementKey, AgreementSecret};
use super::did::{Did, DidError};
use super::verify::{InvalidSignature, Verifier};
use crate::limits::SIGNATURE_BYTES;

/// Bytes of a seed, of an Ed25519 public key and of an X25519 key.
pub(super) const KEY_BYTES: usize = 32;

/// Multicodec prefix of an Ed25519 public key. **Source:** PROTOCOL 2.
const ED25519_CODEC: [u8; 2] = [0xed, 0x01];
/// Multicodec prefix of an X25519 public key.
const X25519_CODEC: [u8; 2] = [0xec, 0x01];
/// Characters of a multibase key: `z`, then 34 bytes in base58, whose first byte keeps the length at 47.
const MULTIBASE_BYTES_MAX: usize = 48;
const DID_KEY_PREFIX: &str = "did:key:";

/// An Ed25519 key pair and the DID that it represents. The key is wiped on drop and never printed.
///
/// Two libraries hold it. AWS-LC signs in half the time of dalek, with the same bytes, since an Ed25519 signature is a
/// function of key and message. dalek holds the key as a scalar for key agreement, and verifies.
pub struct Identity {
    signing: Ed25519KeyPair,
    key: SigningKey,
    did: Did,
}

impl Identity {
    /// The identity of a 32-byte seed; its DID is the key's `did:key`.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let seed = Zeroizing::new(seed);
        let key = SigningKey::from_bytes(&seed);
        let signing = Ed25519KeyPair::from_seed_unchecked(seed.as_slice()).expect("32 bytes are a seed");
        let did = did_key(key.verifying_key().as_bytes());
        Self { signing, key, did }
    }

    /// The same key for a DID of another method, whose document must name it.
    #[must_use]
    pub fn with_did(mut self, did: Did) -> Self {
        self.did = did;
        self
    }

    /// The DID that this identity writes into `from`.
    pub const fn did(&self) -> &Did {
        &self.did
    }

    /// The public half.
    pub fn public_key(&self) -> PublicKey {
        PublicKey { key: self.key.verifying_key() }
    }

    /// The Ed25519 signature of `message`.
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let signature = self.signing.sign(message);
        signature.as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }

    /// The X25519 secret that belongs to [`PublicKey::agreement_key`].
    pub fn agreement_secret(&self) -> AgreementSecret {
        AgreementSecret::from_bytes(self.key.to_scalar_bytes())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("did", &self.did).finish_non_exhaustive()
    }
}

/// An Ed25519 public key, decompressed once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
}

impl PublicKey {
    /// The key in its 32-byte encoding.
    ///
    /// **Errors:** bytes that are not the canonical encoding of a point, or a point of small order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| KeyError::NotAPoint)?;
        // Each key has one spelling, so that one party has one DID.
        if key.to_edwards().compress().as_bytes() != bytes {
            return Err(KeyError::NotAPoint);
        }
        if key.is_weak() {
            return Err(KeyError::Weak);
        }
        Ok(Self { key })
    }

    /// The key of a `did:key`; a fragment must name the same key.
    ///
    /// **Errors:** another method, or text that encodes no Ed25519 key. **Source:** PROTOCOL 2.
    pub fn from_did(did: &str) -> Result<Self, KeyError> {
        Did::check(did)?;
        let key = did.strip_prefix(DID_KEY_PREFIX).ok_or(KeyError::Method)?;
        let (key, fragment) = match key.split_once('#') {
            Some((key, fragment)) => (key, Some(fragment)),
            None => (key, None),
        };
        // AMP 001 8.9: a fragment means exactly that key.
        if fragment.is_some_and(|fragment| fragment != key) {
            return Err(KeyError::Fragment);
        }
        Self::from_multibase(key)
    }

    /// The key in multibase text: `z`, then base58btc over the multicodec prefix and the key.
    pub(super) fn from_multibase(text: &str) -> Result<Self, KeyError> {
        Self::from_bytes(&multibase_key(text, ED25519_CODEC)?)
    }

    /// The 32-byte encoding.
    pub fn as_bytes(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// The key's `did:key`.
    pub fn did(&self) -> Did {
        did_key(self.key.as_bytes())
    }

    /// Verifies a signature by RFC 8032's equation; both halves must be canonical, and neither R nor the key of small
    /// order.
    ///
    /// **Errors:** 1002 INVALID_SIGNATURE.
    pub fn verify(&self, message: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> Result<(), InvalidSignature> {
        let mut verifier = self.verifier(signature)?;
        verifier.update(message);
        verifier.finish()
    }

    /// As [`verify`](Self::verify), for a message that arrives in pieces.
    ///
    /// **Errors:** 1002 INVALID_SIGNATURE for bytes that cannot be a signature.
    pub fn verifier(&self, signature: &[u8; SIGNATURE_BYTES]) -> Result<Verifier, InvalidSignature> {
        Verifier::new(*self, signature)
    }

    pub(super) fn point(&self) -> EdwardsPoint {
        self.key.to_edwards()
    }

    /// The X25519 key of the same party: the image of this one under the birational map (RFC 7748 4.1).
    pub fn agreement_key(&self) -> AgreementKey {
        AgreementKey::of_point(self.key.to_montgomery().to_bytes())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.did())
    }
}

/// Text or bytes that are not an accepted key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Text that is not a DID.
    #[error(transparent)]
    Did(#[from] DidError),
    /// A DID that is not a `did:key`.
    #[error("DID is not a did:key")]
    Method,
    /// A fragment that names another key than the DID does.
    #[error("fragment names another key")]
    Fragment,
    /// Text that is not `z` and base58btc of a 34-byte multicodec key.
    #[error("not a multibase key")]
    Multibase,
    /// A key of another kind than requested.
    #[error("key of another kind")]
    Codec,
    /// Bytes that are not the encoding of a point on the curve.
    #[error("not the encoding of a point")]
    NotAPoint,
    /// A point of small order, for which anybody can sign or agree.
    #[error("point of small order")]
    Weak,
}

impl AgreementKey {
    pub(super) fn from_multibase(text: &str) -> Result<Self, KeyError> {
        Self::from_bytes(multibase_key(text, X25519_CODEC)?)
    }
}

/// The DID of a key in its 32-byte encoding, which is not checked: to decompress it takes many times as long.
pub(crate) fn did_key(public: &[u8; KEY_BYTES]) -> Did {
    let mut prefixed = [0; 2 + KEY_BYTES];
    prefixed[..2].copy_from_slice(&ED25519_CODEC);
    prefixed[2..].copy_from_slice(public);
    let mut text = String::with_capacity(DID_KEY_PREFIX.len() + MULTIBASE_BYTES_MAX);
    text.push_str(DID_KEY_PREFIX);
    text.push('z');
    text.push_str(&bs58::encode(prefixed).into_string());
    Did::trusted(text)
}

fn multibase_key(text: &str, codec: [u8; 2]) -> Result<[u8; KEY_BYTES], KeyError> {
    // Decoding base58 costs the square of its length, so the length is looked at first.
    if text.len() > MULTIBASE_BYTES_MAX {
        return Err(KeyError::Codec);
    }
    let text = text.strip_prefix('z').ok_or(KeyError::Multibase)?;
    let mut decoded = [0; MULTIBASE_BYTES_MAX];
    let decoded_bytes = bs58::decode(text).onto(&mut decoded[..]).map_err(|_| KeyError::Multibase)?;
    match decoded[..decoded_bytes].split_first_chunk::<2>() {
        Some((prefix, key)) if *prefix == codec => key.try_into().map_err(|_| KeyError::Multibase),
        Some(_) | None => Err(KeyError::Codec),
    }
}
