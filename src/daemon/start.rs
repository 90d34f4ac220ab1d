//! Starts a sidecar: key, declaration, schemas, listeners and dialling, in this order.

mod aside;
mod backup;
mod contract;
mod drain;
mod files;
mod fleet;
mod hashes;
mod identity;
mod misread;
mod peers;
mod processes;
mod reload;
mod rooms;
mod served;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aside::aside;
use capd_proto::cddl::bodies::bodies;
use capd_proto::identity::{Did, DidDocument, Identity, Keyring};
pub(super) use contract::{check_schemas, schema_error};
use files::{check as check_files, create_dir};
pub use hashes::{Hashed, Hashes, hashes};
use peers::Peered;
use processes::check_commands;
pub(super) use reload::Reloader;
use rooms::{Read, rooms};

use super::sidecar::{self, Links, Sidecar};
use super::{Bound, Daemon};
use crate::api;
use crate::config::{self, Config, Signatures, Transport};
use crate::daemon::door::policy::{self as door_policy, rules_of, ungranted, warnings};
use crate::daemon::executor::former;
use crate::declaration::{self, Declaration};
use crate::health;
use crate::net::dial::{self, Address};
use crate::net::local::Token;
use crate::net::{self, Host, KeyFileError, Seed, Settings, System, local, quic, tcp};
use crate::policy::{self, Rules as PolicyRules};
use crate::store::audit::{Audit, AuditOptions, AuditWriter, audit};
use crate::store::{Folder, Medium, StoreError};

/// Why the sidecar does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The agent's key file cannot be read, made, or trusted.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// The key file is missing, but an earlier identity left files.
    #[error(
        "identity key {}: the file is missing, but {} is of an earlier identity; restore the key file, or add \
         --new-identity for a new DID, which every peer must then list", key_file.display(), found.display()
    )]
    NewIdentity {
        /// The key file.
        key_file: PathBuf,
        /// The file that was found.
        found: PathBuf,
    },
    /// The declaration has mistakes.
    #[error("{0}")]
    Declaration(declaration::Mistakes),
    /// A schema of the declaration cannot be enforced.
    #[error("{file}:{line}: {id}: {error}")]
    Schema {
        /// The file that contains the schema.
        file: PathBuf,
        /// Its line there.
        line: usize,
        /// The capability.
        id: String,
        /// What is wrong with it.
        error: String,
    },
    /// A DID document cannot be used.
    #[error("{path}: {error}")]
    Document {
        /// The document's file.
        path: PathBuf,
        /// What is wrong with it.
        error: String,
    },
    /// A peer's DID is invalid.
    #[error("peers: {did:?}: {error}; accepted: did:key:z6Mk…")]
    Peer {
        /// As configured.
        did: String,
        /// What is wrong with it.
        error: String,
    },
    /// Another user may write a file that controls the sidecar.
    #[error("{0}")]
    Exposed(String),
    /// A key of the configuration does not fit the machine.
    #[error("{0}")]
    Setting(String),
    /// A policy has mistakes.
    #[error("{0}")]
    Policy(policy::Mistakes),
    /// A file or folder of the sidecar cannot be used.
    #[error("{path}: {error}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The journal of calls cannot be used.
    #[error(transparent)]
    Journal(#[from] StoreError),
    /// A listener cannot be bound.
    #[error("config key {key}: cannot listen on {address}: {error}")]
    Listen {
        /// The key that names the place.
        key: &'static str,
        /// Where.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The system does not provide what is needed.
    #[error("{0}")]
    System(String),
}

impl StartError {
    /// Whether the owner's files are at fault, rather than the system.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::NewIdentity { .. } => true,
            Self::Declaration(_) | Self::Schema { .. } | Self::Document { .. } => true,
            Self::Peer { .. } | Self::Exposed(_) | Self::Setting(_) | Self::Policy(_) => true,
            Self::Key(_) | Self::File { .. } | Self::Journal(_) | Self::Listen { .. } | Self::System(_) => {
                false
            }
        }
    }
}

