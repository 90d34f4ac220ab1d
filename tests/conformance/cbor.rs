//! PROTOCOL 5: CBOR that we accept nowhere in, 1001 naming the byte and a working link out.

use std::sync::Arc;

use crate::fixture::{CAP_INVOKE, PING, Refusal, quiet_sidecar};
use crate::peer::{Letter, RawLink, Transport};
use crate::support::{AMP_MESSAGE, Sidecar, encode, map};

/// A link of a kind that has fewer and more checks before the body is looked at.
fn links(sidecar: &Arc<Sidecar>) -> [RawLink; 3] {
    [Transport::Unix, Transport::Tcp, Transport::Quic].map(|transport| RawLink::open(sidecar, transport))
}

/// A PING with these bytes for a body, and where they start in the envelope.
///
/// The envelope is written here and not by the project's own writer, which would not write such bytes.
fn with_body(letter: &Letter, body: &[u8]) -> (Vec<u8>, usize) {
    let mut head = vec![0xa9];
    let mut put = |key: &str, value: ciborium::Value| {
        head.extend(encode(&key.into()));
        head.extend(encode(&value));
    };
    put("v", 1.into());
    put("id", ciborium::Value::Bytes(letter.id.to_vec()));
    put("to", letter.to[0].as_str().into());
    put("ts", letter.ts.into());
    put("sig", ciborium::Value::Bytes(vec![]));
    put("ttl", letter.ttl.into());
    put("typ", letter.typ.into());
    put("from", letter.from.as_str().into());
    head.extend(encode(&"body".into()));
    let at = head.len();
    head.extend(body);
    (head, at)
}

/// The refusal of a body; its offset is counted from the body's own start.
fn refused(link: &mut RawLink, typ: u64, body: &[u8]) -> (Refusal, Option<usize>) {
    let letter = link.letter(typ, &map([]));
    let (payload, start) = with_body(&letter, body);
    link.send_frame(AMP_MESSAGE, &payload);
    let refusal = link.refusal(&letter.id);
    let offset = refusal.message.rsplit_once("at byte ").and_then(|(_, at)| at.parse::<usize>().ok());
    let offset =
        offset.map(|at| at.checked_sub(start).unwrap_or_else(|| panic!("before the body: {refusal:?}")));
    (refusal, offset)
}

#[track_caller]
fn is_1001_at(body: &[u8], at: usize) {
    let sidecar = quiet_sidecar();
    for mut link in links(&sidecar) {
        let (refusal, offset) = refused(&mut link, PING, body);
        let shown = &body[..body.len().min(16)];
        assert_eq!((refusal.code, offset), (1001, Some(at)), "{link:?}: {shown:02x?}: {refusal:?}");
    }
}

#[test]
fn a_key_that_stands_twice_is_1001() {
    is_1001_at(b"\xa2\x61x\x01\x61x\x02", 4);
    is_1001_at(b"\x81\xa3\x61a\x01\x61b\x01\x61a\x02", 8);
    // The same key in another encoding is the same key; the offset is then that of the map's first key.
    is_1001_at(b"\xa2\x01\x00\x18\x01\x00", 1);
    is_1001_at(b"\xa2\x61x\x00\x78\x01x\x00", 1);
    is_1001_at(b"\xbf\x61x\x01\x61x\x02\xff", 4);
}

#[test]
fn an_envelope_field_that_stands_twice_is_1001() {
    let sidecar = quiet_sidecar();
    for mut link in links(&sidecar) {
        let letter = link.letter(PING, &map([]));
        let mut payload = link.seal(&letter);
        // Ten fields instead of nine, the last of them a second `ttl`.
        payload[0] += 1;
        payload.extend(b"\x63ttl\x01");
        link.send_frame(AMP_MESSAGE, &payload);
        let refusal = link.refusal(&letter.id);
        assert_eq!(refusal.code, 1001, "{link:?}: {refusal:?}");
        assert!(
            refusal.message.ends_with(&format!("at byte {}", payload.len() - 5)),
            "{link:?}: {refusal:?}"
        );
    }
}

#[test]
fn text_that_is_no_utf8_is_1001() {
    is_1001_at(b"\x62\xc3\x28", 0);
    is_1001_at(b"\xa1\x61\xff\x00", 1);
    is_1001_at(b"\x63\xed\xa0\x80", 0);
    // Each chunk of an indefinite text is text by itself.
    is_1001_at(b"\x7f\x61\xc3\x61\xa9\xff", 1);
}

#[test]
fn depth_65_is_1001_and_depth_64_is_taken() {
    // The envelope is the first of the 64.
    let nested = |depth: usize| [vec![0x81; depth - 1], vec![0x80]].concat();
    is_1001_at(&nested(64), 63);
    let sidecar = quiet_sidecar();
    for mut link in links(&sidecar) {
        let mut letter = link.letter(PING, &map([]));
        letter.body = nested(63);
        let id = link.send_letter(&letter);
        assert_eq!(link.reply(&id).typ(), 0x02, "{link:?}");
    }
}

