//! Worlds of many fleet machines with one failing registry: none breaks a promise, and every part of the rules that is
//! left out is missed.

#![allow(clippy::unwrap_used, reason = "whatever a simulation is made of fails the test")]

mod sim;

use sim::plan::{Break, Plan};
use sim::world;

/// The first world, of so many, that finds a part missing.
fn found(breaks: Break, worlds: u64) -> Option<(u64, String)> {
    (1..=worlds).find_map(|seed| {
        let outcome = world::run(&Plan::of(seed, Some(breaks)), seed);
        outcome.violations.first().map(|violation| (seed, violation.clone()))
    })
}

#[test]
fn worlds_of_a_fleet_break_no_promise() {
    for seed in 1..=150 {
        let outcome = world::run(&Plan::of(seed, None), seed);
        assert!(outcome.violations.is_empty(), "world {seed}: {:#?}", outcome.violations);
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 1..=5 {
        let plan = Plan::of(seed, None);
        let (one, other) = (world::run(&plan, seed), world::run(&plan, seed));
        assert_eq!((one.trace, one.events), (other.trace, other.events));
    }
}

#[test]
fn registering_without_a_fence_is_missed() {
    assert!(found(Break::NoFence, 2_000).is_some());
}

#[test]
fn watches_taken_up_by_revision_are_missed() {
    assert!(found(Break::ResumeByRevision, 2_000).is_some());
}

#[test]
fn an_incarnation_that_nobody_checks_is_missed() {
    assert!(found(Break::IncarnationUnchecked, 2_000).is_some());
}
