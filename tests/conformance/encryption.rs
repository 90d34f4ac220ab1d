//! PROTOCOL 5: encrypted bodies that are of another kind, or do not open, in; 1001 or a bare 3001 out.

use capd_proto::identity::{Authcrypt, PublicKey};
use ciborium::{Value, cbor};

use crate::envelope::{offset_of, refused, refused_letter, remove};
use crate::fixture::{CAP_QUERY, PING, quiet_sidecar};
use crate::peer::{Letter, RawLink, Transport};
use crate::support::{AMP_MESSAGE, decode, encode, field, map, set};

/// A letter with its body encrypted for the sidecar.
fn encrypted(link: &RawLink, letter: &Letter) -> Value {
    let key = PublicKey::from_did(&link.sidecar).unwrap();
    let shared = Authcrypt::new(&link.identity.agreement_secret(), &key.agreement_key());
    let mut out = Vec::new();
    let mut nonce = [9; 24];
    nonce[..16].copy_from_slice(&letter.id);
    letter.draft(|draft| draft.seal_encrypted(&link.identity, &shared, &nonce, &mut out));
    decode(&out)
}

#[test]
fn an_encrypted_message_is_opened_and_its_signature_holds_for_the_plaintext() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let letter =
            link.letter(CAP_QUERY, &cbor!({ "filter" => { "capability" => "com.example.none" } }).unwrap());
        let envelope = encrypted(&link, &letter);
        link.send_frame(AMP_MESSAGE, &encode(&envelope));
        assert_eq!(link.refusal(&letter.id).code, 4002, "{transport:?}: it was understood");
        let letter = link.letter(PING, &map([]));
        let mut forged = encrypted(&link, &letter);
        set(&mut forged, "sig", Value::Bytes(vec![3; 64]));
        link.send_frame(AMP_MESSAGE, &encode(&forged));
        assert_eq!(link.refusal(&letter.id).code, 1002, "{transport:?}");
        let letter = link.letter(PING, &map([]));
        let mut unsigned = encrypted(&link, &letter);
        set(&mut unsigned, "sig", Value::Bytes(vec![]));
        link.send_frame(AMP_MESSAGE, &encode(&unsigned));
        assert_eq!(link.refusal(&letter.id).code, 1002, "{transport:?}");
    }
}

#[test]
fn an_encryption_of_another_kind_is_1001() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let wrong = [
            ("alg", cbor!("X25519-ChaCha20-Poly1305")),
            ("alg", cbor!(1)),
            ("mode", cbor!("anoncrypt")),
            ("mode", cbor!(null)),
            ("nonce", Ok(Value::Bytes(vec![1; 23]))),
            ("nonce", Ok(Value::Bytes(vec![1; 25]))),
            ("nonce", cbor!("text")),
            ("ciphertext", cbor!("text")),
        ];
        for (key, value) in wrong {
            let value = value.unwrap();
            let letter = link.letter(PING, &map([]));
            let mut envelope = encrypted(&link, &letter);
            let mut enc = field(&envelope, "enc").cloned().unwrap();
            set(&mut enc, key, value.clone());
            set(&mut envelope, "enc", enc.clone());
            link.send_frame(AMP_MESSAGE, &encode(&envelope));
            let refusal = link.refusal(&letter.id);
            assert_eq!(refusal.code, 1001, "{transport:?}: {key}: {value:?}: {refusal:?}");
            let at = format!("at byte {}", offset_of(&envelope, "enc") + offset_of(&enc, key));
            assert!(refusal.message.ends_with(&at), "{transport:?}: {refusal:?} {at}");
            let mut envelope = encrypted(&link, &letter);
            let mut enc = field(&envelope, "enc").cloned().unwrap();
            remove(&mut enc, key);
            set(&mut envelope, "enc", enc);
            link.send_frame(AMP_MESSAGE, &encode(&envelope));
            assert_eq!(link.refusal(&letter.id).code, 1001, "{transport:?}: without {key}");
        }
        for enc in [cbor!([]), cbor!("text"), cbor!({})] {
            let refusal = refused(&mut link, |envelope| {
                remove(envelope, "body");
                set(envelope, "enc", enc.unwrap());
            });
            assert_eq!(refusal.code, 1001, "{transport:?}: {refusal:?}");
        }
        let both = encrypted(&link, &link.letter(PING, &map([])));
        let refusal =
            refused(&mut link, |envelope| set(envelope, "enc", field(&both, "enc").cloned().unwrap()));
        assert_eq!(refusal.code, 1001, "{transport:?}: {refusal:?}");
    }
}

#[test]
fn a_body_that_cannot_be_decrypted_is_3001_without_detail() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let mut messages = Vec::new();
        for ciphertext in [vec![], vec![0; 15], vec![0; 64]] {
            let letter = link.letter(PING, &map([]));
            let mut envelope = encrypted(&link, &letter);
            let mut enc = field(&envelope, "enc").cloned().unwrap();
            set(&mut enc, "ciphertext", Value::Bytes(ciphertext));
            set(&mut envelope, "enc", enc);
            link.send_frame(AMP_MESSAGE, &encode(&envelope));
            let refusal = link.refusal(&letter.id);
            assert_eq!((refusal.code, &refusal.details), (3001, &None), "{transport:?}: {refusal:?}");
            messages.push(refusal.message);
            let id: String = letter.id.iter().map(|byte| format!("{byte:02x}")).collect();
            let denied = sidecar.audited_about("denied", &id);
            assert_eq!(denied["peerId"], link.identity.did().as_str(), "{transport:?}: {denied}");
            assert_eq!((&denied["code"], &denied["messageType"]), (&3001.into(), &"PING".into()));
        }
        let stranger = refused_letter(&mut link, |letter| letter.from = "did:key:z6Mk".to_owned());
        messages.push(stranger.message);
        messages.dedup();
        assert_eq!(messages.len(), 1, "a decryption failure reads like any other 3001: {messages:?}");
    }
}

#[test]
fn a_decrypted_body_is_checked_like_any_other() {
    let sidecar = quiet_sidecar();
    let mut link = RawLink::open(&sidecar, Transport::Tcp);
    let key = PublicKey::from_did(&sidecar.did).unwrap();
    let shared = Authcrypt::new(&link.identity.agreement_secret(), &key.agreement_key());
    for plaintext in [&b"\xa1\x61"[..], b"\xa2\x61x\x01\x61x\x02", b"\xa0\x00", b"\xc1\x00", b""] {
        let letter = link.letter(PING, &map([]));
        let mut envelope = encrypted(&link, &letter);
        let mut enc = field(&envelope, "enc").cloned().unwrap();
        let nonce: [u8; 24] =
            field(&enc, "nonce").and_then(Value::as_bytes).unwrap().as_slice().try_into().unwrap();
        let mut ciphertext = Vec::new();
        shared.seal(&nonce, plaintext, &mut ciphertext);
        set(&mut enc, "ciphertext", Value::Bytes(ciphertext));
        set(&mut envelope, "enc", enc);
        link.send_frame(AMP_MESSAGE, &encode(&envelope));
        let refusal = link.refusal(&letter.id);
        assert_eq!(refusal.code, 1001, "{plaintext:02x?}: {refusal:?}");
    }
}
