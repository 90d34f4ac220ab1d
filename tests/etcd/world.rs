//! One etcd, the way of sidecars to it, and members who may lose nothing by what happens to it.

use std::sync::Arc;
use std::time::Duration;

use capd::fleet::disk::Disk;
use capd::fleet::etcd::{Etcd, Settings};
use capd_proto::fleet::{Agent, Key};
use tokio::time::{Instant, sleep};

use super::member::{Member, agent, cell, name, offer};
use super::proxy::Proxy;
use super::server::{Programs, Server};

pub struct World {
    pub server: Server,
    pub proxy: Proxy,
}

impl World {
    pub async fn start(programs: &Programs, arguments: &[&str]) -> Self {
        let server = Server::start(programs, arguments).await;
        let proxy = Proxy::start(server.address()).await;
        Self { server, proxy }
    }

    /// The way of an agent to etcd.
    pub async fn engine(&self, agent: Agent) -> Arc<Etcd> {
        let endpoints = vec![format!("http://{}", self.proxy.address())];
        let settings = Settings { endpoints, tls: None, cell: cell(), agent };
        Etcd::new(settings, Arc::new(rustls::crypto::ring::default_provider())).await.unwrap()
    }

    pub async fn member(&self, number: u8) -> Member {
        self.member_with(number, Disk::Memory(0)).await
    }

    pub async fn member_with(&self, number: u8, disk: Disk) -> Member {
        // Short leases, so that what ends with them ends while somebody waits.
        Member::start_on(number, self.engine(agent(number)).await, disk, |config| config.ttl_ms = TTL_MS)
    }

    /// A caller that has a link to each of so many providers.
    pub async fn fleet(&self, providers: u8) -> Fleet {
        let caller = self.member(1).await;
        caller.fleet.want(&name());
        let mut members = Vec::new();
        for number in 2..2 + providers {
            let provider = self.member(number).await;
            provider.fleet.offer(offer(number));
            members.push(provider);
        }
        let fleet = Fleet { caller, providers: members };
        fleet.recovers().await;
        for number in 2..2 + providers {
            fleet.caller.fleet.link_opened(agent(number), None);
        }
        fleet
    }

    /// Starts etcd again where nobody but the proxy need know.
    pub async fn run(&mut self) {
        self.server.run().await;
        self.proxy.lead_to(self.server.address());
    }

    pub fn has(&self, number: u8) -> bool {
        let path = Key::registration(name(), agent(number)).path(&cell());
        self.server.ctl(&["get", &path, "--keys-only"]).contains(&path)
    }
}

/// A caller and those whom it calls.
pub struct Fleet {
    pub caller: Member,
    pub providers: Vec<Member>,
}

impl Fleet {
    /// How many providers the caller finds in the registry.
    pub fn listed(&self) -> usize {
        let candidates = self.caller.fleet.candidates(&name());
        candidates.map_or(0, |of| of.iter().filter(|candidate| candidate.is_listed()).count())
    }

    pub fn is_current(&self) -> bool {
        self.caller.fleet.status().stale_since_ms.is_none()
    }

    pub fn is_stale(&self) -> bool {
        !self.is_current()
    }

    /// Everybody is registered, and the caller knows it.
    pub async fn recovers(&self) {
        within("the caller is current", || self.is_current()).await;
        within("every provider is registered", || {
            self.providers.iter().all(|provider| provider.fleet.status().registered.is_some())
        })
        .await;
        within("every provider is listed", || self.listed() == self.providers.len()).await;
    }

    /// FLEET D1: whatever happened, no provider was dropped, no link let go, and none was dialled again.
    pub fn lost_nothing(&self) {
        let candidates = self.caller.fleet.candidates(&name()).map_or(0, |of| of.len());
        assert!(candidates >= self.providers.len(), "{candidates} candidates are left");
        assert!(!self.caller.said("LetGo"), "a link was let go");
    }

    /// Where everybody stands, for who reads of a failure.
    pub fn told(&self) -> Vec<String> {
        let all = std::iter::once(&self.caller).chain(&self.providers);
        all.map(|member| format!("{:?}\n{:?}", member.fleet.status(), member.events())).collect()
    }

    /// Looks all the time while something happens.
    pub async fn keeps<T>(&self, what: impl Future<Output = T>) -> T {
        let mut what = std::pin::pin!(what);
        loop {
            tokio::select! {
                biased;
                done = &mut what => break done,
                () = sleep(Duration::from_millis(20)) => self.lost_nothing(),
            }
        }
    }
}

/// Waits for a condition.
pub async fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

pub async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}

/// The life of a lease in these worlds. **Units:** milliseconds.
pub const TTL_MS: u64 = 6_000;
const PATIENCE: Duration = Duration::from_secs(90);
