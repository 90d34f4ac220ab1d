//! Summarizes outcomes and times of calls as a table or a JSON document.

use std::collections::BTreeMap;
use std::time::Duration;

use capd::client::ClientError;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::{output, terminal};

/// What the measured calls came to.
#[derive(Debug, Default)]
pub(super) struct Record {
    times: Option<Times>,
    /// Calls that ended badly, by what was said.
    errors: BTreeMap<String, u64>,
    /// Why there were no more calls.
    pub(super) lost: Option<ClientError>,
}

/// Times of calls that ended well. **Units:** nanoseconds.
#[derive(Debug)]
struct Times {
    /// From when each was due.
    latency: Histogram<u64>,
    /// From when each was begun.
    service: Histogram<u64>,
}

impl Record {
    pub(super) fn new() -> Result<Self, Failure> {
        let histogram = || {
            Histogram::new_with_bounds(SHORTEST_NS, LONGEST_NS, DIGITS)
                .map_err(|error| Failure::unexpected(format!("no histogram: {error}")))
        };
        let times = Some(Times { latency: histogram()?, service: histogram()? });
        Ok(Self { times, ..Self::default() })
    }

    /// Counts a call; `error` is why it ended badly.
    pub(super) fn add(&mut self, error: Option<&ClientError>, latency: Duration, service: Duration) {
        if let Some(error) = error {
            *self.errors.entry(name(error)).or_default() += 1;
            return;
        }
        let Some(times) = &mut self.times else { return };
        times.latency.saturating_record(nanoseconds(latency));
        times.service.saturating_record(nanoseconds(service));
    }

    /// Calls so far that ended well, and others.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.times.as_ref().map_or(0, |times| times.service.len()), self.errors.values().sum())
    }

    /// What is to be told of calls measured for `measured`.
    pub(super) fn report(self, args: &BenchArgs, measured: Duration) -> Report {
        let (calls, latency, service) = match self.times {
            None => (0, Spread::default(), Spread::default()),
            Some(Times { latency, service }) => {
                let spread = Spread::of(&service);
                let latency = match args.rate {
                    Some(_) => Spread::of(&latency),
                    // Each caller that waits leaves calls out that would have met the same stall.
                    None => Spread::of(&service.clone_correct(service.value_at_quantile(0.5).max(1))),
                };
                (service.len(), latency, spread)
            }
        };
        Report {
            capability: args.capability.clone(),
            in_flight: args.in_flight,
            rate: args.rate,
            seconds: measured.as_secs_f64(),
            warm_up_seconds: args.warm_up.as_secs_f64(),
            calls,
            errors: self.errors,
            latency,
            service,
        }
    }
}

/// What is printed.
#[derive(Debug)]
pub(super) struct Report {
    capability: String,
    in_flight: u32,
    rate: Option<u32>,
    seconds: f64,
    warm_up_seconds: f64,
    calls: u64,
    errors: BTreeMap<String, u64>,
    /// Corrected for coordinated omission.
    latency: Spread,
    service: Spread,
}

/// How long calls took. **Units:** microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    mean: f64,
    quantiles: [f64; QUANTILES.len()],
    max: f64,
}

impl Spread {
    fn of(times: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1_000.0;
        Self {
            mean: times.mean() / 1_000.0,
            quantiles: QUANTILES.map(|(_, _, quantile)| us(times.value_at_quantile(quantile))),
            max: us(times.max()),
        }
    }

    fn json(&self) -> Value {
        let mut value = json!({"mean": self.mean, "max": self.max});
        for ((_, key, _), us) in QUANTILES.iter().zip(self.quantiles) {
            value[*key] = us.into();
        }
        value
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let times = self.quantiles.into_iter().chain([self.max, self.mean]);
        std::iter::once(name.to_owned()).chain(times.map(shown)).collect()
    }
}

