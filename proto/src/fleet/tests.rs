mod records;
mod refusals;
mod vectors;

use crate::capability::CapabilityName;
use crate::identity::Identity;
use crate::ledger::JournalId;

use super::*;

const NOW_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const NAME: &str = "org.example.billing.invoice";

fn authority() -> Identity {
    Identity::from_seed([1; 32])
}

fn identity() -> Identity {
    Identity::from_seed([2; 32])
}

fn agent_of(identity: &Identity) -> Agent {
    identity.public_key().into()
}

fn cell() -> Cell {
    "prod-eu".parse().unwrap()
}

fn name() -> CapabilityName {
    NAME.parse().unwrap()
}

fn membership() -> Membership {
    Membership {
        agent: agent_of(&identity()),
        cell: cell(),
        serves: vec!["org.example.billing.*".parse().unwrap()],
        not_before_ms: NOW_MS,
        not_after_ms: NOW_MS + 90 * DAY_MS,
        serial: 3,
    }
}

fn registration() -> Registration {
    let address = |transport, host: &str, port| Address { transport, host: host.to_owned(), port };
    Registration {
        agent: agent_of(&identity()),
        cell: cell(),
        name: name(),
        fence: Fence { incarnation: 7, journal: JournalId(std::array::from_fn(|at| at as u8)) },
        generation: 300,
        addresses: vec![
            address(Transport::Quic, "billing-0.example.org", 7001),
            address(Transport::Tcp, "2001:db8::7", 7002),
        ],
        versions: vec![
            Served { version: "1.4.0".parse().unwrap(), hash: [9; 32], flags: Served::IDEMPOTENT },
            Served {
                version: "2.0.0-rc.1".parse().unwrap(),
                hash: [8; 32],
                flags: Served::DEPRECATED | Served::KEYED,
            },
        ],
        made_at_ms: NOW_MS,
        not_after_ms: NOW_MS + DAY_MS,
        zone: Some("eu-1a".to_owned()),
        state: State::Draining,
    }
}

fn verifier() -> Verifier {
    Verifier::new(cell(), authority().public_key())
}

/// What a verifier says of a value under the key that an honest agent would use.
fn verify(verifier: &mut Verifier, value: &[u8], now_ms: u64) -> Result<Registered, Refused> {
    let agent = agent_of(&identity());
    verifier.registration(&name(), Shard::of(&agent), &agent, value, now_ms)
}

fn signed(registration: &Registration) -> Vec<u8> {
    registration.sign(&identity(), &membership().sign(&authority()).unwrap()).unwrap()
}
