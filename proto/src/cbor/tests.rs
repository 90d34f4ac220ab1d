use proptest::prelude::*;
use serde_json::json;

use super::item::SKIPPED;
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
fn an_array_or_tag_that_is_a_key_in_two_forms_is_a_duplicate() {
    for (first, second) in [
        ("8101", "811801"),
        ("8101", "9f01ff"),
        ("9f01ff", "8101"),
        ("818101", "9f9f1801ffff"),
        ("82626162f93c00", "98027f61616162fffa3f800000"),
        ("c101", "d80101"),
        ("c18101", "c19f01ff"),
        ("81a10001", "81bf1800 01ff"),
    ] {
        let [first, second] = [first, second].map(bytes);
        let given = [&[0xa3][..], &first, &[0x00, 0x05, 0x00], &second, &[0x00]].concat();
        let error = check(&given).unwrap_err();
        assert_eq!((error.offset, error.kind), (1, ErrorKind::DuplicateKey), "{given:02x?}");
        let other = [&[0xa2][..], &first, &[0x00, 0x81], &second, &[0x00]].concat();
        assert_eq!(check(&other), Ok(()), "{other:02x?}");
    }
}

#[test]
fn keys_that_hold_maps_are_bounded_together_and_at_each_level() {
    // Each is a map of one byte string: as many bytes as may be in four keys, which differ in their last byte.
    let key = |bytes: usize, last: u8| {
        let length = u16::try_from(bytes - 5).unwrap().to_be_bytes();
        [&[0xa1, 0x59][..], &length, &vec![0; bytes - 6], &[last, 0x00]].concat()
    };
    let quarter = CBOR_MAP_KEYS_BYTES_MAX / 4;
    let map = |keys: &[Vec<u8>]| {
        let pairs = keys.iter().flat_map(|key| [&key[..], &[0x00]].concat());
        [0xa0 | keys.len() as u8].into_iter().chain(pairs).collect::<Vec<u8>>()
    };
    let mut keys: Vec<_> = (0..4).map(|last| key(quarter, last)).collect();
    assert_eq!(check(&map(&keys)), Ok(()));
    keys.push(bytes("a0"));
    let error = check(&map(&keys)).unwrap_err();
    assert_eq!((error.offset, error.kind), (1 + 4 * (quarter + 1), ErrorKind::MapKeysTooLarge));
    assert!(error.to_string().contains(&CBOR_MAP_KEYS_BYTES_MAX.to_string()), "{error}");

    // Behind an array and a tag as well, and once more for each level.
    let half = |wrap: &[u8]| [wrap, &key(CBOR_MAP_KEYS_BYTES_MAX / 2 - wrap.len(), 0)].concat();
    for wrap in [&[0x81][..], &[0xc1], &[0x9f]] {
        let end: &[u8] = if wrap == [0x9f] { &[0xff] } else { &[] };
        let once = [&half(wrap)[..], end].concat();
        assert_eq!(check(&map(std::slice::from_ref(&once))), Ok(()));
        let twice = map(&[map(&[once])]);
        assert_eq!(check(&twice).unwrap_err().kind, ErrorKind::MapKeysTooLarge);
    }
    // Values and other keys are not counted.
    let value = [&[0xa1, 0x00][..], &key(40_000, 0)].concat();
    assert_eq!(check(&value), Ok(()));

    // One checker is one message.
    let items = [map(&keys[..3]), map(&keys[..2])].concat();
    let mut checker = Checker::new(&items, TagPolicy::Anywhere);
    let second = checker.item(0, 0).unwrap();
    assert_eq!(checker.item(second, 0).unwrap_err().kind, ErrorKind::MapKeysTooLarge);
}

