//! PROTOCOL 4: links that must not open in, a refusal and a closed connection out.

use capd_proto::envelope::Envelope;
use ciborium::{Value, cbor};

use crate::fixture::{CAP_QUERY, HELLO, PING, closed_with, error_frame, quiet_sidecar};
use crate::peer::{RawLink, Transport, id_at};
use crate::support::{AMP_MESSAGE, HANDSHAKE, Setup, decode, encode, field, map, set};

/// What a HANDSHAKE that differs in these fields is answered with, and that the link is closed behind it.
fn rejected(link: &mut RawLink, fields: &[(&str, Value)]) -> String {
    let mut request = link.handshake_request();
    for (key, value) in fields {
        set(&mut request, key, value.clone());
    }
    link.send_frame(HANDSHAKE, &encode(&request));
    let frames = link.closed();
    let [only] = frames.as_slice() else { panic!("{link:?}: {frames:?}") };
    assert_eq!(only.frame_type, HANDSHAKE, "{only:?}");
    let answer = decode(&only.payload);
    assert_eq!(field(&answer, "version"), Some(&1.into()), "{answer:?}");
    assert_eq!(field(&answer, "accepted"), Some(&false.into()), "{answer:?}");
    field(&answer, "error").and_then(Value::as_text).expect("why").to_owned()
}

/// The code that an unfit HANDSHAKE is answered with, as an ERROR frame.
fn unfit(link: &mut RawLink, payload: &[u8]) -> u64 {
    link.send_frame(HANDSHAKE, payload);
    closed_with(link).0
}

#[test]
fn a_size_under_one_mib_is_not_accepted() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        for size in [0, 1024 * 1024 - 1] {
            let why = rejected(&mut RawLink::connect(&sidecar, transport), &[("max_msg_size", size.into())]);
            assert!(why.contains("max_msg_size") || why.contains("MiB") || why.contains("1048576"), "{why}");
        }
    }
}

#[test]
fn a_handshake_of_another_version_does_not_open_the_link() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        for version in [0, 2] {
            let mut link = RawLink::connect(&sidecar, transport);
            let mut request = link.handshake_request();
            set(&mut request, "version", version.into());
            link.send_frame(HANDSHAKE, &encode(&request));
            let frames = link.closed();
            let [only] = frames.as_slice() else { panic!("{link:?}: {frames:?}") };
            if only.frame_type == HANDSHAKE {
                assert_eq!(field(&decode(&only.payload), "accepted"), Some(&false.into()));
            } else {
                assert!([1001, 1004].contains(&error_frame(only).0), "{only:?}");
            }
        }
    }
}

#[test]
fn a_handshake_of_another_shape_is_1001() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let good = RawLink::connect(&sidecar, transport).handshake_request();
        let with = |key: &str, value: Value| {
            let mut request = good.clone();
            set(&mut request, key, value);
            encode(&request)
        };
        let unfits = [
            encode(&map([("version", 1.into())])),
            encode(&map([("max_msg_size", (16 << 20).into())])),
            with("max_msg_size", "16 MiB".into()),
            with("did", 1.into()),
            with("token", "text".into()),
            with("extensions", "channel-auth".into()),
            with("extensions", cbor!([1]).unwrap()),
            vec![0xa1, 0x61],
            vec![],
            [encode(&good), vec![0]].concat(),
        ];
        for payload in unfits {
            let mut link = RawLink::connect(&sidecar, transport);
            assert_eq!(unfit(&mut link, &payload), 1001, "{transport:?}: {payload:02x?}");
        }
    }
}

#[test]
fn loopback_needs_the_token() {
    let sidecar = quiet_sidecar();
    let token = crate::peer::token(&sidecar);
    let wrong = [vec![], b"guess".to_vec(), token[..token.len() - 1].to_vec(), [&token[..], b"x"].concat()];
    for token in wrong {
        let mut link = RawLink::connect(&sidecar, Transport::Loopback);
        let why = rejected(&mut link, &[("token", Value::Bytes(token.clone()))]);
        assert!(!why.contains(std::str::from_utf8(&crate::peer::token(&sidecar)).unwrap()), "{why}");
    }
    let mut link = RawLink::connect(&sidecar, Transport::Loopback);
    link.send_frame(HANDSHAKE, &encode(&map([("version", 1.into()), ("max_msg_size", (16 << 20).into())])));
    let frames = link.closed();
    assert_eq!(field(&decode(&frames[0].payload), "accepted"), Some(&false.into()), "{frames:?}");
    RawLink::open(&sidecar, Transport::Loopback).ping();
}

