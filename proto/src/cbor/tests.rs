use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::limits::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn refused(hex: &str) -> (usize, ErrorKind) {
    let error = check(&bytes(hex)).expect_err(hex);
    (error.offset, error.kind)
}

#[test]
fn well_formed_items_are_accepted() {
    for hex in [
        "00",
        "1bffffffffffffffff",
        "3bffffffffffffffff",
        "40",
        "60",
        "80",
        "a0",
        "f4",
        "f6",
        "f7",
        "f97e00",
        "fa47c35000",
        "5f41004101ff",
        "7f6161ff",
        "9f00ff",
        "bf616100ff",
        "c074323031332d30332d32315432303a30343a30305a",
        "f8ff",
        "a26161016162a0",
        "a2616201616102",
        "a201021903e803",
        "9f9fffbfffff",
    ] {
        assert_eq!(check(&bytes(hex)), Ok(()), "{hex}");
    }
}

#[test]
fn malformed_items_name_their_first_bad_byte() {
    assert_eq!(refused(""), (0, ErrorKind::Truncated));
    assert_eq!(refused("18"), (0, ErrorKind::Truncated));
    assert_eq!(refused("1c"), (0, ErrorKind::ReservedHead));
    assert_eq!(refused("1f"), (0, ErrorKind::ReservedHead));
    assert_eq!(refused("8200ff"), (2, ErrorKind::UnexpectedBreak));
    assert_eq!(refused("0000"), (1, ErrorKind::TrailingBytes));
    assert_eq!(refused("8161ff"), (1, ErrorKind::InvalidUtf8));
    assert_eq!(refused("7f61ffff"), (1, ErrorKind::InvalidUtf8));
    assert_eq!(refused("5f6161ff"), (1, ErrorKind::InvalidChunk));
    assert_eq!(refused("5f5f4100ffff"), (1, ErrorKind::InvalidChunk));
    assert_eq!(refused("f81f"), (0, ErrorKind::InvalidSimple));
    assert_eq!(refused("bf6161ff"), (3, ErrorKind::UnexpectedBreak));
    assert_eq!(refused("8161"), (1, ErrorKind::LengthBeyondInput));
    assert_eq!(refused("5b0000001000000000"), (0, ErrorKind::LengthBeyondInput));
    assert_eq!(refused("9b0000001000000000"), (0, ErrorKind::LengthBeyondInput));
    assert_eq!(refused("bbffffffffffffffff"), (0, ErrorKind::LengthBeyondInput));
}

#[test]
fn one_key_in_two_spellings_is_a_duplicate() {
    assert_eq!(refused("a2616100616101"), (4, ErrorKind::DuplicateKey));
    assert_eq!(refused("a3616200616101616202"), (7, ErrorKind::DuplicateKey));
    for hex in
        ["a20100180102", "a26161007f6161ff01", "a2f93c0000fa3f80000001", "a281180100810102", "a2a0006161a0"]
    {
        let accepted = hex == "a2a0006161a0";
        assert_eq!(check(&bytes(hex)).is_ok(), accepted, "{hex}");
    }
}

#[test]
fn depth_and_item_bounds_hold_at_the_bound_and_one_past_it() {
    let nested = |depth: usize| [vec![0x81; depth], vec![0x00]].concat();
    assert_eq!(check(&nested(CBOR_DEPTH_MAX)), Ok(()));
    assert_eq!(check(&nested(CBOR_DEPTH_MAX + 1)).unwrap_err().kind, ErrorKind::TooDeep);
    assert_eq!(check(&vec![0xc1; 1 << 20]).unwrap_err().kind, ErrorKind::TooDeep);
    assert_eq!(check(&vec![0x9f; 1 << 20]).unwrap_err().kind, ErrorKind::TooDeep);

    let wide = |count: usize| [vec![0x9f], vec![0x00; count], vec![0xff]].concat();
    assert_eq!(check(&wide(CBOR_CONTAINER_ITEMS_MAX)), Ok(()));
    assert_eq!(check(&wide(CBOR_CONTAINER_ITEMS_MAX + 1)).unwrap_err().kind, ErrorKind::ContainerTooLarge);

    let mut many = vec![0x90];
    for _ in 0..16 {
        many.extend(wide(CBOR_CONTAINER_ITEMS_MAX));
    }
    assert_eq!(check(&many).unwrap_err().kind, ErrorKind::TooManyItems);
}

#[test]
fn tags_stand_only_under_payload_keys_when_asked_so() {
    let run = |hex: &str| {
        let bytes = bytes(hex);
        Checker::new(&bytes, TagPolicy::UnderPayloadKeys).item(0, 0).map_err(|error| error.kind)
    };
    assert!(run("a166706172616d73c100").is_ok());
    assert!(run("a1656572726f72a16764657461696c7381c100").is_ok());
    assert_eq!(run("a16178c100"), Err(ErrorKind::TagNotAllowed));
    assert_eq!(run("a266706172616d73c1006178c100"), Err(ErrorKind::TagNotAllowed));
}

