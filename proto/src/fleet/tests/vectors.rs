//! The published byte vectors, which other code than ours has made.

use serde_json::Value;

use super::*;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../../tests/vectors/fleet.json")).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(vectors: &Value, name: &str) -> Vec<u8> {
    let text = vectors[name].as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn records_come_out_to_the_byte() {
    let vectors = vectors();
    let membership = membership().sign(&authority()).unwrap();
    assert_eq!(hex(&membership), vectors["membership"]);
    assert!(membership.len() <= 200, "{} bytes", membership.len());
    assert_eq!(hex(&registration().fence.encode()), vectors["fence"]);
    assert_eq!(hex(&signed(&registration())), vectors["registration"]);
    let without_zone = Registration { zone: None, ..registration() };
    assert_eq!(hex(&signed(&without_zone)), vectors["registration_without_zone"]);
    let revocation =
        Revocation { agent: agent_of(&identity()), cell: cell(), serial_min: 4, at_ms: NOW_MS + 5 };
    assert_eq!(hex(&revocation.sign(&authority())), vectors["revocation"]);
}

#[test]
fn records_are_read_as_they_were_meant() {
    let vectors = vectors();
    let mut verifier = verifier();
    let member =
        Membership::verify(&bytes(&vectors, "membership"), &cell(), &authority().public_key(), NOW_MS);
    assert_eq!(member, Ok(membership()));
    assert_eq!(Fence::decode(&bytes(&vectors, "fence")), Ok(registration().fence));
    let registered = verify(&mut verifier, &bytes(&vectors, "registration"), NOW_MS);
    assert_eq!(
        registered,
        Ok(Registered { registration: registration(), serial: 3, member_until_ms: NOW_MS + 90 * DAY_MS })
    );
    let registered = verify(&mut verifier, &bytes(&vectors, "registration_without_zone"), NOW_MS).unwrap();
    assert_eq!(registered.registration.zone, None);
    let agent = agent_of(&identity());
    let revocation = verifier.revocation(&agent, &bytes(&vectors, "revocation")).unwrap();
    assert_eq!((revocation.serial_min, revocation.at_ms), (4, NOW_MS + 5));
}

#[test]
fn keys_come_out_and_are_read_again() {
    let vectors = vectors();
    let agent = agent_of(&identity());
    assert_eq!(agent.to_string(), vectors["agent"]);
    assert_eq!(agent.to_string().len(), 48);
    for (key, field) in [
        (Key::Fence(agent), "fence_key"),
        (Key::registration(name(), agent), "registration_key"),
        (Key::Revocation(agent), "revocation_key"),
    ] {
        let path = key.path(&cell());
        assert_eq!(path, vectors[field]);
        assert_eq!(Key::parse(&cell(), &path), Ok(key.clone()));
        assert!(path.starts_with(&Prefix::One(key).path(&cell())));
    }
}

#[test]
fn every_truncation_of_a_record_is_refused() {
    let vectors = vectors();
    let (registration, membership) = (bytes(&vectors, "registration"), bytes(&vectors, "membership"));
    let revocation = bytes(&vectors, "revocation");
    let key = authority().public_key();
    for end in 0..registration.len() {
        let refused = verify(&mut verifier(), &registration[..end], NOW_MS).unwrap_err();
        assert_eq!(refused.why(), "malformed", "{end} bytes");
    }
    for end in 0..membership.len() {
        let refused = Membership::verify(&membership[..end], &cell(), &key, NOW_MS).unwrap_err();
        assert!(matches!(refused, MembershipError::Record(_)), "{end} bytes");
    }
    for end in 0..revocation.len() {
        assert!(Revocation::verify(&revocation[..end], &cell(), &key).is_err(), "{end} bytes");
    }
    for length in (0..64).filter(|length| *length != 24) {
        assert_eq!(Fence::decode(&vec![0; length]), Err(FenceError(length)));
    }
}

#[test]
fn no_flipped_bit_of_a_record_is_believed() {
    let registration = bytes(&vectors(), "registration");
    for at in 0..registration.len() {
        for bit in [0, 7] {
            let mut flipped = registration.clone();
            flipped[at] ^= 1 << bit;
            assert!(verify(&mut verifier(), &flipped, NOW_MS).is_err(), "byte {at}, bit {bit}");
        }
    }
}