#[test]
fn a_did_other_than_the_links_own_is_not_accepted() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let other = RawLink::connect(&sidecar, Transport::Tcp).from;
        let why = rejected(&mut RawLink::connect(&sidecar, transport), &[("did", other.as_str().into())]);
        assert!(why.contains("did"), "{why}");
        let mut own = RawLink::connect(&sidecar, transport);
        let mut request = own.handshake_request();
        set(&mut request, "did", own.from.as_str().into());
        own.send_frame(HANDSHAKE, &encode(&request));
        assert_eq!(field(&decode(&own.frame().payload), "accepted"), Some(&true.into()), "{transport:?}");
    }
}

#[test]
fn extensions_in_the_answer_are_the_intersection() {
    let without = quiet_sidecar();
    let with = Setup::new().set("peer.signatures", "channel").start();
    for (sidecar, expected) in [(&*without, &[][..]), (&with, &["channel-auth"][..])] {
        for transport in Transport::PEER {
            let mut link = RawLink::connect(sidecar, transport);
            let mut request = link.handshake_request();
            set(&mut request, "extensions", cbor!(["other", "channel-auth"]).unwrap());
            link.send_frame(HANDSHAKE, &encode(&request));
            let answer = decode(&link.frame().payload);
            let extensions = field(&answer, "extensions").map(crate::fixture::texts).unwrap_or_default();
            assert_eq!(extensions, expected, "{transport:?}");
        }
    }
}

#[test]
fn a_message_on_an_exchange_stream_before_hello_is_1004_at_once_on_the_control_stream() {
    let sidecar = quiet_sidecar();
    for is_handshaken in [false, true] {
        let mut link = RawLink::connect(&sidecar, Transport::Quic);
        if is_handshaken {
            link.handshake();
        }
        let asked = std::time::Instant::now();
        link.use_exchange_stream();
        link.send(PING, Value::Null);
        link.use_control_stream();
        assert_eq!(closed_with(&mut link).0, 1004, "{is_handshaken}");
        assert!(asked.elapsed() < std::time::Duration::from_secs(3), "{:?}", asked.elapsed());
    }
}

#[test]
fn a_message_before_the_link_is_open_is_1004_and_closes() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        for typ in [PING, CAP_QUERY, 0x71, 0x72] {
            let body = match typ {
                0x71 => map([("selected", "1.0".into())]),
                _ => map([]),
            };
            for is_handshaken in [false, true] {
                let mut link = RawLink::connect(&sidecar, transport);
                if is_handshaken {
                    link.handshake();
                }
                link.send(typ, body.clone());
                let (code, message) = closed_with(&mut link);
                assert_eq!(code, 1004, "{transport:?}, type {typ:#x}, {is_handshaken}: {message}");
            }
        }
        let mut link = RawLink::connect(&sidecar, transport);
        link.send(HELLO, cbor!({ "versions" => ["1.0"] }).unwrap());
        assert_eq!(closed_with(&mut link).0, 1004, "{transport:?}: HELLO before HANDSHAKE");
    }
}

#[test]
fn hello_without_a_common_version_is_rejected_and_closes() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        for versions in [&["2.0"][..], &["0.9", "1.1"], &["1"], &["1.0.0"]] {
            let mut link = RawLink::connect(&sidecar, transport);
            link.handshake();
            let id = link.send(HELLO, cbor!({ "versions" => versions }).unwrap());
            let reject = link.message();
            assert_eq!((reject.typ(), reject.reply_to()), (0x72, Some(id)), "{transport:?}: {reject:?}");
            assert!(field(reject.body(), "reason").and_then(Value::as_text).is_some(), "{reject:?}");
            assert_eq!(link.closed(), [], "{transport:?}");
        }
    }
}

