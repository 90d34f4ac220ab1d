//! Computes what a sidecar did between two readings of its metrics: rates, latencies and the use of its limits, out.
//!
//! `capctl top` and the page show the same numbers, and those of Prometheus' `rate` and `histogram_quantile` over the same
//! two readings.

use std::collections::BTreeMap;

use capd_proto::message::{MetricFamily, MetricPart, MetricSample, MetricValue};
use serde_json::{Value, json};

use super::{
    CALL_DURATION, CALLS, CALLS_IN_FLIGHT, LIMIT_LEVEL, LIMIT_MAX, LIMIT_REFUSALS, LINKS, Metric,
    QUEUE_BYTES, RECEIVED_BYTES, SENT_BYTES, START_TIME,
};

/// All metrics at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When they were read. **Units:** milliseconds of any clock that does not jump.
    pub at_ms: u64,
    /// What was read.
    pub families: Vec<MetricFamily<'static>>,
}

/// What happened between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// The calls of each role: `caller`, and `executor`.
    pub roles: BTreeMap<String, Calls>,
    /// Open links by their kind.
    pub links: BTreeMap<String, u64>,
    /// **Units:** bytes per second.
    pub received_rate: f64,
    /// **Units:** bytes per second.
    pub sent_rate: f64,
    /// Bytes that wait to be written.
    pub queue_bytes: u64,
    /// Every limit, the fullest first.
    pub limits: Vec<Limit>,
    /// When the sidecar started. **Units:** seconds since 1970.
    pub started_at: u64,
}

/// The calls of one role.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// Calls that ended with each outcome, per second.
    pub rates: BTreeMap<String, f64>,
    /// Errors and refusals by outcome and code, per second.
    pub codes: BTreeMap<(String, String), f64>,
    /// Calls in flight.
    pub in_flight: u64,
    /// Half of the calls took no longer; none without a call. **Units:** milliseconds.
    pub p50_ms: Option<f64>,
    /// All but one of a hundred calls took no longer; none without a call. **Units:** milliseconds.
    pub p99_ms: Option<f64>,
}

/// One limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limit {
    /// The configuration key that sets it.
    pub key: String,
    /// Its use.
    pub level: Option<u64>,
    /// Its value.
    pub max: Option<u64>,
    /// What it refused since the sidecar started.
    pub refused: u64,
    /// What it refused between both readings.
    pub refused_now: u64,
}

impl Calls {
    /// Calls that ended, per second.
    pub fn rate(&self) -> f64 {
        // The sum of no numbers is -0.
        self.rates.values().sum::<f64>() + 0.0
    }

    fn json(&self) -> Value {
        let codes = self
            .codes
            .iter()
            .map(|((outcome, code), rate)| json!({"outcome": outcome, "code": code, "rate": rounded(*rate)}));
        let rates: BTreeMap<_, _> =
            self.rates.iter().map(|(outcome, rate)| (outcome, rounded(*rate))).collect();
        json!({
            "rate": rounded(self.rate()),
            "rates": rates,
            "codes": codes.collect::<Vec<_>>(),
            "in_flight": self.in_flight,
            "p50_ms": self.p50_ms.map(rounded),
            "p99_ms": self.p99_ms.map(rounded),
        })
    }
}

impl Limit {
    /// How full it is; none without a level or a bound. **Units:** a share, 1 is full.
    pub fn share(&self) -> Option<f64> {
        let (level, max) = (self.level?, self.max.filter(|max| *max > 0)?);
        Some(level as f64 / max as f64)
    }

    fn json(&self) -> Value {
        json!({
            "key": self.key, "level": self.level, "max": self.max, "refused": self.refused,
            "refused_now": self.refused_now, "share": self.share().map(rounded),
        })
    }
}

