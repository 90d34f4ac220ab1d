//! Writes the files of `capd dev`: a folder in; two configurations, the example's declaration and its schemas, out. For a
//! fleet: its authority, and a configuration, a key and a membership of each member.
//!
//! A file that is there is left as it is, so that an owner's changes stay.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capd::config::{Config, Sources};
use capd::net::System;
use capd_proto::capability::CapabilityPattern;
use capd_proto::fleet::Membership;
use capd_proto::identity::Identity;

use super::super::{Failure, environment, init, start_failure};

/// Which ports a configuration that is written names.
#[derive(Clone, Copy)]
pub(super) enum Ports {
    /// Those that the system hands out at each start.
    Any,
    /// Those that nobody uses at the moment.
    Fixed,
}

/// Where the caller finds the provider.
pub(super) struct Peer<'a> {
    pub(super) did: &'a str,
    pub(super) quic: &'a str,
    pub(super) tcp: &'a str,
}

/// Writes the provider's files; gives its configuration.
pub(super) fn provider(dir: &Path, ports: Ports) -> Result<PathBuf, Failure> {
    let dir = dir.join("provider");
    let agent = dir.join("agent");
    for (name, text) in EXAMPLE {
        write(&agent.join(name), text)?;
    }
    let mut more = String::new();
    if rustix::process::geteuid().is_root() {
        more += "# The example's command is capd itself.\n[process]\nallow_root = \"on\"\n\n";
    }
    more += ALLOW;
    let capabilities = format!("capabilities = {:?}\n", path_text(&agent.join("capabilities.yaml"))?);
    configuration("provider", &dir, &capabilities, ports, &more)
}

/// Writes the caller's file; gives its configuration.
pub(super) fn caller(dir: &Path, ports: Ports, peer: &Peer<'_>) -> Result<PathBuf, Failure> {
    let Peer { did, quic, tcp } = peer;
    let more = format!(
        "[[peers]]\nname = \"provider\"\ndid = {did:?}\naddresses = [\"quic://{quic}\", \"tcp://{tcp}\"]\n\
         # What the agent may call there.\nserves = [\"org.agentries.*\"]\n"
    );
    configuration("caller", &dir.join("caller"), "", ports, &more)
}

/// The cell of a fleet, as its authority sees it.
pub(super) struct Cell<'a> {
    folder: &'a Path,
    authority: Identity,
    /// The part of a configuration that all members share.
    shared: String,
}

impl<'a> Cell<'a> {
    /// Makes the authority's key.
    pub(super) fn new(folder: &'a Path, endpoint: &str) -> Result<Self, Failure> {
        let key = capd::net::load_or_create(&folder.join("authority.key")).map_err(Failure::runtime)?;
        let authority = key.identity();
        let shared = format!(
            "[fleet]\ncell = \"{CELL}\"\nauthority = \"{}\"\nendpoints = [\"{endpoint}\"]\n\n",
            authority.did()
        );
        Ok(Self { folder, authority, shared })
    }

    /// Writes the files of a member that serves a capability; gives its configuration.
    pub(super) fn replica(&self, name: &str, capability: &str) -> Result<PathBuf, Failure> {
        let dir = self.folder.join(name);
        let file = dir.join("capabilities.yaml");
        let (namespace, last) =
            capability.rsplit_once('.').ok_or_else(|| Failure::mistake("the capability has no namespace"))?;
        let yaml = format!(
            "version: 1\nnamespace: {namespace}\ncapabilities:\n  - name: {last}\n    idempotent: true\n    \
             command: [printf, '{{\"text\": \"hello from {name}\"}}']\n"
        );
        write(&file, &yaml)?;
        let mut more = self.shared.clone();
        if rustix::process::geteuid().is_root() {
            more += "[process]\nallow_root = \"on\"\n\n";
        }
        more += &format!("[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"{capability}\"]\n");
        let agent = format!("capabilities = {:?}\n", path_text(&file)?);
        let capability = capability.parse().map_err(Failure::mistake)?;
        let config = member(name, &dir, &agent, &more)?;
        self.admit(&config, &dir, vec![CapabilityPattern::Name(capability)])?;
        Ok(config)
    }

    /// Writes the file of a member that only calls; gives its configuration, and to how many providers of a name it has links.
    pub(super) fn caller(&self) -> Result<(PathBuf, usize), Failure> {
        let dir = self.folder.join("caller");
        let config = member("caller", &dir, "", &self.shared)?;
        let loaded = self.admit(&config, &dir, Vec::new())?;
        Ok((config, loaded.fleet.map_or(1, |fleet| fleet.links_per_name)))
    }

    /// Makes the member's key, and signs its membership.
    fn admit(&self, config: &Path, dir: &Path, serves: Vec<CapabilityPattern>) -> Result<Config, Failure> {
        let loaded = load(config)?;
        let identity = capd::daemon::identity(&loaded).map_err(start_failure)?;
        let now_ms = System::real().clock.wall_ms();
        let membership = Membership {
            agent: identity.public_key().into(),
            cell: CELL.parse().map_err(Failure::runtime)?,
            serves,
            not_before_ms: now_ms.saturating_sub(MEMBERSHIP_MS),
            not_after_ms: now_ms.saturating_add(MEMBERSHIP_MS),
            serial: now_ms,
        };
        let signed = membership.sign(&self.authority).map_err(Failure::runtime)?;
        write(&dir.join("membership"), &BASE64_STANDARD.encode(signed))?;
        Ok(loaded)
    }
}

