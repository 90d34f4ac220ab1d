//! Names the metrics: counts from the parts of a sidecar in; stable metric names, and their text for scrapers, out.
//!
//! [`METRICS`] is their only table. The daemon fills it in, [`text()`] writes it for Prometheus, [`reference()`]
//! writes it for the documentation, and [`Load`] says what happened between two readings.

mod load;
mod text;

use std::borrow::Cow;
use std::fmt::Write as _;

use capd_proto::message::{MetricFamily, MetricKind, MetricPart, MetricSample, MetricValue};

pub use load::{Calls, Limit, Load, Reading};
pub use text::text;

/// One metric: its name, the meaning of its values, and its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name: a counter's ends in `_total`, preceded by the unit.
    pub name: &'static str,
    /// Whether it counts or shows a level.
    pub kind: MetricKind,
    /// Its meaning in one sentence.
    pub help: &'static str,
    /// The names of its labels, in the order on the wire: shorter ones first.
    pub labels: &'static [&'static str],
}

impl Metric {
    /// The metric with these samples: a label's value for each of its labels, and the value.
    pub fn family<const N: usize>(
        &self,
        samples: impl IntoIterator<Item = ([Cow<'static, str>; N], u64)>,
    ) -> MetricFamily<'static> {
        debug_assert_eq!(self.labels.len(), N, "{}", self.name);
        let names = || self.labels.iter().map(|name| Cow::Borrowed(*name));
        let sample = |(values, value): ([_; N], u64)| MetricSample {
            labels: names().zip(values).collect(),
            part: None,
            value: MetricValue::Uint(value),
        };
        self.told(samples.into_iter().map(sample).collect())
    }

    /// The same with values that have a fraction.
    pub fn fractions<const N: usize>(
        &self,
        samples: impl IntoIterator<Item = ([Cow<'static, str>; N], f64)>,
    ) -> MetricFamily<'static> {
        debug_assert_eq!(self.labels.len(), N, "{}", self.name);
        let names = || self.labels.iter().map(|name| Cow::Borrowed(*name));
        let sample = |(values, value): ([_; N], f64)| MetricSample {
            labels: names().zip(values).collect(),
            part: None,
            value: MetricValue::Float(value),
        };
        self.told(samples.into_iter().map(sample).collect())
    }

    /// A histogram with, for each set of label values, how many took no longer than each bound, how many there were, and their
    /// sum. **Units:** bounds and sums in microseconds; the metric's own unit is seconds.
    pub fn histogram<const N: usize>(
        &self,
        distributions: impl IntoIterator<Item = Distribution<N>>,
    ) -> MetricFamily<'static> {
        debug_assert_eq!(self.labels.len(), N, "{}", self.name);
        let mut samples = Vec::new();
        for Distribution { labels, buckets, count, sum_us } in distributions {
            let labels: Vec<(Cow<'static, str>, _)> =
                self.labels.iter().map(|name| Cow::Borrowed(*name)).zip(labels).collect();
            let mut add = |part, le: Option<String>, value| {
                let le = le.map(|bound| (Cow::Borrowed("le"), Cow::Owned(bound)));
                let labels = le.into_iter().chain(labels.iter().cloned()).collect();
                samples.push(MetricSample { labels, part: Some(part), value });
            };
            for (bound_us, up_to) in buckets {
                add(MetricPart::Bucket, Some(seconds(bound_us).to_string()), MetricValue::Uint(up_to));
            }
            add(MetricPart::Bucket, Some("+Inf".to_owned()), MetricValue::Uint(count));
            add(MetricPart::Sum, None, MetricValue::Float(seconds(sum_us)));
            add(MetricPart::Count, None, MetricValue::Uint(count));
        }
        self.told(samples)
    }

    fn told(&self, samples: Vec<MetricSample<'static>>) -> MetricFamily<'static> {
        MetricFamily { name: self.name.into(), kind: self.kind, help: self.help.into(), samples }
    }

    /// A metric without labels.
    pub fn alone(&self, value: u64) -> MetricFamily<'static> {
        self.family([([], value)])
    }
}

/// How long something took, each time that it happened.
#[derive(Clone, Debug)]
pub struct Distribution<const N: usize> {
    /// A value for each of the metric's labels.
    pub labels: [Cow<'static, str>; N],
    /// Bounds in rising order, and how often it took no longer than each. **Units:** microseconds.
    pub buckets: Vec<(u64, u64)>,
    /// How often it happened.
    pub count: u64,
    /// All of it added up. **Units:** microseconds.
    pub sum_us: u64,
}

/// As a float, which every whole number of microseconds of the next 285 years is exact in before the division.
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Counter, help, labels }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, help, labels }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Histogram, help, labels }
}

