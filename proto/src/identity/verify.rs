//! Verifies signatures, each by itself or several of one key together.

use std::sync::LazyLock;

use curve25519_dalek::constants::{ED25519_BASEPOINT_POINT, EIGHT_TORSION};
use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::VartimeMultiscalarMul;
use sha2::{Digest, Sha512};
use thiserror::Error;

use super::key::{KEY_BYTES, PublicKey};
use crate::limits::SIGNATURE_BYTES;

/// A signature that does not verify with the message and the key.
///
/// **Errors:** 1002 INVALID_SIGNATURE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("signature does not fit")]
pub struct InvalidSignature;

/// A signature whose message is being read, piece by piece.
pub struct Verifier {
    key: PublicKey,
    half: [u8; KEY_BYTES],
    scalar: Scalar,
    hash: Sha512,
}

impl Verifier {
    /// What [`PublicKey::verifier`] gives.
    ///
    /// **Errors:** 1002 INVALID_SIGNATURE for bytes that are no signature of any message.
    pub(super) fn new(key: PublicKey, signature: &[u8; SIGNATURE_BYTES]) -> Result<Self, InvalidSignature> {
        let (half, scalar) = signature.split_at(KEY_BYTES);
        let [half, scalar] =
            [half, scalar].map(|half| half.try_into().expect("a signature is two times 32 bytes"));
        let scalar = Scalar::from_canonical_bytes(scalar).into_option().ok_or(InvalidSignature)?;
        if is_refused(&half) {
            return Err(InvalidSignature);
        }
        let hash = Sha512::new().chain_update(half).chain_update(key.as_bytes());
        Ok(Self { key, half, scalar, hash })
    }

    /// The next piece of the message.
    pub fn update(&mut self, piece: &[u8]) {
        self.hash.update(piece);
    }

    /// Verifies the signature of the message read so far, as [`PublicKey::verify`] does.
    ///
    /// **Errors:** 1002 INVALID_SIGNATURE.
    pub fn finish(self) -> Result<(), InvalidSignature> {
        self.claim().check()
    }

    /// The signature and the hash of the message, to be checked later.
    pub fn claim(self) -> Claim {
        let challenge = Scalar::from_bytes_mod_order_wide(&self.hash.finalize().into());
        Claim { key: self.key, half: self.half, scalar: self.scalar, challenge }
    }
}

/// A signature whose message has been read; only the equation on the curve is left to check.
pub struct Claim {
    key: PublicKey,
    /// R: the encoding of a point.
    half: [u8; KEY_BYTES],
    /// S, canonical.
    scalar: Scalar,
    /// The hash of R, the key and the message.
    challenge: Scalar,
}

impl Claim {
    /// Verifies the signature: S is canonical, R is the canonical encoding of a point, neither R nor the key is of
    /// small order, and \[8\]\[S\]B = \[8\]R + \[8\]\[k\]A, which is RFC 8032's equation.
    ///
    /// The factor 8 removes components of small order. Only the holder of a key can make a signature with such a
    /// component, on purpose. Without the factor, the verdict on several of those would depend on which are checked
    /// together.
    ///
    /// **Errors:** 1002 INVALID_SIGNATURE. **Source:** RFC 8032 5.1.7.
    pub fn check(&self) -> Result<(), InvalidSignature> {
        let minus_key = -self.key.point();
        let point =
            EdwardsPoint::vartime_double_scalar_mul_basepoint(&self.challenge, &minus_key, &self.scalar);
        // R is not decompressed where it is that point, which would cost a fifth of the whole.
        if point.compress().0 == self.half || self.is_half_besides_small_order(&point) {
            Ok(())
        } else {
            Err(InvalidSignature)
        }
    }

    #[cold]
    fn is_half_besides_small_order(&self, point: &EdwardsPoint) -> bool {
        let half = CompressedEdwardsY(self.half).decompress();
        half.is_some_and(|half| (point - half).is_small_order())
    }