#[test]
fn maps_that_are_keys_in_keys_are_refused_before_any_is_written_anew() {
    let count: u16 = 60_000;
    let pairs = (0..count).rev().flat_map(|number| [&[0x19][..], &number.to_be_bytes(), &[0x00]].concat());
    let innermost: Vec<u8> = [&[0xb9][..], &count.to_be_bytes()].concat().into_iter().chain(pairs).collect();
    let levels = CBOR_DEPTH_MAX - 1;
    let nested = [&vec![0xa2; levels][..], &innermost, &[0x00, 0x00, 0x00].repeat(levels)].concat();
    // The level right around it is the first that would, and is as far as the check comes.
    let error = check(&nested).unwrap_err();
    assert_eq!((error.offset, error.kind), (levels, ErrorKind::MapKeysTooLarge));
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
fn an_item_within_containers_is_checked_as_it_would_stand_there() {
    assert_eq!(check_within(&[vec![0x81; CBOR_DEPTH_MAX - 8], vec![0x00]].concat(), 8), Ok(()));
    assert_eq!(
        check_within(&[vec![0x81; CBOR_DEPTH_MAX - 7], vec![0x00]].concat(), 8).unwrap_err().kind,
        ErrorKind::TooDeep
    );
    assert_eq!(check_within(&[0x00, 0x00], 8).unwrap_err().kind, ErrorKind::TrailingBytes);
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

/// A map of two keys out of order, around `inner`.
fn out_of_order(inner: &[u8]) -> Vec<u8> {
    [&[0xa2, 0x61, b'b'], inner, &[0x61, b'a', 0x00]].concat()
}

fn nested_out_of_order(inner: Vec<u8>, depth: usize) -> Vec<u8> {
    (0..depth).fold(inner, |inner, _| out_of_order(&inner))
}

/// A list of `count` times `item`.
fn list_of(item: &[u8], count: u16) -> Vec<u8> {
    [vec![0x99], count.to_be_bytes().to_vec(), item.repeat(usize::from(count))].concat()
}

#[test]
fn maps_in_maps_are_put_in_order_without_walking_through_them_at_each_level() {
    let pairs: Vec<u8> =
        (0..1_000_u16).rev().flat_map(|n| [0x19, (n >> 8) as u8 + 1, n as u8, 0x00]).collect();
    let pairs = [vec![0xb9, 0x03, 0xe8], pairs].concat();
    let indefinite = [vec![0x9f], vec![0x00; 20_000], vec![0xff]].concat();
    let tagged = [vec![0xc1], list_of(&[0x00], 20_000)].concat();
    for (name, payload) in [
        ("numbers in the innermost", nested_out_of_order(list_of(&[0x00], 60_000), 60)),
        ("pairs in the innermost", nested_out_of_order(list_of(&pairs, 20), 60)),
        ("indefinite in the innermost", nested_out_of_order(indefinite, 60)),
        ("tagged in the innermost", nested_out_of_order(tagged, 60)),
        (
            "lists between",
            (0..30).fold(list_of(&[0x00], 60_000), |inner, _| list_of(&out_of_order(&inner), 1)),
        ),
        ("many small ones", list_of(&nested_out_of_order(vec![0x00], 60), 500)),
        (
            "numbers at each level",
            (0..30).fold(vec![0x00], |inner, _| {
                out_of_order(&[vec![0x82], list_of(&[0x00], 1_000), inner].concat())
            }),
        ),
    ] {
        let walked = |work: &mut dyn FnMut()| {
            let before = SKIPPED.get();
            work();
            SKIPPED.get() - before
        };
        let checked = walked(&mut || check(&payload).unwrap());
        let mut out = Vec::new();
        let written = walked(&mut || deterministic(&payload, &mut out).unwrap());
        assert!(is_deterministic(&out), "{name}");
        let items = payload.len();
        assert!(checked <= 8 * items && written <= 32 * items, "{name}: {checked} and {written} of {items}");
    }
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
    assert_eq!(json::to_json_text(&cbor).unwrap(), r#"{"a":[1,-2,0.5,null,true,"x"],"b":{}}"#);
    assert_eq!(json::to_json_text(&bytes("82a06161")).unwrap(), r#"[{},"a"]"#);
    assert_eq!(json::to_json(&bytes("4101")).unwrap(), json!("AQ"));
    for (hex, path) in [
        ("3bffffffffffffffff", "/"),
        ("a16161f97e00", "/a"),
        ("a1612f8200f7", "/~1/1"),
        ("a161618100", ""),
        ("a10100", "/"),
        ("a16161a161 62c100", "/a/b"),
        ("9f00bf616101 617e9f01820203 fb7ff0000000000000ffffff", "/1/~0/2"),
        ("a26161a10000 6162f7", "/a"),
    ] {
        let error = json::to_json(&bytes(hex));
        assert_eq!(json::check_json(&bytes(hex)), error.clone().map(drop), "{hex}");
        assert_eq!(json::to_json_text(&bytes(hex)).map(drop), error.clone().map(drop), "{hex}");
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

#[test]
fn an_item_whose_first_byte_tells_its_end_is_as_long_as_its_head_says_and_json() {
    let mut told = 0;
    for first in 0..=u8::MAX {
        let Some(count) = short_bytes(first) else { continue };
        told += 1;
        let item = [&[first][..], &[b'~'; 23]].concat();
        let head = Reader::new(&item).head().unwrap();
        let content = if matches!(head.kind(), Kind::Bytes | Kind::Text) { head.argument } else { 0 };
        assert_eq!(count, head.head_bytes + usize::try_from(content).unwrap(), "{first:02x}");
        assert_eq!(Reader::new(&item).skip(), Ok(&item[..count]), "{first:02x}");
        check(&item[..count]).unwrap();
        json::to_json(&item[..count]).unwrap();
        assert!(check(&item[..count - 1]).is_err(), "{first:02x}");
        assert!(Reader::new(&item[..count - 1]).skip().is_err(), "{first:02x}");
    }
    // Two kinds of integers in one byte and two of strings, seven longer integers, three literals.
    assert_eq!(told, 4 * 24 + 7 + 3);
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

/// A key in one of its encodings: as ciborium writes it, with a longer head, or in chunks.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let string = |major: u8| {
        proptest::collection::vec(b'a'..=b'c', 0..6).prop_flat_map(move |content| {
            let definite = [&[major << 5 | 24, content.len() as u8][..], &content].concat();
            (0..=content.len(), Just((content, definite))).prop_map(move |(cut, (content, definite))| {
                let chunk = |part: &[u8]| [&[major << 5 | part.len() as u8][..], part].concat();
                let chunks = [chunk(&content[..cut]), chunk(&content[cut..])].concat();
                if cut == 0 { definite } else { [&[major << 5 | 31][..], &chunks, &[0xff]].concat() }
            })
        })
    };
    let written = |value: ciborium::Value| {
        let mut bytes = Vec::new();
        ciborium::into_writer(&value, &mut bytes).unwrap();
        bytes
    };
    prop_oneof![
        item().prop_map(written),
        string(2),
        string(3),
        any::<u16>().prop_map(|number| [&[0x1a, 0, 0][..], &number.to_be_bytes()].concat()),
        any::<u16>().prop_map(|number| [&[0x81, 0x3a, 0, 0][..], &number.to_be_bytes()].concat()),
        any::<f32>().prop_map(|float| [&[0xfb][..], &f64::from(float).to_be_bytes()].concat()),
    ]
}

/// A head in one of the forms that its argument, which is below 24, may have.
fn head(major: u8, argument: u8, form: u8) -> Vec<u8> {
    let major = major << 5;
    match form % 5 {
        0 => vec![major | argument],
        1 => vec![major | 24, argument],
        2 => vec![major | 25, 0, argument],
        3 => vec![major | 26, 0, 0, 0, argument],
        _ => vec![major | 27, 0, 0, 0, 0, 0, 0, 0, argument],
    }
}

/// Items whose first byte tells where they end, most of them text, and not all of it ASCII or even UTF-8.
fn short_item() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![8 => b'a'..=b'b', 1 => Just(0x80), 1 => Just(0xc3)];
    let text = proptest::collection::vec(byte, 0..24)
        .prop_map(|content| [&[0x60 + content.len() as u8][..], &content].concat());
    let twin = (0..2u8).prop_map(|last| [&b"\x6astation_0"[..], &[b'0' + last]].concat());
    prop_oneof![6 => text, 2 => twin, 1 => (0..24u8).prop_map(|number| vec![number]), 1 => Just(vec![0x19, 1, 0])]
}

/// A key without maps in any of its encodings, of few values, so that two of them often begin alike.
fn loose_key() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        (0..=1u8, 0..3u8, any::<u8>()).prop_map(|(major, number, form)| head(major, number, form)),
        (2..=3u8, proptest::collection::vec(b'a'..=b'b', 0..3), any::<u8>())
            .prop_map(|(major, content, form)| [head(major, content.len() as u8, form), content].concat()),
        (2..=3u8, proptest::collection::vec(proptest::collection::vec(b'a'..=b'b', 0..2), 0..4)).prop_map(
            |(major, chunks)| {
                let chunk = |chunk: Vec<u8>| [head(major, chunk.len() as u8, 0), chunk].concat();
                [vec![major << 5 | 31], chunks.into_iter().flat_map(chunk).collect(), vec![0xff]].concat()
            }
        ),
        prop_oneof![Just(vec![0xf4]), Just(vec![0xf6]), Just(vec![0xf8, 0x40])],
        (0..3u8, any::<bool>()).prop_map(|(number, is_wide)| {
            let number = f32::from(number) + 0.5;
            if is_wide {
                [&[0xfb][..], &f64::from(number).to_be_bytes()].concat()
            } else {
                [&[0xfa][..], &number.to_be_bytes()].concat()
            }
        }),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let items = proptest::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            (items.clone(), any::<u8>()).prop_map(|(items, form)| [
                head(4, items.len() as u8, form),
                items.concat()
            ]
            .concat()),
            items.prop_map(|items| [vec![0x9f], items.concat(), vec![0xff]].concat()),
            (0..2u8, any::<u8>(), inner)
                .prop_map(|(number, form, inner)| [head(6, number, form), inner].concat()),
        ]
    })
}