/// Always 1.
pub const BUILD_INFO: Metric =
    gauge("capd_build_info", &["version"], "1, labelled with the running version.");
/// When the sidecar started.
pub const START_TIME: Metric =
    gauge("capd_start_time_seconds", &[], "When the sidecar started, in seconds since 1970.");
/// How late the event loop turns.
pub const EVENT_LOOP_LAG: Metric = histogram(
    "capd_event_loop_lag_seconds",
    &[],
    "How late a timer of the event loop fires, measured four times a second while a call waits for a peer, once a second while there are other calls, and every five seconds while there are none; whatever delays it delays every call.",
);
/// Open links.
pub const LINKS: Metric = gauge(
    "capd_links",
    &["kind"],
    "Open links: of peers over quic or tcp, of the agent over unix or local-tcp.",
);
/// Bytes in.
pub const RECEIVED_BYTES: Metric =
    counter("capd_received_bytes_total", &[], "Bytes of frames received, on all links.");
/// Bytes out.
pub const SENT_BYTES: Metric =
    counter("capd_sent_bytes_total", &[], "Bytes of frames handed to the kernel, on all links.");
/// Bytes waiting.
pub const QUEUE_BYTES: Metric =
    gauge("capd_queue_bytes", &[], "Bytes that wait to be written, on all links.");
/// Calls by how they ended.
pub const CALLS: Metric = counter(
    "capd_calls_total",
    &["code", "role", "outcome"],
    "Calls that ended, as in the access log: by the error's code, role (executor, caller) and outcome (success, error, refused).",
);
/// How long calls took.
pub const CALL_DURATION: Metric = histogram(
    "capd_call_duration_seconds",
    &["role", "outcome"],
    "Time from a call's arrival to its end, by role (executor, caller), outcome (success, error, refused) and, if metrics.capabilities is on, capability.",
);
/// How long calls took, where metrics name capabilities.
pub const CALL_DURATION_BY_CAPABILITY: Metric =
    Metric { labels: &["role", "outcome", "capability"], ..CALL_DURATION };
