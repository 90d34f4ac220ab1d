//! Formats milliseconds since the Unix epoch as date and time in UTC.

/// The moment as RFC 3339 has it, to the second: `2026-11-21T12:20:58Z`.
pub(crate) fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1_000;
    let (year, month, day) = date(seconds / SECONDS_PER_DAY);
    let of_day = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day since the epoch, in the Gregorian calendar.
///
/// Years are counted from March, so that a leap day is the last of its year; an era is 400 years, after which the
/// calendar repeats.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_FROM_YEAR_0;
    let (era, of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // The lengths of five months from March on add up to 153 days, twice.
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day)
}

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
const DAYS_PER_ERA: u64 = 146_097;
/// Days from the first of March of the year 0 to the epoch.
const DAYS_FROM_YEAR_0: u64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (1_707_055_200_000, "2024-02-04T14:00:00Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(ms), text);
        }
        assert!(utc(u64::MAX).ends_with('Z'), "a time from elsewhere may be any number");
    }

    #[test]
    fn each_day_is_followed_by_the_next() {
        let mut before = date(0);
        for days in 1..=DAYS_PER_ERA {
            let (year, month, day) = date(days);
            let is_next = (year, month) == (before.0, before.1) && day == before.2 + 1
                || day == 1 && (year, month) == (before.0, before.1 + 1)
                || (month, day) == (1, 1) && (year, before.1) == (before.0 + 1, 12);
            assert!(is_next, "{before:?}, {:?}", (year, month, day));
            before = (year, month, day);
        }
        assert_eq!(before, (2370, 1, 1));
    }
}
