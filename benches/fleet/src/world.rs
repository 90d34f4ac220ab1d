//! Sizes in; etcd, virtual members, real sidecars with their agents, and callers that call all the while, out.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capd_proto::fleet::Fence;
use capd_proto::message::FleetRequest;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{sleep, timeout};

use crate::Sizes;
use crate::agents::{Agents, Book, Who};
use crate::calls::{Caller, Kind, Traffic, name};
use crate::members::Members;
use crate::oracle::Touch;
use crate::random::Random;
use crate::server::{Programs, Server};
use crate::sidecar::{Setup, Sidecar};
use crate::virtuals::{self, CELL};

/// Everything that runs. It ends with this.
pub(crate) struct World {
    pub(crate) sizes: Sizes,
    pub(crate) etcd: Server,
    pub(crate) members: Members,
    pub(crate) real: Vec<Sidecar>,
    /// What the provider of each real one says of itself.
    pub(crate) who: Vec<Who>,
    pub(crate) agents: Agents,
    pub(crate) traffic: Traffic,
    ghosts: Ghosts,
    pub(crate) touches: Vec<Touch>,
    pub(crate) random: Random,
    pub(crate) start: Start,
    capd: PathBuf,
    endpoint: String,
    next_seed: u32,
    files: TempDir,
}

/// How it came up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// Until the virtual members were registered.
    pub(crate) virtuals: Duration,
    /// Until the real ones listened, and until they were registered from then on.
    pub(crate) listening: Duration,
    pub(crate) registered: Duration,
}

impl World {
    pub(crate) async fn start(sizes: Sizes) -> Self {
        let capd = sizes.capd();
        let programs = Programs { etcd: sizes.etcd.clone(), etcdctl: sizes.etcdctl() };
        let files = match &sizes.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        };
        let files = files.unwrap();
        let mut random = Random::new(sizes.seed);
        let address = free_address(&mut random);
        // The same address after each start, so that nobody needs a proxy on the way.
        let listens = format!("--listen-client-urls=http://{address}");
        let arguments =
            [listens.as_str(), "--auto-compaction-mode=periodic", "--auto-compaction-retention=5m"];
        let etcd =
            Server::start(&programs, &[&arguments[..], &["--quota-backend-bytes=2147483648"]].concat()).await;
        let endpoint = format!("http://{address}");
        println!("etcd serves at {endpoint}");

        let called = sizes.called();
        let names = sizes.names.saturating_sub(called).max(1);
        let (members, virtuals) =
            Members::start(sizes.virtual_, &endpoint, sizes.ttl_ms(), names, called).await;
        println!("{} virtual members are registered after {:.1} s", sizes.virtual_, virtuals.as_secs_f64());

