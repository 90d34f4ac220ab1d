//! Measures how late the event loop turns: a timer that is due in, the time that passed beyond it out.
//!
//! Everything runs on one thread, so whatever keeps that thread for long delays every call. A timer that fires late shows
//! it, and costs calls nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Account;

/// How late the timer was, each time.
#[derive(Debug)]
pub(in crate::daemon) struct Lag {
    /// Times of each bucket alone: those of no earlier one that were no later than its bound. The last has no bound.
    buckets: [AtomicU64; BUCKETS_US.len() + 1],
    /// **Units:** microseconds.
    sum_us: AtomicU64,
}

/// How late the loop was so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Late {
    /// Bounds in microseconds, and how often it was no later than each.
    pub(in crate::daemon) buckets: Vec<(u64, u64)>,
    /// How often that was looked at.
    pub(in crate::daemon) count: u64,
    /// **Units:** microseconds.
    pub(in crate::daemon) sum_us: u64,
}

impl Default for Lag {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS_US.len() + 1], sum_us: AtomicU64::new(0) }
    }
}

impl Lag {
    fn note(&self, late_us: u64) {
        let bucket = BUCKETS_US.partition_point(|bound_us| *bound_us < late_us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(late_us, Ordering::Relaxed);
    }

    /// How late the loop was so far.
    pub(in crate::daemon) fn late(&self) -> Late {
        let mut count = 0;
        let mut up_to = |bucket: &AtomicU64| {
            count += bucket.load(Ordering::Relaxed);
            count
        };
        let buckets = BUCKETS_US.iter().zip(&self.buckets).map(|(bound, bucket)| (*bound, up_to(bucket)));
        let buckets = buckets.collect();
        let count = up_to(&self.buckets[BUCKETS_US.len()]);
        Late { buckets, count, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

impl Account {
    /// A timer that was due at `due_us` fires now. Whatever keeps the thread for longer than the time
    /// between two of them is seen for certain.
    ///
    /// **Units:** monotonic microseconds.
    pub(in crate::daemon) fn note_lag(&self, due_us: u64) {
        let late_us = self.ctx.clock.monotonic_us().saturating_sub(due_us);
        self.lag.note(late_us.saturating_sub(TIMER_US));
    }
}

/// Timers are rounded up to a millisecond, and so is the wait for them.
const TIMER_US: u64 = 2_000;
/// Upper bounds of the buckets. **Units:** microseconds.
const BUCKETS_US: [u64; 8] = [1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_in_every_bucket_from_its_own_on() {
        let lag = Lag::default();
        [0, 1_000, 1_001, 5_000_000, 5_000_001].into_iter().for_each(|late_us| lag.note(late_us));
        let Late { buckets, count, sum_us } = lag.late();
        assert_eq!((count, sum_us), (5, 10_002_002));
        let up_to: Vec<_> = buckets.iter().map(|(_, up_to)| *up_to).collect();
        assert_eq!(up_to, [2, 3, 3, 3, 3, 3, 3, 4]);
        assert_eq!(buckets.last().map(|(bound_us, _)| *bound_us), BUCKETS_US.last().copied());
    }
}
