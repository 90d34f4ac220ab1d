//! Any bytes in, read as what a registry says: keys, registrations, memberships, revocations and fences; the claims that
//! nothing unsigned is believed, and that whatever is believed is spelled in the one way that its maker spells it.

use capd_proto::fleet::{Agent, Cell, Fence, Key, Membership, Revocation, Verifier};
use capd_proto::identity::Identity;

/// A time at which the records of the corpus count. **Units:** milliseconds since 1970.
const NOW_MS: u64 = 1_800_000_000_000;

pub(crate) fn run(bytes: &[u8]) {
    // The keys and the cell of `tests/vectors/fleet.json`, whose records are the corpus.
    let (authority, identity) = (Identity::from_seed([1; 32]), Identity::from_seed([2; 32]));
    let cell: Cell = "prod-eu".parse().expect("it is a name");
    let agent = Agent::from(identity.public_key());
    let key = authority.public_key();

    if let Ok(fence) = Fence::decode(bytes) {
        assert_eq!(fence.encode(), bytes);
    }
    if let Ok(membership) = Membership::verify(bytes, &cell, &key, NOW_MS) {
        assert_eq!(membership.sign(&authority).as_deref(), Ok(bytes), "Ed25519 signs one message in one way");
    }
    if let Ok(Some(revocation)) = Revocation::verify(bytes, &cell, &key) {
        assert_eq!(revocation.sign(&authority), bytes);
    }
    let mut verifier = Verifier::new(cell.clone(), key);
    let name = "org.example.billing.invoice".parse().expect("it is a name");
    let Key::Registration { name, shard, .. } = Key::registration(name, agent) else { unreachable!() };
    if let Ok(registered) = verifier.registration(&name, shard, &agent, bytes, NOW_MS) {
        let membership = bytes.len().checked_sub(membership_bytes(bytes)).and_then(|at| bytes.get(at..));
        let membership = membership.expect("a registration ends with its membership");
        assert_eq!(registered.registration.sign(&identity, membership).as_deref(), Ok(bytes));
        // It is believed again, and by nobody who knows that its maker is revoked.
        assert!(verifier.registration(&name, shard, &agent, bytes, NOW_MS).is_ok());
        let serial_min = registered.serial.saturating_add(1);
        let revocation = Revocation { agent, cell: cell.clone(), serial_min, at_ms: NOW_MS };
        verifier.revocation(&agent, &revocation.sign(&authority)).expect("the authority has signed it");
        let is_revoked = verifier.is_revoked(&agent, registered.serial);
        assert_eq!(verifier.registration(&name, shard, &agent, bytes, NOW_MS).is_err(), is_revoked);
    }
    if let Some(text) = std::str::from_utf8(bytes).ok()
        && let Ok(key) = Key::parse(&cell, text)
    {
        assert_eq!(key.path(&cell), text, "a key has one spelling");
    }
}

/// How many bytes the membership has, which is the last part of a registration.
fn membership_bytes(bytes: &[u8]) -> usize {
    // An array of three byte strings: body, 64 bytes of signature, membership.
    let mut reader = capd_proto::cbor::Reader::new(bytes);
    let parts = reader.array().ok().flatten().unwrap_or_default();
    let lengths = (0..parts).map(|_| reader.bytes().map_or(0, |part| part.len()));
    lengths.last().unwrap_or_default()
}
