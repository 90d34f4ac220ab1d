//! Parses the query of a URI: its parameters, each known and given once.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use super::problem::Problem;

/// The parameters of a request.
pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// Reads them. **Errors:** 400 for one that is not among `known`, or stands twice.
    pub(super) fn read(query: Option<&'a str>, known: &[&str]) -> Result<Self, Problem> {
        let mut found: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !known.contains(&&*name) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Problem::bad(format!("the parameter {name:?} is not known; known: {known}")));
            }
            if found.iter().any(|(other, _)| *other == name) {
                return Err(Problem::bad(format!("the parameter {name:?} stands twice")));
            }
            found.push((name, value));
        }
        Ok(Self(found))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(found, value)| (found == name).then_some(&**value))
    }

    /// A parameter that is a value of this type.
    pub(super) fn parsed<T: FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Problem> {
        let parse = |text: &str| {
            text.parse().map_err(|error| Problem::bad(format!("the parameter {name}={text:?}: {error}")))
        };
        self.text(name).map(parse).transpose()
    }

    /// A parameter that is a span of time.
    pub(super) fn duration(&self, name: &str) -> Result<Option<Duration>, Problem> {
        let parse = |text: &str| {
            duration(text).ok_or_else(|| {
                let accepted = "a whole number and ms, s, m, h or d, such as 1500ms or 30s";
                Problem::bad(format!("{name}: {text:?} is no span of time; accepted: {accepted}"))
            })
        };
        self.text(name).map(parse).transpose()
    }
}

/// A whole number with its unit.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_time_has_a_unit() {
        for (text, ms) in
            [("0ms", 0), ("1500ms", 1_500), ("30s", 30_000), ("2m", 120_000), ("1d", 86_400_000)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "30", "-1s", "1.5s", "1 s", "99999999999999999999s", "300000000000000d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn parameters_are_known_and_stand_once() {
        let query = Query::read(Some("a=1&b=x%20y"), &["a", "b"]).unwrap();
        assert_eq!((query.text("b"), query.parsed::<u64>("a").unwrap()), (Some("x y"), Some(1)));
        assert!(Query::read(Some("c=1"), &["a"]).is_err());
        assert!(Query::read(Some("a=1&a=2"), &["a"]).is_err());
        assert!(query.parsed::<u64>("b").is_err());
    }
}
