//! Compares the quick walk with the plain walk, which reads item by item and byte by byte.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// All that a walk leaves behind.
fn walked(
    bytes: &[u8],
    tags: TagPolicy,
    items_left: usize,
    depth: usize,
    is_plain: bool,
) -> impl PartialEq + std::fmt::Debug {
    let mut checker = Checker { items_left, is_plain, ..Checker::new(bytes, tags) };
    let end = checker.item(0, depth);
    (end, checker.payload, checker.items_left, checker.map_keys_bytes_left, checker.tags)
}

fn assert_alike(bytes: &[u8], items_left: usize, depth: usize) {
    for tags in [TagPolicy::Anywhere, TagPolicy::UnderPayloadKeys] {
        let [quick, plain] = [false, true].map(|is_plain| walked(bytes, tags, items_left, depth, is_plain));
        assert_eq!(quick, plain, "{tags:?} {items_left} {depth} {bytes:02x?}");
    }
}

/// Heads of each length.
fn head(major: u8, argument: usize, is_long: bool) -> Vec<u8> {
    match (is_long, argument) {
        (false, 0..24) => vec![major << 5 | argument as u8],
        (_, 0..0x100) => vec![major << 5 | 24, argument as u8],
        _ => [&[major << 5 | 25][..], &u16::try_from(argument).unwrap().to_be_bytes()].concat(),
    }
}

fn text(content: &[u8]) -> Vec<u8> {
    [head(3, content.len(), false), content.to_vec()].concat()
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    const NAMES: [&str; 18] = [
        "",
        "a",
        "id",
        "ext",
        "days",
        "city",
        "high",
        "units",
        "result",
        "params",
        "weight",
        "details",
        "stations",
        "stations2",
        "stationed",
        "timeout_ms",
        "Ünits",
        "a name of twenty-three b",
    ];
    prop_oneof![
        12 => proptest::sample::select(&NAMES[..]).prop_map(|name| text(name.as_bytes())),
        1 => proptest::sample::select(&NAMES[..]).prop_map(|name| [head(3, name.len(), true), name.as_bytes().to_vec()].concat()),
        1 => leaf(),
        1 => Just(vec![0xa1, 0x61, b'a', 0x00]),
    ]
}

fn leaf() -> impl Strategy<Value = Vec<u8>> {
    let ascii = |length| vec(b'a'..=b'z', length);
    let any_text =
        prop_oneof![4 => Just("é".to_owned()), 1 => Just("a".repeat(31)), 1 => Just("日本".to_owned())];
    prop_oneof![
        4 => ascii(0..24).prop_map(|content| text(&content)),
        3 => ascii(24..300).prop_map(|content| text(&content)),
        1 => (ascii(0..40), any_text, ascii(0..40)).prop_map(|(a, b, c)| text(&[&a, b.as_bytes(), &c].concat())),
        3 => (0..24u8).prop_map(|number| vec![number]),
        2 => any::<u16>().prop_map(|number| [&[0x19][..], &number.to_be_bytes()].concat()),
        1 => any::<u64>().prop_map(|number| [&[0x3b][..], &number.to_be_bytes()].concat()),
        1 => any::<f64>().prop_map(|number| [&[0xfb][..], &number.to_be_bytes()].concat()),
        1 => vec(any::<u8>(), 0..30).prop_map(|content| [head(2, content.len(), false), content].concat()),
        1 => proptest::sample::select(vec![0xf4, 0xf5, 0xf6, 0xf7, 0xff]).prop_map(|simple| vec![simple]),
        1 => Just(vec![0x7f, 0x61, b'a', 0x62, b'b', b'c', 0xff]),
    ]
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    leaf().prop_recursive(6, 60, 8, |inner| {
        let map = (vec((key(), inner.clone()), 0..6), 0..10u8).prop_map(|(mut pairs, form)| {
            if form > 0 {
                pairs.sort();
                pairs.dedup_by(|a, b| a.0 == b.0);
            }
            let head = if form == 1 { vec![0xbf] } else { head(5, pairs.len(), form == 2) };
            let behind: &[u8] = if form == 1 { &[0xff] } else { &[] };
            [
                &head[..],
                &pairs.into_iter().flat_map(|(key, value)| [key, value].concat()).collect::<Vec<_>>(),
                behind,
            ]
            .concat()
        });
        let array = (vec(inner.clone(), 0..6), 0..10u8).prop_map(|(items, form)| {
            let head = if form == 1 { vec![0x9f] } else { head(4, items.len(), form == 2) };
            let behind: &[u8] = if form == 1 { &[0xff] } else { &[] };
            [&head[..], &items.concat(), behind].concat()
        });
        prop_oneof![
            6 => map,
            4 => array,
            1 => inner.prop_map(|inner| [&[0xc1][..], &inner].concat()),
        ]
    })
}