impl Load {
    /// What happened between two readings; without an older one, or after a restart, since the sidecar started, with no rates.
    pub fn between(old: Option<&Reading>, new: &Reading) -> Self {
        let started_at = alone(new, &START_TIME);
        let old = old.filter(|old| alone(old, &START_TIME) == started_at && old.at_ms < new.at_ms);
        let seconds = old.map_or(f64::INFINITY, |old| (new.at_ms - old.at_ms) as f64 / 1_000.0);
        let rate = |metric: &Metric, sample: &MetricSample<'_>| {
            let before = old.map_or(0, |old| value(old, metric, &labels_of(sample)));
            uint(sample).saturating_sub(before) as f64 / seconds
        };
        let mut roles: BTreeMap<String, Calls> = BTreeMap::new();
        for sample in samples(new, &CALLS) {
            let calls = roles.entry(label(sample, "role").to_owned()).or_default();
            let (outcome, code) = (label(sample, "outcome").to_owned(), label(sample, "code").to_owned());
            let rate = rate(&CALLS, sample);
            *calls.rates.entry(outcome.clone()).or_default() += rate;
            if !code.is_empty() && rate > 0.0 {
                calls.codes.insert((outcome, code), rate);
            }
        }
        for sample in samples(new, &CALLS_IN_FLIGHT) {
            roles.entry(label(sample, "role").to_owned()).or_default().in_flight = uint(sample);
        }
        for (role, calls) in &mut roles {
            let buckets = buckets(old, new, role);
            (calls.p50_ms, calls.p99_ms) = (quantile(&buckets, 0.5), quantile(&buckets, 0.99));
        }
        let total = |metric: &Metric| samples(new, metric).map(|sample| rate(metric, sample)).sum();
        let links = samples(new, &LINKS).map(|sample| (label(sample, "kind").to_owned(), uint(sample)));
        Self {
            roles,
            links: links.filter(|(_, count)| *count > 0).collect(),
            received_rate: total(&RECEIVED_BYTES),
            sent_rate: total(&SENT_BYTES),
            queue_bytes: alone(new, &QUEUE_BYTES),
            limits: limits(old, new),
            started_at,
        }
    }

    /// **Shape:** `{"roles": {role: {"rate", "rates", "codes", "in_flight", "p50_ms", "p99_ms"}}, "links", "received_rate",
    /// "sent_rate", "queue_bytes", "limits": [{"key", "level", "max", "refused", "refused_now", "share"}], "started_at"}`.
    pub fn json(&self) -> Value {
        let roles: BTreeMap<_, _> = self.roles.iter().map(|(role, calls)| (role, calls.json())).collect();
        json!({
            "roles": roles,
            "links": self.links,
            "received_rate": rounded(self.received_rate),
            "sent_rate": rounded(self.sent_rate),
            "queue_bytes": self.queue_bytes,
            "limits": self.limits.iter().map(Limit::json).collect::<Vec<_>>(),
            "started_at": self.started_at,
        })
    }
}

type Labels = Vec<(String, String)>;

fn limits(old: Option<&Reading>, new: &Reading) -> Vec<Limit> {
    let mut limits: BTreeMap<&str, Limit> = BTreeMap::new();
    for (metric, put) in [
        (&LIMIT_LEVEL, (|limit, value| limit.level = Some(value)) as fn(&mut Limit, u64)),
        (&LIMIT_MAX, |limit, value| limit.max = Some(value)),
        (&LIMIT_REFUSALS, |limit, value| limit.refused = value),
    ] {
        for sample in samples(new, metric) {
            put(limits.entry(label(sample, "limit")).or_default(), uint(sample));
        }
    }
    let mut limits: Vec<Limit> = limits
        .into_iter()
        .map(|(key, limit)| {
            let labels = vec![("limit".to_owned(), key.to_owned())];
            let before = old.map_or(limit.refused, |old| value(old, &LIMIT_REFUSALS, &labels));
            Limit { key: key.to_owned(), refused_now: limit.refused.saturating_sub(before), ..limit }
        })
        .collect();
    limits.sort_by(|one, other| {
        let order = |limit: &Limit| (limit.refused_now, limit.share().unwrap_or(0.0));
        let ((one_refused, one_share), (other_refused, other_share)) = (order(one), order(other));
        other_refused.cmp(&one_refused).then(other_share.total_cmp(&one_share)).then(one.key.cmp(&other.key))
    });
    limits
}

/// Calls of one role that took no longer than each bound, whatever their outcome. **Units:** bounds in seconds.
fn buckets(old: Option<&Reading>, new: &Reading, role: &str) -> Vec<(f64, u64)> {
    let mut sums: Vec<(f64, u64)> = Vec::new();
    for sample in samples(new, &CALL_DURATION) {
        if sample.part != Some(MetricPart::Bucket) || label(sample, "role") != role {
            continue;
        }
        let bound = label(sample, "le").parse().unwrap_or(f64::INFINITY);
        let before = old.map_or(0, |old| {
            let labels = labels_of(sample);
            let same = samples(old, &CALL_DURATION)
                .find(|other| other.part == Some(MetricPart::Bucket) && labels_of(other) == labels);
            same.map_or(0, uint)
        });
        let count = uint(sample).saturating_sub(before);
        match sums.iter_mut().find(|(known, _)| *known == bound) {
            Some((_, sum)) => *sum += count,
            None => sums.push((bound, count)),
        }
    }
    sums.sort_by(|one, other| one.0.total_cmp(&other.0));
    sums
}

/// The quantile by linear interpolation within its bucket, as Prometheus does it. **Units:** milliseconds.
fn quantile(buckets: &[(f64, u64)], share: f64) -> Option<f64> {
    let (_, all) = *buckets.last().filter(|(_, all)| *all > 0)?;
    let rank = share * all as f64;
    let index = buckets.partition_point(|(_, count)| (*count as f64) < rank);
    let (bound, count) = *buckets.get(index)?;
    let (lower, below) = index.checked_sub(1).map_or((0.0, 0), |before| buckets[before]);
    if bound.is_infinite() {
        return Some(lower * 1_000.0);
    }
    let within = (rank - below as f64) / (count.saturating_sub(below).max(1)) as f64;
    Some((lower + (bound - lower) * within) * 1_000.0)
}

