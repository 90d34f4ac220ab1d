//! PROTOCOL 2 and 5: envelopes that are refused in, the code that says why and a working link out.

use capd_proto::identity::Identity;
use ciborium::{Value, cbor};

use crate::fixture::{CAP_QUERY, PING, Refusal, quiet_sidecar};
use crate::peer::{Letter, RawLink, Transport, fresh_seed, id_at, now_ms};
use crate::support::{AMP_MESSAGE, Setup, Sidecar, decode, encode, field, map, set};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// What is done to a good envelope.
type Change<'a> = &'a dyn Fn(&mut Value);

/// A good PING of this link's, as a map.
fn good(link: &RawLink) -> Value {
    decode(&link.seal(&link.letter(PING, &map([]))))
}

fn id_of(envelope: &Value) -> Vec<u8> {
    field(envelope, "id").and_then(Value::as_bytes).cloned().unwrap()
}

/// The refusal of an envelope that differs from a good one as `change` says. Its `reply_to` is the id.
pub fn refused(link: &mut RawLink, change: impl FnOnce(&mut Value)) -> Refusal {
    let mut envelope = good(link);
    let id = id_of(&envelope);
    change(&mut envelope);
    link.send_frame(AMP_MESSAGE, &encode(&envelope));
    link.refusal(&id)
}

/// The refusal of a letter that differs from a good one as `change` says, sealed as the link seals.
pub fn refused_letter(link: &mut RawLink, change: impl FnOnce(&mut Letter)) -> Refusal {
    let mut letter = link.letter(PING, &map([]));
    change(&mut letter);
    let id = link.send_letter(&letter);
    link.refusal(&id)
}

pub fn remove(envelope: &mut Value, key: &str) {
    let Value::Map(fields) = envelope else { panic!("not a map") };
    fields.retain(|(name, _)| name.as_text() != Some(key));
}

/// Where a field's value starts in these bytes.
pub fn offset_of(envelope: &Value, key: &str) -> usize {
    let Value::Map(fields) = envelope else { panic!("not a map") };
    let at = fields.iter().position(|(name, _)| name.as_text() == Some(key)).unwrap();
    // Fewer than 24 fields: the map's head is one byte.
    1 + fields[..at].iter().map(|(key, value)| encode(key).len() + encode(value).len()).sum::<usize>()
        + encode(&fields[at].0).len()
}

#[test]
fn each_missing_field_is_1001() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for key in ["v", "typ", "ts", "ttl", "from", "to", "sig", "body"] {
            let refusal = refused(&mut link, |envelope| remove(envelope, key));
            assert_eq!(refusal.code, 1001, "{transport:?}: {key}: {refusal:?}");
            assert!(refusal.message.contains(&format!("{key:?}")), "{transport:?}: {refusal:?}");
        }
        let mut nameless = good(&link);
        remove(&mut nameless, "id");
        link.send_frame(AMP_MESSAGE, &encode(&nameless));
        assert_eq!(link.nameless_refusal().code, 1001, "{transport:?}");
    }
}

#[test]
fn each_ill_typed_field_is_1001_at_its_byte() {
    let sidecar = quiet_sidecar();
    let many_dids = vec![Value::from("did:key:z6Mk"); 65];
    let ill_typed = [
        ("v", vec![cbor!("1"), cbor!(-1), cbor!(1.0)]),
        ("typ", vec![cbor!("PING"), cbor!(-1), cbor!(null)]),
        ("ts", vec![cbor!("now"), cbor!(-1), cbor!(1.5)]),
        ("ttl", vec![cbor!("1s"), cbor!(-1), cbor!(true)]),
        ("from", vec![cbor!(1), Ok(Value::Bytes(vec![1])), cbor!(["did:key:z6Mk"])]),
        ("to", vec![cbor!(1), cbor!([]), cbor!({}), Ok(many_dids.into())]),
        ("reply_to", vec![cbor!("text"), cbor!(1)]),
        ("thread_id", vec![cbor!("text"), cbor!([])]),
        ("sig", vec![cbor!("text"), cbor!(null)]),
        ("ext", vec![cbor!([]), cbor!("text"), Ok(Value::Map(vec![(1.into(), 2.into())]))]),
    ];
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for (key, values) in &ill_typed {
            for value in values {
                let value = value.as_ref().unwrap();
                let mut offset = 0;
                let refusal = refused(&mut link, |envelope| {
                    set(envelope, key, value.clone());
                    offset = offset_of(envelope, key);
                });
                assert_eq!(refusal.code, 1001, "{transport:?}: {key}: {value:?}: {refusal:?}");
                let at = format!("at byte {offset}");
                assert!(refusal.message.ends_with(&at), "{transport:?}: {key}: {value:?}: {refusal:?} {at}");
            }
        }
        for id in [cbor!("text"), Ok(Value::Bytes(vec![1; 15])), Ok(Value::Bytes(vec![1; 17])), cbor!(1)] {
            let mut envelope = good(&link);
            set(&mut envelope, "id", id.unwrap());
            link.send_frame(AMP_MESSAGE, &encode(&envelope));
            let refusal = link.nameless_refusal();
            assert_eq!(refusal.code, 1001, "{transport:?}: {refusal:?}");
            assert!(refusal.message.contains("at byte"), "{transport:?}: {refusal:?}");
        }
    }
}

