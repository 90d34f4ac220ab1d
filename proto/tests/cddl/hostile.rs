//! Bytes that try to make a run panic, overflow its stack, or take longer than their length allows.

use super::{edn, run};
use capd_proto::cddl::Program;

/// Schemas whose shapes reach every matcher.
const SCHEMAS: &[&str] = &[
    "a = any",
    "a = {\"k\": int, ? \"o\": [* tstr], * tstr => any}",
    "a = {(x: int // y: tstr), ? (u: a, v: a), * any => any}",
    "a = [* (int, tstr // a)]",
    "a = [a, \"x\"] / [a, \"y\"] / [* a] / {* any => a} / 1",
    "a = #6.1(a) / bstr .cbor a / tstr .regexp \"(a|b)*c\" / {* bstr => a}",
];

fn each_schema(bytes: &[u8]) {
    for text in SCHEMAS {
        _ = run(text, bytes);
    }
}

#[test]
fn every_truncation_of_a_matching_item_is_a_mismatch() {
    let cases = [
        (
            "a = {\"k\": int, ? \"o\": [* tstr], * tstr => any}",
            "{\"k\": 1000, \"o\": [\"x\", \"yy\"], \"z\": {\"q\": [1.5, h'0102', 7(null)]}}",
        ),
        ("a = {(x: int // y: tstr), * any => any}", "{\"y\": \"text\", 1: [_ 1, 2], \"u\": {_ 1: 2}}"),
        ("a = [* (int, tstr)]", "[_ 1, \"x\", 2, (_ \"y\", \"z\")]"),
    ];
    for (text, instance) in cases {
        let bytes = edn(instance);
        assert_eq!(run(text, &bytes), Ok(()), "{text}");
        for length in 0..bytes.len() {
            let mismatch = run(text, &bytes[..length]).unwrap_err();
            assert!(mismatch.offset <= length, "{text} {length}: {mismatch:?}");
        }
        let trailing = run(text, &[&bytes[..], &[0]].concat()).unwrap_err();
        assert_eq!(trailing.offset, bytes.len(), "{text}");
    }
}

#[test]
fn huge_lengths_are_not_believed() {
    for first in [0x5b, 0x7b, 0x9b, 0xbb] {
        for length in
            [[0xff; 8], [0, 0, 0, 0x10, 0, 0, 0, 0], [0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]]
        {
            let bytes = [&[first], &length[..]].concat();
            each_schema(&bytes);
            each_schema(&[&[0xa1, 0x61, b'k'], &bytes[..]].concat());
            assert!(run("a = any", &bytes).is_err());
            assert!(run("a = [* any]", &[&[0x81], &bytes[..]].concat()).is_err());
        }
    }
    // Nested claims that add up beyond 64 bits.
    each_schema(&[&[0x9b; 1], &[0x7f; 8][..]].concat().repeat(50));
}

#[test]
fn deep_nesting_ends_at_the_bound() {
    for (open, close) in [
        (&[0x81][..], &[][..]),
        (&[0x9f], &[0xff]),
        (&[0xa1, 0], &[]),
        (&[0xbf, 0], &[0xff]),
        (&[0xc1], &[]),
        (&[0xd8, 99], &[]),
    ] {
        let nested = |depth: usize| [open.repeat(depth), vec![1], close.repeat(depth)].concat();
        each_schema(&nested(100_000));
        each_schema(&open.repeat(100_000));
        let recursive = "a = [a] / {0 => a} / #6(a) / 1";
        assert_eq!(run(recursive, &nested(64)), Ok(()), "{open:?}");
        let mismatch = run(recursive, &nested(65)).unwrap_err();
        assert!(mismatch.expected.contains("nesting"), "{mismatch:?}");
    }
    // `.cbor` within `.cbor`: each layer is a string in the one around it.
    let mut bytes = vec![1];
    for _ in 0..100 {
        let mut outer = Vec::new();
        capd_proto::cbor::Writer::new(&mut outer).bytes(&bytes);
        bytes = outer;
    }
    assert!(run("a = bstr .cbor a / 1", &bytes).unwrap_err().expected.contains("nesting"));
}

#[test]
fn ambiguous_schemas_take_bounded_work() {
    // Each level is tried by three alternatives, so a matcher without a bound would take 3^60 tries.
    let mut deep = vec![2];
    for _ in 0..60 {
        deep.insert(0, 0x82);
        deep.extend(b"\x61z");
    }
    let mismatch = run("a = [a, \"x\"] / [a, \"y\"] / [a, \"w\"] / 2", &deep).unwrap_err();
    assert!(mismatch.expected.contains("steps"), "{mismatch:?}");
    // Every entry fits every member and one of the entries none of the values.
    let members: Vec<String> = (0..60).map(|n| format!("{n}: 1")).collect();
    let map = edn(&format!("{{{}}}", members.join(", ")));
    let entries = "int => int, ".repeat(59);
    let mismatch = run(&format!("a = {{{entries} int => 2}}"), &map).unwrap_err();
    assert!(mismatch.expected.contains("steps"), "{mismatch:?}");
    // Long repetitions of groups nest in the matcher and not on the stack without end.
    let pairs: Vec<String> = (0..20_000).map(|n| format!("{n}: \"{n}\"")).collect();
    _ = run("a = {* (int => tstr, ? bstr => int)}", &edn(&format!("{{{}}}", pairs.join(", "))));
    let long = edn(&format!("[{}]", "1, ".repeat(60_000)));
    _ = run("a = [g] g = (int, ? g)", &long);
    assert_eq!(run("a = [* (int // tstr)]", &long), Ok(()));
}

#[test]
fn arbitrary_bytes_never_panic() {
    let programs: Vec<Program> = SCHEMAS.iter().map(|text| Program::compile(text).unwrap()).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for _ in 0..20_000 {
        // Mostly heads of containers and short strings, so that bytes nest.
        let bytes: Vec<u8> = (0..next() % 40)
            .map(|_| match next() % 3 {
                0 => next() as u8,
                1 => [0x81, 0x82, 0xa1, 0xa2, 0x9f, 0xbf, 0xff, 0xc1, 0x5f, 0x7f][next() % 10],
                _ => [0x00, 0x01, 0x20, 0x60, 0x61, 0x40, 0x41, 0x78, 0x79, 0xf9][next() % 10],
            })
            .collect();
        for program in &programs {
            if let Err(mismatch) = program.run(program.rule("a").unwrap(), &bytes) {
                assert!(mismatch.offset <= bytes.len(), "{bytes:02x?}");
            }
        }
    }
}
