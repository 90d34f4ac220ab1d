//! What every part of the machine works with in one step: settings, time, dice, and what it has to say.

use std::collections::VecDeque;

use super::{AskId, Config, Output, Time};
use crate::fleet::engine::Ask;

/// One step of the machine.
pub(super) struct Step<'a> {
    pub(super) config: &'a Config,
    pub(super) now: Time,
    pub(super) dice: Dice,
    pub(super) out: &'a mut VecDeque<Output>,
}

impl Step<'_> {
    pub(super) fn send(&mut self, output: Output) {
        self.out.push_back(output);
    }

    pub(super) fn ask(&mut self, id: AskId, ask: Ask) {
        self.send(Output::Ask { id, ask });
    }

    /// A time between `least` and `most` from now. **Units:** milliseconds.
    pub(super) fn within(&mut self, least_ms: u64, most_ms: u64) -> u64 {
        self.now.now_ms.saturating_add(self.dice.between(least_ms, most_ms))
    }

    /// How long to wait after so many failures in a row: 1 s, doubled each time, at most `most_ms`, jittered down to half.
    pub(super) fn backoff_ms(&mut self, failures: u32, most_ms: u64) -> u64 {
        let doubled_ms = BACKOFF_MS_MIN.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most_ms);
        self.dice.between(doubled_ms / 2, doubled_ms)
    }
}

/// Draws as many numbers as a step needs from the one that its driver gives (SplitMix64).
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^ (drawn >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        match most.checked_sub(least).and_then(|span| span.checked_add(1)) {
            Some(span) => least + self.next() % span,
            None => least,
        }
    }
}

/// The first pause after a failure. **Units:** milliseconds.
const BACKOFF_MS_MIN: u64 = 1_000;
