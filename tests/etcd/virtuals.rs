//! Members without a sidecar: true keys, memberships, signatures and leases, and nobody who answers at their addresses.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use capd::fleet::disk::Disk;
use capd::fleet::etcd::{Etcd, Settings};
use capd::fleet::{Driver, Event, Fleet, Owner, Setup, start};
use capd::net::{Clock, System, Tasks};
use capd_proto::fleet::machine::{Config, Offer};
use capd_proto::fleet::{Address, Fence, Membership, Served, State, Transport};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How many there are, and what they do.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    pub count: u16,
    pub endpoint: &'a str,
    pub ttl_ms: u64,
    /// Most connections to etcd; members share them from there on.
    pub connections: usize,
    /// Most of them that register at once, as machines that start one after the other do.
    pub at_once: usize,
    /// The names that a member offers, by its number.
    pub names: &'a dyn Fn(u16) -> Vec<String>,
}

/// Many of them. Dropping this ends them as a crash does.
pub struct Virtuals {
    fleets: Vec<Fleet>,
    /// Each with a connection of its own, which others share.
    engines: Vec<Arc<Etcd>>,
    counts: Arc<Counts>,
    drivers: JoinSet<()>,
    /// Takes what is sent to them, and says nothing.
    silence: UdpSocket,
}

/// The next process of a member.
pub struct Back {
    number: u16,
    fleet: Fleet,
    driver: Driver,
}

/// What happened to all of them.
#[derive(Default)]
struct Counts {
    lapsed: AtomicU64,
}

