//! What all tests of the machine share: a cell, its members, and a sidecar whose every word is kept.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for the outputs that it is about")]

mod feeds;
mod links;
mod registering;

use super::*;
use crate::fleet::engine::{Item, LeaseId, Mark, Page, StoreId};
use crate::fleet::{Key, Registration, Revocation, Transport};
use crate::limits::REGISTRATION_LIFE_MS_MAX;

const WALL_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const STORE: StoreId = StoreId { id: 1, era: 1 };

fn authority() -> Identity {
    Identity::from_seed([1; 32])
}

fn identity(number: u8) -> Identity {
    Identity::from_seed([number; 32])
}

fn agent(number: u8) -> Agent {
    identity(number).public_key().into()
}

fn cell() -> Cell {
    "test".parse().unwrap()
}

fn name() -> CapabilityName {
    "org.example.a".parse().unwrap()
}

fn journal(number: u8) -> JournalId {
    JournalId([number; 16])
}

fn member(number: u8) -> Vec<u8> {
    let membership = Membership {
        agent: agent(number),
        cell: cell(),
        serves: vec!["org.example.*".parse().unwrap()],
        not_before_ms: WALL_MS - DAY_MS,
        not_after_ms: WALL_MS + 90 * DAY_MS,
        serial: 1,
    };
    membership.sign(&authority()).unwrap()
}

fn served() -> Served {
    Served { version: "1.0.0".parse().unwrap(), hash: [7; 32], flags: Served::IDEMPOTENT }
}

fn address(number: u8) -> Address {
    Address { transport: Transport::Quic, host: format!("10.0.0.{number}"), port: 7001 }
}

fn offer(names: &[&str]) -> Offer {
    let names = names.iter().map(|name| (name.parse().unwrap(), vec![served()])).collect();
    Offer { addresses: vec![address(2)], names, state: State::Serving }
}

/// What a member says of itself.
fn registration(number: u8, incarnation: u64, generation: u64) -> Registration {
    Registration {
        agent: agent(number),
        cell: cell(),
        name: name(),
        fence: Fence { incarnation, journal: journal(number) },
        generation,
        addresses: vec![address(number)],
        versions: vec![served()],
        made_at_ms: WALL_MS,
        not_after_ms: WALL_MS + REGISTRATION_LIFE_MS_MAX,
        zone: None,
        state: State::Serving,
    }
}

fn value(registration: &Registration, number: u8) -> Bytes {
    registration.sign(&identity(number), &member(number)).unwrap().into()
}

fn path(number: u8) -> String {
    Key::registration(name(), agent(number)).path(&cell())
}

fn mark(revision: u64) -> Mark {
    Mark { created: Revision(revision), modified: Revision(revision), lease: Some(LeaseId(1)) }
}

/// A member's registration as a registry has it.
fn item(number: u8, revision: u64) -> Item {
    let value = value(&registration(number, 1, 1), number);
    Item { path: path(number), mark: mark(revision), value: Some(value) }
}

fn page(revision: u64, items: Vec<Item>) -> Page {
    let mut items = items;
    items.sort_by(|one, other| one.path.cmp(&other.path));
    let count = items.len() as u64;
    Page { store: STORE, revision: Revision(revision), items, count, has_more: false }
}

fn config() -> Config {
    let fence = Fence { incarnation: 4, journal: journal(2) };
    Config::new(cell(), authority().public_key(), Arc::new(identity(2)), member(2).into(), fence)
}

/// A sidecar whose words are kept.
struct Sidecar {
    machine: Machine,
    now_ms: u64,
    said: Vec<Output>,
    watches: BTreeMap<Prefix, (WatchId, Revision)>,
}

impl Sidecar {
    fn new() -> Self {
        Self::of(config())
    }

    fn of(config: Config) -> Self {
        let mut sidecar = Self {
            machine: Machine::new(config, time(0), 0),
            now_ms: 0,
            said: Vec::new(),
            watches: BTreeMap::new(),
        };
        sidecar.drain();
        sidecar
    }

