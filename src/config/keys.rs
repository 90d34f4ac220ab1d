//! The table of keys: what may be set, what it takes, and the names of environment variables.

use capd_proto::limits;

pub use super::reference::OTHER_VARIABLES;

/// One key: how it is written, what it takes, what stands when nobody sets it, and why one would.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The dotted key, `section.key`.
    pub path: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// Its value when no layer sets it.
    pub default: Fallback,
    /// What it is for, one sentence.
    pub meaning: &'static str,
}

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A short name.
    Name,
    /// A path; relative to the file that names it, or to the working directory.
    Path,
    /// A path, or `off`.
    PathOrOff,
    /// Several paths; comma separated outside the file.
    Paths,
    /// `IP:PORT` or `off`.
    Listener,
    /// `IP:PORT` on loopback, or `off`.
    LoopbackListener,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An integer of a unit, both ends included.
    Integer {
        /// What one of it is.
        unit: Unit,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A rate, or `off`.
    RateOrOff,
    /// A capability's name, or `off`.
    CapabilityOrOff,
    /// Names and namespaces of capabilities; comma separated outside the file.
    Capabilities,
    /// The `[[peers]]` tables; `DID@ADDRESS=CAPABILITY`, comma separated, outside the file.
    Peers,
    /// The `[[groups]]` tables; `NAME=DID`, comma separated, outside the file.
    Groups,
    /// The `[[allow]]` tables; `CALLER=CAPABILITY`, comma separated, outside the file.
    Grants,
}

/// What an integer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Things.
    Count,
    /// Hundredths.
    Percent,
}

