//! Answers REQUEST `metrics`: the counters of all parts of the sidecar, and the use of its limits.

use std::borrow::Cow;

use capd_proto::code::Code;
use capd_proto::message::{MetricFamily, Metrics, Response, Role, Type};

use super::Desk;
use super::paths::Path;
use crate::admin;
use crate::config::Limits;
use crate::daemon::account::lag::Late;
use crate::daemon::account::meter::{BUCKETS_US, CallLimit, Took};
use crate::daemon::context::{Inbound, Refusal};
use crate::log::Lines;
use crate::net::{Host, Levels, Limit};

impl Desk {
    /// Answers with all metrics. **Errors:** 4001 for anybody but the agent.
    pub(in crate::daemon) fn on_metrics(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        if !inbound.link.kind().is_local() {
            // A peer learns no more than of an operation that we do not have.
            return Err(Refusal::new(Code::BAD_REQUEST, "the operation \"metrics\" is not known here"));
        }
        let mut body = Vec::new();
        Response::Metrics(Metrics { families: self.metrics() }).encode(&mut body);
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }

    /// All metrics, as [`admin::METRICS`] lists them.
    pub(super) fn metrics(&self) -> Vec<MetricFamily<'static>> {
        let host = self.host.get().and_then(std::sync::Weak::upgrade);
        let levels = host.as_ref().map(|host| host.levels()).unwrap_or_default();
        let links =
            levels.open.iter().map(|(kind, count)| ([Cow::Owned(kind.to_string())], count_of(*count)));
        let calls = self.account.meter.calls().into_iter().map(|(role, outcome, code, count)| {
            let code = match (outcome, code) {
                ("success", _) => Cow::Borrowed(""),
                (_, Some(code)) => Cow::Owned(code.0.to_string()),
                (_, None) => Cow::Borrowed("other"),
            };
            ([code, Cow::Borrowed(role.as_str()), Cow::Borrowed(outcome)], count)
        });
        let in_flight = [
            (Role::Executor, self.executor.table.in_flight().all),
            (Role::Caller, self.caller.calls_in_flight()),
        ];
        let in_flight = in_flight.map(|(role, count)| ([Cow::Borrowed(role.as_str())], count_of(count)));
        let verdicts = self.account.meter.verdicts();
        let verdicts = verdicts.map(|(verdict, count)| ([Cow::Borrowed(verdict)], count));
        let journal = self.executor.journal_counters();
        self.executor.measure_journal();
        let audit = self.account.audit.counters();
        let spans = self.account.spans.counters();
        let rows = self.limits(host.as_deref(), &levels);
        let values = |value: fn(&Row) -> Option<u64>| {
            rows.iter().filter_map(move |row| Some(([Cow::Borrowed(row.limit)], value(row)?)))
        };
        let refused = self.fleet.refused().into_iter().map(|(why, count)| ([Cow::Borrowed(why)], count));
        let status = self.fleet.registry().map(|registry| registry.status()).unwrap_or_default();
        let now_ms = self.ctx.clock.monotonic_ms();
        let paths = self.paths_of_peers();
        let stale_ms = status.stale_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        let revocations_ms = self.fleet.revocations_age_ms(&status).unwrap_or(0);
        vec![
            admin::BUILD_INFO.family([([env!("CARGO_PKG_VERSION").into()], 1)]),
            admin::START_TIME.alone(self.account.started_at_ms / 1_000),
            self.lag(),
            admin::LINKS.family(links),
            admin::RECEIVED_BYTES.alone(levels.received_bytes),
            admin::SENT_BYTES.alone(levels.sent_bytes),
            admin::QUEUE_BYTES.alone(count_of(levels.queue_bytes_total)),
            admin::CALLS.family(calls),
            self.durations(),
            admin::CALLS_IN_FLIGHT.family(in_flight),
            admin::PEER_LINKS.family(paths.iter().map(|path| (path.label(), count_of(path.links)))),
            admin::PEER_ROUND_TRIP.fractions(paths.iter().filter_map(Path::round_trip)),
            admin::PEER_LOST.fractions(paths.iter().filter_map(Path::lost)),
            admin::PEER_RECEIVED_BYTES
                .family(paths.iter().map(|path| (path.label(), path.carried.received_bytes))),
            admin::PEER_SENT_BYTES.family(paths.iter().map(|path| (path.label(), path.carried.sent_bytes))),
            admin::PEER_CAPABILITIES_WITHHELD.alone(count_of(self.directory.serves.count())),
            admin::FLEET_REFUSED.family(refused),
            admin::FLEET_STALE.alone(stale_ms / 1_000),
            admin::FLEET_REVOCATIONS_AGE.alone(revocations_ms / 1_000),
            admin::FLEET_FROZEN.alone(status.is_frozen.into()),
            admin::FLEET_FENCED.alone(status.fenced_by.is_some().into()),
            admin::FLEET_REGISTERED.alone(status.registered.is_some().into()),
            admin::FLEET_NAMES.alone(count_of(status.wanted)),
            admin::FLEET_CANDIDATES.alone(count_of(status.candidates)),
            admin::DRIFT_VERDICTS.family(verdicts),
            admin::JOURNAL_CHANGES.alone(journal.changes),
            admin::JOURNAL_COMMITS.alone(journal.commits),
            admin::JOURNAL_FAILURES.alone(journal.failures),
            admin::JOURNAL_BYTES.alone(journal.bytes),
            admin::AUDIT_RECORDS.alone(audit.written),
            admin::AUDIT_RECORDS_LOST.alone(audit.lost),
            admin::AUDIT_USED_PERCENT.alone(audit.used_percent),
            admin::AUDIT_DENIALS_WITHHELD.alone(audit.withheld),
            admin::DENIED.alone(self.account.denials.count()),
            admin::LOG_LINES_DROPPED.alone(self.log.get().map_or(0, Lines::dropped)),
            admin::SPANS_EXPORTED.alone(spans.exported),
            admin::SPANS_DROPPED.alone(spans.dropped),
            admin::LIMIT_REFUSALS.family(values(|row| row.refusals)),
            admin::LIMIT_LEVEL.family(values(|row| row.level)),
            admin::LIMIT_MAX.family(values(|row| row.max)),
        ]
    }

    /// Every limit, under the key that sets it.
    fn limits(&self, host: Option<&Host>, levels: &Levels) -> Vec<Row> {
        let config = self.ctx.config();
        let max = &config.limits;
        let mut rows = link_limits(host, levels, max);
        let refused = |bound| self.account.meter.refusals(bound);
        let in_flight = self.executor.table.in_flight();
        let ledger = self.executor.table.ledger_levels();
        let mut level = |limit, bound, level, max| {
            rows.push(Row {
                limit,
                refusals: Some(refused(bound)),
                level: Some(count_of(level)),
                max: Some(count_of(max)),
            });
        };
        level("limits.calls_in_flight_max", CallLimit::CallsInFlight, in_flight.all, max.calls_in_flight_max);
        level(
            "limits.calls_in_flight_per_peer_max",
            CallLimit::CallsPerPeer,
            in_flight.per_peer,
            max.calls_in_flight_per_peer_max,
        );
        level(
            "limits.calls_in_flight_per_capability_max",
            CallLimit::CallsPerCapability,
            in_flight.per_capability,
            max.calls_in_flight_per_capability_max,
        );
        level(
            "limits.calls_in_flight_per_provider_max",
            CallLimit::CallsPerProvider,
            self.executor.providers.agents_busiest(),
            max.calls_in_flight_per_provider_max,
        );
        let waiting = self.ctx.slots.used().max(self.caller.calls_in_flight());
        level("limits.requests_waiting_max", CallLimit::RequestsWaiting, waiting, max.requests_waiting_max);
        level("limits.ledger_entries_max", CallLimit::LedgerEntries, ledger.calls, max.ledger_entries_max);
        level("limits.ledger_bytes_max", CallLimit::LedgerBytes, ledger.kept_bytes, max.ledger_bytes_max);
        rows.push(Row {
            // What does not fit is forgotten, and refuses nobody.
            limit: "limits.ledger_idempotent_bytes_max",
            refusals: None,
            level: Some(count_of(ledger.idempotent_bytes)),
            max: Some(count_of(max.ledger_idempotent_bytes_max)),
        });
        for (limit, bound, max) in [
            ("limits.peer_capabilities_max", CallLimit::PeerCapabilities, max.peer_capabilities_max),
            (
                "limits.peer_capability_bytes_max",
                CallLimit::PeerCapabilityBytes,
                max.peer_capability_bytes_max,
            ),
        ] {
            rows.push(Row { limit, refusals: Some(refused(bound)), level: None, max: Some(count_of(max)) });
        }
        for (limit, bound) in [
            ("limits.ledger_ttl_max_ms", CallLimit::LedgerTtl),
            ("limits.call_rate_per_peer", CallLimit::CallRatePerPeer),
            ("limits.call_rate", CallLimit::CallRate),
            ("limits.denied_rate_per_peer", CallLimit::DeniedRatePerPeer),
            ("rateLimit", CallLimit::CapabilityRate),
            ("limits.max_argument_repairs", CallLimit::Repairs),
        ] {
            rows.push(Row { limit, refusals: Some(refused(bound)), level: None, max: None });
        }
        rows
    }
}

