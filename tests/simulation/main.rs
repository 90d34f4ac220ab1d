//! Simulated worlds: the promise of PROTOCOL 8 under every fault at once, from seeds that replay exactly.

mod moves;
mod sim;

use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sim::disk::Habits;
use sim::network::{Spell, SpellKind};
use sim::plan::{Blow, BlowKind, Break, Plan, Victim, ip};
use sim::report::findings;
use sim::world::{self, Outcome};

#[track_caller]
fn assert_sound(seed: u64, outcome: &Outcome) {
    assert!(outcome.verdict.violations.is_empty(), "\n{}", findings(seed, None, outcome));
}

fn run(seed: u64) -> Outcome {
    world::run(&Plan::of(seed, None), seed)
}

/// Runs `work` for each number below `end`, on two threads.
fn for_each(end: u64, work: impl Fn(u64) + Sync) {
    let (work, threads) = (&work, 2);
    thread::scope(|scope| {
        for first in 0..threads {
            scope.spawn(move || (first..end).step_by(2).for_each(work));
        }
    });
}

#[test]
fn a_quiet_world_has_one_execution_and_one_result() {
    for is_idempotent in [false, true] {
        let outcome = world::run(&Plan::quiet(is_idempotent), 1);
        assert_sound(1, &outcome);
        assert_eq!((outcome.verdict.calls, outcome.verdict.executions, outcome.crashes), (1, 1, 0));
    }
}

#[test]
fn a_quiet_world_whose_agents_require_what_is_served_is_as_quiet() {
    for is_idempotent in [false, true] {
        let plan = Plan { requires: true, ..Plan::quiet(is_idempotent) };
        let outcome = world::run(&plan, 1);
        assert_sound(1, &outcome);
        assert_eq!((outcome.verdict.calls, outcome.verdict.executions, outcome.crashes), (1, 1, 0));
        assert_eq!(outcome.trace, world::run(&plan, 1).trace);
    }
}

#[test]
fn a_sidecar_may_crash_at_any_await_point_of_a_proof() {
    let quiet = Plan { requires: true, ..Plan::quiet(true) };
    let polls = world::run(&quiet, 1).polls.sidecars[0];
    for_each(polls, |poll| {
        let mut plan = quiet.clone();
        plan.calls[0].crash = Some((Victim::Sidecar(0), poll));
        let outcome = world::run(&plan, 1);
        assert!(outcome.verdict.violations.is_empty(), "at poll {poll}\n{}", findings(1, None, &outcome));
    });
}

#[test]
fn a_call_that_comes_too_soon_is_refused_and_runs_once_in_its_time() {
    for is_idempotent in [false, true] {
        let mut plan = Plan::quiet(is_idempotent);
        let mut second = plan.calls[0].clone();
        (second.number, second.at_ms) = (1, 900);
        plan.calls.push(second);
        let unbounded = world::run(&plan, 1);
        plan.call_rate = Some("1/3s");
        let outcome = world::run(&plan, 1);
        for outcome in [&unbounded, &outcome] {
            assert_sound(1, outcome);
            assert_eq!((outcome.verdict.calls, outcome.verdict.executions), (2, 2));
        }
        // The refusal is 3005 with more to wait than the call has time: its agent asks again later.
        assert_ne!(outcome.trace, unbounded.trace);
    }
}

#[test]
fn worlds_with_every_fault_keep_the_promise() {
    let audited = AtomicU64::new(0);
    for_each(60, |seed| {
        let outcome = run(seed);
        assert_sound(seed, &outcome);
        audited.fetch_add(outcome.audited, Ordering::Relaxed);
    });
    assert!(audited.into_inner() > 60, "faults are accounted for");
}

/// FLEET I1: what its providers remember may be executed any number of times, and takes effect once.
#[test]
fn calls_that_their_providers_remember_move_and_take_effect_once() {
    let again = AtomicU64::new(0);
    for_each(60, |seed| {
        let outcome = world::run(&Plan { remembers: true, ..Plan::of(seed, None) }, seed);
        assert_sound(seed, &outcome);
        again.fetch_add(outcome.verdict.again, Ordering::Relaxed);
    });
    let again = again.into_inner();
    assert!(again > 20, "{again} were executed again");
}

/// In this world a provider refuses a call for coming too often and then loses its journal, and the agent asks again under the
/// same id.
#[test]
fn a_call_that_was_refused_outlives_the_journal_of_its_provider() {
    let seed = 9_340;
    assert_sound(seed, &run(seed));
}

/// In this world an agent's call waits for a provider, its link breaks, and an agent beside it comes to serve the call just
/// before the copy does that the caller sends over its next link.
#[test]
fn a_copy_of_a_call_that_waits_for_a_provider_is_not_refused_beside_it() {
    let seed = 132_155;
    assert_sound(seed, &run(seed));
}

