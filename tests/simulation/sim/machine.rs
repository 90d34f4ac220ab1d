//! A machine of the world: its clock and its disk, and the sidecar process that runs on it, again after each crash.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use capd::config::{self, Config, Signatures, Transport};
use capd::daemon::Daemon;
use capd::declaration::Declaration;
use capd::net::{Seed, Spawn, Udp, WallClock};
use capd_proto::capability::CapabilityPattern;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use tokio::io::DuplexStream;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::dice::Dice;
use super::disk::Disk;
use super::network::Net;
use super::oracle::Oracle;
use super::plan::{self, Break, Plan};
use super::process::Process;
use super::provider::REQUIRES;
use super::trace::{Happening, Trace};

/// One machine.
pub struct Machine {
    pub index: usize,
    pub wall: WallClock,
    pub disk: Disk,
    seed: Seed,
    config: Config,
    declaration: Option<Declaration>,
    dies_young_permille: u64,
    calm_from_ms: u64,
    world: World,
    running: Mutex<Running>,
    /// Wakes those who wait for the sidecar to be up.
    up: Notify,
    crashes: AtomicU64,
    /// The latest time of day that was set back from.
    latest_wall_ms: AtomicU64,
}

/// What all machines of a world share.
#[derive(Clone)]
pub struct World {
    pub net: Net,
    pub trace: Trace,
    pub oracle: Oracle,
    pub dice: Dice,
    pub panics: Arc<AtomicU64>,
    pub breaks: Option<Break>,
    /// Journals that were wiped.
    pub wiped: Arc<AtomicU64>,
    /// What providers that remember ids share: the first outcome of each.
    pub store: Arc<Mutex<BTreeMap<MessageId, Vec<u8>>>>,
}

impl World {
    /// The first outcome of a call, which is this one if there is none yet. FLEET X9: the effect is the entry.
    pub fn remembered(&self, id: MessageId, outcome: Vec<u8>) -> Vec<u8> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        store.entry(id).or_insert(outcome).clone()
    }
}

#[derive(Default)]
struct Running {
    process: Option<Process>,
    daemon: Option<Arc<Daemon>>,
    is_leaving: bool,
}

impl Machine {
    pub fn new(index: usize, plan: &Plan, world: &World) -> Arc<Self> {
        Arc::new(Self {
            index,
            wall: WallClock::at(WALL_MS),
            disk: Disk::new(plan.disks[index].clone(), world.dice.fork(), world.trace.clone()),
            seed: seed(index),
            config: config(index, plan),
            declaration: plan.requires.then(declaration),
            dies_young_permille: plan.dies_young_permille,
            calm_from_ms: plan.calm_from_ms,
            world: world.clone(),
            running: Mutex::default(),
            up: Notify::new(),
            crashes: AtomicU64::new(0),
            latest_wall_ms: AtomicU64::new(0),
        })
    }

    pub fn crashes(&self) -> u64 {
        self.crashes.load(Ordering::Relaxed)
    }

    /// Sets its clock.
    pub fn jump(&self, by_ms: i64) {
        self.latest_wall_ms.fetch_max(self.wall.now_ms(), Ordering::Relaxed);
        self.wall.jump(by_ms);
    }

    /// The latest time of day that its clock ever showed.
    pub fn latest_wall_ms(&self) -> u64 {
        self.latest_wall_ms.load(Ordering::Relaxed).max(self.wall.now_ms())
    }

    /// The sidecar's process, dead or alive.
    pub fn process(&self) -> Option<Process> {
        self.running().process.clone()
    }

    /// Has the sidecar crash after so many more polls.
    pub fn crash_in(&self, polls: u64) {
        if let Some(process) = self.process() {
            process.crash_at(process.polls() + polls);
        }
    }

    pub fn crash(&self) {
        if let Some(process) = self.process() {
            process.kill();
        }
    }

    /// Crashes the sidecar; when it starts again it has a new journal.
    pub fn wipe(&self) {
        self.crash();
        self.world.oracle.tell(None, || format!("the journal of sidecar {} is wiped", self.index));
        self.world.wiped.fetch_add(1, Ordering::Relaxed);
        self.disk.wipe(self.world.breaks == Some(Break::Journals));
    }

    /// Shuts the sidecar down in good order; its process ends with that.
    pub fn leave(&self) {
        let mut running = self.running();
        // Nobody holds the daemon for longer than it takes to open a link.
        let daemon = running.daemon.take().and_then(Arc::into_inner);
        if let (Some(daemon), Some(process)) = (daemon, running.process.clone()) {
            self.world.oracle.tell(None, || format!("sidecar {} is shut down", self.index));
            running.is_leaving = true;
            let ending = process.clone();
            process.spawn(Box::pin(async move {
                daemon.shutdown().await;
                ending.condemn();
            }));
        }
    }

    /// A local link's other end, once the sidecar is up.
    pub async fn dial(&self) -> DuplexStream {
        loop {
            let woken = self.up.notified();
            if let Some(daemon) = self.daemon() {
                let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
                daemon.serve_stream(ours);
                return theirs;
            }
            woken.await;
        }
    }

