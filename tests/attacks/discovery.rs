//! A listed peer without grants that answers the sidecar's question with more than anybody serves; a bounded answer,
//! its refusal, and memory that stays where it was.

use capd_proto::identity::Identity;
use ciborium::{Value, cbor};

use crate::peer::{RawLink, Transport, fresh_seed};
use crate::support::{Message, Setup, Sidecar, field, set};

const CAP_QUERY: u64 = 0x20;
const CAP_DECLARE: u64 = 0x21;
const CAP_INVOKE: u64 = 0x22;
/// What a peer may declare, unless the owner says otherwise.
const CAPABILITIES_MAX: usize = 10_000;
/// Most descriptors that the sidecar asks for at once.
const PAGE_MAX: usize = 1_000;
/// Memory that an attack may cost, in KiB: the message itself, and what a debug build's allocator keeps of it.
const MEMORY_ALLOWANCE_KIB: u64 = 64 * 1024;

/// A sidecar that lists a peer, and that peer, which has just been asked what it serves.
fn asked() -> (Sidecar, RawLink, Message) {
    let seed = fresh_seed();
    let did = Identity::from_seed(seed).did().to_string();
    let setup = Setup::new().set("peer.admit", "listed").allow("");
    let sidecar = setup.peer_at(&did, &[]).start();
    let mut peer = RawLink::open_as(&sidecar, Transport::Tcp, seed);
    let question = peer.message_of(CAP_QUERY);
    (sidecar, peer, question)
}

fn page(descriptors: Vec<Value>, has_next: bool) -> Value {
    let mut page = cbor!({ "capabilities" => descriptors }).unwrap();
    if has_next {
        set(&mut page, "next_cursor", "on and on".into());
    }
    page
}

fn small(number: usize) -> Value {
    cbor!({ "id" => format!("a.b.c{number}:1.0.0") }).unwrap()
}

/// Answers question after question until the sidecar is done with the answer; how many pages it took.
fn answer_all(
    sidecar: &Sidecar,
    peer: &mut RawLink,
    mut question: Message,
    page_of: impl Fn(usize) -> Value,
) -> usize {
    let is_done = || {
        let log = sidecar.log();
        log.contains("peer serves") || log.contains("the peer does not list its capabilities")
    };
    for number in 0.. {
        peer.answer(&question, CAP_DECLARE, &page_of(number));
        question = loop {
            let ping = peer.send(0x01, Value::Null);
            let next = peer.message_where(|message| {
                message.reply_to().as_ref() == Some(&ping)
                    || (message.typ() == CAP_QUERY && field(message.body(), "cursor").is_some())
            });
            if next.typ() == CAP_QUERY {
                peer.reply(&ping);
                break next;
            }
            if is_done() {
                return number + 1;
            }
        };
    }
    unreachable!("the numbers have no end")
}

/// What the owner finds of an excess: the limit that refused it, one line that names the peer, and nothing of what it said.
#[track_caller]
fn refused(sidecar: &Sidecar, peer: &mut RawLink, key: Option<&str>) {
    if let Some(key) = key {
        sidecar.refused(key, 1);
    }
    let mut agent = RawLink::open(sidecar, Transport::Unix);
    let call = cbor!({ "capability" => "a.b.c1", "negotiate" => { "range" => ">=0.0.0" }, "params" => 1 });
    let id = agent.send(CAP_INVOKE, call.unwrap());
    // It is asked once more, and says so again.
    let question = peer.message_of(CAP_QUERY);
    peer.answer(&question, CAP_DECLARE, &page((0..=PAGE_MAX).map(small).collect(), true));
    let refusal = agent.reply(&id);
    assert_eq!(refusal.code(), Some(4905), "{refusal:?}");
    let log = sidecar.log();
    let lines = log.lines().filter(|line| line.contains("WARN") && line.contains(&peer.from)).count();
    assert!((1..=2).contains(&lines), "one for each way in which it was wrong: {log}");
}

#[test]
fn pages_without_end_are_read_to_the_limit_and_not_kept() {
    let (sidecar, mut peer, question) = asked();
    let level = sidecar.memory_kib();
    let pages = answer_all(&sidecar, &mut peer, question, |number| {
        page((0..PAGE_MAX).map(|at| small(number * PAGE_MAX + at)).collect(), number < 300)
    });
    assert_eq!(pages, CAPABILITIES_MAX / PAGE_MAX + 1, "it stops at the first excess");
    assert!(sidecar.memory_kib() < level + MEMORY_ALLOWANCE_KIB, "{level} KiB, {} now", sidecar.memory_kib());
    refused(&sidecar, &mut peer, Some("limits.peer_capabilities_max"));
}

#[test]
fn a_page_with_more_than_was_asked_for_is_refused_unread() {
    let (sidecar, mut peer, question) = asked();
    let level = sidecar.memory_kib();
    let pages = answer_all(&sidecar, &mut peer, question, |number| {
        page((0..30_000).map(|at| small(number * 30_000 + at)).collect(), number < 10)
    });
    assert_eq!(pages, 1);
    assert!(sidecar.memory_kib() < level + MEMORY_ALLOWANCE_KIB, "{level} KiB, {} now", sidecar.memory_kib());
    refused(&sidecar, &mut peer, None);
}

#[test]
fn lists_in_descriptors_count_as_what_they_take() {
    let (sidecar, mut peer, question) = asked();
    let level = sidecar.memory_kib();
    // Three bytes of text each, and thirty times as much once they are read.
    let ranges = || Value::Array(vec!["1.0".into(); 64]);
    let large = |number: usize| {
        let mut descriptor = small(number);
        set(&mut descriptor, "supported_ranges", ranges());
        set(&mut descriptor, "deprecated_ranges", ranges());
        descriptor
    };
    let pages = answer_all(&sidecar, &mut peer, question, |number| {
        page((0..PAGE_MAX).map(|at| large(number * PAGE_MAX + at)).collect(), number < 9)
    });
    assert!(pages < 10, "{pages} pages were read");
    assert!(sidecar.memory_kib() < level + MEMORY_ALLOWANCE_KIB, "{level} KiB, {} now", sidecar.memory_kib());
    refused(&sidecar, &mut peer, Some("limits.peer_capability_bytes_max"));
}

#[test]
fn large_descriptors_are_read_to_the_limit() {
    let (sidecar, mut peer, question) = asked();
    let level = sidecar.memory_kib();
    let pages = answer_all(&sidecar, &mut peer, question, |number| {
        let mut descriptor = small(number);
        set(&mut descriptor, "notes", "n".repeat(6 * 1024 * 1024).into());
        page(vec![descriptor], number < 20)
    });
    assert_eq!(pages, 3, "16 MiB hold two of them");
    assert!(sidecar.memory_kib() < level + MEMORY_ALLOWANCE_KIB, "{level} KiB, {} now", sidecar.memory_kib());
    refused(&sidecar, &mut peer, Some("limits.peer_capability_bytes_max"));
}

#[test]
fn a_cursor_is_not_carried_back_and_forth_at_any_length() {
    let (sidecar, mut peer, question) = asked();
    let pages = answer_all(&sidecar, &mut peer, question, |number| {
        let mut page = page(vec![small(number)], true);
        set(&mut page, "next_cursor", "c".repeat(1024 * 1024).into());
        page
    });
    assert_eq!(pages, 1);
    refused(&sidecar, &mut peer, None);
}
