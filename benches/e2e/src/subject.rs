//! The name of what is measured in; its processes, started along the way of a call from its end, out.

use std::path::{Path, PathBuf};

use crate::agents::{HELD, JOURNALED, UNJOURNALED};
use crate::fronts::{self, Middle};
use crate::quic;
use crate::sidecar::{Http, Setup, Sidecar};
use crate::world::{Process, World};

/// What carries calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Two proxies that only forward, on one stream.
    ForwardMultiplexed,
    /// The same with a stream for each call.
    ForwardStreams,
    /// capd, the channel speaking for its ends; an idempotent capability.
    Channel,
    /// The same with every envelope signed.
    Signed,
    /// As [`Subject::Channel`], of a capability that is not idempotent.
    Journaled,
    /// tonic through two proxies of tonic.
    GrpcProxied,
    /// tonic with nothing between.
    GrpcDirect,
    /// A request and its reply through a NATS server.
    Nats,
    /// As [`Subject::Channel`], with many capabilities registered and many peers configured.
    Fleet,
    /// As [`Subject::Channel`], with a second caller at the caller's sidecar, and results kept by nobody.
    Large,
    /// QUIC streams with nothing between, and two callers, each with a connection.
    Quic,
    /// The same in longer packets than quinn's usual ones.
    QuicLong,
    /// As [`Subject::Channel`], of a capability whose provider holds the calls it gets.
    Held,
    /// As [`Subject::Channel`], beside those that follow.
    Link,
    /// capd; the caller speaks HTTP, and the provider reads its calls from a stream of events.
    Http,
    /// The same with a key for each call.
    HttpKeyed,
    /// As [`Subject::Http`], the calls being posted to a program that listens.
    HttpPush,
    /// Two proxies of axum.
    Axum,
    /// Two sidecars of Dapr.
    Dapr,
    /// As [`Subject::HttpKeyed`], the caller being an SDK's.
    PythonCaller,
    /// As [`Subject::Http`], the provider being an SDK's.
    PythonProvider,
    /// As [`Subject::PythonCaller`].
    GoCaller,
    /// As [`Subject::PythonProvider`].
    GoProvider,
}

impl Subject {
    /// The subjects of the table.
    pub(crate) const TABLE: [Self; 8] = [
        Self::ForwardMultiplexed,
        Self::ForwardStreams,
        Self::Channel,
        Self::Signed,
        Self::Journaled,
        Self::GrpcProxied,
        Self::GrpcDirect,
        Self::Nats,
    ];

    /// The subjects of the part about HTTP.
    pub(crate) const FRONTS: [Self; 10] = [
        Self::Link,
        Self::Http,
        Self::HttpKeyed,
        Self::HttpPush,
        Self::Axum,
        Self::Dapr,
        Self::PythonCaller,
        Self::PythonProvider,
        Self::GoCaller,
        Self::GoProvider,
    ];

    /// Whether its caller makes calls when they are due as well; a caller of forwarding has no task for each.
    pub(crate) const fn calls_when_due(self) -> bool {
        !matches!(self, Self::ForwardMultiplexed | Self::ForwardStreams)
    }

    /// Whether it is capd.
    pub(crate) const fn is_capd(self) -> bool {
        matches!(
            self,
            Self::Channel | Self::Signed | Self::Journaled | Self::Fleet | Self::Large | Self::Held
        )
    }

