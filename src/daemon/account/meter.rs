//! Counts calls that ended, and calls that a limit refused.
//!
//! Counting is one relaxed addition to a counter that always exists.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use capd_proto::code::Code;
use capd_proto::message::Role;

use crate::daemon::context::lock;

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

    fn took(&self, role: Role, outcome: &'static str, capability: &str) -> Took {
        let mut count = 0;
        let mut up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let buckets = std::array::from_fn(|index| up_to(&self.buckets[index]));
        let count = up_to(&self.buckets[BUCKETS_US.len()]);
        let sum_us = self.sum_us.load(Ordering::Relaxed);
        Took { role, outcome, capability: capability.to_owned(), buckets, count, sum_us }
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
    LedgerTtl,
    CallRatePerPeer,
    CallRate,
    CapabilityRate,
    DeniedRatePerPeer,
    PeerCapabilities,
    PeerCapabilityBytes,
    Repairs,
}

/// What came of holding a peer's schemas against what the agent requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Verdict {
    /// They fit.
    Proven,
    /// They do not: calls end with 4902.
    Drifted,
    /// Nobody can say: calls end with 4903.
    Unknown,
    /// The peer does not publish them: calls pass, and their payloads are checked.
    Unpublished,
}

/// Counts of all calls.
#[derive(Debug)]
pub(in crate::daemon) struct Meter {
    ended: [[AtomicU64; ENDS]; ROLES.len()],
    took: ByEnd,
    /// Calls that are counted under the name of their capability, and not in `took`.
    named: Mutex<BTreeMap<Box<str>, Arc<ByEnd>>>,
    refused: [AtomicU64; BOUNDS],
    verdicts: [AtomicU64; VERDICTS.len()],
}

/// How long calls took, by role and outcome.
#[derive(Debug)]
struct ByEnd([[Durations; OUTCOMES.len()]; ROLES.len()]);

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
    /// The name of the capability; empty for all of those that are not named.
    pub(in crate::daemon) capability: String,
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
            took: ByEnd::none(),
            named: Mutex::default(),
            refused: [const { AtomicU64::new(0) }; BOUNDS],
            verdicts: [const { AtomicU64::new(0) }; VERDICTS.len()],
        }
    }
}

impl ByEnd {
    const fn none() -> Self {
        Self([const { [const { Durations::none() }; OUTCOMES.len()] }; ROLES.len()])
    }

    fn took(&self, capability: &str) -> Vec<Took> {
        let of = |role: Role| {
            let durations = self.0[role as usize].iter().zip(OUTCOMES);
            durations.map(move |(durations, outcome)| durations.took(role, outcome, capability))
        };
        ROLES.into_iter().flat_map(of).collect()
    }
}

impl Took {
    fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, more)| *sum += more);
        self.count += other.count;
        self.sum_us += other.sum_us;
    }
}

impl Meter {
    /// Counts a call that has ended, how long it took, and the capability whose calls are counted apart. **Units:**
    /// microseconds.
    pub(in crate::daemon) fn ended(&self, role: Role, ended: Ended, took: Option<(u64, Option<&str>)>) {
        self.ended[role as usize][place(ended)].fetch_add(1, Ordering::Relaxed);
        let Some((took_us, capability)) = took else { return };
        // A stranger may ask for any name, and is refused.
        let capability = capability.filter(|_| !matches!(ended, Ended::Refused(_)));
        let named = capability.and_then(|capability| self.named(capability));
        let ends = named.as_deref().unwrap_or(&self.took);
        ends.0[role as usize][ended.outcome()].add(took_us);
    }