#[test]
fn a_map_that_is_a_key_in_a_key_is_put_in_order_once_however_deep() {
    // Twice as long for each level would be for ever.
    let (mut given, mut wanted) = (vec![0x01], vec![0x01]);
    for _ in 0..CBOR_DEPTH_MAX - 1 {
        given = [&[0xa2][..], &given, &[0x00, 0x00, 0x00]].concat();
        wanted = [&[0xa2, 0x00, 0x00][..], &wanted, &[0x00]].concat();
    }
    assert_eq!(check(&given), Ok(()));
    let mut written = Vec::new();
    deterministic(&given, &mut written).unwrap();
    assert_eq!(written, wanted);
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
        let (mut scratch, mut joined) = (Vec::new(), Vec::new());
        deterministic_pieces(&given, &mut scratch, &mut |piece| joined.extend_from_slice(piece)).unwrap();
        prop_assert_eq!(&joined, &rewritten);
        prop_assert_eq!(deterministic_len(&given, &mut scratch), Ok(rewritten.len()));
        prop_assert_eq!(json::check_json(&given), json::to_json(&given).map(drop));
        let text = json::to_json_text(&given);
        prop_assert_eq!(text.clone().map(drop), json::check_json(&given));
        if let (Ok(text), Ok(value)) = (text, json::to_json(&given)) {
            // A value may have its members in another order.
            let sorted = |text: &str| {
                let mut bytes = text.as_bytes().to_vec();
                bytes.sort_unstable();
                bytes
            };
            prop_assert_eq!(sorted(&text), sorted(&value.to_string()));
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
        }
        for end in 0..given.len() {
            prop_assert!(check(&given[..end]).is_err());
        }
    }

    #[test]
    fn keys_of_every_kind_and_form_come_out_in_the_order_of_their_encodings(keys in proptest::collection::vec(key(), 0..12)) {
        let mut pairs = std::collections::BTreeMap::new();
        for key in keys {
            let mut written = Vec::new();
            deterministic(&key, &mut written).unwrap();
            pairs.entry(written).or_insert(key);
        }
        // By the bytes that were given, which is another order than that of the map.
        let mut given: Vec<_> = pairs.values().map(|key| [&key[..], &[0x18, 0x01]].concat()).collect();
        given.sort_by(|a, b| b.cmp(a));
        let given = [&[0xa0 | given.len() as u8][..], &given.concat()].concat();
        prop_assert_eq!(check(&given), Ok(()));
        let mut wanted = vec![0xa0 | pairs.len() as u8];
        pairs.keys().for_each(|key| wanted.extend([&key[..], &[0x01]].concat()));
        let mut rewritten = Vec::new();
        deterministic(&given, &mut rewritten).unwrap();
        prop_assert_eq!(rewritten, wanted);
    }

    #[test]
    fn keys_stand_in_the_order_of_their_deterministic_encodings(
        keys in proptest::collection::vec(loose_key(), 2..8),
        behind in proptest::collection::vec(any::<u8>(), 0..4),
    ) {
        let written = |key: &[u8]| {
            let mut written = Vec::new();
            deterministic(key, &mut written).unwrap();
            written
        };
        for a in &keys {
            prop_assert_eq!(order::compare(&[a, &behind[..]].concat(), &written(a)), std::cmp::Ordering::Equal);
            for b in &keys {
                prop_assert_eq!(order::compare(a, &[b, &behind[..]].concat()), written(a).cmp(&written(b)));
            }
        }
        let mut sorted: Vec<_> = keys.iter().map(|key| written(key)).collect();
        sorted.sort();
        sorted.dedup();
        let is_unique = sorted.len() == keys.len();
        let pairs: Vec<u8> = keys.iter().flat_map(|key| [key, &[0x00][..]].concat()).collect();
        let given = [&[0xa0 | keys.len() as u8][..], &pairs].concat();
        prop_assert_eq!(check(&given).map_err(|error| error.kind), if is_unique { Ok(()) } else { Err(ErrorKind::DuplicateKey) });
        if is_unique {
            let pairs: Vec<u8> = sorted.iter().flat_map(|key| [key, &[0x00][..]].concat()).collect();
            prop_assert_eq!(written(&given), [&[0xa0 | keys.len() as u8][..], &pairs].concat());
        }
    }

    #[test]
    fn a_map_is_looked_at_alike_whether_or_not_its_length_stands_in_front(
        pairs in proptest::collection::vec((short_item(), short_item()), 0..6),
        behind in 0..30u8,
        is_sorted in any::<bool>(),
    ) {
        let mut pairs: Vec<_> = pairs.into_iter().map(|(key, value)| [key, value].concat()).collect();
        if is_sorted {
            pairs.sort();
        }
        let head = [0xa0 + pairs.len() as u8];
        let tail = [vec![0x58, behind], vec![0; behind.into()]].concat();
        let definite = [&[0x82][..], &head, &pairs.concat(), &tail].concat();
        let indefinite = [&[0x82, 0xbf][..], &pairs.concat(), &[0xff], &tail].concat();
        prop_assert_eq!(check(&definite), check(&indefinite));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_ciborium_agrees_on_what_is_accepted(given in proptest::collection::vec(any::<u8>(), 0..64)) {
        let accepted = check(&given).is_ok();
        let _ = is_deterministic(&given);
        let read = json::to_json(&given).map(drop);
        prop_assert!(!accepted || json::check_json(&given) == read, "{:?}", read);
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
