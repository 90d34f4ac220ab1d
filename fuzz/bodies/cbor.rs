//! Any bytes in; claims on the strict check, the reader, the deterministic form and the JSON view of them.

use capd_proto::cbor::{self, ErrorKind, Reader, json};
use ciborium::Value;

/// What the check accepts, ciborium reads as the same value before and after re-encoding; what it refuses, the reader
/// survives.
pub(crate) fn run(bytes: &[u8]) {
    // The reader's methods are safe on bytes that nobody checked.
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() && reader.skip().is_ok() {}
    match cbor::check(bytes) {
        Ok(()) => accepted(bytes),
        Err(error) => refused(bytes, error),
    }
}

fn accepted(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    assert_eq!(reader.skip(), Ok(bytes));
    assert!(reader.is_at_end());
    if bytes.len() <= PREFIXES_BYTES_MAX {
        for end in 0..bytes.len() {
            assert!(cbor::check(&bytes[..end]).is_err(), "a prefix of {end} bytes is no item");
        }
    }
    let mut deterministic = Vec::new();
    cbor::deterministic(bytes, &mut deterministic).expect("checked bytes are well-formed");
    let verdict = cbor::check(&deterministic).map_err(|error| error.kind);
    // A long array in a key takes a byte more in definite form.
    assert!(matches!(verdict, Ok(()) | Err(ErrorKind::MapKeysTooLarge)), "{verdict:?}");
    assert!(cbor::is_deterministic(&deterministic));
    assert_eq!(cbor::is_deterministic(bytes), bytes == deterministic);
    let mut again = Vec::new();
    cbor::deterministic(&deterministic, &mut again).expect("its own output is well-formed");
    assert_eq!(again, deterministic);
    // ciborium's values have no simple values but booleans and null, so it may refuse; it may not read another value.
    if let Ok(value) = ciborium::from_reader::<Value, _>(bytes) {
        let other =
            ciborium::from_reader::<Value, _>(&deterministic[..]).expect("it took the same value before");
        assert_eq!(written(&ordered(value)), written(&ordered(other)));
    }
    json_view(bytes);
}

fn refused(bytes: &[u8], error: cbor::Error) {
    assert!(error.offset <= bytes.len(), "{error}");
    // Text that is not UTF-8 is well-formed, though not valid (RFC 8949 5.3.1).
    let is_well_formed = is_policy(error.kind) || error.kind == ErrorKind::InvalidUtf8;
    assert!(!cbor::is_deterministic(bytes) || is_well_formed, "{error}");
    let mut rest = bytes;
    let well_formed = ciborium::from_reader::<Value, _>(&mut rest).is_ok() && rest.is_empty();
    // ciborium takes `7f7f6161ffff`, a string of indefinite length as a chunk of one (RFC 8949 3.2.3 forbids it), and
    // `f817`, a simple value below 32 in two bytes (3.3).
    let is_lenience = matches!(error.kind, ErrorKind::InvalidChunk | ErrorKind::InvalidSimple);
    assert!(
        !well_formed || is_policy(error.kind) || is_lenience,
        "ciborium reads what is refused as {error}"
    );
}

/// Reasons that are PROTOCOL 5's or our own, beyond RFC 8949's well-formedness.
fn is_policy(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DuplicateKey
            | ErrorKind::TooDeep
            | ErrorKind::ContainerTooLarge
            | ErrorKind::TooManyItems
            | ErrorKind::MapKeysTooLarge
            | ErrorKind::TagNotAllowed
    )
}

fn json_view(bytes: &[u8]) {
    let Ok(value) = json::to_json(bytes) else { return };
    let mut encoded = Vec::new();
    json::from_json(&value, &mut encoded);
    assert_eq!(cbor::check(&encoded), Ok(()));
    assert!(cbor::is_deterministic(&encoded));
    assert_eq!(json::to_json(&encoded).as_ref(), Ok(&value));
}

fn written(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).expect("a Vec takes every byte");
    bytes
}

/// The value with map entries in one order, so that values can be compared as they are written, NaN included.
fn ordered(mut value: Value) -> Value {
    if let Value::Array(items) = &mut value {
        *items = std::mem::take(items).into_iter().map(ordered).collect();
    } else if let Value::Map(entries) = &mut value {
        *entries = std::mem::take(entries).into_iter().map(|(k, v)| (ordered(k), ordered(v))).collect();
        // By their values as well: ciborium reads a small bignum as an integer, so two keys may be one to it.
        entries.sort_by_cached_key(|(key, value)| (written(key), written(value)));
    } else if let Value::Tag(_, inner) = &mut value {
        **inner = ordered(std::mem::replace(inner, Value::Null));
    } else if matches!(value, Value::Float(float) if float.is_nan()) {
        // Every NaN is the same value (RFC 8949 4.2.2).
        value = Value::Float(f64::NAN);
    }
    value
}

/// Longest item of which every prefix is tried.
const PREFIXES_BYTES_MAX: usize = 128;