impl Report {
    fn rate_done(&self) -> f64 {
        if self.seconds > 0.0 { self.calls as f64 / self.seconds } else { 0.0 }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "capability": self.capability,
            "loop": if self.rate.is_some() { "open" } else { "closed" },
            "in_flight": self.in_flight,
            "rate": self.rate,
            "seconds": self.seconds,
            "warm_up_seconds": self.warm_up_seconds,
            "calls": self.calls,
            "calls_per_second": self.rate_done(),
            "errors": self.errors,
            "latency_us": self.latency.json(),
            "service_time_us": self.service.json(),
        })
    }

    pub(super) fn text(&self) -> String {
        let load = match self.rate {
            None => format!("{} calls in flight", terminal::grouped(self.in_flight.into())),
            Some(rate) => format!(
                "{} calls/s, at most {} in flight",
                terminal::grouped(rate.into()),
                terminal::grouped(self.in_flight.into())
            ),
        };
        let mut text = format!(
            "{}: {load}, {:.1} s after {:.1} s of warm-up\n\n{} calls, {} calls/s\n",
            self.capability,
            self.seconds,
            self.warm_up_seconds,
            terminal::grouped(self.calls),
            terminal::rate(self.rate_done())
        );
        for (error, count) in &self.errors {
            text.push_str(&format!("{} ended with {}\n", terminal::grouped(*count), output::one_line(error)));
        }
        let heading: Vec<_> =
            std::iter::once("").chain(QUANTILES.map(|(name, _, _)| name)).chain(["MAX", "MEAN"]).collect();
        let rows = [self.latency.cells("latency"), self.service.cells("service time")];
        text.push('\n');
        text.push_str(&output::table(&heading, &rows));
        text
    }
}

/// An error as errors are counted: by code, not by words.
fn name(error: &ClientError) -> String {
    match error {
        ClientError::Refused(wire) | ClientError::Result(wire) => wire.code.to_string(),
        ClientError::Timeout { .. } => "no answer in time".to_owned(),
        ClientError::Unsent(_) => "not sent: the link's queue is full".to_owned(),
        other => other.to_string(),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Microseconds in the unit that is read most easily.
fn shown(us: f64) -> String {
    if us < 1_000.0 {
        format!("{us:.1} µs")
    } else if us < 1_000_000.0 {
        format!("{:.2} ms", us / 1_000.0)
    } else {
        format!("{:.2} s", us / 1_000_000.0)
    }
}

/// Heading, JSON key, quantile.
const QUANTILES: [(&str, &str, f64); 5] = [
    ("P50", "p50", 0.5),
    ("P90", "p90", 0.9),
    ("P99", "p99", 0.99),
    ("P99.9", "p99_9", 0.999),
    ("P99.99", "p99_99", 0.9999),
];
/// Times are told apart to a thousandth, from a microsecond to an hour.
const DIGITS: u8 = 3;
const SHORTEST_NS: u64 = 1_000;
const LONGEST_NS: u64 = 3_600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn args(rate: Option<u32>) -> BenchArgs {
        let second = Duration::from_secs(1);
        BenchArgs {
            capability: "org.example.echo:1.0.0".to_owned(),
            version: None,
            params: "null".to_owned(),
            to: None,
            in_flight: 2,
            rate,
            duration: second,
            warm_up: second,
            timeout: second,
            ttl: 2 * second,
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_stall_counts_for_the_calls_that_it_held_up() {
        let mut record = Record::new().unwrap();
        for _ in 0..99 {
            record.add(None, ms(1), ms(1));
        }
        record.add(None, ms(1_000), ms(1_000));
        let report = record.report(&args(None), Duration::from_secs(1));
        assert_eq!(report.calls, 100);
        let [p50, _, p99, ..] = report.service.quantiles;
        assert!((0.9..1.1).contains(&(p50 / 1_000.0)) && p99 < 1_100.0, "as measured: {p50} and {p99}");
        let [p50, _, p99, ..] = report.latency.quantiles;
        assert!(p50 > 300_000.0 && p99 > 900_000.0, "999 more calls would have met it: {p50} and {p99}");
    }

    #[test]
    fn an_open_loop_tells_times_from_when_calls_were_due() {
        let mut record = Record::new().unwrap();
        record.add(None, ms(500), ms(2));
        let report = record.report(&args(Some(10)), Duration::from_secs(2)).json();
        let us = |of: &str| report[of]["p50"].as_f64().unwrap();
        assert!((499_000.0..501_000.0).contains(&us("latency_us")), "{report}");
        assert!((1_990.0..2_010.0).contains(&us("service_time_us")), "{report}");
        assert_eq!((&report["calls_per_second"], &report["loop"]), (&json!(0.5), &json!("open")));
    }

    #[test]
    fn errors_are_counted_by_code_and_their_times_are_not() {
        let mut record = Record::new().unwrap();
        for id in [1, 2] {
            let id = capd_proto::envelope::MessageId::new(id, [0; 8]);
            record.add(Some(&ClientError::Timeout { id, after: ms(5) }), ms(5), ms(5));
        }
        let report = record.report(&args(None), Duration::from_secs(1));
        assert_eq!(report.json()["errors"], json!({"no answer in time": 2}));
        assert!(
            report.text().contains("0 calls, 0 calls/s\n2 ended with no answer in time\n"),
            "{}",
            report.text()
        );
    }
}
