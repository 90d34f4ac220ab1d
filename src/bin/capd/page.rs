//! Implements `capd page`: opens the page of a running sidecar, prints its URL, and serves it until a signal.

use std::future::pending;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use capd::client::Endpoint;
use capd::page::{Options, Page};
use clap::Args;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, SourceArgs};

#[derive(Args)]
pub(super) struct PageArgs {
    #[command(flatten)]
    sources: SourceArgs,
    /// The sidecar's unix socket [default: listen.unix of the configuration]
    #[arg(long, env = "CAPD_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where the page listens, on loopback; port 0 lets the system choose
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Use a socket that neither you nor root opened
    #[arg(long)]
    any_owner: bool,
    /// Close the page when standard input ends, so that a parent process cannot leave it behind
    #[arg(long)]
    stop_with_stdin: bool,
}

/// Opens the page and serves it.
pub(super) fn page(args: PageArgs) -> Result<(), Failure> {
    let PageArgs { sources, socket, listen, any_owner, stop_with_stdin } = args;
    let socket = match socket {
        Some(socket) => socket,
        None => {
            let config = sources.load()?;
            let off = "config key listen.unix: the sidecar listens on no unix socket; name one with --socket";
            config.listen.unix.ok_or_else(|| Failure::mistake(off))?
        }
    };
    let options = Options { listen, endpoint: Endpoint::Unix(socket), any_owner };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::runtime)?;
    let ended = runtime.block_on(serve(options, stop_with_stdin));
    // A read of standard input cannot be called off, and must not be waited for.
    runtime.shutdown_background();
    ended
}

async fn serve(options: Options, stop_with_stdin: bool) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::runtime)?;
    let page = Page::open(options).await.map_err(Failure::runtime)?;
    let mut stdout = std::io::stdout();
    let told = "Anybody who has this URL can act as the agent, so do not share it. Ctrl-C closes the page.";
    writeln!(stdout, "{}\n\n{told}", page.url()).and_then(|()| stdout.flush()).map_err(Failure::runtime)?;
    tokio::select! {
        () = page.serve() => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = stdin_ended(stop_with_stdin) => {}
    }
    Ok(())
}

/// Resolves when standard input ends; never, unless asked for.
async fn stdin_ended(wanted: bool) {
    if !wanted {
        return pending().await;
    }
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0u8; 256];
    while matches!(stdin.read(&mut ignored).await, Ok(1..)) {}
}