/// How long something took, with the bounds that it was counted by.
impl Desk {
    fn lag(&self) -> MetricFamily<'static> {
        let Late { buckets, count, sum_us } = self.account.lag.late();
        admin::EVENT_LOOP_LAG.histogram([admin::Distribution { labels: [], buckets, count, sum_us }])
    }

    fn durations(&self) -> MetricFamily<'static> {
        let by_capability = self.ctx.config().metrics.capabilities;
        let took = self.account.meter.durations(by_capability).into_iter();
        let role = |took: &Took| Cow::Borrowed(took.role.as_str());
        if by_capability {
            admin::CALL_DURATION_BY_CAPABILITY.histogram(took.map(|took| {
                distribution([role(&took), took.outcome.into(), took.capability.clone().into()], took)
            }))
        } else {
            admin::CALL_DURATION
                .histogram(took.map(|took| distribution([role(&took), took.outcome.into()], took)))
        }
    }
}

fn distribution<const N: usize>(labels: [Cow<'static, str>; N], took: Took) -> admin::Distribution<N> {
    let Took { buckets, count, sum_us, .. } = took;
    admin::Distribution { labels, buckets: BUCKETS_US.into_iter().zip(buckets).collect(), count, sum_us }
}

/// What is told of one limit.
struct Row {
    limit: &'static str,
    refusals: Option<u64>,
    level: Option<u64>,
    max: Option<u64>,
}

/// The limits of links.
fn link_limits(host: Option<&Host>, levels: &Levels, max: &Limits) -> Vec<Row> {
    let leveled = |limit| match limit {
        Limit::Links => Some((levels.links, max.links_max)),
        Limit::LinksOpening => Some((levels.links_opening, max.links_opening_max)),
        Limit::LinksOpeningPerAddress => {
            Some((levels.links_opening_per_address, max.links_opening_per_address_max))
        }
        Limit::LinksUnvalidated => Some((levels.peer_links_opening, max.links_unvalidated_max)),
        Limit::LinksPerPeer => Some((levels.links_per_peer, max.links_per_peer_max)),
        Limit::QueueBytes => Some((levels.queue_bytes, max.queue_bytes_max)),
        Limit::ReceiveBytes => Some((levels.receive_bytes, max.receive_bytes_max)),
        Limit::HandshakeRate
        | Limit::HandshakeTime
        | Limit::FrameTime
        | Limit::IdleTime
        | Limit::DeadTime
        | Limit::StreamResetRate
        | Limit::QueueFrames
        | Limit::FrameBytes => None,
    };
    let row = |limit: Limit| {
        let (level, max) = leveled(limit).unzip();
        let refusals = Some(host.map_or(0, |host| host.refusals(limit)));
        Row { limit: key_of(limit), refusals, level: level.map(count_of), max: max.map(count_of) }
    };
    let streams = Row {
        // QUIC lets a peer open no more, so there is nothing to refuse.
        limit: "limits.streams_per_link_max",
        refusals: None,
        level: Some(count_of(levels.streams)),
        max: Some(max.streams_per_link_max.into()),
    };
    Limit::ALL.into_iter().map(row).chain([streams]).collect()
}

/// The key that sets a limit.
const fn key_of(limit: Limit) -> &'static str {
    match limit {
        Limit::Links => "limits.links_max",
        Limit::LinksOpening => "limits.links_opening_max",
        Limit::LinksOpeningPerAddress => "limits.links_opening_per_address_max",
        Limit::LinksUnvalidated => "limits.links_unvalidated_max",
        Limit::LinksPerPeer => "limits.links_per_peer_max",
        Limit::HandshakeRate => "limits.handshake_rate_per_address",
        Limit::HandshakeTime => "timeouts.handshake_ms",
        Limit::FrameTime => "timeouts.frame_ms",
        Limit::IdleTime => "timeouts.idle_ms",
        Limit::DeadTime => "timeouts.dead_ms",
        Limit::StreamResetRate => "limits.stream_reset_rate_per_link",
        Limit::QueueFrames => "limits.queue_frames_max",
        Limit::QueueBytes => "limits.queue_bytes_max",
        Limit::ReceiveBytes => "limits.receive_bytes_max",
        Limit::FrameBytes => "limits.msg_size_bytes_max",
    }
}

fn count_of(count: usize) -> u64 {
    count as u64
}
