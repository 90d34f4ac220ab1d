//! One member of a simulated fleet: its keys, its driver, and everything that it is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capd::fleet::disk::Disk;
use capd::fleet::engine::Engine;
use capd::fleet::{Driver, Event, Fleet, Owner, Setup, start};
use capd::net::{Clock, Random, Tasks};
use capd_proto::capability::CapabilityName;
use capd_proto::fleet::machine::{Config, Offer};
use capd_proto::fleet::{Address, Agent, Cell, Fence, Membership, Served, State, Transport};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::simulated::Registry;

pub struct Member {
    pub fleet: Fleet,
    events: Arc<Told>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Told(Mutex<Vec<Event>>);

impl Owner for Told {
    fn on_event(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl Member {
    pub fn start(number: u8, registry: &Registry) -> Self {
        Self::start_with(number, registry, Disk::Memory(0))
    }

    pub fn start_with(number: u8, registry: &Registry, disk: Disk) -> Self {
        Self::start_on(number, registry.engine(agent(number)), disk, |_| {})
    }

    /// A member of any registry, with some settings of its own.
    pub fn start_on(
        number: u8,
        engine: Arc<dyn Engine>,
        disk: Disk,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let events = Arc::new(Told::default());
        let fence = Fence { incarnation: 0, journal: JournalId([number; 16]) };
        let identity = Arc::new(identity(number));
        let membership = membership(number, 1).into();
        let mut config = Config::new(cell(), authority().public_key(), identity, membership, fence);
        change(&mut config);
        let (fleet, driver): (Fleet, Driver) = start(Setup {
            config,
            engine,
            owner: Arc::clone(&events) as _,
            disk,
            clock: Clock::set_by(wall()),
            random: Random::seeded(number.into()),
            tasks: Tasks::new(),
        })
        .unwrap();
        let task = tokio::spawn(driver.run());
        Self { fleet, events, task }
    }

    /// Ends it as a crash does: nothing is withdrawn.
    pub fn crash(&self) {
        self.task.abort();
    }

    /// Everything it was told so far; each is told once.
    pub fn events(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.0.lock().unwrap())
    }

    /// Whether it was told an event of this kind.
    pub fn said(&self, kind: &str) -> bool {
        self.events.0.lock().unwrap().iter().any(|event| format!("{event:?}").starts_with(kind))
    }

    /// Whom it was told to dial, in order.
    pub fn dialled(&self) -> Vec<Agent> {
        let events = self.events.0.lock().unwrap();
        let dialled = events.iter().filter_map(|event| match event {
            Event::Dial { agent, .. } => Some(*agent),
            _ => None,
        });
        dialled.collect()
    }
}

/// Waits for a condition, an hour of virtual time at most.
pub async fn until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(3_600), "an hour was not enough");
        sleep(Duration::from_millis(50)).await;
    }
}

pub fn cell() -> Cell {
    "test".parse().unwrap()
}

pub fn authority() -> Identity {
    Identity::from_seed([200; 32])
}

pub fn agent(number: u8) -> Agent {
    identity(number).public_key().into()
}

pub fn name() -> CapabilityName {
    "org.example.a".parse().unwrap()
}

pub fn membership(number: u8, serial: u64) -> Vec<u8> {
    let membership = Membership {
        agent: agent(number),
        cell: cell(),
        serves: vec!["org.example.*".parse().unwrap()],
        not_before_ms: WALL_MS - DAY_MS,
        not_after_ms: WALL_MS + 90 * DAY_MS,
        serial,
    };
    membership.sign(&authority()).unwrap()
}

/// What a member offers.
pub fn offer(number: u8) -> Offer {
    let served = Served { version: "1.0.0".parse().unwrap(), hash: [7; 32], flags: Served::IDEMPOTENT };
    let address = Address { transport: Transport::Quic, host: format!("10.0.0.{number}"), port: 7001 };
    Offer { addresses: vec![address], names: [(name(), vec![served])].into(), state: State::Serving }
}

pub fn identity(number: u8) -> Identity {
    Identity::from_seed([number; 32])
}

/// One time of day for all members of a test.
fn wall() -> capd::net::WallClock {
    thread_local! {
        static WALL: capd::net::WallClock = capd::net::WallClock::at(WALL_MS);
    }
    WALL.with(Clone::clone)
}

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
const WALL_MS: u64 = 1_800_000_000_000;
