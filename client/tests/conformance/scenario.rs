//! The scenario files in; each scenario with its feature, and which of them this link has no place for, out.

use std::path::Path;

use serde_json::Value;

/// One scenario.
pub struct Scenario {
    pub feature: String,
    pub name: String,
    pub document: Value,
}

/// All scenarios of `sdk/conformance/scenarios`.
pub fn all() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sdk/conformance/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut scenarios = Vec::new();
    for file in files {
        // No double holds it; the scenario that has it is not of this link.
        let text = std::fs::read_to_string(&file).unwrap().replace("1E+400", "\"1E+400\"");
        let content: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for document in content["scenarios"].as_array().unwrap() {
            scenarios.push(Scenario {
                feature: content["feature"].as_str().unwrap().to_owned(),
                name: document["name"].as_str().unwrap().to_owned(),
                document: document.clone(),
            });
        }
    }
    scenarios
}

/// Scenarios that are about HTTP alone, and why the binary link has no counterpart. They count neither as passed nor as
/// missing.
pub const OF_HTTP_ALONE: [(&str, &str); 22] = [
    (
        "error-without-a-problem-5xx",
        "an HTTP status without a problem; the link has ERROR and CAP_RESULT, which always say",
    ),
    (
        "error-without-a-problem-4xx",
        "an HTTP status without a problem; the link has ERROR and CAP_RESULT, which always say",
    ),
    ("error-result-is-not-json", "a body that is no JSON; a CAP_RESULT is one CBOR item or closes the link"),
    ("error-outcome-decides", "an outcome beside the code; on the link 5902 and details.final say it"),
    ("retry-connection-cut-in-the-answer", "half an HTTP body; a frame comes whole or not at all"),
    ("retry-connection-cut-in-the-head", "half an HTTP head; a frame comes whole or not at all"),
    ("retry-get-after-a-cut", "GET /v1/self, a document of the HTTP front"),
    ("stream-cut-in-an-event", "half an SSE event; a frame comes whole or not at all"),
    ("stream-in-any-framing", "the framing of SSE"),
    ("stream-gives-events-it-does-not-know", "named events; a message type that is not known is 1005"),
    ("stream-of-a-call-that-was-forgotten", "events as a resource that can be 404"),
    ("cancel-of-a-call-that-has-ended", "a second request for the call's id, which the link tells by itself"),
    ("async-state", "GET /v1/calls/{id}, a document of the HTTP front"),
    ("async-state-of-an-unknown-call", "GET /v1/calls/{id}, a document of the HTTP front"),
    (
        "async-calls-are-listed",
        "documents of calls that only HTTP's front has; the link lists records with every field",
    ),
    ("discover-describes", "a description in one document, of the HTTP front"),
    ("discover-the-sidecar-itself", "GET /v1/self, a document of the HTTP front"),
    (
        "tools-mcp",
        "a definition that is passed on as it came; over the link the SDK makes it, with annotations",
    ),
    ("digits-of-decimals", "a decimal that no double holds; CBOR payloads hold doubles (PROTOCOL 10)"),
    (
        "provide-says-its-concurrency",
        "a member of POST /v1/provide; over the link a provider refuses what is too much with 5004",
    ),
    ("provide-result-after-a-cut", "a connection for one result; over the link it has its provider's"),
    ("tcp-wrong-token", "a status for each request; over the link the token is proven when it opens"),
];

/// Why a scenario is not played.
pub fn unplayed(name: &str) -> Option<&'static str> {
    OF_HTTP_ALONE.iter().find(|(found, _)| *found == name).map(|(_, why)| *why)
}