    /// Runs the sidecar, and again after each crash, for ever.
    pub async fn run(self: Arc<Self>) {
        loop {
            let process = Process::start(&self.world.panics);
            self.running().process = Some(process.clone());
            let is_calm = self.world.trace.now_ms() >= self.calm_from_ms;
            if !is_calm && self.world.dice.chance(self.dies_young_permille) {
                process.crash_at(self.world.dice.within(0..60));
            }
            process.spawn(Box::pin(Arc::clone(&self).boot(process.clone())));
            process.ended().await;
            if !self.running().is_leaving {
                self.crashes.fetch_add(1, Ordering::Relaxed);
            }
            self.end();
            self.world.trace.note(Happening::Crash, &[self.index as u64, process.polls()]);
            self.world
                .oracle
                .tell(None, || format!("sidecar {} ends at its poll {}", self.index, process.polls()));
            sleep(Duration::from_millis(self.world.dice.within(10..800))).await;
        }
    }

    /// Ends the sidecar for good.
    pub fn end(&self) {
        let running = std::mem::take(&mut *self.running());
        if let Some(process) = &running.process {
            process.kill();
        }
    }

    async fn boot(self: Arc<Self>, process: Process) {
        let udp = Udp::of(self.world.net.of(&process));
        let system = process.system(&self.wall, self.world.dice.u64(), udp);
        let disk = self.disk.mount(&process);
        match Daemon::start_on(system, self.config.clone(), &self.seed, self.declaration.as_ref(), &disk)
            .await
        {
            Ok(daemon) => {
                if let Some(rule) = self.world.breaks.and_then(Break::rule) {
                    daemon.leave_out(rule);
                }
                self.running().daemon = Some(Arc::new(daemon));
                self.world.oracle.tell(None, || format!("sidecar {} is up", self.index));
                self.up.notify_waiters();
            }
            // It says so, and its owner starts it again.
            Err(error) if self.disk.is_full() => {
                self.world.oracle.tell(None, || format!("sidecar {} does not start: {error}", self.index));
                process.condemn();
            }
            Err(error) => {
                self.world.oracle.violates(format!("sidecar {} does not start: {error}", self.index));
            }
        }
    }

    fn daemon(&self) -> Option<Arc<Daemon>> {
        let running = self.running();
        let is_alive = running.process.as_ref().is_some_and(Process::is_alive);
        running.daemon.clone().filter(|_| is_alive)
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seed(index: usize) -> Seed {
    let mut bytes = [0x5e; 32];
    bytes[0] = u8::try_from(index).expect("a world has few machines");
    Seed::new(bytes)
}

/// The DID of a machine's sidecar: the same in every world.
pub fn did(index: usize) -> &'static Did {
    static DIDS: OnceLock<Vec<Did>> = OnceLock::new();
    &DIDS.get_or_init(|| (0..MACHINES_MAX).map(|index| seed(index).identity().did().clone()).collect())[index]
}

fn config(index: usize, plan: &Plan) -> Config {
    static BASE: OnceLock<Config> = OnceLock::new();
    let base = BASE.get_or_init(|| {
        let environment = [("HOME".to_owned(), "/nowhere".to_owned())];
        let flags = [("allow".to_owned(), "*=*".to_owned())];
        Config::layer(None, &environment, &flags).expect("the defaults and a grant are a configuration")
    });
    let mut config = base.clone();
    config.listen.quic = Some((plan::ip(index), PORT).into());
    config.listen.unix = None;
    config.peer.signatures = if plan.signs { Signatures::Always } else { Signatures::Channel };
    config.peers = (0..plan.machines)
        .filter(|other| *other != index)
        .map(|other| config::Peer {
            name: None,
            did: did(other).to_string(),
            // The lower dials the higher, so that there is one link between two.
            addresses: if index < other { vec![address(other)] } else { Vec::new() },
            serves: vec![CapabilityPattern::Any],
        })
        .collect();
    config.limits.call_rate_per_peer = plan.call_rate.map(|rate| rate.parse().expect("a constant rate"));
    if let Some(calls_max) = plan.calls_per_capability_max {
        config.limits.calls_in_flight_per_capability_max = calls_max;
    }
    config.timeouts.handshake_ms = 2_000;
    config.timeouts.drain_ms = 500;
    config.timeouts.idle_ms = plan.idle_ms;
    config.timeouts.keep_alive_ms = plan.idle_ms / 3;
    config.timeouts.dead_ms = 1_500;
    config.timeouts.reconnect_initial_ms = 50;
    config.timeouts.reconnect_max_ms = 800;
    config
}

fn declaration() -> Declaration {
    // JSON is YAML.
    Declaration::parse(REQUIRES, Path::new("capabilities.yaml")).expect("a constant declaration")
}

fn address(machine: usize) -> config::Address {
    config::Address {
        transport: Transport::Quic,
        host: plan::ip(machine).to_string(),
        port: PORT,
        is_shared: false,
    }
}

/// The time of day when a world begins.
const WALL_MS: u64 = 1_800_000_000_000;
/// Where sidecars listen.
const PORT: u16 = 4_433;
/// What a local link's pipe holds.
const PIPE_BYTES: usize = 16 * 1024;
/// Machines of the largest world.
const MACHINES_MAX: usize = 4;