    /// The name that `--only` takes.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ForwardMultiplexed => "forward-multiplexed",
            Self::ForwardStreams => "forward-streams",
            Self::Channel => "channel",
            Self::Signed => "signed",
            Self::Journaled => "journaled",
            Self::GrpcProxied => "grpc-proxied",
            Self::GrpcDirect => "grpc-direct",
            Self::Nats => "nats",
            Self::Fleet => "fleet",
            Self::Large => "large",
            Self::Quic => "quic",
            Self::QuicLong => "quic-long",
            Self::Held => "held",
            Self::Link => "link",
            Self::Http => "http",
            Self::HttpKeyed => "http-keyed",
            Self::HttpPush => "http-push",
            Self::Axum => "axum",
            Self::Dapr => "dapr",
            Self::PythonCaller => "python-caller",
            Self::PythonProvider => "python-provider",
            Self::GoCaller => "go-caller",
            Self::GoProvider => "go-provider",
        }
    }

    /// What the table calls it.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::ForwardMultiplexed => "forward only, one stream",
            Self::ForwardStreams => "forward only, a stream per call",
            Self::Channel => "capd, channel mode, idempotent",
            Self::Signed => "capd, signed mode, idempotent",
            Self::Journaled => "capd, channel mode, journaled",
            Self::GrpcProxied => "tonic through two proxies, mTLS between them",
            Self::GrpcDirect => "tonic direct, mTLS",
            Self::Nats => "NATS request and reply, one broker, in the clear",
            Self::Fleet => "capd, channel mode, a large fleet",
            Self::Large => "capd, channel mode, two callers",
            Self::Quic => "quinn direct, a stream per call, mTLS",
            Self::QuicLong => "quinn direct, a stream per call, mTLS, long packets",
            Self::Held => "capd, channel mode, calls held by their provider",
            Self::Link => "capd, the binary link at both ends",
            Self::Http => "capd, HTTP in, calls read from a stream of events",
            Self::HttpKeyed => "capd, the same with an idempotency key for each call",
            Self::HttpPush => "capd, HTTP in, calls posted to a program that listens",
            Self::Axum => "two bare axum proxies, in the clear",
            Self::Dapr => "Dapr service invocation, two sidecars, mTLS",
            Self::PythonCaller => "capd, the Python SDK calls (a key for each call)",
            Self::PythonProvider => "capd, the Python SDK serves",
            Self::GoCaller => "capd, the Go SDK calls (a key for each call)",
            Self::GoProvider => "capd, the Go SDK serves",
        }
    }

    /// Starts its processes. [`Subject::Nats`] needs a broker in `programs`.
    pub(crate) fn start(self, programs: &Programs) -> World {
        let files = tempfile::Builder::new().prefix("capd-e2e-").tempdir().unwrap();
        let dir = files.path();
        let few = Setup { signatures: "channel", peers: 0, keeps_results: true, http: Http::No };
        let signed = Setup { signatures: "always", ..few };
        let Fleet { capabilities, peers } = programs.fleet;
        let sidecars = |setup, capability| sidecars(programs, dir, setup, capability, 0);
        let (processes, socket) = match self {
            Self::ForwardMultiplexed => (forward(dir, "multiplexed"), None),
            Self::ForwardStreams => (forward(dir, "stream-per-call"), None),
            Self::Channel => sidecars(few, UNJOURNALED),
            Self::Signed => sidecars(signed, UNJOURNALED),
            Self::Journaled => sidecars(few, JOURNALED),
            Self::Held => sidecars(few, HELD),
            Self::Large => {
                // What is held of a call is about the call, not about what is remembered of those before it.
                with_second_caller(sidecars(Setup { keeps_results: false, ..few }, UNJOURNALED))
            }
            Self::Fleet => self::sidecars(programs, dir, Setup { peers, ..few }, UNJOURNALED, capabilities),
            Self::GrpcProxied => (grpc_proxied(dir), None),
            Self::GrpcDirect => (grpc_direct(dir), None),
            Self::Nats => {
                (nats(dir, programs.nats_server.as_deref().expect("asked for where there is one")), None)
            }
            Self::Quic => (quic_direct(dir, "usual"), None),
            Self::QuicLong => (quic_direct(dir, "long"), None),
            Self::Link => sidecars(Setup { http: Http::Yes, ..few }, UNJOURNALED),
            Self::Axum => (fronts::axum(), None),
            Self::Dapr => (fronts::dapr(dir, programs), None),
            Self::Http
            | Self::HttpKeyed
            | Self::HttpPush
            | Self::PythonCaller
            | Self::PythonProvider
            | Self::GoCaller
            | Self::GoProvider => fronts::agents(self, Middle { programs, dir, setup: few }),
        };
        let world = World { processes, socket, files };
        if programs.is_placed {
            world.place();
        }
        world
    }
}

/// The host that a process stands for, of two: the caller's and the provider's. A broker is on neither.
pub(crate) fn host(name: &str) -> Option<usize> {
    match name {
        CALLER | SECOND_CALLER | SIDECAR_A | PROXY_A => Some(0),
        PROVIDER | SIDECAR_B | PROXY_B => Some(1),
        _ => None,
    }
}

/// What is run beside this program.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) capd: PathBuf,
    pub(crate) nats_server: Option<PathBuf>,
    pub(crate) fronts: fronts::Programs,
    /// Whether each host has a core of its own.
    pub(crate) is_placed: bool,
    pub(crate) fleet: Fleet,
    /// How long capd's calls are good for, and so remembered. **Units:** seconds.
    pub(crate) ttl_s: u64,
}

/// What [`Subject::Fleet`] has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fleet {
    /// Registered by its provider.
    pub(crate) capabilities: usize,
    /// Configured at each of its sidecars.
    pub(crate) peers: u32,
}

