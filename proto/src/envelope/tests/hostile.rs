//! Tests bytes that are refused: the code, the offset, and the id in the ERROR.

use super::*;
use crate::cbor::ErrorKind;
use crate::identity::Keyring;
use crate::limits::{CBOR_CONTAINER_ITEMS_MAX, CBOR_DEPTH_MAX, DID_BYTES_MAX, RECIPIENTS_MAX};

/// Decodes what must be refused with a code, and with the id of [`Loose::new`].
#[track_caller]
fn refused(bytes: &[u8], code: u32) -> EnvelopeError {
    let error = Envelope::decode(bytes).unwrap_err();
    assert_eq!(error.code().0, code, "{error}");
    assert_eq!(error.id, Some(id()), "{error}");
    error
}

#[test]
fn missing_field_is_1001_by_name() {
    for name in ["v", "typ", "ts", "ttl", "from", "to", "sig", "body"] {
        let error = refused(&Loose::new().without(name).bytes(), 1001);
        assert_eq!(error.kind, EnvelopeErrorKind::Missing(name));
        assert_eq!(error.offset, Some(0));
    }
    let error = Envelope::decode(&Loose::new().without("id").bytes()).unwrap_err();
    assert_eq!((error.kind, error.code().0, error.id), (EnvelopeErrorKind::Missing("id"), 1001, None));
    let error = Envelope::decode(&[0xa0]).unwrap_err();
    assert_eq!(error.to_string(), "missing field \"v\" at byte 0");
}

#[test]
fn field_of_another_type_is_1001_at_its_byte() {
    let dids = |count: usize| {
        let mut out = Vec::new();
        Writer::new(&mut out).array(count as u64);
        out.extend((0..count).flat_map(|_| text("did:web:a")));
        out
    };
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("v", vec![text("1"), hex("20"), hex("f5"), hex("f93c00")]),
        ("typ", vec![text("CAP_INVOKE"), hex("20"), hex("f6"), hex("f93c00")]),
        ("ts", vec![hex("20"), hex("fb4270000000000000"), text("now"), hex("80")]),
        ("ttl", vec![hex("20"), hex("f6"), hex("a0")]),
        ("from", vec![uint(1), bytes(b"did:web:a"), dids(1), hex("f6")]),
        ("to", vec![uint(1), hex("80"), hex("9fff"), dids(RECIPIENTS_MAX + 1), hex("a0")]),
        ("reply_to", vec![text("x"), uint(1), hex("f6"), hex("80")]),
        ("thread_id", vec![text("x"), uint(1), hex("f6")]),
        ("sig", vec![text(""), uint(0), hex("f6"), hex("80")]),
        ("ext", vec![text("x"), hex("80"), hex("f6"), hex("a10102")]),
    ];
    for (name, values) in cases {
        for value in values {
            let loose = Loose::new().with(name, &value);
            let error = refused(&loose.bytes(), 1001);
            assert!(matches!(error.kind, EnvelopeErrorKind::Field { name: at, .. } if at == name), "{error}");
            assert_eq!(error.offset, Some(loose.offset(name)), "{error}");
        }
    }
    assert!(Envelope::decode(&Loose::new().with("to", &dids(RECIPIENTS_MAX)).bytes()).is_ok());
}

#[test]
fn recipient_of_another_type_is_1001_at_its_own_byte() {
    let to = [&hex("82")[..], &text("did:web:a"), &uint(1)].concat();
    let loose = Loose::new().with("to", &to);
    let error = refused(&loose.bytes(), 1001);
    assert_eq!(error.offset, Some(loose.offset("to") + 1 + 10));
}

#[test]
fn text_that_is_no_did_is_nobody() {
    for nobody in ["alice", "", "did:key", "did:key:z6Mk", &format!("did:key:z{}", "1".repeat(DID_BYTES_MAX))]
    {
        let bytes = Loose::new().with("from", &text(nobody)).with("to", &text(nobody)).bytes();
        let envelope = Envelope::decode(&bytes).unwrap();
        let error = envelope.verify_from(&mut Keyring::new(1), &mut Vec::new()).unwrap_err();
        assert_eq!((error.code().0, error.id), (3001, Some(id())), "{nobody}");
        let error = envelope.check_recipient(bob().did()).unwrap_err();
        assert_eq!((error.code().0, error.id), (2001, Some(id())), "{nobody}");
    }
}

#[test]
fn id_of_another_type_or_length_is_1001_and_names_no_message() {
    for value in [bytes(&[1; 15]), bytes(&[1; 17]), bytes(b""), text("0123456789abcdef"), uint(1)] {
        let loose = Loose::new().with("id", &value);
        let error = Envelope::decode(&loose.bytes()).unwrap_err();
        assert_eq!((error.code().0, error.id), (1001, None));
        assert_eq!(error.offset, Some(loose.offset("id")));
    }
}

