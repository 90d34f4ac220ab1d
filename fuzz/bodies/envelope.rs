//! Any bytes in; claims on the envelopes that they decode to, and on those sealed from them.

use std::sync::OnceLock;

use capd_proto::cbor;
use capd_proto::cddl::bodies::{Shape, bodies};
use capd_proto::envelope::{Draft, Envelope, EnvelopeError, Payload};
use capd_proto::identity::{Authcrypt, Identity};

/// What decodes keeps the CBOR rules and its CDDL rule, and comes back from its own sealed form; what does not is
/// refused with a code and a place.
pub(crate) fn run(bytes: &[u8]) {
    match Envelope::decode(bytes) {
        Ok(envelope) => accepted(bytes, &envelope),
        Err(error) => refused(bytes, &error),
    }
}

struct Parties {
    sender: Identity,
    stranger: Identity,
    shared: Authcrypt,
}

fn parties() -> &'static Parties {
    static PARTIES: OnceLock<Parties> = OnceLock::new();
    PARTIES.get_or_init(|| {
        let (sender, stranger) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
        let shared = Authcrypt::new(&sender.agreement_secret(), &stranger.agreement_secret().public_key());
        Parties { sender, stranger, shared }
    })
}

fn accepted(bytes: &[u8], envelope: &Envelope<'_>) {
    assert_eq!(cbor::check(bytes), Ok(()));
    assert_eq!(bodies().check_shape(Shape::Envelope, bytes), Ok(()));
    time(envelope);
    match &envelope.payload {
        Payload::Body(body) => {
            assert_eq!(cbor::check(body), Ok(()));
            sealed_again(envelope);
        }
        Payload::Enc(_) => {
            let mut plaintext = Vec::new();
            assert!(
                envelope.open(&parties().shared, &mut plaintext).is_err(),
                "nobody sealed it for this key"
            );
            assert!(Draft::of(envelope).is_none());
        }
    }
}

fn time(envelope: &Envelope<'_>) {
    let at_once = envelope.check_time(envelope.ts);
    if let Some(after) = envelope.ts.checked_add(envelope.ttl).and_then(|end| end.checked_add(1)) {
        assert!(envelope.check_time(after).is_err(), "expired");
        assert_eq!(envelope.check_time(after - 1), at_once, "valid to its last millisecond");
    }
}

fn sealed_again(envelope: &Envelope<'_>) {
    let Parties { sender, stranger, .. } = parties();
    let draft = Draft::of(envelope).expect("the body is not encrypted");
    let mut sealed = Vec::new();
    draft.seal(sender, true, &mut sealed);
    let again = Envelope::decode(&sealed).expect("what is sealed decodes");
    assert_eq!(Draft::of(&again).as_ref(), Some(&draft));
    assert!(!cbor::is_deterministic(draft.body) || envelope.ext.is_some() || cbor::is_deterministic(&sealed));
    let mut scratch = Vec::new();
    assert_eq!(again.verify(&sender.public_key(), &mut scratch), Ok(()));
    assert!(again.verify(&stranger.public_key(), &mut scratch).is_err());
    let mut unsigned = Vec::new();
    draft.seal(sender, false, &mut unsigned);
    let unsigned = Envelope::decode(&unsigned).expect("what is sealed decodes");
    assert!(unsigned.sig.is_none() && unsigned.verify(&sender.public_key(), &mut scratch).is_err());
}

fn refused(bytes: &[u8], error: &EnvelopeError) {
    assert!(matches!(error.code().0, 1001 | 1002 | 1004), "{error}");
    let offset = error.offset.expect("every refusal names a byte");
    assert!(offset <= bytes.len(), "{error}");
    if let Err(unreadable) = cbor::check(bytes) {
        assert_eq!(error.code().0, 1001, "{error}");
        // The envelope's own rules on keys and tags may strike earlier in the bytes. A duplicate key, and one too much that
        // holds a map, show only at the end of their map.
        let is_late =
            matches!(unreadable.kind, cbor::ErrorKind::DuplicateKey | cbor::ErrorKind::MapKeysTooLarge);
        let in_order = offset <= unreadable.offset || is_late;
        assert!(in_order, "{error}, {unreadable}");
    }
}
