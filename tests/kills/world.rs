//! A seed and a number of kills in; two sidecars, a provider and callers, with `kill -9` again and again, and what came
//! of every call, out.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::caller::Caller;
use crate::history::{History, Id};
use crate::provider::{self, Provider};
use crate::random::Random;
use crate::signals::{Signal, Signals};
use crate::support::{Setup, Sidecar};

/// What came of one world.
pub struct End {
    pub history: History,
    pub executions: Vec<Id>,
    pub kills: Kills,
}

/// How often what was killed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    /// Sidecars that ran: the callers' and the provider's.
    pub a: u64,
    pub b: u64,
    /// Sidecars that were just starting.
    pub starting: u64,
    /// Times that both sidecars were down at once.
    pub both: u64,
    /// Providers, which are no processes of their own; the others are.
    pub providers: u64,
}

impl Kills {
    /// Processes killed.
    pub const fn processes(&self) -> u64 {
        self.a + self.b + self.starting
    }
}

/// Runs a world until so many kills are done and every call has ended, and every call was asked for again.
pub fn run(seed: u64, kills: u64, transport: Transport) -> End {
    let mut random = Random::new(seed);
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("executions");
    let mut world = World::start(&mut random, &file, transport);
    while world.kills.processes() < kills {
        world.strike(&mut random);
    }
    world.stop_calling.store(true, Ordering::Release);
    for caller in std::mem::take(&mut world.callers) {
        caller.join().expect("a caller ends").ask_all_again();
    }
    world.stop_serving.store(true, Ordering::Release);
    world.provider.take().expect("taken once").join().expect("the provider ends");
    let executions = provider::executions(&file, &world.caller_did);
    let history = std::mem::replace(&mut *lock(&world.history), History::new());
    End { history, executions, kills: world.kills }
}

/// How the sidecars are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Quic,
    Tcp,
}

struct World {
    /// The callers' sidecar and the provider's; neither is there while it is being killed.
    a: Option<Sidecar>,
    b: Option<Sidecar>,
    caller_did: String,
    callers: Vec<JoinHandle<Caller>>,
    provider: Option<JoinHandle<()>>,
    provider_handle: Arc<Mutex<Option<UnixStream>>>,
    history: Arc<Mutex<History>>,
    signals: Arc<Signals>,
    stop_calling: Arc<AtomicBool>,
    stop_serving: Arc<AtomicBool>,
    kills: Kills,
}

/// Which process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    A,
    B,
}

impl World {
    fn start(random: &mut Random, file: &Path, transport: Transport) -> Self {
        let b = setup().start();
        let a = match transport {
            Transport::Quic => setup().peer(&b).start(),
            Transport::Tcp => setup().peer_over_tcp(&b).start(),
        };
        let mut world = Self {
            caller_did: a.did.clone(),
            callers: Vec::new(),
            provider: None,
            provider_handle: Arc::default(),
            history: Arc::new(Mutex::new(History::new())),
            signals: Arc::default(),
            stop_calling: Arc::default(),
            stop_serving: Arc::default(),
            kills: Kills::default(),
            a: None,
            b: None,
        };
        world.provider = Some(world.provide(random, &b, file.to_owned()));
        world.callers = (0..CALLERS).map(|_| world.call(random, &a)).collect();
        (world.a, world.b) = (Some(a), Some(b));
        world
    }

    fn provide(&self, random: &mut Random, b: &Sidecar, file: PathBuf) -> JoinHandle<()> {
        let provider = Provider {
            socket: b.socket.clone(),
            did: b.did.clone(),
            file,
            random: random.fork(),
            history: Arc::clone(&self.history),
            signals: Arc::clone(&self.signals),
            stop: Arc::clone(&self.stop_serving),
            handle: Arc::clone(&self.provider_handle),
        };
        std::thread::spawn(move || provider.run())
    }

    fn call(&self, random: &mut Random, a: &Sidecar) -> JoinHandle<Caller> {
        let caller = Caller {
            socket: a.socket.clone(),
            did: a.did.clone(),
            random: random.fork(),
            history: Arc::clone(&self.history),
            signals: Arc::clone(&self.signals),
            stop: Arc::clone(&self.stop_calling),
            calls: Vec::new(),
            link: None,
        };
        std::thread::spawn(move || caller.run())
    }

