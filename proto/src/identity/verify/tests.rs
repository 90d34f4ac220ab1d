use ed25519_dalek::{Signature, Verifier as _, VerifyingKey};

use super::*;
use crate::identity::Identity;

type Signed = ([u8; SIGNATURE_BYTES], Vec<u8>);

fn claim(key: &PublicKey, (signature, message): &Signed) -> Claim {
    let mut verifier = key.verifier(signature).unwrap();
    verifier.update(message);
    verifier.claim()
}

fn signed(identity: &Identity, number: u8) -> Signed {
    let message = vec![number; 3 * usize::from(number)];
    (identity.sign(&message), message)
}

fn dalek(key: [u8; 32], (signature, message): &Signed) -> [Result<(), InvalidSignature>; 2] {
    let (key, signature) = (VerifyingKey::from_bytes(&key).unwrap(), Signature::from_bytes(signature));
    [key.verify_strict(message, &signature), key.verify(message, &signature)]
        .map(|fits| fits.map_err(|_| InvalidSignature))
}

/// A signature under the key `secret` times the base point plus one of small order, whose R has such a part as well: only
/// who holds the key can make it.
fn crafted(secret: Scalar, key: [u8; 32], nonce: Scalar, part: usize, message: u8) -> Signed {
    let half = (EdwardsPoint::mul_base(&nonce) + EIGHT_TORSION[part]).compress().0;
    let hash = Sha512::new().chain_update(half).chain_update(key).chain_update([message]).finalize();
    let challenge = Scalar::from_bytes_mod_order_wide(&hash.into());
    let mut signature = [0; SIGNATURE_BYTES];
    signature[..32].copy_from_slice(&half);
    signature[32..].copy_from_slice((nonce + challenge * secret).as_bytes());
    (signature, vec![message])
}

/// Whether the equation holds as RFC 8032 5.1.7 has it, times eight, and neither R nor the key is of small order.
fn rfc_8032(key: [u8; 32], (signature, message): &Signed) -> Result<(), InvalidSignature> {
    let [half, scalar] = [0, 32].map(|at| <[u8; 32]>::try_from(&signature[at..at + 32]).unwrap());
    let hash = Sha512::new().chain_update(half).chain_update(key).chain_update(message).finalize();
    let challenge = Scalar::from_bytes_mod_order_wide(&hash.into());
    let [key, half] = [key, half].map(|point| CompressedEdwardsY(point).decompress().unwrap());
    let scalar = Scalar::from_canonical_bytes(scalar).unwrap();
    let both = (half + challenge * key).mul_by_cofactor();
    let fits = EdwardsPoint::mul_base(&scalar).mul_by_cofactor() == both;
    if fits && !half.is_small_order() && !key.is_small_order() { Ok(()) } else { Err(InvalidSignature) }
}

#[test]
fn crafted_signature_fits_as_rfc_8032_has_it_alone_and_among_others() {
    let (secret, nonce) = (Scalar::from(0x5eed_u64), Scalar::from(0xace_u64));
    let mut counts = [0; 3];
    for (key_part, torsion) in EIGHT_TORSION.into_iter().enumerate() {
        let bytes = (EdwardsPoint::mul_base(&secret) + torsion).compress().0;
        let key = PublicKey::from_bytes(&bytes).unwrap();
        let mut all: Vec<Signed> = [nonce, Scalar::ZERO]
            .into_iter()
            .flat_map(|nonce| (0..8).flat_map(move |part| (0..16).map(move |message| (nonce, part, message))))
            .map(|(nonce, part, message)| crafted(secret, bytes, nonce, part, message))
            .collect();
        // And of another message each.
        all.extend(
            all.clone()
                .into_iter()
                .take(16)
                .map(|(signature, message)| (signature, [message, vec![0]].concat())),
        );
        let fitting: Vec<&Signed> = all.iter().filter(|signed| dalek(bytes, signed)[0].is_ok()).collect();
        for signed in &all {
            let [strict, lax] = dalek(bytes, signed);
            let fits = rfc_8032(bytes, signed);
            assert_eq!(key.verify(&signed.1, &signed.0), fits, "{key_part} {signed:?}");
            // Whatever another one takes strictly is taken.
            assert!(strict.is_err() || fits.is_ok(), "{key_part} {signed:?}");
            counts[match (fits, lax) {
                (Ok(()), _) => 0,
                (Err(_), Ok(())) => 1,
                (Err(_), Err(_)) => 2,
            }] += 1;
            // R of small order makes no claim at all.
            if key.verifier(&signed.0).is_ok() {
                let claims = [fitting[0], signed, fitting[1]].map(|signed| claim(&key, signed));
                assert_eq!(fit_together(&claims), fits.is_ok(), "{key_part} {signed:?}");
                assert_eq!(Claim::check_all(&claims), [Ok(()), fits, Ok(())], "{key_part} {signed:?}");
            }
        }
    }
    // Each kind is there: those that fit, those that only their R of small order keeps out, those that do not fit.
    assert!(counts.iter().all(|count| *count >= 100), "{counts:?}");
}

