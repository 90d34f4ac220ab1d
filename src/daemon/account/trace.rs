//! Gives each call its span, and records the span when the call has ended.
//!
//! A call belongs to the trace of its `traceparent`; without one it begins a trace under its own id. The next hop gets this
//! sidecar's span as its parent. A parent decides whether the call is recorded; without one, `otlp.sample_ratio` does.

use std::borrow::Cow;

use capd_proto::cbor::Writer;
use capd_proto::code::Category;
use capd_proto::envelope::Envelope;
use capd_proto::message::Role;
use smallvec::SmallVec;

use super::Account;
use super::access::Line;
use super::phases::Phase;
use super::timeline::Timeline;
use crate::daemon::context::wire::with_fields;
use crate::otlp::{self, Context, Kind, Resource, Span, SpanId, TraceId, Value};

/// The trace of a call, and its spans on both sides of this sidecar.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::daemon) struct Traced {
    trace: Option<TraceId>,
    /// The span of whoever called.
    parent: Option<Context>,
    /// This sidecar's; without one, the next hop gets the parent.
    own: Option<Context>,
}

impl Traced {
    /// The trace that the call belongs to.
    pub(in crate::daemon) fn trace(&self) -> impl std::fmt::Display {
        let trace = self.trace.map(|trace| trace.to_string());
        trace.map_or(Cow::Borrowed("00000000000000000000000000000000"), Cow::Owned)
    }

    pub(super) const fn id(&self) -> Option<TraceId> {
        self.trace
    }

    /// Whether a collector is to get a span of it.
    pub(in crate::daemon) fn is_recorded(&self) -> bool {
        self.own.is_some_and(Context::is_sampled)
    }

    /// The `ext` that the next hop gets in place of this one, if it is to get another.
    pub(in crate::daemon) fn ext(&self, ext: Option<&[u8]>) -> Option<Vec<u8>> {
        let own = self.own?.to_string();
        let mut value = Vec::with_capacity(own.len() + 2);
        Writer::new(&mut value).text(&own);
        Some(with_fields(ext.unwrap_or(EMPTY_MAP), &[(TRACEPARENT, &value)]))
    }
}

impl Account {
    /// The trace of a CAP_INVOKE, with a span in it if traces are exported.
    pub(in crate::daemon) fn traced(&self, envelope: &Envelope<'_>) -> Traced {
        let named = envelope.ext.and_then(|_| envelope.ext_text(TRACEPARENT));
        let parent = named.and_then(|text| Context::parse(&text));
        let of_id = || TraceId::new(u128::from_be_bytes(*envelope.id.as_bytes()));
        let trace = parent.map(|parent| parent.trace).or_else(of_id);
        Traced { trace, parent, own: trace.and_then(|trace| self.own_span(trace, parent)) }
    }

    fn own_span(&self, trace: TraceId, parent: Option<Context>) -> Option<Context> {
        let config = self.ctx.config();
        config.otlp.endpoint.as_ref()?;
        if parent.is_some_and(|parent| !parent.is_sampled()) {
            return None;
        }
        // Without randomness the call is not traced, and runs.
        let span = SpanId::new(u64::from_be_bytes(self.ctx.random.bytes().ok()?))?;
        Some(match parent {
            Some(parent) => parent.child(span),
            None => Context::root(trace, span, otlp::is_sampled(trace, config.otlp.sample_ratio)),
        })
    }

    /// Records the span of a call that has ended, and those of its phases.
    pub(super) fn record(&self, line: &Line<'_>) {
        let Some(context) = line.traced.own.filter(|own| own.is_sampled()) else { return };
        let (outcome, code) = line.end.told();
        let id = line.id.to_string();
        let version = line.version.map(ToString::to_string);
        let number = code.map(|code| code.0.to_string());
        let name = line.capability.unwrap_or("CAP_INVOKE");
        let (kind, provider) = match line.role {
            Role::Caller => (Kind::Client, line.peer),
            Role::Executor => (Kind::Server, Some(self.ctx.did().as_str())),
        };
        let error = code.map(|code| code.name().or(number.as_deref()).unwrap_or_default());
        let attributes: SmallVec<[_; 12]> = [
            ("rpc.system.name", Some("capd")),
            ("rpc.method", line.capability),
            ("rpc.response.status_code", number.as_deref()),
            ("error.type", error),
            ("capd.call.id", Some(&id)),
            ("capd.capability.version", version.as_deref()),
            ("capd.caller", Some(line.caller)),
            ("capd.provider", provider),
            ("capd.outcome", Some(outcome)),
        ]
        .into_iter()
        .filter_map(|(key, text)| Some((key, Value::Text(text?))))
        .collect();
        let end_ns = self.ctx.clock.wall_us().saturating_mul(1_000);
        // As the conventions have it: what the caller did wrong is no failure of the provider's.
        let is_failed = |category| kind == Kind::Client || category == Category::Server;
        self.spans.record(&Span {
            context,
            parent: line.traced.parent,
            kind,
            name,
            start_ns: end_ns.saturating_sub(line.took_us.saturating_mul(1_000)),
            end_ns,
            attributes: &attributes,
            failure: code.filter(|code| is_failed(code.category())).and(error),
        });
        let start_ns = end_ns.saturating_sub(line.took_us.saturating_mul(1_000));
        let at_ns = |us: u64| start_ns.saturating_add(us.saturating_mul(1_000));
        for (number, (phase, from_us, to_us)) in (1..).zip(line.timeline.spans(line.took_us)) {
            self.record_phase(context, number, phase, (at_ns(from_us), at_ns(to_us)));
        }
    }

    /// The result of a call is on disk. That takes place behind the call's span, so it is recorded by itself.
    pub(in crate::daemon) fn record_saved(&self, traced: &Traced, timeline: &Timeline) {
        let Some(context) = traced.own.filter(|own| own.is_sampled()) else { return };
        let Some((number, began_us)) = timeline.saving() else { return };
        let took_us = self.ctx.clock.monotonic_us().saturating_sub(began_us);
        let end_ns = self.ctx.clock.wall_us().saturating_mul(1_000);
        let start_ns = end_ns.saturating_sub(took_us.saturating_mul(1_000));
        self.record_phase(context, number, Phase::Journal, (start_ns, end_ns));
    }

    /// Records a phase of a call, which began and ended at these nanoseconds since the Unix epoch.
    fn record_phase(&self, call: Context, number: u64, phase: Phase, (start_ns, end_ns): (u64, u64)) {
        self.spans.record(&Span {
            context: call.child(call.span.after(number)),
            parent: Some(call),
            kind: Kind::Internal,
            name: phase.name(),
            start_ns,
            end_ns,
            attributes: &[],
            failure: None,
        });
    }

    /// Exports spans to the collector of the running configuration, until shutdown.
    pub(in crate::daemon) async fn export_spans(&self) {
        let target = || {
            let config = self.ctx.config();
            let (name, instance) = (config.agent.name.clone(), self.ctx.did().to_string());
            Some((config.otlp.endpoint.clone()?, Resource { name, instance }))
        };
        self.spans.export(target).await;
    }
}

/// The field of `ext` that has the trace. **Source:** PROTOCOL 5.
const TRACEPARENT: &str = "traceparent";
/// **Shape:** an empty CBOR map.
const EMPTY_MAP: &[u8] = &[0xa0];
