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
    refused: [AtomicU64; BOUNDS],
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            ended: [const { [const { AtomicU64::new(0) }; ENDS] }; ROLES.len()],
            refused: [const { AtomicU64::new(0) }; BOUNDS],
        }
    }
}

impl Meter {
    /// Counts a call that has ended.
    pub(in crate::daemon) fn ended(&self, role: Role, ended: Ended) {
        self.ended[role as usize][place(ended)].fetch_add(1, Ordering::Relaxed);
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
            meter.ended(role, Ended::Success);
            expected.push((role, "success", None, 1));
            for (outcome, of) in [
                ("error", Ended::Error as fn(Code) -> Ended),
                ("refused", Ended::Refused as fn(Code) -> Ended),
            ] {
                for (index, code) in Code::ALL.iter().enumerate() {
                    (0..index + 2).for_each(|_| meter.ended(role, of(*code)));
                    expected.push((role, outcome, Some(*code), index as u64 + 2));
                }
                meter.ended(role, of(Code(7)));
                meter.ended(role, of(Code(u32::MAX)));
                expected.push((role, outcome, None, 2));
            }
        }
        assert_eq!(meter.calls(), expected);
    }

    #[test]
    fn codes_stand_in_the_order_that_they_are_looked_up_by() {
        assert!(Code::ALL.is_sorted());
    }
}
