//! At most once through the whole chain: A2A client → `capd-a2a serve` → sidecar A → sidecar B → `capd-a2a import` → an agent that
//! promises nothing, and on which each message has an effect. Something is cut or killed in each round; then the same message
//! is sent again.
//!
//! `CAPD_ROUNDS` sets the number of rounds.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::Duration;

use serde_json::{Value, json};
use support::importing::{Import, Mode, Scripted, offered};
use support::{Agent, EXTENSION, JSON, Serve, Sidecar, VERSION, body_of, eventually, said, send};

const SKILL: &str = "com.example.remote.chat:1.0.0";

struct Chain {
    a: Sidecar,
    b: Sidecar,
    agent: Scripted,
    home: tempfile::TempDir,
    state: tempfile::TempDir,
    import: Import,
    serve: Serve,
}

/// What goes wrong in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    None,
    AgentBefore,
    AgentAfter,
    ClientCut,
    ImportKilled,
    ProviderSidecarKilled,
    CallerSidecarKilled,
    ServeKilled,
}

const FAULTS: [Fault; 8] = [
    Fault::None,
    Fault::AgentBefore,
    Fault::AgentAfter,
    Fault::ClientCut,
    Fault::ImportKilled,
    Fault::ProviderSidecarKilled,
    Fault::CallerSidecarKilled,
    Fault::ServeKilled,
];

impl Chain {
    fn start() -> Self {
        let b = Sidecar::start();
        let a = Sidecar::with(&[&b]);
        let (home, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let agent = Scripted::start();
        agent.set(Mode::Acts);
        let import = Import::start(&b, home.path(), &[&agent.url]);
        let serve = Serve::start(&a, state.path(), &[]);
        let chain = Self { a, b, agent, home, state, import, serve };
        chain.settle();
        chain
    }

    /// Waits until the skill is offered: a round begins with a chain that holds.
    fn settle(&self) {
        let caller = eventually("the caller's sidecar is up", || {
            self.a.socket.exists().then(|| Agent::connect(&self.a))
        });
        eventually("the skill is offered", || offered(&caller, "chat"));
    }

    fn request(key: &str) -> String {
        let params = send(key, SKILL, json!({"text": key}));
        json!({"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": params}).to_string()
    }

    /// One round: the answer as it came, if one came.
    fn round(mut self, key: &str, fault: Fault, pause_us: u64) -> (Self, Value) {
        match fault {
            Fault::AgentBefore => self.agent.set(Mode::HangsUp),
            Fault::AgentAfter => self.agent.set(Mode::ActsAndHangsUp),
            _ => {}
        }
        let mut stream = self.serve.open("POST", "/rpc", &[VERSION, JSON], &Self::request(key));
        // Where in the call's way the fault meets it is left to chance.
        std::thread::sleep(Duration::from_micros(pause_us));
        match fault {
            Fault::ImportKilled => {
                self.import.kill();
                self.import = Import::start(&self.b, self.home.path(), &[&self.agent.url]);
            }
            Fault::ProviderSidecarKilled => self.b = self.b.restart(),
            Fault::CallerSidecarKilled => self.a = self.a.restart(),
            Fault::ServeKilled => self.serve.kill(),
            Fault::None | Fault::AgentBefore | Fault::AgentAfter | Fault::ClientCut => {}
        }
        let mut answer = Vec::new();
        if fault == Fault::ClientCut {
            drop(stream);
        } else {
            // A bridge that was killed ends the connection in the middle.
            let _ = stream.read_to_end(&mut answer);
        }
        self.agent.set(Mode::Acts);
        if fault == Fault::ServeKilled {
            self.serve = Serve::start(&self.a, self.state.path(), &[]);
        }
        (self, body_of(&String::from_utf8_lossy(&answer)))
    }
}

/// Holds what a client was told against what happened, and names it.
fn check(answer: &Value, effects: usize, about: &str) -> String {
    let task = &answer["result"]["task"];
    if task.is_null() {
        // Nothing was told, or that nothing is known.
        let message = answer["error"]["message"].as_str().unwrap_or("unknown");
        assert!(message.starts_with("unknown"), "{about}: {answer}");
        return "no task".to_owned();
    }
    let facts = &task["metadata"][EXTENSION];
    let outcome = facts["outcome"].as_str().unwrap_or_else(|| panic!("{about}: {task}"));
    match outcome {
        "executed" => assert_eq!(effects, 1, "{about}: {task}"),
        "refused" => {
            assert_eq!(effects, 0, "{about}: {task}");
            assert!(said(task).starts_with("Not executed"), "{about}: {task}");
        }
        "unknown" => assert!(said(task).starts_with("Unknown"), "{about}: {task}"),
        // The agent never fails by itself; a refusal of the bridge says that it did not run.
        "failed" => {
            assert_eq!((&facts["code"], effects), (&json!(5002), 0), "{about}: {task}");
            assert!(said(task).starts_with("Not executed, as its provider says"), "{about}: {task}");
        }
        other => panic!("{about}: {other}"),
    }
    outcome.to_owned()
}

#[test]
fn no_message_has_its_effect_twice_whatever_dies_and_the_client_is_told_the_truth() {
    let rounds: usize =
        std::env::var("CAPD_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(FAULTS.len() * 2);
    let mut chain = Chain::start();
    let mut outcomes: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for number in 0..rounds {
        let fault = FAULTS[number % FAULTS.len()];
        let key = format!("round-{number}");
        let pause_us = (number as u64 * 7_919) % 30_000;
        let about = format!("round {number}, {fault:?} after {pause_us} us");
        chain.settle();
        let (after, answer) = chain.round(&key, fault, pause_us);
        chain = after;
        let outcome = check(&answer, chain.agent.effects(&key), &about);
        *outcomes.entry(format!("{fault:?}")).or_default().entry(outcome).or_default() += 1;
        // As a client does whose connection broke: the same message again, perhaps to another process.
        let again = body_of(&chain.serve.exchange("POST", "/rpc", &[VERSION, JSON], &Chain::request(&key)).1);
        let effects = chain.agent.effects(&key);
        let outcome = check(&again, effects, &format!("{about}, again"));
        assert!(effects <= 1, "{about}: {effects} effects\n{}", chain.import.log());
        match fault {
            Fault::None | Fault::ClientCut => {
                assert_eq!((effects, outcome.as_str()), (1, "executed"), "{about}: {again}")
            }
            Fault::AgentBefore | Fault::AgentAfter => assert_eq!(outcome, "unknown", "{about}: {again}"),
            _ => {}
        }
    }
    let figures = json!({"rounds": rounds, "ran_twice": 0, "answers": outcomes});
    println!("{figures}");
    if let Some(file) = std::env::var_os("CAPD_CHAIN_WRITE") {
        std::fs::write(file, format!("{figures:#}\n")).unwrap();
    }
}
