//! Rounds in alternation, so that whatever slows the machine slows all subjects, and the disk between them, in; figures out.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Args;
use crate::agents::TTL_S;
use crate::disk::Disk;
use crate::fleet;
use crate::fronts::{self, Fronts};
use crate::large::{self, Large};
use crate::load::{Load, Round};
use crate::memory::{self, Cost};
use crate::payload::REQUEST_BYTES;
use crate::steady;
use crate::subject::{Fleet, Programs, Subject};
use crate::world::{Machine, World, installed};

/// Rounds of one subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// With [`IN_FLIGHT`] calls.
    pub(crate) many: Vec<Round>,
    /// With one.
    pub(crate) one: Vec<Round>,
    /// CPU time of each process per call with many in flight. **Units:** microseconds.
    pub(crate) cpu_us: Vec<(&'static str, f64)>,
}

/// Everything that is measured. What was not is not there.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) series: Vec<(Subject, Series)>,
    /// Calls that are due at half the rate of [`Series::many`], in the order of `series`.
    pub(crate) half: Vec<(Subject, Vec<Round>)>,
    /// capd in channel mode, by bytes of the params.
    pub(crate) sizes: Vec<(usize, Vec<Round>)>,
    /// capd in channel mode with little and with much registered, in the same rounds.
    pub(crate) fleet: Option<[Series; 2]>,
    /// quinn alone and capd in channel mode with much in each call.
    pub(crate) large: Option<[Large; 3]>,
    /// What one more of something takes of the sidecars' memory.
    pub(crate) memory: Vec<Cost>,
    /// What speaks HTTP.
    pub(crate) fronts: Option<Fronts>,
    /// One commit of one change, between the rounds with one in flight. **Units:** microseconds.
    pub(crate) commits_us: Vec<f64>,
    /// The part of all cores' time that went to anything but the subjects of the table, while they were measured.
    pub(crate) others: Option<f64>,
    /// Rounds of each, and the length of one with many in flight.
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// What the second of [`Figures::fleet`] has.
    pub(crate) registered: Fleet,
    /// Whether there is a broker to measure.
    pub(crate) has_nats: bool,
}

impl Figures {
    /// Whether there is anything but [`Figures::fronts`].
    pub(crate) fn has_more_than_fronts(&self) -> bool {
        !(self.series.is_empty() && self.memory.is_empty()) || self.fleet.is_some() || self.large.is_some()
    }

    /// The series of a subject, if it was measured.
    pub(crate) fn of(&self, subject: Subject) -> Option<&Series> {
        self.series.iter().find(|(of, _)| *of == subject).map(|(_, series)| series)
    }
}

/// Everything that runs.
struct Run {
    rounds: usize,
    ms: u64,
    programs: Programs,
    worlds: Vec<(Subject, World)>,
}

/// Measures what `args` ask for.
pub(crate) fn measure(args: &Args) -> Figures {
    let mut run = Run::prepare(args);
    let (many, one) = (run.many(), run.one());
    let mut figures = Figures {
        rounds: run.rounds,
        seconds: run.ms as f64 / 1_000.0,
        registered: run.programs.fleet,
        has_nats: run.programs.nats_server.is_some(),
        ..Figures::default()
    };
    if !run.worlds.is_empty() {
        let (machine, ours_us) = (Machine::watch(), run.ours_us());
        run.table(&mut figures);
        figures.others = Some(machine.others(run.ours_us() - ours_us));
        run.half_load(&mut figures);
        run.sizes(&mut figures);
        // They would only be in the way from here on.
        run.worlds.clear();
    }
    let is_whole = args.has_no_part() && args.only.is_empty();
    if args.fleet || is_whole {
        figures.fleet = Some(fleet::measure(&run.programs, run.rounds, &many, &one));
    }
    if args.large || is_whole {
        figures.large = Some(large::measure(&run.programs, run.rounds, one));
    }
    if args.memory || is_whole {
        let sizes = if args.test { memory::Sizes::TRIAL } else { memory::Sizes::WHOLE };
        figures.memory = memory::measure(&run.programs, sizes, many);
    }
    let fronts: Vec<_> =
        Subject::FRONTS.into_iter().filter(|subject| args.wants(*subject, args.http)).collect();
    if !fronts.is_empty() {
        figures.fronts = Some(fronts::measure(&run.programs, &fronts, run.rounds, &many, &one));
    }
    figures
}

