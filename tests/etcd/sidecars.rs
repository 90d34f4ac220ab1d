//! Real sidecars and many virtual members on one real etcd, which is killed, stopped, wiped and restored beneath their calls.
//!
//! `.ci/fleet` runs it; `cargo test` needs no etcd. `CAPD_ETCD` and `CAPD_ETCDCTL` name the programs. `CAPD_FLEET_VIRTUAL`
//! sets how many virtual members there are. It prints what it measured; the machine is shared, so no time is asserted.

#![allow(clippy::unwrap_used, reason = "whatever a test is made of fails it")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]
#![allow(clippy::disallowed_methods, reason = "real processes are met in real time")]

#[path = "../members/cell.rs"]
#[allow(dead_code, reason = "tests/members uses the rest")]
mod cell;
mod dev;
#[allow(dead_code, reason = "the etcd engine's scenarios use the rest")]
mod proxy;
#[allow(dead_code, reason = "the etcd engine's scenarios use the rest")]
mod server;
#[path = "../support/mod.rs"]
mod support;
mod traffic;
mod virtuals;

use std::time::{Duration, Instant};

use capd_proto::identity::Identity;
use cell::Cell;
use proxy::{Mode, Proxy};
use server::{Programs, Server};
use support::Sidecar;
use traffic::{Agents, Outcome, Traffic};

/// The real sidecars: those that serve, and those that call.
const PROVIDERS: u8 = 12;
const CALLERS: u8 = 8;
/// Names that are served; each provider serves half of them.
const NAMES: u8 = 10;
/// How long the calm before and after what happens to etcd lasts.
const SPAN: Duration = Duration::from_secs(5);
/// How long a registration lives without renewal. When all members register again at once on a busy machine, etcd answers after
/// seconds: no renewal would come back within a much shorter life, and nobody would stay registered.
const LEASE: Duration = Duration::from_secs(12);
/// How long etcd is away: for longer than leases live, so that they lapse.
const OUTAGE: Duration = Duration::from_secs(17);

struct World {
    server: Server,
    proxy: Proxy,
    cell: Cell,
    providers: Vec<Sidecar>,
    callers: Vec<Sidecar>,
    traffic: Traffic,
    agents: Agents,
}

#[tokio::test]
async fn no_call_is_ended_by_the_registry_and_none_runs_twice_when_providers_die() {
    let programs = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} names no program")).into();
    let programs = Programs { etcd: programs("CAPD_ETCD"), etcdctl: programs("CAPD_ETCDCTL") };
    let server = Server::start(&programs, &[]).await;
    let proxy = Proxy::start(server.address()).await;
    let endpoint = format!("http://{}", proxy.address());
    let virtual_count = std::env::var("CAPD_FLEET_VIRTUAL").map_or(500, |count| count.parse().unwrap());
    let begin = Instant::now();
    let plan = virtuals::Plan {
        count: virtual_count,
        endpoint: &endpoint,
        ttl_ms: 30_000,
        connections: usize::from(virtual_count),
        at_once: usize::from(virtual_count),
        names: &virtual_names,
    };
    let virtuals = virtuals::Virtuals::start(&plan).await;
    virtuals.are_registered().await;
    println!("{virtual_count} virtual members registered in {:.1} s", begin.elapsed().as_secs_f64());

    let cell = Cell::alone(virtuals::CELL, 200).with("fleet.endpoints", &endpoint);
    let cell = cell.with("fleet.ttl_ms", &LEASE.as_millis().to_string());
    let providers: Vec<_> =
        (1..=PROVIDERS).map(|seed| cell.member(seed, &["org.example.*"]).start()).collect();
    let callers: Vec<_> = (101..101 + CALLERS).map(|seed| cell.member(seed, &[]).start()).collect();
    let mut agents = Agents::default();
    for (seed, provider) in (1..).zip(&providers) {
        agents.serve(seed, &provider.socket, &names_of(seed)).await;
    }
    for provider in &providers {
        until(|| provider.metric("capd_fleet_registered") == 1).await;
    }
    let traffic = Traffic::start(callers.iter().map(|caller| caller.socket.clone()), NAMES).await;
    let mut world = World { server, proxy, cell, providers, callers, traffic, agents };

    world.steady("steady").await;
    world.etcd_is_killed().await;
    world.etcd_stands_still().await;
    world.etcd_is_cut_off().await;
    world.etcd_is_wiped().await;
    world.an_old_backup_is_restored().await;
    world.a_late_provider_is_found().await;
    // Whatever happened to the registry ended no call.
    let ended: Vec<_> =
        world.traffic.outcomes().into_iter().filter(|of| of.outcome != Outcome::Success).collect();
    assert!(ended.is_empty(), "{ended:?}");
    world.providers_die_and_come_back().await;
    world.end().await;
    drop(virtuals);
}

/// The names that a provider serves.
fn names_of(seed: u8) -> Vec<u8> {
    (0..NAMES).filter(|name| (seed + name).is_multiple_of(2)).collect()
}