#[test]
fn a_container_of_65_537_items_is_1001_and_one_of_65_536_is_taken() {
    let array = |items: u32| [&[0x9a][..], &items.to_be_bytes(), &vec![0; items as usize]].concat();
    let indefinite = |items: usize| [&[0x9f][..], &vec![0; items], &[0xff]].concat();
    let sidecar = quiet_sidecar();
    for mut link in links(&sidecar) {
        for body in [array(65_537), indefinite(65_537)] {
            let (refusal, offset) = refused(&mut link, PING, &body);
            assert_eq!(refusal.code, 1001, "{link:?}: {refusal:?}");
            assert!(offset.is_some(), "{link:?}: {refusal:?}");
        }
        let mut letter = link.letter(PING, &map([]));
        letter.body = array(65_536);
        let id = link.send_letter(&letter);
        assert_eq!(link.reply(&id).typ(), 0x02, "{link:?}");
    }
}

#[test]
fn a_message_of_more_than_a_million_items_is_1001() {
    // Twenty arrays of 65,536.
    let array = [&[0x9a][..], &65_536u32.to_be_bytes(), &vec![0; 65_536]].concat();
    let body = [&[0x94][..], &array.repeat(20)].concat();
    let sidecar = quiet_sidecar();
    for mut link in links(&sidecar) {
        let (refusal, offset) = refused(&mut link, PING, &body);
        assert_eq!(refusal.code, 1001, "{link:?}: {refusal:?}");
        assert!(offset.is_some_and(|at| at < body.len()), "{link:?}: {refusal:?}");
    }
}

#[test]
fn lengths_above_the_bytes_left_are_1001() {
    let sidecar = quiet_sidecar();
    let promises = [
        &b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff"[..],
        b"\x7b\x7f\xff\xff\xff\xff\xff\xff\xff",
        b"\x9b\x00\x00\x00\x01\x00\x00\x00\x00",
        b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x9a\x00\x00\xff\xff",
        b"\x43\x01\x02",
        b"\x82\x01",
        b"\xa1\x01",
        b"\x9f\x01",
        b"\x5f\x41\x01",
        b"\x19\x01",
        b"\xf9\x3c",
    ];
    for mut link in links(&sidecar) {
        for body in promises {
            let (refusal, offset) = refused(&mut link, PING, body);
            assert_eq!(refusal.code, 1001, "{link:?}: {body:02x?}: {refusal:?}");
            assert!(offset.is_some(), "{link:?}: {body:02x?}: {refusal:?}");
        }
    }
}

#[test]
fn bytes_that_are_not_well_formed_are_1001() {
    let sidecar = quiet_sidecar();
    let malformed = [
        &b"\xff"[..],
        b"\x1c",
        b"\x1f",
        b"\x3f",
        b"\xdf",
        b"\xfc",
        b"\xf8\x18",
        b"\x5f\x61x\xff",
        b"\x7f\x5f\x41x\xff\xff",
        b"\xa1\xff",
        b"\xbf\x01\xff",
        b"\x81\xff",
    ];
    for mut link in links(&sidecar) {
        for body in malformed {
            let (refusal, offset) = refused(&mut link, PING, body);
            assert_eq!(refusal.code, 1001, "{link:?}: {body:02x?}: {refusal:?}");
            assert!(offset.is_some(), "{link:?}: {body:02x?}: {refusal:?}");
        }
    }
}

#[test]
fn trailing_bytes_are_1001() {
    is_1001_at(b"\xa0\x00", 1);
    is_1001_at(b"\xa0\xa0", 1);
    is_1001_at(b"\x01\xff", 1);
}

#[test]
fn tags_outside_params_result_details_and_ext_are_1001() {
    is_1001_at(b"\xc1\x00", 0);
    is_1001_at(b"\x81\xd9\xd9\xf7\x00", 1);
    is_1001_at(b"\xa1\x61x\xc1\x00", 3);
    let sidecar = quiet_sidecar();
    for mut link in links(&sidecar) {
        // A tag beside `params`, and one before the whole body.
        for body in [&b"\xa2\x66params\xa0\x67session\xc1\x00"[..], b"\xd9\xd9\xf7\xa1\x66params\xa0"] {
            let (refusal, offset) = refused(&mut link, CAP_INVOKE, body);
            assert_eq!(refusal.code, 1001, "{link:?}: {refusal:?}");
            assert!(offset.is_some(), "{link:?}: {refusal:?}");
        }
    }
}

#[test]
fn tags_inside_params_and_ext_are_taken() {
    // A sidecar without other peers, which it would ask who serves the call.
    let sidecar = Sidecar::start();
    for transport in [Transport::Unix, Transport::Tcp, Transport::Quic] {
        let mut link = RawLink::open(&sidecar, transport);
        let mut letter = link.letter(CAP_INVOKE, &map([]));
        letter.body = b"\xa2\x62id\x74com.example.none:1.0\x66params\xc1\x1a\x00\x00\x00\x01".to_vec();
        letter.ext = Some(b"\xa1\x61x\xc1\x00".to_vec());
        let id = link.send_letter(&letter);
        assert_eq!(link.refusal(&id).code, 4002, "{link:?}: it was understood");
    }
}

#[test]
fn integers_floats_and_simple_values_of_any_kind_are_taken_in_a_ping() {
    let sidecar = quiet_sidecar();
    for mut link in links(&sidecar) {
        for body in [
            &b"\x3b\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            b"\xf9\x7e\x00",
            b"\xfb\x7f\xf0\x00\x00\x00\x00\x00\x00",
            b"\x5f\x41\x01\x40\xff",
            b"\x9f\xbf\xff\xff",
        ] {
            let mut letter = link.letter(PING, &map([]));
            letter.body = body.to_vec();
            let id = link.send_letter(&letter);
            assert_eq!(link.reply(&id).typ(), 0x02, "{link:?}: {body:02x?}");
        }
    }
}