/// Writes the configuration of a member.
fn member(name: &str, dir: &Path, agent: &str, more: &str) -> Result<PathBuf, Failure> {
    let file = dir.join("capd.toml");
    let text = format!(
        "[agent]\nname = {name:?}\ndir = {:?}\n{agent}\n[listen]\nquic = \"127.0.0.1:0\"\ntcp = \"127.0.0.1:0\"\n\n\
         [log]\nlevel = \"error\"\n\n{more}",
        path_text(dir)?
    );
    write(&file, &text)?;
    Ok(file)
}

/// Writes all files and both keys, and prints the configurations.
pub(super) fn print(dir: &Path) -> Result<(), Failure> {
    let provider = provider(dir, Ports::Fixed)?;
    let loaded = load(&provider)?;
    let did = did(&loaded)?;
    let address = |address: Option<SocketAddr>| address.map(|at| at.to_string()).unwrap_or_default();
    let (quic, tcp) = (address(loaded.listen.quic), address(loaded.listen.tcp));
    let caller = caller(dir, Ports::Fixed, &Peer { did: &did, quic: &quic, tcp: &tcp })?;
    let loaded = load(&caller)?;
    drop(self::did(&loaded)?);
    let mut shown = String::new();
    for file in [&provider, &caller] {
        let text = std::fs::read_to_string(file).map_err(Failure::runtime)?;
        shown += &format!("# {}\n\n{text}\n", file.display());
    }
    let socket = loaded.listen.unix.unwrap_or_default();
    shown += &format!(
        "# Run them, each in a terminal of its own:\n#   capd run --config {}\n#   capd run --config {}\n# Call:\n#   capctl --socket {} call {} --params '{{\"code\": \"fn main() {{}}\", \"language\": \"rust\"}}'\n",
        init::quoted(&provider),
        init::quoted(&caller),
        init::quoted(&socket),
        super::CAPABILITY,
    );
    super::super::show(&shown)
}

pub(super) fn load(file: &Path) -> Result<Config, Failure> {
    let sources = Sources { file: Some(file.to_owned()), environment: environment(), overrides: Vec::new() };
    Config::load(&sources).map_err(Failure::mistake)
}

/// The DID of a configuration, whose key is made if there is none.
fn did(config: &Config) -> Result<String, Failure> {
    Ok(capd::daemon::identity(config).map_err(start_failure)?.did().to_string())
}

fn configuration(name: &str, dir: &Path, agent: &str, ports: Ports, more: &str) -> Result<PathBuf, Failure> {
    let file = dir.join("capd.toml");
    if file.exists() {
        return Ok(file);
    }
    let [quic, tcp] = addresses(ports).map_err(Failure::runtime)?;
    let text = format!(
        "[agent]\nname = {name:?}\n# The key, the journal, the audit log and the socket.\ndir = {:?}\n{agent}\n\
         [listen]\nquic = \"{quic}\"\ntcp = \"{tcp}\"\n\n\
         # Anybody who reaches these addresses. Before you listen on more than loopback, run capd pair instead.\n\
         [peer]\nadmit = \"any\"\n\n[log]\nlevel = \"warn\"\n\n{more}",
        path_text(dir)?
    );
    write(&file, &text)?;
    Ok(file)
}

/// For QUIC and for TCP.
fn addresses(ports: Ports) -> std::io::Result<[SocketAddr; 2]> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    match ports {
        Ports::Any => Ok([any, any]),
        Ports::Fixed => Ok([UdpSocket::bind(any)?.local_addr()?, TcpListener::bind(any)?.local_addr()?]),
    }
}

/// Writes a file unless it is there.
pub(super) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::runtime(format!("{}: {error}", file.display()));
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    let opened: std::io::Result<File> =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    match opened {
        Ok(mut new) => new.write_all(text.as_bytes()).map_err(failed),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

pub(super) fn path_text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| Failure::mistake("the folder's path is not UTF-8"))
}

/// The example's declaration and schemas, laid out beside the provider's sidecar as an owner would.
const EXAMPLE: &[(&str, &str)] = &[
    ("capabilities.yaml", include_str!("../../../../examples/code-review/capabilities.yaml")),
    ("schemas/1.5.0/input.json", include_str!("../../../../examples/code-review/schemas/1.5.0/input.json")),
    ("schemas/1.5.0/output.json", include_str!("../../../../examples/code-review/schemas/1.5.0/output.json")),
    ("schemas/2.0.0/input.json", include_str!("../../../../examples/code-review/schemas/2.0.0/input.json")),
    ("schemas/2.0.0/output.json", include_str!("../../../../examples/code-review/schemas/2.0.0/output.json")),
];
/// What callers may call: what the example serves, which stands under this namespace.
const ALLOW: &str =
    "# What peers may call.\n[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.agentries.*\"]\n";
/// The fleet's cell.
pub(super) const CELL: &str = "dev";
/// How long memberships of the fleet are good, before now and from now on. **Units:** milliseconds.
const MEMBERSHIP_MS: u64 = 24 * 60 * 60 * 1_000;
