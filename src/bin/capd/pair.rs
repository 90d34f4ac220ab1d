//! Implements `capd pair`: a configuration and, on one of two machines, a code in; the other side as a peer in the file out.

mod card;
pub(crate) mod place;
mod running;

use std::io::{BufRead as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capd::config::edit::{File, NewPeer};
use capd::config::{Config, edit};
use capd::pair::{self, Code, Event, Limits, Met, Own};
use capd::text;
use capd_proto::capability::CapabilityPattern;
use clap::Args;
use tokio::net::{TcpListener, TcpStream};

use super::{Failure, SourceArgs};
use place::Place;

#[derive(Args)]
pub(super) struct PairArgs {
    /// The code that `capd pair` printed on the other machine, and that machine: CODE@HOST or CODE@HOST:PORT. Without it,
    /// this machine prints a code and waits for the other
    #[arg(value_name = "CODE@HOST")]
    place: Option<Place>,
    #[command(flatten)]
    sources: SourceArgs,
    /// Where to wait for the other machine
    #[arg(long, value_name = "IP:PORT", default_value_t = DEFAULT_LISTEN, conflicts_with = "place")]
    listen: SocketAddr,
    /// How long the code is valid, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=600), conflicts_with = "place")]
    valid: u64,
    /// Agree without asking
    #[arg(long)]
    yes: bool,
    /// What you call the other side [default: what it calls itself]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// What your agent may call at the other side: a name or NAMESPACE.*; repeatable [default: what it offers]
    #[arg(long, value_name = "CAPABILITY")]
    serves: Vec<CapabilityPattern>,
    /// What to offer the other side: a name or NAMESPACE.*; repeatable [default: what your agent provides]
    #[arg(long, value_name = "CAPABILITY")]
    offers: Vec<CapabilityPattern>,
    /// Where the other side reaches this sidecar: quic://HOST:PORT or tcp://HOST:PORT; repeatable [default: its listeners]
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<String>,
}

/// Runs `capd pair`.
pub(super) fn pair(args: PairArgs) -> Result<(), Failure> {
    let file = args.sources.config.clone().ok_or_else(|| {
        Failure::mistake(
            "capd pair writes the peer to a configuration file; name it with --config, or make one with capd init",
        )
    })?;
    let config = args.sources.clone().load()?;
    let identity = capd::daemon::identity(&config).map_err(super::start_failure)?;
    let runtime = capd::net::runtime(Duration::ZERO).map_err(Failure::runtime)?;
    let outcome = runtime.block_on(async {
        let card = card::of(&config, &args.offers, &args.address).await?;
        let own = Arc::new(Own { identity, card });
        let (met, host) = meet(&args, &file, own).await?;
        finish(&args, &file, &config, met, host).await
    });
    // A question that nobody answers cannot be called off.
    runtime.shutdown_background();
    outcome
}

/// Waits for the other side, or goes to it. Gives it and its host, as this side sees it.
async fn meet(args: &PairArgs, file: &Path, own: Arc<Own>) -> Result<(Met<TcpStream>, String), Failure> {
    let Some(Place { code, host, port }) = &args.place else { return wait(args, file, own).await };
    let address = format!("{}:{port}", bracketed(host));
    let stream = tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(&address)).await;
    let stream = stream
        .map_err(|_| format!("no answer within {CONNECT_WAIT:?}"))
        .and_then(|connected| connected.map_err(|error| error.to_string()));
    let stream = stream.map_err(|why| {
        Failure::runtime(format!(
            "cannot connect to {address}: {why}; is `capd pair` still waiting there, and is TCP port {port} open?"
        ))
    })?;
    println!("our DID  {}", own.identity.did());
    let met = tokio::time::timeout(HANDSHAKE_WAIT, pair::dial(stream, code, &own)).await;
    let met =
        met.map_err(|_| Failure::runtime(format!("{address} did not answer within {HANDSHAKE_WAIT:?}")))?;
    met.map(|met| (met, host.clone())).map_err(|error| Failure::runtime(format!("{error}; {AGAIN}")))
}

/// Prints a code and waits.
async fn wait(args: &PairArgs, file: &Path, own: Arc<Own>) -> Result<(Met<TcpStream>, String), Failure> {
    let code = Code::new().map_err(Failure::runtime)?;
    let listener = TcpListener::bind(args.listen).await.map_err(|error| {
        Failure::runtime(format!("cannot listen on {}: {error}; choose another with --listen", args.listen))
    })?;
    let at = listener.local_addr().map_err(Failure::runtime)?;
    let place = Place { code: code.clone(), host: place::host_of(at.ip()), port: at.port() };
    println!("our DID  {}\n", own.identity.did());
    println!("Within {}, on the other machine:\n", span(args.valid));
    println!("  capd pair {place} --config {}\n", file.file_name().unwrap_or_default().to_string_lossy());
    std::io::stdout().flush().map_err(Failure::runtime)?;
    let limits = Limits { lifetime: Duration::from_secs(args.valid), ..Limits::default() };
    let (met, from) = pair::listen(listener, code, own, limits, |event| {
        let Event::Failed { from, error, tries_left } = event;
        let left = match tries_left {
            0 => String::new(),
            1 => "; 1 try is left".to_owned(),
            count => format!("; {count} tries are left"),
        };
        eprintln!("capd: {from}: {}{left}", text::line(&error.to_string()));
    })
    .await
    .map_err(|error| Failure::runtime(format!("{error}; {AGAIN_HERE}")))?;
    Ok((met, from.ip().to_canonical().to_string()))
}

