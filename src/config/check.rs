//! Checks the configuration: settings by key in; the typed configuration out, with the rules that tie keys together.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use capd_proto::capability::CapabilityPattern;
use capd_proto::rate::Rate;
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::keys::{Fallback, KEYS, Key};
use super::source::Settings;
use super::value::{Value, quoted};
use super::{
    Address, Admit, Agent, Audit, Caller, Config, Effective, Grant, Group, Limits, Listen, Log, LogFormat,
    Mistake, Origin, Peer, PeerPolicy, Policy, Process, Quic, Runtime, Signatures, Timeouts,
};
use super::{filter, fleet};

/// Builds the configuration and adds a mistake for each rule it breaks; `None` only without a state directory.
pub(super) fn build(
    settings: &Settings,
    environment: &[(String, String)],
    mistakes: &mut Vec<Mistake>,
) -> Option<Config> {
    let view = View(settings);
    let Some(dir) = view.path("agent.dir").or_else(|| state_dir(environment)) else {
        mistakes.push(Mistake {
            origin: Origin::Default,
            key: "agent.dir".into(),
            problem: "no state directory: neither XDG_STATE_HOME nor HOME is set".into(),
            accepted: "a path".into(),
        });
        return None;
    };
    let in_dir = |path: &str, name: &str| view.path(path).unwrap_or_else(|| dir.join(name));
    let audit_file = view.path_or("audit.file", || dir.join("audit.db"));
    let unix = view.path_or("listen.unix", || dir.join("capd.sock"));
    let level = LevelFilter::from_str(&view.text("log.level")).expect("the table's words are level names");
    let filter = environment.iter().find(|(name, _)| name == filter::VARIABLE).map_or("", |(_, text)| text);
    let targets = filter::targets(filter, level).unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        Targets::new()
    });
    let listen = Listen {
        quic: view.listener("listen.quic"),
        tcp: view.listener("listen.tcp"),
        unix,
        local_tcp: view.listener("listen.local_tcp"),
        token_file: in_dir("listen.token_file", "token"),
        token_plain: view.text("listen.token_plain") == "on",
        health: view.listener("listen.health"),
    };
    let fleet = fleet::build(settings, (&dir, &listen), mistakes);
    let config = Config {
        agent: Agent {
            name: view.text("agent.name"),
            key_file: in_dir("agent.key_file", "identity.key"),
            capabilities: view.path("agent.capabilities"),
            did_documents: view.paths("agent.did_documents"),
            check_files: view.text("agent.check_files") == "on",
            dir: dir.clone(),
        },
        listen,
        peer: PeerPolicy {
            signatures: if view.text("peer.signatures") == "channel" {
                Signatures::Channel
            } else {
                Signatures::Always
            },
            admit: if view.text("peer.admit") == "any" { Admit::Any } else { Admit::Listed },
            serves: view.capabilities("peer.serves"),
            refresh_ms: view.integer("peer.refresh_ms"),
        },
        peers: view.peers("peers"),
        groups: view.groups("groups"),
        allow: view.grants("allow"),
        policy: Policy { files: view.paths("policy.files") },
        limits: Limits {
            msg_size_bytes_max: view.integer("limits.msg_size_bytes_max"),
            calls_in_flight_max: view.integer("limits.calls_in_flight_max"),
            calls_in_flight_per_peer_max: view.integer("limits.calls_in_flight_per_peer_max"),
            calls_in_flight_per_capability_max: view.integer("limits.calls_in_flight_per_capability_max"),
            calls_in_flight_per_provider_max: view.integer("limits.calls_in_flight_per_provider_max"),
            requests_waiting_max: view.integer("limits.requests_waiting_max"),
            call_rate_per_peer: view.rate("limits.call_rate_per_peer"),
            call_rate: view.rate("limits.call_rate"),
            denied_rate_per_peer: view.rate("limits.denied_rate_per_peer"),
            links_max: view.integer("limits.links_max"),
            links_per_peer_max: view.integer("limits.links_per_peer_max"),
            links_opening_max: view.integer("limits.links_opening_max"),
            links_opening_per_address_max: view.integer("limits.links_opening_per_address_max"),
            links_unvalidated_max: view.integer("limits.links_unvalidated_max"),
            handshake_rate_per_address: view.rate("limits.handshake_rate_per_address"),
            streams_per_link_max: view.integer("limits.streams_per_link_max"),
            stream_reset_rate_per_link: view.rate("limits.stream_reset_rate_per_link"),
            queue_bytes_max: view.integer("limits.queue_bytes_max"),
            queue_frames_max: view.integer("limits.queue_frames_max"),
            receive_bytes_max: view.integer("limits.receive_bytes_max"),
            ledger_entries_max: view.integer("limits.ledger_entries_max"),
            ledger_bytes_max: view.integer("limits.ledger_bytes_max"),
            ledger_idempotent_bytes_max: view.integer("limits.ledger_idempotent_bytes_max"),
            ledger_ttl_max_ms: view.integer("limits.ledger_ttl_max_ms"),
            peer_capabilities_max: view.integer("limits.peer_capabilities_max"),
            peer_capability_bytes_max: view.integer("limits.peer_capability_bytes_max"),
            max_argument_repairs: view.integer("limits.max_argument_repairs"),
        },
        timeouts: Timeouts {
            handshake_ms: view.integer("timeouts.handshake_ms"),
            frame_ms: view.integer("timeouts.frame_ms"),
            drain_ms: view.integer("timeouts.drain_ms"),
            idle_ms: view.integer("timeouts.idle_ms"),
            keep_alive_ms: view.integer("timeouts.keep_alive_ms"),
            dead_ms: view.integer("timeouts.dead_ms"),
            call_ms: view.integer("timeouts.call_ms"),
            reconnect_initial_ms: view.integer("timeouts.reconnect_initial_ms"),
            reconnect_max_ms: view.integer("timeouts.reconnect_max_ms"),
        },
        quic: Quic {
            shared_streams: view.integer("quic.shared_streams"),
            shared_stream_message_bytes_max: view.integer("quic.shared_stream_message_bytes_max"),
        },
        runtime: Runtime { busy_poll_us: view.integer("runtime.busy_poll_us") },
        process: Process {
            memory_bytes_max: view.integer("process.memory_bytes_max"),
            file_bytes_max: view.integer("process.file_bytes_max"),
            open_files_max: view.integer("process.open_files_max"),
            processes_max: view.integer("process.processes_max"),
            user: Some(view.text("process.user")).filter(|name| !name.is_empty()),
            allow_root: view.text("process.allow_root") == "on",
        },
        fleet,
        audit: Audit {
            file: audit_file,
            tenant: view.text("audit.tenant"),
            file_bytes_max: view.integer("audit.file_bytes_max"),
            reserved_percent: view.integer("audit.reserved_percent"),
            raw_bytes_max: view.integer("audit.raw_bytes_max"),
        },
        log: Log {
            format: if view.text("log.format") == "json" { LogFormat::Json } else { LogFormat::Human },
            access: view.text("log.access") == "on" && targets.would_enable("access", &tracing::Level::INFO),
            payloads_of: Some(view.text("log.payloads_of"))
                .filter(|name| !matches!(name.as_str(), "" | "off")),
            level,
            targets,
        },
        metrics: super::Metrics { capabilities: view.text("metrics.capabilities") == "on" },
        otlp: super::Otlp {
            endpoint: view.collector("otlp.endpoint"),
            sample_ratio: view.ratio("otlp.sample_ratio"),
        },
        effective: KEYS.iter().map(|key| effective(key, settings, &dir)).collect(),
        ignored: Vec::new(),
        sources: None,
    };
    // A default standing in for a value that was refused would only give a second, misleading message.
    if mistakes.is_empty() {
        tie(&config, settings, mistakes);
    }
    Some(config)
}

