use std::borrow::Cow;

use ciborium::Value;

use super::*;
use crate::{
    capability::CapabilityPattern,
    cbor::{self, Checked, Checker, TagPolicy},
    cddl::bodies::{Bodies, bodies},
    code::Code,
    ledger::JournalId,
    limits,
    negotiate::{SessionId, Want},
};

mod capability_bodies;
mod vectors;

pub(super) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

/// The CBOR of a JSON text.
pub(super) fn json(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    cbor::json::from_json(&serde_json::from_str(text).unwrap(), &mut out);
    out
}

#[test]
fn every_type_has_its_code_and_a_rule() {
    for &typ in Type::ALL {
        assert_eq!(Type::from_code(typ.code()), Some(typ));
        assert!(bodies().rule(typ.code()).is_some(), "{typ}");
    }
    let spoken: Vec<_> = Type::ALL.iter().map(|typ| typ.code()).collect();
    let ruled: Vec<_> = Bodies::messages().iter().map(|(code, _)| *code).collect();
    assert_eq!(spoken, ruled);
    assert_eq!(Type::from_code(0x24), None);
}

#[test]
fn good_bodies_are_read_and_written_back_to_the_same_bytes() {
    for (typ, text, says) in vectors::GOOD {
        let body = hex(text);
        cbor::check(&body).unwrap();
        let message = Message::decode(*typ, &body).unwrap_or_else(|error| panic!("{typ} {says}: {error}"));
        message.check_meaning().unwrap_or_else(|error| panic!("{typ} {says}: {error}"));
        assert_eq!(message.typ(), *typ);
        let mut written = Vec::new();
        message.encode(&mut written);
        assert_eq!(written, body, "{typ} {says}");
        assert!(cbor::is_deterministic(&written), "{typ} {says}");
    }
}

#[test]
fn every_type_has_a_good_body_in_hex() {
    for typ in Type::ALL {
        assert!(vectors::GOOD.iter().any(|(of, _, _)| of == typ), "{typ}");
    }
}

#[test]
fn misshapen_bodies_are_1001_with_and_without_their_rule() {
    for (typ, text, says) in vectors::MISSHAPEN {
        let body = hex(text);
        cbor::check(&body).unwrap();
        for error in [Message::decode(*typ, &body), Message::read(*typ, &body)].map(|read| read.map(drop)) {
            assert_eq!(error.expect_err(says).code(), Code::INVALID_MESSAGE, "{typ} {says}");
        }
    }
}

#[test]
fn truncated_bodies_are_refused_and_never_panic() {
    for (typ, text, says) in vectors::GOOD {
        let body = hex(text);
        for end in 0..body.len() {
            assert!(cbor::check(&body[..end]).is_err(), "{typ} {says}");
            let _ = Message::read(*typ, &body[..end]);
        }
    }
}

/// The verdicts of the rule and of the typed reading, which must be one, whether or not the payload is passed over in one step.
fn assert_agreement(typ: Type, body: &[u8]) {
    if cbor::check(body).is_err() {
        return;
    }
    let ruled = Message::decode(typ, body).map(drop);
    let read = Message::read(typ, body).map(drop);
    assert_eq!(ruled.is_ok(), read.is_ok(), "{typ} {}: {ruled:?}, {read:?}", cbor_text(body));
    let mut checker = Checker::new(body, TagPolicy::UnderPayloadKeys);
    if checker.item(0, 0).is_ok() {
        let checked = Checked::new(body, checker.payload());
        assert_eq!(
            Message::decode_checked(typ, checked),
            Message::decode(typ, body),
            "{typ} {}",
            cbor_text(body)
        );
    }
}

fn cbor_text(body: &[u8]) -> String {
    format!("{:?}", ciborium::from_reader::<Value, _>(body).unwrap())
}

#[test]
fn typed_reading_takes_what_the_rules_take_whatever_byte_changes() {
    for (typ, text, _) in vectors::GOOD.iter().chain(vectors::MISSHAPEN) {
        let mut body = hex(text);
        for at in 0..body.len() {
            let kept = body[at];
            for byte in [
                0x00,
                0x18,
                0x20,
                0x40,
                0x60,
                0x61,
                0x80,
                0xa0,
                0xf4,
                0xf5,
                0xf6,
                0xf7,
                kept ^ 1,
                kept ^ 0x20,
            ] {
                body[at] = byte;
                assert_agreement(*typ, &body);
            }
            body[at] = kept;
        }
    }
}

#[test]
fn typed_reading_takes_what_the_rules_take_whatever_item_changes() {
    for (typ, text, _) in vectors::GOOD.iter().chain(vectors::MISSHAPEN) {
        let value: Value = ciborium::from_reader(&hex(text)[..]).unwrap();
        for mutant in mutants(&value) {
            let mut body = Vec::new();
            ciborium::into_writer(&mutant, &mut body).unwrap();
            assert_agreement(*typ, &body);
        }
    }
}