#[test]
fn ill_typed_recipients_are_1001_at_their_byte() {
    let sidecar = quiet_sidecar();
    let mut link = RawLink::open(&sidecar, Transport::Tcp);
    let to = cbor!([sidecar.did, 7]).unwrap();
    let mut offset = 0;
    let refusal = refused(&mut link, |envelope| {
        set(envelope, "to", to.clone());
        offset = offset_of(envelope, "to") + encode(&to).len() - 1;
    });
    assert_eq!(refusal.code, 1001, "{refusal:?}");
    assert!(refusal.message.ends_with(&format!("at byte {offset}")), "{refusal:?}");
}

#[test]
fn payloads_that_are_no_map_are_1001() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for payload in [&[][..], &[0x80], &[0x01], &[0x60], &[0xf6], &[0xa0], b"{}"] {
            link.send_frame(AMP_MESSAGE, payload);
            let refusal = link.nameless_refusal();
            assert_eq!(refusal.code, 1001, "{transport:?}: {payload:02x?}: {refusal:?}");
        }
    }
}

#[test]
fn another_version_is_1004() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for version in [0u64, 2, u64::MAX] {
            let refusal = refused(&mut link, |envelope| set(envelope, "v", version.into()));
            assert_eq!(refusal.code, 1004, "{transport:?}: {version}: {refusal:?}");
        }
    }
}

#[test]
fn types_that_are_not_spoken_are_1005() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for typ in
            [0x00, 0x04, 0x08, 0x0c, 0x0e, 0x10, 0x13, 0x1f, 0x24, 0x32, 0x6f, 0x73, 0xff, 0x100, u64::MAX]
        {
            let refusal = refused_letter(&mut link, |letter| letter.typ = typ);
            assert_eq!(refusal.code, 1005, "{transport:?}: {typ:#x}: {refusal:?}");
        }
    }
}

#[test]
fn times_that_are_out_of_bounds_are_1003() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let at = |ts: u64, ttl: u64| {
            move |letter: &mut Letter| {
                letter.ts = ts;
                letter.id = id_at(ts);
                letter.ttl = ttl;
            }
        };
        let now = now_ms();
        let out_of_bounds = [
            ("expired", at(now - 60_000, 59_000)),
            ("now or never, and it is later", at(now - 1_000, 0)),
            ("long ago", at(0, 30 * DAY_MS)),
            ("too far ahead", at(now + 40_000, 60_000)),
            ("at the end of time", at(u64::MAX, 60_000)),
            ("over thirty days", at(now, 30 * DAY_MS + 1)),
            ("over thirty days by far", at(now, u64::MAX)),
        ];
        for (what, change) in out_of_bounds {
            let refusal = refused_letter(&mut link, change);
            assert_eq!(refusal.code, 1003, "{transport:?}: {what}: {refusal:?}");
        }
        for skew in [1_001, 60_000] {
            let refusal = refused_letter(&mut link, |letter| letter.id = id_at(letter.ts - skew));
            assert_eq!(refusal.code, 1003, "{transport:?}: id {skew} ms before ts: {refusal:?}");
            let refusal = refused_letter(&mut link, |letter| letter.id = id_at(letter.ts + skew));
            assert_eq!(refusal.code, 1003, "{transport:?}: id {skew} ms after ts: {refusal:?}");
        }
    }
}

#[test]
fn times_at_their_bounds_are_taken() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let taken = |link: &mut RawLink, change: &dyn Fn(&mut Letter)| {
            let mut letter = link.letter(PING, &map([]));
            change(&mut letter);
            let id = link.send_letter(&letter);
            assert_eq!(link.reply(&id).typ(), 0x02, "{transport:?}: {letter:?}");
        };
        taken(&mut link, &|letter| letter.ttl = 30 * DAY_MS);
        taken(&mut link, &|letter| letter.id = id_at(letter.ts - 1_000));
        taken(&mut link, &|letter| letter.id = id_at(letter.ts + 1_000));
        taken(&mut link, &|letter| {
            letter.ts += 29_000;
            letter.id = id_at(letter.ts);
        });
    }
}

