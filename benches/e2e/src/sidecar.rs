//! What a sidecar is to be like in; a running `capd` and where it is reached out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use capd_proto::identity::Identity;
use serde_json::Value;

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
}

/// A running sidecar.
#[derive(Debug)]
pub(crate) struct Sidecar {
    pub(crate) process: Process,
    pub(crate) socket: PathBuf,
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
        let mut command = Command::new(program);
        // What the environment says of sidecars is about others.
        command.env_clear().current_dir(dir);
        command.args(["run", "--announce", "--stop-with-stdin", "--config"]).arg(config);
        let (process, line) = Process::start(name, command);
        let said: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{name}: {line:?}: {error}"));
        let text =
            |key: &str| said[key].as_str().unwrap_or_else(|| panic!("{name} says no {key}")).to_owned();
        Self { process, socket: text("socket").into(), did: text("did"), quic: text("quic") }
    }
}

fn text(dir: &Path, setup: Setup, peer: Option<&Sidecar>) -> String {
    let mut text = format!(
        "[agent]\ndir = {dir:?}\n\
         [listen]\nquic = \"127.0.0.1:0\"\n\
         [log]\nlevel = \"warn\"\n\
         [peer]\nadmit = \"any\"\nsignatures = {:?}\n\
         [limits]\nledger_entries_max = {LEDGER_ENTRIES_MAX}\nledger_bytes_max = {LEDGER_BYTES_MAX}\n\
         [[allow]]\ncallers = [\"*\"]\ncapabilities = [\"*\"]\n",
        setup.signatures
    );
    if !setup.keeps_results {
        text = text.replace("[limits]\n", "[limits]\nledger_idempotent_bytes_max = 0\n");
    }
    let mut add = |did: &str, addresses: &[String]| {
        writeln!(text, "[[peers]]\ndid = {did:?}\naddresses = {addresses:?}\nserves = [\"*\"]").expect("text takes everything");
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

/// Rounds of journaled calls add up, and all of them are remembered.
const LEDGER_ENTRIES_MAX: u64 = 20_000_000;
const LEDGER_BYTES_MAX: u64 = 8 * 1024 * 1024 * 1024;