/// A key's value when no layer sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// A word.
    Text(&'static str),
    /// A number in the key's unit.
    Integer(u64),
    /// Nothing; the text says what that means.
    Unset(&'static str),
    /// Made from other values; the text says how.
    Derived(&'static str),
}

const MIB: u64 = 1024 * 1024;

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Integer { unit: Unit::Bytes, min, max }
}

const fn milliseconds(min: u64, max: u64) -> Kind {
    Kind::Integer { unit: Unit::Milliseconds, min, max }
}

const fn microseconds(min: u64, max: u64) -> Kind {
    Kind::Integer { unit: Unit::Microseconds, min, max }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Integer { unit: Unit::Count, min, max }
}

const fn key(path: &'static str, kind: Kind, default: Fallback, meaning: &'static str) -> Key {
    Key { path, kind, default, meaning }
}

use self::Fallback::{Derived, Integer, Text, Unset};

/// Every key, in the order of the reference.
pub const KEYS: &[Key] = &[
    key("agent.name", Kind::Name, Text("agent"), "The agent's name, told to peers in HELLO."),
    key(
        "agent.dir",
        Kind::Path,
        Derived("`$XDG_STATE_HOME/capd`, else `$HOME/.local/state/capd`"),
        "State directory; key file, token and socket stand in it unless they are named elsewhere.",
    ),
    key(
        "agent.key_file",
        Kind::Path,
        Derived("`identity.key` in `agent.dir`"),
        "The identity key; made on first start, readable by its owner only.",
    ),
    key(
        "agent.capabilities",
        Kind::Path,
        Unset("no process providers"),
        "The `capabilities.yaml` that declares process providers.",
    ),
    key(
        "agent.did_documents",
        Kind::Paths,
        Unset("none"),
        "DID documents (JSON) of identities of other methods than `did:key`.",
    ),
    key(
        "agent.check_files",
        Kind::Choice(&["on", "off"]),
        Text("on"),
        "Whether capd refuses to start when somebody else may write its state directory, configuration, declaration or policies, or owns one of them.",
    ),
    key("listen.quic", Kind::Listener, Unset("off"), "Where peer links come in over QUIC."),
    key("listen.tcp", Kind::Listener, Unset("off"), "Where peer links come in over TCP with TLS."),
    key(
        "listen.unix",
        Kind::PathOrOff,
        Derived("`capd.sock` in `agent.dir`"),
        "The unix socket for the agent's own local links.",
    ),
    key(
        "listen.local_tcp",
        Kind::LoopbackListener,
        Unset("off"),
        "Loopback TCP for local links; both sides prove that they know the token.",
    ),
    key(
        "listen.token_file",
        Kind::Path,
        Derived("`token` in `agent.dir`"),
        "The token of `listen.local_tcp`; made on first start, readable by its owner only.",
    ),
    key(
        "listen.token_plain",
        Kind::Choice(&["on", "off"]),
        Text("off"),
        "Whether `listen.local_tcp` also takes the token itself in HANDSHAKE, for agents that cannot prove it; such an agent shows it to whoever has the port.",
    ),
    key(
        "peer.signatures",
        Kind::Choice(&["always", "channel"]),
        Text("always"),
        "Whether every envelope to a peer is signed, or the mutually authenticated channel speaks for its own end.",
    ),
    key(
        "peer.admit",
        Kind::Choice(&["listed", "any"]),
        Text("listed"),
        "Who may open a peer link: the DIDs of `[[peers]]`, or any key (only when all peer listeners are on loopback).",
    ),
    key(
        "peer.serves",
        Kind::Capabilities,
        Unset("nothing"),
        "What the agent may call of what peers declare that are not in `[[peers]]`, which only `peer.admit = \"any\"` lets in.",
    ),
    key(
        "peer.refresh_ms",
        milliseconds(1_000, 86_400_000),
        Integer(60_000),
        "How often a peer is asked for its capabilities again.",
    ),
    key(
        "peers",
        Kind::Peers,
        Unset("none"),
        "The peers: `[[peers]]` tables with `did`, `addresses`, most wanted address first, and `serves`: what the agent may call of what the peer declares; nothing unless said.",
    ),
    key(
        "groups",
        Kind::Groups,
        Unset("none"),
        "Callers under one name for `[[allow]]` and policies: `[[groups]]` tables with `name` and `members`.",
    ),
    key(
        "allow",
        Kind::Grants,
        Unset("peers may call nothing"),
        "What peers may call: `[[allow]]` tables with `callers`, `capabilities`, and where wanted `permissions` and `actions`.",
    ),
    key("policy.files", Kind::Paths, Unset("none"), "Policies in Cedar, beside what `[[allow]]` grants."),
    key(
        "limits.msg_size_bytes_max",
        bytes(limits::MSG_SIZE_BYTES_FLOOR as u64, 1024 * MIB),
        Integer(limits::MSG_SIZE_BYTES_DEFAULT as u64),
        "Largest frame; the smaller of both sides' holds on a link.",
    ),
    key(
        "limits.calls_in_flight_max",
        count(1, 1_000_000),
        Integer(4_096),
        "Calls in flight, all links together; one more is 5004 OVERLOADED.",
    ),
    key(
        "limits.calls_in_flight_per_peer_max",
        count(1, 1_000_000),
        Integer(1_024),
        "Calls in flight of one peer; one more is 5004 OVERLOADED.",
    ),
    key(
        "limits.calls_in_flight_per_capability_max",
        count(1, 1_000_000),
        Integer(2_048),
        "Calls in flight of one capability that is served here; one more is 5004 OVERLOADED.",
    ),
    key(
        "limits.calls_in_flight_per_provider_max",
        count(1, 1_000_000),
        Integer(4_096),
        "Calls in flight with one agent that serves on a local link; one more is 5004 OVERLOADED.",
    ),
    key(
        "limits.requests_waiting_max",
        count(1, 1_000_000),
        Integer(65_536),
        "Requests to peers that wait for an answer, and calls of the agent's to peers; one more is 5004 OVERLOADED.",
    ),
    key(
        "limits.call_rate_per_peer",
        Kind::RateOrOff,
        Unset("off"),
        "Calls of one peer, whatever it calls; one more is 3005 RATE_LIMITED. At once as many as the burst, or as the requests when no burst is named.",
    ),
    key(
        "limits.call_rate",
        Kind::RateOrOff,
        Unset("off"),
        "Calls of all peers together; one more is 3005 RATE_LIMITED.",
    ),
    key(
        "limits.denied_rate_per_peer",
        Kind::RateOrOff,
        Text("10/1s burst 100"),
        "Messages of one peer that are denied (3001); one more is 3005 RATE_LIMITED. What the peer may do is not bound by it.",
    ),
    key(
        "limits.links_max",
        count(1, 100_000),
        Integer(1_024),
        "Links that peers have opened; as many again may be the agent's. One more is closed.",
    ),
    key(
        "limits.links_per_peer_max",
        count(1, 100_000),
        Integer(16),
        "Links that one peer has opened; one more is not admitted.",
    ),
    key(
        "limits.links_opening_max",
        count(1, 100_000),
        Integer(256),
        "Of `limits.links_max`, those that may be opening: that have not proven who they are, or have not finished HELLO. One more of a peer is closed; for one more of the agent, its oldest is.",
    ),
    key(
        "limits.links_opening_per_address_max",
        count(1, 100_000),
        Integer(64),
        "Links that peers at one address (of IPv6, at one /64) may be opening; one more is closed.",
    ),
    key(
        "limits.links_unvalidated_max",
        count(0, 100_000),
        Integer(64),
        "How many links may be opening before a peer on QUIC must first prove its address (Retry), which takes it one round trip more.",
    ),
    key(
        "limits.handshake_rate_per_address",
        Kind::RateOrOff,
        Text("100/1s burst 1000"),
        "Connections that peers at one address (of IPv6, at one /64) may begin; one more is closed before any cryptography.",
    ),
    key(
        "limits.streams_per_link_max",
        count(1, 1_000_000),
        Integer(1_024),
        "Exchange streams that a peer may have open on one QUIC link; QUIC lets it open no more.",
    ),
    key(
        "limits.stream_reset_rate_per_link",
        Kind::RateOrOff,
        Text("100/1s burst 500"),
        "Exchange streams that a peer may open only to reset them, or to leave them empty, besides those that are open; one more closes the link (5004).",
    ),
    key(
        "limits.queue_bytes_max",
        bytes(MIB, 16 * 1024 * MIB),
        Integer(64 * MIB),
        "Bytes waiting to be written on one link before new calls on it are refused.",
    ),
    key(
        "limits.queue_frames_max",
        count(16, 10_000_000),
        Integer(16_384),
        "Frames waiting to be written on one stream before new calls on it are refused.",
    ),
    key(
        "limits.receive_bytes_max",
        bytes(MIB, 16 * 1024 * MIB),
        Integer(64 * MIB),
        "Bytes of messages that have begun and not ended, on one link, beyond 64 KiB of each stream; further large messages wait at the sender.",
    ),
    key(
        "limits.ledger_entries_max",
        count(1, 100_000_000),
        Integer(1_000_000),
        "Calls remembered so that a repeated one is not run again, half of them of one peer. When full, finished idempotent calls are forgotten, oldest first; where there are none, new calls are refused (5004).",
    ),
    key(
        "limits.ledger_bytes_max",
        bytes(MIB, 64 * 1024 * MIB),
        Integer(limits::LEDGER_KEPT_BYTES_DEFAULT as u64),
        "Bytes of recorded results of calls that are not idempotent, half of them of one peer. They stand in the journal until their call expires; past the bound, such calls are refused (5004).",
    ),
    key(
        "limits.ledger_idempotent_bytes_max",
        bytes(0, 64 * 1024 * MIB),
        Integer(limits::LEDGER_IDEMPOTENT_BYTES_DEFAULT as u64),
        "Bytes of recorded results of idempotent calls, half of them of one peer. They are held in memory; past the bound, the oldest are forgotten.",
    ),
    key(
        "limits.peer_capabilities_max",
        count(1, 1_000_000),
        Integer(10_000),
        "Capabilities that one peer may declare; of a peer with more none is used (4905).",
    ),
    key(
        "limits.peer_capability_bytes_max",
        bytes(64 * 1024, 1024 * MIB),
        Integer(16 * MIB),
        "Bytes of the capabilities that one peer may declare, each entry of their lists counted as 64 more; of a peer with more none is used (4905).",
    ),
    key(
        "limits.max_argument_repairs",
        count(0, 1_000),
        Integer(1),
        "Repairs of params that one turn of the agent's (`thread_id`) may use up: so many times it is told 4004 with what is wrong, then 4904.",
    ),
    key(
        "timeouts.handshake_ms",
        milliseconds(100, 600_000),
        Integer(limits::HANDSHAKE_TIMEOUT_MS_DEFAULT),
        "Time for handshake and HELLO.",
    ),
    key(
        "timeouts.frame_ms",
        milliseconds(100, 3_600_000),
        Integer(30_000),
        "Time in which a frame that has begun must end, or its link receive 64 KiB more; else the link is closed.",
    ),
    key(
        "timeouts.drain_ms",
        milliseconds(0, 3_600_000),
        Integer(limits::DRAIN_TIMEOUT_MS_DEFAULT),
        "Time for calls in flight to end at shutdown.",
    ),
    key(
        "timeouts.idle_ms",
        milliseconds(1_000, 86_400_000),
        Integer(60_000),
        "Silence after which a link is closed.",
    ),
    key(
        "timeouts.keep_alive_ms",
        milliseconds(100, 86_400_000),
        Integer(15_000),
        "Silence after which a sign of life is sent; below `timeouts.idle_ms`.",
    ),
    key(
        "timeouts.dead_ms",
        milliseconds(1_000, 86_400_000),
        Integer(5_000),
        "Time for a peer to answer a PING while a call waits for it; else the link is closed and its calls are tried again. `timeouts.idle_ms` bounds it.",
    ),
    key(
        "timeouts.call_ms",
        milliseconds(1, limits::TTL_MS_MAX),
        Integer(limits::CALL_TIMEOUT_MS_DEFAULT),
        "Time of a call when neither the invoke nor the capability names one.",
    ),
    key(
        "timeouts.reconnect_initial_ms",
        milliseconds(10, 3_600_000),
        Integer(250),
        "Pause before the first reconnect to a peer; doubled each time, with jitter.",
    ),
    key(
        "timeouts.reconnect_max_ms",
        milliseconds(10, 3_600_000),
        Integer(30_000),
        "Longest pause between reconnects to a peer.",
    ),
    key(
        "quic.shared_streams",
        count(1, 64),
        Integer(limits::SHARED_STREAMS_DEFAULT as u64),
        "Long-lived exchange streams of a QUIC link.",
    ),
    key(
        "quic.shared_stream_message_bytes_max",
        bytes(0, limits::MSG_SIZE_BYTES_FLOOR as u64),
        Integer(limits::SHARED_STREAM_MESSAGE_BYTES_MAX as u64),
        "Larger messages get a stream of their own.",
    ),
    key(
        "runtime.busy_poll_us",
        microseconds(0, 10_000),
        Integer(200),
        "How long the sidecar looks for more work before it sleeps, which spares calls the time to wake it. While looks find nothing there are hardly any. 0 sleeps at once, as does a sidecar that has less than two cores.",
    ),
    key(
        "process.memory_bytes_max",
        bytes(16 * MIB, 1024 * 1024 * MIB),
        Integer(4096 * MIB),
        "Memory of its own that a process of a process provider may have (`RLIMIT_DATA`); where cgroup v2 can be written, all memory of a call's processes together as well.",
    ),
    key(
        "process.file_bytes_max",
        bytes(0, 1024 * 1024 * MIB),
        Integer(1024 * MIB),
        "The largest file that such a process may write.",
    ),
    key(
        "process.open_files_max",
        count(16, 1_000_000),
        Integer(1_024),
        "Files and sockets that such a process may have open.",
    ),
    key(
        "process.processes_max",
        count(1, 1_000_000),
        Integer(1_024),
        "Processes and threads that a call's command may have, itself included: exactly that where cgroup v2 can be written, else so many more than the user had at start (`RLIMIT_NPROC`), all calls together.",
    ),
    key(
        "process.user",
        Kind::Name,
        Unset("capd's own user"),
        "The user that commands run as when capd runs as root: a name of `/etc/passwd`, or a number.",
    ),
    key(
        "process.allow_root",
        Kind::Choice(&["on", "off"]),
        Text("off"),
        "Whether commands may run as root, without capabilities, when capd does and `process.user` is unset; else capd does not start.",
    ),
    key(
        "audit.file",
        Kind::PathOrOff,
        Derived("`audit.db` in `agent.dir`"),
        "The audit log: what was refused, broke its schema, drifted, came late or was cut off.",
    ),
    key(
        "audit.tenant",
        Kind::Name,
        Text("default"),
        "The `tenantId` of audit records, for those who gather logs of several owners.",
    ),
    key(
        "audit.file_bytes_max",
        bytes(MIB, 1024 * 1024 * MIB),
        Integer(1024 * MIB),
        "Largest size of `audit.file`; records that do not fit are lost, and counted, until older ones are pruned.",
    ),
    key(
        "audit.reserved_percent",
        Kind::Integer { unit: Unit::Percent, min: 0, max: 90 },
        Integer(20),
        "The last part of `audit.file_bytes_max` that records of denied messages may not use, so that whoever is denied cannot fill the log for all other kinds.",
    ),
    key(
        "audit.raw_bytes_max",
        bytes(0, MIB),
        Integer(4_096),
        "Bytes kept of a result that breaks its output schema, with its length and hash.",
    ),
    key("log.format", Kind::Choice(&["human", "json"]), Text("human"), "How a log line looks."),
    key(
        "log.level",
        Kind::Choice(&["off", "error", "warn", "info", "debug", "trace"]),
        Text("info"),
        "The least severe level that is logged; `CAPD_LOG` overrides it by module.",
    ),
    key(
        "log.access",
        Kind::Choice(&["on", "off"]),
        Text("on"),
        "One line for each call, at level `info` under the target `access`.",
    ),
    key(
        "log.payloads_of",
        Kind::CapabilityOrOff,
        Unset("off"),
        "The one capability whose params and results stand in its calls' lines, up to 4 KiB of each.",
    ),
];

impl Key {
    /// The environment variable of this key: `CAPD_`, section and key joined by `__`, upper case.
    pub fn variable(&self) -> String {
        format!("CAPD_{}", self.path.replace('.', "__").to_ascii_uppercase())
    }

    /// The key written `path`, if there is one.
    pub fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }
}