fn state_dir(environment: &[(String, String)]) -> Option<PathBuf> {
    let variable = |wanted: &str| {
        environment
            .iter()
            .find(|(name, value)| name == wanted && !value.is_empty())
            .map(|(_, value)| Path::new(value))
    };
    variable("XDG_STATE_HOME")
        .map(|state| state.join("capd"))
        .or_else(|| variable("HOME").map(|home| home.join(".local/state/capd")))
}

/// The rules between keys.
fn tie(config: &Config, settings: &Settings, mistakes: &mut Vec<Mistake>) {
    let mut wrong = |key: &str, problem: String, accepted: &str| {
        mistakes.push(Mistake {
            origin: settings.origin(key),
            key: key.into(),
            problem,
            accepted: accepted.into(),
        });
    };
    // A key that nobody knows is harmless only where nobody else can reach.
    let open: Vec<SocketAddr> = [config.listen.quic, config.listen.tcp]
        .into_iter()
        .flatten()
        .filter(|at| !at.ip().is_loopback())
        .collect();
    if let (Admit::Any, Some(at)) = (config.peer.admit, open.first()) {
        let problem = format!("\"any\" would admit every key at {at}, which is not on loopback");
        wrong("peer.admit", problem, "\"listed\", or listen.quic and listen.tcp on loopback");
    }
    for (index, peer) in config.peers.iter().enumerate() {
        if config.peers[..index].iter().any(|earlier| earlier.did == peer.did) {
            wrong(
                "peers",
                format!("{} is a duplicate", quoted(&peer.did)),
                "each did once, with all its addresses",
            );
        }
        let is_named = |earlier: &super::Peer| {
            let both = earlier.name.as_ref().zip(peer.name.as_ref());
            both.is_some_and(|(one, other)| one.eq_ignore_ascii_case(other))
        };
        if let Some(name) = peer.name.as_ref().filter(|_| config.peers[..index].iter().any(is_named)) {
            let problem = format!("the name {} is a duplicate", quoted(name));
            wrong("peers", problem, "each name for one peer, in whatever case");
        }
    }
    for (index, group) in config.groups.iter().enumerate() {
        if config.groups[..index].iter().any(|earlier| earlier.name == group.name) {
            let problem = format!("{} is a duplicate", quoted(&group.name));
            wrong("groups", problem, "each name once, with all its members");
        }
    }
    for caller in config.allow.iter().flat_map(|grant| &grant.callers) {
        if let Caller::Group(name) = caller
            && !config.groups.iter().any(|group| group.name == *name)
        {
            let known: Vec<_> = config.groups.iter().map(|group| group.name.as_str()).collect();
            let accepted = if known.is_empty() {
                "a name of [[groups]], of which there are none".to_owned()
            } else {
                known.join(", ")
            };
            wrong("allow", format!("there is no group {}", quoted(name)), &accepted);
        }
    }
    let ordered: [(&str, u64, &str, u64); 5] = [
        (
            "limits.calls_in_flight_per_peer_max",
            config.limits.calls_in_flight_per_peer_max as u64,
            "limits.calls_in_flight_max",
            config.limits.calls_in_flight_max as u64,
        ),
        (
            "limits.msg_size_bytes_max",
            u64::from(config.limits.msg_size_bytes_max),
            "limits.queue_bytes_max",
            config.limits.queue_bytes_max as u64,
        ),
        (
            "limits.msg_size_bytes_max",
            u64::from(config.limits.msg_size_bytes_max),
            "limits.ledger_bytes_max",
            config.limits.ledger_bytes_max as u64,
        ),
        (
            "timeouts.reconnect_initial_ms",
            config.timeouts.reconnect_initial_ms,
            "timeouts.reconnect_max_ms",
            config.timeouts.reconnect_max_ms,
        ),
        // A sign of life sent exactly when the link is given up comes too late.
        (
            "timeouts.keep_alive_ms",
            config.timeouts.keep_alive_ms + 1,
            "timeouts.idle_ms",
            config.timeouts.idle_ms,
        ),
    ];
    for (low, low_value, high, high_value) in ordered {
        if low_value > high_value {
            // The key that somebody wrote is the one to name.
            let (key, problem) = match settings.get(low) {
                Some(_) => (low, format!("is too high for {high} = {high_value}")),
                None => (high, format!("{high_value} is too low for {low}, which is at least {low_value}")),
            };
            wrong(key, problem, &format!("{low} below {high}"));
        }
    }
}

