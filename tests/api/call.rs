//! `POST /v1/call`: results, errors and events.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::http::Http;
use crate::support::{Setup, Sidecar};

/// A sidecar whose capabilities are commands.
pub fn with_commands() -> Sidecar {
    Setup::new().capabilities(COMMANDS).start()
}

const COMMANDS: &str = r#"version: 1
namespace: org.example
capabilities:
  - name: echo
    version: "1.2.0"
    idempotent: true
    command: [cat]
  - name: echo
    version: "2.0.0-rc.1"
    idempotent: true
    command: [cat]
  - name: fails
    command: [sh, -c, "exit 3"]
  - name: typed
    description: Adds an s to a word.
    idempotent: true
    command: [sh, -c, "echo '\"words\"'"]
    inputSchema: {type: object, required: [word], properties: {word: {type: string}}}
    outputSchema: {type: string}
  - name: lies
    idempotent: true
    command: [echo, "1"]
    outputSchema: {type: string}
"#;

#[test]
fn a_call_is_answered_with_its_result_and_what_is_known_of_it() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    let answer = http.post("/v1/call/org.example.echo", r#"{"a":[1,2.0,"ü",null,18446744073709551615]}"#);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.body, r#"{"a":[1,2.0,"ü",null,18446744073709551615]}"#.as_bytes());
    assert_eq!(answer.field("content-type"), Some("application/json"));
    // No pre-release is the newest.
    assert_eq!(answer.field("capd-capability"), Some("org.example.echo:1.2.0"));
    assert_eq!(answer.field("capd-call").unwrap().len(), 32);
    assert!(answer.field("capd-execution-ms").unwrap().parse::<u64>().is_ok());
    assert_eq!(answer.field("capd-replayed"), None);
    // The connection goes on.
    let answer = http.post("/v1/call/org.example.echo:2.0.0-rc.1", "7");
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"7".as_slice()));
    assert_eq!(answer.field("capd-capability"), Some("org.example.echo:2.0.0-rc.1"));
    let answer = http.post("/v1/call/org.example.echo?version=%3E%3D1.0.0%20%3C2.0.0&timeout=20s", "true");
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"true".as_slice()));
    let cbor = http.post_with("/v1/call/org.example.echo", &[("Accept", "application/cbor")], "[1]");
    assert_eq!(
        (cbor.field("content-type"), cbor.body.as_slice()),
        (Some("application/cbor"), [0x81, 1].as_slice())
    );
}

#[test]
fn errors_say_what_they_mean_for_the_caller() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    let mut post = |path: &str, body: &str| http.post(path, body);
    let unknown = post("/v1/call/org.example.nothing", "{}").problem(404, "refused");
    assert_eq!(
        (unknown["code"].as_u64(), unknown["title"].as_str()),
        (Some(4002), Some("CAPABILITY_NOT_FOUND"))
    );
    assert_eq!(unknown["type"], "urn:capd:error:4002");
    let version = post("/v1/call/org.example.echo?version=9.0.0", "{}").problem(409, "refused");
    assert!(version["details"]["available"].is_array(), "{version}");
    let violation = post("/v1/call/org.example.typed", r#"{"word": 1}"#).problem(422, "refused");
    assert_eq!(violation["details"]["violations"][0]["path"], "/word");
    assert_eq!(violation["details"]["schema_side"], "request");
    let failed = post("/v1/call/org.example.fails", "{}").problem(500, "failed");
    assert_eq!((failed["code"].as_u64(), failed["retry"].as_str()), (Some(5001), Some("yes")));
    assert_eq!(failed["call"].as_str().unwrap().len(), 32);
    let lies = post("/v1/call/org.example.lies", "{}").problem(502, "failed");
    assert_eq!(lies["code"], 5901);
    post("/v1/call/no-name", "{}").problem(400, "refused");
    post("/v1/call/org.example.echo?versoin=1", "{}").problem(400, "refused");
    post("/v1/call/org.example.echo:1.2.0?version=1.2.0", "{}").problem(400, "refused");
    post("/v1/call/org.example.echo?timeout=soon", "{}").problem(400, "refused");
    post("/v1/call/org.example.echo", "{a: 1}").problem(400, "refused");
    let large = post("/v1/call/org.example.echo", "[1, 123456789012345678901]").problem(422, "refused");
    assert_eq!((large["code"].as_u64(), large["details"]["byte"].as_u64()), (Some(4004), Some(4)));
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    post("/v1/call/org.example.echo", &deep).problem(400, "refused");
    post("/v1/nothing", "{}").problem(404, "refused");
    let answer = post("/v1/capabilities", "{}");
    answer.problem(405, "refused");
    assert!(answer.field("allow").unwrap().contains("GET"));
}