pub(super) async fn start(config: Config, helper: Option<PathBuf>) -> Result<Daemon, StartError> {
    if !config.ignored().is_empty() {
        tracing::info!(variables = config.ignored().join(", "), "{IGNORED}");
    }
    create_dir(&config.agent.dir)?;
    check_files(&config)?;
    let seed = identity::seed(&config)?;
    let declaration = load_declaration(&config)?;
    let journal = Folder::new(&config.agent.dir);
    start_on(System::real(), config, &seed, declaration.as_ref(), &journal, helper).await
}

/// Everything after the files that every start reads.
pub(super) async fn start_on(
    system: System,
    config: Config,
    seed: &Seed,
    declaration: Option<&Declaration>,
    medium: &impl Medium,
    helper: Option<PathBuf>,
) -> Result<Daemon, StartError> {
    let failed = |error: io::Error| StartError::System(error.to_string());
    // First: what this takes only meanwhile is then there for all that comes after.
    let rules = aside(|| {
        let rules = rules_of(&config, Some(seed.identity().did().clone()));
        let _compiled = bodies();
        rules
    });
    let rules = rules.map_err(failed)?.map_err(StartError::Policy)?;
    let (audit, audit_writer) = open_audit(&config, &system, medium).unzip();
    let audit = audit.unwrap_or_else(Audit::off);
    let config = Arc::new(config);
    let read = Read { peers: Peered::of(&config)?, keyring: keyring(&config)?, rules };
    for warning in warnings(&config, &read.rules) {
        tracing::warn!("{warning}");
    }
    let (sidecar, writer, keys) = rooms(&config, seed, read, system.clone(), medium, audit)?;
    let mut threads = vec![medium.run(writer).map_err(failed)?];
    if let Some(writer) = audit_writer {
        threads.push(medium.run_audit(writer).map_err(failed)?);
    }
    let threads: Vec<_> = threads.into_iter().flatten().collect();
    let faults = system.tasks.faults().clone();
    threads.iter().for_each(|thread| thread.faults().forward(&faults));
    let (api_system, fleet_system) = (system.clone(), system.clone());
    let settings = Settings { starts_commands: helper.is_some(), ..settings(&config) };
    let host = Host::sidecar(settings, seed, Arc::new(Links(Arc::clone(&sidecar))), system)
        .map_err(|error| StartError::System(error.to_string()))?;
    // Nobody else sets it.
    let _first = sidecar.desk.host.set(Arc::downgrade(&host));
    let driver = fleet::begin(&sidecar, (&config, fleet_system), &host).await?;
    let reloader = Arc::new(Reloader::new((&sidecar, &host), helper));
    reloader.serve(&sidecar, &config, declaration)?;
    sidecar::start(&sidecar);
    let desk = Arc::clone(&sidecar.desk) as Arc<dyn api::operator::Operator>;
    let journal = (Arc::new(sidecar.journal.clone()) as _, keys);
    let api = api::start(&host, api_system, api_options(&config), Arc::downgrade(&desk), journal);
    let _first = sidecar.fronts.api.set(api);
    let _first = sidecar.fronts.operator.set(Arc::clone(&reloader) as _);
    let mut bound = listen(&config, &host).await?;
    reloader.catch_up(&sidecar);
    reloader.dial(&host, &Peered::of(&sidecar.ctx.config())?);
    bound.health = listen_health(&config, &sidecar).await?;
    fleet::run(&sidecar, &config, driver, &bound);
    tracing::info!(did = %sidecar.ctx.did(), "ready");
    Ok(Daemon { sidecar, host, bound, threads, faults, reloader })
}

pub(super) fn check(config: &Config) -> Result<Vec<String>, StartError> {
    keyring(config)?;
    Peered::of(config)?;
    let rules = rules(config)?;
    let mut odd = warnings(config, &rules);
    odd.extend(identity::is_known(config).err().map(|error| error.to_string()));
    if !config.ignored().is_empty() {
        odd.push(format!("{IGNORED}: {}", config.ignored().join(", ")));
    }
    if let Some(part) = &config.fleet {
        let identity = identity::existing(config);
        odd.extend(fleet::membership(part, identity.as_ref(), net::Clock::start().wall_ms())?.1);
    }
    let Some(declaration) = load_declaration(config)? else { return Ok(odd) };
    check_schemas(&declaration)?;
    check_commands(config, &declaration)?;
    hashes(&declaration)?;
    odd.extend(ungranted(&rules, &declaration));
    odd.extend(former::broken(config, &declaration));
    odd.extend(declaration.warnings);
    Ok(odd)
}

