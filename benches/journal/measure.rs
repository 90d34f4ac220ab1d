//! Rounds in alternation, so that whatever slows the machine slows both kinds of calls, and the disk between them.

use std::fmt;
use std::time::Duration;

use crate::Args;
use crate::agents::{JOURNALED, Round, UNJOURNALED};
use crate::disk::Disk;
use crate::world::{Machine, PROCESSES, World};

/// Rounds of one kind of call with so many in flight.
#[derive(Debug, Default)]
pub(crate) struct Series {
    pub(crate) rounds: Vec<Round>,
    /// CPU time of each process per call, in microseconds.
    pub(crate) cpu_us: [f64; 4],
    /// Commits of both sidecars' journals per call.
    pub(crate) commits: f64,
}

impl Series {
    /// The median round's figure.
    pub(crate) fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(of).collect())
    }

    fn calls(&self) -> u64 {
        self.rounds.iter().map(|round| round.calls).sum()
    }

    fn add(&mut self, world: &mut World, capability: &str, in_flight: usize, milliseconds: u64) {
        let (cpu, commits) = (world.cpu_us(), world.commits());
        self.rounds.push(world.round(capability, in_flight, milliseconds));
        for (sum, (after, before)) in self.cpu_us.iter_mut().zip(world.cpu_us().iter().zip(cpu)) {
            *sum += after - before;
        }
        self.commits += (world.commits() - commits) as f64;
    }

    fn append(&mut self, other: &mut Self) {
        self.rounds.append(&mut other.rounds);
        for (sum, more) in self.cpu_us.iter_mut().zip(other.cpu_us) {
            *sum += more;
        }
        self.commits += other.commits;
    }

    fn per_call(mut self) -> Self {
        let calls = self.calls() as f64;
        self.cpu_us = self.cpu_us.map(|sum| sum / calls);
        self.commits /= calls;
        self
    }
}

/// Everything that is measured.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Many in flight: unjournaled, journaled.
    pub(crate) many: [Series; 2],
    /// One in flight: unjournaled, journaled.
    pub(crate) one: [Series; 2],
    /// One commit of one change, between the rounds with one in flight: in a row, and [`APART`]. **Units:** microseconds.
    pub(crate) commit_us: [f64; 2],
    /// The part of all cores' time that went to anything but the four processes and this one.
    pub(crate) others: f64,
}

impl Figures {
    /// What a journaled call takes longer, with one in flight, in commits in a row and in commits apart.
    pub(crate) fn latency_commits(&self) -> [f64; 2] {
        let [unjournaled, journaled] = [0, 1].map(|kind: usize| self.one[kind].median(|round| round.p50_us));
        self.commit_us.map(|commit_us| (journaled - unjournaled) / commit_us)
    }
}

/// One round of each kind, one after the other.
struct Pass {
    many: [Series; 2],
    one: [Series; 2],
    /// Of each kind of commit, the times after both rounds.
    commit_us: [Vec<f64>; 2],
    others: f64,
}

impl Pass {
    fn run(world: &mut World, disk: &mut Disk, [many_ms, one_ms]: [u64; 2], commits: usize) -> Self {
        let machine = Machine::watch(world);
        let (mut many, mut one, mut commit_us) = <([Series; 2], [Series; 2], [Vec<f64>; 2])>::default();
        for (series, capability) in many.iter_mut().zip([UNJOURNALED, JOURNALED]) {
            series.add(world, capability, IN_FLIGHT, many_ms);
        }
        for (series, capability) in one.iter_mut().zip([UNJOURNALED, JOURNALED]) {
            series.add(world, capability, 1, one_ms);
            for (times, pause) in commit_us.iter_mut().zip([Duration::ZERO, APART]) {
                times.push(disk.commit_us(commits, pause));
            }
        }
        Self { many, one, commit_us, others: machine.others(world) }
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [unjournaled, journaled] = [0, 1].map(|kind: usize| self.many[kind].median(Round::calls_per_s));
        let others = self.others * 100.0;
        write!(f, "{unjournaled:.0} and {journaled:.0} calls/s, {others:.0} % of the cores went to others")
    }
}

