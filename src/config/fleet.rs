//! Checks `[fleet]`: settings in, the part that this sidecar takes in a fleet, or what is missing for one, out.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use capd_proto::fleet::{Agent, Cell};
use capd_proto::limits::REGISTERED_ADDRESSES_MAX;

use super::check::View;
use super::keys::KEYS;
use super::source::Settings;
use super::value::quoted;
use super::{Address, Listen, Mistake, Transport};

/// `[fleet]`: the cell that this sidecar is a member of, and how it finds the others.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The cell.
    pub cell: Cell,
    /// The cell's authority, whose key signs memberships.
    pub authority: Agent,
    /// The file with the membership of this agent.
    pub membership: PathBuf,
    /// Where registrations are kept.
    pub registry: Registry,
    /// Where peers reach this sidecar, as it registers; empty for one that registers nothing.
    pub addresses: Vec<Address>,
    /// The zone that this sidecar runs in.
    pub zone: Option<String>,
    /// How long a registration lives without renewal, in milliseconds.
    pub ttl_ms: u64,
    /// How long a name is watched, and its links are kept, after its last call, in milliseconds.
    pub idle_ms: u64,
    /// How long a provider that vanished from the registry may be tried, in milliseconds.
    pub max_stale_ms: u64,
    /// How old the known revocations may be for a new link, in milliseconds.
    pub deny_max_age_ms: u64,
    /// Links to providers of one name.
    pub links_per_name: usize,
}

/// Where registrations are kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Registry {
    /// Nowhere: members are admitted, and found in `[[peers]]` alone.
    None,
    /// In one file, for the sidecars of one machine.
    File(PathBuf),
    /// In etcd.
    Etcd(Etcd),
    /// Nowhere: each sidecar announces its own by mDNS.
    Mdns(Mdns),
}

/// How mDNS is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mdns {
    /// Addresses of the interfaces; none for the one that the system chooses.
    pub interfaces: Vec<Ipv4Addr>,
    /// The UDP port.
    pub port: u16,
}

/// How etcd is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Etcd {
    /// Its client URLs.
    pub endpoints: Vec<String>,
    /// Certificates of those who sign its certificate; none where it speaks without TLS.
    pub ca: Option<PathBuf>,
    /// The client certificate, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Builds `[fleet]`; none where no cell is named. What is missing or does not fit becomes a mistake.
pub(super) fn build(
    settings: &Settings,
    (dir, listen): (&Path, &Listen),
    mistakes: &mut Vec<Mistake>,
) -> Option<Fleet> {
    let view = View(settings);
    let mut wrong = |key: &str, problem: &str, accepted: &str| {
        let origin = settings.origin(key);
        mistakes.push(Mistake {
            origin,
            key: key.into(),
            problem: problem.into(),
            accepted: accepted.into(),
        });
    };
    let cell = view.text("fleet.cell");
    let Ok(cell) = cell.parse::<Cell>() else {
        // A refused cell is a mistake already.
        let set = KEYS.iter().find(|key| key.path.starts_with("fleet.") && settings.get(key.path).is_some());
        if let Some(key) = set.filter(|_| cell.is_empty()) {
            wrong(
                key.path,
                "is set, and fleet.cell is not",
                "fleet.cell with the cell of `capctl fleet init`",
            );
        }
        return None;
    };
    let Ok(authority) = Agent::from_did(&view.text("fleet.authority")) else {
        wrong("fleet.authority", "is missing", "the did:key:z6Mk… that `capctl fleet init` printed");
        return None;
    };
    let identity = match (view.path("fleet.tls_cert"), view.path("fleet.tls_key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            wrong("fleet.tls_cert", "is set without fleet.tls_key", "both, or neither");
            None
        }
        (None, Some(_)) => {
            wrong("fleet.tls_key", "is set without fleet.tls_cert", "both, or neither");
            None
        }
    };
    let ca = view.path("fleet.tls_ca");
    let endpoints = view.endpoints("fleet.endpoints");
    let has_tls = ca.is_some() || identity.is_some();
    if has_tls && let Some(plain) = endpoints.iter().find(|url| !url.starts_with("https://")) {
        let problem = format!("{} is not encrypted, and TLS files are set", quoted(plain));
        wrong("fleet.endpoints", &problem, "https:// URLs");
    }
    if ca.is_none()
        && let Some(url) = endpoints.iter().find(|url| url.starts_with("https://"))
    {
        let problem = format!("is missing, and {} is encrypted", quoted(url));
        wrong("fleet.tls_ca", &problem, "the file with the certificate of etcd's authority (PEM)");
    }
    let mut addresses = view.addresses("fleet.addresses");
    if addresses.is_empty() {
        addresses = own_addresses(listen);
    }
    let has_mdns = view.text("fleet.mdns") == "on";
    let registry = match (view.path("fleet.file"), endpoints.is_empty(), has_mdns) {
        (None, true, false) => Registry::None,
        (None, false, false) => Registry::Etcd(Etcd { endpoints, ca, identity }),
        (Some(file), true, false) => Registry::File(file),
        (None, true, true) => {
            Registry::Mdns(Mdns { interfaces: interfaces(&addresses), port: view.integer("fleet.mdns_port") })
        }
        (Some(_), false, _) => {
            wrong("fleet.file", "is set, and so is fleet.endpoints", "one registry");
            return None;
        }
        (file, _, true) => {
            let other = if file.is_some() { "fleet.file" } else { "fleet.endpoints" };
            wrong("fleet.mdns", &format!("is on, and {other} is set"), "one registry");
            return None;
        }
    };
    if addresses.len() > REGISTERED_ADDRESSES_MAX {
        let problem = format!("has {} addresses", addresses.len());
        wrong("fleet.addresses", &problem, &format!("at most {REGISTERED_ADDRESSES_MAX}"));
    }
    let is_anywhere =
        |address: &Address| address.host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_unspecified());
    if let Some(address) = addresses.iter().find(|address| is_anywhere(address)) {
        let problem = format!("{address} is reached by nobody");
        wrong("fleet.addresses", &problem, "the host name or IP address by which peers reach this machine");
    }
    Some(Fleet {
        cell,
        authority,
        membership: view.path("fleet.membership").unwrap_or_else(|| dir.join("membership")),
        registry,
        addresses,
        zone: Some(view.text("fleet.zone")).filter(|zone| !zone.is_empty()),
        ttl_ms: view.integer("fleet.ttl_ms"),
        idle_ms: view.integer("fleet.idle_ms"),
        max_stale_ms: view.integer("fleet.max_stale_ms"),
        deny_max_age_ms: view.integer("fleet.deny_max_age_ms"),
        links_per_name: view.integer("fleet.links_per_name"),
    })
}

/// The IPv4 addresses by which peers reach this sidecar, each of which is that of an interface.
fn interfaces(addresses: &[Address]) -> Vec<Ipv4Addr> {
    let hosts = addresses.iter().filter_map(|address| address.host.parse::<Ipv4Addr>().ok());
    let hosts: BTreeSet<_> = hosts.filter(|host| !host.is_unspecified()).collect();
    hosts.into_iter().collect()
}

/// The addresses of listeners that are bound to one address each. A port that the system picks is filled in at start.
fn own_addresses(listen: &Listen) -> Vec<Address> {
    let of = |transport, at: Option<std::net::SocketAddr>| {
        let at = at.filter(|at| !at.ip().is_unspecified())?;
        Some(Address { transport, host: at.ip().to_string(), port: at.port(), is_shared: false })
    };
    [of(Transport::Quic, listen.quic), of(Transport::Tcp, listen.tcp)].into_iter().flatten().collect()
}
