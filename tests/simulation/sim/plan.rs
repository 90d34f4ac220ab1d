//! A seed in; a world's machines, calls, weather and blows out, all chosen before it begins.

use std::net::{IpAddr, Ipv4Addr};

use capd::daemon::Rule;

use super::dice::Dice;
use super::disk::Habits;
use super::network::{Spell, SpellKind, Weather};

/// What a world is asked to leave out, so that the oracle has something to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// The ledger takes every call for a new one.
    Duplicates,
    /// The disk acknowledges that a call was begun, and does not keep it.
    Executing,
    /// An ERROR counts as a refusal whatever copy of the call is unanswered.
    Refusals,
    /// A journal that was wiped has the id that it had.
    Journals,
    /// A lost link counts as the proof that its executor has not accepted a call, which then moves.
    Proof,
    /// A call that is released has no tombstone.
    Tombstones,
}

impl Break {
    /// The rule that sidecars leave out for it.
    pub fn rule(self) -> Option<Rule> {
        match self {
            Self::Duplicates => Some(Rule::Ledger),
            Self::Refusals => Some(Rule::Doubt),
            Self::Proof => Some(Rule::Proof),
            Self::Tombstones => Some(Rule::Tombstone),
            Self::Executing | Self::Journals => None,
        }
    }
}

/// A world before it begins. **Units:** virtual milliseconds from its start.
#[derive(Clone, Debug)]
pub struct Plan {
    pub machines: usize,
    /// The machines whose agents serve.
    pub executors: Vec<usize>,
    pub calls: Vec<Call>,
    pub blows: Vec<Blow>,
    pub weather: Weather,
    pub disks: Vec<Habits>,
    pub manners: Manners,
    /// How often a sidecar crashes in the first polls after its start.
    pub dies_young_permille: u64,
    /// Whether envelopes between peers are signed.
    pub signs: bool,
    /// The pause before a caller's sidecar tries again, if the capabilities name one.
    pub retry_ms: Option<u64>,
    /// Whether agents say what they were built against, and providers declare schemas that change and keep to it.
    pub requires: bool,
    /// Whether providers remember the ids of calls that are not idempotent, all of them in one store.
    pub remembers: bool,
    /// How often a peer may call, if that is bounded.
    pub call_rate: Option<&'static str>,
    /// Calls of one capability that may run at once, if they are few.
    pub calls_per_capability_max: Option<usize>,
    /// Silence after which a sidecar gives a link up by itself; a third of it makes it send a sign of life.
    pub idle_ms: u64,
    /// From here on nothing goes wrong.
    pub calm_from_ms: u64,
    pub breaks: Option<Break>,
}

/// One call of an agent's.
#[derive(Clone, Debug)]
pub struct Call {
    pub number: u64,
    pub caller: usize,
    pub at_ms: u64,
    pub is_idempotent: bool,
    pub timeout_ms: u64,
    pub ttl_ms: u64,
    pub cancel_after_ms: Option<u64>,
    /// The agent drops its link so long after it has asked.
    pub hang_up_after_ms: Option<u64>,
    /// How often it asks again once it has the result.
    pub repeats: u64,
    /// What crashes so many polls after the call was made.
    pub crash: Option<(Victim, u64)>,
}

/// A process that crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// A machine's sidecar.
    Sidecar(usize),
    /// The agent that serves beside it.
    Provider(usize),
}

/// Something that happens to a machine.
#[derive(Clone, Debug)]
pub struct Blow {
    pub at_ms: u64,
    pub machine: usize,
    pub kind: BlowKind,
}

#[derive(Clone, Copy, Debug)]
pub enum BlowKind {
    SidecarDies,
    /// It is shut down in good order, and started again.
    SidecarLeaves,
    ProviderDies,
    /// The sidecar dies, and its journal is gone when it starts again.
    JournalWiped,
    ClockJumps(i64),
}

/// How providers serve, in permille of executions; the rest answer soon.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    pub slow_permille: u64,
    pub silent_permille: u64,
    pub failing_permille: u64,
    /// Whether a second agent serves beside each executor, which answers twice and unasked.
    pub rude: bool,
}

