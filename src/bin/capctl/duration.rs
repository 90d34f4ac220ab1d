//! Parses a duration such as `30s`.

use std::time::Duration;

/// Reads a whole number with a unit: `500ms`, `30s`, `2m`, `1h`.
///
/// **Errors:** no unit, an unknown unit, zero, or more than [`HOURS_MAX`] hours; the text says what is accepted.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits_end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(ACCEPTED.to_owned()),
    };
    let count: u64 = digits.parse().map_err(|_| ACCEPTED.to_owned())?;
    let ms = count.checked_mul(unit_ms).filter(|ms| *ms <= HOURS_MAX * 3_600_000);
    match ms {
        Some(0) => Err("a duration must be more than zero".to_owned()),
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => Err(format!("at most {HOURS_MAX}h")),
    }
}

/// Milliseconds of a duration made by [`parse`], which is far below `u64`'s range.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

const ACCEPTED: &str = "expected a whole number with a unit: 500ms, 30s, 2m or 1h";
/// Longest duration, in hours: the thirty days that an envelope may live (PROTOCOL 5).
const HOURS_MAX: u64 = 720;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_is_read() {
        for (text, ms) in
            [("500ms", 500), ("30s", 30_000), ("2m", 120_000), ("1h", 3_600_000), ("007s", 7_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse("720h").map(super::ms), Ok(capd_proto::limits::TTL_MS_MAX));
    }

    #[test]
    fn anything_else_is_refused_and_says_what_is_accepted() {
        for text in
            ["", "30", "s", "1.5s", "-1s", "+1s", "1 s", "30S", "1d", "s30", "9999999999999999999999s"]
        {
            assert_eq!(parse(text), Err(ACCEPTED.to_owned()), "{text:?}");
        }
        assert!(parse("0s").unwrap_err().contains("zero"));
        assert_eq!(parse("721h"), Err("at most 720h".to_owned()));
        assert_eq!(parse("18446744073709551615h"), Err("at most 720h".to_owned()));
    }
}
