//! Reads the configuration: a TOML file, `CAPD_*` variables and flags in; one typed [`Config`], or every mistake with
//! its place, out.
//!
//! A later layer wins: defaults < file < environment < flags. [`keys`] is the only table of keys; the parser, the
//! checks, `capd config check` and [`reference()`] all read it.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use capd_proto::capability::CapabilityPattern;
use capd_proto::rate::Rate;
use tracing_subscriber::filter::{LevelFilter, Targets};

mod check;
mod difference;
pub mod edit;
mod filter;
mod fleet;
mod grant;
pub mod keys;
mod kubernetes;
mod reference;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub use difference::{Change, Effect, difference};
pub use fleet::{Etcd, Fleet, Mdns, Registry};
pub use grant::{Action, Caller, Grant, Group};
pub use reference::reference;
pub use source::Origin;

use crate::otlp::Endpoint;

/// The checked configuration of the daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[agent]`: the agent, and where its sidecar keeps files.
    pub agent: Agent,
    /// `[listen]`: where the sidecar accepts links.
    pub listen: Listen,
    /// `[peer]`: settings for all peers.
    pub peer: PeerPolicy,
    /// `[[peers]]`: who the peers are and where they listen.
    pub peers: Vec<Peer>,
    /// `[[groups]]`: callers under one name.
    pub groups: Vec<Group>,
    /// `[[allow]]`: what peers may call.
    pub allow: Vec<Grant>,
    /// `[policy]`: policies in addition to `[[allow]]`.
    pub policy: Policy,
    /// `[limits]`: bounds in bytes and counts.
    pub limits: Limits,
    /// `[timeouts]`: bounds in milliseconds.
    pub timeouts: Timeouts,
    /// `[quic]`: how calls are assigned to streams.
    pub quic: Quic,
    /// `[runtime]`: how the sidecar itself runs.
    pub runtime: Runtime,
    /// `[process]`: what each process of a process provider may use.
    pub process: Process,
    /// `[fleet]`: the cell that this sidecar is a member of; none where it is of no fleet.
    pub fleet: Option<Fleet>,
    /// `[audit]`: the audit log.
    pub audit: Audit,
    /// `[log]`: what is logged, and in which format.
    pub log: Log,
    /// `[metrics]`: what metrics name.
    pub metrics: Metrics,
    /// `[otlp]`: where traces are exported to.
    pub otlp: Otlp,
    effective: Vec<Effective>,
    ignored: Vec<String>,
    sources: Option<Sources>,
}

/// `[agent]`: the agent, and where its sidecar keeps files.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// The name told to peers in HELLO's `agent_info`.
    pub name: String,
    /// State directory: key file, token and socket are here by default.
    pub dir: PathBuf,
    /// The identity key's file.
    pub key_file: PathBuf,
    /// The declaration of capabilities, if any.
    pub capabilities: Option<PathBuf>,
    /// DID documents (JSON) of identities that are not `did:key`.
    pub did_documents: Vec<PathBuf>,
    /// Whether the sidecar refuses to start if another user may write its files.
    pub check_files: bool,
}

/// `[listen]`: where the sidecar accepts links; `None` is off.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// Peer links over QUIC.
    pub quic: Option<SocketAddr>,
    /// Peer links over TCP with TLS.
    pub tcp: Option<SocketAddr>,
    /// Local links over a unix socket.
    pub unix: Option<PathBuf>,
    /// Local links over loopback TCP; they must prove that they know the token.
    pub local_tcp: Option<SocketAddr>,
    /// The file that holds the token of `local_tcp`.
    pub token_file: PathBuf,
    /// Whether the token itself is also accepted.
    pub token_plain: bool,
    /// Health and metrics over HTTP.
    pub health: Option<SocketAddr>,
}