#[test]
fn hello_selects_the_first_version_that_is_spoken() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::connect(&sidecar, transport);
        link.handshake();
        let hello = cbor!({
            "versions" => ["3.0", "1.0", "2.0"],
            "extensions" => ["x"],
            "agent_info" => { "name" => "test", "other" => 1 },
            "unknown" => null,
        });
        let id = link.send(HELLO, hello.unwrap());
        let ack = link.message();
        assert_eq!((ack.typ(), ack.reply_to()), (0x71, Some(id)), "{ack:?}");
        assert_eq!(field(ack.body(), "selected"), Some(&"1.0".into()), "{ack:?}");
        link.ping();
    }
}

#[test]
fn hello_of_another_shape_is_1001_and_closes() {
    let sidecar = quiet_sidecar();
    let bodies = [
        cbor!({}),
        cbor!({ "versions" => [] }),
        cbor!({ "versions" => "1.0" }),
        cbor!({ "versions" => [1] }),
        cbor!({ "versions" => ["1.0"], "extensions" => "x" }),
        cbor!({ "versions" => ["1.0"], "agent_info" => {} }),
        cbor!([]),
    ];
    for transport in Transport::ALL {
        for body in &bodies {
            let mut link = RawLink::connect(&sidecar, transport);
            link.handshake();
            link.send(HELLO, body.as_ref().unwrap().clone());
            let (code, message) = closed_with(&mut link);
            assert_eq!(code, 1001, "{transport:?}: {body:?}: {message}");
        }
    }
}

#[test]
fn hello_in_a_bad_envelope_gets_its_code_and_closes() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let codes = [1001, 1002, 1003, 1004, 2001, 3001];
        for code in codes {
            if code == 1002 && transport.is_local() {
                continue;
            }
            let mut link = RawLink::connect(&sidecar, transport);
            link.handshake();
            let mut letter = link.letter(HELLO, &cbor!({ "versions" => ["1.0"] }).unwrap());
            match code {
                1003 => {
                    letter.ts -= 120_000;
                    letter.id = id_at(letter.ts);
                }
                2001 => {
                    letter.to = vec!["did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK".to_owned()]
                }
                3001 => letter.from = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK".to_owned(),
                _ => {}
            }
            let mut payload = link.seal(&letter);
            match code {
                1001 => payload.truncate(payload.len() - 1),
                1002 => payload = letter.seal(&link.identity, false),
                1004 => payload = with_version_2(&payload),
                _ => {}
            }
            link.send_frame(AMP_MESSAGE, &payload);
            let (found, message) = closed_with(&mut link);
            assert_eq!(found, code, "{transport:?}: {message}");
        }
    }
}

fn with_version_2(payload: &[u8]) -> Vec<u8> {
    assert_eq!(Envelope::decode(payload).map(|_| ()), Ok(()));
    let mut envelope = decode(payload);
    set(&mut envelope, "v", 2.into());
    encode(&envelope)
}

#[test]
fn a_second_handshake_or_hello_is_refused() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::connect(&sidecar, transport);
        link.handshake();
        let again = encode(&link.handshake_request());
        assert_eq!(unfit(&mut link, &again), 1001, "{transport:?}");
        let mut open = RawLink::open(&sidecar, transport);
        let refusal = open.refused(HELLO, cbor!({ "versions" => ["1.0"] }).unwrap());
        assert_eq!(refusal.code, 4001, "{transport:?}: {refusal:?}");
    }
}

#[test]
fn a_link_that_does_not_open_in_time_is_closed() {
    let sidecar = Setup::new().set("timeouts.handshake_ms", "1500").start();
    let mut waiting: Vec<RawLink> = Transport::ALL
        .into_iter()
        .flat_map(|transport| {
            let silent = RawLink::connect(&sidecar, transport);
            let mut greeted = RawLink::connect(&sidecar, transport);
            greeted.handshake();
            // A byte now and then does not buy time.
            let mut halting = RawLink::connect(&sidecar, transport);
            halting.send_raw(&[0, 0]);
            [silent, greeted, halting]
        })
        .collect();
    for link in &mut waiting {
        assert_eq!(link.closed(), [], "{link:?}");
    }
    RawLink::open(&sidecar, Transport::Tcp).ping();
}
