//! Tests the published byte vectors: sign, verify, encode, decode, decrypt.

use serde_json::Value;

use super::*;
use crate::envelope::seal::Sealed;
use crate::frame::{self, FrameType};
use crate::identity::{AgreementKey, AgreementSecret, DidDocument, Keyring};
use crate::limits::MSG_SIZE_BYTES_FLOOR;

const FROM: &str = "did:web:example.com:agent:alice";
const TO: &str = "did:web:example.com:agent:bob";

struct Vectors {
    common: Value,
    vectors: Vec<Vector>,
}

struct Vector {
    name: String,
    ts: u64,
    id: MessageId,
    typ: u64,
    reply_to: Option<Vec<u8>>,
    body: Vec<u8>,
    sig_input: Vec<u8>,
    signature: Vec<u8>,
    message: Vec<u8>,
}

fn vectors() -> Vectors {
    let file: Value = serde_json::from_str(include_str!("../../../tests/vectors/envelope.json")).unwrap();
    let vectors = file["vectors"].as_array().unwrap().iter().map(|vector| {
        let field = |name: &str| hex(vector[name].as_str().unwrap_or_else(|| panic!("{name} of {vector}")));
        Vector {
            name: vector["name"].as_str().unwrap().to_owned(),
            ts: vector["ts"].as_u64().unwrap(),
            id: vector["id"].as_str().unwrap().parse().unwrap(),
            typ: vector["typ"].as_u64().unwrap(),
            reply_to: vector["reply_to"].as_str().map(hex),
            body: field("body_cbor"),
            sig_input: field("sig_input"),
            signature: field("signature"),
            message: field("message"),
        }
    });
    let vectors: Vec<_> = vectors.collect();
    assert_eq!(vectors.len(), 7);
    Vectors { common: file["common"].clone(), vectors }
}

impl Vectors {
    fn common(&self, name: &str) -> [u8; 32] {
        hex(self.common[name].as_str().unwrap()).try_into().unwrap()
    }

    fn identity(&self) -> Identity {
        let identity = Identity::from_seed(self.common("ed25519_seed"));
        assert_eq!(identity.public_key().as_bytes(), &self.common("ed25519_public"));
        identity.with_did(FROM.parse().unwrap())
    }

    fn nonce(&self) -> [u8; NONCE_BYTES] {
        hex(self.common["nonce"].as_str().unwrap()).try_into().unwrap()
    }

    fn shared(&self, ours: &str, theirs: &str) -> Authcrypt {
        let secret = AgreementSecret::from_bytes(self.common(&format!("x25519_{ours}_private")));
        assert_eq!(secret.public_key().as_bytes(), &self.common(&format!("x25519_{ours}_public")));
        let key = AgreementKey::from_bytes(self.common(&format!("x25519_{theirs}_public"))).unwrap();
        Authcrypt::new(&secret, &key)
    }

    fn draft<'a>(&self, vector: &'a Vector) -> Draft<'a> {
        // In the vector that answers, the two parties change places.
        let (from, to) = if vector.reply_to.is_some() { (TO, FROM) } else { (FROM, TO) };
        Draft {
            id: vector.id,
            typ: vector.typ,
            ts: vector.ts,
            ttl: self.common["ttl"].as_u64().unwrap(),
            from,
            to: Recipients::one(to),
            reply_to: vector.reply_to.as_deref(),
            thread_id: None,
            body: &vector.body,
            ext: Ext::None,
        }
    }
}

/// The vector's envelope with its body in the clear.
fn plain(vector: &Vector) -> Envelope<'_> {
    let envelope = Envelope::decode(&vector.message).unwrap();
    if envelope.body().is_some() { envelope } else { envelope.with_body(&vector.body).unwrap() }
}

