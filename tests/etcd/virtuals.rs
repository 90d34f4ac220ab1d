//! Members without a sidecar: true keys, memberships, signatures and leases, and nobody who answers at their addresses.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use capd::fleet::disk::Disk;
use capd::fleet::etcd::{Etcd, Settings};
use capd::fleet::{Event, Fleet, Owner, Setup, start};
use capd::net::{Clock, System, Tasks};
use capd_proto::fleet::machine::{Config, Offer};
use capd_proto::fleet::{Address, Fence, Membership, Served, State, Transport};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;
use tokio::task::JoinSet;

use super::traffic::{Kind, name};

/// Many of them. Dropping this ends them as a crash does.
pub struct Virtuals {
    fleets: Vec<Fleet>,
    _drivers: JoinSet<()>,
    /// Takes what is sent to them, and says nothing.
    _silence: UdpSocket,
}

struct Nobody;

impl Owner for Nobody {
    fn on_event(&self, _: Event) {}
}

impl Virtuals {
    pub async fn start(count: u16, endpoint: &str) -> Self {
        let silence = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut fleets, mut drivers) = (Vec::new(), JoinSet::new());
        for number in 0..count {
            let (fleet, driver) = member(number, endpoint).await;
            drivers.spawn(driver.run());
            fleet.offer(offer(number, silence.local_addr().unwrap().port()));
            fleets.push(fleet);
        }
        Self { fleets, _drivers: drivers, _silence: silence }
    }

    pub async fn are_registered(&self) {
        super::until(|| self.fleets.iter().all(|fleet| fleet.status().registered.is_some())).await;
    }
}

async fn member(number: u16, endpoint: &str) -> (Fleet, capd::fleet::Driver) {
    let mut seed = [78; 32];
    seed[..2].copy_from_slice(&number.to_be_bytes());
    let (identity, authority) = (Identity::from_seed(seed), Identity::from_seed([200; 32]));
    let (cell, agent) = ("test".parse::<capd_proto::fleet::Cell>().unwrap(), identity.public_key().into());
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    let membership = Membership {
        agent,
        cell: cell.clone(),
        serves: vec!["org.example.*".parse().unwrap()],
        not_before_ms: now_ms - 60_000,
        not_after_ms: now_ms + 3_600_000,
        serial: 1,
    };
    let membership = membership.sign(&authority).unwrap().into();
    let settings = Settings { endpoints: vec![endpoint.to_owned()], tls: None, cell: cell.clone(), agent };
    let system = System::real();
    let engine = Etcd::new(settings, Arc::clone(&system.crypto)).await.unwrap();
    let fence = Fence { incarnation: 0, journal: JournalId(seed[..16].try_into().unwrap()) };
    let config = Config::new(cell, authority.public_key(), Arc::new(identity), membership, fence);
    start(Setup {
        config,
        engine,
        owner: Arc::new(Nobody),
        disk: Disk::Memory(0),
        clock: Clock::start(),
        random: system.random,
        tasks: Tasks::new(),
    })
    .unwrap()
}

/// Most offer names that nobody calls. Every twentieth offers one that is called, and does not answer.
fn offer(number: u16, port: u16) -> Offer {
    let served = Served { version: "1.0.0".parse().unwrap(), hash: [7; 32], flags: Served::IDEMPOTENT };
    let address = Address { transport: Transport::Quic, host: "127.0.0.1".to_owned(), port };
    let mut names: std::collections::BTreeMap<_, _> =
        [(format!("org.example.virtual-{}", number % 50).parse().unwrap(), vec![served.clone()])].into();
    if number.is_multiple_of(20) {
        names.insert(name(Kind::Idempotent, (number / 20 % 10) as u8).parse().unwrap(), vec![served]);
    }
    Offer { addresses: vec![address], names, state: State::Serving }
}
