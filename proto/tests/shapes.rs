//! Random maps in; the typed readers and the CDDL rules of `cddl/` must give the same verdict.

use capd_proto::cbor;
use capd_proto::cddl::bodies::{Shape, bodies};
use capd_proto::envelope::{Envelope, EnvelopeError, EnvelopeErrorKind};
use capd_proto::frame::{ErrorFrame, Goaway, HandshakeRequest, HandshakeResponse};
use ciborium::Value;
use proptest::prelude::*;

/// A value of each kind that some field wants, and some that none wants.
fn value() -> impl Strategy<Value = Value> {
    let text = |text: &str| Value::Text(text.to_owned());
    let enc = |alg: &str, nonce_bytes: usize, ciphertext: Value| {
        Value::Map(vec![
            (Value::Text("alg".into()), Value::Text(alg.into())),
            (Value::Text("mode".into()), Value::Text("authcrypt".into())),
            (Value::Text("nonce".into()), Value::Bytes(vec![1; nonce_bytes])),
            (Value::Text("ciphertext".into()), ciphertext),
        ])
    };
    prop::sample::select(vec![
        Value::from(1),
        Value::from(u64::MAX),
        Value::from(-1),
        Value::Float(1.5),
        Value::Null,
        Value::Bool(true),
        text("did:web:example.com"),
        text(""),
        Value::Bytes(vec![7; 16]),
        Value::Bytes(vec![7; 64]),
        Value::Bytes(Vec::new()),
        Value::Array(Vec::new()),
        Value::Array(vec![text("did:web:a"), text("b")]),
        Value::Array(vec![Value::from(1)]),
        Value::Map(Vec::new()),
        Value::Map(vec![(text("traceparent"), text("00"))]),
        Value::Map(vec![(Value::from(1), text("00"))]),
        enc("X25519-XSalsa20-Poly1305", 24, Value::Bytes(vec![0; 16])),
        enc("X25519-XSalsa20-Poly1305", 23, Value::Bytes(vec![0; 16])),
        enc("X25519-XSalsa20-Poly1305", 24, Value::Null),
        enc("none", 24, Value::Bytes(vec![0; 16])),
    ])
}

/// A map in which each of `good` stands as it should, stands with another value, or is missing; and others beside.
fn map(good: Vec<(&'static str, Value)>) -> impl Strategy<Value = Vec<u8>> {
    let pairs: Vec<_> = good
        .into_iter()
        .map(|(name, good)| {
            prop_oneof![
                20 => Just(Some(good)),
                1 => value().prop_map(Some),
                1 => Just(None),
            ]
            .prop_map(move |value| Some((Value::Text(name.to_owned()), value?)))
        })
        .collect();
    (pairs, prop::option::of(value())).prop_map(|(pairs, other)| {
        let other = other.map(|value| (Value::Text("future".to_owned()), value));
        let mut bytes = Vec::new();
        let map = Value::Map(pairs.into_iter().flatten().chain(other).collect());
        ciborium::into_writer(&map, &mut bytes).expect("a Vec takes every byte");
        bytes
    })
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn envelope() -> impl Strategy<Value = Vec<u8>> {
    let fields = |payload: (&'static str, Value)| {
        let ext = Value::Map(vec![(text("traceparent"), text("00"))]);
        map(vec![
            ("v", Value::from(1)),
            ("id", Value::Bytes(vec![7; 16])),
            ("typ", Value::from(0x22)),
            ("ts", Value::from(1)),
            ("ttl", Value::from(1)),
            ("from", text("did:web:a")),
            ("to", Value::Array(vec![text("did:web:a")])),
            ("reply_to", Value::Bytes(vec![7; 16])),
            ("thread_id", Value::Bytes(vec![7; 3])),
            ("sig", Value::Bytes(vec![7; 64])),
            ("ext", ext),
            payload,
        ])
    };
    let enc = Value::Map(vec![
        (text("alg"), text("X25519-XSalsa20-Poly1305")),
        (text("mode"), text("authcrypt")),
        (text("nonce"), Value::Bytes(vec![7; 24])),
        (text("ciphertext"), Value::Bytes(vec![7; 20])),
    ]);
    prop_oneof![fields(("body", Value::Null)), fields(("enc", enc))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn envelope_decodes_exactly_when_it_matches_its_rule(bytes in envelope()) {
        prop_assert_eq!(cbor::check(&bytes), Ok(()));
        let shaped = bodies().check_shape(Shape::Envelope, &bytes).is_ok();
        // The rule leaves versions and the length of signatures to their own codes.
        let own_code = |error: &EnvelopeError| {
            matches!(error.kind, EnvelopeErrorKind::Version(_) | EnvelopeErrorKind::SignatureLength)
        };
        match Envelope::decode(&bytes) {
            Ok(_) => prop_assert!(shaped),
            Err(error) => prop_assert!(!shaped || own_code(&error), "{error}"),
        }
    }

    #[test]
    fn handshake_request_decodes_exactly_when_it_matches_its_rule(bytes in map(vec![
        ("version", Value::from(1)),
        ("max_msg_size", Value::from(1 << 20)),
        ("did", text("did:web:a")),
        ("token", Value::Bytes(vec![1; 32])),
        ("extensions", Value::Array(vec![text("channel-auth")])),
    ])) {
        let shaped = bodies().check_shape(Shape::HandshakeRequest, &bytes).is_ok();
        // The rule knows version 1 only; a reader must be able to say which one it was.
        let decoded = HandshakeRequest::decode(&bytes).is_ok_and(|request| request.version == 1);
        prop_assert_eq!(decoded, shaped);
    }

    #[test]
    fn handshake_response_decodes_exactly_when_it_matches_its_rule(bytes in map(vec![
        ("version", Value::from(1)),
        ("accepted", Value::Bool(true)),
        ("max_msg_size", Value::from(1 << 20)),
        ("error", text("no")),
        ("extensions", Value::Array(Vec::new())),
        ("did", text("did:web:a")),
    ])) {
        let shaped = bodies().check_shape(Shape::HandshakeResponse, &bytes).is_ok();
        let decoded = HandshakeResponse::decode(&bytes).is_ok_and(|response| response.version == 1);
        prop_assert_eq!(decoded, shaped);
    }

    #[test]
    fn goaway_decodes_exactly_when_it_matches_its_rule(bytes in map(vec![
        ("reason", Value::from(0)),
        ("message", text("bye")),
        ("last_id", Value::Bytes(vec![7; 16])),
    ])) {
        let shaped = bodies().check_shape(Shape::Goaway, &bytes).is_ok();
        prop_assert_eq!(Goaway::decode(&bytes).is_ok(), shaped);
    }

    #[test]
    fn error_frame_decodes_exactly_when_it_matches_its_rule(bytes in map(vec![
        ("code", Value::from(1001)),
        ("message", text("no")),
        ("msg_id", Value::Bytes(vec![7; 16])),
    ])) {
        let shaped = bodies().check_shape(Shape::ErrorFrame, &bytes).is_ok();
        prop_assert_eq!(ErrorFrame::decode(&bytes).is_ok(), shaped);
    }
}
