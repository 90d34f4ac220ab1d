//! Runs `capd-mcp`: a command line in; a bridge that works until its streams end, or one clear error and its exit code, out.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use capd_client::proto::capability::{CapabilityId, CapabilityPattern};
use capd_mcp::serve::{Choice, ServeOptions, Server, http, stdio};
use capd_mcp::sidecar::{Sidecar, SidecarArgs};
use capd_mcp::{log, text};
use clap::{Args, Parser, Subcommand};
use tokio::io::BufReader;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

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
}

#[derive(Args)]
struct ServeArgs {
    #[command(flatten)]
    sidecar: SidecarArgs,
    /// Only capabilities of this name or namespace (`com.example.*`); repeatable. The default is all.
    #[arg(long, value_name = "PATTERN")]
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

/// What ends the program other than well.
struct Failure {
    message: String,
    exit_code: u8,
}

impl Failure {
    fn mistake(error: impl ToString) -> Self {
        Self { message: error.to_string(), exit_code: 2 }
    }

    fn runtime(error: impl ToString) -> Self {
        Self { message: error.to_string(), exit_code: 1 }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&Failure::runtime(format!("the runtime cannot be started: {error}"))),
    };
    let outcome = runtime.block_on(run(cli.command));
    // A read of stdin that nobody waits for any more would keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> ExitCode {
    // There is nobody else to tell.
    let _ = writeln!(io::stderr().lock(), "capd-mcp: {}", text::shown(&failure.message));
    ExitCode::from(failure.exit_code)
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(args) => serve(args).await,
    }
}

async fn serve(args: ServeArgs) -> Result<(), Failure> {
    let socket = args.sidecar.socket().map_err(Failure::mistake)?;
    let sidecar = Arc::new(Sidecar::new(socket, "capd-mcp serve"));
    // A wrong socket is told at once, not with the first call.
    sidecar.client().await.map_err(Failure::runtime)?;
    let everything = || vec!["*".parse().expect("a pattern that a test parses")];
    let patterns = if args.namespace.is_empty() { everything() } else { args.namespace };
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
            let listener =
                http::bind(address).await.map_err(|error| Failure::runtime(format!("--http: {error}")))?;
            let address = listener.local_addr().map_err(Failure::runtime)?;
            tracing::info!(url = format!("http://{address}{}", http::PATH), "listening for MCP clients");
            http::Endpoint::new(server).serve(listener, stopped).await
        }
    };
    sidecar.close().await;
    served.map_err(Failure::runtime)
}

/// Cancelled by SIGINT or SIGTERM.
fn stop_signal() -> Result<CancellationToken, Failure> {
    let stopped = CancellationToken::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).map_err(Failure::runtime)?;
        let stopped = stopped.clone();
        tokio::spawn(async move {
            signals.recv().await;
            stopped.cancel();
        });
    }
    Ok(stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_for_everything_parses() {
        assert!("*".parse::<CapabilityPattern>().is_ok());
    }
}
