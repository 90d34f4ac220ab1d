//! Keeps how fast an origin has answered calls of one capability: times in, which of two is faster out. Lock-free.

use std::sync::atomic::{AtomicU64, Ordering};

/// The latency of one origin's capability, as a moving average.
///
/// A time above the average moves it by an eighth of the difference, one below it by half: one hiccup costs an origin few
/// calls, and a lasting change shows after a handful. Until four calls have succeeded it is unknown. An origin
/// that is passed over has its average count less and less, so that it is measured again.
///
/// **Shape:** the average in microseconds (32 bits), how often it was passed over since its last time (16), times taken (16).
#[derive(Debug, Default)]
pub struct Latency(AtomicU64);

/// What [`Latency`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    average_us: u32,
    passed_over: u16,
    samples: u16,
}

impl Latency {
    /// Takes the time of a call that has its answer. **Units:** microseconds.
    ///
    /// The time of a failed call counts only where it is above the average: whoever fails fast is not fast.
    pub fn take(&self, took_us: u64, has_succeeded: bool) {
        let took_us = u32::try_from(took_us).unwrap_or(u32::MAX);
        self.update(|state| state.with(took_us, has_succeeded));
    }

    /// Whether a call goes here rather than to `first`, which was picked by chance and is as busy.
    ///
    /// `first` keeps the call where either is unknown, or both are about as fast. Whichever loses by its latency was passed
    /// over.
    pub fn is_chosen_over(&self, first: &Self) -> bool {
        let (this, that) = (self.state(), first.state());
        if this.is_faster_than(that) {
            first.update(State::passed);
            return true;
        }
        if that.is_faster_than(this) {
            self.update(State::passed);
        }
        false
    }

    fn state(&self) -> State {
        // What is chosen by it is right either way.
        State::of(self.0.load(Ordering::Relaxed))
    }

    fn update(&self, next: impl Fn(State) -> Option<State>) {
        let next = |word| next(State::of(word)).map(State::word);
        let _unchanged = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }
}

impl State {
    const fn of(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_be_bytes();
        Self {
            average_us: u32::from_be_bytes([a, b, c, d]),
            passed_over: u16::from_be_bytes([e, f]),
            samples: u16::from_be_bytes([g, h]),
        }
    }

    fn word(self) -> u64 {
        u64::from(self.average_us) << 32 | u64::from(self.passed_over) << 16 | u64::from(self.samples)
    }

    /// After a call that took so long; `None` where that says nothing.
    fn with(self, took_us: u32, has_succeeded: bool) -> Option<Self> {
        if !has_succeeded && (self.samples == 0 || took_us <= self.average_us) {
            return None;
        }
        let average_us = match self.average_us {
            _ if self.samples == 0 => took_us,
            average if took_us > average => average + (took_us - average) / RISE,
            average => average - (average - took_us) / FALL,
        };
        Some(Self { average_us, passed_over: 0, samples: self.samples.saturating_add(1) })
    }

    /// After another was taken in its place.
    fn passed(self) -> Option<Self> {
        Some(Self { passed_over: self.passed_over.saturating_add(1), ..self })
    }

    /// The average, halved for every few times that it was passed over.
    fn counts_us(self) -> u32 {
        let halvings = u32::from(self.passed_over / PASSES_PER_HALVING);
        self.average_us.checked_shr(halvings).unwrap_or(0)
    }

    /// Whether both are known and this one is faster by a quarter at least.
    fn is_faster_than(self, other: Self) -> bool {
        let are_known = self.samples.min(other.samples) >= SAMPLES_MIN;
        let (this_us, other_us) = (u64::from(self.counts_us()), u64::from(other.counts_us()));
        are_known && this_us + this_us / 4 < other_us
    }
}

