//! Calls of every end in; one line of the log for each, and never what they carried, out.

use ciborium::Value;

use crate::agents::{
    CAP_INVOKE, CAP_RESULT, Caller, Provider, by_id, failure, idempotent, loose, success, within,
};
use crate::support::{Message, Setup, Sidecar, field, map, set};

const ECHO: &str = "org.example.echo:1.0.0";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn logging() -> Setup {
    Setup::new().set("log.format", "json")
}

/// The lines about calls, in order.
fn lines(sidecar: &Sidecar) -> Vec<serde_json::Value> {
    let log = sidecar.log();
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines.filter(|line| line["target"] == "access").collect()
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn each_side_logs_a_call_once_under_one_trace() {
    let b = logging().start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let a = logging().peer(&b).start();
    let mut caller = Caller::of(&a);
    let mut envelope = caller.link.envelope(CAP_INVOKE, by_id(ECHO, "12345".into()));
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    set(&mut envelope, "ext", map([("traceparent", traceparent.as_str().into())]));
    let id = caller.link.send_envelope(&envelope);
    provider.echo();
    caller.result(&id);
    // Asked for again, it is the same call, which the provider's sidecar has logged.
    assert_eq!(caller.link.send_envelope(&envelope), id);
    caller.result(&id);

    let [line] = lines(&b).try_into().unwrap();
    let expected = [
        ("level", "INFO".into()),
        ("message", "call".into()),
        ("role", "executor".into()),
        ("id", hex(&id).into()),
        ("trace", TRACE.into()),
        ("caller", a.did.clone().into()),
        ("capability", "org.example.echo".into()),
        ("version", "1.0.0".into()),
        ("outcome", "success".into()),
        ("bytes_in", serde_json::json!(6)),
    ];
    for (key, value) in expected {
        assert_eq!(line[key], value, "{key}: {line}");
    }
    assert!(line["time_ms"].is_u64() && line["bytes_out"].as_u64().unwrap() > 6, "{line}");
    assert!(line.get("params").is_none() && line.get("result").is_none(), "{line}");
    // The agent has asked its own sidecar twice.
    let [line, again] = lines(&a).try_into().unwrap();
    assert_eq!((&line["role"], &line["trace"]), (&"caller".into(), &TRACE.into()), "{line}");
    assert_eq!((&line["peer"], &line["version"]), (&b.did.clone().into(), &"1.0.0".into()), "{line}");
    assert_eq!(line["id"], again["id"]);
}

#[test]
fn refusals_and_failures_are_logged_with_their_code() {
    let b = logging().start();
    let mut provider = Provider::of(&b, vec![idempotent(ECHO)]);
    let mut caller = Caller::of(&b);
    let unknown = caller.invoke(by_id("org.example.nobody:1.0.0", Value::Null));
    caller.error(&unknown);
    let failed = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    provider.fail(&call, 5001);
    caller.result(&failed);
    let late = caller.invoke(within(ECHO, Value::Null, 50));
    assert_eq!(failure(&caller.result(&late)), 5003);
    let malformed = caller.invoke(map([("params", Value::Null)]));
    caller.error(&malformed);
    let told: Vec<_> = lines(&b)
        .iter()
        .map(|line| (line["id"].clone(), line["outcome"].clone(), line["code"].clone()))
        .collect();
    let line = |id: &[u8], outcome: &str, code: u64| (hex(id).into(), outcome.into(), code.into());
    assert_eq!(
        told,
        [
            line(&unknown, "refused", 4002),
            line(&failed, "error", 5001),
            line(&late, "error", 5003),
            line(&malformed, "refused", 4001),
        ]
    );
    // Without a trace of its own a call is its own trace.
    assert!(lines(&b).iter().all(|line| line["trace"] == line["id"]));
}

#[test]
fn large_payloads_are_logged_by_their_length() {
    let b = logging().set("log.payloads_of", "org.example.echo").start();
    let mut provider = Provider::of(&b, vec![loose(ECHO), idempotent("org.example.echo:1.1.0")]);
    let mut caller = Caller::of(&b);
    for id in [ECHO, "org.example.echo:1.1.0"] {
        let call = caller.invoke(by_id(id, Value::Bytes(vec![7; 100_000])));
        provider.echo();
        caller.result(&call);
    }
    for line in lines(&b) {
        assert_eq!(
            (&line["bytes_in"], &line["params"]),
            (&100_005.into(), &"(100005 bytes)".into()),
            "{line}"
        );
        assert_eq!(line["outcome"], "success", "{line}");
    }
    assert_eq!(lines(&b).len(), 2);
}

#[test]
fn payloads_are_logged_of_the_one_capability_that_the_owner_names() {
    let other = "org.example.other:1.0.0";
    let b = logging().set("log.payloads_of", "org.example.echo").start();
    let mut provider = Provider::of(&b, vec![loose(ECHO), loose(other)]);
    let a = logging().peer(&b).start();
    let mut caller = Caller::of(&a);
    for (id, params) in [(ECHO, "shown-text"), (other, "hidden-text")] {
        let id = caller.invoke(by_id(id, params.into()));
        provider.echo();
        caller.result(&id);
    }
    let [shown, hidden] = lines(&b).try_into().unwrap();
    assert_eq!(shown["params"], "\"shown-text\"", "{shown}");
    assert!(shown["result"].as_str().unwrap().contains("shown-text"), "{shown}");
    assert!(hidden.get("params").is_none() && hidden.get("result").is_none(), "{hidden}");
    assert!(!b.log().contains("hidden-text") && !a.log().contains("-text"), "at debug level as well");
}

#[test]
fn nothing_is_logged_of_calls_where_the_owner_wants_none() {
    let b = logging().set("log.access", "off").start();
    let mut provider = Provider::of(&b, vec![loose(ECHO)]);
    let mut caller = Caller::of(&b);
    let id = caller.invoke(by_id(ECHO, 1.into()));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &1.into());
    assert_eq!(lines(&b), [serde_json::Value::Null; 0]);
}

fn time_of(result: &Message) -> u64 {
    let time = field(result.body(), "execution_time_ms").and_then(Value::as_integer);
    time.unwrap_or_else(|| panic!("no time: {result:?}")).try_into().unwrap()
}

#[test]
fn every_result_says_how_long_it_took_and_passes_its_cost_on() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![idempotent(ECHO)]);
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    // A provider that says nothing of it.
    let id = caller.invoke(by_id(ECHO, Value::Null));
    provider.echo();
    assert!(time_of(&caller.result(&id)) < 30_000);
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    provider.fail(&call, 5001);
    time_of(&caller.result(&id));
    // One that does, and says what it cost.
    let id = caller.invoke(by_id(ECHO, Value::Null));
    let call = provider.taken();
    let cost = map([("compute", Value::Float(0.25)), ("network", Value::Float(0.5))]);
    let body = map([
        ("status", "success".into()),
        ("result", 1.into()),
        ("cost_estimate", cost.clone()),
        ("execution_time_ms", 123_456.into()),
    ]);
    provider.link.answer(&call, CAP_RESULT, body);
    let result = caller.result(&id);
    assert_eq!((time_of(&result), field(result.body(), "cost_estimate")), (123_456, Some(&cost)));
    // The sidecar of the caller, where nobody answers.
    let id = caller.invoke(within(ECHO, Value::Null, 100));
    let result = caller.result(&id);
    assert_eq!(failure(&result), 5003);
    assert!(time_of(&result) >= 100);
}
