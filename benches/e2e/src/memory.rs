//! Two sidecars in; what a link of an agent, a call in flight and a remembered call take of their memory, out.
//!
//! All is told from the resident memory of the processes before and after very many of the same, so that what an
//! allocator keeps and what a table has in reserve count with it. Links of peers are not here: ten thousand of them are
//! measured by `cargo bench --bench hostile -- --only idle`.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::load::Load;
use crate::subject::{A_FOLDER, B_FOLDER, Programs, SIDECAR_A, SIDECAR_B, Subject};
use crate::world::{Process, World};

/// What one more of something takes.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    /// How many of what there were.
    pub(crate) what: String,
    /// Of each sidecar. **Units:** bytes.
    pub(crate) resident: [f64; 2],
    /// Of each sidecar's folder, its journal above all. **Units:** bytes.
    pub(crate) stored: [f64; 2],
}

/// How much of each there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    links: usize,
    in_flight: usize,
    remembered: u64,
}

impl Sizes {
    pub(crate) const WHOLE: Self = Self { links: 1_000, in_flight: 1_000, remembered: 50_000 };
    /// What a trial has time for.
    pub(crate) const TRIAL: Self = Self { links: 20, in_flight: 50, remembered: 1_000 };
}

/// Measures each of them with sidecars that have just started. `many` is a round of calls to be remembered.
pub(crate) fn measure(programs: &Programs, sizes: Sizes, many: Load) -> Vec<Cost> {
    vec![
        links(programs, sizes.links),
        in_flight(programs, sizes.in_flight, many),
        remembered(programs, Subject::Channel, sizes.remembered, many),
        remembered(programs, Subject::Journaled, sizes.remembered, many),
    ]
}

fn links(programs: &Programs, links: usize) -> Cost {
    let world = Subject::Channel.start(programs);
    let before = Taken::by(&world);
    let socket = world.socket.as_ref().expect("there are sidecars");
    let _agents = Process::role("agents", &[&"agent-idle", socket, &links.to_string()]);
    Taken::by(&world).since(
        &before,
        links as f64,
        format!("{links} idle links of agents, all at {SIDECAR_A}"),
    )
}

fn in_flight(programs: &Programs, calls: usize, many: Load) -> Cost {
    let mut world = Subject::Held.start(programs);
    let provider = world.processes.len() - 1;
    let before = Taken::by(&world);
    world.processes[provider].ask("hold");
    let load = Load { in_flight: calls, ms: 1, ..many };
    world.processes[0].begin(&load);
    let deadline = Instant::now() + PATIENCE;
    let all = calls.to_string();
    while world.processes[provider].ask("count") != all {
        assert!(Instant::now() < deadline, "not all calls reach their provider");
        std::thread::sleep(TICK);
    }
    let held = Taken::by(&world);
    world.processes[provider].ask("release");
    world.processes[0].end(&load);
    held.since(&before, calls as f64, format!("{calls} calls in flight"))
}

fn remembered(programs: &Programs, subject: Subject, least: u64, many: Load) -> Cost {
    let mut world = subject.start(programs);
    // Few go beyond `least`: results are kept up to a bound.
    let some = Load { ms: many.ms / PARTS, ..many };
    // What calls take while they are in flight is there already when it is looked first.
    world.round(&some);
    let before = Taken::by(&world);
    let mut calls = 0;
    while calls < least {
        calls += world.round(&some).all;
    }
    Taken::by(&world).since(&before, calls as f64, format!("{calls} remembered calls: {}", subject.title()))
}

/// What two sidecars take. **Units:** bytes.
pub(crate) struct Taken {
    pub(crate) resident: [f64; 2],
    pub(crate) stored: [f64; 2],
}

impl Taken {
    pub(crate) fn by(world: &World) -> Self {
        let resident = world.resident_bytes();
        let of = |name| world.processes.iter().position(|process| process.name == name);
        Self {
            resident: [SIDECAR_A, SIDECAR_B].map(|name| resident[of(name).expect("there are sidecars")]),
            stored: [A_FOLDER, B_FOLDER].map(|folder| stored(&world.files.path().join(folder))),
        }
    }

    fn since(&self, before: &Self, count: f64, what: String) -> Cost {
        let each = |of: fn(&Self) -> [f64; 2]| [0, 1].map(|at| (of(self)[at] - of(before)[at]) / count);
        Cost { what, resident: each(|taken| taken.resident), stored: each(|taken| taken.stored) }
    }
}

/// The length of all files in a folder and below.
fn stored(folder: &Path) -> f64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    // A file may go while it is looked at.
    let length = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(of) if of.is_dir() => stored(&entry.path()),
        Ok(of) => of.len() as f64,
        Err(_) => 0.0,
    };
    entries.map(length).sum()
}

/// Rounds of calls to be remembered, in the time of one.
const PARTS: u64 = 4;
/// Longest wait for calls to be in flight; shorter than what a call may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked.
const TICK: Duration = Duration::from_millis(20);
