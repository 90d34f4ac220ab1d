//! A seed in; the same choices on every run out.

use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `times` on the average.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A time below `max`, short ones as likely as long ones on a scale of halves.
    pub fn moment(&mut self, max: Duration) -> Duration {
        let halvings = u32::try_from(self.below(6)).expect("below six");
        let max_us = u64::try_from(max.as_micros()).expect("moments are short") >> halvings;
        Duration::from_micros(self.below(max_us.max(1)))
    }

    /// A generator of its own for a part of the world.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }
}
