//! Makes a sidecar's part in its fleet from the configuration: membership, registry, and the tasks that keep both.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use capd_proto::fleet::machine::Config as Part;
use capd_proto::fleet::{Address, Agent, Cell, Fence, Membership, MembershipError, Transport};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;
use capd_proto::limits::MEMBERSHIP_BYTES_MAX;

use super::StartError;
use crate::config::{self, Config, Registry};
use crate::daemon::Bound;
use crate::daemon::fleet::{Acts, Announced};
use crate::daemon::sidecar::Sidecar;
use crate::fleet::disk::Disk;
use crate::fleet::engine::Engine;
#[cfg(feature = "etcd")]
use crate::fleet::etcd::{ClientFiles, Etcd, Settings, TlsFiles};
use crate::fleet::file::File;
use crate::fleet::mdns::{self, Mdns};
use crate::fleet::nowhere::Nowhere;
use crate::fleet::{self, Driver, Setup};
use crate::net::{Host, Seed, System, Tasks};

/// What the fleet's machine works with; none outside of a fleet.
///
/// **Errors:** the membership is missing, or is not this agent's. One that has ended is a warning: it may be renewed in
/// time for the next link.
pub(super) fn part(
    config: &Config,
    seed: &Seed,
    journal: JournalId,
    now_ms: u64,
) -> Result<Option<Part>, StartError> {
    let Some(fleet) = &config.fleet else { return Ok(None) };
    let identity = seed.identity();
    let (membership, warning) = membership(fleet, Some(&identity), now_ms)?;
    if let Some(warning) = warning {
        tracing::warn!("{warning}");
    }
    let fence = Fence { incarnation: 0, journal };
    let authority = fleet.authority.public_key();
    let mut part = Part::new(fleet.cell.clone(), authority, Arc::new(identity), membership, fence);
    part.zone.clone_from(&fleet.zone);
    part.ttl_ms = fleet.ttl_ms;
    part.idle_ms = fleet.idle_ms;
    part.max_stale_ms = fleet.max_stale_ms;
    part.deny_max_age_ms = fleet.deny_max_age_ms;
    part.links_per_name = fleet.links_per_name;
    Ok(Some(part))
}

/// Reads the membership of the configuration, and what is odd about it. `identity` is the agent's, where there is one yet.
pub(super) fn membership(
    fleet: &config::Fleet,
    identity: Option<&Identity>,
    now_ms: u64,
) -> Result<(Bytes, Option<String>), StartError> {
    let path = &fleet.membership;
    let agent = identity.map(|identity| Agent::from(identity.public_key()));
    let did = agent.map_or_else(|| "DID".to_owned(), |agent| agent.did().to_string());
    let renew = format!("capctl fleet admit {did} --cell {} --output {}", fleet.cell, path.display());
    let failed = |why: String| {
        StartError::Setting(format!(
            "config key fleet.membership: {}: {why}; to sign one, run this where the authority's key is: {renew}",
            path.display()
        ))
    };
    let bytes = read(path).map_err(failed)?;
    let authority = fleet.authority.public_key();
    match Membership::verify(&bytes, &fleet.cell, &authority, now_ms) {
        Ok(membership) if agent.is_some_and(|agent| agent != membership.agent) => {
            Err(failed(format!("it is the membership of {}", membership.agent.did())))
        }
        Ok(_) => Ok((bytes, None)),
        Err(error @ (MembershipError::NotYet { .. } | MembershipError::Expired { .. })) => {
            let warning = format!(
                "config key fleet.membership: {}: {error}: members refuse this sidecar; run {renew}",
                path.display()
            );
            Ok((bytes, Some(warning)))
        }
        Err(error) => Err(failed(error.to_string())),
    }
}

fn read(path: &Path) -> Result<Bytes, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    if text.len() > 2 * MEMBERSHIP_BYTES_MAX {
        return Err("it is longer than any membership".to_owned());
    }
    let bytes = BASE64_STANDARD.decode(text.trim()).map_err(|error| format!("it is not base64: {error}"))?;
    Ok(bytes.into())
}