/// The clock of an agent's machine goes back to a moment at which a call that has expired, and was forgotten, has not expired
/// yet. It is asked for again, and cannot begin for some other reason.
#[test]
fn a_call_that_was_forgotten_before_the_clock_went_back_is_not_called_refused() {
    for seed in [15_548, 20_024, 41_043, 46_358, 106_763, 278_373] {
        assert_sound(seed, &run(seed));
    }
}

#[test]
fn a_seed_plays_the_same_world_again() {
    for seed in 1_000..=1_006 {
        let (once, again) = (run(seed), run(seed));
        assert!(once.traffic.packets > 0);
        assert_eq!((once.trace, once.virtual_ms), (again.trace, again.virtual_ms), "seed {seed}");
    }
    assert_ne!(run(1_000).trace, run(1_001).trace);
}

#[test]
fn another_process_plays_the_same_world() {
    let traces =
        || -> Vec<String> { (1_010..1_014).map(|seed| format!("{:016x}", run(seed).trace)).collect() };
    if std::env::var_os(PRINT_TRACES).is_some() {
        return println!("traces {}", traces().join(" "));
    }
    let this = std::env::current_exe().unwrap();
    let other = Command::new(this)
        .args(["--exact", "another_process_plays_the_same_world", "--nocapture"])
        .env(PRINT_TRACES, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8(other.stdout).unwrap();
    let line = format!("traces {}", traces().join(" "));
    assert!(printed.contains(&line), "expected {line:?} in\n{printed}");
}

/// Crashes `victim` at each of its polls from the call to its end: wherever it was, the promise holds.
fn crash_everywhere(victim: Victim, polls_of: impl Fn(&Outcome) -> u64) {
    for is_idempotent in [false, true] {
        let mut plan = Plan::quiet(is_idempotent);
        let polls = polls_of(&world::run(&plan, 1));
        assert!(polls > 5, "{polls} polls are no call");
        plan.calls[0].crash = Some((victim, 0));
        for_each(polls, |poll| {
            let mut plan = plan.clone();
            plan.calls[0].crash = Some((victim, poll));
            let outcome = world::run(&plan, 1);
            assert!(
                outcome.verdict.violations.is_empty(),
                "{victim:?} at poll {poll}\n{}",
                findings(1, None, &outcome)
            );
        });
    }
}

#[test]
fn the_executors_sidecar_may_crash_at_any_await_point() {
    crash_everywhere(Victim::Sidecar(1), |quiet| quiet.polls.sidecars[1]);
}

#[test]
fn the_callers_sidecar_may_crash_at_any_await_point() {
    crash_everywhere(Victim::Sidecar(0), |quiet| quiet.polls.sidecars[0]);
}

#[test]
fn the_provider_may_crash_at_any_await_point() {
    crash_everywhere(Victim::Provider(1), |quiet| quiet.polls.providers[0]);
}

#[test]
fn either_sidecar_may_crash_with_a_commit_done_and_not_acknowledged() {
    for machine in 0..2 {
        for commit in 1..4 {
            let mut plan = Plan::quiet(false);
            plan.disks[machine].dies_after_commit = Some(commit);
            assert_sound(1, &world::run(&plan, 1));
        }
    }
}

/// A call is cancelled while it is written down whom it goes to, and asked for again; then the row fails, and the peer
/// that may have the call is cut off. Another peer must not get it.
#[test]
fn a_call_asked_for_again_leaves_with_no_row_that_is_not_on_disk() {
    let mut plan = Plan::quiet(false);
    let (made_ms, commit_ms) = (plan.calls[0].at_ms, 300);
    plan.machines = 3;
    plan.executors = vec![1, 2];
    plan.calm_from_ms = 12_000;
    plan.weather.calm_from_ms = plan.calm_from_ms;
    plan.calls[0].cancel_after_ms = Some(20);
    plan.calls[0].timeout_ms = 8_000;
    let full = Habits {
        commit_ms: (commit_ms, commit_ms),
        full: vec![(made_ms, made_ms + commit_ms + 50)],
        ..plan.disks[0].clone()
    };
    plan.disks = vec![full, plan.disks[0].clone(), plan.disks[0].clone()];
    for_each(40, |seed| {
        let mut plan = plan.clone();
        let machine = ip(plan.executors[usize::from(seed % 2 == 0)]);
        let (from_ms, to_ms) = (made_ms + 20, plan.calm_from_ms);
        plan.weather.spells = vec![Spell { from_ms, to_ms, machine, kind: SpellKind::Mute }];
        assert_sound(seed, &world::run(&plan, seed));
    });
}

/// How long a call took, from its agent's asking to its agent's result.
#[track_caller]
fn took_ms(outcome: &Outcome, call: u64) -> u64 {
    let history = outcome.verdict.history_of(Some(call));
    let at_ms = |what: &str| {
        let line = history.lines().find(|line| line.contains(what));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
    };
    match (at_ms("makes the call"), at_ms("its agent sees the result")) {
        (Some(asked_ms), Some(answered_ms)) => answered_ms - asked_ms,
        _ => panic!("call {call} has no result\n{history}"),
    }
}

#[test]
fn a_provider_that_is_cut_off_costs_no_call_more_than_a_second_and_a_half() {
    let mut plan = Plan::quiet(false);
    plan.machines = 3;
    plan.executors = vec![1, 2];
    plan.disks.push(plan.disks[0].clone());
    plan.calm_from_ms = 30_000;
    plan.weather.calm_from_ms = plan.calm_from_ms;
    let first = plan.calls.remove(0);
    plan.calls = (0..15)
        .map(|number| {
            let mut call = first.clone();
            (call.number, call.at_ms, call.timeout_ms) = (number, 1_000 + number * 400, 8_000);
            call.is_idempotent = number % 2 == 0;
            call
        })
        .collect();
    for_each(20, |seed| {
        let mut plan = plan.clone();
        let machine = ip(plan.executors[usize::from(seed % 2 == 0)]);
        let (from_ms, to_ms) = (900, plan.calm_from_ms);
        plan.weather.spells = vec![Spell { from_ms, to_ms, machine, kind: SpellKind::CutOff }];
        let outcome = world::run(&plan, seed);
        assert_sound(seed, &outcome);
        for call in &plan.calls {
            let took_ms = took_ms(&outcome, call.number);
            assert!(took_ms < 1_500, "seed {seed}, call {}: {took_ms} ms", call.number);
        }
    });
}

#[test]
fn a_provider_that_is_back_after_five_crashes_answers_within_a_second_and_a_half() {
    for is_idempotent in [false, true] {
        let mut plan = Plan::quiet(is_idempotent);
        // The lower dials the higher, so each of its lives leaves a link behind of whose end the caller's hears nothing.
        (plan.executors, plan.calls[0].caller) = (vec![0], 1);
        (plan.retry_ms, plan.idle_ms) = (None, 60_000);
        let dies =
            |number: u64| Blow { at_ms: 1_000 + number * 800, machine: 0, kind: BlowKind::SidecarDies };
        plan.blows = (0..5).map(dies).collect();
        // It is back at the latest when it has been away for 800 ms.
        (plan.calls[0].at_ms, plan.calls[0].timeout_ms) = (1_000 + 5 * 800, 8_000);
        for_each(20, |seed| {
            let outcome = world::run(&plan, seed);
            assert_sound(seed, &outcome);
            assert!(outcome.crashes >= 3, "{} crashes", outcome.crashes);
            let took_ms = took_ms(&outcome, 0);
            assert!(took_ms < 1_500, "seed {seed}: {took_ms} ms");
        });
    }
}

/// Worlds in which the one executor's journal is wiped while it has the call, or has just answered it.
fn forgetful(breaks: Option<Break>) -> impl Iterator<Item = (u64, Outcome)> {
    (0..40).map(move |seed| {
        let mut plan = Plan::quiet(false);
        plan.calls[0].repeats = 2;
        plan.breaks = breaks;
        plan.blows = vec![Blow { at_ms: 302 + seed, machine: 1, kind: BlowKind::JournalWiped }];
        (seed, world::run(&plan, seed))
    })
}

#[test]
fn a_journal_that_is_wiped_runs_no_call_again() {
    for (seed, outcome) in forgetful(None) {
        assert_sound(seed, &outcome);
    }
    let is_broken = |(_, outcome): &(u64, Outcome)| !outcome.verdict.violations.is_empty();
    let broken = forgetful(Some(Break::Journals)).filter(is_broken).count();
    assert!(broken > 5, "{broken} worlds show a journal that is wiped and keeps its name");
}

/// Whether the oracle finds something in one of these worlds.
fn is_found(breaks: Break, mut seeds: Range<u64>) -> bool {
    seeds.any(|seed| !world::run(&Plan::of(seed, Some(breaks)), seed).verdict.violations.is_empty())
}

#[test]
fn the_oracle_finds_a_ledger_that_takes_every_call_for_a_new_one() {
    assert!(is_found(Break::Duplicates, FIRST));
}

#[test]
fn the_oracle_finds_a_disk_that_does_not_keep_what_was_begun() {
    assert!(is_found(Break::Executing, FIRST));
}

#[test]
fn the_oracle_finds_an_error_that_passes_for_a_refusal_of_a_call_that_ran() {
    assert!(is_found(Break::Refusals, FIRST));
}

#[test]
fn the_oracle_finds_a_journal_that_is_wiped_and_keeps_its_name() {
    assert!(is_found(Break::Journals, FIRST));
}

/// Seeds of the worlds in which a fault is to be found.
const FIRST: Range<u64> = 0..100;
/// Set for the process that only prints its traces.
const PRINT_TRACES: &str = "CAPD_SIMULATION_PRINT_TRACES";
