//! Counts calls that ended, and calls that a limit refused.
//!
//! Counting is one relaxed addition to a counter that always exists.

use std::sync::atomic::{AtomicU64, Ordering};

use capd_proto::code::Code;
use capd_proto::message::Role;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Ended {
    /// With a result.
    Success,
    /// With a result that is an error.
    Error(Code),
    /// Not executed.
    Refused(Code),
}

impl Ended {
    /// How a call with this result ended.
    pub(in crate::daemon) const fn of(result: Result<(), Code>) -> Self {
        match result {
            Ok(()) => Self::Success,
            Err(code) => Self::Error(code),
        }
    }
}

impl Ended {
    /// Its place in [`OUTCOMES`].
    const fn outcome(self) -> usize {
        match self {
            Self::Success => 0,
            Self::Error(_) => 1,
            Self::Refused(_) => 2,
        }
    }
}

impl Durations {
    const fn none() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS_US.len() + 1], sum_us: AtomicU64::new(0) }
    }

    fn add(&self, took_us: u64) {
        let bucket = BUCKETS_US.partition_point(|bound_us| *bound_us < took_us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(took_us, Ordering::Relaxed);
    }

    fn took(&self, role: Role, outcome: &'static str) -> Took {
        let mut count = 0;
        let mut up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let buckets = std::array::from_fn(|index| up_to(&self.buckets[index]));
        let count = up_to(&self.buckets[BUCKETS_US.len()]);
        Took { role, outcome, buckets, count, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

/// A bound of calls. Each counts what it refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum CallLimit {
    CallsInFlight,
    CallsPerPeer,
    CallsPerCapability,
    CallsPerProvider,
    RequestsWaiting,
    LedgerEntries,
    LedgerBytes,
    CallRatePerPeer,
    CallRate,
    CapabilityRate,
    DeniedRatePerPeer,
    PeerCapabilities,
    PeerCapabilityBytes,
    Repairs,
}

/// Counts of all calls.
#[derive(Debug)]
pub(in crate::daemon) struct Meter {
    ended: [[AtomicU64; ENDS]; ROLES.len()],
    took: [[Durations; OUTCOMES.len()]; ROLES.len()],
    refused: [AtomicU64; BOUNDS],
}

/// How long calls took.
#[derive(Debug)]
struct Durations {
    /// Calls of each bucket alone: those of no earlier one that took no longer than its bound. The last has no bound.
    buckets: [AtomicU64; BUCKETS_US.len() + 1],
    /// **Units:** microseconds.
    sum_us: AtomicU64,
}

/// How long the calls of one role took that ended alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Took {
    pub(in crate::daemon) role: Role,
    pub(in crate::daemon) outcome: &'static str,
    /// Calls that took no longer than each of [`BUCKETS_US`].
    pub(in crate::daemon) buckets: [u64; BUCKETS_US.len()],
    /// All calls.
    pub(in crate::daemon) count: u64,
    /// **Units:** microseconds.
    pub(in crate::daemon) sum_us: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            ended: [const { [const { AtomicU64::new(0) }; ENDS] }; ROLES.len()],
            took: [const { [const { Durations::none() }; OUTCOMES.len()] }; ROLES.len()],
            refused: [const { AtomicU64::new(0) }; BOUNDS],
        }
    }
}

impl Meter {
    /// Counts a call that has ended, and how long it took. **Units:** microseconds.
    pub(in crate::daemon) fn ended(&self, role: Role, ended: Ended, took_us: Option<u64>) {
        self.ended[role as usize][place(ended)].fetch_add(1, Ordering::Relaxed);
        if let Some(took_us) = took_us {
            self.took[role as usize][ended.outcome()].add(took_us);
        }
    }

    /// How long calls took, by role and outcome.
    pub(in crate::daemon) fn durations(&self) -> Vec<Took> {
        let of = |role: Role| {
            let durations = &self.took[role as usize];
            durations.iter().zip(OUTCOMES).map(move |(durations, outcome)| durations.took(role, outcome))
        };
        ROLES.into_iter().flat_map(of).collect()
    }

