//! Limits a rate: whether one more event is allowed, and the bucket after it.
//!
//! A bucket is one number, the time at which it is full again (GCRA), so thousands of buckets cost little.

use capd_proto::rate::Rate;

/// A rate as it is counted. **Units:** nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    interval_ns: u64,
    /// How far ahead of the present a bucket may be full again: all but the last one of the burst.
    tolerance_ns: u64,
}

impl Pace {
    /// `rate`, with a burst that is larger by `room`.
    pub(super) fn new(rate: Rate, room: u64) -> Self {
        let interval_ns = (rate.period_ms().saturating_mul(NS_PER_MS) / rate.requests()).max(1);
        let burst = rate.burst().saturating_add(room);
        Self { interval_ns, tolerance_ns: interval_ns.saturating_mul(burst.saturating_sub(1)) }
    }

    /// Takes one out of a bucket that is full again at `full_ns`; gives when it is full then, or `None` where it is empty.
    pub(super) fn take(self, full_ns: u64, now_ms: u64) -> Option<u64> {
        let now_ns = now_ms.saturating_mul(NS_PER_MS);
        let full_ns = full_ns.max(now_ns);
        (full_ns - now_ns <= self.tolerance_ns).then(|| full_ns.saturating_add(self.interval_ns))
    }

    /// Puts one back.
    pub(super) const fn give_back(self, full_ns: u64) -> u64 {
        full_ns.saturating_sub(self.interval_ns)
    }
}

const NS_PER_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(text: &str, room: u64) -> Pace {
        Pace::new(text.parse().unwrap(), room)
    }

    fn taken(pace: Pace, full_ns: &mut u64, now_ms: u64) -> usize {
        let mut count = 0;
        while let Some(next) = pace.take(*full_ns, now_ms) {
            *full_ns = next;
            count += 1;
            assert!(count < 10_000, "the bucket has no bottom");
        }
        count
    }

    #[test]
    fn a_bucket_holds_its_burst_and_fills_evenly() {
        let pace = pace("10/1s burst 5", 0);
        let mut full_ns = 0;
        assert_eq!(taken(pace, &mut full_ns, 1_000), 5);
        assert_eq!(taken(pace, &mut full_ns, 1_099), 0);
        assert_eq!(taken(pace, &mut full_ns, 1_100), 1);
        assert_eq!(taken(pace, &mut full_ns, 1_450), 3);
        assert_eq!(taken(pace, &mut full_ns, 60_000), 5);
    }

    #[test]
    fn room_adds_to_the_burst_and_what_is_put_back_can_be_taken_again() {
        let pace = pace("1/1h burst 1", 3);
        let mut full_ns = 0;
        assert_eq!(taken(pace, &mut full_ns, 0), 4);
        full_ns = pace.give_back(full_ns);
        assert_eq!(taken(pace, &mut full_ns, 0), 1);
        assert_eq!(pace.give_back(0), 0);
    }
}
