//! Calls with and without a trace in; the spans that a collector gets, decoded by the official definitions, out.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Instant;

use ciborium::Value;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use serde_json::json;

use crate::agents::{
    CAP_INVOKE, Caller, Provider, by_id, failure, idempotent, loose, success, with_schema, within,
};
use crate::http::Http;
use crate::support::{Message, PATIENCE, Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";
const AGAIN: &str = "org.example.again:1.0.0";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// One request, as a server got it.
struct Asked {
    line: String,
    head: Vec<String>,
    body: Vec<u8>,
}

impl Asked {
    fn read(stream: &TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_lowercase()),
            }
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        Self { line: head.remove(0), head, body }
    }
}

/// A server that answers each request with what `answers` gives for its number.
fn server(answers: impl Fn(usize) -> Vec<u8> + Send + 'static) -> (SocketAddr, mpsc::Receiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, asked) = mpsc::sync_channel(1_024);
    std::thread::spawn(move || {
        for number in 0.. {
            let (mut stream, _) = listener.accept().unwrap();
            let request = Asked::read(&stream);
            // The test may be over.
            let _ = sender.send(request);
            let _ = stream.write_all(&answers(number));
        }
    });
    (address, asked)
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A collector, and the spans that it got and nobody has asked for.
struct Collector {
    address: SocketAddr,
    asked: mpsc::Receiver<Asked>,
    spans: Vec<Told>,
    /// The internal ones, which are phases of calls.
    phases: Vec<Span>,
}

/// A span, and the service that it is of.
#[derive(Clone, Debug)]
struct Told {
    service: Vec<KeyValue>,
    span: Span,
}

impl Collector {
    fn start() -> Self {
        Self::answering(|_| answer("200 OK", b""))
    }

    fn answering(answers: impl Fn(usize) -> Vec<u8> + Send + 'static) -> Self {
        let (address, asked) = server(answers);
        Self { address, asked, spans: Vec::new(), phases: Vec::new() }
    }

    /// A sidecar that exports here.
    fn setup(&self) -> Setup {
        Setup::new().set("otlp.endpoint", &format!("http://{}", self.address))
    }

    /// Takes one request in.
    fn take(&mut self) {
        let request = self.asked.recv_timeout(PATIENCE).expect("the collector gets spans");
        assert_eq!(request.line, "post /v1/traces http/1.1");
        assert!(
            request.head.contains(&"content-type: application/x-protobuf".to_owned()),
            "{:?}",
            request.head
        );
        let export = ExportTraceServiceRequest::decode(&*request.body).unwrap();
        for of_resource in export.resource_spans {
            let service = of_resource.resource.unwrap().attributes;
            for of_scope in of_resource.scope_spans {
                assert_eq!(of_scope.scope.unwrap().name, "capd");
                for span in of_scope.spans {
                    match span.kind() {
                        SpanKind::Internal => self.phases.push(span),
                        _ => self.spans.push(Told { service: service.clone(), span }),
                    }
                }
            }
        }
    }

    /// The one span with this attribute, once it has come.
    fn span(&mut self, sidecar: &Sidecar, call: &str) -> Told {
        loop {
            let is_it = |told: &Told| {
                text(&told.service, "service.instance.id") == Some(&sidecar.did)
                    && text(&told.span.attributes, "capd.call.id") == Some(call)
            };
            if let Some(at) = self.spans.iter().position(is_it) {
                return self.spans.remove(at);
            }
            self.take();
        }
    }
}

impl Collector {
    /// The phases of a call's span, once there are as many as `names`, which they must have in this order.
    #[track_caller]
    fn phases(&mut self, of: &Span, names: &[&str]) -> Vec<Span> {
        loop {
            let is_its = |phase: &&Span| phase.parent_span_id == of.span_id;
            let found: Vec<_> = self.phases.iter().filter(is_its).cloned().collect();
            if found.len() >= names.len() {
                assert_eq!(found.iter().map(|phase| phase.name.as_str()).collect::<Vec<_>>(), names);
                return found;
            }
            self.take();
        }
    }
}

/// Phases that cover a call's span, each until the next begins.
#[track_caller]
fn covers(phases: &[Span], call: &Span) {
    let mut at = call.start_time_unix_nano;
    for phase in phases {
        assert_eq!(phase.start_time_unix_nano, at, "{phases:#?}");
        assert_eq!(phase.trace_id, call.trace_id);
        // Sampled, and its parent is known to be of the same process.
        assert_eq!((phase.flags, phase.attributes.len()), (0x101, 0));
        is_within(phase, call);
        at = phase.end_time_unix_nano;
    }
    assert_eq!(at, call.end_time_unix_nano, "{phases:#?}");
    let ids: BTreeSet<_> = phases.iter().chain([call]).map(|span| &span.span_id).collect();
    assert_eq!(ids.len(), phases.len() + 1);
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let mut found = attributes.iter().filter(|attribute| attribute.key == key);
    let value = found.next()?.value.as_ref()?.value.as_ref()?;
    assert!(found.next().is_none(), "{key} stands twice");
    match value {
        any_value::Value::StringValue(text) => Some(text),
        other => panic!("{key}: {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Calls with this `traceparent`; the call's id.
fn call_within(caller: &mut Caller, traceparent: &str) -> Vec<u8> {
    let mut envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, 1.into()));
    set(&mut envelope, "ext", map([("traceparent", traceparent.into()), ("other", 7.into())]));
    caller.link.send_envelope(&envelope)
}

fn ext<'a>(call: &'a Message, key: &str) -> Option<&'a Value> {
    field(field(&call.value, "ext")?, key)
}