#[test]
fn calls_of_one_affinity_go_to_one_provider_with_a_key_and_without() {
    let providers = ["b", "c", "d"].map(|name| {
        let yaml = format!(
            "version: 1\nnamespace: org.example\ncapabilities:\n  - name: look\n    idempotent: true\n    \
             command: [echo, '\"{name}\"']\n"
        );
        Setup::new().capabilities(&yaml).start()
    });
    let a = providers.iter().fold(Setup::new(), |setup, peer| setup.peer(peer)).start();
    let mut http = Http::unix(&a.socket);
    let mut who = |path: &str, fields: &[(&str, &str)]| {
        let answer = http.post_with(&format!("/v1/call/{path}"), fields, "null");
        assert_eq!(answer.status, 200, "{:?}", answer.json());
        answer.json().as_str().unwrap().to_owned()
    };
    for peer in &providers {
        who(&format!("org.example.look?to={}", peer.did), &[]);
    }
    let mut homes = std::collections::BTreeSet::new();
    for number in 0..20 {
        let affinity = format!("kunde-{number}-ü");
        let home = who("org.example.look", &[("Capd-Affinity", &affinity)]);
        assert_eq!(who("org.example.look", &[("Capd-Affinity", &affinity)]), home);
        let key = format!("key-{number}");
        let keyed = [("Capd-Affinity", affinity.as_str()), ("Idempotency-Key", key.as_str())];
        assert_eq!(who("org.example.look", &keyed), home);
        homes.insert(home);
    }
    assert_eq!(homes.len(), 3, "{homes:?}");
    for wrong in ["", &"x".repeat(256)] {
        let answer = http.post_with("/v1/call/org.example.look", &[("Capd-Affinity", wrong)], "null");
        answer.problem(400, "refused");
    }
}

#[test]
fn a_call_is_followed_by_events_to_its_one_end() {
    let sidecar = Sidecar::start();
    let mut agent = Agent::serving_one(&sidecar, "org.example.slow", true);
    let mut http = Http::unix(&sidecar.socket);
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let fields = [("Accept", "text/event-stream"), ("Capd-Thread", "turn-1"), ("traceparent", trace)];
    http.ask("POST", "/v1/call/org.example.slow?timeout=20s", &fields, Some(r#"{"n": 1}"#));
    assert_eq!(http.head().field("content-type"), Some("text/event-stream"));
    let mut events = http.events();
    let accepted = events.expect("accepted");
    let call = agent.call();
    let data = &call.data;
    assert_eq!(data["id"], accepted.data["call"]);
    assert_eq!(data["params"], json!({"n": 1}));
    assert_eq!((&data["capability"], &data["version"]), (&json!("org.example.slow"), &json!("1.0.0")));
    assert_eq!((&data["thread"], &data["traceparent"]), (&json!("turn-1"), &json!(trace)));
    assert_eq!(data["caller"], sidecar.did);
    assert!((1..=20_000).contains(&data["deadline_ms"].as_u64().unwrap()), "{data}");
    for (what, body) in [
        ("progress", json!({"status_text": "begun", "eta_ms": 5})),
        ("progress", json!({"progress_pct": 40})),
        ("input", json!({"prompt": "which?"})),
    ] {
        assert_eq!(agent.say(&data["id"], what, &body).status, 204);
    }
    agent.answer(&data["id"], &json!({"done": true}));
    let told = events.rest();
    let names: Vec<_> = told.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["processing", "progress", "input_required", "result"]);
    assert_eq!(told[0].data["status_text"], "begun");
    assert_eq!(told[1].data, json!({"progress_pct": 40}));
    assert_eq!(told[2].data, json!({"prompt": "which?"}));
    let end = &told[3].data;
    assert_eq!(
        (&end["result"], &end["capability"]),
        (&json!({"done": true}), &json!("org.example.slow:1.0.0"))
    );
    let ids: Vec<_> = told.iter().map(|event| event.id.clone().unwrap()).collect();
    assert_eq!((accepted.id.as_deref(), ids.join(" ").as_str()), (Some("1"), "2 3 4 5"));
}

#[test]
fn an_error_is_the_one_end_of_a_stream_as_well() {
    let sidecar = with_commands();
    let mut http = Http::unix(&sidecar.socket);
    http.ask("POST", "/v1/call/org.example.fails", &[("Accept", "text/event-stream")], Some("{}"));
    http.head();
    let told = http.events().rest();
    let names: Vec<_> = told.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["accepted", "error"]);
    let problem: &Value = &told[1].data;
    assert_eq!((&problem["outcome"], &problem["code"]), (&json!("failed"), &json!(5001)));
}
