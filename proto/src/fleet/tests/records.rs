//! Whatever is signed is read again as it was, by whoever verifies it.

use proptest::prelude::*;

use super::*;

fn any_registration() -> impl Strategy<Value = Registration> {
    let address = ("[a-z0-9.:_-]{1,255}", 1..=u16::MAX, any::<bool>()).prop_map(|(host, port, is_tcp)| {
        Address { transport: if is_tcp { Transport::Tcp } else { Transport::Quic }, host, port }
    });
    let served = (any::<[u64; 3]>(), any::<[u8; 32]>(), any::<u8>()).prop_map(|(version, hash, flags)| {
        let [major, minor, patch] = version;
        Served { version: crate::capability::Version::new(major, minor, patch), hash, flags }
    });
    let parts = (
        prop::collection::vec(address, 1..=4),
        prop::collection::vec(served, 1..=16),
        any::<(u64, u64, [u8; 16])>(),
        prop::option::of("\\PC{1,16}"),
        0..DAY_MS,
        any::<bool>(),
    );
    parts.prop_map(|(addresses, versions, (incarnation, generation, journal), zone, ago_ms, is_draining)| {
        Registration {
            fence: Fence { incarnation, journal: JournalId(journal) },
            generation,
            addresses,
            versions,
            made_at_ms: NOW_MS - ago_ms,
            not_after_ms: NOW_MS - ago_ms + DAY_MS,
            zone,
            state: if is_draining { State::Draining } else { State::Serving },
            ..registration()
        }
    })
}

proptest! {
    #[test]
    fn a_registration_is_read_as_it_was_signed(registration in any_registration()) {
        let membership = membership().sign(&authority()).unwrap();
        match registration.sign(&identity(), &membership) {
            Ok(value) => {
                prop_assert!(value.len() <= 2_048);
                let read = verify(&mut verifier(), &value, NOW_MS).map(|read| read.registration);
                prop_assert_eq!(read, Ok(registration));
            }
            Err(error) => prop_assert!(matches!(error, RecordError::TooLong(..)), "{error}"),
        }
    }

    #[test]
    fn any_bytes_are_refused_and_nothing_worse(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        prop_assert!(verify(&mut verifier(), &bytes, NOW_MS).is_err());
        prop_assert!(verifier().revocation(&agent_of(&identity()), &bytes).is_err());
        prop_assert!(verifier().membership(&bytes, &agent_of(&identity()), NOW_MS).is_err());
    }

    #[test]
    fn a_key_is_read_as_it_was_written(seed in any::<[u8; 32]>(), label in "[a-z0-9]{1,40}") {
        let agent = agent_of(&Identity::from_seed(seed));
        let name: CapabilityName = format!("org.example.{label}").parse().unwrap();
        for key in [Key::Fence(agent), Key::Revocation(agent), Key::registration(name.clone(), agent)] {
            let path = key.path(&cell());
            prop_assert_eq!(Key::parse(&cell(), &path), Ok(key.clone()));
            let prefixes = [
                Prefix::Name(name.clone(), None),
                Prefix::Name(name.clone(), Some(Shard::of(&agent))),
                Prefix::Revocations,
                Prefix::One(Key::Fence(agent)),
            ];
            for prefix in prefixes {
                prop_assert_eq!(path.starts_with(&prefix.path(&cell())), prefix.contains(&key));
            }
        }
    }
}