/// The value with one item in it replaced, left out, or added.
fn mutants(value: &Value) -> Vec<Value> {
    let text = |text: &str| Value::Text(text.into());
    let mut all = vec![
        Value::Null,
        Value::Bool(true),
        Value::Bool(false),
        0.into(),
        101.into(),
        (-1).into(),
        Value::Float(0.5),
        text(""),
        text("success"),
        text("sha-512"),
        Value::Bytes(vec![]),
        Value::Bytes(vec![7; 16]),
        Value::Bytes(vec![7; 32]),
        Value::Bytes(vec![7; 64]),
        Value::Array(vec![]),
        Value::Array(vec![text("1.0")]),
        Value::Array(vec![0.into()]),
        Value::Map(vec![]),
        Value::Map(vec![(0.into(), 0.into())]),
        Value::Tag(2, Box::new(Value::Bytes(vec![1]))),
    ];
    if let Value::Array(items) = value {
        for (at, item) in items.iter().enumerate() {
            let with = |changed: Option<Value>| {
                let mut items = items.clone();
                items.splice(at..=at, changed);
                Value::Array(items)
            };
            all.push(with(None));
            all.extend(mutants(item).into_iter().map(|mutant| with(Some(mutant))));
        }
    }
    if let Value::Map(members) = value {
        all.push(Value::Map([members.clone(), vec![(text("other"), 1.into())]].concat()));
        all.push(Value::Map([members.clone(), vec![(1.into(), 1.into())]].concat()));
        for (at, (key, member)) in members.iter().enumerate() {
            let with = |changed: Option<(Value, Value)>| {
                let mut members = members.clone();
                members.splice(at..=at, changed);
                Value::Map(members)
            };
            all.push(with(None));
            all.push(with(Some((text("other"), member.clone()))));
            all.extend(mutants(member).into_iter().map(|mutant| with(Some((key.clone(), mutant)))));
        }
    }
    all
}

#[test]
fn indefinite_lengths_are_read_alike() {
    // {_ "versions": [_ (_ "1", ".0")], "extensions": [_ ]}
    let body = hex("bf 6876657273696f6e73 9f 7f 6131 622e30 ff ff 6a657874656e73696f6e73 9f ff ff");
    cbor::check(&body).unwrap();
    let hello = Hello::decode(&body).unwrap();
    assert_eq!(
        hello,
        Hello {
            versions: vec!["1.0".into()],
            extensions: vec![],
            agent_info: None,
            journal: None,
            member: Member::default()
        }
    );
}

#[test]
fn both_sides_of_hello_name_their_journals_and_memberships() {
    let journal = Some(JournalId([7; 16]));
    let member = Member { membership: Some(vec![1, 2].into()), incarnation: Some(9) };
    let hello = Hello {
        versions: vec!["1.0".into()],
        extensions: vec!["capd-fleet/1".into()],
        agent_info: None,
        journal,
        member: member.clone(),
    };
    let ack = HelloAck { selected: "1.0".into(), journal, member };
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    hello.encode(&mut said);
    ack.encode(&mut answered);
    assert_eq!(Hello::decode(&said).unwrap(), hello);
    assert_eq!(HelloAck::decode(&answered).unwrap(), ack);
    // One byte more or less is no id.
    for length in [15, 17] {
        let mut body = hex("a2 676a6f75726e616c");
        body.push(0x40 | length);
        body.extend(vec![7; usize::from(length)]);
        body.extend(hex("6873656c6563746564 63312e30"));
        HelloAck::decode(&body).unwrap_err();
    }
}

#[test]
fn a_membership_of_no_bytes_or_of_too_many_is_refused_by_the_rule_and_by_the_reader() {
    for (bytes, is_good) in [(0, false), (1, true), (1_024, true), (1_025, false)] {
        let member = Member { membership: Some(vec![7; bytes].into()), incarnation: None };
        let mut body = Vec::new();
        HelloAck { selected: "1.0".into(), journal: None, member }.encode(&mut body);
        assert_eq!(HelloAck::decode(&body).is_ok(), is_good, "{bytes}");
        assert_eq!(HelloAck::read(&body).is_ok(), is_good, "{bytes}");
    }
}

