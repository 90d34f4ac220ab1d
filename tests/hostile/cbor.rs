//! CBOR that is made to cost the reader dear in; 1001, a link that works on, and nothing kept, out.

use std::time::Instant;

use crate::field::{ERROR, Field};
use crate::peer::{Letter, RawLink, Transport};
use crate::support::{AMP_MESSAGE, PATIENCE, encode, map};

const PING: u64 = 0x01;
const KIB: usize = 1024;

/// A PING with these bytes for a body, written by hand: the project's own writer would not write them.
fn with_body(letter: &Letter, body: &[u8]) -> Vec<u8> {
    let mut payload = vec![0xa9];
    let mut put = |key: &str, value: ciborium::Value| {
        payload.extend(encode(&key.into()));
        payload.extend(encode(&value));
    };
    put("v", 1.into());
    put("id", ciborium::Value::Bytes(letter.id.to_vec()));
    put("to", letter.to[0].as_str().into());
    put("ts", letter.ts.into());
    put("sig", ciborium::Value::Bytes(vec![]));
    put("ttl", letter.ttl.into());
    put("typ", letter.typ.into());
    put("from", letter.from.as_str().into());
    payload.extend(encode(&"body".into()));
    payload.extend(body);
    payload
}

/// An array or a map of `count` of these items, after its head.
fn container(head: u8, count: u32, item: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let items = (0..count).flat_map(item);
    [head].into_iter().chain(count.to_be_bytes()).chain(items).collect()
}

fn key(number: u32) -> Vec<u8> {
    [&[0x1a][..], &number.to_be_bytes(), &[0xf6]].concat()
}

/// Bodies of which each is refused.
fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let twice = container(0xba, 60_000, |number| key(if number == 59_999 { 0 } else { number }));
    let mut wrong_text = vec![0x7a, 0, 0x40, 0, 0];
    wrong_text.resize(wrong_text.len() + 4_096 * KIB - 1, b'a');
    wrong_text.push(0xff);
    vec![
        ("arrays in arrays", vec![0x81; 1_024 * KIB]),
        ("maps in maps", [0xa1, 0x00].repeat(512 * KIB)),
        ("indefinite arrays in arrays", vec![0x9f; 1_024 * KIB]),
        ("indefinite maps in maps", [0xbf, 0x00].repeat(512 * KIB)),
        ("tags on tags", vec![0xc1; 1_024 * KIB]),
        ("an array of a million", container(0x9a, 1_000_000, |_| vec![0x00])),
        ("a map of a million", container(0xba, 500_000, key)),
        (
            "two million items",
            [&[0x98, 32][..], &container(0x9a, 65_000, |_| vec![0x00]).repeat(32)].concat(),
        ),
        ("a key that stands twice among 60,000", twice),
        ("the same key 60,000 times", container(0xba, 60_000, |_| key(7))),
        ("4 MiB of text whose last byte is wrong", wrong_text),
        ("an indefinite array that never ends", [vec![0x9f], vec![0x00; 60_000]].concat()),
        ("text of empty chunks that never ends", [vec![0x7f], vec![0x60; 1_024 * KIB]].concat()),
        ("bytes of empty chunks that never end", [vec![0x5f], vec![0x40; 1_024 * KIB]].concat()),
        ("bytes of 2^64 - 1", vec![0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ("an array of 2^64 - 1", vec![0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
    ]
}

#[test]
fn bombs_are_1001_and_the_link_works_on() {
    let mut field = Field::start();
    let bombs = bombs();
    field.withstands("CBOR bombs", |field| {
        let mut links = [Transport::Unix, Transport::Tcp, Transport::Quic]
            .map(|transport| RawLink::open(&field.sidecar, transport));
        for link in &mut links {
            for (what, body) in &bombs {
                let letter = link.letter(PING, &map([]));
                let begin = Instant::now();
                link.send_frame(AMP_MESSAGE, &with_body(&letter, body));
                let refusal = link.message_where(|message| message.typ() == ERROR);
                assert_eq!(refusal.code(), Some(1001), "{link:?}: {what}: {refusal:?}");
                assert!(begin.elapsed() < PATIENCE, "{link:?}: {what} took {:?}", begin.elapsed());
                link.ping();
            }
        }
        links
    });
}