        let begin = Instant::now();
        let setups = (0..sizes.real).map(|at| Setup {
            name: format!("real-{at}"),
            seed: at as u32,
            endpoint: Some(endpoint.clone()),
            ttl_ms: sizes.ttl_ms(),
            serves: true,
            ..Setup::default()
        });
        let real = start_all(setups.collect(), &capd, files.path()).await;
        let listening = begin.elapsed();
        let book = Book::open(&files.path().join(EXECUTIONS));
        let traffic = Traffic::start(Instant::now(), callers(&real, &sizes), sizes.rate, random.next());
        let ghosts = Ghosts::start(&endpoint, sizes.ttl_ms(), called).await;
        let mut world = Self {
            ghosts,
            etcd,
            members,
            who: Vec::new(),
            agents: Agents::new(book),
            traffic,
            touches: Vec::new(),
            random,
            start: Start { virtuals, listening, registered: Duration::ZERO },
            capd,
            endpoint,
            next_seed: 1_000_000,
            files,
            real,
            sizes,
        };
        world.serve_all().await;
        world
    }

    /// Gives each real sidecar its agent, and waits until all are registered.
    async fn serve_all(&mut self) {
        let begin = Instant::now();
        while !self.has_fences() {
            assert!(begin.elapsed() < PATIENCE, "not every sidecar has its fence in etcd");
            sleep(POLL).await;
        }
        let journals = self.journals();
        let begin = Instant::now();
        for (at, sidecar) in self.real.iter().enumerate() {
            let journal = journals[&sidecar.agent.to_string()].clone();
            let who = Who { did: sidecar.did.clone(), journal: Arc::new(RwLock::new(journal)) };
            let names = [(at % self.sizes.called()).to_string()];
            // It serves as long as all of this lives.
            let _agent = self.agents.serve(&sidecar.socket, &who, &names);
            self.who.push(who);
        }
        self.until_registered().await;
        self.start.registered = begin.elapsed();
        println!(
            "{} sidecars listen after {:.1} s, and are registered {:.1} s after their agents serve",
            self.real.len(),
            self.start.listening.as_secs_f64(),
            self.start.registered.as_secs_f64()
        );
    }

    fn has_fences(&self) -> bool {
        let journals = self.journals();
        self.real.iter().all(|sidecar| journals.contains_key(&sidecar.agent.to_string()))
    }

    /// The journal of each agent, as its fence in etcd names it.
    pub(crate) fn journals(&self) -> BTreeMap<String, String> {
        let said = self.keys(&["i/", "-w", "json"]);
        let kvs = serde_json::from_str::<Value>(&said).unwrap_or_default();
        let text =
            |value: &Value| BASE64_STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
        let fences = kvs["kvs"].as_array().into_iter().flatten().filter_map(|kv| {
            let key = String::from_utf8(text(&kv["key"])).ok()?;
            let fence = Fence::decode(&text(&kv["value"])).ok()?;
            Some((key.rsplit('/').next()?.to_owned(), fence.journal.to_string()))
        });
        fences.collect()
    }

    /// What etcd has beneath a part of the cell; nothing while it does not answer.
    pub(crate) fn keys(&self, arguments: &[&str]) -> String {
        let prefix = format!("/capd/1/{CELL}/{}", arguments[0]);
        let arguments = [&["get", "--prefix", prefix.as_str()], &arguments[1..]].concat();
        let output = block_in_place(|| self.etcd.try_ctl(&arguments));
        String::from_utf8(output.stdout).unwrap_or_default()
    }

    /// The agents that are registered.
    pub(crate) fn registered(&self) -> HashSet<String> {
        // There is an empty line after each key.
        let keys = self.keys(&["n/", "--keys-only"]);
        keys.lines().filter_map(|key| Some(key.rsplit_once('/')?.1.to_owned())).collect()
    }

    fn are_real_registered(&self) -> bool {
        let registered = self.registered();
        self.real.iter().all(|sidecar| registered.contains(&sidecar.agent.to_string()))
    }

    /// Waits until every real sidecar is registered; how long that took.
    pub(crate) async fn until_registered(&self) -> Duration {
        let begin = Instant::now();
        while !self.are_real_registered() {
            assert!(begin.elapsed() < PATIENCE, "not every sidecar is registered");
            sleep(POLL).await;
        }
        begin.elapsed()
    }

    /// Waits until every real sidecar knows all that the registry has of what it watches; how long that took.
    pub(crate) async fn until_current(&self) -> Duration {
        let begin = Instant::now();
        let mut behind: Vec<_> = self.real.iter().collect();
        loop {
            let stale = gauges(&behind, "capd_fleet_stale_seconds").await;
            let mut stale = stale.into_iter();
            behind.retain(|_| stale.next().flatten() != Some(0.0));
            if behind.is_empty() {
                return begin.elapsed();
            }
            let names: Vec<_> = behind.iter().take(5).map(|sidecar| sidecar.name.as_str()).collect();
            assert!(begin.elapsed() < PATIENCE, "{} are behind: {names:?} …", behind.len());
            sleep(POLL).await;
        }
    }

    /// Waits until nothing is left of what happened before; how many virtual members are not registered even then.
    pub(crate) async fn calm(&mut self) -> usize {
        self.until_registered().await;
        self.until_current().await;
        let begin = Instant::now();
        let count = usize::from(self.sizes.virtual_);
        let away = loop {
            let away = count - self.members.status().await.registered;
            if away == 0 || begin.elapsed() >= PATIENCE {
                break away;
            }
            sleep(POLL).await;
        };
        self.agents.still_serve();
        away
    }

    /// Starts etcd again, and waits until it serves.
    pub(crate) async fn run_etcd(&mut self) {
        self.etcd.run().await;
    }

    /// Requests and messages of streams that etcd has had since it started, by method; none while it does not answer.
    pub(crate) async fn requests(&self) -> Option<BTreeMap<String, f64>> {
        let address = self.endpoint.trim_start_matches("http://");
        let ask = async {
            let mut stream = TcpStream::connect(address).await.ok()?;
            stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.ok()?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await.ok()?;
            let counts = text.lines().filter(|line| line.starts_with("grpc_server_msg_received_total"));
            let count = |line: &str| {
                let method = line.split_once("grpc_method=\"")?.1.split('"').next()?.to_owned();
                Some((method, line.rsplit(' ').next()?.parse::<f64>().ok().filter(|count| *count > 0.0)?))
            };
            Some(counts.filter_map(count).collect())
        };
        timeout(Duration::from_secs(10), ask).await.ok().flatten()
    }

    /// A sidecar beside the real ones. Without an endpoint it is in no fleet.
    pub(crate) fn setup(&mut self, name: &str) -> Setup {
        self.next_seed += 1;
        Setup {
            name: format!("{name}-{}", self.next_seed),
            seed: self.next_seed,
            endpoint: Some(self.endpoint.clone()),
            ttl_ms: self.sizes.ttl_ms(),
            ..Setup::default()
        }
    }

    pub(crate) async fn run(&self, setup: Setup) -> Sidecar {
        setup.start(&self.capd, self.files.path()).await
    }

    /// Where etcd is.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The fence of an agent, as etcd has it.
    pub(crate) fn has_fence(&self, of: &Sidecar) -> bool {
        !self.keys(&[&format!("i/{}", of.agent), "--keys-only"]).is_empty()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.files.path()
    }

    /// A sidecar is touched from now on.
    pub(crate) fn touch(&mut self, sidecar: usize) {
        self.touches.push(Touch { sidecar, from: self.traffic.now(), until: None });
    }

    /// It is itself again.
    pub(crate) fn leave_alone(&mut self, sidecar: usize) {
        let until = self.traffic.now() + GRACE;
        for touch in self.touches.iter_mut().filter(|touch| touch.sidecar == sidecar) {
            touch.until.get_or_insert(until);
        }
    }

    /// So many of the real ones, by chance.
    pub(crate) fn choose(&mut self, count: usize) -> Vec<usize> {
        let mut all: Vec<_> = (0..self.real.len()).collect();
        let count = count.clamp(1, all.len());
        (0..count).map(|_| all.swap_remove(self.random.below(all.len() as u64) as usize)).collect()
    }

    /// Starts killed ones again, some at once.
    pub(crate) async fn start_again(&mut self, which: &[usize]) {
        for some in which.chunks(STARTS_AT_ONCE) {
            let mut starting = JoinSet::new();
            let mut slots: Vec<Option<Sidecar>> = self.real.drain(..).map(Some).collect();
            for &at in some {
                let mut sidecar = slots[at].take().expect("each is there once");
                starting.spawn(async move {
                    sidecar.start_again().await;
                    (at, sidecar)
                });
            }
            while let Some(started) = starting.join_next().await {
                let (at, sidecar) = started.unwrap();
                slots[at] = Some(sidecar);
            }
            self.real = slots.into_iter().map(|slot| slot.expect("each came back")).collect();
        }
        for &at in which {
            self.leave_alone(at);
        }
    }

    /// Every process that this one has started, and that lives.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let real = self.real.iter().filter_map(Sidecar::pid);
        real.chain([self.members.pid()]).chain(self.etcd.pid()).collect()
    }

    pub(crate) fn signal_members(&self, signal: Signal) {
        self.members.signal(signal);
    }

    pub(crate) fn executions(&self) -> PathBuf {
        self.files.path().join(EXECUTIONS)
    }

    /// Ends the calls, and everything else but the files.
    pub(crate) async fn stop(self) -> (Vec<crate::calls::Call>, u64, Vec<Touch>, TempDir) {
        let (calls, held_back) = self.traffic.stop().await;
        (calls, held_back, self.touches, self.files)
    }
}