    /// Waits for a moment, and kills something in it; whatever was killed runs again when this returns.
    fn strike(&mut self, random: &mut Random) {
        // Mostly calls go well again in between; else it is killed twice in a row.
        if !random.once_in(4) {
            for _ in 0..=random.below(RESULTS_BETWEEN_MAX) {
                self.signals.next(Signal::Heard, SIGNAL_WAIT);
            }
        }
        self.await_moment(random);
        if random.once_in(10) {
            self.kills.providers += 1;
            lock(&self.history).note_process("the provider is killed".to_owned());
            return provider::kill(&self.provider_handle);
        }
        let sides: &[Side] = match random.below(8) {
            0 => &[Side::A, Side::B],
            1 => &[Side::B, Side::A],
            2..=4 => &[Side::A],
            _ => &[Side::B],
        };
        for side in sides {
            self.kill(*side);
            if sides.len() == 2 {
                std::thread::sleep(random.moment(APART_MAX));
            }
        }
        self.kills.both += u64::from(sides.len() == 2);
        if random.once_in(6) {
            std::thread::sleep(random.moment(DOWN_MAX));
        }
        for side in sides {
            // In its handshake, or before it has read its journal.
            while random.once_in(4) {
                self.start_and_kill(*side, random.moment(START_MAX));
            }
            self.restart(*side);
        }
    }

    fn await_moment(&self, random: &mut Random) {
        let signal = match random.below(5) {
            0 => return std::thread::sleep(random.moment(ANYTIME_MAX)),
            1 => Signal::Sent,
            2 => Signal::Invoked,
            3 => Signal::Answered,
            _ => Signal::Heard,
        };
        self.signals.next(signal, SIGNAL_WAIT);
        std::thread::sleep(random.moment(AFTER_MAX));
    }

    fn kill(&mut self, side: Side) {
        match side {
            Side::A => self.kills.a += 1,
            Side::B => self.kills.b += 1,
        }
        self.note(side, "is killed");
        self.sidecar(side).as_mut().expect("it runs between strikes").kill();
    }

    fn start_and_kill(&mut self, side: Side, after: Duration) {
        self.sidecar(side).as_mut().expect("it stays while it is dead").start_and_kill(after);
        self.kills.starting += 1;
        self.note(side, &format!("is killed {after:?} after its start"));
    }

    fn restart(&mut self, side: Side) {
        let dead = self.sidecar(side).take().expect("it stays while it is dead");
        *self.sidecar(side) = Some(dead.restart());
        self.note(side, "runs again");
    }

    fn note(&self, side: Side, what: &str) {
        lock(&self.history).note_process(format!("{side:?} {what}"));
    }

    const fn sidecar(&mut self, side: Side) -> &mut Option<Sidecar> {
        match side {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }
}

fn setup() -> Setup {
    Setup::new()
        .set("log.level", "info")
        // A peer that was killed is to be missed soon, and found again soon.
        .set("timeouts.keep_alive_ms", "250")
        .set("timeouts.idle_ms", "2000")
        .set("timeouts.reconnect_initial_ms", "10")
        .set("timeouts.reconnect_max_ms", "100")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Agents that call at once.
const CALLERS: usize = 4;
/// Longest wait before a kill at any time.
const ANYTIME_MAX: Duration = Duration::from_millis(120);
/// Longest wait after a signal that a kill follows.
const AFTER_MAX: Duration = Duration::from_millis(6);
/// Most results between two strikes.
const RESULTS_BETWEEN_MAX: u64 = 24;
/// Longest wait for a signal.
const SIGNAL_WAIT: Duration = Duration::from_secs(2);
/// Longest time between the kills of both.
const APART_MAX: Duration = Duration::from_millis(20);
/// Longest time that a sidecar stays down.
const DOWN_MAX: Duration = Duration::from_millis(300);
/// Longest life of a sidecar that is killed while it starts.
const START_MAX: Duration = Duration::from_millis(100);