/// Where a machine is on the network.
pub fn ip(machine: usize) -> IpAddr {
    let last = u8::try_from(machine + 1).expect("a world has few machines");
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

impl Plan {
    /// The world of a seed.
    pub fn of(seed: u64, breaks: Option<Break>) -> Self {
        if breaks == Some(Break::Tombstones) {
            return Self::held_up(seed, breaks);
        }
        let dice = Dice::new(seed);
        // Two machines have most of the faults; more are slower to run, and rarely show others.
        let machines = dice.pick(&[2, 2, 2, 2, 3, 3, 4]);
        let mut executors = vec![machines - 1];
        if machines > 2 && dice.chance(500) {
            executors.insert(0, machines - 2);
        }
        let calm_from_ms = dice.within(2_500..5_000);
        let mut plan = Self {
            machines,
            executors,
            calls: Vec::new(),
            blows: Vec::new(),
            weather: weather(&dice.fork(), machines, calm_from_ms),
            disks: Vec::new(),
            manners: manners(&dice),
            dies_young_permille: dice.pick(&[0, 0, 200]),
            signs: dice.chance(333),
            retry_ms: dice.chance(700).then(|| dice.within(20..400)),
            requires: false,
            remembers: false,
            call_rate: None,
            calls_per_capability_max: None,
            idle_ms: IDLE_MS,
            calm_from_ms,
            breaks,
        };
        plan.disks = (0..machines).map(|_| habits(&dice.fork(), calm_from_ms, breaks)).collect();
        plan.calls = plan.some_calls(&dice.fork());
        plan.blows = plan.some_blows(&dice.fork());
        plan.requires = dice.chance(400);
        plan.call_rate = dice.chance(250).then(|| dice.pick(&["2/1s burst 1", "5/1s burst 3"]));
        plan.calls_per_capability_max = dice.chance(250).then(|| dice.pick(&[1, 2]));
        plan
    }

    /// A world in which the caller's sidecar crashes while copies are on their way. They arrive when their executor, too busy
    /// to take another copy, has released the calls, and a second executor has run them.
    pub fn held_up(seed: u64, breaks: Option<Break>) -> Self {
        let mut plan = Self::quiet(false);
        (plan.machines, plan.executors) = (3, vec![1, 2]);
        plan.disks.push(plan.disks[0].clone());
        (plan.calm_from_ms, plan.breaks) = (4_000, breaks);
        plan.weather.calm_from_ms = plan.calm_from_ms;
        let machine = 1 + usize::from(seed.is_multiple_of(2));
        // The copies leave when their executor has answered a sign of life.
        let kind = SpellKind::Slow(900);
        plan.weather.spells = vec![Spell { from_ms: 307, to_ms: 320, machine: ip(machine), kind }];
        plan.blows = vec![Blow { at_ms: 308 + seed / 2 % 5, machine: 0, kind: BlowKind::SidecarDies }];
        plan.manners.slow_permille = 1_000;
        plan.calls_per_capability_max = Some(1);
        let first = Call { timeout_ms: 8_000, ..plan.calls.remove(0) };
        plan.calls = (0..8).map(|number| Call { number, ..first.clone() }).collect();
        plan.calls.push(Call { number: 100, caller: machine, at_ms: 290, ..first });
        plan
    }

    /// A world of one call and no faults but those that a test adds.
    pub fn quiet(is_idempotent: bool) -> Self {
        let call = Call {
            number: 0,
            caller: 0,
            at_ms: 300,
            is_idempotent,
            timeout_ms: 2_000,
            ttl_ms: 600_000,
            cancel_after_ms: None,
            hang_up_after_ms: None,
            repeats: 1,
            crash: None,
        };
        let disk = Habits { commit_ms: (2, 2), ..Habits::default() };
        Self {
            machines: 2,
            executors: vec![1],
            calls: vec![call],
            blows: Vec::new(),
            weather: Weather { latency_ms: (3, 3), ..Weather::default() },
            disks: vec![disk.clone(), disk],
            manners: Manners { slow_permille: 0, silent_permille: 0, failing_permille: 0, rude: false },
            dies_young_permille: 0,
            signs: true,
            retry_ms: Some(50),
            requires: false,
            remembers: false,
            call_rate: None,
            calls_per_capability_max: None,
            idle_ms: IDLE_MS,
            calm_from_ms: 0,
            breaks: None,
        }
    }

    fn some_calls(&self, dice: &Dice) -> Vec<Call> {
        let count = dice.within(8..25);
        let crashes_permille = dice.pick(&[0, 100, 300]);
        let call = |number| {
            let caller = self.some_caller(dice);
            let timeout_ms = dice.within(200..2_500);
            let is_brief = dice.chance(150);
            let crash = dice.chance(crashes_permille).then(|| {
                let executor = dice.pick(&self.executors);
                match dice.within(0..10) {
                    0..3 => (Victim::Sidecar(caller), dice.within(0..300)),
                    3..5 => (Victim::Provider(executor), dice.within(0..60)),
                    _ => (Victim::Sidecar(executor), dice.within(0..300)),
                }
            });
            Call {
                number,
                caller,
                at_ms: dice.within(100..self.calm_from_ms),
                is_idempotent: dice.chance(300),
                timeout_ms,
                ttl_ms: if is_brief { timeout_ms + dice.within(100..3_000) } else { 600_000 },
                cancel_after_ms: dice.chance(80).then(|| dice.within(0..400)),
                hang_up_after_ms: dice.chance(80).then(|| dice.within(0..300)),
                repeats: dice.pick(&[0, 0, 1, 2]),
                crash,
            }
        };
        (0..count).map(call).collect()
    }

    /// Mostly an agent beside another sidecar than the executor's; now and then one that calls what is served at home.
    fn some_caller(&self, dice: &Dice) -> usize {
        let last = if dice.chance(100) { self.machines } else { self.executors[0] };
        usize::try_from(dice.within(0..last as u64)).expect("a small number")
    }

    fn some_blows(&self, dice: &Dice) -> Vec<Blow> {
        let mut blows = Vec::new();
        let mut some = |count: u64, machines: &[usize], kind: &dyn Fn() -> BlowKind| {
            for _ in 0..count {
                let (at_ms, machine) = (dice.within(200..self.calm_from_ms), dice.pick(machines));
                blows.push(Blow { at_ms, machine, kind: kind() });
            }
        };
        let all: Vec<_> = (0..self.machines).collect();
        some(dice.pick(&[0, 0, 1, 2]), &all, &|| BlowKind::SidecarDies);
        some(dice.pick(&[0, 0, 0, 1]), &all, &|| BlowKind::SidecarLeaves);
        some(dice.pick(&[0, 0, 1, 3]), &self.executors, &|| BlowKind::ProviderDies);
        let jump = || {
            BlowKind::ClockJumps(if dice.chance(500) {
                -i64::try_from(dice.within(1..3_000)).expect("a small number")
            } else {
                i64::try_from(dice.within(1..6_000)).expect("a small number")
            })
        };
        some(dice.pick(&[0, 0, 1, 3]), &all, &jump);
        // Whoever calls and forgets whom a call was given to may give it away again, which no rule prevents.
        let is_caller = |machine: &usize| self.calls.iter().any(|call| call.caller == *machine);
        let only_executors: Vec<_> =
            self.executors.iter().copied().filter(|machine| !is_caller(machine)).collect();
        let wipes = if self.breaks == Some(Break::Journals) { 2 } else { dice.pick(&[0, 0, 0, 0, 0, 1]) };
        if !only_executors.is_empty() {
            some(wipes, &only_executors, &|| BlowKind::JournalWiped);
        }
        blows.sort_by_key(|blow| blow.at_ms);
        blows
    }
}

fn weather(dice: &Dice, machines: usize, calm_from_ms: u64) -> Weather {
    let spell = |_| {
        let from_ms = dice.within(200..calm_from_ms);
        let kind = match dice.within(0..4) {
            0 => SpellKind::Mute,
            1 => SpellKind::Slow(dice.within(50..600)),
            _ => SpellKind::CutOff,
        };
        let to_ms = (from_ms + dice.within(50..1_500)).min(calm_from_ms);
        let machine = usize::try_from(dice.within(0..machines as u64)).expect("a small number");
        Spell { from_ms, to_ms, machine: ip(machine), kind }
    };
    let shortest_ms = dice.within(1..10);
    Weather {
        lost_permille: dice.pick(&[0, 10, 50, 150]),
        doubled_permille: dice.pick(&[0, 20, 100]),
        latency_ms: (shortest_ms, shortest_ms + dice.pick(&[0, 3, 40])),
        spells: (0..dice.pick(&[0, 0, 1, 2])).map(spell).collect(),
        calm_from_ms,
    }
}

fn manners(dice: &Dice) -> Manners {
    Manners {
        slow_permille: dice.pick(&[0, 100, 400]),
        silent_permille: dice.pick(&[0, 0, 100]),
        failing_permille: dice.pick(&[0, 100]),
        rude: dice.chance(250),
    }
}

fn habits(dice: &Dice, calm_from_ms: u64, breaks: Option<Break>) -> Habits {
    let time = |longest_ms: u64| {
        let from_ms = dice.within(200..calm_from_ms);
        (from_ms, (from_ms + dice.within(50..longest_ms)).min(calm_from_ms))
    };
    let shortest_ms = dice.within(0..4);
    Habits {
        commit_ms: (shortest_ms, shortest_ms + dice.pick(&[0, 2, 20])),
        slow: if dice.chance(150) { vec![time(1_000)] } else { Vec::new() }
            .into_iter()
            .map(|(from_ms, to_ms)| (from_ms, to_ms, dice.within(20..500)))
            .collect(),
        full: if dice.chance(150) { vec![time(1_000)] } else { Vec::new() },
        dies_after_commit_permille: dice.pick(&[0, 0, 20, 60]),
        calm_from_ms,
        dies_after_commit: None,
        forgets_begun: breaks == Some(Break::Executing),
    }
}

/// What a sidecar takes a link's silence for its end after, unless a test says otherwise.
const IDLE_MS: u64 = 3_000;
