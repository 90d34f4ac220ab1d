//! PROTOCOL 7.2: requests for documents that nobody serves in, 5002 out; what is served comes with its hash.

use ciborium::{Value, cbor};

use crate::fixture::{DOC_REQUEST, DOC_SEND, checked, loose, served, sha256};
use crate::peer::{RawLink, Transport};
use crate::support::field;

const KINDS: [Transport; 3] = [Transport::Unix, Transport::Tcp, Transport::Quic];

#[test]
fn a_document_that_is_not_served_is_5002() {
    let (sidecar, _agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for hash in [sha256(b"nobody has it"), Value::Bytes(vec![7; 64])] {
            let refusal = link.refused(DOC_REQUEST, cbor!({ "hash" => hash }).unwrap());
            assert_eq!(refusal.code, 5002, "{transport:?}: {refusal:?}");
        }
    }
}

#[test]
fn a_hash_of_another_length_is_4001() {
    let (sidecar, _agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for length in [0, 20, 31, 33, 63, 65] {
            let hash = Value::Bytes(vec![7; length]);
            let refusal = link.refused(DOC_REQUEST, cbor!({ "hash" => hash }).unwrap());
            assert_eq!(refusal.code, 4001, "{transport:?}: {length}: {refusal:?}");
        }
    }
}

#[test]
fn a_served_document_comes_with_its_exact_bytes() {
    let document = "{ \"type\" : \"object\",\n \"required\": [\"x\"] }";
    let (sidecar, agent) = served(vec![checked("com.example.echo:1.0.0", document, "true")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let hash = sha256(document.as_bytes());
        let sent = link.ask(DOC_REQUEST, cbor!({ "hash" => hash }).unwrap());
        assert_eq!(sent.typ(), DOC_SEND, "{transport:?}: {sent:?}");
        let data = field(sent.body(), "data").and_then(Value::as_bytes).unwrap();
        assert_eq!(data, document.as_bytes(), "{transport:?}");
        assert_eq!(field(sent.body(), "size"), Some(&(document.len() as u64).into()), "{transport:?}");
        assert_eq!(field(sent.body(), "hash"), Some(&sha256(data)), "{transport:?}");
    }
    // A peer gets what a capability served here names, and nothing that is only kept.
    drop(agent);
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let deadline = std::time::Instant::now() + crate::support::PATIENCE;
        loop {
            let answer = link.ask(DOC_REQUEST, cbor!({ "hash" => sha256(document.as_bytes()) }).unwrap());
            if answer.code() == Some(5002) {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "{transport:?}: it is still served");
        }
    }
}
