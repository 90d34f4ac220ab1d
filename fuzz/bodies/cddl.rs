//! A schema (the first byte chooses it) and any bytes in; our verdict held against two other validators and itself.

use std::panic::catch_unwind;

use capd_proto::cbor;

#[path = "../../proto/tests/support/differential.rs"]
mod differential;

/// The verdict is that of the `cddl` and `cddl-cat` crates, but for their known defects, and it is about the value:
/// the deterministic encoding of the same value gets the same one.
pub(crate) fn run(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else { return };
    if cbor::check(body).is_err() {
        return;
    }
    let schemas = differential::schemas();
    let schema = &schemas[usize::from(*choice) % schemas.len()];
    let verdict = schema.ours(body);
    let mut deterministic = Vec::new();
    cbor::deterministic(body, &mut deterministic).expect("checked bytes are well-formed");
    assert_eq!(schema.ours(&deterministic).is_ok(), verdict.is_ok(), "{}: {verdict:?}", schema.name);
    // Ours has been asked without a panic, so a panic here is an oracle's, and an oracle that panics says nothing.
    if let Ok(differences) = catch_unwind(|| differential::differences(schema, body)) {
        assert!(differences.is_empty(), "{}: ours {verdict:?}, {differences:?}: {body:02x?}", schema.name);
    }
}