/// Connects the part to its registry; before the first link. Nothing runs yet.
pub(super) async fn begin(
    sidecar: &Arc<Sidecar>,
    (config, system): (&Config, System),
    host: &Arc<Host>,
) -> Result<Option<Driver>, StartError> {
    let (Some(part), Some(fleet)) = (sidecar.fleet.config(), &config.fleet) else { return Ok(None) };
    let setup = Setup {
        config: part.clone(),
        engine: engine(&fleet.registry, part, &system, &sidecar.ctx.tasks).await?,
        owner: Arc::new(Acts(Arc::clone(&sidecar.fleet))),
        disk: Disk::Folder(config.agent.dir.clone()),
        clock: system.clock,
        random: system.random,
        tasks: sidecar.ctx.tasks.clone(),
    };
    let (registry, driver) = fleet::start(setup)
        .map_err(|error| StartError::Setting(format!("{error}; remove the file if it is damaged")))?;
    sidecar.fleet.begin(registry, host);
    Ok(Some(driver))
}

/// Runs it until shutdown, once the listeners are bound.
pub(super) fn run(sidecar: &Arc<Sidecar>, config: &Config, driver: Option<Driver>, bound: &Bound) {
    let (Some(driver), Some(fleet)) = (driver, &config.fleet) else { return };
    let announced = match fleet.registry {
        // Nobody would read it.
        Registry::None => Announced(Vec::new()),
        Registry::File(_) | Registry::Etcd(_) | Registry::Mdns(_) => Announced(announced(fleet, bound)),
    };
    sidecar.ctx.spawn(driver.run());
    let part = Arc::clone(&sidecar.fleet);
    sidecar.ctx.spawn(async move {
        // Neither ends before shutdown.
        tokio::join!(part.keep_offering(announced), part.keep_hearing());
    });
}

/// The addresses of the configuration, each with the port that the system has given its listener.
fn announced(fleet: &config::Fleet, bound: &Bound) -> Vec<Address> {
    let address = |address: &config::Address| {
        let (transport, listener) = match address.transport {
            config::Transport::Quic => (Transport::Quic, bound.quic),
            config::Transport::Tcp => (Transport::Tcp, bound.tcp),
        };
        let port = match address.port {
            0 => listener?.port(),
            port => port,
        };
        Some(Address { transport, host: address.host.clone(), port })
    };
    fleet.addresses.iter().filter_map(address).collect()
}

async fn engine(
    registry: &Registry,
    part: &Part,
    system: &System,
    tasks: &Tasks,
) -> Result<Arc<dyn Engine>, StartError> {
    let agent = Agent::from(part.identity.public_key());
    match registry {
        Registry::None => Ok(Arc::new(Nowhere::default())),
        Registry::File(path) => {
            let system = (system.clock.clone(), system.random.clone(), tasks.clone());
            let file = File::open(path, (part.cell.clone(), agent), system)
                .map_err(|error| StartError::Setting(format!("config key fleet.file: {error}")))?;
            Ok(Arc::new(file))
        }
        Registry::Mdns(mdns) => {
            let settings = mdns::Settings {
                cell: part.cell.clone(),
                interfaces: mdns.interfaces.clone(),
                port: mdns.port,
            };
            let mdns = Mdns::open(settings, system.clock.clone(), system.random.clone())
                .map_err(|error| StartError::Setting(format!("config key fleet.mdns: {error}")))?;
            Ok(Arc::new(mdns))
        }
        Registry::Etcd(etcd) => in_etcd(etcd, (part.cell.clone(), agent), system).await,
    }
}

#[cfg(feature = "etcd")]
async fn in_etcd(
    etcd: &config::Etcd,
    (cell, agent): (Cell, Agent),
    system: &System,
) -> Result<Arc<dyn Engine>, StartError> {
    let client = etcd.identity.clone().map(|(certificate, key)| ClientFiles { certificate, key });
    let tls = etcd.ca.clone().map(|ca| TlsFiles { ca, client });
    let settings = Settings { endpoints: etcd.endpoints.clone(), tls, cell, agent };
    let etcd = Etcd::new(settings, Arc::clone(&system.crypto)).await;
    let etcd = etcd.map_err(|error| StartError::Setting(format!("[fleet]: {error}")))?;
    Ok(etcd)
}

#[cfg(not(feature = "etcd"))]
async fn in_etcd(_: &config::Etcd, _: (Cell, Agent), _: &System) -> Result<Arc<dyn Engine>, StartError> {
    let why = "config key fleet.endpoints: this capd was built without etcd; build it with `--features etcd`, or, for \
               the sidecars of one machine, name a file with fleet.file";
    Err(StartError::Setting(why.to_owned()))
}