/// Members in this process that serve called names, answer nobody, and die.
struct Ghosts {
    dids: HashSet<String>,
    drivers: JoinSet<()>,
}

impl Ghosts {
    async fn start(endpoint: &str, ttl_ms: u64, called: usize) -> Self {
        let mut ghosts = Self { dids: HashSet::new(), drivers: JoinSet::new() };
        let names: Vec<_> =
            (0..called.min(NAMES_EACH)).map(|of| name(Kind::Again, &of.to_string())).collect();
        for number in 0..GHOSTS {
            let (fleet, driver) = virtuals::alone(GHOST - number, endpoint, ttl_ms).await;
            ghosts.drivers.spawn(driver.run());
            // The discard service, which nobody runs.
            fleet.offer(virtuals::offer(&names, 9));
            while fleet.status().registered.is_none() {
                sleep(POLL).await;
            }
            ghosts.dids.insert(virtuals::identity(GHOST - number).did().to_string());
        }
        ghosts
    }
}

impl World {
    /// They crash, and their leases end; when that was.
    pub(crate) async fn ghosts_die(&mut self) -> Instant {
        self.ghosts.drivers.shutdown().await;
        let begin = Instant::now();
        let is_ghost = |agent: &String| self.ghosts.dids.iter().any(|did| did.ends_with(agent));
        while self.registered().iter().any(is_ghost) {
            assert!(begin.elapsed() < PATIENCE, "the leases of the dead do not end");
            sleep(POLL).await;
        }
        Instant::now()
    }