/// `[peer]`: settings for all peers.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerPolicy {
    /// Whether envelopes between mutually authenticated peers carry signatures. **Source:** PROTOCOL 5.
    pub signatures: Signatures,
    /// Who may open a peer link.
    pub admit: Admit,
    /// The capabilities that unlisted peers may serve.
    pub serves: Vec<CapabilityPattern>,
    /// How often a peer is asked again for its capabilities, in milliseconds.
    pub refresh_ms: u64,
}

/// `peer.signatures`. **Source:** PROTOCOL 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signatures {
    /// Every envelope is signed and verified.
    Always,
    /// The link's own principal may leave `sig` empty if both sides offer `channel-auth`.
    Channel,
}

/// `peer.admit`: who may open a peer link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// The DIDs of `[[peers]]` only.
    Listed,
    /// Any key; accepted only if every peer listener is on loopback.
    Any,
}

/// One of `[[peers]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What this owner calls it; two peers never have the same name, in whatever case.
    pub name: Option<String>,
    /// The peer's DID.
    pub did: String,
    /// Where it listens, preferred first; empty for a peer that only connects to this side.
    pub addresses: Vec<Address>,
    /// Which of its declared capabilities may be called; by default none.
    pub serves: Vec<CapabilityPattern>,
}

/// Where a peer listens. **Shape:** `quic://HOST:PORT` or `tcp://HOST:PORT`, with `+dns` behind the scheme for a host that
/// names several sidecars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The transport there.
    pub transport: Transport,
    /// A name or an IP address; IPv6 without its brackets.
    pub host: String,
    /// The UDP or TCP port.
    pub port: u16,
    /// Whether other sidecars answer under this host name as well.
    pub is_shared: bool,
}

/// The transport to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// QUIC over UDP.
    Quic,
    /// TLS over TCP.
    Tcp,
}

/// `[policy]`: policies in addition to `[[allow]]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Files of policies in Cedar.
    pub files: Vec<PathBuf>,
}

/// `[limits]`: bounds in bytes and counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Largest frame accepted and sent, in bytes.
    pub msg_size_bytes_max: u32,
    /// Calls in flight, all links together.
    pub calls_in_flight_max: usize,
    /// Calls in flight of one peer.
    pub calls_in_flight_per_peer_max: usize,
    /// Calls in flight of one capability.
    pub calls_in_flight_per_capability_max: usize,
    /// Calls in flight with one agent on a local link.
    pub calls_in_flight_per_provider_max: usize,
    /// Requests to peers that wait for an answer.
    pub requests_waiting_max: usize,
    /// How often one peer may call; `None` is unlimited.
    pub call_rate_per_peer: Option<Rate>,
    /// How often all peers together may call; `None` is unlimited.
    pub call_rate: Option<Rate>,
    /// How often one peer may be denied; `None` is unlimited.
    pub denied_rate_per_peer: Option<Rate>,
    /// Links that peers have opened; the agent may have the same number besides.
    pub links_max: usize,
    /// Links that one peer has opened.
    pub links_per_peer_max: usize,
    /// Links that are opening.
    pub links_opening_max: usize,
    /// Links that peers at one address are opening.
    pub links_opening_per_address_max: usize,
    /// Opening links beyond which a peer must first prove its address.
    pub links_unvalidated_max: usize,
    /// How often peers at one address may connect; `None` is unlimited.
    pub handshake_rate_per_address: Option<Rate>,
    /// Exchange streams that a peer has open on one QUIC link.
    pub streams_per_link_max: u32,
    /// How often a peer may open such a stream without a message; `None` is unlimited.
    pub stream_reset_rate_per_link: Option<Rate>,
    /// Bytes waiting to be written on one link.
    pub queue_bytes_max: usize,
    /// Frames waiting to be written on one stream.
    pub queue_frames_max: usize,
    /// Bytes of unfinished large messages on one link.
    pub receive_bytes_max: usize,
    /// Calls that the ledger remembers.
    pub ledger_entries_max: usize,
    /// Bytes of recorded results of calls that are not idempotent, in the journal.
    pub ledger_bytes_max: usize,
    /// Bytes of recorded results of idempotent calls, in memory.
    pub ledger_idempotent_bytes_max: usize,
    /// The longest `ttl` of a call that may run only once, in a fleet. **Units:** milliseconds.
    pub ledger_ttl_max_ms: u64,
    /// Capabilities that one peer declares.
    pub peer_capabilities_max: usize,
    /// Bytes of the capabilities that one peer declares.
    pub peer_capability_bytes_max: usize,
    /// Repairs of params in one turn (`thread_id`) of the agent.
    pub max_argument_repairs: u64,
}

