//! `docs/protocol.md` in; its bytes are what the codecs take and give, its tables are the code's, and each section that a
//! comment cites is there.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bytes::BytesMut;
use capd_proto::cbor;
use capd_proto::envelope::{Envelope, MessageId};
use capd_proto::frame::{
    self, Decoder, ErrorFrame, Frame, FrameType, Goaway, HandshakeRequest, HandshakeResponse,
};
use capd_proto::identity::PublicKey;
use capd_proto::limits::{
    CBOR_CONTAINER_ITEMS_MAX, CBOR_DEPTH_MAX, CBOR_ITEMS_MAX, CBOR_MAP_KEYS_BYTES_MAX, DID_BYTES_MAX,
    MSG_SIZE_BYTES_DEFAULT,
};
use capd_proto::link::NotAdmitted;
use capd_proto::message::{Message, Type};
use regex_automata::meta::Regex;

const PAGE: &str = include_str!("../../docs/protocol.md");

/// What is known of the messages above a block.
#[derive(Default)]
struct Seen {
    ids: Vec<MessageId>,
    signed: Vec<u8>,
}

/// Each block of bytes: the words behind `hex`, and the bytes without their comments.
fn blocks() -> Vec<(&'static str, Vec<u8>)> {
    let fences: Vec<&str> = PAGE.split("\n```").collect();
    let blocks = fences.iter().filter_map(|block| block.strip_prefix("hex ")?.split_once('\n'));
    let bytes = |text: &str| {
        let code = text.lines().map(|line| line.split('#').next().unwrap());
        let digits: String = code.flat_map(str::split_whitespace).collect();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    };
    blocks.map(|(name, text)| (name, bytes(text))).collect()
}

/// The bytes of one frame and no more.
fn only_frame(bytes: &[u8]) -> Frame {
    let mut buffer = BytesMut::from(bytes);
    let frame = Decoder::new(MSG_SIZE_BYTES_DEFAULT).decode(&mut buffer).unwrap().expect("a whole frame");
    assert!(buffer.is_empty(), "{} bytes behind the frame", buffer.len());
    frame
}

/// Takes a frame apart and makes it anew. Returns what the page should call it.
fn read(name: &str, bytes: &[u8], seen: &mut Seen) -> &'static str {
    let Frame { frame_type, payload } = only_frame(bytes);
    let mut written = Vec::new();
    let name = match frame_type {
        FrameType::AmpMessage => return read_message(&payload, seen),
        FrameType::Handshake if name == "HANDSHAKE client" => {
            HandshakeRequest::decode(&payload).unwrap().encode(&mut written);
            "HANDSHAKE client"
        }
        FrameType::Handshake => {
            let response = HandshakeResponse::decode(&payload).unwrap();
            assert!(response.accepted);
            response.encode(&mut written);
            "HANDSHAKE server"
        }
        FrameType::Ping | FrameType::Pong => {
            written.extend_from_slice(&payload);
            if frame_type == FrameType::Ping { "PING" } else { "PONG" }
        }
        FrameType::Goaway => {
            Goaway::decode(&payload).unwrap().encode(&mut written);
            "GOAWAY"
        }
        FrameType::Error => {
            ErrorFrame::decode(&payload).unwrap().encode(&mut written);
            "ERROR frame"
        }
    };
    let mut again = Vec::new();
    frame::encode(frame_type, &written, &mut again).unwrap();
    assert_eq!(again, bytes, "{name} is not as the codec writes it");
    name
}

/// Takes a message apart as a receiver does.
fn read_message(payload: &[u8], seen: &mut Seen) -> &'static str {
    assert!(cbor::is_deterministic(payload));
    let envelope = Envelope::decode(payload).unwrap();
    envelope.check_time(envelope.ts).unwrap();
    let key = PublicKey::from_did(&envelope.from).unwrap();
    envelope.verify(&key, &mut Vec::new()).unwrap();
    envelope.signed_bytes(&mut seen.signed).unwrap();
    let typ = Type::from_code(envelope.typ).unwrap();
    let body = envelope.body().unwrap();
    let message = Message::decode(typ, body).unwrap();
    message.check_meaning().unwrap();
    let mut written = Vec::new();
    message.encode(&mut written);
    assert_eq!(written, body, "{} is not as the codec writes it", typ.name());
    if let Some(answered) = envelope.reply_id() {
        assert!(seen.ids.contains(&answered), "{} answers no message of the page", typ.name());
    }
    seen.ids.push(envelope.id);
    typ.name()
}