#[test]
fn other_version_is_1004_whatever_else_is_wrong() {
    for v in [0, 2, u64::MAX] {
        let loose = Loose::new().with("v", &uint(v));
        let error = refused(&loose.bytes(), 1004);
        assert_eq!(error.kind, EnvelopeErrorKind::Version(v));
        assert_eq!(error.offset, Some(loose.offset("v")));
        refused(&loose.clone().without("ttl").with("from", &uint(1)).bytes(), 1004);
        let error = Envelope::decode(&loose.without("id").bytes()).unwrap_err();
        assert_eq!((error.code().0, error.id), (1004, None));
    }
}

#[test]
fn signature_of_another_length_is_1002() {
    for length in [1, 63, 65, 128] {
        let loose = Loose::new().with("sig", &bytes(&vec![0; length]));
        let error = refused(&loose.bytes(), 1002);
        assert_eq!(error.offset, Some(loose.offset("sig")));
    }
    assert_eq!(Envelope::decode(&Loose::new().with("sig", &bytes(b"")).bytes()).unwrap().sig, None);
}

#[test]
fn body_and_enc_exclude_each_other_and_one_must_stand() {
    let enc = encrypted(ENC_ALG, ENC_MODE, &[0; 24], &bytes(&[0; 16]));
    assert!(Envelope::decode(&Loose::new().without("body").and(&text("enc"), &enc).bytes()).is_ok());
    let error = refused(&Loose::new().and(&text("enc"), &enc).bytes(), 1001);
    assert_eq!(error.kind, EnvelopeErrorKind::BodyAndEnc);
}

fn encrypted(alg: &str, mode: &str, nonce: &[u8], ciphertext: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.map(4).text("alg").text(alg).text("mode").text(mode).text("nonce").bytes(nonce);
    writer.text("ciphertext").raw(ciphertext);
    out
}

#[test]
fn encrypted_payload_of_another_profile_is_1001_at_its_byte() {
    let ok = bytes(&[0; 16]);
    for (enc, name, offset) in [
        (encrypted("X25519-XChaCha20-Poly1305", ENC_MODE, &[0; 24], &ok), "enc.alg", 5),
        (encrypted(ENC_ALG, "anoncrypt", &[0; 24], &ok), "enc.mode", 36),
        (encrypted(ENC_ALG, ENC_MODE, &[0; 23], &ok), "enc.nonce", 52),
        (encrypted(ENC_ALG, ENC_MODE, &[0; 25], &ok), "enc.nonce", 52),
        (encrypted(ENC_ALG, ENC_MODE, &[0; 24], &text("x")), "enc.ciphertext", 89),
        (uint(1), "enc", 0),
        (hex("a10102"), "enc", 0),
    ] {
        let loose = Loose::new().without("body").with("enc", &enc);
        let error = refused(&loose.bytes(), 1001);
        assert!(matches!(error.kind, EnvelopeErrorKind::Field { name: at, .. } if at == name), "{error}");
        assert_eq!(error.offset, Some(loose.offset("enc") + offset), "{error}");
    }
    let error = refused(&Loose::new().without("body").with("enc", &[0xa0]).bytes(), 1001);
    assert_eq!(error.kind, EnvelopeErrorKind::Missing("enc.alg"));
}

#[test]
fn ciphertext_shorter_than_its_tag_is_3001() {
    let enc = encrypted(ENC_ALG, ENC_MODE, &[0; 24], &bytes(&[0; 15]));
    let bytes = Loose::new().without("body").with("enc", &enc).bytes();
    let shared = Authcrypt::new(&bob().agreement_secret(), &alice().public_key().agreement_key());
    let error = Envelope::decode(&bytes).unwrap().open(&shared, &mut Vec::new()).unwrap_err();
    assert_eq!((error.code().0, error.id), (3001, Some(id())));
}

#[test]
fn unknown_fields_pass_and_are_checked_all_the_same() {
    let good = Loose::new().and(&text("future"), &hex("a1613182f6f5")).and(&text("v2"), &uint(7));
    assert_eq!(Envelope::decode(&good.bytes()).unwrap().id, id());
    refused(&Loose::new().and(&text("future"), &hex("a2616101616102")).bytes(), 1001);
}

