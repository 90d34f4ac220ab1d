//! At most once through the whole chain: MCP client → `capd-mcp serve` → sidecar A → sidecar B → `capd-mcp import` → a server
//! whose tool appends a line. Something is cut or killed in each round, under one key; then the call is made again.
//!
//! `CAPD_ROUNDS` sets the number of rounds.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use support::importing::{Bridge, Script, eventually, offered, tool};
use support::{Agent, McpClient, Sidecar, scripted, text};

#[test]
#[ignore = "it is the server that the other tests start"]
fn scripted_server() {
    scripted::run();
}

const TOOL: &str = "com_example_tools_append";

struct Chain {
    a: Sidecar,
    b: Sidecar,
    script: Script,
    import: Bridge,
    client: McpClient,
}

impl Chain {
    fn start() -> Self {
        let b = Sidecar::start();
        let a = Sidecar::with(&[&b]);
        let script = Script::new(&json!([tool("append")]), "legacy");
        let import = script.import(&b, "filesystem:write");
        let client = Self::client(&a);
        let chain = Self { a, b, script, import, client };
        let caller = Agent::connect(&chain.a);
        eventually("the tool is offered", || offered(&caller, "append"));
        drop(caller);
        chain
    }

    fn client(a: &Sidecar) -> McpClient {
        let mut client = McpClient::serve(a, &[]);
        client.initialize();
        client
    }

    fn ask(&mut self, key: &str) -> u64 {
        let params = json!({
            "name": TOOL,
            "arguments": {"key": key},
            "_meta": {"io.capd/idempotency-key": key},
        });
        self.client.ask("tools/call", params)
    }

    /// Waits until the tool is offered again: a round begins with a chain that holds.
    fn settle(&mut self) {
        for _ in 0..3_000 {
            if self.client.tools().0.iter().any(|tool| tool["name"] == TOOL) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("the tool is not offered again\n{}", self.script.log());
    }

    /// How often the tool ran for a key.
    fn runs(&self, key: &str) -> usize {
        self.script.read("effects").lines().filter(|line| *line == key).count()
    }
}

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    None,
    ServerBefore,
    ServerAfter,
    ImportKilled,
    ProviderSidecarKilled,
    CallerSidecarKilled,
    ServeKilled,
}

const FAULTS: [Fault; 7] = [
    Fault::None,
    Fault::ServerBefore,
    Fault::ServerAfter,
    Fault::ImportKilled,
    Fault::ProviderSidecarKilled,
    Fault::CallerSidecarKilled,
    Fault::ServeKilled,
];

/// One round: the answer as it came, if one came.
fn round(mut chain: Chain, key: &str, fault: Fault, pause_us: u64) -> (Chain, Option<Value>) {
    match fault {
        Fault::ServerBefore => chain.script.set("mode", "die-before"),
        Fault::ServerAfter => chain.script.set("mode", "die-after"),
        _ => {}
    }
    let id = chain.ask(key);
    // Where in the call's way the fault meets it is left to chance.
    std::thread::sleep(std::time::Duration::from_micros(pause_us));
    match fault {
        Fault::ImportKilled => {
            chain.import.kill();
            chain.import = chain.script.import(&chain.b, "filesystem:write");
        }
        Fault::ProviderSidecarKilled => chain.b = chain.b.restart(),
        Fault::CallerSidecarKilled => chain.a = chain.a.restart(),
        Fault::ServeKilled => {
            let _ended_already = chain.client.child.kill();
        }
        Fault::None | Fault::ServerBefore | Fault::ServerAfter => {}
    }
    let answer = chain.client.answer_or_end(id).map(told);
    chain.script.set("mode", "");
    if fault == Fault::ServeKilled {
        chain.client = Chain::client(&chain.a);
    }
    (chain, answer)
}

/// What the client was told: the result, or the whole answer where it is an error.
fn told(answer: Value) -> Value {
    if answer["error"].is_null() { answer["result"].clone() } else { answer }
}

/// Holds what a model was told against what happened.
fn check(said: &Value, runs: usize, about: &str) {
    if said["error"]["code"] == -32602 {
        // A bridge that has just been started has not seen a tool whose provider is away.
        return;
    }
    let outcome = said["_meta"]["io.capd/outcome"].as_str().unwrap_or_else(|| panic!("{about}: {said}"));
    match outcome {
        "executed" => assert_eq!(runs, 1, "{about}: {said}"),
        "refused" => {
            assert_eq!(runs, 0, "{about}: {said}");
            assert!(text(said).starts_with("Not executed"), "{about}: {said}");
        }
        "unknown" => assert!(text(said).starts_with("Unknown"), "{about}: {said}"),
        // The tool is written so that it never fails by itself; a refusal of the bridge says that it did not run.
        "failed" => {
            assert_eq!((&said["_meta"]["io.capd/code"], runs), (&json!(5002), 0), "{about}: {said}");
            assert!(text(said).starts_with("Not executed, as its provider says"), "{about}: {said}");
        }
        other => panic!("{about}: {other}"),
    }
}

#[test]
fn no_key_runs_twice_whatever_dies_and_the_model_is_told_the_truth() {
    let rounds: usize =
        std::env::var("CAPD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(FAULTS.len() * 2);
    let mut chain = Chain::start();
    let mut outcomes: BTreeMap<(Fault, String), usize> = BTreeMap::new();
    for number in 0..rounds {
        let fault = FAULTS[number % FAULTS.len()];
        let key = format!("round-{number}");
        let pause_us = (number as u64 * 7_919) % 12_000;
        let about = format!("round {number}, {fault:?} after {pause_us} us");
        chain.settle();
        let (after, answer) = round(chain, &key, fault, pause_us);
        chain = after;
        if let Some(said) = &answer {
            check(said, chain.runs(&key), &about);
            let outcome = said["_meta"]["io.capd/outcome"].as_str().unwrap_or("no such tool").to_owned();
            *outcomes.entry((fault, outcome)).or_default() += 1;
        }
        // As a client does whose stream broke: the same call with the same key, perhaps through another bridge.
        let id = chain.ask(&key);
        let again = told(chain.client.answer(id));
        check(&again, chain.runs(&key), &format!("{about}, again"));
        assert!(chain.runs(&key) <= 1, "{about}: it ran {} times\n{}", chain.runs(&key), chain.script.log());
        if fault == Fault::None {
            assert_eq!(chain.runs(&key), 1, "{about}: without a fault it runs");
        }
    }
    println!("{outcomes:?}");
}