    /// Counts what `limit` refused.
    pub(in crate::daemon) fn refused(&self, limit: CallLimit) {
        self.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often `bound` refused something.
    pub(in crate::daemon) fn refusals(&self, limit: CallLimit) -> u64 {
        self.refused[limit as usize].load(Ordering::Relaxed)
    }

    /// Calls by role and end: all successes, and the errors and refusals that there were. A code that this build does
    /// not know is none.
    pub(in crate::daemon) fn calls(&self) -> Vec<(Role, &'static str, Option<Code>, u64)> {
        let mut calls = Vec::new();
        for role in ROLES {
            let count = |place: usize| self.ended[role as usize][place].load(Ordering::Relaxed);
            calls.push((role, "success", None, count(0)));
            for (first, outcome) in [(1, "error"), (1 + CODES, "refused")] {
                let codes = Code::ALL.iter().copied().map(Some).chain([None]);
                let counted =
                    codes.enumerate().map(|(index, code)| (role, outcome, code, count(first + index)));
                calls.extend(counted.filter(|(.., count)| *count > 0));
            }
        }
        calls
    }
}

/// Where calls that ended so are counted: successes, then errors by code, then refusals by code.
fn place(ended: Ended) -> usize {
    let index = |code| Code::ALL.binary_search(&code).unwrap_or(Code::ALL.len());
    match ended {
        Ended::Success => 0,
        Ended::Error(code) => 1 + index(code),
        Ended::Refused(code) => 1 + CODES + index(code),
    }
}

/// Upper bounds of the buckets of durations. **Units:** microseconds.
pub(in crate::daemon) const BUCKETS_US: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];
/// Ways in which a call may end, as metrics name them.
const OUTCOMES: [&str; 3] = ["success", "error", "refused"];
/// Both roles, in the order of their numbers.
const ROLES: [Role; 2] = [Role::Caller, Role::Executor];
/// Every code, and one place for all others.
const CODES: usize = Code::ALL.len() + 1;
/// Ways in which a call may end.
const ENDS: usize = 1 + 2 * CODES;
/// Bounds, of which [`CallLimit::Repairs`] is the last.
const BOUNDS: usize = CallLimit::Repairs as usize + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_a_count_of_its_own() {
        let meter = Meter::default();
        let mut expected = Vec::new();
        for role in ROLES {
            meter.ended(role, Ended::Success, None);
            expected.push((role, "success", None, 1));
            for (outcome, of) in [
                ("error", Ended::Error as fn(Code) -> Ended),
                ("refused", Ended::Refused as fn(Code) -> Ended),
            ] {
                for (index, code) in Code::ALL.iter().enumerate() {
                    (0..index + 2).for_each(|_| meter.ended(role, of(*code), None));
                    expected.push((role, outcome, Some(*code), index as u64 + 2));
                }
                meter.ended(role, of(Code(7)), None);
                meter.ended(role, of(Code(u32::MAX)), None);
                expected.push((role, outcome, None, 2));
            }
        }
        assert_eq!(meter.calls(), expected);
    }

    #[test]
    fn a_duration_is_in_every_bucket_from_its_own_on() {
        let meter = Meter::default();
        for took_us in [0, 100, 101, 60_000_000, 60_000_001] {
            meter.ended(Role::Executor, Ended::Error(Code::TIMEOUT), Some(took_us));
        }
        meter.ended(Role::Executor, Ended::Error(Code::TIMEOUT), None);
        let took = meter.durations();
        assert_eq!(took.len(), 6);
        let (with, without): (Vec<_>, Vec<_>) = took.iter().partition(|took| took.count > 0);
        assert!(without.iter().all(|took| took.sum_us == 0 && took.buckets == [0; BUCKETS_US.len()]));
        let [took] = with[..] else { panic!("{with:?}") };
        assert_eq!((took.role, took.outcome), (Role::Executor, "error"));
        assert_eq!((took.count, took.sum_us), (5, 120_000_202));
        let mut buckets = [3; BUCKETS_US.len()];
        (buckets[0], buckets[BUCKETS_US.len() - 1]) = (2, 4);
        assert_eq!(took.buckets, buckets);
    }

    #[test]
    fn codes_stand_in_the_order_that_they_are_looked_up_by() {
        assert!(Code::ALL.is_sorted());
    }
}