/// `[timeouts]`: bounds in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeouts {
    /// Handshake and HELLO together, in milliseconds.
    pub handshake_ms: u64,
    /// Time for a begun frame, in milliseconds.
    pub frame_ms: u64,
    /// Calls in flight at shutdown, in milliseconds.
    pub drain_ms: u64,
    /// Silence after which a link is closed, in milliseconds.
    pub idle_ms: u64,
    /// Silence after which a PING is sent, in milliseconds.
    pub keep_alive_ms: u64,
    /// Time for a peer to answer a PING while something waits for it, in milliseconds.
    pub dead_ms: u64,
    /// Time of a call that sets none, in milliseconds.
    pub call_ms: u64,
    /// Pause before the first reconnect, in milliseconds.
    pub reconnect_initial_ms: u64,
    /// Longest pause between reconnects, in milliseconds.
    pub reconnect_max_ms: u64,
}

/// `[quic]`: how calls are assigned to streams. **Source:** PROTOCOL 4.
#[derive(Clone, Debug, PartialEq)]
pub struct Quic {
    /// Long-lived exchange streams of a link.
    pub shared_streams: usize,
    /// Largest message on a shared stream, in bytes.
    pub shared_stream_message_bytes_max: usize,
}

/// `[runtime]`: how the sidecar itself runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Runtime {
    /// How long it polls for more work before it sleeps, in microseconds.
    pub busy_poll_us: u64,
}

/// `[process]`: what each process of a process provider may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Memory of its own, in bytes.
    pub memory_bytes_max: u64,
    /// Largest file that it writes, in bytes.
    pub file_bytes_max: u64,
    /// Files and sockets open at once.
    pub open_files_max: u64,
    /// Processes and threads of one call.
    pub processes_max: u64,
    /// The user of commands if the sidecar runs as root.
    pub user: Option<String>,
    /// Whether commands may run as root.
    pub allow_root: bool,
}

/// `[audit]`: the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// The log's file; `None` is off.
    pub file: Option<PathBuf>,
    /// The tenant in the records.
    pub tenant: String,
    /// Largest size of the file, in bytes.
    pub file_bytes_max: u64,
    /// The part of the file that denied messages may not use, in percent.
    pub reserved_percent: u8,
    /// Bytes kept of a result that breaks its schema.
    pub raw_bytes_max: usize,
}

/// `[log]`: what is logged, and in which format.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// For a person or for a machine.
    pub format: LogFormat,
    /// The least severe level that is logged, unless `targets` override it.
    pub level: LevelFilter,
    /// Levels by module: `CAPD_LOG` over `level`.
    pub targets: Targets,
    /// Whether each call is logged: the owner wants it, and the levels let it through.
    pub access: bool,
    /// The capability whose params and results are logged with its calls.
    pub payloads_of: Option<String>,
}

impl Log {
    /// The same with other levels: `LEVEL` or `MODULE=LEVEL`, separated by commas.
    ///
    /// **Errors:** what is no level, or no module.
    pub fn with_levels(&self, text: &str) -> Result<Self, Mistake> {
        Ok(Self { targets: filter::targets(text, self.level)?, ..self.clone() })
    }
}

/// `[metrics]`: what metrics name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    /// Whether they name capabilities.
    pub capabilities: bool,
}

/// `[otlp]`: where traces are exported to.
#[derive(Clone, Debug, PartialEq)]
pub struct Otlp {
    /// The collector; `None` is off.
    pub endpoint: Option<Endpoint>,
    /// The share of traces beginning here that are recorded, from 0 to 1.
    pub sample_ratio: f64,
}

