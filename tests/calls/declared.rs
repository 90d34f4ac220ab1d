//! Declarations that change under one version, over restarts and reloads, in; what the sidecar says of them out.

use crate::support::{Setup, Sidecar};

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