/// Most virtual members offer names that nobody calls. Every twentieth offers one that is called, and does not answer.
fn virtual_names(number: u16) -> Vec<String> {
    let called = number.is_multiple_of(20);
    let called = called.then(|| traffic::name(traffic::Kind::Idempotent, (number / 20 % 10) as u8));
    called.into_iter().chain([format!("org.example.virtual-{}", number % 50)]).collect()
}

impl World {
    /// Lets calls go on for a while, and prints how many ended.
    async fn steady(&mut self, what: &str) {
        self.goes_on(what, SPAN).await;
    }

    async fn goes_on(&mut self, what: &str, span: Duration) {
        assert!(self.traffic.during(what, tokio::time::sleep(span)).await > 0, "no call ended: {what}");
    }

    async fn etcd_is_killed(&mut self) {
        self.server.kill();
        self.goes_on("etcd is dead after a kill", OUTAGE).await;
        self.is_back().await;
    }

    async fn etcd_stands_still(&mut self) {
        self.server.pause(true);
        self.goes_on("etcd stands still", OUTAGE).await;
        self.server.pause(false);
        self.steady("etcd goes on").await;
    }

    async fn etcd_is_cut_off(&mut self) {
        self.proxy.set(Mode::Lost);
        self.goes_on("every byte to etcd is lost", OUTAGE).await;
        self.proxy.set(Mode::Through);
        self.steady("etcd is reached again").await;
    }

    async fn etcd_is_wiped(&mut self) {
        self.server.stop().await;
        self.server.backup();
        self.server.wipe("two");
        self.is_back().await;
    }

    async fn an_old_backup_is_restored(&mut self) {
        self.server.stop().await;
        self.server.restore();
        self.is_back().await;
    }

    /// Starts etcd, and waits until every provider is registered in it.
    async fn is_back(&mut self) {
        self.server.run().await;
        self.proxy.lead_to(self.server.address());
        let begin = Instant::now();
        let (server, providers) = (&self.server, &self.providers);
        let registered = until(|| {
            let keys = server.ctl(&["get", "--prefix", "/capd/1/test/n/", "--keys-only"]);
            (1..).zip(providers).all(|(seed, _)| keys.contains(&agent(seed)))
        });
        self.traffic.during("etcd is back", registered).await;
        println!("  every provider was registered again after {:.1} s", begin.elapsed().as_secs_f64());
    }

    /// A caller waits for a name that nobody serves yet.
    async fn a_late_provider_is_found(&mut self) {
        let late = self.cell.member(99, &["org.example.*"]).start();
        let client = traffic::client_of(&self.callers[0].socket).await;
        let name = traffic::name(traffic::Kind::Idempotent, NAMES);
        let asked = |number| traffic::call(&client, &name, number);
        // The caller watches the name from its first call on.
        assert_eq!(asked(u64::MAX).await, Outcome::Refused);
        self.agents.serve(99, &late.socket, &[NAMES]).await;
        let begin = Instant::now();
        while asked(u64::MAX - 1).await != Outcome::Success {
            assert!(begin.elapsed() < support::PATIENCE, "the late provider is not found");
        }
        println!("first call of a new provider {} ms after its agent serves", begin.elapsed().as_millis());
    }

    async fn providers_die_and_come_back(&mut self) {
        for at in 0..3 {
            let seed = u8::try_from(at).unwrap() + 1;
            let mut provider = self.providers.remove(at);
            provider.kill();
            self.traffic.during("a provider is dead", tokio::time::sleep(SPAN / 2)).await;
            let provider = provider.restart();
            self.agents.serve(seed, &provider.socket, &names_of(seed)).await;
            self.providers.insert(at, provider);
        }
        self.steady("all providers are back").await;
    }

    /// Ends the calls, and holds every outcome against what ran.
    async fn end(self) {
        let outcomes = self.traffic.stop().await;
        let (mut successes, mut unknown, mut refused) = (0, 0, 0);
        for of in &outcomes {
            let ran = self.agents.executions(of.number);
            match of.outcome {
                Outcome::Success => successes += 1,
                Outcome::Unknown => unknown += 1,
                Outcome::Refused => refused += 1,
            }
            let is_kept = match (of.kind, of.outcome) {
                (traffic::Kind::Once, Outcome::Success) => ran == 1,
                (traffic::Kind::Once, Outcome::Unknown) => ran <= 1,
                (traffic::Kind::Idempotent, Outcome::Success) => ran >= 1,
                (traffic::Kind::Idempotent, Outcome::Unknown) => true,
                (_, Outcome::Refused) => ran == 0,
            };
            assert!(is_kept, "{of:?} ran {ran} times");
        }
        println!("{} calls: {successes} answered, {unknown} unknown, {refused} refused", outcomes.len());
        assert!(successes > 1_000, "too few calls to show anything");
    }
}

/// A member as the registry names it.
fn agent(seed: u8) -> String {
    let did = Identity::from_seed([seed; 32]).did().to_string();
    did.trim_start_matches("did:key:").to_owned()
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not within a minute");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
