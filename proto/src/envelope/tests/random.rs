//! Tests random drafts and random damage.

use ciborium::Value;
use proptest::prelude::*;

use super::*;
use crate::envelope::{decode, usual};
use crate::identity::Did;

/// CBOR items of every kind that a body may hold, in ciborium's encoding: keys in any order.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::Float),
        ".{0,12}".prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..12).prop_map(Value::Bytes),
    ];
    let value = leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::hash_map(".{0,6}", inner, 0..5).prop_map(|pairs| {
                Value::Map(pairs.into_iter().map(|(key, value)| (Value::Text(key), value)).collect())
            }),
        ]
    });
    value.prop_map(|value| {
        let mut out = Vec::new();
        ciborium::into_writer(&value, &mut out).unwrap();
        out
    })
}

fn did() -> impl Strategy<Value = String> {
    "did:[a-z0-9]{1,6}:[A-Za-z0-9._-]{1,40}(#[a-z0-9]{1,8})?"
        .prop_filter("is a DID", |text| Did::check(text).is_ok())
}

fn bytes_option() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..40))
}

fn any_id() -> impl Strategy<Value = MessageId> {
    any::<[u8; 16]>().prop_map(MessageId)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn draft_comes_back_from_its_envelope(
        (id, typ, ts, ttl) in (any_id(), any::<u64>(), any::<u64>(), any::<u64>()),
        (from, to) in (did(), prop::collection::vec(did(), 1..5)),
        (reply_to, thread_id) in (bytes_option(), bytes_option()),
        (body, traceparent) in (body(), prop::option::of("[0-9a-f-]{1,55}")),
        (deprecated, signed) in (any::<bool>(), any::<bool>()),
    ) {
        let to = match &to[..] {
            [one] => Recipients::one(one),
            many => Recipients::Many(many.iter().map(|did| did.as_str().into()).collect()),
        };
        let ext = Ext::Fields { traceparent: traceparent.as_deref(), deprecated };
        let (reply_to, thread_id) = (reply_to.as_deref(), thread_id.as_deref());
        let draft = Draft { id, typ, ts, ttl, from: &from, to, reply_to, thread_id, body: &body, ext };
        let mut out = Vec::new();
        draft.seal(&alice(), signed, &mut out);

        prop_assert_eq!(crate::cbor::check(&out), Ok(()));
        prop_assert_eq!(crate::cbor::is_deterministic(&out), crate::cbor::is_deterministic(&body));
        let envelope = Envelope::decode(&out).unwrap();
        let back = Draft::of(&envelope).unwrap();
        prop_assert_eq!(&Draft { ext, ..back.clone() }, &draft);
        let verified = envelope.verify(&alice().public_key(), &mut Vec::new());
        prop_assert_eq!(verified.map_err(|error| error.code().0), if signed { Ok(()) } else { Err(1002) });

        let mut again = Vec::new();
        back.seal(&alice(), signed, &mut again);
        prop_assert_eq!(again, out);
    }

    #[test]
    fn damage_never_passes_what_the_strict_check_refuses(
        body in body(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sealed(&body);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Some(envelope) = usual::read(&bytes) {
            prop_assert_eq!(decode::decode(&bytes), Ok(envelope));
        }
        match (Envelope::decode(&bytes), crate::cbor::check(&bytes)) {
            (Ok(_), checked) => prop_assert_eq!(checked, Ok(())),
            (Err(error), Err(checked)) => {
                // The envelope's own rules about keys and tags may strike earlier in the bytes.
                prop_assert!(error.offset.unwrap() <= checked.offset);
                prop_assert_eq!(error.code().0, 1001);
            }
            (Err(error), Ok(())) => prop_assert!(matches!(error.code().0, 1001 | 1002 | 1004)),
        }
    }

    #[test]
    fn recipients_are_named_whatever_their_fragments(to in "[a#]{0,4}", did in "[a#]{0,4}") {
        let is_same = Did::bare_of(&to) == Did::bare_of(&did);
        prop_assert_eq!(Recipients::one(&to).names(&did), is_same);
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::decode(&bytes);
    }
}
