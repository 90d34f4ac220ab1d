//! Runs `capd-a2a`: a command line in; a bridge that works until it is stopped, or one clear error and its exit code, out.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use capd_a2a::import::{self, ImportOptions, KIND};
use capd_a2a::serve::callers::Callers;
use capd_a2a::serve::{ServeOptions, Server, http};
use capd_bridge::export::Choice;
use capd_bridge::http::client::{Place, RemoteArgs};
use capd_bridge::http::server;
use capd_bridge::import::served::ServedOptions;
use capd_bridge::run::{self, Failure, LockArgs, LockCommand, namespace, pattern, stop_signal};
use capd_bridge::sidecar::{Sidecar, SidecarArgs};
use capd_client::proto::capability::{CapabilityId, CapabilityPattern};
use clap::{Args, Parser, Subcommand};

/// Bridges the Agent2Agent protocol (A2A 1.0) and capd.
///
/// Exit codes: 0 done, or stopped on request; 1 could not start or failed while running; 2 a mistake in the command line or
/// a file.
#[derive(Parser)]
#[command(name = "capd-a2a", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Offer the capabilities that the sidecar's agent may call as the skills of an A2A agent.
    Serve(ServeArgs),
    /// Serve the skills of an A2A agent as capabilities of the sidecar's agent.
    Import(ImportArgs),
    #[command(flatten)]
    Lock(LockCommand),
}

#[derive(Args)]
struct ServeArgs {
    #[command(flatten)]
    sidecar: SidecarArgs,
    /// Where to listen, on loopback. Put a proxy with TLS before it for clients of other machines.
    #[arg(long, value_name = "127.0.0.1:PORT")]
    listen: SocketAddr,
    /// The URL that clients reach it by, if that is another one; it stands on the agent card.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Only capabilities of this name or namespace (`com.example.*`); repeatable. The default is all.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    namespace: Vec<CapabilityPattern>,
    /// This version of a capability instead of its newest; repeatable.
    #[arg(long, value_name = "NAME:VERSION")]
    pin: Vec<CapabilityId>,
    /// The agent's name on the card.
    #[arg(long, default_value = "capd", value_name = "NAME")]
    name: String,
    /// A file with a caller's name and its bearer token on each line. CAPD_A2A_TOKEN in the environment is the token of the
    /// caller `default`. Without any, everybody on this machine may ask.
    #[arg(long, value_name = "FILE")]
    callers_file: Option<PathBuf>,
    /// The folder of the card's key and of the record of tasks; `capd-a2a` in the user's state folder by default.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

#[derive(Args)]
struct ImportArgs {
    #[command(flatten)]
    sidecar: SidecarArgs,
    #[command(flatten)]
    lock: LockArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    /// What the names of the capabilities begin with: two words or more, such as com.example.travel.
    #[arg(long, value_parser = namespace)]
    namespace: String,
    /// What its callers must have been granted; separated by commas.
    #[arg(long, value_delimiter = ',')]
    permissions: Vec<String>,
    /// How long a call may run when its caller says nothing; 60 by default.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Use the agent also where its card names an interface at another origin than its own.
    #[arg(long)]
    any_origin: bool,
    /// The agent's URL, or that of its card.
    url: String,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    run::program("capd-a2a", async {
        match cli.command {
            Command::Serve(args) => serve(args).await,
            Command::Import(args) => import(args).await,
            Command::Lock(command) => command.run(&KIND),
        }
    })
}

async fn serve(args: ServeArgs) -> Result<(), Failure> {
    let token = std::env::var("CAPD_A2A_TOKEN").ok().filter(|token| !token.is_empty());
    let callers = Callers::read(args.callers_file.as_deref(), token.as_deref()).map_err(Failure::mistake)?;
    if let Some(url) = &args.url {
        Place::parse(url).map_err(Failure::mistake)?;
    }
    let state = args
        .state
        .or_else(state_folder)
        .ok_or_else(|| Failure::mistake("no folder is named: use --state DIR"))?;
    let socket = args.sidecar.socket().map_err(Failure::mistake)?;
    let sidecar = Arc::new(Sidecar::new(socket, "capd-a2a serve"));
    // A wrong socket is told at once, not with the first call.
    sidecar.client().await.map_err(Failure::runtime)?;
    let listener =
        server::bind(args.listen).await.map_err(|error| Failure::runtime(format!("--listen: {error}")))?;
    let address = listener.local_addr().map_err(Failure::runtime)?;
    let url = args.url.unwrap_or_else(|| format!("http://{address}"));
    let url = url.trim_end_matches('/').to_owned();
    let patterns = if args.namespace.is_empty() { vec![run::everything()] } else { args.namespace };
    let pins = args.pin.into_iter().map(|id| (id.name, id.version)).collect();
    let options =
        ServeOptions { choice: Choice { patterns, pins }, name: args.name, url: url.clone(), state, callers };
    let server = Server::new(Arc::clone(&sidecar), options).map_err(Failure::runtime)?;
    tracing::info!(url, address = %address, "listening for A2A clients");
    let served = http::serve(Arc::new(server), listener, stop_signal()?).await;
    sidecar.close().await;
    served.map_err(Failure::runtime)
}

async fn import(args: ImportArgs) -> Result<(), Failure> {
    let place = Place::parse(&args.url).map_err(Failure::mistake)?;
    let client = args.remote.client(&place).map_err(Failure::mistake)?;
    let socket = args.sidecar.socket().map_err(Failure::mistake)?;
    let lock = std::path::absolute(args.lock.path(&KIND)).map_err(Failure::mistake)?;
    let served = ServedOptions {
        namespace: args.namespace,
        lock,
        permissions: args.permissions,
        timeout: args.timeout.map(Duration::from_secs),
    };
    let sidecar = Sidecar::new(socket, "capd-a2a import");
    let imported = import::import(
        &sidecar,
        ImportOptions { served, place, client, any_origin: args.any_origin },
        &stop_signal()?,
    )
    .await;
    sidecar.close().await;
    Ok(imported?)
}

fn state_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("capd-a2a"))
}