/// Two parts of order two make up for each other in any sum of odd multiples, so that such a pair passed together and was
/// refused alone: whether a message was taken hung on where a stream had been cut.
#[test]
fn messages_are_taken_and_refused_alike_however_they_are_cut() {
    let (secret, nonce) = (Scalar::from(0x5eed_u64), Scalar::from(0xace_u64));
    for key_part in [0, 4, 1] {
        let bytes = (EdwardsPoint::mul_base(&secret) + EIGHT_TORSION[key_part]).compress().0;
        let key = PublicKey::from_bytes(&bytes).unwrap();
        let mut all: Vec<Signed> = [4, 4, 2, 6, 1, 7, 0, 4]
            .into_iter()
            .enumerate()
            .map(|(number, part)| crafted(secret, bytes, nonce, part, number as u8))
            .collect();
        // One that nobody takes.
        all[6].1.push(0);
        let alone: Vec<_> = all.iter().map(|signed| key.verify(&signed.1, &signed.0)).collect();
        assert!(alone[6].is_err());
        for cuts in 0..1_u32 << (all.len() - 1) {
            let mut verdicts = Vec::new();
            let mut begun = 0;
            for end in 1..=all.len() {
                if end == all.len() || cuts >> (end - 1) & 1 == 1 {
                    let claims: Vec<_> = all[begun..end].iter().map(|signed| claim(&key, signed)).collect();
                    verdicts.extend(Claim::check_all(&claims));
                    begun = end;
                }
            }
            assert_eq!(verdicts, alone, "{key_part}, cut at {cuts:b}");
        }
    }
}

#[test]
fn exactly_the_signatures_that_do_not_fit_are_refused_among_others() {
    let identity = Identity::from_seed([1; 32]);
    let key = identity.public_key();
    for count in 0..=9 {
        let all: Vec<Signed> = (0..count).map(|number| signed(&identity, number)).collect();
        let claims: Vec<Claim> = all.iter().map(|signed| claim(&key, signed)).collect();
        assert!(fit_together(&claims));
        assert_eq!(Claim::check_all(&claims), vec![Ok(()); usize::from(count)]);
        for bad in 0..usize::from(count) {
            let mut changed = all.clone();
            changed[bad].1.push(0);
            // One that changes its neighbour's message as well.
            changed[bad / 2].1.push(1);
            let claims: Vec<Claim> = changed.iter().map(|signed| claim(&key, signed)).collect();
            let expected: Vec<_> = claims.iter().map(Claim::check).collect();
            assert!(expected[bad].is_err() && !fit_together(&claims));
            assert_eq!(Claim::check_all(&claims), expected);
        }
    }
}

#[test]
fn signatures_that_make_up_for_each_other_are_refused() {
    let identity = Identity::from_seed([1; 32]);
    let key = identity.public_key();
    let [mut first, mut second] = [1, 2].map(|number| claim(&key, &signed(&identity, number)));
    first.scalar += Scalar::ONE;
    second.scalar -= Scalar::ONE;
    assert_eq!(Claim::check_all(&[first, second]), [Err(InvalidSignature); 2]);
}

#[test]
fn signatures_of_several_keys_are_checked_each_with_its_own() {
    let identities = [1, 2, 1].map(|seed| Identity::from_seed([seed; 32]));
    let claims = identities.each_ref().map(|identity| claim(&identity.public_key(), &signed(identity, 5)));
    assert!(!fit_together(&claims));
    assert_eq!(Claim::check_all(&claims), [Ok(()); 3]);
    let other = identities[1].public_key();
    let claims = identities.each_ref().map(|identity| claim(&other, &signed(identity, 5)));
    assert_eq!(Claim::check_all(&claims), [Err(InvalidSignature), Ok(()), Err(InvalidSignature)]);
}

/// Each encoding that is not canonical, or of a point of small order: with S zero under a key of ours no message fits, and
/// those that dalek reads as a point are the ones that matter.
#[test]
fn first_half_that_no_strict_signature_has_is_refused_before_the_message_is_read() {
    let key = Identity::from_seed([1; 32]).public_key();
    let above = (0xed..=0xff).map(|low| {
        let mut y = [0xff; 32];
        (y[0], y[31]) = (low, 0x7f);
        y
    });
    let small = EIGHT_TORSION.iter().map(|point| point.compress().0);
    let mut read_by_dalek = 0;
    for y in above.chain(small) {
        for sign in [0, 0x80] {
            let mut signature = [0; SIGNATURE_BYTES];
            signature[..32].copy_from_slice(&y);
            signature[31] ^= sign;
            assert!(key.verifier(&signature).is_err(), "{signature:?}");
            let point = CompressedEdwardsY(signature[..32].try_into().unwrap()).decompress();
            let is_strict =
                point.is_some_and(|point| !point.is_small_order() && point.compress().0 == signature[..32]);
            assert!(!is_strict, "{signature:?}");
            read_by_dalek += usize::from(point.is_some());
        }
    }
    assert!(read_by_dalek > 16, "{read_by_dalek}");
    // The largest y below the prime that is not of small order is as good as any.
    let mut signature = [0xff; SIGNATURE_BYTES];
    (signature[0], signature[31]) = (0xeb, 0x7f);
    signature[32..].fill(0);
    assert!(key.verifier(&signature).is_ok());
}

#[test]
fn second_half_that_is_not_reduced_is_refused() {
    let identity = Identity::from_seed([1; 32]);
    let (mut signature, message) = signed(&identity, 1);
    // The order of the group is added once: the equation would hold.
    let order = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut carry = 0;
    for (byte, add) in signature[32..].iter_mut().zip(order) {
        carry += u16::from(*byte) + add;
        *byte = carry as u8;
        carry >>= 8;
    }
    assert_eq!(identity.public_key().verify(&message, &signature), Err(InvalidSignature));
}
