//! Declarations that change under one version, over restarts and reloads, in; what the sidecar says of them out.

use std::time::Instant;

use crate::agents::{Provider, with_schema};
use crate::support::{PATIENCE, Setup, Sidecar};

fn declaration(version: &str, input: &str) -> String {
    format!(
        "version: 1\nnamespace: org.example\ncapabilities:\n- name: review\n  version: {version}\n  command: [cat]\n  inputSchema: {input}\n"
    )
}

const WIDE: &str = "{ type: object, properties: { code: { type: string } }, required: [code] }";
const STRICT: &str = "{ type: object, properties: { code: { type: string }, language: { type: string } }, required: [code, language] }";
const SAYS: &str = "org.example.review:1.0.0 breaks its callers under the version that they know";

fn served(yaml: &str) -> Sidecar {
    Setup::new().capabilities(yaml).start()
}

#[test]
fn a_start_says_what_breaks_under_the_same_version_and_shows_it() {
    let sidecar = served(&declaration("1.0.0", WIDE));
    let sidecar = sidecar.restart();
    assert!(!sidecar.log().contains(SAYS), "nothing has changed: {}", sidecar.log());
    let sidecar = sidecar.restart_with(|setup| setup.capabilities(&declaration("1.0.0", STRICT)));
    let log = sidecar.log();
    let line = log.lines().find(|line| line.contains(SAYS)).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("requests are refused at /language (required), such as {"), "{line}");
    assert!(line.contains("as a major version"), "{line}");
    // It is said once: what is served now is what callers know from here on.
    let sidecar = sidecar.restart();
    assert_eq!(sidecar.log().matches(SAYS).count(), 1, "{}", sidecar.log());
}

#[test]
fn another_version_and_a_wider_schema_break_nobody() {
    let sidecar = served(&declaration("1.0.0", STRICT));
    let sidecar = sidecar.restart_with(|setup| setup.capabilities(&declaration("1.0.0", WIDE)));
    let sidecar = sidecar.restart_with(|setup| setup.capabilities(&declaration("2.0.0", STRICT)));
    assert!(!sidecar.log().contains("breaks its callers"), "{}", sidecar.log());
}

const BY_AGENT: &str = "org.example.lint:1.0.0 breaks its callers under the version that they know";
const WIDE_JSON: &str =
    r#"{"type": "object", "required": ["code"], "properties": {"code": {"type": "string"}}}"#;
const STRICT_JSON: &str = r#"{"type": "object", "required": ["code", "language"],
  "properties": {"code": {"type": "string"}, "language": {"type": "string"}}}"#;

/// An agent that serves one schema, once the sidecar has kept it.
fn agent(sidecar: &Sidecar, schema: &str) -> Provider {
    let provider = Provider::of(sidecar, vec![with_schema("org.example.lint:1.0.0", "input_schema", schema)]);
    let kept = sidecar.dir.join("state/declared-by-agents.json");
    let quoted = serde_json::to_string(schema).unwrap();
    eventually(|| std::fs::read_to_string(&kept).is_ok_and(|text| text.contains(&quoted)));
    provider
}

#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

#[test]
fn an_agent_that_breaks_its_callers_under_the_same_version_is_told_of_by_the_log() {
    let sidecar = Sidecar::start();
    drop(agent(&sidecar, WIDE_JSON));
    // The same again changes nothing, and neither does a program that starts again beside its sidecar.
    drop(agent(&sidecar, WIDE_JSON));
    assert!(!sidecar.log().contains(BY_AGENT), "{}", sidecar.log());
    let sidecar = sidecar.restart();
    drop(agent(&sidecar, STRICT_JSON));
    eventually(|| sidecar.log().contains(BY_AGENT));
    let log = sidecar.log();
    let line = log.lines().find(|line| line.contains(BY_AGENT)).unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("requests are refused at /language (required), such as {"), "{line}");
    // What takes more than before breaks nobody.
    drop(agent(&sidecar, WIDE_JSON));
    assert_eq!(sidecar.log().matches(BY_AGENT).count(), 1, "{}", sidecar.log());
}
