//! Rounds in alternation, so that whatever slows the machine slows both kinds of calls.

use crate::Args;
use crate::agents::{JOURNALED, Round, UNJOURNALED};
use crate::world::{PROCESSES, World};

/// Rounds of one kind of call with so many in flight.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) rounds: Vec<Round>,
    /// CPU time of each process per call, of all rounds, in microseconds.
    pub(crate) cpu_us: [f64; 4],
}

impl Series {
    pub(crate) fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        let mut values: Vec<_> = self.rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    pub(crate) fn best(&self, of: impl Fn(&Round) -> f64) -> f64 {
        self.rounds.iter().map(of).fold(f64::MIN, f64::max)
    }
}

#[derive(Debug)]
pub(crate) struct Figures {
    /// Many in flight: unjournaled, journaled.
    pub(crate) many: [Series; 2],
    /// One in flight: unjournaled, journaled.
    pub(crate) one: [Series; 2],
}

pub(crate) fn measure(args: &Args) -> Figures {
    let (rounds, many_ms, one_ms) =
        if args.is_test { (1, 50, 50) } else { (args.rounds.unwrap_or(7), 2_000, 1_000) };
    let mut world = World::start();
    let mut calls = 0;
    for capability in [UNJOURNALED, JOURNALED] {
        calls += world.round(capability, IN_FLIGHT, many_ms / 2).calls;
    }
    let many = series(&mut world, rounds, IN_FLIGHT, many_ms);
    let one = series(&mut world, rounds, 1, one_ms);
    calls += many.iter().chain(&one).flat_map(|series| &series.rounds).map(|round| round.calls).sum::<u64>();
    assert_eq!(world.executions(), calls, "each call is executed once");
    Figures { many, one }
}

fn series(world: &mut World, rounds: usize, in_flight: usize, milliseconds: u64) -> [Series; 2] {
    let mut both = [UNJOURNALED, JOURNALED].map(|id| (id, Series { rounds: Vec::new(), cpu_us: [0.0; 4] }));
    for _ in 0..rounds {
        for (id, series) in &mut both {
            let before = world.cpu_us();
            series.rounds.push(world.round(id, in_flight, milliseconds));
            let after = world.cpu_us();
            for (sum, (after, before)) in series.cpu_us.iter_mut().zip(after.iter().zip(before)) {
                *sum += after - before;
            }
        }
    }
    both.map(|(_, mut series)| {
        let calls = series.rounds.iter().map(|round| round.calls).sum::<u64>() as f64;
        series.cpu_us = series.cpu_us.map(|sum| sum / calls);
        series
    })
}

/// Load for a profiler.
pub(crate) fn hold(seconds: u64, only: Option<&str>) {
    let mut world = World::start();
    println!("{}", world.pids());
    let kinds: Vec<_> = [UNJOURNALED, JOURNALED]
        .into_iter()
        .filter(|id| only.is_none_or(|only| id.split(['.', ':']).any(|part| part == only)))
        .collect();
    for _ in 0..seconds {
        for id in &kinds {
            let before = world.cpu_us();
            let round = world.round(id, IN_FLIGHT, 1_000 / kinds.len() as u64);
            let after = world.cpu_us();
            let cpu = PROCESSES
                .iter()
                .enumerate()
                .map(|(at, name)| format!("{name} {:.1}", (after[at] - before[at]) / round.calls as f64));
            let cpu = cpu.collect::<Vec<_>>().join(", ");
            println!(
                "{id}: {:.0} calls/s, p50 {:.0} us; CPU us per call: {cpu}",
                round.calls_per_s(),
                round.p50_us
            );
        }
    }
}

/// Calls in flight where many are.
pub(crate) const IN_FLIGHT: usize = 64;
