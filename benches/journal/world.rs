//! Four processes: sidecar A with the caller, sidecar B with the provider; what they are asked, and their CPU time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use crate::agents::Round;
use crate::support::{Setup, Sidecar};

/// The names of [`World::cpu_us`]'s figures.
pub(crate) const PROCESSES: [&str; 4] = ["caller", "sidecar A", "sidecar B", "provider"];

pub(crate) struct World {
    caller: Agent,
    provider: Agent,
    a: Sidecar,
    b: Sidecar,
    ttl_s: u64,
}

impl World {
    /// `ttl_s` is how long calls are remembered.
    pub(crate) fn start(ttl_s: u64) -> Self {
        let b = sidecar(Setup::new());
        let provider = Agent::start("--provider", &b.socket);
        let a = sidecar(Setup::new().peer(&b));
        let caller = Agent::start("--caller", &a.socket);
        Self { caller, provider, a, b, ttl_s }
    }

    /// One round of calls.
    pub(crate) fn round(&mut self, capability: &str, in_flight: usize, milliseconds: u64) -> Round {
        let words = format!("{capability} {in_flight} {milliseconds} {}", self.ttl_s);
        self.caller.round(&words)
    }

    /// How many calls the provider has executed.
    pub(crate) fn executions(&mut self) -> u64 {
        self.provider.ask("executions").parse().unwrap()
    }

    /// CPU time of each process so far, in microseconds.
    pub(crate) fn cpu_us(&self) -> [f64; 4] {
        [self.caller.child.id(), self.a.pid(), self.b.pid(), self.provider.child.id()].map(cpu_us)
    }

    /// Commits of both journals so far.
    pub(crate) fn commits(&self) -> u64 {
        [&self.a, &self.b].into_iter().map(commits).sum()
    }

    /// The process ids, named, for a profiler.
    pub(crate) fn pids(&self) -> String {
        let pids = [self.caller.child.id(), self.a.pid(), self.b.pid(), self.provider.child.id()];
        PROCESSES.iter().zip(pids).map(|(name, pid)| format!("{name} {pid}")).collect::<Vec<_>>().join(", ")
    }
}

pub(crate) fn sidecar(setup: Setup) -> Sidecar {
    setup
        .set("peer.signatures", "channel")
        .set("log.level", "warn")
        // Rounds of journaled calls add up, and all of them are remembered.
        .set("limits.ledger_entries_max", "20000000")
        .set("limits.ledger_bytes_max", "8589934592")
        .start()
}

/// The machine's busy time from a moment on, to tell what others had of it.
pub(crate) struct Machine {
    begin: Instant,
    busy_us: f64,
    ours_us: f64,
}

impl Machine {
    pub(crate) fn watch(world: &World) -> Self {
        Self { begin: Instant::now(), busy_us: busy_us(), ours_us: ours_us(world) }
    }

    /// The part of all cores' time since then that went to other processes, or was kept by the machine under this one.
    pub(crate) fn others(&self, world: &World) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let others_us = (busy_us() - self.busy_us) - (ours_us(world) - self.ours_us);
        others_us / (self.begin.elapsed().as_secs_f64() * 1e6 * cores)
    }
}

fn ours_us(world: &World) -> f64 {
    world.cpu_us().iter().sum::<f64>() + cpu_us(std::process::id())
}

/// proc_stat(5): what all cores did but idle and wait for the disk, time stolen from a virtual machine included.
fn busy_us() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/stat") else { return f64::NAN };
    let ticks: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .map(|tick| tick.parse().unwrap())
        .collect();
    let busy = ticks.iter().enumerate().filter(|(at, _)| ![3, 4].contains(at) && *at < 8);
    busy.map(|(_, ticks)| ticks).sum::<f64>() * TICK_US
}

/// An agent's process: a line in, a line out. It ends when its standard input does.
pub(crate) struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Agent {
    pub(crate) fn start(role: &str, socket: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(role).arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Self { child, stdin, stdout };
        assert_eq!(agent.line(), "ready", "{role}");
        agent
    }

    /// What it answers to a caller's line.
    pub(crate) fn round(&mut self, line: &str) -> Round {
        Round::parse(&self.ask(line))
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        writeln!(self.stdin.as_mut().expect("open until it is dropped"), "{line}").unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // One that does not end by itself is ended; it may have ended already.
        if std::thread::panicking() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// The number in the journal's mark, which is that of its last commit; none was made where there is no mark.
pub(crate) fn commits(sidecar: &Sidecar) -> u64 {
    let mark = std::fs::read(sidecar.dir.join("state/journal.mark")).unwrap_or_default();
    mark.get(8..16).map_or(0, |number| u64::from_le_bytes(number.try_into().unwrap()))
}

/// User and system time from `/proc`; nothing where there is none.
fn cpu_us(pid: u32) -> f64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return f64::NAN };
    // proc_pid_stat(5): the name in parentheses may hold anything; utime and stime are fields 14 and 15.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> =
        after.split_whitespace().skip(11).take(2).map(|field| field.parse().unwrap()).collect();
    fields.iter().sum::<f64>() * TICK_US
}

/// proc_pid_stat(5): clock ticks of 1/100 s on every Linux that is built as usual.
const TICK_US: f64 = 10_000.0;