/// All rounds of the benchmark, or one tiny one of each kind.
pub(crate) fn measure(args: &Args) -> Figures {
    let (rounds, many_ms, one_ms, commits) =
        if args.is_test { (1, 100, 100, 5) } else { (args.rounds.unwrap_or(7), 2_000, 1_000, 200) };
    let mut world = World::start(args.ttl_s.unwrap_or(TTL_S));
    let mut disk = Disk::new();
    let mut calls = 0;
    for capability in [UNJOURNALED, JOURNALED] {
        calls += world.round(capability, IN_FLIGHT, many_ms / 2).calls;
    }
    disk.commit_us(commits, Duration::ZERO);
    let (mut many, mut one, mut commit_us) = <([Series; 2], [Series; 2], [Vec<f64>; 2])>::default();
    let (mut others, mut passes) = (0.0, 0);
    while commit_us[0].len() < 2 * rounds {
        let mut pass = Pass::run(&mut world, &mut disk, [many_ms, one_ms], commits);
        passes += 1;
        calls += pass.many.iter().chain(&pass.one).map(Series::calls).sum::<u64>();
        println!("pass {passes}: {pass}");
        // A pass in which others had the cores or the disk says what they cost, not what a call costs.
        let is_last_resort = args.is_test || passes >= PASSES_PER_ROUND_MAX * rounds;
        if pass.others > OTHERS_MAX && !is_last_resort {
            continue;
        }
        for (all, pass) in many.iter_mut().chain(&mut one).zip(pass.many.iter_mut().chain(&mut pass.one)) {
            all.append(pass);
        }
        for (all, pass) in commit_us.iter_mut().zip(pass.commit_us) {
            all.extend(pass);
        }
        others += pass.others / rounds as f64;
    }
    assert_eq!(world.executions(), calls, "each call is executed once");
    let (many, one) = (many.map(Series::per_call), one.map(Series::per_call));
    let figures = Figures { many, one, commit_us: commit_us.map(median), others };
    assert!(figures.one[1].commits >= 1.0, "a journaled call that is alone has commits of its own");
    figures
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Load for a profiler.
pub(crate) fn hold(seconds: u64, args: &Args) {
    let mut world = World::start(args.ttl_s.unwrap_or(TTL_S));
    let only = args.only.as_deref();
    println!("{}", world.pids());
    let kinds: Vec<_> = [UNJOURNALED, JOURNALED]
        .into_iter()
        .filter(|id| only.is_none_or(|only| id.split(['.', ':']).any(|part| part == only)))
        .collect();
    for _ in 0..seconds {
        for id in &kinds {
            let mut series = Series::default();
            series.add(&mut world, id, IN_FLIGHT, 1_000 / kinds.len() as u64);
            let series = series.per_call();
            let cpu: Vec<_> =
                PROCESSES.iter().zip(series.cpu_us).map(|(name, us)| format!("{name} {us:.1}")).collect();
            println!(
                "{id}: {:.0} calls/s, p50 {:.0} us, p99 {:.0} us, commits per call {:.3}; CPU us per call: {}",
                series.median(Round::calls_per_s),
                series.median(|round| round.p50_us),
                series.median(|round| round.p99_us),
                series.commits,
                cpu.join(", ")
            );
        }
    }
}

/// Calls in flight where many are.
pub(crate) const IN_FLIGHT: usize = 64;
/// The pause before a commit that is measured as a single call meets it: some of it goes by between a call's three
/// commits, while its message travels and nothing else runs.
pub(crate) const APART: Duration = Duration::from_micros(300);
/// A pass is not taken when others had more of the cores than this. The kernel's own work for our disk and sockets,
/// which it books on nobody, is the most part of it.
pub(crate) const OTHERS_MAX: f64 = 0.2;
/// Longer than any run: what is forgotten in one round would be paid for in another.
const TTL_S: u64 = 3_600;
/// Passes tried for each one that is wanted.
const PASSES_PER_ROUND_MAX: usize = 4;
