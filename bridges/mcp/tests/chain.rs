//! At most once through the whole chain: MCP client → `capd-mcp serve` → sidecar A → sidecar B → `capd-mcp import` → a server
//! whose tool appends a line. Something is cut or killed in each round, under one key; then the call is made again.
//!
//! `CAPD_ROUNDS` sets the number of rounds, and `CAPD_CHAIN_WRITE` names a file for the figures. `CAPD_PLAIN_CLIENT` is the command of a plain
//! client, which then meets the same faults without capd, and calls again after an attempt that failed.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use support::importing::{Bridge, Script, eventually, offered, tool};
use support::plain::{Hit, Plain};
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
        runs(&self.script, key)
    }
}

fn runs(script: &Script, key: &str) -> usize {
    script.read("effects").lines().filter(|line| *line == key).count()
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

/// What became of the rounds with one fault.
#[derive(Default, serde::Serialize)]
struct Tally {
    rounds: usize,
    /// Rounds in which the tool ran, and those in which it ran more than once.
    ran: usize,
    ran_twice: usize,
    /// First answers, by what they said; `none` where the client's own bridge was killed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    answers: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, runs: usize) {
        self.rounds += 1;
        self.ran += usize::from(runs > 0);
        self.ran_twice += usize::from(runs > 1);
    }
}

type Tallies = BTreeMap<String, Tally>;

/// The fault of a round, its key, and when the fault comes.
fn rounds() -> impl Iterator<Item = (Fault, String, u64)> {
    let rounds: usize =
        std::env::var("CAPD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(FAULTS.len() * 2);
    (0..rounds).map(|number| {
        (FAULTS[number % FAULTS.len()], format!("round-{number}"), (number as u64 * 7_919) % 12_000)
    })
}

#[test]
fn no_key_runs_twice_whatever_dies_and_the_model_is_told_the_truth() {
    let mut chain = Chain::start();
    let mut tallies = Tallies::new();
    for (fault, key, pause_us) in rounds() {
        let about = format!("{key}, {fault:?} after {pause_us} us");
        chain.settle();
        let (after, answer) = round(chain, &key, fault, pause_us);
        chain = after;
        let mut outcome = "none";
        if let Some(said) = &answer {
            check(said, chain.runs(&key), &about);
            outcome = said["_meta"]["io.capd/outcome"].as_str().unwrap_or("no such tool");
        }
        // As a client does whose stream broke: the same call with the same key, perhaps through another bridge.
        let id = chain.ask(&key);
        let again = told(chain.client.answer(id));
        check(&again, chain.runs(&key), &format!("{about}, again"));
        assert!(chain.runs(&key) <= 1, "{about}: it ran {} times\n{}", chain.runs(&key), chain.script.log());
        if fault == Fault::None {
            assert_eq!(chain.runs(&key), 1, "{about}: without a fault it runs");
        }
        let tally = tallies.entry(format!("{fault:?}")).or_default();
        tally.add(chain.runs(&key));
        *tally.answers.entry(outcome.to_owned()).or_default() += 1;
    }
    let plain = plain();
    let figures = json!({"through_capd": tallies, "plain_client": plain});
    println!("{figures}");
    if let Some(file) = std::env::var_os("CAPD_CHAIN_WRITE") {
        std::fs::write(file, format!("{figures:#}\n")).unwrap();
    }
}

/// The same rounds without capd. What is between the two ends of the chain is not there, so whatever kills it kills the server instead.
fn plain() -> Option<Tallies> {
    let script = Script::new(&json!([tool("append")]), "legacy");
    let mut client = Plain::start(&script)?.round(&script, "first", Hit::Nothing, 0);
    let mut tallies = Tallies::new();
    for (fault, key, pause_us) in rounds() {
        let hit = match fault {
            Fault::None | Fault::ServerBefore | Fault::ServerAfter => Hit::Nothing,
            Fault::ServeKilled => Hit::ClientKilled,
            Fault::ImportKilled | Fault::ProviderSidecarKilled | Fault::CallerSidecarKilled => {
                Hit::ServerKilled
            }
        };
        match fault {
            Fault::ServerBefore => script.set("mode", "die-before"),
            Fault::ServerAfter => script.set("mode", "die-after"),
            _ => {}
        }
        client = client.round(&script, &key, hit, pause_us);
        tallies.entry(format!("{fault:?}")).or_default().add(runs(&script, &key));
    }
    let after = &tallies["ServerAfter"];
    assert_eq!(after.ran_twice, after.rounds, "a plain client repeats what it has no answer to");
    Some(tallies)
}
