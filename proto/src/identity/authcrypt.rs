//! Seals and opens bodies between two X25519 keys: X25519-XSalsa20-Poly1305 (PROTOCOL 5).

use std::fmt;

use crypto_box::aead::AeadInPlace;
use crypto_box::{PublicKey as BoxKey, SalsaBox, SecretKey};
use thiserror::Error;
use zeroize::Zeroizing;

use super::key::{KEY_BYTES, KeyError};
use crate::limits::NONCE_BYTES;

/// Bytes of the Poly1305 tag before the ciphertext. **Source:** AMP 001 §8.5.2.
pub const TAG_BYTES: usize = 16;

/// A party's X25519 public key.
///
/// **Shape:** the u-coordinate, 32 bytes, little-endian. **Source:** RFC 7748 5, AMP 001 §8.5.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreementKey([u8; KEY_BYTES]);

impl AgreementKey {
    /// The key in its 32-byte encoding.
    ///
    /// **Errors:** a point of small order, with which everybody shares the same secret.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
        let mut reduced = bytes;
        // RFC 7748 5: the top bit is ignored.
        reduced[KEY_BYTES - 1] &= 0x7f;
        if SMALL_ORDER.contains(&reduced) { Err(KeyError::Weak) } else { Ok(Self(bytes)) }
    }

    /// The key of an Ed25519 point that is known not to have small order.
    pub(super) const fn of_point(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The 32-byte encoding.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A party's X25519 secret key; wiped on drop and never printed.
#[derive(Clone)]
pub struct AgreementSecret(Zeroizing<[u8; KEY_BYTES]>);

impl AgreementSecret {
    /// The key of 32 secret bytes, which are clamped when used.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The public half.
    pub fn public_key(&self) -> AgreementKey {
        AgreementKey(SecretKey::from_bytes(*self.0).public_key().to_bytes())
    }
}

impl fmt::Debug for AgreementSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgreementSecret(..)")
    }
}

/// The shared secret of two parties, which seals and opens payloads between them. Making one costs a key agreement, so
/// keep it.
pub struct Authcrypt(SalsaBox);

impl Authcrypt {
    /// The shared secret of our secret key and the other party's public key.
    pub fn new(ours: &AgreementSecret, theirs: &AgreementKey) -> Self {
        Self(SalsaBox::new(&BoxKey::from_bytes(theirs.0), &SecretKey::from_bytes(*ours.0)))
    }

    /// Appends the sealed `plaintext` to `out`; a nonce must never be used twice between the same two parties.
    ///
    /// **Shape:** sixteen bytes of tag, then as many bytes as the plaintext has. **Source:** AMP 001 §8.5.2.
    pub fn seal(&self, nonce: &[u8; NONCE_BYTES], plaintext: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + TAG_BYTES, 0);
        out.extend_from_slice(plaintext);
        let (tag_place, text) = out[start..].split_at_mut(TAG_BYTES);
        let tag = self
            .0
            .encrypt_in_place_detached(nonce.into(), b"", text)
            .expect("only associated data or more than 256 GiB make it fail");
        tag_place.copy_from_slice(&tag);
    }

    /// Appends the opened plaintext to `out`.
    ///
    /// **Errors:** 3001 UNAUTHORIZED, with no detail; `out` is then unchanged.
    pub fn open(
        &self,
        nonce: &[u8; NONCE_BYTES],
        sealed: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DecryptionFailed> {
        let (tag, ciphertext) = sealed.split_first_chunk::<TAG_BYTES>().ok_or(DecryptionFailed)?;
        let start = out.len();
        out.extend_from_slice(ciphertext);
        self.0.decrypt_in_place_detached(nonce.into(), b"", &mut out[start..], tag.into()).map_err(|_| {
            out.truncate(start);
            DecryptionFailed
        })
    }
}

impl fmt::Debug for Authcrypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authcrypt(..)")
    }
}

/// Sealed bytes that do not open with these keys and this nonce.
///
/// **Errors:** 3001 UNAUTHORIZED; the reason is never reported. **Source:** PROTOCOL 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("decryption failed")]
pub struct DecryptionFailed;

/// The u-coordinates of order 1, 2, 4 and 8 on the curve and its twist, with their spellings at and above the prime.
const SMALL_ORDER: [[u8; KEY_BYTES]; 7] = [
    [0; KEY_BYTES],
    small(1),
    [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda,
        0x09, 0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ],
    [
        0x5f, 0x9c, 0x95, 0xbc, 0xa3, 0x50, 0x8c, 0x24, 0xb1, 0xd0, 0xb1, 0x55, 0x9c, 0x83, 0xef, 0x5b, 0x04,
        0x44, 0x5c, 0xc4, 0x58, 0x1c, 0x8e, 0x86, 0xd8, 0x22, 0x4e, 0xdd, 0xd0, 0x9f, 0x11, 0x57,
    ],
    near_prime(0xec),
    near_prime(0xed),
    near_prime(0xee),
];

const fn small(u: u8) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes[0] = u;
    bytes
}

/// 2²⁵⁵ − 256 + `low`; the prime is 2²⁵⁵ − 19.
const fn near_prime(low: u8) -> [u8; KEY_BYTES] {
    let mut bytes = [0xff; KEY_BYTES];
    bytes[0] = low;
    bytes[KEY_BYTES - 1] = 0x7f;
    bytes
}
