//! Runs `capd-mcp`: a command line in; a bridge that works until its streams end, or one clear error and its exit code, out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use capd_bridge::http::client::{Place, RemoteArgs};
use capd_bridge::import::served::ServedOptions;
use capd_bridge::run::{self, Failure, LockArgs, LockCommand, namespace, pattern, print, stop_signal};
use capd_bridge::sidecar::{Sidecar, SidecarArgs};
use capd_client::proto::capability::{CapabilityId, CapabilityPattern};
use capd_mcp::import::KIND;
use capd_mcp::import::child::{self, Program};
use capd_mcp::import::run::{ImportOptions, Origin, import as run_import};
use capd_mcp::install::{ClientProgram, InstallError};
use capd_mcp::serve::{Choice, ServeOptions, Server, http, stdio};
use clap::{Args, Parser, Subcommand};
use tokio::io::BufReader;

/// Bridges the Model Context Protocol (MCP) and capd.
///
/// Exit codes: 0 done, or stopped on request; 1 could not start or failed while running; 2 a mistake in the command line or
/// a file.
#[derive(Parser)]
#[command(name = "capd-mcp", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Offer the capabilities that the sidecar's agent may call as MCP tools.
    Serve(ServeArgs),
    /// Run an MCP server, or ask one at a URL, and serve its tools as capabilities of the sidecar's agent.
    Import(ImportArgs),
    #[command(flatten)]
    Lock(LockCommand),
    /// Print the configuration with which a client starts `capd-mcp serve`.
    Install(InstallArgs),
}

#[derive(Args)]
struct ImportArgs {
    #[command(flatten)]
    sidecar: SidecarArgs,
    #[command(flatten)]
    lock: LockArgs,
    /// What the names of the capabilities begin with: two words or more, such as com.example.files.
    #[arg(long, value_parser = namespace)]
    namespace: String,
    /// What the server may do, and what its callers must have been granted: filesystem:read, filesystem:write,
    /// network:read, network:write, network:unix; separated by commas.
    #[arg(long, value_delimiter = ',')]
    permissions: Vec<String>,
    /// A variable of the environment that the server gets, such as one with its token; repeatable.
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    env: Vec<String>,
    /// How long a call may run when its caller says nothing; 60 by default.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Let the server run as root, without capabilities, when this is run by root.
    #[arg(long, conflicts_with = "url")]
    allow_root: bool,
    /// Run the server with all rights of this process.
    #[arg(long, conflicts_with_all = ["permissions", "url"])]
    unconfined: bool,
    /// The URL of a server that listens elsewhere, over streamable HTTP, instead of a program.
    #[arg(long, conflicts_with = "command", value_parser = Place::parse)]
    url: Option<Place>,
    #[command(flatten)]
    remote: RemoteArgs,
    /// The server's program and its arguments.
    #[arg(last = true, required_unless_present = "url", conflicts_with_all = ["token_file", "ca_file"])]
    command: Vec<OsString>,
}

#[derive(Args)]
struct InstallArgs {
    /// The client.
    client: ClientProgram,
    #[command(flatten)]
    sidecar: SidecarArgs,
    /// Only capabilities of this name or namespace; repeatable.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    namespace: Vec<CapabilityPattern>,
    /// Offer two tools that find and call, instead of one for each capability.
    #[arg(long)]
    search: bool,
    /// What the client calls the server.
    #[arg(long, default_value = "capd")]
    name: String,
    /// Merge it into the client's own file, and keep a copy of the file as it was.
    #[arg(long)]
    write: bool,
}

#[derive(Args)]
struct ServeArgs {
    #[command(flatten)]
    sidecar: SidecarArgs,
    /// Only capabilities of this name or namespace (`com.example.*`); repeatable. The default is all.
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    namespace: Vec<CapabilityPattern>,
    /// This version of a capability instead of its newest; repeatable.
    #[arg(long, value_name = "NAME:VERSION")]
    pin: Vec<CapabilityId>,
    /// Offer two tools, find_capability and call_capability, instead of one for each capability.
    #[arg(long)]
    search: bool,
    /// Listen here for clients that connect over HTTP, at the path /mcp, instead of serving stdin and stdout.
    #[arg(long, value_name = "127.0.0.1:PORT")]
    http: Option<SocketAddr>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    run::program("capd-mcp", async {
        match cli.command {
            Command::Serve(args) => serve(args).await,
            Command::Import(args) => import(args).await,
            Command::Lock(command) => command.run(&KIND),
            Command::Install(args) => install(&args),
        }
    })
}