impl Kind {
    /// What the key takes, as a phrase for messages and the reference.
    pub fn accepted(&self) -> String {
        match self {
            Self::Name => "1 to 64 of the characters A-Z a-z 0-9 . _ -".into(),
            Self::Path => "a path".into(),
            Self::PathOrOff => "a path, or \"off\"".into(),
            Self::Paths => "a list of paths".into(),
            Self::Listener => "\"IP:PORT\", or \"off\"".into(),
            Self::LoopbackListener => {
                "\"IP:PORT\" with a loopback IP (127.0.0.0/8 or [::1]), or \"off\"".into()
            }
            Self::Choice(words) => {
                words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
            }
            Self::Integer { unit, min, max } => {
                let unit = match unit {
                    Unit::Bytes => "bytes",
                    Unit::Milliseconds => "milliseconds",
                    Unit::Microseconds => "microseconds",
                    Unit::Count => "a count",
                    Unit::Percent => "percent",
                };
                format!("{unit}, an integer from {min} to {max}")
            }
            Self::CapabilityOrOff => "a capability's name, or \"off\"".into(),
            Self::Capabilities => "a list of names, \"NAMESPACE.*\" or \"*\"".into(),
            Self::RateOrOff => {
                "\"REQUESTS/PERIOD\" or \"REQUESTS/PERIOD burst BURST\" (\"600/1m\"), or \"off\"".into()
            }
            Self::Peers => "[[peers]] tables with did = \"did:…\", addresses = [\"quic://HOST:PORT\" or \
                            \"tcp://HOST:PORT\", …] and serves = [a name, \"NAMESPACE.*\" or \"*\", …]; outside \
                            the file DID@ADDRESS=CAPABILITY, comma separated"
                .into(),
            Self::Groups => "[[groups]] tables with name = \"NAME\" and members = [\"did:…\", …]; outside the file \
                             NAME=DID, comma separated"
                .into(),
            Self::Grants => "[[allow]] tables with callers = [\"did:…\", \"group:NAME\" or \"*\", …], capabilities = \
                             [a name, \"NAMESPACE.*\" or \"*\", …], permissions = [\"scope:verb\", \"scope:*\" or \
                             \"*\", …] and actions = [\"query\", \"invoke\"]; outside the file CALLER=CAPABILITY, comma \
                             separated"
                .into(),
        }
    }
}
