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

/// Each of these broke a promise until the rule beside it was there, and does so again without it.
#[test]
fn worlds_that_broke_a_promise_break_none_any_more() {
    for (rule, seeds) in [
        (
            "registers once in the life of a lease, whatever found out that nothing stands",
            &[2_523_346, 2_524_046, 2_017_996][..],
        ),
        ("replaces only what it put, as of when it put it", &[2_522_597, 2_002_946]),
        (
            "is told by each list what stands under its own keys",
            &[2_004_009, 2_006_008, 2_011_937, 2_019_570],
        ),
        ("watches only in the era that was listed", &[2_339_641]),
    ] {
        for seed in seeds {
            let outcome = world::run(&Plan::of(*seed, None), *seed);
            assert!(outcome.violations.is_empty(), "{rule}: world {seed}: {:#?}", outcome.violations);
        }
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
