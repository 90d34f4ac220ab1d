//! Tests the rules of PROTOCOL 5 that a well-formed envelope keeps or breaks.

use super::*;

fn envelope_with(change: impl FnOnce(&mut Draft<'_>)) -> Vec<u8> {
    let (alice, bob) = (alice(), bob());
    let mut draft = draft(&alice, &bob, &[0xf6]);
    change(&mut draft);
    let mut out = Vec::new();
    draft.seal(&alice, true, &mut out);
    out
}

fn time_error(ts: u64, ttl: u64, id_ts: u64, now: u64) -> Result<(), EnvelopeErrorKind> {
    let bytes = envelope_with(|draft| {
        (draft.ts, draft.ttl, draft.id) = (ts, ttl, MessageId::new(id_ts, [0; 8]));
    });
    Envelope::decode(&bytes).unwrap().check_time(now).map_err(|error| {
        assert_eq!((error.code().0, error.id), (1003, Some(MessageId::new(id_ts, [0; 8]))));
        error.kind
    })
}

#[test]
fn validity_ends_with_the_ttl() {
    assert_eq!(time_error(1_000, 500, 1_000, 1_500), Ok(()));
    assert_eq!(time_error(1_000, 500, 1_000, 1_501), Err(EnvelopeErrorKind::Expired));
    assert_eq!(time_error(1_000, 0, 1_000, 1_000), Ok(()), "now");
    assert_eq!(time_error(1_000, 0, 1_000, 1_001), Err(EnvelopeErrorKind::Expired), "or never");
}

#[test]
fn future_is_refused_beyond_thirty_seconds() {
    assert_eq!(time_error(40_000, 1, 40_000, 10_000), Ok(()));
    assert_eq!(time_error(40_001, 1, 40_001, 10_000), Err(EnvelopeErrorKind::Future));
}

#[test]
fn ttl_is_at_most_thirty_days() {
    assert_eq!(time_error(1_000, TTL_MS_MAX, 1_000, 1_000), Ok(()));
    assert_eq!(time_error(1_000, TTL_MS_MAX + 1, 1_000, 1_000), Err(EnvelopeErrorKind::TtlTooLong));
}

#[test]
fn time_in_the_id_is_within_a_second_of_ts() {
    for (id_ts, expected) in [
        (9_000, Ok(())),
        (8_999, Err(EnvelopeErrorKind::IdTime)),
        (11_000, Ok(())),
        (11_001, Err(EnvelopeErrorKind::IdTime)),
    ] {
        assert_eq!(time_error(10_000, 60_000, id_ts, 10_000), expected, "{id_ts}");
    }
}

#[test]
fn times_at_the_end_of_their_range_do_not_overflow() {
    let end = u64::MAX;
    assert_eq!(time_error(end, TTL_MS_MAX, end, end), Ok(()));
    assert_eq!(time_error(end, TTL_MS_MAX, end, 0), Err(EnvelopeErrorKind::Future));
    assert_eq!(time_error(end, end, end, end), Err(EnvelopeErrorKind::TtlTooLong));
    assert_eq!(time_error(0, 0, end, 0), Err(EnvelopeErrorKind::IdTime));
    assert_eq!(time_error(0, 0, 0, end), Err(EnvelopeErrorKind::Expired));
}

#[test]
fn recipient_must_be_among_those_named() {
    let (alice, bob) = (alice(), bob());
    let bytes = envelope_with(|_| ());
    let envelope = Envelope::decode(&bytes).unwrap();
    assert_eq!(envelope.check_recipient(bob.did()), Ok(()));
    let error = envelope.check_recipient(alice.did()).unwrap_err();
    assert_eq!((error.code().0, error.id), (2001, Some(id())));

    let key = bob.did().strip_prefix("did:key:").unwrap().to_owned();
    let bob_url = format!("{}#{key}", bob.did());
    let bytes = envelope_with(|draft| draft.to = Recipients::Many(vec!["did:web:a".into(), bob_url.into()]));
    let envelope = Envelope::decode(&bytes).unwrap();
    assert_eq!(envelope.check_recipient(bob.did()), Ok(()));
    assert_eq!(envelope.check_recipient(&"did:web:a".parse().unwrap()), Ok(()));
    assert!(envelope.check_recipient(alice.did()).is_err());
    assert_eq!(envelope.verify(&key_of(&alice), &mut Vec::new()), Ok(()));
}

#[test]
fn changing_any_signed_field_is_1002_and_changing_ext_is_not() {
    let (alice, bob) = (alice(), bob());
    let mut good = draft(&alice, &bob, &[0x01]);
    (good.reply_to, good.thread_id) = (Some(&[1; 16][..]), Some(&[2][..]));
    let mut bytes = Vec::new();
    good.seal(&alice, true, &mut bytes);
    let envelope = Envelope::decode(&bytes).unwrap();
    let verify = |envelope: &Envelope<'_>| {
        envelope.verify(&key_of(&alice), &mut Vec::new()).map_err(|error| error.code().0)
    };
    assert_eq!(verify(&envelope), Ok(()));
    let changes: [fn(&mut Envelope<'_>); 10] = [
        |envelope| envelope.id.0[15] ^= 1,
        |envelope| envelope.typ += 1,
        |envelope| envelope.ts += 1,
        |envelope| envelope.ttl += 1,
        |envelope| envelope.from.to_mut().push('a'),
        |envelope| {
            envelope.to = Recipients::Many(envelope.to.iter().map(|did| did.to_owned().into()).collect())
        },
        |envelope| envelope.reply_to = None,
        |envelope| envelope.thread_id = Some(vec![3].into()),
        |envelope| envelope.payload = Payload::Body(&[0x02]),
        |envelope| envelope.sig = None,
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut changed = envelope.clone();
        change(&mut changed);
        assert_eq!(verify(&changed), Err(1002), "change {at}");
    }
    let mut changed = envelope.clone();
    changed.ext = Some(&[0xa0]);
    assert_eq!(verify(&changed), Ok(()));
}

#[test]
fn body_in_another_encoding_verifies_and_keeps_its_bytes() {
    // {"b": 1, "a": [1]} with keys out of order, long heads and an indefinite length.
    let body = hex("bf61621901006161");
    let body = [&body[..], &hex("9f1801ff"), &[0xff]].concat();
    crate::cbor::check(&body).unwrap();
    assert!(!crate::cbor::is_deterministic(&body));
    let bytes = sealed(&body);
    let envelope = Envelope::decode(&bytes).unwrap();
    assert_eq!(envelope.body(), Some(&body[..]));
    let mut scratch = Vec::new();
    assert_eq!(envelope.verify(&key_of(&alice()), &mut scratch), Ok(()));
    envelope.signed_bytes(&mut scratch).unwrap();
    let signed = hex("4aa2616181016162190100");
    assert_eq!(scratch[scratch.len() - signed.len()..], signed);
}

#[test]
fn envelope_in_another_encoding_is_the_same_envelope() {
    let (alice, bob) = (alice(), bob());
    let chunked = |text: &str, major: u8| {
        let mut out = vec![major << 5 | 31];
        for part in text.as_bytes().chunks(20) {
            out.extend([&[major << 5 | 24, part.len() as u8][..], part].concat());
        }
        out.push(0xff);
        out
    };
    let definite = sealed(&[0xf6]);
    let expected = Envelope::decode(&definite).unwrap();
    let loose = Loose::new()
        .with("from", &chunked(alice.did(), 3))
        .with("to", &chunked(bob.did(), 3))
        .with("typ", &hex("1b0000000000000022"))
        .without("v")
        .and(&hex("7f6176ff"), &hex("1801"));
    let mut bytes = loose.bytes();
    bytes[0] = 0xbf;
    bytes.push(0xff);
    let envelope = Envelope::decode(&bytes).unwrap();
    assert_eq!(envelope, expected);
    assert_eq!(envelope.verify(&key_of(&alice), &mut Vec::new()), Ok(()));
}

#[test]
fn empty_signature_is_taken_and_never_verifies() {
    let (alice, bob) = (alice(), bob());
    let mut bytes = Vec::new();
    draft(&alice, &bob, &[0xf6]).seal(&alice, false, &mut bytes);
    let envelope = Envelope::decode(&bytes).unwrap();
    assert_eq!(envelope.sig, None);
    let error = envelope.verify(&key_of(&alice), &mut Vec::new()).unwrap_err();
    assert_eq!((error.code().0, error.kind), (1002, EnvelopeErrorKind::Unsigned));
}

#[test]
fn message_addressed_anew_keeps_id_and_body_and_verifies_again() {
    let (alice, bob) = (alice(), bob());
    let body = hex("bf6161f93c00ff");
    let mut local = Vec::new();
    let mut first = draft(&alice, &alice, &body);
    first.ext = Ext::Fields { traceparent: Some("00-ab-cd-01"), deprecated: false };
    first.seal(&alice, false, &mut local);
    let received = Envelope::decode(&local).unwrap();

    let again = Draft { to: Recipients::one(bob.did()), ..Draft::of(&received).unwrap() };
    let mut bytes = Vec::new();
    again.seal(&alice, true, &mut bytes);
    let forwarded = Envelope::decode(&bytes).unwrap();
    assert_eq!((forwarded.id, forwarded.body()), (received.id, Some(&body[..])));
    assert_eq!(forwarded.check_recipient(bob.did()), Ok(()));
    assert_eq!(forwarded.verify(&key_of(&alice), &mut Vec::new()), Ok(()));
    assert_eq!(forwarded.ext_text("traceparent").as_deref(), Some("00-ab-cd-01"));
}

#[test]
fn ext_is_written_in_order_and_read_without_trust() {
    let bytes = envelope_with(|draft| {
        draft.ext = Ext::Fields { traceparent: Some("00-1-2-3"), deprecated: true };
    });
    assert!(crate::cbor::is_deterministic(&bytes));
    let envelope = Envelope::decode(&bytes).unwrap();
    assert_eq!(envelope.ext_bool("deprecated"), Some(true));
    assert_eq!(envelope.ext_text("traceparent").as_deref(), Some("00-1-2-3"));
    assert_eq!(envelope.ext_text("deprecated"), None, "of another type");
    assert_eq!(envelope.ext_text("absent"), None);

    let bare = envelope_with(|draft| draft.ext = Ext::Fields { traceparent: None, deprecated: false });
    assert_eq!(bare, envelope_with(|_| ()));
}

#[test]
fn reply_to_of_another_length_is_carried_and_answers_nothing() {
    for length in [0, 15, 17, 100] {
        let reply_to = vec![7; length];
        let (alice, bob) = (alice(), bob());
        let draft = Draft { reply_to: Some(&reply_to), ..draft(&alice, &bob, &[0xf6]) };
        let mut bytes = Vec::new();
        draft.seal(&alice, true, &mut bytes);
        let envelope = Envelope::decode(&bytes).unwrap();
        assert_eq!(envelope.reply_to.as_deref(), Some(&reply_to[..]));
        assert_eq!(envelope.reply_id(), None);
        assert_eq!(envelope.verify(&key_of(&alice), &mut Vec::new()), Ok(()));
    }
}

#[test]
fn encrypted_body_opens_for_the_recipient_and_is_checked_like_any_other() {
    let (alice, bob) = (alice(), bob());
    let to_bob = Authcrypt::new(&alice.agreement_secret(), &key_of(&bob).agreement_key());
    let from_alice = Authcrypt::new(&bob.agreement_secret(), &key_of(&alice).agreement_key());
    // Out of order, so that it is the deterministic form that must be sealed.
    let body = hex("a2616201616102");
    let mut bytes = Vec::new();
    draft(&alice, &bob, &body).seal_encrypted(&alice, &to_bob, &[9; 24], &mut bytes);
    assert!(crate::cbor::is_deterministic(&bytes));

    let envelope = Envelope::decode(&bytes).unwrap();
    assert_eq!(envelope.body(), None);
    assert_eq!(Draft::of(&envelope), None);
    assert_eq!(envelope.verify(&key_of(&alice), &mut Vec::new()).unwrap_err().code().0, 3001);
    let mut plaintext = Vec::new();
    envelope.open(&from_alice, &mut plaintext).unwrap();
    assert_eq!(plaintext, hex("a2616102616201"));
    let opened = envelope.clone().with_body(&plaintext).unwrap();
    assert_eq!(opened.verify(&key_of(&alice), &mut Vec::new()), Ok(()));
    assert_eq!(opened.open(&from_alice, &mut Vec::new()).unwrap_err().code().0, 1001, "nothing sealed");

    // A sealed body in another encoding than the signed one does not verify. AMP 001 8.6.
    let reordered = envelope.clone().with_body(&body).unwrap();
    assert_eq!(reordered.verify(&key_of(&alice), &mut Vec::new()).unwrap_err().code().0, 1002);
    for malformed in ["", "f6f6", "a2616101616102", "61ff", "c101"] {
        let malformed = hex(malformed);
        let error = envelope.clone().with_body(&malformed).unwrap_err();
        assert_eq!((error.code().0, error.id), (1001, Some(id())));
    }
}