#[test]
fn deterministic_form_is_shortest_and_sorted() {
    for (given, wanted) in [
        ("1800", "00"),
        ("bf61620061610102a0ff", "a302a06161016162 00"),
        ("fb3ff0000000000000", "f93c00"),
        ("fb7ff8000000000001", "f97e00"),
        ("7f61616162ff", "626162"),
        ("5f4101ff", "4101"),
        ("9f9f00ffff", "818100"),
        ("fa47c35000", "fa47c35000"),
    ] {
        let (given, wanted) = (bytes(given), bytes(wanted));
        let mut out = Vec::new();
        deterministic(&given, &mut out).unwrap();
        assert_eq!(out, wanted);
        assert_eq!(is_deterministic(&given), given == wanted);
        assert!(is_deterministic(&wanted));
    }
}

#[test]
fn json_view_follows_the_payload_mapping() {
    let json = json!({"a": [1, -2, 0.5, null, true, "x"], "b": {}});
    let mut cbor = Vec::new();
    json::from_json(&json, &mut cbor);
    assert!(is_deterministic(&cbor));
    assert_eq!(json::to_json(&cbor).unwrap(), json);
    assert_eq!(json::to_json(&bytes("4101")).unwrap(), json!("AQ"));
    for (hex, path) in [
        ("3bffffffffffffffff", "/"),
        ("a16161f97e00", "/a"),
        ("a1612f8200f7", "/~1/1"),
        ("a161618100", ""),
        ("a10100", "/"),
        ("a16161a161 62c100", "/a/b"),
    ] {
        let error = json::to_json(&bytes(hex));
        if path.is_empty() {
            assert!(error.is_ok());
        } else {
            assert_eq!(error.unwrap_err().path, path, "{hex}");
        }
    }
}

#[test]
fn reader_borrows_definite_strings_and_joins_chunks() {
    let input = bytes("836161 7f61616162ff 5f41014102ff");
    let mut reader = Reader::new(&input);
    assert_eq!(reader.array().unwrap(), Some(3));
    assert!(matches!(reader.text().unwrap(), std::borrow::Cow::Borrowed("a")));
    assert_eq!(reader.text().unwrap(), "ab");
    assert_eq!(reader.bytes().unwrap().as_ref(), [1, 2]);
    assert!(reader.is_at_end());
    let mut wrong = Reader::new(&input);
    assert_eq!(wrong.uint().unwrap_err().kind, ErrorKind::Expected("an unsigned integer"));
    assert_eq!(wrong.position(), 0);
}

fn item() -> impl Strategy<Value = ciborium::Value> {
    use ciborium::Value;
    let leaf = prop_oneof![
        any::<i64>().prop_map(|int| Value::Integer(int.into())),
        any::<u64>().prop_map(|int| Value::Integer(int.into())),
        any::<f64>().prop_map(Value::Float),
        any::<bool>().prop_map(Value::Bool),
        Just(Value::Null),
        ".{0,12}".prop_map(Value::Text),
        proptest::collection::vec(any::<u8>(), 0..12).prop_map(Value::Bytes),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::Array),
            proptest::collection::btree_map(".{0,6}", inner.clone(), 0..8)
                .prop_map(|map| Value::Map(map.into_iter().map(|(k, v)| (Value::Text(k), v)).collect())),
            inner.prop_map(|value| Value::Tag(1000, Box::new(value))),
        ]
    })
}

proptest! {
    #[test]
    fn what_ciborium_writes_is_accepted_and_kept(value in item()) {
        let mut given = Vec::new();
        ciborium::into_writer(&value, &mut given).unwrap();
        prop_assert_eq!(check(&given), Ok(()));
        let mut rewritten = Vec::new();
        deterministic(&given, &mut rewritten).unwrap();
        prop_assert!(is_deterministic(&rewritten));
        prop_assert_eq!(is_deterministic(&given), given == rewritten);
        let mut again = Vec::new();
        deterministic(&rewritten, &mut again).unwrap();
        prop_assert_eq!(&rewritten, &again);
        for end in 0..given.len() {
            prop_assert!(check(&given[..end]).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_ciborium_agrees_on_what_is_accepted(given in proptest::collection::vec(any::<u8>(), 0..64)) {
        let accepted = check(&given).is_ok();
        let _ = is_deterministic(&given);
        let _ = json::to_json(&given);
        let _ = Reader::new(&given).skip();
        let mut out = Vec::new();
        if deterministic(&given, &mut out).is_ok() && accepted {
            prop_assert!(is_deterministic(&out));
        }
        if accepted {
            prop_assert!(ciborium::from_reader::<ciborium::Value, _>(&given[..]).is_ok() || given.iter().any(|b| (0xe0..=0xf3).contains(b) || *b == 0xf8 || *b == 0xf7));
        }
    }
}
