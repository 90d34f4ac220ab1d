//! A role's name on the command line in; the process that plays it until its standard input ends, out.
//!
//! A role says one line of JSON once it is ready: its process id, and where others reach it. A caller then does a round
//! for each [`Load`] that stands on a line of its standard input, and says how it went.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::load::{Callee, Load, Round, run};
use crate::{agents, dapr, forward, grpc, http, nats, quic};

/// What one process is.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Role {
    /// Serves the capabilities of the benchmark to a sidecar.
    AgentProvider { socket: PathBuf, capabilities: usize },
    /// Calls one of them through a sidecar.
    AgentCaller {
        socket: PathBuf,
        capability: String,
        #[arg(long, default_value_t = agents::TTL_S)]
        ttl_s: u64,
    },
    /// Serves a capability whose calls it can hold.
    AgentHolder { socket: PathBuf },
    /// Has links to a sidecar and does nothing with them.
    AgentIdle { socket: PathBuf, links: usize },
    /// Answers frames on a unix socket.
    ForwardProvider { files: PathBuf },
    /// The proxy before the provider.
    ForwardB { files: PathBuf, form: quic::Form },
    /// The proxy before the caller.
    ForwardA { files: PathBuf, form: quic::Form, to: String },
    /// Sends frames to a unix socket.
    ForwardCaller { files: PathBuf },
    /// Answers on QUIC streams, with nothing between.
    QuicProvider { files: PathBuf, packets: quic::Packets },
    /// Calls there.
    QuicCaller { files: PathBuf, to: String, packets: quic::Packets },
    /// Answers gRPC, over TLS or not.
    GrpcProvider { files: PathBuf, server: grpc::Wire },
    /// Takes gRPC on one side and calls on the other.
    GrpcProxy { files: PathBuf, server: grpc::Wire, client: grpc::Wire, to: String },
    /// Calls over gRPC.
    GrpcCaller { files: PathBuf, client: grpc::Wire, to: String },
    /// Runs the broker.
    NatsBroker { files: PathBuf, program: PathBuf },
    /// Answers requests that come through it.
    NatsProvider { to: String },
    /// Makes them.
    NatsCaller { to: String },
    /// Calls over HTTP.
    HttpCaller {
        #[command(flatten)]
        target: http::Target,
    },
    /// A program that answers HTTP.
    HttpApp,
    /// Forwards HTTP.
    HttpProxy { to: String },
    /// Serves a capability to a sidecar over HTTP.
    HttpProvider { to: String, token: PathBuf },
    /// Runs the certificate authority of Dapr.
    DaprAuthority { files: PathBuf, programs: PathBuf },
    /// Runs a sidecar of Dapr.
    DaprSidecar {
        #[command(flatten)]
        side: dapr::Side,
    },
}

impl Role {
    /// Plays the role on this thread.
    pub(crate) fn run(self) {
        // A task that panics must end its process, so that whoever waits for it learns of it.
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            told(panic);
            std::process::exit(1);
        }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            match self {
                Self::AgentProvider { socket, capabilities } => agents::provider(&socket, capabilities).await,
                Self::AgentCaller { socket, capability, ttl_s } => {
                    agents::caller(&socket, &capability, ttl_s).await
                }
                Self::AgentHolder { socket } => agents::holder(&socket).await,
                Self::AgentIdle { socket, links } => agents::idle(&socket, links).await,
                Self::ForwardProvider { files } => forward::ends::provider(&files).await,
                Self::ForwardB { files, form } => forward::b(&files, form).await,
                Self::ForwardA { files, form, to } => forward::a(&files, form, &to).await,
                Self::ForwardCaller { files } => forward::ends::caller(&files).await,
                Self::QuicProvider { files, packets } => quic::provider(&files, packets).await,
                Self::QuicCaller { files, to, packets } => quic::caller(&files, &to, packets).await,
                Self::GrpcProvider { files, server } => grpc::provider(&files, server).await,
                Self::GrpcProxy { files, server, client, to } => {
                    grpc::proxy(&files, server, client, &to).await;
                }
                Self::GrpcCaller { files, client, to } => grpc::caller(&files, client, &to).await,
                Self::NatsBroker { files, program } => nats::broker(&files, &program).await,
                Self::NatsProvider { to } => nats::provider(&to).await,
                Self::NatsCaller { to } => nats::caller(&to).await,
                Self::HttpCaller { target } => http::caller(target).await,
                Self::HttpApp => http::app().await,
                Self::HttpProxy { to } => http::proxy(&to).await,
                Self::HttpProvider { to, token } => http::provider(&to, &token).await,
                Self::DaprAuthority { files, programs } => dapr::authority(&files, &programs).await,
                Self::DaprSidecar { side } => dapr::sidecar(side).await,
            }
        });
    }
}

/// What a process says when it is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// The process whose CPU time counts.
    pub(crate) pid: u32,
    /// Where it is reached, if anybody is to reach it over the network.
    pub(crate) address: String,
}

/// Says that this process is reached at `address`.
pub(crate) fn ready(address: impl ToString) {
    say(&Ready { pid: std::process::id(), address: address.to_string() });
}

/// Waits until nobody needs this process any more.
pub(crate) async fn done() {
    let mut lines = lines();
    while lines.recv().await.is_some() {}
}

/// Does the rounds that this process is asked for.
pub(crate) async fn rounds(callee: &impl Callee) {
    ready("");
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        tell(&run(callee, &load(&line)).await);
    }
}

/// The round that a line of standard input asks for.
pub(crate) fn load(line: &str) -> Load {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?} is no round: {error}"))
}

/// Tells how a round went.
pub(crate) fn tell(round: &Round) {
    say(round);
}

/// The lines of standard input, read beside the runtime: links must be kept alive while none comes.
pub(crate) fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if sender.blocking_send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

pub(crate) fn say(message: &impl Serialize) {
    let line = serde_json::to_string(message).unwrap();
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).unwrap();
}