#[test]
fn malformed_cbor_is_1001_at_its_byte_with_the_id() {
    let deep = |depth: usize| [vec![0x81; depth], vec![0xf6]].concat();
    let wide = |count: usize| [hex("9a"), (count as u32).to_be_bytes().to_vec(), vec![0xf6; count]].concat();
    for (body, within, kind) in [
        (hex("61ff"), 0, ErrorKind::InvalidUtf8),
        (hex("a2616101616102"), 4, ErrorKind::DuplicateKey),
        (hex("1c"), 0, ErrorKind::ReservedHead),
        (hex("ff"), 0, ErrorKind::UnexpectedBreak),
        (hex("9b0000001000000000"), 0, ErrorKind::LengthBeyondInput),
        (hex("5b7fffffffffffffff"), 0, ErrorKind::LengthBeyondInput),
        (hex("c101"), 0, ErrorKind::TagNotAllowed),
        (hex("a16178c101"), 3, ErrorKind::TagNotAllowed),
        (hex("f810"), 0, ErrorKind::InvalidSimple),
        (deep(CBOR_DEPTH_MAX), CBOR_DEPTH_MAX - 1, ErrorKind::TooDeep),
        (wide(CBOR_CONTAINER_ITEMS_MAX + 1), 0, ErrorKind::ContainerTooLarge),
    ] {
        // The malformed part after the id, then before it.
        for loose in
            [Loose::new().with("body", &body), Loose::new().without("body").first(&text("body"), &body)]
        {
            let error = refused(&loose.bytes(), 1001);
            assert_eq!(error.kind, EnvelopeErrorKind::Cbor(kind));
            assert_eq!(error.offset, Some(loose.offset("body") + within), "{error}");
        }
    }
    assert!(Envelope::decode(&sealed(&deep(CBOR_DEPTH_MAX - 1))).is_ok());
    assert!(Envelope::decode(&sealed(&wide(CBOR_CONTAINER_ITEMS_MAX))).is_ok());
}

#[test]
fn one_item_more_than_a_message_may_have_is_1001() {
    // Sixteen arrays of 62,500 items in one, less what the envelope itself counts.
    let body = |last: u16| {
        let mut out = vec![0x90];
        for count in [[62_498; 15].as_slice(), &[last]].concat() {
            out.push(0x99);
            out.extend(count.to_be_bytes());
            out.extend(vec![0xf6; usize::from(count)]);
        }
        out
    };
    // One map, nine keys, eight values beside the body; one array of arrays, sixteen arrays.
    let fits = 1_000_000 - (1 + 9 + 8) - (1 + 16) - 15 * 62_498;
    let (good, bad) = (sealed(&body(fits as u16)), sealed(&body(fits as u16 + 1)));
    assert_eq!((Envelope::decode(&good).is_ok(), crate::cbor::check(&good)), (true, Ok(())));
    let error = refused(&bad, 1001);
    assert_eq!(error.kind, EnvelopeErrorKind::Cbor(ErrorKind::TooManyItems));
    assert_eq!(crate::cbor::check(&bad).unwrap_err().offset, error.offset.unwrap());
}

#[test]
fn tags_stand_in_payload_and_ext_and_nowhere_else() {
    for (name, value) in [
        ("body", hex("a166706172616d73c101")),
        ("body", hex("a166726573756c7481c101")),
        ("body", hex("a1656572726f72a16764657461696c73c101")),
        ("ext", hex("a16178c101")),
    ] {
        assert!(Envelope::decode(&Loose::new().with(name, &value).bytes()).is_ok(), "{name}");
    }
    for (name, value) in [
        ("body", hex("a1667374617475738166c101")),
        ("body", hex("82c101a0")),
        ("future", hex("c101")),
        ("v", hex("c101")),
        ("thread_id", hex("c24101")),
    ] {
        refused(&Loose::new().with(name, &value).bytes(), 1001);
    }
    refused(&Loose::new().with("ext", &hex("a0")).with("future", &hex("c101")).bytes(), 1001);
    refused(&Loose::new().and(&hex("c16178"), &uint(1)).bytes(), 1001);
}

#[test]
fn key_that_stands_twice_is_1001_in_every_spelling() {
    for key in [text("ttl"), hex("780374746c"), hex("7f6174627474ff"), hex("7f6374746cff")] {
        let bytes = Loose::new().and(&key, &uint(1)).bytes();
        if key == hex("7f6174627474ff") {
            // "ttt", which is another key.
            assert!(Envelope::decode(&bytes).is_ok());
        } else {
            let error = refused(&bytes, 1001);
            assert_eq!(error.kind, EnvelopeErrorKind::Cbor(ErrorKind::DuplicateKey));
        }
    }
    let unknown = Loose::new().and(&text("x"), &uint(1)).and(&text("x"), &uint(1));
    refused(&unknown.bytes(), 1001);
}

#[test]
fn key_that_is_no_text_is_1001_at_its_byte() {
    for key in [uint(1), bytes(b"v"), hex("f6"), hex("80"), hex("a0"), hex("20")] {
        let loose = Loose::new().first(&key, &uint(1));
        let error = refused(&loose.bytes(), 1001);
        assert_eq!(error.offset, Some(1), "{error}");
    }
}

#[test]
fn bytes_that_are_no_map_are_1001_and_name_no_message() {
    for bytes in ["", "f6", "80", "01", "6161", "bf", "a1", "ff", "c1a0"] {
        let error = Envelope::decode(&hex(bytes)).unwrap_err();
        assert_eq!((error.code().0, error.id), (1001, None), "{bytes}");
    }
}

#[test]
fn trailing_byte_is_1001_with_the_id() {
    let mut bytes = Loose::new().bytes();
    bytes.push(0xf6);
    let error = refused(&bytes, 1001);
    assert_eq!(error.kind, EnvelopeErrorKind::Cbor(ErrorKind::TrailingBytes));
    assert_eq!(error.offset, Some(bytes.len() - 1));
}
