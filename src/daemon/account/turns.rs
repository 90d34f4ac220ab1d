//! Counts repairs: an agent's params that break their schema in; the refusal with the repairs left in its turn out.
//!
//! A turn is an agent's work on one `thread_id`. Each refusal asks for one repair, and a turn has a budget of them. A
//! new call under a new id does not reset the budget, and a success returns nothing. A call without a `thread_id` is a
//! turn of its own.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use capd_proto::cbor::Writer;
use capd_proto::code::Code;
use capd_proto::message::SchemaSide;
use sha2::{Digest, Sha256};

use super::Account;
use super::audit::Audited;
use super::meter::CallLimit;
use crate::daemon::context::wire::{violation_details, with_fields};
use crate::daemon::context::{Refusal, lock};
use crate::schema::Violation;

/// Turns in which params broke their schema, within a bound of count and of time.
///
/// Only such a refusal looks in here: a call whose params fit costs nothing.
#[derive(Default)]
pub(in crate::daemon) struct Turns {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_turn: HashMap<Turn, Refused>,
    /// Turns by when they last failed. **Units:** monotonic milliseconds.
    ages: BTreeSet<(u64, Turn)>,
}

/// The SHA-256 of a `thread_id`, which has no bound of its own.
type Turn = [u8; 32];

struct Refused {
    count: u64,
    at_ms: u64,
}

impl Turns {
    /// Counts a refusal; the repairs that the turn had used up before it, of at most `repairs_max`.
    fn refuse(&self, thread_id: Option<&[u8]>, now_ms: u64, repairs_max: u64) -> u64 {
        let Some(thread_id) = thread_id else { return 0 };
        let turn: Turn = Sha256::digest(thread_id).into();
        let mut state = lock(&self.state);
        state.forget_until(now_ms.saturating_sub(KEEP_MS));
        let before = state.by_turn.get(&turn).map_or(0, |refused| refused.count);
        // Past the budget nothing is left to count.
        let count = before.saturating_add(1).min(repairs_max.saturating_add(1));
        state.insert(turn, Refused { count, at_ms: now_ms });
        before.min(repairs_max)
    }
}

impl State {
    fn insert(&mut self, turn: Turn, refused: Refused) {
        if let Some(before) = self.by_turn.get(&turn) {
            self.ages.remove(&(before.at_ms, turn));
        }
        self.ages.insert((refused.at_ms, turn));
        self.by_turn.insert(turn, refused);
        while self.by_turn.len() > TURNS_MAX {
            self.forget_oldest();
        }
    }

    fn forget_until(&mut self, at_ms: u64) {
        while self.ages.first().is_some_and(|(age_ms, _)| *age_ms < at_ms) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some((_, turn)) = self.ages.pop_first() {
            self.by_turn.remove(&turn);
        }
    }
}

impl Account {
    /// Refuses a call of the agent's, which nobody has seen yet, accounts for it, and counts it in its turn.
    ///
    /// **Errors:** 4004 while the turn may repair, 4904 once it has used its budget up; both with the violations and
    /// `details.repair`, `{"used": uint, "max": uint}`.
    pub(in crate::daemon) fn refused_params(
        &self,
        thread_id: Option<&[u8]>,
        call: Audited<'_>,
        violations: &[Violation],
    ) -> Refusal {
        self.audit_violations(SchemaSide::Request, call, violations);
        let max = self.ctx.config().limits.max_argument_repairs;
        let used = self.turns.refuse(thread_id, self.ctx.clock.monotonic_ms(), max);
        let mut repair = Vec::new();
        Writer::new(&mut repair).map(2).text("max").uint(max).text("used").uint(used);
        let details = violation_details(SchemaSide::Request, violations);
        let details = with_fields(&details, &[("repair", &repair)]);
        let refusal = if used < max {
            Refusal::new(Code::SCHEMA_VIOLATION, "the params do not fit the input schema")
        } else {
            self.meter.refused(CallLimit::Repairs);
            let message = "the params do not fit the input schema, and the turn has no repair left";
            Refusal::new(Code::REPAIR_EXHAUSTED, message)
        };
        refusal.with_details(details)
    }
}

/// Most turns remembered; the one that failed the longest ago goes.
const TURNS_MAX: usize = 4_096;
/// How long a turn is remembered after it last failed, in milliseconds.
const KEEP_MS: u64 = 3_600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_counts_its_refusals_whatever_other_turns_do() {
        let turns = Turns::default();
        assert_eq!([1, 2, 3, 4].map(|now_ms| turns.refuse(Some(b"a"), now_ms, 2)), [0, 1, 2, 2]);
        assert_eq!(turns.refuse(Some(b"b"), 5, 2), 0);
        assert_eq!([6, 7].map(|now_ms| turns.refuse(None, now_ms, 2)), [0, 0]);
        assert_eq!(turns.refuse(Some(b"a"), 8, 5), 3, "the owner allows more");
    }

    #[test]
    fn a_turn_is_forgotten_an_hour_after_it_last_failed() {
        let turns = Turns::default();
        assert_eq!(turns.refuse(Some(b"a"), 0, 5), 0);
        assert_eq!(turns.refuse(Some(b"a"), KEEP_MS, 5), 1);
        assert_eq!(turns.refuse(Some(b"a"), 2 * KEEP_MS, 5), 2);
        assert_eq!(turns.refuse(Some(b"a"), 3 * KEEP_MS + 1, 5), 0);
        let state = lock(&turns.state);
        assert_eq!((state.by_turn.len(), state.ages.len()), (1, 1));
    }

    #[test]
    fn of_more_turns_than_are_remembered_the_oldest_begins_anew() {
        let turns = Turns::default();
        for turn in 0..=TURNS_MAX as u64 {
            assert_eq!(turns.refuse(Some(&turn.to_be_bytes()), turn, 5), 0);
        }
        assert_eq!(lock(&turns.state).ages.len(), TURNS_MAX);
        let now_ms = TURNS_MAX as u64 + 1;
        assert_eq!(turns.refuse(Some(&1_u64.to_be_bytes()), now_ms, 5), 1);
        assert_eq!(turns.refuse(Some(&0_u64.to_be_bytes()), now_ms, 5), 0);
    }
}