pub(super) fn identity(config: &Config) -> Result<Identity, StartError> {
    Ok(identity::seed(config)?.identity())
}

pub(super) fn new_identity(config: &Config) -> Result<Identity, StartError> {
    Ok(identity::new_seed(config)?.identity())
}

/// The rules of a configuration. Reads its policy files, and the agent's key if it can: without the key, the own
/// agent's rule is missing.
///
/// **Errors:** [`StartError::Policy`] with every mistake.
pub fn rules(config: &Config) -> Result<PolicyRules, StartError> {
    door_policy::rules(config).map_err(StartError::Policy)
}

fn load_declaration(config: &Config) -> Result<Option<Declaration>, StartError> {
    let load = |path: &PathBuf| Declaration::load(path).map_err(StartError::Declaration);
    config.agent.capabilities.as_ref().map(load).transpose()
}

/// The keys of DIDs of other methods, from the documents that the owner configured.
fn keyring(config: &Config) -> Result<Keyring, StartError> {
    let mut keyring = Keyring::new(KEYS_MAX);
    for path in &config.agent.did_documents {
        let failed = |error: String| StartError::Document { path: path.clone(), error };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        keyring.insert(DidDocument::from_json(&text).map_err(|error| failed(error.to_string()))?);
    }
    Ok(keyring)
}

/// The audit log, and what must run before it writes anything; none when its owner wants none.
fn open_audit<M: Medium>(
    config: &Config,
    system: &System,
    medium: &M,
) -> Option<(Audit, AuditWriter<M::Audit>)> {
    let config::Audit { file, tenant, file_bytes_max, reserved_percent, .. } = &config.audit;
    let options =
        AuditOptions { file: file.clone()?, tenant: tenant.clone(), file_bytes_max: *file_bytes_max };
    let (audit, writer) = audit(medium.open_audit(options, system.clock.wall_ms()), tenant);
    Some((audit, writer.reserve(*reserved_percent)))
}

fn settings(config: &Config) -> Settings {
    let ms = Duration::from_millis;
    Settings {
        msg_size_bytes_max: config.limits.msg_size_bytes_max,
        handshake_timeout: ms(config.timeouts.handshake_ms),
        drain_timeout: ms(config.timeouts.drain_ms),
        keep_alive_interval: ms(config.timeouts.keep_alive_ms),
        idle_timeout: ms(config.timeouts.idle_ms),
        frame_timeout: ms(config.timeouts.frame_ms),
        links_max: config.limits.links_max,
        links_per_peer_max: config.limits.links_per_peer_max,
        links_opening_max: config.limits.links_opening_max,
        links_opening_per_address_max: config.limits.links_opening_per_address_max,
        links_unvalidated_max: config.limits.links_unvalidated_max,
        handshake_rate: config.limits.handshake_rate_per_address,
        streams_max: config.limits.streams_per_link_max,
        stream_reset_rate: config.limits.stream_reset_rate_per_link,
        outbox_bytes_max: config.limits.queue_bytes_max,
        outbox_frames_max: config.limits.queue_frames_max,
        receive_bytes_max: config.limits.receive_bytes_max,
        shared_streams: config.quic.shared_streams,
        shared_message_bytes_max: config.quic.shared_stream_message_bytes_max,
        channel_auth: config.peer.signatures == Signatures::Channel,
        token_plain: config.listen.token_plain,
        agent_name: config.agent.name.clone(),
        redial_delay_min: ms(config.timeouts.reconnect_initial_ms),
        redial_delay_max: ms(config.timeouts.reconnect_max_ms),
        ..Settings::default()
    }
}