/// Asks both owners, writes the file, and has the running sidecar take it.
async fn finish(
    args: &PairArgs,
    file: &Path,
    config: &Config,
    met: Met<TcpStream>,
    host: String,
) -> Result<(), Failure> {
    let peer = card::peer(&met, &host, config, args.name.as_deref(), &args.serves)?;
    println!("their DID  {}", met.did());
    println!("\nTo be written to {}:\n", file.display());
    println!("  name       {}", peer.name);
    println!("  addresses  {}", or_none(&peer.addresses, "none: it connects to this side"));
    println!("  serves     {}\n", or_none(&peer.serves, "nothing: your agent may call nothing there"));
    println!("{} may call nothing here until you grant it.", peer.name);
    if !args.yes && !asked().await? {
        // It may be gone; this side has decided anyway.
        let _gone = met.decline().await;
        return Err(Failure::runtime("you declined; nothing was written"));
    }
    println!("waiting for the other side to agree");
    let agreed = tokio::time::timeout(AGREE_WAIT, met.agree()).await;
    let agreed =
        agreed.map_err(|_| Failure::runtime("the other side did not agree in time; nothing was written"))?;
    let again = if args.place.is_some() { AGAIN } else { AGAIN_HERE };
    let agreed =
        agreed.map_err(|error| Failure::runtime(format!("{error}; nothing was written; {again}")))?;
    if let Err(failure) = write(file, &peer) {
        let _gone = agreed.failed().await;
        return Err(failure);
    }
    println!("wrote {}", file.display());
    let written = tokio::time::timeout(WRITTEN_WAIT, agreed.written()).await;
    if !matches!(written, Ok(Ok(()))) {
        eprintln!(
            "capd: the other side does not say that it wrote its file; look there, and pair again if it did not"
        );
    }
    running::reload(config, &peer.name).await;
    let place = file.display();
    println!("\nLet it call something: capctl policy grant {} CAPABILITY --config {place}", peer.name);
    Ok(())
}

fn write(file: &Path, peer: &NewPeer) -> Result<(), Failure> {
    let failed = |error: edit::EditError| Failure::runtime(error);
    let mut edited = File::open(file).map_err(failed)?;
    edited.put_peer(peer).map_err(failed)?;
    let config = edited.save(&super::environment()).map_err(failed)?;
    if config.peers.iter().any(|known| known.did == peer.did) {
        return Ok(());
    }
    Err(Failure::mistake(
        "CAPD_PEERS is set and overrides [[peers]] of the file; unset it, or add the peer there",
    ))
}

/// Asks the owner. An end of input is a no.
async fn asked() -> Result<bool, Failure> {
    print!("Does the other screen show the same two DIDs? Pair? [y/N] ");
    std::io::stdout().flush().map_err(Failure::runtime)?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line).map(|_| line)
    });
    let answer = tokio::time::timeout(AGREE_WAIT, answer).await;
    let answer = answer.map_err(|_| Failure::runtime("nobody answered in time; nothing was written"))?;
    let line = answer.map_err(Failure::runtime)?.map_err(Failure::runtime)?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn or_none(texts: &[String], none: &str) -> String {
    if texts.is_empty() { none.to_owned() } else { texts.join(", ") }
}

/// A host as it stands in front of a port.
fn bracketed(host: &str) -> String {
    if matches!(host.parse(), Ok(IpAddr::V6(_))) { format!("[{host}]") } else { host.to_owned() }
}

fn span(seconds: u64) -> String {
    let (count, unit) =
        if seconds.is_multiple_of(60) { (seconds / 60, "minute") } else { (seconds, "second") };
    if count == 1 { format!("1 {unit}") } else { format!("{count} {unit}s") }
}

/// Where `capd pair` waits for another machine.
const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), place::DEFAULT_PORT);
const CONNECT_WAIT: Duration = Duration::from_secs(10);
const HANDSHAKE_WAIT: Duration = Duration::from_secs(15);
/// How long the owners may take to agree.
const AGREE_WAIT: Duration = Duration::from_secs(600);
const WRITTEN_WAIT: Duration = Duration::from_secs(10);
/// What the side does that has no code any more, and what the side does that makes one.
const AGAIN: &str = "run `capd pair` on the other machine again for a new code";
const AGAIN_HERE: &str = "run `capd pair` here again for a new code";