#[test]
fn unknown_keys_are_ignored() {
    let body = json(r#"{"selected": "1.0", "mood": {"good": [1, 2]}}"#);
    assert_eq!(HelloAck::decode(&body).unwrap().selected, "1.0");
}

#[test]
fn a_shape_error_names_where() {
    let body = json(r#"{"id": "a.b.c:1.0", "params": {}, "timeout_ms": "soon"}"#);
    let said = Invoke::decode(&body).unwrap_err().to_string();
    assert!(said.contains("/timeout_ms") && said.contains("byte"), "{said}");
}

#[test]
fn a_refusal_says_whether_to_come_back() {
    let refusal = ErrorBody::new(Code::RATE_LIMITED, "slow down");
    assert_eq!((refusal.retry, refusal.is_retryable()), (Some(true), true));
    assert!(!ErrorBody::new(Code::BAD_REQUEST, "no").is_retryable());
    let silent = ErrorBody { retry: None, ..ErrorBody::new(Code::TIMEOUT, "late") };
    assert!(silent.is_retryable());
}

#[test]
fn codes_beyond_thirty_two_bits_do_not_wrap() {
    let body = json(r#"{"code": 4294971297, "category": "client", "message": "m"}"#);
    assert_eq!(ErrorBody::decode(&body).unwrap().code, Code(u32::MAX));
}

fn violation(path: &str) -> Violation<'_> {
    Violation { path: path.into(), message: "must be text".into(), keyword: "type".into() }
}

#[test]
fn violations_go_out_in_order_and_come_back() {
    let found = [violation("/a"), violation("/b/0")];
    let details = violation_details(SchemaSide::Response, &found);
    assert_eq!(
        details,
        json(
            r#"{"violations": [{"path": "/a", "keyword": "type", "message": "must be text"},
                {"path": "/b/0", "keyword": "type", "message": "must be text"}], "schema_side": "response"}"#
        )
    );
    assert!(cbor::is_deterministic(&details));
    assert_eq!(violations(&details), found);
    assert_eq!(violations(&json("7")), []);
    assert_eq!(violations(&json(r#"{"violations": [{"path": "/a"}]}"#)), []);
}

#[test]
fn violations_end_at_sixty_four() {
    let many = vec![violation("/a"); limits::VIOLATIONS_MAX + 1];
    let details = violation_details(SchemaSide::Request, &many);
    assert_eq!(violations(&details).len(), limits::VIOLATIONS_MAX);
    assert!(cbor::is_deterministic(&details));
}

#[test]
fn available_versions_stand_in_the_details() {
    let details = available_details(&["2.1".parse().unwrap(), "1.0".parse().unwrap()]);
    assert_eq!(details, json(r#"{"available": ["2.1.0", "1.0.0"]}"#));
}

#[test]
fn an_error_of_any_shape_is_taken_from_an_older_peer() {
    for (error, code, message, keeps_details) in [
        (r#"{"code": 4901, "message": "m"}"#, Code::CANCELLED, Some("m"), false),
        (r#"{"code": 77777}"#, Code(77777), None, false),
        (r#""it broke""#, Code::INTERNAL_ERROR, Some("it broke"), false),
        (r#"{"code": "E7", "message": "m"}"#, Code::INTERNAL_ERROR, None, true),
        (r#"[1, 2]"#, Code::INTERNAL_ERROR, None, true),
        (r#"null"#, Code::INTERNAL_ERROR, None, true),
    ] {
        let body = json(&format!(r#"{{"status": "error", "error": {error}}}"#));
        let result = CapResult::decode(&body).unwrap();
        let Outcome::Error(found) = &result.outcome else { panic!("{error}") };
        let raw = json(error);
        assert_eq!((found.code, found.message.as_deref()), (code, message), "{error}");
        assert_eq!(found.details.is_some(), keeps_details, "{error}");
        assert_eq!(found.raw, Some(&raw[..]), "{error}");
        let mut written = Vec::new();
        result.encode(&mut written);
        assert_eq!(written, body, "{error}");
    }
}

#[test]
fn an_error_of_ours_is_written_with_its_name() {
    let mut written = Vec::new();
    CapResult::error(CallError::new(Code::TIMEOUT, "too slow", None)).encode(&mut written);
    let expected =
        r#"{"status": "error", "error": {"code": 5003, "name": "TIMEOUT", "message": "too slow"}}"#;
    assert_eq!(written, json(expected));
}

#[test]
fn a_document_is_verified_by_its_bytes() {
    let wanted = ContentHash::of(HashAlg::Sha256, b"{}");
    let send = |size, hash: &ContentHash, data: &'static [u8]| DocSend {
        content_type: "application/schema+json".into(),
        filename: "in.json".into(),
        size,
        hash: Cow::Owned(hash.as_bytes().to_vec()),
        data: data.into(),
    };
    assert_eq!(send(2, &wanted, b"{}").verify(&wanted), Ok(()));
    assert_eq!(send(3, &wanted, b"{}").verify(&wanted).unwrap_err().code(), Code::BAD_REQUEST);
    assert_eq!(send(2, &wanted, b"[]").verify(&wanted).unwrap_err().code(), Code::UNAVAILABLE);
    let other = ContentHash::of(HashAlg::Sha256, b"[]");
    assert_eq!(send(2, &other, b"[]").verify(&wanted).unwrap_err().code(), Code::UNAVAILABLE);
    let long = ContentHash::of(HashAlg::Sha512, b"{}");
    assert_eq!(send(2, &long, b"{}").verify(&long), Ok(()));
    assert_eq!(ContentHash::from_slice(long.as_bytes()), Some(long));
    assert_eq!(ContentHash::from_slice(&[0; 20]), None);
}

#[test]
fn a_content_hash_is_that_of_the_standards() {
    // FIPS 180-4's own example, "abc".
    assert_eq!(
        ContentHash::of(HashAlg::Sha256, b"abc").to_string(),
        "sha-256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

fn question(text: &str, order: Order) -> Question {
    let pattern = text.parse::<CapabilityPattern>().unwrap();
    Question { pattern, range: None, words: String::new(), limit: 2, order }
}

#[test]
fn a_cursor_opens_only_for_the_query_it_was_given_for() {
    let key = [7; 32];
    let asked = question("a.b.*", Order::NewestFirst);
    let context = CursorContext { holder: "did:web:ann.example", question: &asked, snapshot: 9 };
    let cursor = Cursor::seal(&key, &context, 300);
    assert_eq!(Cursor::open(&key, &context, &cursor), Ok(300));
    let longer_pages = Question { limit: 50, ..asked.clone() };
    assert_eq!(Cursor::open(&key, &CursorContext { question: &longer_pages, ..context }, &cursor), Ok(300));

    let stale = CursorContext { snapshot: 10, ..context };
    assert_eq!(Cursor::open(&key, &stale, &cursor), Err(CursorError::Stale));
    let ranged = Question { range: Some("1.0".parse().unwrap()), ..asked.clone() };
    let worded = Question { words: "w".to_owned(), ..asked.clone() };
    for borrowed in [
        CursorContext { holder: "did:web:bob.example", ..context },
        CursorContext { question: &question("a.*", Order::NewestFirst), ..context },
        CursorContext { question: &question("a.b.*", Order::OldestFirst), ..context },
        CursorContext { question: &ranged, ..context },
        CursorContext { question: &worded, ..context },
    ] {
        assert_eq!(Cursor::open(&key, &borrowed, &cursor), Err(CursorError::NotOurs), "{borrowed:?}");
    }
    assert_eq!(Cursor::open(&[8; 32], &context, &cursor), Err(CursorError::NotOurs));
    let refused = BodyError::from(Contradiction::from(CursorError::Stale));
    assert_eq!(refused.code(), Code::BAD_REQUEST);
}

#[test]
fn a_cursor_opens_for_the_same_range_written_with_other_build_metadata() {
    let key = [7; 32];
    let ranged =
        |range: &str| Question { range: Some(range.parse().unwrap()), ..question("*", Order::NewestFirst) };
    let open = |asked: &str, other: &str| {
        let (asked, other) = (ranged(asked), ranged(other));
        let context = CursorContext { holder: "did:web:ann.example", question: &asked, snapshot: 9 };
        let cursor = Cursor::seal(&key, &context, 1);
        Cursor::open(&key, &CursorContext { question: &other, ..context }, &cursor)
    };
    assert_eq!(open(">=1.0.0-a+0 <2.0.0+b", ">=1.0.0-a <2.0.0+TT"), Ok(1));
    assert_eq!(open(">=1.0.0-a+0 <2.0.0", ">=1.0.0-b+0 <2.0.0"), Err(CursorError::NotOurs));
}

#[test]
fn a_broken_cursor_is_refused_whatever_character_changes() {
    let key = [7; 32];
    let asked = question("*", Order::NewestFirst);
    let context = CursorContext { holder: "did:web:ann.example", question: &asked, snapshot: 9 };
    let cursor = Cursor::seal(&key, &context, 1);
    for at in 0..cursor.len() {
        let mut broken = cursor.clone().into_bytes();
        broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
        let broken = String::from_utf8(broken).unwrap();
        assert_eq!(Cursor::open(&key, &context, &broken), Err(CursorError::NotOurs), "{at}");
        assert_eq!(Cursor::open(&key, &context, &cursor[..at]), Err(CursorError::NotOurs), "{at}");
    }
    assert_eq!(Cursor::open(&key, &context, &format!("{cursor}A")), Err(CursorError::NotOurs));
    assert_eq!(Cursor::open(&key, &context, "ü"), Err(CursorError::NotOurs));
}