impl Fleet {
    /// What the bars are about.
    pub(crate) const WHOLE: Self = Self { capabilities: 10_000, peers: 1_000 };
    /// What a trial has time for.
    pub(crate) const TRIAL: Self = Self { capabilities: 50, peers: 10 };
}

/// The processes, and where sidecar A takes agents.
type Carried = (Vec<Process>, Option<PathBuf>);

fn sidecars(programs: &Programs, dir: &Path, setup: Setup, capability: &str, capabilities: usize) -> Carried {
    let start = |name, folder: &str, peer: Option<&Sidecar>| {
        Sidecar::start(&programs.capd, &dir.join(folder), name, setup, peer)
    };
    let b = start(SIDECAR_B, B_FOLDER, None);
    let capabilities = capabilities.to_string();
    let (provider, _) = if capability == HELD {
        Process::role(PROVIDER, &[&"agent-holder", &b.socket])
    } else {
        Process::role(PROVIDER, &[&"agent-provider", &b.socket, &capabilities])
    };
    let a = start(SIDECAR_A, A_FOLDER, Some(&b));
    let ttl_s = programs.ttl_s.to_string();
    let (caller, _) = Process::role(CALLER, &[&"agent-caller", &a.socket, &capability, &"--ttl-s", &ttl_s]);
    (vec![caller, a.process, b.process, provider], Some(a.socket))
}

fn with_second_caller((mut processes, socket): Carried) -> Carried {
    let a = socket.as_ref().expect("there are sidecars");
    processes.push(Process::role(SECOND_CALLER, &[&"agent-caller", a, &UNJOURNALED]).0);
    (processes, socket)
}

fn forward(dir: &Path, form: &str) -> Vec<Process> {
    quic::certify(dir);
    let (provider, _) = Process::role(PROVIDER, &[&"forward-provider", &dir]);
    let (b, at_b) = Process::role(PROXY_B, &[&"forward-b", &dir, &form]);
    let (a, _) = Process::role(PROXY_A, &[&"forward-a", &dir, &form, &at_b]);
    let (caller, _) = Process::role(CALLER, &[&"forward-caller", &dir]);
    vec![caller, a, b, provider]
}

fn quic_direct(dir: &Path, packets: &str) -> Vec<Process> {
    quic::certify(dir);
    let (provider, there) = Process::role(PROVIDER, &[&"quic-provider", &dir, &packets]);
    let callers =
        [CALLER, SECOND_CALLER].map(|name| Process::role(name, &[&"quic-caller", &dir, &there, &packets]).0);
    let [caller, second] = callers;
    vec![caller, provider, second]
}

fn grpc_direct(dir: &Path) -> Vec<Process> {
    quic::certify(dir);
    let (provider, there) = Process::role(PROVIDER, &[&"grpc-provider", &dir, &"tls"]);
    let (caller, _) = Process::role(CALLER, &[&"grpc-caller", &dir, &"tls", &there]);
    vec![caller, provider]
}

fn grpc_proxied(dir: &Path) -> Vec<Process> {
    quic::certify(dir);
    let (provider, there) = Process::role(PROVIDER, &[&"grpc-provider", &dir, &"plain"]);
    let (b, at_b) = Process::role(PROXY_B, &[&"grpc-proxy", &dir, &"tls", &"plain", &there]);
    let (a, at_a) = Process::role(PROXY_A, &[&"grpc-proxy", &dir, &"plain", &"tls", &at_b]);
    let (caller, _) = Process::role(CALLER, &[&"grpc-caller", &dir, &"plain", &at_a]);
    vec![caller, a, b, provider]
}

fn nats(dir: &Path, program: &Path) -> Vec<Process> {
    let (broker, there) = Process::role("broker", &[&"nats-broker", &dir, &program]);
    let (provider, _) = Process::role(PROVIDER, &[&"nats-provider", &there]);
    let (caller, _) = Process::role(CALLER, &[&"nats-caller", &there]);
    vec![caller, broker, provider]
}

pub(crate) const CALLER: &str = "caller";
const SECOND_CALLER: &str = "second caller";
pub(crate) const SIDECAR_A: &str = "sidecar A";
pub(crate) const SIDECAR_B: &str = "sidecar B";
/// Their folders among the files of their world.
pub(crate) const A_FOLDER: &str = "a";
pub(crate) const B_FOLDER: &str = "b";
pub(crate) const PROXY_A: &str = "proxy A";
pub(crate) const PROXY_B: &str = "proxy B";
pub(crate) const PROVIDER: &str = "provider";
