//! What a sidecar is to be like in; a running `capd` and where it is reached out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use capd_proto::identity::Identity;
use serde_json::{Value, json};

use crate::agents::UNJOURNALED;
use crate::http::APP_PATH;
use crate::payload::{INPUT_SCHEMA, OUTPUT_SCHEMA};
use crate::world::Process;

/// How a sidecar speaks to peers, and whom it knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// `peer.signatures`.
    pub(crate) signatures: &'static str,
    /// Peers that are configured and never come.
    pub(crate) peers: u32,
    /// Whether results of idempotent calls are kept, as they are unless `limits.ledger_idempotent_bytes_max` says otherwise.
    pub(crate) keeps_results: bool,
    /// Whether its agent speaks HTTP to it.
    pub(crate) http: Http,
}

/// How HTTP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Http {
    /// Nothing but the binary link, and a ledger that remembers every call of a run.
    No,
    /// On loopback TCP as well; every limit is as it is unless it is configured.
    Yes,
    /// The same, and calls are posted to an application on this port of loopback.
    Push { port: u16 },
}

/// A running sidecar.
#[derive(Debug)]
pub(crate) struct Sidecar {
    pub(crate) process: Process,
    pub(crate) socket: PathBuf,
    /// Where it listens on loopback TCP, or nothing.
    pub(crate) local_tcp: String,
    did: String,
    quic: String,
}

impl Sidecar {
    /// Runs `program` with its state in `dir`, which it makes, and waits until it listens.
    pub(crate) fn start(
        program: &Path,
        dir: &Path,
        name: &'static str,
        setup: Setup,
        peer: Option<&Self>,
    ) -> Self {
        std::fs::create_dir(dir).unwrap();
        let config = dir.join("capd.toml");
        std::fs::write(&config, text(dir, setup, peer)).unwrap();
        if let Http::Push { port } = setup.http {
            std::fs::write(dir.join(CAPABILITIES), declaration(port)).unwrap();
        }
        let mut command = Command::new(program);
        // What the environment says of sidecars is about others.
        command.env_clear().current_dir(dir);
        command.args(["run", "--announce", "--stop-with-stdin", "--config"]).arg(config);
        let (process, line) = Process::start(name, command);
        let said: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{name}: {line:?}: {error}"));
        let text =
            |key: &str| said[key].as_str().unwrap_or_else(|| panic!("{name} says no {key}")).to_owned();
        let local_tcp = if setup.http == Http::No { String::new() } else { text("local_tcp") };
        Self { process, socket: text("socket").into(), local_tcp, did: text("did"), quic: text("quic") }
    }
}

fn text(dir: &Path, setup: Setup, peer: Option<&Sidecar>) -> String {
    let ledger =
        format!("ledger_entries_max = {LEDGER_ENTRIES_MAX}\nledger_bytes_max = {LEDGER_BYTES_MAX}\n");
    let mut text = format!(
        "[agent]\ndir = {dir:?}\n\
         [listen]\nquic = \"127.0.0.1:0\"\n\
         [log]\nlevel = \"warn\"\n\
         [peer]\nadmit = \"any\"\nsignatures = {:?}\n\
         [limits]\n{ledger}\
         [[allow]]\ncallers = [\"*\"]\ncapabilities = [\"*\"]\n",
        setup.signatures
    );
    if !setup.keeps_results {
        text = text.replace("[limits]\n", "[limits]\nledger_idempotent_bytes_max = 0\n");
    }
    if setup.http != Http::No {
        text = text.replace("[listen]\n", "[listen]\nlocal_tcp = \"127.0.0.1:0\"\n");
        text = text.replace(&ledger, "");
    }
    if matches!(setup.http, Http::Push { .. }) {
        text = text.replace("[agent]\n", &format!("[agent]\ncapabilities = {CAPABILITIES:?}\n"));
    }
    let mut add = |did: &str, addresses: &[String]| {
        writeln!(text, "[[peers]]\ndid = {did:?}\naddresses = {addresses:?}\nserves = [\"*\"]")
            .expect("text takes everything");
    };
    if let Some(peer) = peer {
        add(&peer.did, &[format!("quic://{}", peer.quic)]);
    }
    for number in 0..setup.peers {
        let mut seed = [0x5a; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        add(Identity::from_seed(seed).did().as_ref(), &[]);
    }
    text
}

/// What is served by an application. JSON is YAML.
fn declaration(port: u16) -> String {
    let schema = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let (name, version) = UNJOURNALED.split_once(':').expect("an id has a version");
    let capability = json!({
        "name": name,
        "version": version,
        "idempotent": true,
        "inputSchema": schema(INPUT_SCHEMA),
        "outputSchema": schema(OUTPUT_SCHEMA),
        "http": {"url": format!("http://127.0.0.1:{port}{APP_PATH}")},
    });
    json!({"version": 1, "capabilities": [capability]}).to_string()
}

/// Beside its configuration.
const CAPABILITIES: &str = "capabilities.yaml";
/// Rounds of journaled calls add up, and all of them are remembered.
const LEDGER_ENTRIES_MAX: u64 = 20_000_000;
const LEDGER_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