/// Calls in flight.
pub const CALLS_IN_FLIGHT: Metric = gauge(
    "capd_calls_in_flight",
    &["role"],
    "Calls that run here (executor), and the agent's calls to peers (caller).",
);
/// Links to each peer.
pub const PEER_LINKS: Metric = gauge(
    "capd_peer_links",
    &["peer"],
    "Open links to each peer of [[peers]], and to members of the fleet that have one; at most 500 peers are told of.",
);
/// How far away each peer is.
pub const PEER_ROUND_TRIP: Metric = gauge(
    "capd_peer_round_trip_seconds",
    &["peer"],
    "Round trip to each peer with a QUIC link, on the fastest one.",
);
/// How lossy the path to each peer is.
pub const PEER_LOST: Metric = gauge(
    "capd_peer_lost_ratio",
    &["peer"],
    "Share of the packets to each peer that were lost, since its open QUIC links began.",
);
/// Bytes from each peer.
pub const PEER_RECEIVED_BYTES: Metric = counter(
    "capd_peer_received_bytes_total",
    &["peer"],
    "Bytes of frames received from each peer, on all its links since the start.",
);
/// Bytes to each peer.
pub const PEER_SENT_BYTES: Metric = counter(
    "capd_peer_sent_bytes_total",
    &["peer"],
    "Bytes of frames for each peer that were handed to the kernel, on all its links since the start.",
);
/// Capabilities that peers declare but may not serve.
pub const PEER_CAPABILITIES_WITHHELD: Metric = gauge(
    "capd_peer_capabilities_withheld",
    &[],
    "Capabilities that connected peers declare beyond their serves in [[peers]]; none is ever called.",
);
/// Registrations and memberships that do not count.
pub const FLEET_REFUSED: Metric = counter(
    "capd_fleet_refused_total",
    &["why"],
    "Registrations of the fleet's registry and memberships of peers that do not count, by reason.",
);
/// How old what is known of the registry is.
pub const FLEET_STALE: Metric = gauge(
    "capd_fleet_stale_seconds",
    &[],
    "How long what is known of the fleet's registry may be out of date; 0 while it is current.",
);
/// How old what is known of revocations is.
pub const FLEET_REVOCATIONS_AGE: Metric = gauge(
    "capd_fleet_revocations_age_seconds",
    &[],
    "Age of the known revocations; beyond fleet.deny_max_age_ms, no link between members opens.",
);
/// Whether the registry is believed.
pub const FLEET_FROZEN: Metric = gauge(
    "capd_fleet_frozen",
    &[],
    "1 while so much of the fleet's registry vanished at once that nothing of it is dropped.",
);
/// Whether another process has this identity.
pub const FLEET_FENCED: Metric =
    gauge("capd_fleet_fenced", &[], "1 while another process has this sidecar's identity; alert on any.");
/// Whether the sidecar is registered.
pub const FLEET_REGISTERED: Metric =
    gauge("capd_fleet_registered", &[], "1 while what the agent serves is registered in its fleet.");
/// Names that calls want.
pub const FLEET_NAMES: Metric =
    gauge("capd_fleet_names", &[], "Names of the fleet's registry that are watched, since calls want them.");
/// Providers of them.
pub const FLEET_CANDIDATES: Metric =
    gauge("capd_fleet_candidates", &[], "Providers that are known of the watched names.");
/// Verdicts over what peers serve.
pub const DRIFT_VERDICTS: Metric = counter(
    "capd_drift_verdicts_total",
    &["verdict"],
    "Schemas of providers that were compared with what the agent requires: proven, drifted (calls end with 4902), unknown (4903), or unpublished (calls pass, payloads are checked).",
);
/// The journal's changes.
pub const JOURNAL_CHANGES: Metric =
    counter("capd_journal_changes_total", &[], "Changes that the journal made durable.");
/// The journal's commits.
pub const JOURNAL_COMMITS: Metric =
    counter("capd_journal_commits_total", &[], "Commits of the journal's changes; many changes share one.");
/// The journal's failures.
pub const JOURNAL_FAILURES: Metric =
    counter("capd_journal_failures_total", &[], "Changes that the journal could not write.");
/// The journal's size.
pub const JOURNAL_BYTES: Metric = gauge(
    "capd_journal_bytes",
    &[],
    "Bytes on disk of journal.db and its log, as of the reading before; limits.ledger_entries_max has the calls in it.",
);
/// Audit records.
pub const AUDIT_RECORDS: Metric = counter("capd_audit_records_total", &[], "Audit records written.");
/// Audit records that are missing.
pub const AUDIT_RECORDS_LOST: Metric =
    counter("capd_audit_records_lost_total", &[], "Audit records that could not be written and are lost.");
