//! Saves a sidecar's state into one file while the sidecar runs, and restores it into an empty state directory.
//!
//! **Shape:** a tar archive. Its first member is `manifest.json`, a [`Manifest`] with the length and the SHA-256 of each
//! other member:
//!
//! | member | content |
//! |---|---|
//! | `identity.key` | the agent's key |
//! | `journal.db` | the journal, as of one moment |
//! | `audit.db` | the audit log, as of one moment; absent if it is off |
//! | `declared.json`, `declared-by-agents.json`, `fleet.incarnation`, `fleet.cache`, `membership` | other state, if there is any |
//! | `configuration/…` | the configuration, the declaration and the policies, to read; they are not restored |
//!
//! A restored journal gets a new id (PROTOCOL 8): peers then know that it may have forgotten calls.

mod restore;
mod save;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use restore::{Restored, restore};
pub use save::{About, Copying};

use crate::config::Config;
use crate::store::StoreError;

/// Where a sidecar keeps what a backup has.
#[derive(Clone, Debug)]
pub struct Place {
    /// The state directory.
    pub dir: PathBuf,
    /// The agent's key.
    pub key_file: PathBuf,
    /// The audit log, unless it is off.
    pub audit: Option<PathBuf>,
    /// The tenant in its records.
    pub tenant: String,
    /// The files that the owner wrote.
    pub configuration: Vec<PathBuf>,
}

/// What a backup says of itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// The version of this shape.
    pub format: u32,
    /// The version of the capd that wrote it.
    pub capd: String,
    /// The agent's DID.
    pub did: String,
    /// The id of the journal, in hexadecimal digits.
    pub journal: String,
    /// When it was written, as RFC 3339 has it.
    pub created: String,
    /// Its other members, in their order.
    pub files: Vec<Listed>,
}

/// One member of a backup.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// Why a state is not saved or restored; nothing was changed, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The system refuses.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The attempted action.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A journal or an audit log cannot be copied, or is not whole; or a running sidecar uses it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is no backup, or not as it was written.
    #[error("{}: {what}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A state is there already.
    #[error("{}: it exists already, with other content; --replace moves the old state into a folder beside it", .0.display())]
    Exists(PathBuf),
}

impl Place {
    /// The place that a configuration says.
    pub fn of(config: &Config) -> Self {
        let file = config.sources().and_then(|sources| sources.file.clone());
        let agent = &config.agent;
        let more = agent.capabilities.iter().chain(&config.policy.files).chain(&agent.did_documents);
        Self {
            dir: agent.dir.clone(),
            key_file: agent.key_file.clone(),
            audit: config.audit.file.clone(),
            tenant: config.audit.tenant.clone(),
            configuration: file.into_iter().chain(more.cloned()).collect(),
        }
    }

    /// Where a member stands when it is in use; none for one that is not restored here.
    fn target(&self, name: &str) -> Option<PathBuf> {
        match name {
            KEY => Some(self.key_file.clone()),
            AUDIT => self.audit.clone(),
            JOURNAL => Some(self.dir.join(name)),
            _ if OTHERS.contains(&name) => Some(self.dir.join(name)),
            _ => None,
        }
    }
}

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> BackupError {
    move |source| BackupError::Io { path: path.to_owned(), action, source }
}

/// Waits until the names in `folder` are on disk.
fn sync(folder: &Path) -> Result<(), BackupError> {
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder, "sync"))
}

/// Copies everything, and returns how much it was, with its SHA-256 in hexadecimal digits.
fn copy(from: &mut impl Read, to: impl Write) -> io::Result<(u64, String)> {
    let mut summed = Summed { to, digest: Sha256::new() };
    let bytes = io::copy(from, &mut summed)?;
    let text = summed.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, text))
}

/// Adds up what passes through.
struct Summed<W> {
    to: W,
    digest: Sha256,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The version of the shape that this capd writes.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const KEY: &str = "identity.key";
const JOURNAL: &str = "journal.db";
const AUDIT: &str = "audit.db";
/// Files of the state directory that may be there.
const OTHERS: [&str; 5] =
    ["declared.json", "declared-by-agents.json", "fleet.incarnation", "fleet.cache", "membership"];
/// Before the names of the files that the owner wrote.
const CONFIGURATION: &str = "configuration/";

#[cfg(test)]
mod tests;
