//! Implements `capd dev --lan`: a network in; one sidecar that finds those of other desks on it by mDNS, and lets them into
//! its cell by a code, out.
//!
//! The first desk makes the cell's authority. A desk that joins gets its membership over a connection that both ends
//! have proven to know the code on, and whose other end has proven to hold the authority's key.

mod admitting;
mod desk;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use capd::client::{Client, Endpoint, Options};
use capd::pair::Code;
use capd_proto::message::FleetRequest;
use clap::Args;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use self::admitting::{Admitted, Door};
use self::desk::Desk;
use super::super::Failure;
use super::super::pair::place::{self, Place};
use super::{Folder, Sidecar, capctl, shell_word};

#[derive(Args)]
pub(super) struct LanArgs {
    /// Run one sidecar that finds those of other desks on this network by mDNS. It prints a code that lets one of them join.
    #[arg(long, conflicts_with_all = ["fleet", "print_config", "new_identity"])]
    pub(super) lan: bool,
    /// Join the cell of another desk, which printed this.
    #[arg(long, value_name = "CODE@HOST", requires = "lan")]
    join: Option<Place>,
    /// What this desk is called on the network [default: the host's name].
    #[arg(long, value_name = "NAME", requires = "lan")]
    name: Option<String>,
    /// The IPv4 address of the interface to use [default: the one that leads out].
    #[arg(long, value_name = "IP", requires = "lan")]
    address: Option<Ipv4Addr>,
    /// The UDP port of mDNS, the same on all desks [default: 5353].
    #[arg(long, value_name = "PORT", requires = "lan", value_parser = clap::value_parser!(u16).range(1..))]
    mdns_port: Option<u16>,
}

/// Runs the desk until a signal.
pub(super) async fn stay(args: LanArgs, dir: Option<PathBuf>, as_json: bool) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::runtime)?;
    let address = address(args.address)?;
    let folder = Folder::new(dir)?;
    let desk = Desk::new(&folder.path, args.name, address, args.mdns_port.unwrap_or(MDNS_PORT))?;
    let mut running = None;
    let work = async {
        let door = match &args.join {
            Some(place) => {
                let authority = admitting::join(&desk, place).await?;
                say(as_json, &json!({"joined": authority}), || format!("joined the cell of {authority}\n"));
                None
            }
            None => desk.first()?.map(|authority| Door::new(authority, &desk)),
        };
        let sidecar = running.insert(Sidecar::start("desk", &desk.config(), &[]).await?);
        let socket = PathBuf::from(sidecar.text("socket"));
        let row =
            json!({"desk": sidecar.row(true), "name": desk.name, "capability": desk.capability.as_str()});
        say(as_json, &row, || introduction(&desk, sidecar));
        tokio::try_join!(admit(door, address, as_json), watch(&desk, socket, as_json)).map(|_| ())
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    if let Some(sidecar) = running {
        sidecar.stop().await;
    }
    outcome
}

/// Lets others in, one with each code, for as long as the desk runs; a desk without the authority's key lets in nobody.
async fn admit(door: Option<Door>, address: Ipv4Addr, as_json: bool) -> Result<(), Failure> {
    let Some(mut door) = door else { return std::future::pending().await };
    loop {
        let code = Code::new().map_err(Failure::runtime)?;
        let (listener, port) = listen(address).await?;
        let place = Place { code: code.clone(), host: address.to_string(), port };
        say(as_json, &json!({"join": place.to_string()}), || {
            format!("On another desk, within 10 minutes:\n\n  capd dev --lan --join {place}\n")
        });
        match door.admit(listener, code).await {
            Ok(Admitted { did, capability }) => {
                let row = json!({"admitted": did, "serves": capability.as_str()});
                say(as_json, &row, || format!("admitted {did}, which may serve {capability}\n"));
            }
            Err(admitting::Refused::Again(why)) => eprintln!("capd: {why}"),
            Err(admitting::Refused::Void(why)) => {
                eprintln!("capd: {why}; this desk lets in nobody else until you start it again");
                return std::future::pending().await;
            }
        }
    }
}

/// The port of pairing, or any one if that is taken.
async fn listen(address: Ipv4Addr) -> Result<(TcpListener, u16), Failure> {
    let at = |port| (IpAddr::V4(address), port);
    let listener = match TcpListener::bind(at(place::DEFAULT_PORT)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(at(0)).await,
    };
    let failed =
        |error| Failure::runtime(format!("cannot listen on {address}: {error}; name another --address"));
    let listener = listener.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    Ok((listener, port))
}

/// Says which names of other desks come and go, until the sidecar ends.
async fn watch(desk: &Desk, socket: PathBuf, as_json: bool) -> Result<(), Failure> {
    let client = Client::connect(Endpoint::Unix(socket.clone()), Options::default()).await;
    let client = client.map_err(Failure::runtime)?;
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let report = client.fleet(&FleetRequest::Names).await.map_err(Failure::runtime)?;
        let others = report.names.into_iter().filter(|name| *name.name != *desk.capability.as_str());
        let found: BTreeMap<_, _> = others
            .map(|name| {
                let dids: Vec<_> = name.candidates.iter().map(|of| of.did.to_string()).collect();
                (name.name.to_string(), dids.join(", "))
            })
            .collect();
        for (name, did) in found.iter().filter(|(name, _)| !known.contains_key(*name)) {
            say(as_json, &json!({"found": name, "did": did}), || {
                let socket = shell_word(&socket.display().to_string());
                format!(
                    "found {name}, served by {did}; call it:\n\n  {} --socket {socket} call {name} --params '{{}}'\n",
                    capctl()
                )
            });
        }
        for name in known.keys().filter(|name| !found.contains_key(*name)) {
            say(as_json, &json!({"gone": name}), || format!("{name} is gone\n"));
        }
        known = found;
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn introduction(desk: &Desk, sidecar: &Sidecar) -> String {
    format!(
        "This desk is `{}`, {}. It serves {} on {}. Ctrl-C ends it.\n",
        desk.name,
        sidecar.text("did"),
        desk.capability,
        desk.address
    )
}

fn say(as_json: bool, row: &Value, text: impl FnOnce() -> String) {
    if as_json { println!("{row}") } else { println!("{}", text()) }
}

/// The address of the interface that leads out, unless one is named.
fn address(named: Option<Ipv4Addr>) -> Result<Ipv4Addr, Failure> {
    let outward = || place::host_of(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).parse().ok();
    named.or_else(outward).ok_or_else(|| {
        Failure::runtime(
            "capd dev --lan: no network leads out of this machine; connect it to one, or name the address of an \
             interface with --address IP",
        )
    })
}

/// The port of all mDNS.
const MDNS_PORT: u16 = 5_353;
/// Between two looks at who is there.
const ASK_EVERY: Duration = Duration::from_millis(500);