#[test]
fn a_message_that_is_not_for_us_is_2001() {
    let sidecar = quiet_sidecar();
    let stranger = Identity::from_seed(fresh_seed()).did().as_str().to_owned();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for to in [
            vec![stranger.clone()],
            vec![stranger.clone(), "did:web:example.com".to_owned()],
            vec![String::new()],
        ] {
            let refusal = refused_letter(&mut link, |letter| letter.to.clone_from(&to));
            assert_eq!(refusal.code, 2001, "{transport:?}: {to:?}: {refusal:?}");
        }
        let mut letter = link.letter(PING, &map([]));
        letter.to = vec![stranger.clone(), sidecar.did.clone()];
        let id = link.send_letter(&letter);
        assert_eq!(link.reply(&id).typ(), 0x02, "{transport:?}: we are among several");
    }
}

#[test]
fn a_sender_other_than_the_links_principal_is_3001_and_audited() {
    let sidecar = Sidecar::start();
    let other = fresh_seed();
    let other_did = Identity::from_seed(other).did().as_str().to_owned();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let mut letter = link.letter(PING, &map([]));
        letter.from.clone_from(&other_did);
        // The other's own signature does not help: it is not the other's link.
        let payload = letter.seal(&Identity::from_seed(other), true);
        link.send_frame(AMP_MESSAGE, &payload);
        let refusal = link.refusal(&letter.id);
        assert_eq!(refusal.code, 3001, "{transport:?}: {refusal:?}");
        assert_eq!(refusal.details, None, "{transport:?}: {refusal:?}");
        for from in ["did:web:example.com", "did:key:z6Mk", ""] {
            let refusal = refused_letter(&mut link, |letter| letter.from = from.to_owned());
            assert_eq!(refusal.code, 3001, "{transport:?}: {from:?}: {refusal:?}");
        }
        let log = sidecar.log();
        let id: String = letter.id.iter().map(|byte| format!("{byte:02x}")).collect();
        let audited = log.lines().find(|line| line.contains(&id) && line.contains("binding_mismatch"));
        let audited = audited.unwrap_or_else(|| panic!("{transport:?}: not audited\n{log}"));
        assert!(audited.contains(&other_did), "{audited}");
        let principal = if transport.is_local() { &sidecar.did } else { link.identity.did().as_str() };
        assert!(audited.contains(principal), "{audited}");
        let record = sidecar.audited_about("binding_mismatch", &id);
        assert_eq!(record["peerId"], *principal, "{transport:?}");
        assert_eq!(record["from"], other_did, "{transport:?}");
    }
}

#[test]
fn a_bad_signature_is_1002() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let bad = [vec![0; 64], vec![0xff; 64], vec![1; 63], vec![1; 65], vec![1]];
        for sig in bad {
            let refusal = refused(&mut link, |envelope| set(envelope, "sig", Value::Bytes(sig.clone())));
            assert_eq!(refusal.code, 1002, "{transport:?}: {sig:?}: {refusal:?}");
        }
        let flipped = refused(&mut link, |envelope| {
            let mut sig = field(envelope, "sig").and_then(Value::as_bytes).cloned().unwrap();
            sig[20] ^= 1;
            set(envelope, "sig", Value::Bytes(sig));
        });
        assert_eq!(flipped.code, 1002, "{transport:?}: {flipped:?}");
    }
}

#[test]
fn every_signed_field_is_covered_by_the_signature() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let ts = |envelope: &Value| {
            u64::try_from(field(envelope, "ts").and_then(Value::as_integer).unwrap()).unwrap()
        };
        let changes: [(&str, Change<'_>); 7] = [
            ("typ", &|envelope| set(envelope, "typ", CAP_QUERY.into())),
            ("ts", &|envelope| {
                let later = ts(envelope) + 1;
                set(envelope, "ts", later.into());
            }),
            ("ttl", &|envelope| set(envelope, "ttl", 60_001.into())),
            ("to", &|envelope| {
                let to = field(envelope, "to").cloned().unwrap();
                set(envelope, "to", Value::Array(vec![to]));
            }),
            ("reply_to", &|envelope| set(envelope, "reply_to", Value::Bytes(vec![1; 16]))),
            ("thread_id", &|envelope| set(envelope, "thread_id", Value::Bytes(vec![1]))),
            ("body", &|envelope| set(envelope, "body", map([("x", 1.into())]))),
        ];
        for (key, change) in changes {
            let refusal = refused(&mut link, change);
            assert_eq!(refusal.code, 1002, "{transport:?}: {key}: {refusal:?}");
        }
        // The id is the refusal's own name, so it is changed apart.
        let mut envelope = good(&link);
        let id = id_at(ts(&envelope));
        set(&mut envelope, "id", Value::Bytes(id.to_vec()));
        link.send_frame(AMP_MESSAGE, &encode(&envelope));
        assert_eq!(link.refusal(&id).code, 1002, "{transport:?}: id");
        // `ext` and fields that nobody knows are not signed.
        let mut open = good(&link);
        set(
            &mut open,
            "ext",
            cbor!({ "traceparent" => "00-00-00-00", "x" => [1, { "y" => null }] }).unwrap(),
        );
        set(&mut open, "unknown", cbor!([1, 2]).unwrap());
        link.send_frame(AMP_MESSAGE, &encode(&open));
        assert_eq!(link.reply(&id_of(&open)).typ(), 0x02, "{transport:?}");
    }
}

