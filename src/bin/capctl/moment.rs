//! Parses a moment such as `24h` (ago) or `2026-11-21T12:00:00Z`.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A moment in the past: so long ago, or at a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// **Units:** milliseconds.
    Ago(u64),
    /// **Units:** milliseconds since the Unix epoch.
    At(u64),
}

impl Moment {
    /// The moment, told at `now_ms`. **Units:** milliseconds since the Unix epoch.
    pub(crate) const fn ms(self, now_ms: u64) -> u64 {
        match self {
            Self::Ago(ms) => now_ms.saturating_sub(ms),
            Self::At(ms) => ms,
        }
    }
}

/// Reads a whole number with a unit (`500ms`, `30s`, `2m`, `24h`, `90d`), or a time of RFC 3339.
///
/// **Errors:** neither; the text says what is accepted.
pub(crate) fn parse(text: &str) -> Result<Moment, String> {
    if let Ok(at) = OffsetDateTime::parse(text, &Rfc3339) {
        let ms = u64::try_from(at.unix_timestamp_nanos() / 1_000_000);
        return ms.map(Moment::At).map_err(|_| "a time before 1970".to_owned());
    }
    let digits_end = text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(ACCEPTED.to_owned()),
    };
    let count: u64 = digits.parse().map_err(|_| ACCEPTED.to_owned())?;
    count.checked_mul(unit_ms).map(Moment::Ago).ok_or_else(|| ACCEPTED.to_owned())
}

const ACCEPTED: &str = "expected how long ago (30s, 2m, 24h, 90d), or a time (2026-11-21T12:00:00Z)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_so_long_ago_or_at_a_time() {
        for (text, moment) in [
            ("0s", Moment::Ago(0)),
            ("500ms", Moment::Ago(500)),
            ("24h", Moment::Ago(86_400_000)),
            ("90d", Moment::Ago(90 * 86_400_000)),
            ("1970-01-01T00:00:01Z", Moment::At(1_000)),
            ("2024-02-04T15:00:00.250+01:00", Moment::At(1_707_055_200_250)),
        ] {
            assert_eq!(parse(text), Ok(moment), "{text}");
        }
        assert_eq!(Moment::Ago(5).ms(1_000), 995);
        assert_eq!(Moment::Ago(5).ms(1), 0, "and never before 1970");
        assert_eq!(Moment::At(5).ms(1_000), 5);
    }

    #[test]
    fn anything_else_says_what_is_accepted() {
        for text in [
            "",
            "5",
            "d",
            "-1h",
            "1.5h",
            "2026-11-21",
            "2026-11-21T12:00:00",
            "yesterday",
            "18446744073709551615d",
        ] {
            assert_eq!(parse(text), Err(ACCEPTED.to_owned()), "{text:?}");
        }
        assert!(parse("1969-12-31T00:00:00Z").unwrap_err().contains("1970"));
    }
}
