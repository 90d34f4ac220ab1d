//! What a sidecar is to be like in; a running `capd`, and what can happen to its process, out.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capd::client::{Client, Endpoint, Options};
use capd_proto::fleet::Agent;
use capd_proto::identity::Identity;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::virtuals;

/// What a sidecar is started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    pub(crate) name: String,
    /// Its identity; one of its own for each sidecar.
    pub(crate) seed: u32,
    /// Where etcd is, for a member of the cell.
    pub(crate) endpoint: Option<String>,
    pub(crate) ttl_ms: u64,
    /// Whether its membership lets it serve.
    pub(crate) serves: bool,
    /// Whether another authority than the cell's signed its membership, and is the one that it believes.
    pub(crate) is_rogue: bool,
    /// Peers that it knows by configuration: a DID, and an address where it dials.
    pub(crate) peers: Vec<(String, Option<String>)>,
}

/// A `capd` process. Dropping it kills it.
pub(crate) struct Sidecar {
    pub(crate) name: String,
    pub(crate) did: String,
    /// As etcd's keys name it.
    pub(crate) agent: Agent,
    pub(crate) socket: PathBuf,
    pub(crate) quic: String,
    /// Everything it has on disk.
    pub(crate) dir: PathBuf,
    setup: Setup,
    capd: PathBuf,
    process: Option<(Child, ChildStdin)>,
}

impl Setup {
    pub(crate) fn identity(&self) -> Identity {
        Identity::from_seed(self.seed())
    }

    fn authority(&self) -> Identity {
        if self.is_rogue { Identity::from_seed([201; 32]) } else { virtuals::authority() }
    }

    fn seed(&self) -> [u8; 32] {
        // Virtual members have 78 there.
        let mut seed = [79; 32];
        seed[..4].copy_from_slice(&self.seed.to_be_bytes());
        seed
    }

    /// Starts it in a folder of its own beneath `parent`.
    pub(crate) async fn start(self, capd: &Path, parent: &Path) -> Sidecar {
        let dir = parent.join(&self.name);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
        let key = self.seed().iter().fold(String::new(), |mut digits, byte| {
            write!(digits, "{byte:02x}").unwrap();
            digits
        });
        write_private(&dir.join("key"), &key);
        let identity = self.identity();
        let serves: &[&str] = if self.serves { &["org.example.*"] } else { &[] };
        let membership = virtuals::membership(&self.authority(), &identity, serves);
        write_private(&dir.join("membership"), &BASE64_STANDARD.encode(membership));
        Sidecar::start_in(dir, self, capd, "127.0.0.1:0").await
    }

    fn write(&self, dir: &Path, quic: &str) -> PathBuf {
        let mut text = format!(
            "[agent]\ndir = {:?}\nkey_file = {:?}\n\n[listen]\nquic = {quic:?}\n\n[log]\nlevel = \"warn\"\n\n",
            dir.join("state"),
            dir.join("key"),
        );
        if rustix::process::geteuid().is_root() {
            text += "[process]\nallow_root = \"on\"\n\n";
        }
        if let Some(endpoint) = &self.endpoint {
            write!(
                text,
                "[fleet]\ncell = {:?}\nauthority = {:?}\nmembership = {:?}\nendpoints = [{endpoint:?}]\nttl_ms = {}\nmax_stale_ms = {MAX_STALE_MS}\n\n",
                virtuals::CELL,
                self.authority().did().as_str(),
                dir.join("membership"),
                self.ttl_ms
            )
            .unwrap();
        }
        for (did, address) in &self.peers {
            let addresses: Vec<_> = address.iter().collect();
            writeln!(text, "[[peers]]\ndid = {did:?}\naddresses = {addresses:?}\nserves = [\"*\"]").unwrap();
        }
        text += "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"*\"]\n";
        let path = dir.join("capd.toml");
        fs::write(&path, text).unwrap();
        path
    }
}

impl Sidecar {
    async fn start_in(dir: PathBuf, setup: Setup, capd: &Path, quic: &str) -> Self {
        let config = setup.write(&dir, quic);
        let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("capd.log")).unwrap();
        let mut command = Command::new(capd);
        // Whoever stands still in a group of processes that is left by its shell is woken by the system.
        command.env_clear().current_dir(&dir).kill_on_drop(true).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        command.args(["run", "--announce", "--stop-with-stdin", "--config"]).arg(config);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", capd.display()));
        let stdin = child.stdin.take().expect("it is piped");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        let read = timeout(PATIENCE, stdout.read_line(&mut line)).await;
        let said = |line: &str| serde_json::from_str::<Value>(line).ok();
        let Some(said) = read.ok().and_then(Result::ok).and_then(|_| said(&line)) else {
            let log = fs::read_to_string(dir.join("capd.log")).unwrap_or_default();
            panic!("{} does not start: {line}{log}", setup.name)
        };
        // What it prints afterwards must not block it.
        tokio::spawn(async move { stdout.read_to_end(&mut Vec::new()).await });
        let text = |key: &str| said[key].as_str().unwrap_or_else(|| panic!("no {key}: {said}")).to_owned();
        Self {
            name: setup.name.clone(),
            did: text("did"),
            agent: setup.identity().public_key().into(),
            socket: text("socket").into(),
            quic: text("quic"),
            dir,
            setup,
            capd: capd.to_owned(),
            process: Some((child, stdin)),
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(|(child, _)| child.id())
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect_within(Endpoint::Unix(self.socket.clone()), Options::default()).await.unwrap()
    }

    /// Ends it as if the machine had lost power.
    pub(crate) async fn kill(&mut self) {
        if let Some((mut child, _stdin)) = self.process.take() {
            // It may be dead already.
            let _ended = child.kill().await;
        }
    }

    /// Ends it as an operator does: it finishes what it has, and leaves the fleet.
    pub(crate) async fn stop(&mut self) {
        let Some((mut child, stdin)) = self.process.take() else { return };
        drop(stdin);
        if timeout(PATIENCE, child.wait()).await.is_err() {
            let _ended = child.kill().await;
        }
    }

    /// Starts it again with the same identity, state and address.
    pub(crate) async fn start_again(&mut self) {
        self.kill().await;
        let again = Self::start_in(self.dir.clone(), self.setup.clone(), &self.capd, &self.quic).await;
        *self = again;
    }

    /// Starts another process from a copy of everything that this one has on disk; this one stands still meanwhile.
    pub(crate) async fn clone_into(&self, dir: &Path) -> Self {
        self.signal(Signal::STOP);
        copy(&self.dir, dir);
        self.signal(Signal::CONT);
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        // The socket is the other one's.
        let _none = fs::remove_file(dir.join("state/capd.sock"));
        Self::start_in(dir.to_owned(), self.setup.clone(), &self.capd, "127.0.0.1:0").await
    }

    /// Lets it stand still, with its connections open; or go on.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
            kill_process(pid, signal).unwrap();
        }
    }
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, format!("{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Copies files and folders; sockets are left out.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// How long a member that vanished from the registry may still be tried, so short that a run sees the end of it.
pub(crate) const MAX_STALE_MS: u64 = 120_000;
/// Longest wait for a sidecar to listen, or to end: many start at once.
const PATIENCE: Duration = Duration::from_secs(60);