fn traceparent(call: &Message) -> &str {
    ext(call, "traceparent").and_then(Value::as_text).expect("the provider is given a trace")
}

#[track_caller]
fn is_within(inner: &Span, outer: &Span) {
    assert!(outer.start_time_unix_nano <= inner.start_time_unix_nano, "{outer:?} {inner:?}");
    assert!(inner.end_time_unix_nano <= outer.end_time_unix_nano, "{outer:?} {inner:?}");
    assert!(inner.start_time_unix_nano <= inner.end_time_unix_nano, "{inner:?}");
}

#[test]
fn one_call_is_one_trace_across_both_sidecars_beneath_the_callers_span_and_above_the_providers() {
    let mut collector = Collector::start();
    let b = collector.setup().set("agent.name", "translator").start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let a = collector.setup().peer(&b).start();
    let mut caller = Caller::of(&a);
    let id = call_within(&mut caller, &format!("00-{TRACE}-{PARENT}-01"));
    let call = provider.echo();
    success(&caller.result(&id));

    let Told { service, span: outer } = collector.span(&a, &hex(&id));
    assert_eq!(text(&service, "service.name"), Some("agent"));
    assert_eq!((hex(&outer.trace_id), hex(&outer.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    assert_eq!((outer.kind(), outer.name.as_str()), (SpanKind::Client, "org.example.echo"));
    let Told { service, span: inner } = collector.span(&b, &hex(&id));
    assert_eq!(text(&service, "service.name"), Some("translator"));
    assert_eq!((hex(&inner.trace_id), &inner.parent_span_id), (TRACE.to_owned(), &outer.span_id));
    assert_eq!((inner.kind(), inner.name.as_str()), (SpanKind::Server, "org.example.echo"));
    // Sampled, with a parent that is known to be in another process.
    assert_eq!((outer.flags, inner.flags), (0x301, 0x301));
    assert!(outer.status.is_none() && inner.status.is_none());
    is_within(&inner, &outer);
    for span in [&outer, &inner] {
        for (key, value) in [
            ("rpc.system.name", "capd"),
            ("rpc.method", "org.example.echo"),
            ("capd.capability.version", "1.0.0"),
            ("capd.caller", a.did.as_str()),
            ("capd.provider", b.did.as_str()),
            ("capd.outcome", "success"),
        ] {
            assert_eq!(text(&span.attributes, key), Some(value), "{key}: {span:?}");
        }
        assert_eq!(text(&span.attributes, "error.type"), None);
    }
    // The provider's own spans go beneath its sidecar's, and what else its caller sent has come along.
    assert_eq!(traceparent(&call), format!("00-{TRACE}-{}-01", hex(&inner.span_id)));
    assert_eq!(ext(&call, "other"), Some(&7.into()));
    assert_eq!(field(call.body(), "params"), Some(&1.into()));

    // Nobody is left out: a call that runs where it was made has one span.
    let mut own = Caller::of(&b);
    let id = call_within(&mut own, &format!("00-{TRACE}-{PARENT}-01"));
    let call = provider.echo();
    success(&own.result(&id));
    let span = collector.span(&b, &hex(&id)).span;
    assert_eq!((span.kind(), hex(&span.parent_span_id)), (SpanKind::Server, PARENT.to_owned()));
    assert_eq!(traceparent(&call), format!("00-{TRACE}-{}-01", hex(&span.span_id)));
    assert!(collector.spans.is_empty(), "{:?}", collector.spans);
}

#[test]
fn the_phases_of_a_call_are_beneath_its_span_on_both_sides_and_say_where_its_time_went() {
    let mut collector = Collector::start();
    let b = collector.setup().start();
    let once = with_schema(ECHO, "input_schema", r#"{"type": "integer"}"#);
    let mut provider = Provider::of(&b, vec![once, idempotent(AGAIN)]);
    let a = collector.setup().peer(&b).start();
    let mut caller = Caller::of(&a);
    // One that may run only once. The first call waits for the schema.
    let id = caller.invoke(by_id(ECHO, 1.into()));
    provider.echo();
    success(&caller.result(&id));
    let (outer, inner) = (collector.span(&a, &hex(&id)).span, collector.span(&b, &hex(&id)).span);
    let made = ["admit", "choose", "gate", "journal", "wire", "result"];
    covers(&collector.phases(&outer, &made), &outer);
    let served = collector.phases(&inner, &["admit", "journal", "provider", "result", "journal"]);
    // The result is written behind the provider's span, and before the caller's side has it.
    let (saved, earlier) = served.split_last().unwrap();
    covers(earlier, &inner);
    assert!(saved.start_time_unix_nano >= served[3].start_time_unix_nano, "{served:#?}");
    assert!(saved.end_time_unix_nano <= outer.end_time_unix_nano, "{saved:?} {outer:?}");

    // One that may run again needs no journal; a slow provider is what it waits for.
    let id = caller.invoke(within(AGAIN, 1.into(), 60));
    assert_eq!(failure(&caller.result(&id)), 5003);
    let (outer, inner) = (collector.span(&a, &hex(&id)).span, collector.span(&b, &hex(&id)).span);
    covers(&collector.phases(&outer, &["admit", "choose", "wire", "result"]), &outer);
    let served = collector.phases(&inner, &["admit", "provider", "result"]);
    covers(&served, &inner);
    let slow = &served[1];
    assert!(slow.end_time_unix_nano - slow.start_time_unix_nano >= 50_000_000, "{slow:?}");
}

#[test]
fn an_http_agent_and_an_http_program_are_of_the_same_trace() {
    let mut collector = Collector::start();
    let (program, asked) = server(|_| {
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\n\r\n7".to_vec()
    });
    let yaml = format!(
        "version: 1\nnamespace: org.example\ncapabilities:\n  - name: push\n    http: {{url: \"http://{program}/\"}}\n"
    );
    let b = collector.setup().capabilities(&yaml).start();
    let a = collector.setup().peer(&b).start();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let mut http = Http::unix(&a.socket);
    let answer = http.post_with(
        "/v1/call/org.example.push",
        &[("traceparent", &parent), ("tracestate", "vendor=1")],
        "{}",
    );
    assert_eq!((answer.status, answer.json()), (200, json!(7)));
    let id = answer.field("capd-call").unwrap().to_owned();
    let (outer, inner) = (collector.span(&a, &id).span, collector.span(&b, &id).span);
    assert_eq!((hex(&outer.trace_id), hex(&outer.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    assert_eq!((hex(&inner.trace_id), &inner.parent_span_id), (TRACE.to_owned(), &outer.span_id));
    is_within(&inner, &outer);
    let got = asked.recv_timeout(PATIENCE).unwrap().head;
    assert!(got.contains(&format!("traceparent: 00-{TRACE}-{}-01", hex(&inner.span_id))), "{got:?}");
    assert!(got.contains(&"tracestate: vendor=1".to_owned()), "{got:?}");
}

#[test]
fn a_span_says_how_its_call_failed_and_whose_fault_that_is() {
    let mut collector = Collector::start();
    let b = collector.setup().start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let a = collector.setup().peer(&b).start();
    let mut caller = Caller::of(&a);
    for (code, name, is_server) in
        [(5001, "INTERNAL_ERROR", true), (4001, "BAD_REQUEST", false), (4711, "4711", false)]
    {
        let id = caller.invoke(by_id(ECHO, Value::Null));
        let call = provider.taken();
        provider.fail(&call, code);
        assert_eq!(failure(&caller.result(&id)), code);
        for (sidecar, is_failed) in [(&a, true), (&b, is_server)] {
            let span = collector.span(sidecar, &hex(&id)).span;
            assert_eq!(text(&span.attributes, "rpc.response.status_code"), Some(&*code.to_string()));
            assert_eq!(text(&span.attributes, "error.type"), Some(name));
            assert_eq!(text(&span.attributes, "capd.outcome"), Some("error"));
            let status = span.status.as_ref().map(|status| (status.code(), status.message.as_str()));
            assert_eq!(status, is_failed.then_some((StatusCode::Error, name)), "{code}: {span:?}");
            // Without a trace of its own, the call is its own trace.
            assert_eq!(span.trace_id, id);
        }
    }
    let unknown = caller.invoke(by_id("org.example.nobody:1.0.0", Value::Null));
    caller.error(&unknown);
    let span = collector.span(&a, &hex(&unknown)).span;
    assert_eq!(text(&span.attributes, "capd.outcome"), Some("refused"));
    assert_eq!(span.status.unwrap().code(), StatusCode::Error);
    let late = caller.invoke(within(ECHO, Value::Null, 50));
    assert_eq!(failure(&caller.result(&late)), 5003);
    let span = collector.span(&a, &hex(&late)).span;
    assert!(span.end_time_unix_nano - span.start_time_unix_nano >= 50_000_000, "{span:?}");
}

#[test]
fn a_parent_decides_whether_a_call_is_recorded_and_a_ratio_where_there_is_none() {
    let mut collector = Collector::start();
    let b = collector.setup().start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let a = collector.setup().set("otlp.sample_ratio", "0").peer(&b).start();
    let mut caller = Caller::of(&a);
    // It begins its trace, which nobody records: the next sidecar follows.
    let root = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.echo();
    success(&caller.result(&root));
    assert!(traceparent(&call).starts_with(&format!("00-{}-", hex(&root))), "{}", traceparent(&call));
    assert!(traceparent(&call).ends_with("-00"), "{}", traceparent(&call));
    // Whose parent is not recorded is passed on as it came.
    let unsampled = format!("00-{TRACE}-{PARENT}-00");
    let id = call_within(&mut caller, &unsampled);
    let call = provider.echo();
    success(&caller.result(&id));
    assert_eq!(traceparent(&call), unsampled);
    let id = call_within(&mut caller, &format!("00-{TRACE}-{PARENT}-01"));
    provider.echo();
    success(&caller.result(&id));
    for sidecar in [&a, &b] {
        collector.span(sidecar, &hex(&id));
    }
    assert!(collector.spans.is_empty(), "{:?}", collector.spans);
}

#[test]
fn without_a_collector_a_trace_is_passed_on_as_it_came() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let id = call_within(&mut caller, &parent);
    let call = provider.echo();
    success(&caller.result(&id));
    assert_eq!(traceparent(&call), parent);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.echo();
    success(&caller.result(&id));
    assert_eq!(ext(&call, "traceparent"), None);
    assert_eq!(a.metric("capd_spans_exported_total") + a.metric("capd_spans_dropped_total"), 0);
}

#[test]
fn a_collector_that_is_busy_gets_its_spans_later_and_what_it_refuses_is_counted() {
    let partial = ExportTraceServiceResponse {
        partial_success: Some(ExportTracePartialSuccess {
            rejected_spans: 1,
            error_message: "too old".to_owned(),
        }),
    };
    let mut collector = Collector::answering(move |number| match number {
        0 => answer("503 Service Unavailable", b""),
        1 => answer("200 OK", b""),
        2 => answer("400 Bad Request", b""),
        _ => answer("200 OK", &partial.encode_to_vec()),
    });
    let sidecar = collector.setup().start();
    let mut provider = Provider::of(&sidecar, vec![loose(ECHO)]);
    let mut caller = Caller::of(&sidecar);
    // The call's span and those of its phases: two of the journal, one each before, between and behind them.
    let sent = 6;
    for (exported, dropped) in [(sent, 0), (sent, sent), (2 * sent - 1, sent + 1)] {
        let id = caller.invoke(by_id(ECHO, Value::Null));
        provider.echo();
        success(&caller.result(&id));
        let span = collector.span(&sidecar, &hex(&id)).span;
        if dropped == 0 {
            // The same, after the pause.
            assert_eq!(collector.span(&sidecar, &hex(&id)).span, span);
        }
        counted(&sidecar, exported, dropped);
    }
    let log = sidecar.log();
    assert!(log.contains("the collector does not take spans") && log.contains("takes spans again"), "{log}");
}

/// Waits until so many spans were exported, and so many dropped.
#[track_caller]
fn counted(sidecar: &Sidecar, exported: u64, dropped: u64) {
    let deadline = Instant::now() + PATIENCE;
    let counts = || ["exported", "dropped"].map(|what| sidecar.metric(&format!("capd_spans_{what}_total")));
    while counts() != [exported, dropped] {
        assert!(Instant::now() < deadline, "{:?}", counts());
    }
}

#[test]
fn the_last_spans_are_exported_before_a_sidecar_ends() {
    let mut collector = Collector::start();
    let mut sidecar = collector.setup().start();
    let mut provider = Provider::of(&sidecar, vec![loose(ECHO)]);
    let mut caller = Caller::of(&sidecar);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    provider.echo();
    success(&caller.result(&id));
    assert!(sidecar.terminate().success());
    collector.span(&sidecar, &hex(&id));
}

/// Bytes of memory that `setup` takes for many calls, each of which must succeed, and how many spans it dropped.
fn loaded(setup: Setup) -> (u64, u64) {
    let id = format!("org.example.{}:1.0.0", "a".repeat(120));
    let sidecar = setup.start();
    let mut provider = Provider::of(&sidecar, vec![loose(&id)]);
    let mut caller = Caller::of(&sidecar);
    for _ in 0..35 {
        let calls: Vec<_> = (0..100).map(|_| caller.invoke(by_id(&id, Value::Null))).collect();
        for _ in &calls {
            provider.echo();
        }
        for call in &calls {
            success(&caller.result(call));
        }
    }
    (sidecar.memory_kib(), sidecar.metric("capd_spans_dropped_total"))
}

#[test]
fn a_collector_that_is_gone_or_silent_costs_no_call_and_bounded_memory() {
    let (usual_kib, dropped) = loaded(Setup::new());
    assert_eq!(dropped, 0);
    // Nobody listens there any more.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // This one accepts, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [gone, silent.local_addr().unwrap()] {
        let setup = Setup::new().set("otlp.endpoint", &format!("http://{address}"));
        let (kib, dropped) = loaded(setup);
        // 3,500 spans of more than 600 bytes each do not fit into a queue of 1 MiB, and as much on its way.
        assert!(dropped > 500, "{dropped}");
        assert!(kib < usual_kib + 6 * 1_024, "{kib} KiB, and {usual_kib} without a collector");
    }
}
