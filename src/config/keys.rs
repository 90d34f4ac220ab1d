//! Lists every key: its path, accepted values, default, environment variable and meaning.

use capd_proto::limits;

pub use super::reference::OTHER_VARIABLES;

/// One key: its name, accepted values, default and purpose.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The dotted key, `section.key`.
    pub path: &'static str,
    /// The values that it accepts.
    pub kind: Kind,
    /// Its value when no layer sets it.
    pub default: Fallback,
    /// Its purpose in one sentence.
    pub meaning: &'static str,
}

/// The values that a key accepts.
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
        /// The unit.
        unit: Unit,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
    /// A rate, or `off`.
    RateOrOff,
    /// A number from 0 to 1, both included.
    Ratio,
    /// The URL of a collector of traces, or `off`.
    CollectorOrOff,
    /// A capability's name, or `off`.
    CapabilityOrOff,
    /// Names and namespaces of capabilities; comma separated outside the file.
    Capabilities,
    /// The name of a cell.
    Cell,
    /// One `did:key`.
    DidKey,
    /// Client URLs of etcd; comma separated outside the file.
    Endpoints,
    /// Addresses of a sidecar; comma separated outside the file.
    Addresses,
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
    /// A number, as it is written in the file.
    Number(&'static str),
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

use self::Fallback::{Derived, Integer, Number, Text, Unset};

/// Every key, in the order of the reference.
pub const KEYS: &[Key] = &[
    key("agent.name", Kind::Name, Text("agent"), "The agent's name, told to peers in HELLO."),
    key(
        "agent.dir",
        Kind::Path,
        Derived("`$XDG_STATE_HOME/capd`, else `$HOME/.local/state/capd`"),
        "The state directory. It contains the key file, the token and the socket, unless their own keys name other places.",
    ),
    key(
        "agent.key_file",
        Kind::Path,
        Derived("`identity.key` in `agent.dir`"),
        "The identity key. The first start makes it, readable by its owner only.",
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
        "Whether capd refuses to start when another user may write its state directory, configuration, declaration or policies, or owns one of them.",
    ),
    key("listen.quic", Kind::Listener, Unset("off"), "Where to listen for peer links over QUIC."),
    key("listen.tcp", Kind::Listener, Unset("off"), "Where to listen for peer links over TCP with TLS."),
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
        "Where to listen for local links over loopback TCP. Both sides prove that they know the token.",
    ),
    key(
        "listen.token_file",
        Kind::Path,
        Derived("`token` in `agent.dir`"),
        "The token of `listen.local_tcp`. The first start makes it, readable by its owner only.",
    ),
    key(
        "listen.token_plain",
        Kind::Choice(&["on", "off"]),
        Text("off"),
        "Whether `listen.local_tcp` also accepts the token itself in HANDSHAKE, for agents that cannot prove it. Such an agent reveals the token to any process that has the port.",
    ),
    key(
        "listen.health",
        Kind::Listener,
        Unset("off"),
        "Where to answer HTTP requests of orchestrators and scrapers: `/livez`, `/readyz` and `/metrics`. Anybody who reaches it may read them; they name no peer, and no capability unless `metrics.capabilities` is on.",
    ),
    key(
        "peer.signatures",
        Kind::Choice(&["always", "channel"]),
        Text("always"),
        "Whether every envelope to a peer is signed, or the mutually authenticated channel vouches for its own ends.",
    ),
    key(
        "peer.admit",
        Kind::Choice(&["listed", "any"]),
        Text("listed"),
        "Which DIDs may open a peer link: those of `[[peers]]`, or any key (only if all peer listeners are on loopback).",
    ),
    key(
        "peer.serves",
        Kind::Capabilities,
        Unset("nothing"),
        "What the agent may call at peers that are not in `[[peers]]`. Only `peer.admit = \"any\"` admits such peers.",
    ),
    key(
        "peer.refresh_ms",
        milliseconds(1_000, 86_400_000),
        Integer(60_000),
        "How often the sidecar asks a peer for its capabilities again.",
    ),
    key(
        "peers",
        Kind::Peers,
        Unset("none"),
        "The peers: `[[peers]]` tables with `did`, `addresses` (preferred address first; `quic+dns` and `tcp+dns` for a host name of several sidecars), `serves`: what the agent may call at the peer, by default nothing, and `name`: what you call it.",
    ),
    key(
        "groups",
        Kind::Groups,
        Unset("none"),
        "Groups of callers for `[[allow]]` and policies: `[[groups]]` tables with `name` and `members`.",
    ),
    key(
        "allow",
        Kind::Grants,
        Unset("peers may call nothing"),
        "What peers may call: `[[allow]]` tables with `callers`, `capabilities`, and optionally `permissions` and `actions`.",
    ),
    key(
        "policy.files",
        Kind::Paths,
        Unset("none"),
        "Files with Cedar policies, in addition to the grants of `[[allow]]`.",
    ),
    key(
        "limits.msg_size_bytes_max",
        bytes(limits::MSG_SIZE_BYTES_FLOOR as u64, 1024 * MIB),
        Integer(limits::MSG_SIZE_BYTES_DEFAULT as u64),
        "The largest frame. On a link, the smaller limit of both sides applies.",
    ),
    key(
        "limits.calls_in_flight_max",
        count(1, 1_000_000),
        Integer(4_096),
        "Calls in flight, all links together. One more gets 5004 OVERLOADED.",
    ),
    key(
        "limits.calls_in_flight_per_peer_max",
        count(1, 1_000_000),
        Integer(1_024),
        "Calls in flight of one peer. One more gets 5004 OVERLOADED.",
    ),
    key(
        "limits.calls_in_flight_per_capability_max",
        count(1, 1_000_000),
        Integer(2_048),
        "Calls in flight of one capability that is served here. One more gets 5004 OVERLOADED.",
    ),
    key(
        "limits.calls_in_flight_per_provider_max",
        count(1, 1_000_000),
        Integer(4_096),
        "Calls in flight with one agent that provides on a local link. One more gets 5004 OVERLOADED.",
    ),
    key(
        "limits.requests_waiting_max",
        count(1, 1_000_000),
        Integer(65_536),
        "Requests to peers that wait for an answer, and the agent's calls to peers. One more gets 5004 OVERLOADED.",
    ),
    key(
        "limits.call_rate_per_peer",
        Kind::RateOrOff,
        Unset("off"),
        "Calls of one peer, whatever it calls. One more gets 3005 RATE_LIMITED. The peer may make as many at once as the burst, or as the requests if there is no burst.",
    ),
    key(
        "limits.call_rate",
        Kind::RateOrOff,
        Unset("off"),
        "Calls of all peers together. One more gets 3005 RATE_LIMITED.",
    ),
    key(
        "limits.denied_rate_per_peer",
        Kind::RateOrOff,
        Text("10/1s burst 100"),
        "Denied messages of one peer (3001). One more gets 3005 RATE_LIMITED. Calls that the peer may make do not count.",
    ),
    key(
        "limits.links_max",
        count(1, 100_000),
        Integer(1_024),
        "Links that peers have opened; the agent may have as many again. One more is closed.",
    ),
    key(
        "limits.links_per_peer_max",
        count(1, 100_000),
        Integer(16),
        "Links that one peer has opened. One more is not admitted.",
    ),
    key(
        "limits.links_opening_max",
        count(1, 100_000),
        Integer(256),
        "How many of `limits.links_max` may be opening: links that have not proven their identity, or not finished HELLO. One more link of a peer is closed. One more link of the agent closes its oldest.",
    ),
    key(
        "limits.links_opening_per_address_max",
        count(1, 100_000),
        Integer(64),
        "Opening links of peers at one address (for IPv6, one /64). One more is closed.",
    ),
    key(
        "limits.links_unvalidated_max",
        count(0, 100_000),
        Integer(64),
        "How many links may be opening before a peer on QUIC must first prove its address (Retry), which costs it one more round trip.",
    ),
    key(
        "limits.handshake_rate_per_address",
        Kind::RateOrOff,
        Text("100/1s burst 1000"),
        "Connections that peers at one address (for IPv6, one /64) may begin. One more is closed before any cryptography.",
    ),
    key(
        "limits.streams_per_link_max",
        count(1, 1_000_000),
        Integer(1_024),
        "Exchange streams that a peer may have open on one QUIC link. QUIC enforces it.",
    ),
    key(
        "limits.stream_reset_rate_per_link",
        Kind::RateOrOff,
        Text("100/1s burst 500"),
        "Exchange streams that a peer may open only to reset them, or to leave them empty, besides those that are open. One more closes the link (5004).",
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
        "Bytes of incomplete messages on one link, beyond 64 KiB of each stream. Further large messages wait at the sender.",
    ),
    key(
        "limits.ledger_entries_max",
        count(1, 100_000_000),
        Integer(1_000_000),
        "Calls remembered so that a repeated call does not run again; one peer may use half of them. When full, capd forgets finished idempotent calls, oldest first. If there are none, it refuses new calls (5004).",
    ),
    key(
        "limits.ledger_bytes_max",
        bytes(MIB, 64 * 1024 * MIB),
        Integer(limits::LEDGER_KEPT_BYTES_DEFAULT as u64),
        "Bytes of recorded results of non-idempotent calls; one peer may use half of them. They stay in the journal until their call expires. Beyond the limit, capd refuses such calls (5004).",
    ),
    key(
        "limits.ledger_idempotent_bytes_max",
        bytes(0, 64 * 1024 * MIB),
        Integer(limits::LEDGER_IDEMPOTENT_BYTES_DEFAULT as u64),
        "Bytes of recorded results of idempotent calls; one peer may use half of them. They are kept in memory. Beyond the limit, capd forgets the oldest.",
    ),
    key(
        "limits.ledger_ttl_max_ms",
        milliseconds(1_000, 2_592_000_000),
        Integer(3_600_000),
        "The longest `ttl` of a peer's call that may run only once, in a fleet. A longer one is refused (1003). `capctl drain --retire` takes no longer than this. Outside of a fleet it has no effect.",
    ),
    key(
        "limits.peer_capabilities_max",
        count(1, 1_000_000),
        Integer(10_000),
        "Capabilities that one peer may declare. A peer with more provides none (4905).",
    ),
    key(
        "limits.peer_capability_bytes_max",
        bytes(64 * 1024, 1024 * MIB),
        Integer(16 * MIB),
        "Bytes of the capabilities that one peer may declare; each entry of their lists counts as 64 more. A peer with more provides none (4905).",
    ),
    key(
        "limits.max_argument_repairs",
        count(0, 1_000),
        Integer(1),
        "Repairs of params for each turn of the agent (`thread_id`): that many times it gets 4004 with what is wrong, then 4904.",
    ),
    key(
        "timeouts.handshake_ms",
        milliseconds(100, 600_000),
        Integer(limits::HANDSHAKE_TIMEOUT_MS_DEFAULT),
        "Time limit for handshake and HELLO.",
    ),
    key(
        "timeouts.frame_ms",
        milliseconds(100, 3_600_000),
        Integer(30_000),
        "Time in which a frame that has begun must end, or its link must receive 64 KiB more. Otherwise the link is closed.",
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
        "Silence after which a keep-alive is sent; below `timeouts.idle_ms`.",
    ),
    key(
        "timeouts.dead_ms",
        milliseconds(1_000, 86_400_000),
        Integer(5_000),
        "Time for a peer to answer a PING while a call waits for it. Otherwise the link is closed and its calls are retried. `timeouts.idle_ms` bounds it.",
    ),
    key(
        "timeouts.call_ms",
        milliseconds(1, limits::TTL_MS_MAX),
        Integer(limits::CALL_TIMEOUT_MS_DEFAULT),
        "Time limit of a call if neither the invoke nor the capability sets one.",
    ),
    key(
        "timeouts.reconnect_initial_ms",
        milliseconds(10, 3_600_000),
        Integer(250),
        "Pause before the first reconnect to a peer. It doubles each time, with jitter.",
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
        "How long the sidecar polls for more work before it sleeps, which saves calls the time to wake it. Polling backs off by itself while it finds nothing. 0 sleeps at once, as does a sidecar with fewer than two cores.",
    ),
    key(
        "process.memory_bytes_max",
        bytes(16 * MIB, 1024 * 1024 * MIB),
        Integer(4096 * MIB),
        "Memory of one process of a process provider (`RLIMIT_DATA`). Where cgroup v2 is writable, it also limits all memory of a call's processes together.",
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
        "Processes and threads of a call's command, itself included. The limit is exact where cgroup v2 is writable. Elsewhere it is that many more than the user had at start (`RLIMIT_NPROC`), all calls together.",
    ),
    key(
        "process.user",
        Kind::Name,
        Unset("capd's own user"),
        "The user that commands run as if capd runs as root: a name of `/etc/passwd`, or a number.",
    ),
    key(
        "process.allow_root",
        Kind::Choice(&["on", "off"]),
        Text("off"),
        "Whether commands may run as root, without capabilities, if capd does and `process.user` is unset. Otherwise capd does not start.",
    ),
    key(
        "fleet.cell",
        Kind::Cell,
        Unset("no fleet"),
        "The cell that this sidecar is a member of: the sidecars of one registry, under one authority.",
    ),
    key(
        "fleet.authority",
        Kind::DidKey,
        Unset("none"),
        "The cell's authority, whose key signs memberships. `capctl fleet init` prints it.",
    ),
    key(
        "fleet.membership",
        Kind::Path,
        Derived("`membership` in `agent.dir`"),
        "The file with this agent's membership, as `capctl fleet admit --output` writes it.",
    ),
    key(
        "fleet.endpoints",
        Kind::Endpoints,
        Unset("no etcd"),
        "The client URLs of etcd, the cell's registry. Without a registry, members are still admitted, and only those of `[[peers]]` are dialled.",
    ),
    key(
        "fleet.file",
        Kind::Path,
        Unset("no file"),
        "A file that is the registry in place of etcd, for the sidecars of one machine.",
    ),
    key(
        "fleet.mdns",
        Kind::Choice(&["on", "off"]),
        Text("off"),
        "Whether the sidecars of one network find each other by mDNS, without any registry. mDNS uses the interfaces whose IPv4 addresses stand in `fleet.addresses`, or else the one that the system chooses.",
    ),
    key(
        "fleet.mdns_port",
        count(1, 65_535),
        Integer(5_353),
        "The UDP port of mDNS, which is the same for all sidecars of the cell. Another port than 5353 keeps the cell apart from other programs that speak mDNS.",
    ),
    key(
        "fleet.tls_ca",
        Kind::Path,
        Unset("none"),
        "Certificates (PEM) of those who sign the certificate of etcd; needed with `https://`.",
    ),
    key("fleet.tls_cert", Kind::Path, Unset("none"), "The client certificate (PEM) for etcd."),
    key("fleet.tls_key", Kind::Path, Unset("none"), "The key (PEM) of `fleet.tls_cert`."),
    key(
        "fleet.addresses",
        Kind::Addresses,
        Derived("those of `listen.quic` and `listen.tcp`, unless they listen on all addresses"),
        "Where peers reach this sidecar, most wanted first. A sidecar without an address registers nothing, and only calls.",
    ),
    key(
        "fleet.zone",
        Kind::Name,
        Unset("none"),
        "The zone that this sidecar runs in. Calls prefer providers of the same zone if there are two or more.",
    ),
    key(
        "fleet.ttl_ms",
        milliseconds(2_000, 600_000),
        Integer(30_000),
        "How long a registration lives without renewal. Use 60000 above 2,000 sidecars in a cell.",
    ),
    key(
        "fleet.idle_ms",
        milliseconds(1_000, 86_400_000),
        Integer(600_000),
        "How long a name is watched, and links that only it needs are kept, after its last call.",
    ),
    key(
        "fleet.max_stale_ms",
        milliseconds(10_000, 86_400_000),
        Integer(600_000),
        "How long a provider that vanished from the registry may still be tried.",
    ),
    key(
        "fleet.deny_max_age_ms",
        milliseconds(60_000, 604_800_000),
        Integer(3_600_000),
        "How old the known revocations may be. If they are older, no link between members opens; open links stay.",
    ),
    key(
        "fleet.links_per_name",
        count(1, 64),
        Integer(3),
        "Links to providers of one name. One more opens while each of them has more than 16 calls in flight.",
    ),
    key(
        "audit.file",
        Kind::PathOrOff,
        Derived("`audit.db` in `agent.dir`"),
        "The audit log: what was refused, broke its schema, drifted, came late or was interrupted.",
    ),
    key(
        "audit.tenant",
        Kind::Name,
        Text("default"),
        "The `tenantId` of audit records, for logs that are collected from several owners.",
    ),
    key(
        "audit.file_bytes_max",
        bytes(MIB, 1024 * 1024 * MIB),
        Integer(1024 * MIB),
        "Largest size of `audit.file`. Records that do not fit are lost, and counted, until older ones are pruned.",
    ),
    key(
        "audit.reserved_percent",
        Kind::Integer { unit: Unit::Percent, min: 0, max: 90 },
        Integer(20),
        "The last part of `audit.file_bytes_max` that records of denied messages may not use, so that a denied peer cannot fill the log for all other kinds.",
    ),
    key(
        "audit.raw_bytes_max",
        bytes(0, MIB),
        Integer(4_096),
        "Bytes kept of a result that breaks its output schema, with its length and hash.",
    ),
    key("log.format", Kind::Choice(&["human", "json"]), Text("human"), "The format of log lines."),
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
        "The one capability whose params and results are logged with its calls, up to 4 KiB of each.",
    ),
    key(
        "metrics.capabilities",
        Kind::Choice(&["on", "off"]),
        Text("off"),
        "Whether `capd_call_duration_seconds` also has the label `capability`, for up to 128 names of capabilities. Everybody who reaches `listen.health` then reads these names.",
    ),
    key(
        "otlp.endpoint",
        Kind::CollectorOrOff,
        Unset("off"),
        "The OpenTelemetry collector that gets a span of each call, over OTLP/HTTP: capd posts to `/v1/traces` beneath this URL. Spans name capabilities and DIDs, and contain no params and no results.",
    ),
    key(
        "otlp.sample_ratio",
        Kind::Ratio,
        Number("1.0"),
        "The share of traces that are recorded, of those that begin here. A call with a `traceparent` is recorded if its parent is.",
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
    /// The accepted values, as a phrase for messages and the reference.
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
            Self::Ratio => "a number from 0.0 to 1.0".into(),
            Self::CollectorOrOff => "\"http://HOST:PORT\", or \"off\"".into(),
            Self::RateOrOff => {
                "\"REQUESTS/PERIOD\" or \"REQUESTS/PERIOD burst BURST\" (\"600/1m\"), or \"off\"".into()
            }
            Self::Cell => "1 to 32 of the characters a-z 0-9 -".into(),
            Self::DidKey => "did:key:z6Mk…".into(),
            Self::Endpoints => "a list of \"https://HOST:PORT\"".into(),
            Self::Addresses => "a list of \"quic://HOST:PORT\" or \"tcp://HOST:PORT\"".into(),
            Self::Peers => "[[peers]] tables with name = \"NAME\", did = \"did:…\", addresses = [\"quic://HOST:PORT\", \
                            \"tcp://HOST:PORT\", \"quic+dns://NAME:PORT\" or \"tcp+dns://NAME:PORT\", …] and serves = [a name, \"NAMESPACE.*\" or \"*\", …]; outside \
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