#[test]
fn an_unsigned_message_on_a_peer_link_is_1002() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let refusal = refused(&mut link, |envelope| set(envelope, "sig", Value::Bytes(vec![])));
        assert_eq!(refusal.code, 1002, "{transport:?}: {refusal:?}");
    }
}

#[test]
fn channel_authentication_needs_both_sides() {
    let sidecar = Setup::new().set("peer.signatures", "channel").start();
    for transport in Transport::PEER {
        for ours in [false, true] {
            let mut link = RawLink::connect(&sidecar, transport);
            let mut request = link.handshake_request();
            if ours {
                set(&mut request, "extensions", cbor!(["channel-auth"]).unwrap());
            }
            link.send_frame(crate::support::HANDSHAKE, &encode(&request));
            link.frame();
            let hello = link.letter(0x70, &cbor!({ "versions" => ["1.0"] }).unwrap());
            link.send_letter(&hello);
            link.frame();
            link.use_exchange_stream();
            let letter = link.letter(PING, &map([]));
            link.send_frame(AMP_MESSAGE, &letter.seal(&link.identity, false));
            // Its own messages are unsigned as well then, so they are read without looking at the signature.
            let answer = loop {
                let envelope = decode(&link.answering_frame().payload);
                if field(&envelope, "reply_to") == Some(&Value::Bytes(letter.id.to_vec())) {
                    break envelope;
                }
            };
            let body = field(&answer, "body").unwrap();
            let code = field(body, "code").and_then(Value::as_integer);
            assert_eq!(
                code,
                if ours { None } else { Some(1002.into()) },
                "{transport:?}: {ours}: {answer:?}"
            );
        }
    }
}

#[test]
fn a_wrong_signature_on_a_local_link_is_1002_and_none_is_taken() {
    let sidecar = quiet_sidecar();
    for transport in Transport::LOCAL {
        let mut link = RawLink::open(&sidecar, transport);
        for sig in [vec![1; 64], vec![1; 10]] {
            let refusal = refused(&mut link, |envelope| set(envelope, "sig", Value::Bytes(sig.clone())));
            assert_eq!(refusal.code, 1002, "{transport:?}: {refusal:?}");
        }
    }
}

#[test]
fn the_first_failing_check_of_an_envelope_wins() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        // Version before type, type before time; and all of them before the body, which fits nothing here.
        let version = refused(&mut link, |envelope| {
            set(envelope, "v", 2.into());
            set(envelope, "typ", 0xff.into());
            set(envelope, "ts", 1.into());
        });
        assert_eq!(version.code, 1004, "{transport:?}: {version:?}");
        let shape = refused(&mut link, |envelope| {
            set(envelope, "ttl", "x".into());
            set(envelope, "sig", Value::Bytes(vec![]));
        });
        assert_eq!(shape.code, 1001, "{transport:?}: {shape:?}");
        let signature = refused(&mut link, |envelope| {
            set(envelope, "typ", CAP_QUERY.into());
            set(envelope, "body", cbor!({ "filter" => 1 }).unwrap());
        });
        assert_eq!(signature.code, 1002, "{transport:?}: {signature:?}");
    }
}

#[test]
fn a_body_that_is_not_deterministic_is_verified_all_the_same() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        let mut link = RawLink::open(&sidecar, transport);
        let mut letter = link.letter(CAP_QUERY, &map([]));
        // {"limit": 5 in two bytes, "filter": indefinite {"capability": "a.b.c"}}, keys out of order.
        letter.body =
            [&b"\xbf\x65limit\x18\x05\x66filter\xbf\x6acapability"[..], b"\x7f\x63a.b\x62.c\xff\xff\xff"]
                .concat();
        let id = link.send_letter(&letter);
        assert_eq!(link.refusal(&id).code, 4002, "{transport:?}: it was understood");
        // An envelope whose own fields stand in another order, and which is indefinite.
        let mut envelope = good(&link);
        let Value::Map(fields) = &mut envelope else { panic!() };
        fields.reverse();
        let bytes: Vec<u8> =
            fields.iter().flat_map(|(key, value)| [encode(key), encode(value)].concat()).collect();
        link.send_frame(AMP_MESSAGE, &[&[0xbf][..], &bytes, &[0xff]].concat());
        assert_eq!(link.reply(&id_of(&envelope)).typ(), 0x02, "{transport:?}");
    }
}