/// Times from which on a latency is known: the first calls may start programs and open files.
const SAMPLES_MIN: u16 = 4;
/// Part of the difference by which a longer time moves the average.
const RISE: u32 = 8;
/// Part of the difference by which a shorter time moves it.
const FALL: u32 = 2;
/// Calls that go elsewhere until the average counts half. Whoever is `r` times as slow gets about one in `4·log2(r)`.
const PASSES_PER_HALVING: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// The latency after calls of these times that succeeded. **Units:** microseconds.
    fn after(times_us: &[u64]) -> Latency {
        let latency = Latency::default();
        times_us.iter().for_each(|took_us| latency.take(*took_us, true));
        latency
    }

    fn average_us(latency: &Latency) -> u32 {
        latency.state().average_us
    }

    /// Of calls that are picked by chance first one and then the other, those that each gets. `times_us` is what they take.
    fn shares(latencies: [&Latency; 2], times_us: [u64; 2], calls: usize) -> [usize; 2] {
        let mut shares = [0, 0];
        for call in 0..calls {
            let (first, second) = (call % 2, (call + 1) % 2);
            let chosen = latencies[second].is_chosen_over(latencies[first]);
            let taken = if chosen { second } else { first };
            shares[taken] += 1;
            latencies[taken].take(times_us[taken], true);
        }
        shares
    }

    #[test]
    fn what_is_held_survives_its_word() {
        for state in [
            State { average_us: 0, passed_over: 0, samples: 0 },
            State { average_us: u32::MAX, passed_over: 1, samples: u16::MAX },
            State { average_us: 7, passed_over: u16::MAX, samples: 3 },
        ] {
            assert_eq!(State::of(state.word()), state);
        }
    }

    #[test]
    fn the_first_time_is_the_average_and_later_ones_move_it() {
        assert_eq!(average_us(&after(&[800])), 800);
        assert_eq!(average_us(&after(&[800, 1_600])), 900);
        assert_eq!(average_us(&after(&[800, 400])), 600);
        assert_eq!(average_us(&after(&[u64::MAX, u64::MAX])), u32::MAX);
        assert_eq!(average_us(&after(&[0, 0, 0])), 0);
        let lasting = after(&[[1_000; 8], [10_000; 8], [10_000; 8]].concat());
        assert!(average_us(&lasting) > 8_000, "{lasting:?}");
    }

    #[test]
    fn a_failed_call_never_looks_fast_and_a_slow_failure_counts() {
        let latency = after(&[1_000; 4]);
        latency.take(10, false);
        assert_eq!(average_us(&latency), 1_000);
        latency.take(9_000, false);
        assert_eq!(average_us(&latency), 2_000);
        let unknown = Latency::default();
        (0..10).for_each(|_| unknown.take(5, false));
        assert_eq!(unknown.state(), State::of(0), "nothing is known of who only fails");
    }

    #[test]
    fn the_faster_one_is_chosen_whichever_was_picked_first() {
        let (fast, slow) = (after(&[1_000; 4]), after(&[3_000; 4]));
        assert!(fast.is_chosen_over(&slow));
        assert!(!slow.is_chosen_over(&fast));
        assert_eq!((slow.state().passed_over, fast.state().passed_over), (2, 0));
    }

    #[test]
    fn about_as_fast_is_left_to_chance() {
        let (one, other) = (after(&[1_000; 4]), after(&[1_240; 4]));
        assert!(!one.is_chosen_over(&other) && !other.is_chosen_over(&one));
        assert_eq!((one.state().passed_over, other.state().passed_over), (0, 0));
    }

    #[test]
    fn an_unknown_latency_is_neither_preferred_nor_passed_over() {
        let known = after(&[1_000; 4]);
        for count in 0..usize::from(SAMPLES_MIN) {
            for time_us in [1, 1_000_000] {
                let new = after(&vec![time_us; count]);
                assert!(!new.is_chosen_over(&known) && !known.is_chosen_over(&new), "{new:?}");
                assert_eq!(new.state().passed_over, 0);
            }
        }
        // It has its share until it is known.
        let new = Latency::default();
        assert_eq!(shares([&known, &new], [1_000, 50_000], 8), [4, 4]);
    }

    #[test]
    fn a_slow_one_is_measured_again_now_and_then() {
        for (times_us, most) in [([1_000, 4_000], 200), ([1_000, 100_000], 50)] {
            let latencies = times_us.map(|time_us| after(&[time_us; 4]));
            let [_, slow] = shares(latencies.each_ref(), times_us, 1_000);
            assert!((20..=most).contains(&slow), "{times_us:?}: {slow}");
        }
    }

    #[test]
    fn whoever_was_slow_once_has_its_share_again_soon() {
        for hiccup in [after(&[25_000, 1_000, 1_000, 1_000]), after(&[1_000, 1_000, 1_000, 1_000, 25_000])] {
            let steady = after(&[1_000; 4]);
            let [_, recovered] = shares([&steady, &hiccup], [1_000, 1_000], 100);
            assert!(recovered >= 30, "{recovered}");
        }
    }

    #[test]
    fn whoever_becomes_slow_loses_its_calls_within_a_few() {
        let latencies = [after(&[1_000; 20]), after(&[1_000; 20])];
        let [_, slow] = shares(latencies.each_ref(), [1_000, 50_000], 100);
        assert!(slow <= 10, "{slow}");
    }
}