    /// One that has read that nobody is revoked, and watches for it.
    fn watching() -> Self {
        let mut sidecar = Self::new();
        sidecar.tell_page(&Prefix::Revocations, page(1, Vec::new()));
        sidecar.said.clear();
        sidecar
    }

    /// One that wants a name which these members register.
    fn wanting(members: &[u8]) -> Self {
        let mut sidecar = Self::watching();
        sidecar.handle(Input::Want(name()));
        let items = members.iter().map(|number| item(*number, 1)).collect();
        sidecar.tell_page(&Prefix::Name(name(), None), page(1, items));
        sidecar
    }

    fn handle(&mut self, input: Input) {
        self.machine.handle(input, time(self.now_ms), 7);
        self.drain();
    }

    /// Time goes on, and the machine is woken whenever it asked for that.
    fn until(&mut self, now_ms: u64) {
        while let Some(due_ms) = self.machine.poll_timeout().filter(|due_ms| *due_ms <= now_ms) {
            assert!(due_ms >= self.now_ms || self.now_ms == 0, "woken for {due_ms} at {}", self.now_ms);
            self.now_ms = due_ms.max(self.now_ms);
            self.handle(Input::Timeout);
            let next_ms = self.machine.poll_timeout();
            assert!(next_ms.is_none_or(|next_ms| next_ms > self.now_ms), "a handled time is over");
        }
        self.now_ms = now_ms;
    }

    fn drain(&mut self) {
        let said: Vec<_> = std::iter::from_fn(|| self.machine.poll_output()).collect();
        for output in &said {
            if let Output::Watch { watch, prefix, after } = output {
                self.watches.insert(prefix.clone(), (*watch, *after));
            }
        }
        self.said.extend(said);
    }

    fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.said)
    }

    /// The last list of a prefix that was asked for.
    fn listed(&self, wanted: &Prefix) -> Option<(AskId, Ask)> {
        self.said.iter().rev().find_map(|output| match output {
            Output::Ask { id, ask: ask @ Ask::List { prefix, .. } } if prefix == wanted => {
                Some((*id, ask.clone()))
            }
            _ => None,
        })
    }

    fn tell_page(&mut self, prefix: &Prefix, page: Page) {
        let (id, _) = self.listed(prefix).expect("it was asked for");
        self.handle(Input::Told { id, told: Ok(Told::Page(page)) });
    }

    /// The last watch of a prefix that was asked for, and from where.
    fn watched(&self, prefix: &Prefix) -> Option<(WatchId, Revision)> {
        self.watches.get(prefix).copied()
    }

    /// Every watch says that nothing has happened.
    fn change_all(&mut self, revision: u64) {
        for (watch, _) in self.watches.clone().into_values() {
            let change = Change::Progress { revision: Revision(revision) };
            self.handle(Input::Change { watch, change });
        }
    }

    fn change(&mut self, prefix: &Prefix, change: Change) {
        let (watch, _) = self.watched(prefix).expect("it is watched");
        self.handle(Input::Change { watch, change });
    }

    fn dialled(&self) -> Vec<Agent> {
        let dials = self.said.iter().filter_map(|output| match output {
            Output::Dial { agent, .. } => Some(*agent),
            _ => None,
        });
        dials.collect()
    }

    /// Candidates of the name, and whether each is listed.
    fn known(&self) -> BTreeMap<Agent, bool> {
        let candidates = self.machine.candidates(&name()).into_iter();
        candidates.map(|candidate| (candidate.registration.agent, candidate.is_listed())).collect()
    }
}

fn time(now_ms: u64) -> Time {
    Time { now_ms, wall_ms: WALL_MS + now_ms }
}

fn whole_name() -> Prefix {
    Prefix::Name(name(), None)
}

fn put(revision: u64, item: Item) -> Change {
    Change::Put { revision: Revision(revision), item }
}

fn delete(revision: u64, number: u8) -> Change {
    Change::Delete { revision: Revision(revision), path: path(number) }
}