    /// How many calls have ended, refused ones among them.
    pub(in crate::daemon) fn ended_in_all(&self) -> u64 {
        self.ended.iter().flatten().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Where calls of a capability are counted; none once there are too many names.
    fn named(&self, capability: &str) -> Option<Arc<ByEnd>> {
        let mut named = lock(&self.named);
        if let Some(ends) = named.get(capability) {
            return Some(Arc::clone(ends));
        }
        if named.len() >= NAMED_MAX {
            return None;
        }
        let ends = Arc::new(ByEnd::none());
        named.insert(capability.into(), Arc::clone(&ends));
        Some(ends)
    }

    /// How long calls took, by role and outcome; those of one capability apart if `by_capability`.
    pub(in crate::daemon) fn durations(&self, by_capability: bool) -> Vec<Took> {
        let mut all = self.took.took("");
        let named: Vec<_> = lock(&self.named)
            .iter()
            .flat_map(|(capability, ends)| ends.took(capability))
            .filter(|took| took.count > 0)
            .collect();
        if by_capability {
            all.extend(named);
            return all;
        }
        for took in &named {
            let same = all.iter_mut().find(|sum| (sum.role, sum.outcome) == (took.role, took.outcome));
            same.into_iter().for_each(|sum| sum.add(took));
        }
        all
    }

    /// Counts what `limit` refused.
    pub(in crate::daemon) fn refused(&self, limit: CallLimit) {
        self.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often `bound` refused something.
    pub(in crate::daemon) fn refusals(&self, limit: CallLimit) -> u64 {
        self.refused[limit as usize].load(Ordering::Relaxed)
    }

    /// Counts a proof that ended.
    pub(in crate::daemon) fn proved(&self, verdict: Verdict) {
        self.verdicts[verdict as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many proofs ended with each verdict.
    pub(in crate::daemon) fn verdicts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        VERDICTS.into_iter().zip(&self.verdicts).map(|(name, count)| (name, count.load(Ordering::Relaxed)))
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
/// Verdicts by their numbers, as metrics name them.
const VERDICTS: [&str; 4] = ["proven", "drifted", "unknown", "unpublished"];
/// Most capabilities that are counted apart: each has up to 126 series.
const NAMED_MAX: usize = 128;
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
            meter.ended(Role::Executor, Ended::Error(Code::TIMEOUT), Some((took_us, None)));
        }
        meter.ended(Role::Executor, Ended::Error(Code::TIMEOUT), None);
        let took = meter.durations(false);
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
    fn calls_of_a_capability_are_counted_apart_and_in_the_sum_up_to_a_bound_of_names() {
        let meter = Meter::default();
        let ended = |name: &str, ended| meter.ended(Role::Caller, ended, Some((10, Some(name))));
        ended("org.example.a", Ended::Success);
        ended("org.example.a", Ended::Success);
        ended("org.example.refused", Ended::Refused(Code::UNAUTHORIZED));
        meter.ended(Role::Caller, Ended::Success, Some((10, None)));
        (0..2 * NAMED_MAX).for_each(|number| ended(&format!("org.example.n{number}"), Ended::Success));
        let of = |by_capability| {
            let took = meter.durations(by_capability).into_iter();
            took.filter(|took| took.count > 0)
                .map(|took| (took.capability, took.outcome, took.count, took.sum_us))
                .collect::<Vec<_>>()
        };
        let apart = of(true);
        let all = 3 + 2 * NAMED_MAX as u64;
        assert_eq!(apart.len(), 2 + NAMED_MAX);
        assert_eq!(
            apart[0],
            (String::new(), "success", 1 + NAMED_MAX as u64 + 1, 10 * (NAMED_MAX as u64 + 2))
        );
        assert_eq!(apart[1], (String::new(), "refused", 1, 10));
        assert_eq!(apart[2], ("org.example.a".to_owned(), "success", 2, 20));
        assert_eq!(apart.iter().map(|(.., count, _)| count).sum::<u64>(), all + 1);
        assert_eq!(of(false), [(String::new(), "success", all, 10 * all), (String::new(), "refused", 1, 10)]);
    }

    #[test]
    fn codes_stand_in_the_order_that_they_are_looked_up_by() {
        assert!(Code::ALL.is_sorted());
    }
}