#[test]
fn bytes_shown_are_those_of_the_codecs() {
    let mut seen = Seen::default();
    let mut names = Vec::new();
    for (name, bytes) in blocks() {
        if name == "signed" {
            assert_eq!(bytes, seen.signed, "what the signature above covers");
        } else {
            assert_eq!(read(name, &bytes, &mut seen), name);
        }
        names.push(name);
    }
    let expected = [
        "PING",
        "GOAWAY",
        "ERROR frame",
        "HANDSHAKE client",
        "HANDSHAKE server",
        "HELLO",
        "CAP_INVOKE",
        "signed",
        "CAP_RESULT",
        "ERROR",
    ];
    assert_eq!(names, expected);
}

/// Rows of the tables whose first cell begins so.
fn rows(first: &str) -> Vec<Vec<&'static str>> {
    let rows = PAGE.lines().filter(|line| line.starts_with(&format!("| {first}")));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn tables_of_types_are_the_code_s() {
    let mut listed = rows("0x").into_iter();
    for frame_type in FrameType::ALL {
        let name = match frame_type {
            FrameType::AmpMessage => "AMP_MESSAGE",
            FrameType::Handshake => "HANDSHAKE",
            FrameType::Ping => "PING",
            FrameType::Pong => "PONG",
            FrameType::Goaway => "GOAWAY",
            FrameType::Error => "ERROR",
        };
        let row = listed.next().expect("a row for each frame type");
        assert_eq!(row[..2], [format!("0x{:02x}", frame_type.code()).as_str(), name]);
    }
    for typ in Type::ALL {
        let row = listed.next().expect("a row for each message type");
        let rule = format!("`{}-body`", typ.name().to_lowercase().replace('_', "-"));
        assert_eq!(row[..3], [format!("0x{:02X}", typ.code()).as_str(), typ.name(), &rule]);
    }
    assert_eq!(listed.next(), None, "the page lists a type that nobody speaks");
}

#[test]
fn limits_and_refusals_of_the_page_are_the_code_s() {
    let number = |value: usize| {
        let digits = value.to_string();
        let groups: Vec<_> =
            digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
        groups.join(",")
    };
    let limits = [
        ("depth", CBOR_DEPTH_MAX),
        ("items in one array", CBOR_CONTAINER_ITEMS_MAX),
        ("items in one message", CBOR_ITEMS_MAX),
        ("bytes of map keys", CBOR_MAP_KEYS_BYTES_MAX),
    ];
    for (first, value) in limits {
        assert_eq!(rows(first)[0][1], number(value), "{first}");
    }
    assert_eq!(rows("a DID")[0][1], format!("{} bytes", number(DID_BYTES_MAX)));
    for refusal in
        [NotAdmitted::NotListed, NotAdmitted::OtherDid, NotAdmitted::Token, NotAdmitted::TooManyLinks]
    {
        assert_eq!(rows(&format!("`{}`", refusal.as_str())).len(), 1, "{refusal:?}");
    }
}

/// The files below a folder of the project that may cite the page.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_source = path.extension().is_some_and(|extension| extension == "rs" || extension == "cddl");
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if is_source {
            found.push(path);
        }
    }
}

#[test]
fn sections_that_the_code_cites_are_there() {
    let headings = PAGE.lines().filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")));
    let sections: BTreeSet<&str> = headings
        .filter_map(|heading| heading.split(' ').next())
        .filter(|word| word.starts_with(|first: char| first.is_ascii_digit()))
        .map(|word| word.trim_end_matches('.'))
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for folder in ["cddl", "proto", "src", "tests", "benches", "fuzz", "examples"] {
        sources(&root.join(folder), &mut files);
    }
    let citation = Regex::new(r"PROTOCOL [0-9.]+(?:(?:, | and | to )[0-9]+(?:\.[0-9]+)*)*").unwrap();
    let number = Regex::new(r"[0-9]+(?:\.[0-9]+)*").unwrap();
    let mut cited = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for found in citation.find_iter(&text) {
            let words = &text[found.range()];
            for found in number.find_iter(words) {
                let section = &words[found.range()];
                assert!(sections.contains(section), "{}: no section {section} ({words})", file.display());
                cited += 1;
            }
        }
    }
    assert!(cited > 400, "{cited} citations found");
}
