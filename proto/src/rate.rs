//! Reads a rate limit: calls, period and burst within their bounds.

use std::fmt;
use std::str::FromStr;

use crate::limits::{RATE_PERIOD_MS_MAX, RATE_REQUESTS_MAX};

/// A number of calls in each period, and how many of them at once.
///
/// Capacity refills evenly over the period, up to the burst. The fields are private, so every rate is within its
/// bounds.
///
/// **Shape:** as text `REQUESTS/PERIOD` or `REQUESTS/PERIOD burst BURST`, such as `600/1m burst 50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    requests: u64,
    period_ms: u64,
    burst: u64,
}

/// Why a rate is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// Not 1 to [`RATE_REQUESTS_MAX`].
    #[error("`requests` is not 1 to {RATE_REQUESTS_MAX}")]
    Requests,
    /// Not 1 to [`RATE_REQUESTS_MAX`].
    #[error("`burst` is not 1 to {RATE_REQUESTS_MAX}")]
    Burst,
    /// No integer with a unit, or longer than [`RATE_PERIOD_MS_MAX`].
    #[error("`period` is not an integer and ms, s, m, h or d, up to 30 days")]
    Period,
}

impl Rate {
    /// A rate of these terms; without a burst, all calls of a period may come at once.
    ///
    /// **Errors:** the part that is beyond its bounds.
    pub fn new(requests: u64, period: &str, burst: Option<u64>) -> Result<Self, RateError> {
        let is_count = |count: u64| (1..=RATE_REQUESTS_MAX).contains(&count);
        let burst = burst.unwrap_or(requests);
        if !is_count(requests) {
            return Err(RateError::Requests);
        }
        if !is_count(burst) {
            return Err(RateError::Burst);
        }
        Ok(Self { requests, period_ms: period_ms(period).ok_or(RateError::Period)?, burst })
    }

    /// Calls in each period.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The period. **Units:** milliseconds.
    pub const fn period_ms(&self) -> u64 {
        self.period_ms
    }

    /// Calls that may come at once.
    pub const fn burst(&self) -> u64 {
        self.burst
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (requests, rest) = text.split_once('/').ok_or(RateError::Requests)?;
        let (period, burst) = match rest.split_once(" burst ") {
            Some((period, burst)) => (period, Some(count(burst).ok_or(RateError::Burst)?)),
            None => (rest, None),
        };
        Self::new(count(requests).ok_or(RateError::Requests)?, period, burst)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, unit_ms) =
            UNITS.iter().rev().find(|(_, ms)| self.period_ms.is_multiple_of(*ms)).unwrap_or(&UNITS[0]);
        write!(f, "{}/{}{unit}", self.requests, self.period_ms / unit_ms)?;
        if self.burst == self.requests { Ok(()) } else { write!(f, " burst {}", self.burst) }
    }
}

/// The length of a period such as `1m`: an integer and its unit, up to 30 days. **Units:** milliseconds.
pub fn period_ms(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let period_ms = count(number)?.checked_mul(*unit_ms)?;
    (1..=RATE_PERIOD_MS_MAX).contains(&period_ms).then_some(period_ms)
}

/// Digits alone: `parse` would take a sign as well.
fn count(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Units of a period and their milliseconds, ascending.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_and_written_in_the_same_words() {
        for text in ["100/1m", "1/1ms", "600/1m burst 50", "1000000000/30d burst 1", "3/90s burst 4", "5/1d"]
        {
            assert_eq!(text.parse::<Rate>().map(|rate| rate.to_string()).as_deref(), Ok(text));
        }
        let rate: Rate = "7/60s".parse().unwrap();
        assert_eq!((rate.requests(), rate.period_ms(), rate.burst()), (7, 60_000, 7));
        assert_eq!(rate.to_string(), "7/1m");
        assert_eq!("7/1m burst 7".parse(), Ok(rate));
    }

    #[test]
    fn each_part_beyond_its_bounds_is_named() {
        use RateError::{Burst, Period, Requests};
        for (text, error) in [
            ("", Requests),
            ("1m", Requests),
            ("0/1m", Requests),
            ("+1/1m", Requests),
            ("1000000001/1m", Requests),
            ("99999999999999999999/1m", Requests),
            ("1/1m burst 0", Burst),
            ("1/1m burst x", Burst),
            ("1/1m burst 1000000001", Burst),
            ("1/", Period),
            ("1/m", Period),
            ("1/1", Period),
            ("1/0s", Period),
            ("1/1w", Period),
            ("1/1m burst", Period),
            ("1/31d", Period),
            ("1/99999999999999999999d", Period),
            ("1/1 m", Period),
        ] {
            assert_eq!(text.parse::<Rate>(), Err(error), "{text}");
        }
    }
}
