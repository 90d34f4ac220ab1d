//! Computes the pause before the next try: a policy, a count and a random number in, the pause out (PROTOCOL 8).

use crate::code::Code;
use crate::limits::{
    RETRY_ATTEMPTS_MAX, RETRY_ATTEMPTS_POLICY_MAX, RETRY_DELAY_MS_MAX, RETRY_DELAY_MS_MIN,
    RETRY_INITIAL_DELAY_MS,
};

/// How often and how soon a call is retried.
///
/// The fields are private, so every policy of a descriptor is within our bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    attempts_max: u32,
    initial_delay_ms: u64,
    multiplier: f64,
    delay_ms_max: u64,
    retry_on: Vec<Code>,
}

impl Default for RetryPolicy {
    /// AMP 001 16.3: 1 s · 2ⁿ, at most 60 s, 5 tries; no CAP_RESULT error is tried again.
    fn default() -> Self {
        Self {
            attempts_max: RETRY_ATTEMPTS_MAX,
            initial_delay_ms: RETRY_INITIAL_DELAY_MS,
            multiplier: 2.0,
            delay_ms_max: RETRY_DELAY_MS_MAX,
            retry_on: Vec::new(),
        }
    }
}

impl RetryPolicy {
    /// Tries in all, the first one counted: at least 1, at most [`RETRY_ATTEMPTS_POLICY_MAX`].
    #[must_use]
    pub fn with_attempts_max(self, attempts_max: u32) -> Self {
        Self { attempts_max: attempts_max.clamp(1, RETRY_ATTEMPTS_POLICY_MAX), ..self }
    }

    /// The pause before the second try, at least [`RETRY_DELAY_MS_MIN`]. **Units:** milliseconds.
    #[must_use]
    pub fn with_initial_delay_ms(self, initial_delay_ms: u64) -> Self {
        Self { initial_delay_ms: initial_delay_ms.max(RETRY_DELAY_MS_MIN), ..self }
    }

    /// The factor from each pause to the next, at least 1; NaN counts as 1.
    #[must_use]
    pub fn with_multiplier(self, multiplier: f64) -> Self {
        Self { multiplier: multiplier.max(1.0), ..self }
    }

    /// The longest pause, at least [`RETRY_DELAY_MS_MIN`]. **Units:** milliseconds.
    #[must_use]
    pub fn with_delay_ms_max(self, delay_ms_max: u64) -> Self {
        Self { delay_ms_max: delay_ms_max.max(RETRY_DELAY_MS_MIN), ..self }
    }

    /// The CAP_RESULT errors after which an idempotent call is retried.
    #[must_use]
    pub fn with_retry_on(self, retry_on: Vec<Code>) -> Self {
        Self { retry_on, ..self }
    }

    /// The codes that an entry of `retry_on` means: a code's number or name, or a name that declarations use. Any other
    /// entry means none.
    pub fn codes_named(name: &str) -> Vec<Code> {
        match name {
            "timeout" => vec![Code::TIMEOUT],
            "network_error" => vec![Code::ENDPOINT_UNREACHABLE, Code::UNAVAILABLE],
            "rate_limit" => vec![Code::RATE_LIMITED, Code::OVERLOADED],
            _ => {
                let named = Code::ALL.iter().copied().find(|code| code.name() == Some(name));
                named.or_else(|| name.parse().map(Code).ok()).into_iter().collect()
            }
        }
    }

    /// Whether another try is left after so many.
    pub(super) fn allows(&self, tries: u32) -> bool {
        tries < self.attempts_max
    }

    /// Whether a CAP_RESULT error is named as one to try again after.
    pub(super) fn names(&self, code: Code) -> bool {
        self.retry_on.contains(&code)
    }

    /// The pause after so many tries. **Units:** milliseconds.
    pub(super) fn delay_ms(&self, tries: u32, jitter: Jitter) -> u64 {
        let max = self.delay_ms_max as f64;
        let mut delay = (self.initial_delay_ms as f64).min(max);
        // Multiplied step by step rather than by `powi`, whose last bits differ between platforms.
        for _ in 1..tries.min(RETRY_ATTEMPTS_POLICY_MAX) {
            delay = (delay * self.multiplier).min(max);
        }
        jitter.of(delay as u64)
    }
}

/// A random number that shortens a pause by up to a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(pub u32);

impl Jitter {
    /// No shortening.
    pub const NONE: Self = Self(u32::MAX);

    fn of(self, delay_ms: u64) -> u64 {
        // PROTOCOL 8: jitter ½–1. The factor is (2³² + n + 1) / 2³³.
        let factor = (1_u128 << 32) + u128::from(self.0) + 1;
        // At most `delay_ms`, so it fits.
        ((u128::from(delay_ms) * factor) >> 33) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_pauses_double_from_one_second() {
        let policy = RetryPolicy::default();
        let pauses: Vec<_> = (1..5).map(|tries| policy.delay_ms(tries, Jitter::NONE)).collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000]);
        assert!(policy.allows(4) && !policy.allows(5));
    }

    #[test]
    fn pauses_stop_growing_at_their_maximum() {
        let policy = RetryPolicy::default().with_attempts_max(10);
        assert_eq!(policy.delay_ms(7, Jitter::NONE), 60_000);
        assert_eq!(policy.delay_ms(9, Jitter::NONE), 60_000);
    }

    #[test]
    fn jitter_is_between_a_half_and_the_whole() {
        for (jitter, pause) in [(Jitter(0), 500), (Jitter(u32::MAX / 2), 750), (Jitter::NONE, 1_000)] {
            assert_eq!(RetryPolicy::default().delay_ms(1, jitter), pause);
        }
        assert_eq!(Jitter::NONE.of(u64::MAX), u64::MAX);
    }

    #[test]
    fn retry_on_takes_numbers_code_names_and_the_names_of_declarations() {
        let named = RetryPolicy::codes_named;
        assert_eq!(named("timeout"), [Code::TIMEOUT]);
        assert_eq!(named("TIMEOUT"), [Code::TIMEOUT]);
        assert_eq!(named("5003"), [Code::TIMEOUT]);
        assert_eq!(named("network_error"), [Code::ENDPOINT_UNREACHABLE, Code::UNAVAILABLE]);
        assert_eq!(named("rate_limit"), [Code::RATE_LIMITED, Code::OVERLOADED]);
        assert_eq!(named("nonsense"), []);
    }

    #[test]
    fn hostile_policies_are_brought_within_bounds() {
        let policy = RetryPolicy::default()
            .with_attempts_max(u32::MAX)
            .with_initial_delay_ms(0)
            .with_delay_ms_max(0)
            .with_multiplier(f64::NAN);
        assert!(!policy.allows(RETRY_ATTEMPTS_POLICY_MAX));
        assert_eq!(policy.delay_ms(u32::MAX, Jitter::NONE), RETRY_DELAY_MS_MIN);
        let steep = RetryPolicy::default().with_multiplier(f64::INFINITY);
        assert_eq!(steep.delay_ms(3, Jitter::NONE), RETRY_DELAY_MS_MAX);
        assert!(RetryPolicy::default().with_attempts_max(0).allows(0));
    }
}