    /// The result of [`check`](Self::check) for each. Several of one key are checked together first, in half the time
    /// or less, and one by one only if that fails.
    ///
    /// The joint check verifies a sum of the equations, each multiplied by a random 128-bit number. An invalid
    /// signature passes it with probability 2⁻¹²⁸.
    pub fn check_all(claims: &[Self]) -> Vec<Result<(), InvalidSignature>> {
        if claims.len() > 1 && fit_together(claims) {
            return vec![Ok(()); claims.len()];
        }
        claims.iter().map(Self::check).collect()
    }
}

/// Whether `claims` are of one key and all fit.
fn fit_together(claims: &[Claim]) -> bool {
    let Some(Claim { key, .. }) = claims.first() else { return true };
    if claims.iter().any(|claim| claim.key != *key) {
        return false;
    }
    let factors = factors(claims);
    let (mut base, mut challenges) = (Scalar::ZERO, Scalar::ZERO);
    for (claim, factor) in claims.iter().zip(&factors) {
        base -= factor * claim.scalar;
        challenges += factor * claim.challenge;
    }
    // A factor stays half as long as other numbers are, and so costs half, because R is not subtracted but added.
    let scalars = factors.iter().copied().chain([challenges, base]);
    let halves = claims.iter().map(|claim| CompressedEdwardsY(claim.half).decompress());
    let points = halves.chain([Some(key.point()), Some(ED25519_BASEPOINT_POINT)]);
    // Numbers that are reduced by the order of the base point mean something else to a part of small order, of which eight
    // times the sum has none.
    EdwardsPoint::optional_multiscalar_mul(scalars, points).is_some_and(|sum| sum.is_small_order())
}

/// A number of 128 bits for each claim, which nobody knows before all claims are fixed: a hash of them.
fn factors(claims: &[Claim]) -> Vec<Scalar> {
    let mut transcript = Sha512::new().chain_update(b"capd: signatures together");
    for Claim { key, half, scalar, challenge } in claims {
        transcript.update(key.as_bytes());
        transcript.update(half);
        transcript.update(scalar.as_bytes());
        transcript.update(challenge.as_bytes());
    }
    let seed = transcript.finalize();
    let blocks = (0..claims.len().div_ceil(FACTORS_PER_HASH) as u64).map(|number| {
        let hash: [u8; 64] =
            Sha512::new().chain_update(seed).chain_update(number.to_le_bytes()).finalize().into();
        hash
    });
    let numbers = blocks.flat_map(|hash| {
        let (numbers, _) = hash.as_chunks::<FACTOR_BYTES>();
        <[[u8; FACTOR_BYTES]; FACTORS_PER_HASH]>::try_from(numbers).expect("a hash is four numbers")
    });
    numbers.map(|number| Scalar::from(u128::from_le_bytes(number))).take(claims.len()).collect()
}

/// Whether no signature fits that begins with these bytes: they encode no point canonically, or one of small order.
///
/// Two points have one y and opposite x, which the highest bit tells apart; they are of the same order. That bit has no
/// meaning where x is zero, which is so for two points of small order alone.
fn is_refused(half: &[u8; KEY_BYTES]) -> bool {
    let mut y = *half;
    y[KEY_BYTES - 1] &= 0x7f;
    // At or above the prime, 2²⁵⁵ - 19.
    let is_above =
        y[0] >= 0xed && y[1..KEY_BYTES - 1].iter().all(|byte| *byte == 0xff) && y[KEY_BYTES - 1] == 0x7f;
    is_above || SMALL_ORDER.contains(&y)
}

/// The y of each point of small order.
static SMALL_ORDER: LazyLock<[[u8; KEY_BYTES]; 8]> = LazyLock::new(|| {
    EIGHT_TORSION.map(|point| {
        let mut y = point.compress().0;
        y[KEY_BYTES - 1] &= 0x7f;
        y
    })
});

/// Bytes of the number that an equation is multiplied with.
const FACTOR_BYTES: usize = 16;
/// Such numbers in one hash.
const FACTORS_PER_HASH: usize = 4;

#[cfg(test)]
mod tests;