fn samples<'a>(reading: &'a Reading, metric: &Metric) -> impl Iterator<Item = &'a MetricSample<'static>> {
    let name = metric.name;
    let families = reading.families.iter().filter(move |family| family.name == name);
    families.flat_map(|family| &family.samples)
}

fn value(reading: &Reading, metric: &Metric, labels: &Labels) -> u64 {
    samples(reading, metric).find(|sample| labels_of(sample) == *labels).map_or(0, uint)
}

fn alone(reading: &Reading, metric: &Metric) -> u64 {
    samples(reading, metric).next().map_or(0, uint)
}

fn labels_of(sample: &MetricSample<'_>) -> Labels {
    sample.labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn label<'a>(sample: &'a MetricSample<'_>, name: &str) -> &'a str {
    sample.labels.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
}

fn uint(sample: &MetricSample<'_>) -> u64 {
    match sample.value {
        MetricValue::Uint(value) => value,
        MetricValue::Float(value) => value as u64,
    }
}

/// To three digits behind the point, which is all that is shown.
fn rounded(value: f64) -> f64 {
    if value.is_finite() { (value * 1_000.0).round() / 1_000.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::Distribution;
    use super::*;

    fn reading(at_ms: u64, started: u64, calls: u64, buckets: [u64; 2], refused: u64) -> Reading {
        let took = Distribution {
            labels: ["caller".into(), "success".into()],
            buckets: vec![(1_000, buckets[0]), (10_000, buckets[1])],
            count: buckets[1],
            sum_us: 0,
        };
        let families = vec![
            START_TIME.alone(started),
            CALLS.family([
                (["".into(), "caller".into(), "success".into()], calls),
                (["5003".into(), "caller".into(), "error".into()], calls / 2),
            ]),
            CALLS_IN_FLIGHT.family([(["caller".into()], 3)]),
            CALL_DURATION.histogram([took]),
            LIMIT_LEVEL.family([(["limits.a".into()], 5), (["limits.b".into()], 9)]),
            LIMIT_MAX.family([(["limits.a".into()], 10), (["limits.b".into()], 10)]),
            LIMIT_REFUSALS.family([(["limits.a".into()], refused)]),
            RECEIVED_BYTES.alone(calls * 100),
        ];
        Reading { at_ms, families }
    }

    #[test]
    fn rates_and_quantiles_are_of_the_time_between_both_readings() {
        let (old, new) = (reading(1_000, 7, 100, [100, 100], 0), reading(3_000, 7, 300, [200, 300], 0));
        let load = Load::between(Some(&old), &new);
        let calls = &load.roles["caller"];
        assert_eq!((calls.rates["success"], calls.rates["error"], calls.rate()), (100.0, 50.0, 150.0));
        assert_eq!(calls.codes[&("error".to_owned(), "5003".to_owned())], 50.0);
        assert_eq!((calls.in_flight, load.received_rate), (3, 10_000.0));
        // Half of the 200 calls took at most a millisecond; the 198th is in the second bucket.
        assert_eq!(calls.p50_ms, Some(1.0));
        assert!(calls.p99_ms.is_some_and(|ms| (9.8..10.0).contains(&ms)), "{calls:?}");
    }

    #[test]
    fn a_limit_that_refuses_comes_first_and_then_the_fullest() {
        let keys = |load: &Load| load.limits.iter().map(|limit| limit.key.clone()).collect::<Vec<_>>();
        let (old, quiet) = (reading(1, 7, 0, [0, 0], 2), reading(2, 7, 0, [0, 0], 2));
        assert_eq!(keys(&Load::between(Some(&old), &quiet)), ["limits.b", "limits.a"]);
        let load = Load::between(Some(&old), &reading(2, 7, 0, [0, 0], 5));
        assert_eq!(
            (keys(&load), load.limits[0].refused_now),
            (vec!["limits.a".into(), "limits.b".into()], 3)
        );
    }

    #[test]
    fn without_an_older_reading_of_the_same_process_there_are_no_rates() {
        let new = reading(3_000, 7, 300, [200, 300], 4);
        let restarted = reading(1_000, 6, 500, [100, 100], 9);
        for old in [None, Some(&restarted), Some(&new)] {
            let load = Load::between(old, &new);
            assert_eq!((load.roles["caller"].rate(), load.limits[0].refused_now), (0.0, 0), "{old:?}");
            assert!(load.roles["caller"].p50_ms.is_some());
            let text = load.json().to_string();
            assert!(!text.contains("null,\"rate"), "{text}");
        }
        let empty = Load::between(None, &Reading { at_ms: 1, families: Vec::new() });
        assert_eq!(empty, Load::default());
    }
}