    /// How many directories of one name were looked at, and how many ghosts are in them.
    pub(crate) async fn ghosts_known(&self) -> (usize, usize) {
        let (mut asked, mut known) = (0, 0);
        for (sidecar, caller) in self.real.iter().zip(callers(&self.real, &self.sizes)) {
            let client = sidecar.client().await;
            for of in &caller.names {
                let request = FleetRequest::Why { name: name(Kind::Again, of).into() };
                let report = client.fleet(&request).await.unwrap();
                let candidates = report.names.iter().flat_map(|name| &name.candidates);
                asked += 1;
                known += candidates.filter(|one| self.ghosts.dids.contains(&*one.did)).count();
            }
        }
        (asked, known)
    }
}

/// Each real sidecar's agent calls names that it does not serve, ten at most.
fn callers(real: &[Sidecar], sizes: &Sizes) -> Vec<Caller> {
    let called = sizes.called();
    let callers = real.iter().enumerate().map(|(at, sidecar)| {
        let others = (1..called.max(2)).take(NAMES_EACH).map(|further| ((at + further) % called).to_string());
        Caller { socket: sidecar.socket.clone(), names: others.collect() }
    });
    callers.collect()
}

/// Starts many, some at once.
pub(crate) async fn start_all(setups: Vec<Setup>, capd: &Path, parent: &Path) -> Vec<Sidecar> {
    let mut all = Vec::new();
    for some in setups.chunks(STARTS_AT_ONCE) {
        let mut starting = JoinSet::new();
        for (at, setup) in some.iter().cloned().enumerate() {
            let (capd, parent) = (capd.to_owned(), parent.to_owned());
            starting.spawn(async move { (at, setup.start(&capd, &parent).await) });
        }
        let mut started = Vec::new();
        while let Some(one) = starting.join_next().await {
            started.push(one.unwrap());
        }
        started.sort_by_key(|(at, _)| *at);
        all.extend(started.into_iter().map(|(_, sidecar)| sidecar));
    }
    all
}

/// The value of a metric at each sidecar, all of its labels added up; none where a sidecar does not answer.
pub(crate) async fn gauges(sidecars: &[&Sidecar], metric: &'static str) -> Vec<Option<f64>> {
    use capd::client::{Client, Endpoint, Options};
    use capd_proto::message::MetricValue;
    let asking = sidecars.iter().map(|sidecar| {
        let endpoint = Endpoint::Unix(sidecar.socket.clone());
        let ask = async move {
            let client = Client::connect(endpoint, Options::default()).await.ok()?;
            let families = client.metrics().await.ok()?;
            let family = families.into_iter().find(|family| family.name == metric)?;
            let values = family.samples.iter().map(|sample| match sample.value {
                MetricValue::Uint(value) => value as f64,
                MetricValue::Float(value) => value,
            });
            Some(values.sum::<f64>())
        };
        tokio::spawn(timeout(Duration::from_secs(5), ask))
    });
    let asking: Vec<_> = asking.collect();
    let mut values = Vec::new();
    for ask in asking {
        values.push(ask.await.unwrap().ok().flatten());
    }
    values
}

/// One that nobody listens on, below those that the system hands out: a client that dials it while etcd is dead must not meet
/// itself there.
fn free_address(random: &mut Random) -> SocketAddr {
    loop {
        let port = 20_000 + random.below(12_000) as u16;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if std::net::TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// What the providers write to.
const EXECUTIONS: &str = "executions";
/// Members that die, by the numbers below this one: no virtual member has these.
const GHOSTS: u16 = 5;
const GHOST: u16 = u16::MAX - 100;
/// Names that each caller calls.
const NAMES_EACH: usize = 10;
/// Sidecars that start at once.
const STARTS_AT_ONCE: usize = 8;
/// How often something is looked at that is waited for.
const POLL: Duration = Duration::from_millis(500);
/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(300);
/// A call that begins so soon after its sidecar was touched may still meet what is left of it.
const GRACE: Duration = Duration::from_secs(1);