impl Owner for Counts {
    fn on_event(&self, event: Event) {
        if matches!(event, Event::Lapsed) {
            self.lapsed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Virtuals {
    /// Starts them. The last ones may not be registered yet.
    pub async fn start(plan: &Plan<'_>) -> Self {
        let silence = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = silence.local_addr().unwrap().port();
        let counts = Arc::<Counts>::default();
        let (fleets, engines, drivers) = (Vec::new(), Vec::new(), JoinSet::new());
        let mut all = Self { fleets, engines, counts, drivers, silence };
        let mut registered = 0;
        for number in 0..plan.count {
            // All of them are looked at now and then only, for there may be ten thousand.
            if all.fleets.len() - registered >= plan.at_once {
                until(|| {
                    registered = all.registered();
                    all.fleets.len() - registered < plan.at_once
                })
                .await;
            }
            if all.engines.len() < plan.connections {
                all.engines.push(connected(number, plan.endpoint).await);
            }
            let engine = all.engine(number);
            let (fleet, driver) = member(number, engine, plan.ttl_ms, Arc::clone(&all.counts) as _);
            all.drivers.spawn(driver.run());
            fleet.offer(offer(&(plan.names)(number), port));
            all.fleets.push(fleet);
        }
        all
    }

    /// A member leaves, and comes back as its next process. What comes of it belongs to [`Virtuals::came_back`].
    #[allow(dead_code, reason = "the fleet's benchmark lets members come and go")]
    pub fn leaves(&self, number: u16, plan: &Plan<'_>) -> impl Future<Output = Back> + Send + use<> {
        let fleet = self.fleets[usize::from(number)].clone();
        let owner = Arc::clone(&self.counts) as _;
        let (engine, ttl_ms) = (self.engine(number), plan.ttl_ms);
        let offer = offer(&(plan.names)(number), self.silence.local_addr().unwrap().port());
        async move {
            fleet.leave().await;
            let (fleet, driver) = member(number, engine, ttl_ms, owner);
            fleet.offer(offer);
            Back { number, fleet, driver }
        }
    }

    /// It runs again, and registers.
    #[allow(dead_code, reason = "the fleet's benchmark lets members come and go")]
    pub fn came_back(&mut self, Back { number, fleet, driver }: Back) {
        while self.drivers.try_join_next().is_some() {}
        self.drivers.spawn(driver.run());
        self.fleets[usize::from(number)] = fleet;
    }

    /// Its way to etcd.
    fn engine(&self, number: u16) -> Arc<Etcd> {
        self.engines[usize::from(number) % self.engines.len()].beside(identity(number).public_key().into())
    }

    /// How many are registered.
    pub fn registered(&self) -> usize {
        self.fleets.iter().filter(|fleet| fleet.status().registered.is_some()).count()
    }

    /// How many know all that the registry has of what they watch.
    #[allow(dead_code, reason = "the fleet's benchmark asks")]
    pub fn current(&self) -> usize {
        self.fleets.iter().filter(|fleet| fleet.status().stale_since_ms.is_none()).count()
    }

    /// How often a registration had ended while its member lived.
    #[allow(dead_code, reason = "the fleet's benchmark asks")]
    pub fn lapsed(&self) -> u64 {
        self.counts.lapsed.load(Ordering::Relaxed)
    }

    pub async fn are_registered(&self) {
        until(|| self.registered() == self.fleets.len()).await;
    }
}

/// One more member, which offers nothing yet.
#[allow(dead_code, reason = "the fleet's benchmark measures with some")]
pub async fn alone(number: u16, endpoint: &str, ttl_ms: u64) -> (Fleet, Driver) {
    member(number, connected(number, endpoint).await, ttl_ms, Arc::<Counts>::default() as _)
}

/// A member's own connection to etcd.
async fn connected(number: u16, endpoint: &str) -> Arc<Etcd> {
    let agent = identity(number).public_key().into();
    let settings =
        Settings { endpoints: vec![endpoint.to_owned()], tls: None, cell: CELL.parse().unwrap(), agent };
    Etcd::new(settings, System::real().crypto).await.unwrap()
}

fn member(number: u16, engine: Arc<Etcd>, ttl_ms: u64, owner: Arc<dyn Owner>) -> (Fleet, Driver) {
    let (identity, cell) = (identity(number), CELL.parse::<capd_proto::fleet::Cell>().unwrap());
    let membership = membership(&authority(), &identity, &["org.example.*"]);
    let mut journal = [78; 16];
    journal[..2].copy_from_slice(&number.to_be_bytes());
    let fence = Fence { incarnation: 0, journal: JournalId(journal) };
    let mut config = Config::new(cell, authority().public_key(), Arc::new(identity), membership, fence);
    config.ttl_ms = ttl_ms;
    start(Setup {
        config,
        engine,
        owner,
        disk: Disk::Memory(0),
        clock: Clock::start(),
        random: System::real().random,
        tasks: Tasks::new(),
    })
    .unwrap()
}

/// The key of a member.
pub fn identity(number: u16) -> Identity {
    let mut seed = [78; 32];
    seed[..2].copy_from_slice(&number.to_be_bytes());
    Identity::from_seed(seed)
}

/// What an authority signs for an agent of the cell.
pub fn membership(authority: &Identity, identity: &Identity, serves: &[&str]) -> Bytes {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let membership = Membership {
        agent: identity.public_key().into(),
        cell: CELL.parse().unwrap(),
        serves: serves.iter().map(|pattern| pattern.parse().unwrap()).collect(),
        not_before_ms: now_ms - 60_000,
        not_after_ms: now_ms + 86_400_000,
        serial: 1,
    };
    membership.sign(authority).unwrap().into()
}

pub fn authority() -> Identity {
    Identity::from_seed([200; 32])
}

/// Names of one version, at an address of this machine.
pub fn offer(names: &[String], port: u16) -> Offer {
    let served = Served { version: "1.0.0".parse().unwrap(), hash: [7; 32], flags: Served::IDEMPOTENT };
    let address = Address { transport: Transport::Quic, host: "127.0.0.1".to_owned(), port };
    let names = names.iter().map(|name| (name.parse().unwrap(), vec![served.clone()]));
    Offer { addresses: vec![address], names: names.collect(), state: State::Serving }
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The cell that all of them are members of.
pub const CELL: &str = "test";
const PATIENCE: Duration = Duration::from_secs(120);