#[test]
fn every_vector_decodes_to_its_fields() {
    let all = vectors();
    for vector in &all.vectors {
        let envelope = plain(vector);
        let draft = all.draft(vector);
        assert_eq!(envelope.id, vector.id, "{}", vector.name);
        assert_eq!(Draft::of(&envelope).unwrap(), draft, "{}", vector.name);
        assert_eq!(envelope.sig.unwrap().as_slice(), vector.signature);
        assert_eq!(envelope.reply_id().map(|id| id.0.to_vec()), vector.reply_to);
        assert_eq!(envelope.check_time(vector.ts), Ok(()));
    }
}

#[test]
fn every_vector_is_signed_and_encoded_byte_for_byte() {
    let all = vectors();
    for vector in &all.vectors {
        let mut signed = Vec::new();
        plain(vector).signed_bytes(&mut signed).unwrap();
        assert_eq!(signed, vector.sig_input, "{}", vector.name);
        assert_eq!(all.identity().sign(&signed).as_slice(), vector.signature, "{}", vector.name);

        let mut out = vec![0xaa];
        let draft = all.draft(vector);
        match Envelope::decode(&vector.message).unwrap().payload {
            Payload::Body(_) => draft.seal(&all.identity(), true, &mut out),
            Payload::Enc(enc) => {
                assert_eq!(enc.nonce, all.nonce());
                let sig = Some(vector.signature[..].try_into().unwrap());
                let _none = draft.write(&Sealed { sig, enc: Some((&enc.nonce, &enc.ciphertext)) }, &mut out);
            }
        }
        assert_eq!(out[1..], vector.message, "{}", vector.name);
    }
}

#[test]
fn every_vector_verifies_with_its_key_and_no_other() {
    let all = vectors();
    let mut scratch = Vec::new();
    for vector in &all.vectors {
        let envelope = plain(vector);
        assert_eq!(envelope.verify(&all.identity().public_key(), &mut scratch), Ok(()), "{}", vector.name);
        let error = envelope.verify(&alice().public_key(), &mut scratch).unwrap_err();
        assert_eq!(error.code().0, 1002);
        assert_eq!(error.id, Some(vector.id));
    }
}

#[test]
fn every_vector_verifies_by_the_documents_of_its_parties() {
    let all = vectors();
    let mut keyring = Keyring::new(8);
    let x = bs58::encode([&[0xed, 0x01][..], &all.common("ed25519_public")].concat()).into_string();
    for did in [FROM, TO] {
        let json = format!(
            r##"{{"id": "{did}", "assertionMethod": [{{"id": "#k", "publicKeyMultibase": "z{x}"}}]}}"##
        );
        keyring.insert(DidDocument::from_json(&json).unwrap());
    }
    let mut scratch = Vec::new();
    for vector in &all.vectors {
        let envelope = plain(vector);
        assert_eq!(envelope.verify_from(&mut keyring, &mut scratch), Ok(()), "{}", vector.name);
        let error = envelope.verify_from(&mut Keyring::new(1), &mut scratch).unwrap_err();
        assert_eq!((error.code().0, error.id), (3001, Some(vector.id)));
    }
}

#[test]
fn every_truncation_of_every_vector_is_1001_and_names_the_message_once_it_can() {
    for vector in &vectors().vectors {
        // a9 61 76 01 62 69 64 50, then the id.
        let id_end = 8 + 16;
        for end in 0..vector.message.len() {
            let error = Envelope::decode(&vector.message[..end]).unwrap_err();
            assert_eq!(error.code().0, 1001, "{} cut at {end}", vector.name);
            assert!(error.offset.unwrap() <= end);
            assert_eq!(error.id, (end >= id_end).then_some(vector.id), "{} cut at {end}", vector.name);
        }
    }
}