async fn import(args: ImportArgs) -> Result<(), Failure> {
    let socket = args.sidecar.socket().map_err(Failure::mistake)?;
    // A server that could change what was approved of it would need no approval.
    let lock = std::path::absolute(args.lock.path(&KIND)).map_err(Failure::mistake)?;
    let origin = match &args.url {
        Some(place) => Origin::Url {
            place: place.clone(),
            client: Arc::new(args.remote.client(place).map_err(Failure::mistake)?),
        },
        None => Origin::Program(program(&args, &socket, &lock)?),
    };
    let served = ServedOptions {
        namespace: args.namespace,
        lock,
        permissions: args.permissions,
        timeout: args.timeout.map(std::time::Duration::from_secs),
    };
    let options = ImportOptions { served, origin };
    let sidecar = Sidecar::new(socket, "capd-mcp import");
    let imported = run_import(&sidecar, &options, &stop_signal()?).await;
    sidecar.close().await;
    Ok(imported?)
}

/// The server's program, and what confines it.
fn program(args: &ImportArgs, socket: &Path, lock: &Path) -> Result<Program, Failure> {
    let helper = if args.unconfined {
        None
    } else {
        let helper = child::helper().ok_or_else(|| {
            Failure::runtime("no program capd is beside capd-mcp or in PATH to confine the server; install it, or use --unconfined")
        })?;
        if rustix::process::geteuid().is_root() && !args.allow_root {
            return Err(Failure::mistake(
                "capd-mcp runs as root and would run the server as root; run it as another user, or use --allow-root to \
                 run the server as root without capabilities",
            ));
        }
        Some(helper)
    };
    let sidecar_files = socket.parent().filter(|folder| folder.join("identity.key").exists());
    let hidden = [Some(lock), Some(socket), sidecar_files].into_iter().flatten();
    Ok(Program {
        words: args.command.clone(),
        permissions: args.permissions.clone(),
        helper,
        hidden: hidden.map(Path::to_owned).collect(),
        environment: args.env.clone(),
    })
}

fn install(args: &InstallArgs) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::runtime)?;
    let mut arguments = vec!["serve".to_owned()];
    if let Some(socket) = &args.sidecar.socket {
        let socket = std::path::absolute(socket).map_err(Failure::mistake)?;
        arguments.extend(["--socket".to_owned(), socket.display().to_string()]);
    }
    for pattern in &args.namespace {
        arguments.extend(["--namespace".to_owned(), pattern.to_string()]);
    }
    arguments.extend(args.search.then(|| "--search".to_owned()));
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let folder = std::env::current_dir().map_err(Failure::runtime)?;
    let path = args.client.path(home.as_deref(), &folder).map_err(Failure::mistake)?;
    if !args.write {
        let configuration = args.client.configuration(&args.name, &program, &arguments);
        return print(&format!("{configuration:#}\n"));
    }
    let written =
        args.client.write(&path, &args.name, &program, &arguments).map_err(|error| match error {
            InstallError::File { .. } => Failure::runtime(error),
            error => Failure::mistake(error),
        })?;
    print(&format!("wrote {}\n", written.path.display()))?;
    written.copy.map_or(Ok(()), |copy| print(&format!("the file as it was: {}\n", copy.display())))
}

async fn serve(args: ServeArgs) -> Result<(), Failure> {
    let socket = args.sidecar.socket().map_err(Failure::mistake)?;
    let sidecar = Arc::new(Sidecar::new(socket, "capd-mcp serve"));
    // A wrong socket is told at once, not with the first call.
    sidecar.client().await.map_err(Failure::runtime)?;
    let patterns = if args.namespace.is_empty() { vec![run::everything()] } else { args.namespace };
    let pins: BTreeMap<_, _> = args.pin.into_iter().map(|id| (id.name, id.version)).collect();
    let options = ServeOptions { choice: Choice { patterns, pins }, search: args.search };
    let server = Arc::new(Server::new(Arc::clone(&sidecar), options));
    let followed = Arc::clone(&server);
    tokio::spawn(async move { followed.follow().await });
    let stopped = stop_signal()?;
    let served = match args.http {
        None => tokio::select! {
            served = stdio::serve(server, BufReader::new(tokio::io::stdin()), tokio::io::stdout()) => served,
            () = stopped.cancelled() => Ok(()),
        },
        Some(address) => {
            let listener = capd_bridge::http::server::bind(address)
                .await
                .map_err(|error| Failure::runtime(format!("--http: {error}")))?;
            let address = listener.local_addr().map_err(Failure::runtime)?;
            tracing::info!(url = format!("http://{address}{}", http::PATH), "listening for MCP clients");
            http::Endpoint::new(server).serve(listener, stopped).await
        }
    };
    sidecar.close().await;
    served.map_err(Failure::runtime)
}
