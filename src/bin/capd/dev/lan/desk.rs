//! Writes the files of one desk: a folder, a name and an address in; its configuration, key and membership out.

use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capd::net::System;
use capd_proto::capability::{CapabilityName, CapabilityPattern};
use capd_proto::fleet::{Agent, Cell, Membership};
use capd_proto::identity::{Did, Identity};
use sha2::{Digest as _, Sha256};

use super::super::super::{Failure, start_failure};
use super::super::files::{load, path_text, write};

/// One desk.
pub(super) struct Desk {
    folder: PathBuf,
    pub(super) name: String,
    pub(super) capability: CapabilityName,
    pub(super) address: Ipv4Addr,
    mdns_port: u16,
}

impl Desk {
    /// A desk whose files are in this folder, or will be.
    ///
    /// **Errors:** a name that cannot be part of a capability's.
    pub(super) fn new(
        folder: &Path,
        name: Option<String>,
        address: Ipv4Addr,
        mdns_port: u16,
    ) -> Result<Self, Failure> {
        let name = name.unwrap_or_else(host_name);
        let capability = format!("{NAMESPACE}.{name}").parse().map_err(|error| {
            Failure::mistake(format!("--name {name}: {error}; use small letters, digits and hyphens"))
        })?;
        let desk = Self { folder: folder.to_owned(), name, capability, address, mdns_port };
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(desk.dir());
        made.map_err(|error| Failure::runtime(format!("{}: {error}", desk.dir().display())))?;
        Ok(desk)
    }

    pub(super) fn config(&self) -> PathBuf {
        self.dir().join("capd.toml")
    }

    /// The key of this desk's agent, which is made if there is none.
    pub(super) fn identity(&self) -> Result<Identity, Failure> {
        let key = capd::net::load_or_create(&self.dir().join("identity.key"));
        Ok(key.map_err(Failure::runtime)?.identity())
    }

    /// Makes this desk the first one of a cell, or finds that it is a member already. The authority's key, if this desk has it.
    pub(super) fn first(&self) -> Result<Option<Identity>, Failure> {
        let file = self.authority_file();
        if self.config().exists() && !file.exists() {
            return Ok(None);
        }
        let key = capd::net::load_or_create(&file).map_err(Failure::runtime)?;
        let authority = key.identity();
        let agent = Agent::from(self.identity()?.public_key());
        let membership = membership(&authority, agent, self.capability.clone())?;
        self.settle(authority.did(), &membership)?;
        Ok(Some(authority))
    }

    /// Fails unless this desk can join another one's cell.
    pub(super) fn check_new(&self) -> Result<(), Failure> {
        if self.config().exists() || self.authority_file().exists() {
            return Err(Failure::mistake(format!(
                "--join: {} is the folder of a member already; run without --join, or name another folder with --dir",
                self.folder.display()
            )));
        }
        Ok(())
    }

    /// Writes what a member of the authority's cell has. A configuration that is there stays as it is.
    ///
    /// **Errors:** the membership does not count.
    pub(super) fn settle(&self, authority: &Did, membership: &[u8]) -> Result<(), Failure> {
        let cell = cell(authority)?;
        let key = Agent::from_did(authority.as_str()).map_err(Failure::runtime)?.public_key();
        let now_ms = System::real().clock.wall_ms();
        let verified = Membership::verify(membership, &cell, &key, now_ms).map_err(|error| {
            Failure::runtime(format!(
                "the membership does not count: {error}; compare the clocks of both desks"
            ))
        })?;
        if verified.agent != Agent::from(self.identity()?.public_key()) {
            return Err(Failure::runtime("the membership is of another agent"));
        }
        let dir = self.dir();
        let declaration = dir.join("capabilities.yaml");
        let yaml = format!(
            "version: 1\nnamespace: {NAMESPACE}\ncapabilities:\n  - name: {0}\n    idempotent: true\n    \
             command: [printf, '{{\"text\": \"hello from {0}\"}}']\n",
            self.name
        );
        write(&declaration, &yaml)?;
        let mut text = format!(
            "[agent]\nname = {:?}\ndir = {:?}\ncapabilities = {:?}\n\n[listen]\nquic = \"{address}:0\"\ntcp = \
             \"{address}:0\"\n\n[log]\nlevel = \"error\"\n\n",
            self.name,
            path_text(&dir)?,
            path_text(&declaration)?,
            address = self.address,
        );
        if rustix::process::geteuid().is_root() {
            text += "[process]\nallow_root = \"on\"\n\n";
        }
        let port = self.mdns_port;
        let written = write!(
            text,
            "[fleet]\ncell = \"{cell}\"\nauthority = \"{authority}\"\nmdns = \"on\"\nmdns_port = {port}\n\n# What members \
             may call.\n[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"{NAMESPACE}.*\"]\n"
        );
        written.map_err(Failure::runtime)?;
        let file = dir.join("membership");
        fs::write(&file, BASE64_STANDARD.encode(membership))
            .map_err(|error| Failure::runtime(format!("{}: {error}", file.display())))?;
        write(&self.config(), &text)?;
        let loaded = load(&self.config())?;
        capd::daemon::identity(&loaded).map(drop).map_err(start_failure)
    }

    fn dir(&self) -> PathBuf {
        self.folder.join("desk")
    }

    fn authority_file(&self) -> PathBuf {
        self.folder.join("authority.key")
    }
}

/// Signs a membership of the authority's cell, good for one capability.
pub(super) fn membership(
    authority: &Identity,
    agent: Agent,
    capability: CapabilityName,
) -> Result<Vec<u8>, Failure> {
    let now_ms = System::real().clock.wall_ms();
    let membership = Membership {
        agent,
        cell: cell(authority.did())?,
        serves: vec![CapabilityPattern::Name(capability)],
        not_before_ms: now_ms.saturating_sub(CLOCK_SLACK_MS),
        not_after_ms: now_ms.saturating_add(MEMBERSHIP_MS),
        serial: now_ms,
    };
    membership.sign(authority).map_err(Failure::runtime)
}

/// The cell of an authority: two first desks on one network have two cells.
fn cell(authority: &Did) -> Result<Cell, Failure> {
    let digest = Sha256::digest(authority.as_str());
    let digits: String = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("lan-{digits}").parse().map_err(Failure::runtime)
}

/// The host's name, as it can be part of a capability's.
fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_string_lossy().to_ascii_lowercase();
    let label = name.split('.').next().unwrap_or_default();
    let label: String = label.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(32).collect();
    let label = label.trim_matches(|c: char| !c.is_ascii_lowercase());
    if label.is_empty() { "desk".to_owned() } else { label.to_owned() }
}

/// What desks serve.
pub(super) const NAMESPACE: &str = "com.example";
/// How long a membership is good. **Units:** milliseconds.
const MEMBERSHIP_MS: u64 = 90 * 24 * 60 * 60 * 1_000;
/// A desk's clock may be behind that of the authority by so much. **Units:** milliseconds.
const CLOCK_SLACK_MS: u64 = 5 * 60 * 1_000;