/// Watches what two sidecars hold for so many minutes, in a trial so many rounds.
pub(crate) fn steady(args: &Args, minutes: usize) {
    let programs = Programs { ttl_s: STEADY_TTL_S, ..programs(args) };
    steady::measure(&programs, minutes, if args.test { TEST_MS } else { MINUTE_MS });
}

fn programs(args: &Args) -> Programs {
    // Sidecars run in folders of their own.
    let from_here = |path: &PathBuf| std::path::absolute(path).expect("the folder is there");
    let capd = args.capd.as_ref().map_or_else(built, from_here);
    let nats_server = args.nats_server.as_ref().map(from_here).or_else(|| installed("nats-server"));
    let fleet = if args.test { Fleet::TRIAL } else { Fleet::WHOLE };
    let fronts = fronts::Programs::find(args.dapr.as_ref().map(from_here));
    Programs { capd, nats_server, fronts, is_placed: args.hosts, fleet, ttl_s: TTL_S }
}

impl Args {
    const fn has_no_part(&self) -> bool {
        !(self.fleet || self.large || self.memory || self.http)
    }

    /// Whether a subject is asked for by its name, by the part it belongs to, or because nothing is.
    fn wants(&self, subject: Subject, is_its_part: bool) -> bool {
        if self.only.is_empty() {
            return is_its_part || self.has_no_part();
        }
        self.only.iter().any(|name| subject.name().starts_with(name.as_str()))
    }
}

impl Run {
    fn prepare(args: &Args) -> Self {
        let programs = programs(args);
        let is_wanted = |subject: &Subject| {
            args.wants(*subject, false) && (*subject != Subject::Nats || programs.nats_server.is_some())
        };
        let subjects = Subject::TABLE.into_iter().filter(is_wanted);
        let worlds = subjects.map(|subject| (subject, subject.start(&programs))).collect();
        let (rounds, seconds) = if args.test { (1, TEST_SECONDS) } else { (args.rounds, args.seconds) };
        Self { rounds, ms: (seconds * 1_000.0) as u64, programs, worlds }
    }

    fn world(&mut self, subject: Subject) -> Option<&mut World> {
        self.worlds.iter_mut().find(|(of, _)| *of == subject).map(|(_, world)| world)
    }

    fn ours_us(&self) -> f64 {
        self.worlds.iter().flat_map(|(_, world)| world.cpu_us()).sum()
    }

    const fn many(&self) -> Load {
        Load { bytes: REQUEST_BYTES, in_flight: IN_FLIGHT, rate: None, ms: self.ms }
    }

    const fn one(&self) -> Load {
        Load { in_flight: 1, ms: self.ms / 2, ..self.many() }
    }

    fn table(&mut self, figures: &mut Figures) {
        let (many, one) = (self.many(), self.one());
        for (_, world) in &mut self.worlds {
            world.round(&many);
        }
        let mut disk = Disk::new();
        let mut all = vec![Series::default(); self.worlds.len()];
        for number in 1..=self.rounds {
            for ((subject, world), series) in self.worlds.iter_mut().zip(&mut all) {
                series.add_many(world, &many);
                let last = &series.many[number - 1];
                println!("round {number}, {}: {:.0} calls/s", subject.name(), last.calls_per_s());
            }
            for ((subject, world), series) in self.worlds.iter_mut().zip(&mut all) {
                series.one.push(world.round(&one));
                if *subject == Subject::Journaled {
                    figures.commits_us.push(disk.commit_us(COMMITS, APART));
                }
            }
        }
        all.iter_mut().for_each(Series::per_call);
        figures.series = self.worlds.iter().map(|(subject, _)| *subject).zip(all).collect();
    }