fn effective(key: &'static Key, settings: &Settings, dir: &Path) -> Effective {
    let origin = settings.origin(key.path);
    let value = match (settings.get(key.path), key.default) {
        (Some((value, _)), _) => value.written(),
        (None, Fallback::Text(text)) => format!("{text:?}"),
        (None, Fallback::Integer(number)) => number.to_string(),
        (None, Fallback::Number(number)) => number.to_owned(),
        (None, Fallback::Unset(text)) => format!("({text})"),
        (None, Fallback::Derived(text)) => match key.path {
            "agent.dir" => format!("{:?}", dir.display().to_string()),
            _ => format!("({text})"),
        },
    };
    Effective { key: key.path, value, origin }
}

/// Typed reads of settings, falling back to the table's defaults.
pub(super) struct View<'a>(pub(super) &'a Settings);

impl View<'_> {
    fn default(path: &str) -> Fallback {
        Key::find(path).expect("only keys of the table are read").default
    }

    pub(super) fn text(&self, path: &str) -> String {
        match (self.0.get(path), Self::default(path)) {
            (Some((Value::Text(text), _)), _) => text.clone(),
            (_, Fallback::Text(text)) => text.to_owned(),
            (_, Fallback::Integer(_) | Fallback::Number(_) | Fallback::Unset(_) | Fallback::Derived(_)) => {
                String::new()
            }
        }
    }

    pub(super) fn integer<N: TryFrom<u64>>(&self, path: &str) -> N {
        let number = match (self.0.get(path), Self::default(path)) {
            (Some((Value::Integer(number), _)), _) => *number,
            (_, Fallback::Integer(number)) => number,
            (_, Fallback::Text(_) | Fallback::Number(_) | Fallback::Unset(_) | Fallback::Derived(_)) => 0,
        };
        N::try_from(number).ok().expect("the table's range fits the field")
    }

    pub(super) fn path(&self, path: &str) -> Option<PathBuf> {
        match self.0.get(path) {
            Some((Value::Path(path), _)) => path.clone(),
            _ => None,
        }
    }

    /// The path of a key that may be off; `derived` where it is not set.
    pub(super) fn path_or(&self, path: &str, derived: impl FnOnce() -> PathBuf) -> Option<PathBuf> {
        match self.0.get(path) {
            Some((Value::Path(path), _)) => path.clone(),
            _ => Some(derived()),
        }
    }

    pub(super) fn endpoints(&self, path: &str) -> Vec<String> {
        match self.0.get(path) {
            Some((Value::Endpoints(endpoints), _)) => endpoints.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn addresses(&self, path: &str) -> Vec<Address> {
        match self.0.get(path) {
            Some((Value::Addresses(addresses), _)) => addresses.clone(),
            _ => Vec::new(),
        }
    }

    fn paths(&self, path: &str) -> Vec<PathBuf> {
        match self.0.get(path) {
            Some((Value::Paths(paths), _)) => paths.clone(),
            _ => Vec::new(),
        }
    }

    fn listener(&self, path: &str) -> Option<SocketAddr> {
        match self.0.get(path) {
            Some((Value::Listener(at), _)) => *at,
            _ => None,
        }
    }

    fn rate(&self, path: &str) -> Option<Rate> {
        match (self.0.get(path), Self::default(path)) {
            (Some((Value::Rate(rate), _)), _) => *rate,
            (_, Fallback::Text(text)) => Some(text.parse().expect("the table's rates are rates")),
            (_, Fallback::Integer(_) | Fallback::Number(_) | Fallback::Unset(_) | Fallback::Derived(_)) => {
                None
            }
        }
    }

    fn capabilities(&self, path: &str) -> Vec<CapabilityPattern> {
        match self.0.get(path) {
            Some((Value::Capabilities(names), _)) => names.clone(),
            _ => Vec::new(),
        }
    }

    fn groups(&self, path: &str) -> Vec<Group> {
        match self.0.get(path) {
            Some((Value::Groups(groups), _)) => groups.clone(),
            _ => Vec::new(),
        }
    }

    fn grants(&self, path: &str) -> Vec<Grant> {
        match self.0.get(path) {
            Some((Value::Grants(grants), _)) => grants.clone(),
            _ => Vec::new(),
        }
    }

    fn ratio(&self, path: &str) -> f64 {
        match (self.0.get(path), Self::default(path)) {
            (Some((Value::Ratio(ratio), _)), _) => *ratio,
            (_, Fallback::Number(number)) => number.parse().expect("the table's defaults are numbers"),
            (_, Fallback::Text(_) | Fallback::Integer(_) | Fallback::Unset(_) | Fallback::Derived(_)) => 0.0,
        }
    }

    fn collector(&self, path: &str) -> Option<crate::otlp::Endpoint> {
        match self.0.get(path) {
            Some((Value::Collector(endpoint), _)) => endpoint.clone(),
            _ => None,
        }
    }

    fn peers(&self, path: &str) -> Vec<Peer> {
        match self.0.get(path) {
            Some((Value::Peers(peers), _)) => peers.clone(),
            _ => Vec::new(),
        }
    }
}