/// How full the audit log is.
pub const AUDIT_USED_PERCENT: Metric = gauge(
    "capd_audit_used_percent",
    &[],
    "Share of audit.file_bytes_max in use, in percent; above 100 minus audit.reserved_percent, denials are no longer recorded.",
);
/// Denials that the reserve kept out.
pub const AUDIT_DENIALS_WITHHELD: Metric = counter(
    "capd_audit_denials_withheld_total",
    &[],
    "Records of denials that were not written, to keep the reserve of the audit log; alert on any.",
);
/// Denied messages.
pub const DENIED: Metric = counter(
    "capd_denied_total",
    &[],
    "Denied messages: refused with 3001, also those recorded together, or with 3005 because their sender was denied too often.",
);
/// Log lines that are missing.
pub const LOG_LINES_DROPPED: Metric =
    counter("capd_log_lines_dropped_total", &[], "Log lines that were dropped because stderr was blocked.");
/// Exported spans.
pub const SPANS_EXPORTED: Metric =
    counter("capd_spans_exported_total", &[], "Spans of calls that the OpenTelemetry collector took.");
/// Dropped spans.
pub const SPANS_DROPPED: Metric = counter(
    "capd_spans_dropped_total",
    &[],
    "Spans of calls that were dropped, because the OpenTelemetry collector did not take them or took them too slowly.",
);
/// What each limit refused.
pub const LIMIT_REFUSALS: Metric = counter(
    "capd_limit_refusals_total",
    &["limit"],
    "Work that a limit refused, cut off or delayed; the label is the limit's configuration key.",
);
/// How full each limit is.
pub const LIMIT_LEVEL: Metric = gauge(
    "capd_limit_level",
    &["limit"],
    "Use of a limit; for a limit of each peer, address, link, capability or agent, the highest use of any.",
);
/// What each limit is.
pub const LIMIT_MAX: Metric = gauge("capd_limit_max", &["limit"], "The value of a limit.");

/// Every metric, in the order of output.
pub const METRICS: &[Metric] = &[
    BUILD_INFO,
    START_TIME,
    EVENT_LOOP_LAG,
    LINKS,
    RECEIVED_BYTES,
    SENT_BYTES,
    QUEUE_BYTES,
    CALLS,
    CALL_DURATION,
    CALLS_IN_FLIGHT,
    PEER_LINKS,
    PEER_ROUND_TRIP,
    PEER_LOST,
    PEER_RECEIVED_BYTES,
    PEER_SENT_BYTES,
    PEER_CAPABILITIES_WITHHELD,
    FLEET_REFUSED,
    FLEET_STALE,
    FLEET_REVOCATIONS_AGE,
    FLEET_FROZEN,
    FLEET_FENCED,
    FLEET_REGISTERED,
    FLEET_NAMES,
    FLEET_CANDIDATES,
    DRIFT_VERDICTS,
    JOURNAL_CHANGES,
    JOURNAL_COMMITS,
    JOURNAL_FAILURES,
    JOURNAL_BYTES,
    AUDIT_RECORDS,
    AUDIT_RECORDS_LOST,
    AUDIT_USED_PERCENT,
    AUDIT_DENIALS_WITHHELD,
    DENIED,
    LOG_LINES_DROPPED,
    SPANS_EXPORTED,
    SPANS_DROPPED,
    LIMIT_REFUSALS,
    LIMIT_LEVEL,
    LIMIT_MAX,
];

/// The metrics as a markdown table.
pub fn reference() -> String {
    let mut out = String::from("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n");
    for Metric { name, kind, help, labels } in METRICS {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        writeln!(out, "| `{name}` | {} | {} | {help} |", kind.as_str(), labels.join(", "))
            .expect("writing to a String does not fail");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_and_stand_once() {
        let is_name = |name: &str| {
            name.starts_with("capd_") && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        for (index, metric) in METRICS.iter().enumerate() {
            assert!(is_name(metric.name), "{}", metric.name);
            assert_eq!(
                metric.kind == MetricKind::Counter,
                metric.name.ends_with("_total"),
                "{}",
                metric.name
            );
            assert!(METRICS[..index].iter().all(|other| other.name != metric.name), "{}", metric.name);
            assert!(metric.labels.is_sorted_by_key(|label| (label.len(), *label)), "{}", metric.name);
            assert!(metric.help.ends_with('.') && !metric.help.contains(['|', '\n']), "{}", metric.name);
        }
    }
}