    fn half_load(&mut self, figures: &mut Figures) {
        let many = self.many();
        let mut worlds: Vec<_> =
            self.worlds.iter_mut().filter(|(subject, _)| subject.calls_when_due()).collect();
        let loads: Vec<_> = worlds
            .iter()
            .map(|(subject, _)| {
                let peak = median(&figures.of(*subject).expect("it has a row").many, Round::calls_per_s);
                // In a trial on a busy machine a round may end before any call does.
                Load { rate: Some((peak / 2.0).max(1.0)), in_flight: HALF_IN_FLIGHT_MAX, ..many }
            })
            .collect();
        figures.half = worlds.iter().map(|(subject, _)| (*subject, Vec::new())).collect();
        for _ in 0..self.rounds {
            for (((subject, world), load), (_, rounds)) in
                worlds.iter_mut().zip(&loads).zip(&mut figures.half)
            {
                let round = world.round(load);
                println!("half load, {}: {:.0} calls/s", subject.name(), round.calls_per_s());
                rounds.push(round);
            }
        }
    }

    fn sizes(&mut self, figures: &mut Figures) {
        if self.world(Subject::Channel).is_none() {
            return;
        }
        figures.sizes = SIZES.map(|bytes| (bytes, Vec::new())).to_vec();
        for _ in 0..self.rounds {
            for (bytes, rounds) in &mut figures.sizes {
                let load = Load { bytes: *bytes, ..self.many() };
                let world = self.world(Subject::Channel).expect("it was looked");
                rounds.push(world.round(&load));
                println!("{bytes} bytes: {:.0} calls/s", rounds[rounds.len() - 1].calls_per_s());
            }
        }
    }
}

impl Series {
    /// A round with many calls in flight.
    pub(crate) fn add_many(&mut self, world: &mut World, load: &Load) {
        let before = world.cpu_us();
        self.many.push(world.round(load));
        let names = world.processes.iter().map(|process| process.name);
        self.cpu_us.resize(before.len(), ("", 0.0));
        for (sum, ((after, before), name)) in
            self.cpu_us.iter_mut().zip(world.cpu_us().iter().zip(before).zip(names))
        {
            *sum = (name, sum.1 + after - before);
        }
    }

    /// Makes of the CPU time of all calls that of one.
    pub(crate) fn per_call(&mut self) {
        let calls: u64 = self.many.iter().map(|round| round.all).sum();
        self.cpu_us.iter_mut().for_each(|(_, us)| *us /= calls as f64);
    }
}

/// The median round's figure.
pub(crate) fn median(rounds: &[Round], of: impl Fn(&Round) -> f64) -> f64 {
    middle(rounds.iter().map(of).collect())
}

/// The value in the middle.
pub(crate) fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The sidecar, built as it is shipped, unless this is a trial.
fn built() -> PathBuf {
    if !cfg!(debug_assertions) {
        let program = Path::new(ROOT).join("deploy/build.sh");
        let build = Command::new(program).stdout(std::io::stderr()).status().unwrap();
        assert!(build.success(), "capd is not built");
        return Path::new(ROOT).join("target/shipped/capd");
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(ROOT).args(["build", "--bin", "capd", "--message-format", "json-render-diagnostics"]);
    let output = cargo.stderr(std::process::Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "capd is not built");
    let lines = String::from_utf8(output.stdout).unwrap();
    let executable = lines.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executable.expect("cargo says where capd is")
}

/// Calls in flight where many are.
pub(crate) const IN_FLIGHT: usize = 64;
/// Calls in flight where much travels.
pub(crate) const LARGE_IN_FLIGHT: usize = 4;
/// Bytes of the params, each twice the one before; the last ones have a stream of their own.
const SIZES: [usize; 9] = [400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400];
/// More than half of the load keeps in flight, unless it is no load that can be borne.
const HALF_IN_FLIGHT_MAX: usize = 512;
/// Commits of which the median counts, and the pause before each: a single call's commits have as much between them.
const COMMITS: usize = 100;
const APART: Duration = Duration::from_micros(300);
const TEST_SECONDS: f64 = 0.2;
/// What is remembered of a call is to be forgotten within the run.
const STEADY_TTL_S: u64 = 120;
const TEST_MS: u64 = 300;
const MINUTE_MS: u64 = 60_000;
/// The project's folder.
pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