#[test]
fn every_vector_survives_a_frame_fed_one_byte_at_a_time() {
    for vector in &vectors().vectors {
        let mut framed = Vec::new();
        frame::encode(FrameType::AmpMessage, &vector.message, &mut framed).unwrap();
        let (mut decoder, mut buffer) = (frame::Decoder::new(MSG_SIZE_BYTES_FLOOR), bytes::BytesMut::new());
        let mut frames = Vec::new();
        for byte in &framed {
            buffer.extend_from_slice(&[*byte]);
            frames.extend(decoder.decode(&mut buffer).unwrap());
        }
        assert_eq!(frames.len(), 1);
        assert_eq!(Envelope::decode(&frames[0].payload).unwrap().id, vector.id);
    }
}

#[test]
fn flipped_signature_bit_is_1002() {
    // AMP 001 A.7, N1.
    let all = vectors();
    let vector = &all.vectors[0];
    let start = vector.message.windows(64).position(|window| window == vector.signature).unwrap();
    let mut scratch = Vec::new();
    for bit in 0..64 * 8 {
        let mut message = vector.message.clone();
        message[start + bit / 8] ^= 1 << (bit % 8);
        let envelope = Envelope::decode(&message).unwrap();
        let error = envelope.verify(&all.identity().public_key(), &mut scratch).unwrap_err();
        assert_eq!((error.code().0, error.id), (1002, Some(vector.id)), "bit {bit}");
    }
}

/// The ciphertext that the published vector should have: the NaCl box of its plaintext under its own keys and nonce.
///
/// The published one, `924706080f2aa18f…`, is not that box: an independent implementation in Python gives these
/// bytes too, and no mix of the listed keys opens the published ones. Its layout and its signature do hold, and are
/// tested above.
const CIPHERTEXT: &str = "4d9c4b59bcb9d13393f0bdbe31d1693909ec2085626023b533f3f7af";

#[test]
fn encrypted_vector_seals_and_opens_with_its_keys() {
    let all = vectors();
    let vector = &all.vectors[6];
    let shared = all.shared("sender", "recipient");
    let mut message = Vec::new();
    all.draft(vector).seal_encrypted(&all.identity(), &shared, &all.nonce(), &mut message);
    let start = message.windows(28).position(|window| window == hex(CIPHERTEXT)).unwrap();
    assert_eq!(message[..start], vector.message[..start]);
    assert_eq!(message[start + 28..], vector.message[start + 28..]);

    let envelope = Envelope::decode(&message).unwrap();
    let mut plaintext = Vec::new();
    envelope.open(&all.shared("recipient", "sender"), &mut plaintext).unwrap();
    assert_eq!(plaintext, vector.body);
    let opened = envelope.with_body(&plaintext).unwrap();
    assert_eq!(opened.verify(&all.identity().public_key(), &mut Vec::new()), Ok(()));
}

#[test]
fn published_ciphertext_does_not_open_with_its_keys() {
    let all = vectors();
    let envelope = Envelope::decode(&all.vectors[6].message).unwrap();
    let error = envelope.open(&all.shared("recipient", "sender"), &mut Vec::new()).unwrap_err();
    assert_eq!(error.code().0, 3001);
}

#[test]
fn flipped_ciphertext_byte_is_3001_without_detail() {
    // AMP 001 A.7, N3.
    let all = vectors();
    let vector = &all.vectors[6];
    let mut message = Vec::new();
    let shared = all.shared("sender", "recipient");
    all.draft(vector).seal_encrypted(&all.identity(), &shared, &all.nonce(), &mut message);
    let start = message.windows(28).position(|window| window == hex(CIPHERTEXT)).unwrap();
    let mut plaintext = Vec::new();
    for at in start..start + 28 {
        let mut changed = message.clone();
        changed[at] ^= 1;
        let envelope = Envelope::decode(&changed).unwrap();
        let error = envelope.open(&all.shared("recipient", "sender"), &mut plaintext).unwrap_err();
        assert_eq!((error.code().0, error.id), (3001, Some(vector.id)));
        assert_eq!(error.to_string(), "not authorized");
        assert!(plaintext.is_empty());
    }
}