/// What the owner chose that holds for HTTP as well.
fn api_options(config: &Config) -> api::Options {
    api::Options {
        agent_name: config.agent.name.clone(),
        body_bytes_max: config.limits.msg_size_bytes_max as usize,
        request_timeout: Duration::from_millis(config.timeouts.frame_ms),
        drain_timeout: Duration::from_millis(config.timeouts.drain_ms),
        provider_calls_max: config.limits.calls_in_flight_per_provider_max,
        calls_max: config.limits.requests_waiting_max,
        keys_max: config.limits.ledger_entries_max,
        call_timeout: Duration::from_millis(config.timeouts.call_ms),
        // FLEET X11: no provider of a fleet takes a longer one.
        key_ttl_max: match config.fleet {
            Some(_) => Duration::from_millis(config.limits.ledger_ttl_max_ms),
            None => Duration::MAX,
        },
    }
}

async fn listen(config: &Config, host: &Arc<Host>) -> Result<Bound, StartError> {
    let failed = |key, address: &dyn std::fmt::Display, error| StartError::Listen {
        key,
        address: address.to_string(),
        error,
    };
    let mut bound = Bound { dir: config.agent.dir.clone(), ..Bound::default() };
    if let Some(address) = config.listen.quic {
        bound.quic =
            Some(quic::listen(host, address).map_err(|error| failed("listen.quic", &address, error))?);
    }
    if let Some(address) = config.listen.tcp {
        bound.tcp =
            Some(tcp::listen(host, address).await.map_err(|error| failed("listen.tcp", &address, error))?);
    }
    if let Some(address) = config.listen.local_tcp {
        let token = token(&config.listen.token_file)?;
        let listening = local::listen_tcp(host, address, token).await;
        bound.local_tcp = Some(listening.map_err(|error| failed("listen.local_tcp", &address, error))?);
    }
    // Last, and without a wait: whoever finds it talks to a sidecar that has read its files.
    if let Some(path) = &config.listen.unix {
        local::listen_unix(host, path).map_err(|error| failed("listen.unix", &path.display(), error))?;
        bound.socket = Some(path.clone());
    }
    Ok(bound)
}

/// Answers whoever looks after the sidecar, until it has shut down.
async fn listen_health(config: &Config, sidecar: &Sidecar) -> Result<Option<SocketAddr>, StartError> {
    let Some(address) = config.listen.health else { return Ok(None) };
    let listening = health::bind(address).await.map_err(|error| StartError::Listen {
        key: "listen.health",
        address: address.to_string(),
        error,
    })?;
    let bound = listening.address;
    let source = Arc::clone(&sidecar.desk) as Arc<dyn health::Source>;
    let ctx = Arc::clone(&sidecar.ctx);
    sidecar.ctx.spawn(listening.serve(source, move |connection| ctx.spawn(connection)));
    Ok(Some(bound))
}

/// The token of local TCP links: made on first use, as the key file is.
fn token(path: &Path) -> Result<Token, StartError> {
    net::load_or_create(path)?;
    let text = std::fs::read(path).map_err(|error| StartError::File { path: path.to_owned(), error })?;
    Ok(Token::new(text.trim_ascii()))
}

fn parse_did(text: &str) -> Result<Did, StartError> {
    let wrong = |error: String| StartError::Peer { did: text.to_owned(), error };
    let did = Did::parse(text).map_err(|error| wrong(error.to_string()))?;
    // A peer's DID is computed from its TLS key, so only did:key can ever answer.
    capd_proto::identity::PublicKey::from_did(text).map_err(|error| wrong(error.to_string()))?;
    Ok(did)
}

fn address(address: &crate::config::Address) -> Address {
    let transport = match address.transport {
        Transport::Quic => dial::Transport::Quic,
        Transport::Tcp => dial::Transport::Tcp,
    };
    Address { transport, host: address.host.clone(), port: address.port, is_shared: address.is_shared }
}

/// Why variables are ignored.
const IGNORED: &str = "ignoring the variables that Kubernetes sets for a Service called capd";
/// Keys kept ready that were decompressed for DIDs of other methods.
const KEYS_MAX: usize = 1_024;
