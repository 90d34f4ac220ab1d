//! Worlds in which a call moves from one executor to another: only on proof, and without a second execution (PROTOCOL 8).

use crate::sim::plan::{Blow, BlowKind, Break, Plan, Victim};
use crate::sim::world::{self, Outcome};
use crate::{assert_sound, for_each, is_found, run};

/// In these worlds, executors in turn refuse a call of which a copy is unanswered. If each of them released it, it could
/// run nowhere, and every copy would be refused until its time has passed.
#[test]
fn a_call_is_released_by_one_executor_only_so_that_another_can_run_it() {
    for seed in [190, 386, 901] {
        assert_sound(seed, &run(seed));
    }
}

/// Two executors, of which one is lost to the caller, and back without its provider, while calls are out.
fn contended(seed: u64) -> Outcome {
    let mut plan = Plan::quiet(false);
    (plan.machines, plan.executors) = (3, vec![1, 2]);
    plan.disks.push(plan.disks[0].clone());
    plan.calm_from_ms = 4_000;
    plan.weather.calm_from_ms = plan.calm_from_ms;
    let first = plan.calls.remove(0);
    plan.calls = (0..6)
        .map(|number| {
            let mut call = first.clone();
            (call.number, call.at_ms, call.timeout_ms) = (number, 300 + number, 8_000);
            call
        })
        .collect();
    let machine = 1 + usize::from(seed.is_multiple_of(2));
    let leaves = Blow { at_ms: 303 + seed % 8, machine, kind: BlowKind::SidecarDies };
    let other = Blow { at_ms: 600 + seed * 7 % 900, machine: 3 - machine, kind: BlowKind::ProviderDies };
    plan.blows = vec![leaves];
    let alone = |nth: u64| Blow { at_ms: 310 + nth * 40, machine, kind: BlowKind::ProviderDies };
    plan.blows.extend((0..20).map(alone));
    plan.blows.push(other);
    plan.blows.sort_by_key(|blow| blow.at_ms);
    world::run(&plan, seed)
}

#[test]
fn a_call_whose_executor_is_back_without_it_moves_and_runs_once() {
    let tombstones: u64 = (0..60)
        .map(|seed| {
            let outcome = contended(seed);
            assert_sound(seed, &outcome);
            outcome.tombstones
        })
        .sum();
    assert!(tombstones > 10, "{tombstones} calls were released");
}

#[test]
fn a_copy_that_arrives_after_its_release_is_refused() {
    let tombstones: u64 = (0..40)
        .map(|seed| {
            let outcome = world::run(&Plan::held_up(seed, None), seed);
            assert_sound(seed, &outcome);
            outcome.tombstones
        })
        .sum();
    assert!(tombstones > 5, "{tombstones} calls were released");
    assert!(is_found(Break::Tombstones, 0..200), "no world shows a release without a tombstone");
}

#[test]
fn the_oracle_finds_a_call_that_moves_without_proof() {
    assert!(is_found(Break::Proof, 80..400));
}

/// Crashes a sidecar at each of its polls from the first call to the end of the last, one of which moves.
#[test]
fn either_sidecar_may_crash_at_any_await_point_of_a_move() {
    let mut plan = Plan::quiet(false);
    (plan.machines, plan.executors) = (3, vec![1, 2]);
    plan.disks.push(plan.disks[0].clone());
    plan.calls[0].timeout_ms = 8_000;
    let blow = |machine| Blow { at_ms: 302, machine, kind: BlowKind::ProviderDies };
    for owner in [1, 2] {
        plan.blows = vec![blow(owner)];
        let quiet = world::run(&plan, 1);
        for victim in 0..3 {
            for_each(quiet.polls.sidecars[victim], |poll| {
                let mut plan = plan.clone();
                plan.calls[0].crash = Some((Victim::Sidecar(victim), poll));
                assert_sound(poll, &world::run(&plan, 1));
            });
        }
    }
}