/// `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One readable line per event.
    Human,
    /// One JSON object per event.
    Json,
}

/// One key's value and its origin, as `capd config show` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The dotted key.
    pub key: &'static str,
    /// The value as it would be written in the file.
    pub value: String,
    /// The layer that set it.
    pub origin: Origin,
}

/// The sources of [`Config::load`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    /// The TOML file; it must exist when named.
    pub file: Option<PathBuf>,
    /// The environment: `CAPD_*` is read, and `XDG_STATE_HOME` and `HOME` for the default of `agent.dir`.
    pub environment: Vec<(String, String)>,
    /// Flags: dotted key and value, the value as in the environment.
    pub overrides: Vec<(String, String)>,
}

impl Config {
    /// Reads the file and applies the three sources over the defaults.
    ///
    /// **Errors:** every mistake found, each with file and line (or variable, or flag), key, and what is accepted.
    pub fn load(sources: &Sources) -> Result<Self, Mistakes> {
        let text = match &sources.file {
            None => None,
            Some(path) => Some(source::read(path).map_err(|mistake| Mistakes(vec![mistake]))?),
        };
        let file = sources.file.as_deref().zip(text.as_deref());
        let config = Self::layer(file, &sources.environment, &sources.overrides)?;
        Ok(Self { sources: Some(sources.clone()), ..config })
    }

    /// The sources, to read it again; none if it was only layered.
    pub const fn sources(&self) -> Option<&Sources> {
        self.sources.as_ref()
    }

    /// Applies file text, environment and flags over the defaults; reads no file.
    ///
    /// **Errors:** as [`Config::load`].
    pub fn layer(
        file: Option<(&Path, &str)>,
        environment: &[(String, String)],
        overrides: &[(String, String)],
    ) -> Result<Self, Mistakes> {
        let mut settings = source::Settings::default();
        let mut mistakes = Vec::new();
        if let Some((path, text)) = file {
            source::from_file(path, text, &mut settings, &mut mistakes);
        }
        let ignored = source::from_environment(environment, &mut settings, &mut mistakes);
        source::from_overrides(overrides, &mut settings, &mut mistakes);
        let config = check::build(&settings, environment, &mut mistakes);
        match config {
            Some(config) if mistakes.is_empty() => Ok(Self { ignored, ..config }),
            _ => Err(Mistakes(mistakes)),
        }
    }

    /// The ignored variables that Kubernetes makes for a Service called `capd`.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// Every key in the table's order with its value and origin.
    pub fn effective(&self) -> &[Effective] {
        &self.effective
    }
}

/// One mistake: its place, the key, what is wrong, and what is accepted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// File and line, variable, or flag.
    pub origin: Origin,
    /// The dotted key; empty when the file is not TOML at all.
    pub key: String,
    /// What is wrong.
    pub problem: String,
    /// What is accepted instead.
    pub accepted: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}; accepted: {}", self.problem, self.accepted)
    }
}

/// Every mistake of one configuration, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

impl fmt::Display for Peer {
    /// As in the file, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: fmt::Display>(items: &[T]) -> String {
            items.iter().map(|item| format!("\"{item}\"")).collect::<Vec<_>>().join(", ")
        }
        let (addresses, serves) = (list(&self.addresses), list(&self.serves));
        f.write_str("{ ")?;
        if let Some(name) = &self.name {
            write!(f, "name = {name:?}, ")?;
        }
        write!(f, "did = {:?}, addresses = [{addresses}], serves = [{serves}] }}", self.did)
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Quic => "quic",
            Self::Tcp => "tcp",
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dns = if self.is_shared { "+dns" } else { "" };
        if self.host.contains(':') {
            write!(f, "{}{dns}://[{}]:{}", self.transport, self.host, self.port)
        } else {
            write!(f, "{}{dns}://{}:{}", self.transport, self.host, self.port)
        }
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        value::address(text)
    }
}