#[derive(Clone, Debug)]
enum Change {
    Set(u8),
    Add(u8),
    Remove,
    End,
}

fn change() -> impl Strategy<Value = (proptest::sample::Index, Change)> {
    let change = prop_oneof![
        6 => any::<u8>().prop_map(Change::Set),
        3 => proptest::sample::select(vec![0x60, 0x78, 0x80, 0x98, 0xa0, 0xa1, 0xb8, 0xc0, 0xff]).prop_map(Change::Set),
        2 => any::<u8>().prop_map(Change::Add),
        2 => Just(Change::Remove),
        1 => Just(Change::End),
    ];
    (any::<proptest::sample::Index>(), change)
}

fn changed(mut bytes: Vec<u8>, changes: Vec<(proptest::sample::Index, Change)>) -> Vec<u8> {
    for (at, change) in changes {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match change {
            Change::Set(byte) => bytes[at] = byte,
            Change::Add(byte) => bytes.insert(at, byte),
            Change::Remove => drop(bytes.remove(at)),
            Change::End => bytes.truncate(at),
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn each_walk_ends_alike_and_leaves_the_same_behind(
        message in message(),
        changes in vec(change(), 0..4),
        behind in 0..80usize,
        items_left in prop_oneof![4 => Just(CBOR_ITEMS_MAX), 1 => 0..40usize],
        depth in prop_oneof![4 => Just(0), 1 => CBOR_DEPTH_MAX - 6..=CBOR_DEPTH_MAX],
    ) {
        let whole = [&message[..], &vec![b'~'; behind]].concat();
        assert_alike(&whole, items_left, depth);
        assert_alike(&changed(whole, changes), items_left, depth);
    }
}

#[test]
fn each_walk_ends_alike_at_each_byte_that_a_message_may_have_or_end_at() {
    let weights = |count: u8| {
        let station = |number: u8| {
            [&[0xa2][..], &text(b"id"), &text(b"NL-0001-A"), &text(b"weight"), &[0x19, 1, number]].concat()
        };
        [head(4, count.into(), false), (0..count).flat_map(station).collect()].concat()
    };
    let note = text(&[b'n'; 40]);
    let pairs = [&text(b"city")[..], &note, &text(b"days"), &[5], &text(b"stations"), &weights(3)].concat();
    let params = [&[0xa3][..], &pairs].concat();
    let message = [&[0xa2][..], &text(b"id"), &text(b"c"), &text(b"params"), &params, &text(b"x")].concat();
    for at in 0..message.len() {
        assert_alike(&message[..at], CBOR_ITEMS_MAX, 0);
        assert_alike(&message, at, 0);
        for byte in 0..=u8::MAX {
            let mut message = message.clone();
            message[at] = byte;
            assert_alike(&message, CBOR_ITEMS_MAX, 0);
        }
    }
    for count in [23, 24, 255] {
        assert_alike(&weights(count), CBOR_ITEMS_MAX, 0);
        assert_alike(&weights(count), usize::from(count) * 5, 0);
        assert_alike(&weights(count), usize::from(count) * 5 + 1, CBOR_DEPTH_MAX - 2);
        assert_alike(&weights(count), CBOR_ITEMS_MAX, CBOR_DEPTH_MAX - 1);
    }
}
