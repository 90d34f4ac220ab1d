//! The lock file: what its owner has approved of a server's tools, and what waits for approval.
//!
//! **Shape:** TOML, `version = 1` and a table `[[tool]]` for each tool, in the order of their names.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::tool::Tool;

/// The file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// The format: 1.
    pub version: u32,
    /// The DID whose key signed the list that was approved; none for lists that nobody signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// Each tool that was ever listed.
    #[serde(default, rename = "tool", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Entry>,
}

/// One tool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name at the server.
    pub name: String,
    /// The capability that it is, without the version.
    pub capability: String,
    /// The version that is served.
    pub version: String,
    /// Over `definition`.
    pub hash: String,
    /// Whether running a call twice does no harm: its owner's word, never the server's.
    pub idempotent: bool,
    /// Whether its owner lets it be called.
    pub approved: bool,
    /// What callers see of it: the tool in canonical JSON.
    pub definition: String,
    /// What the server lists instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Pending>,
}

/// A form of a tool that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pending {
    /// What kind of change it is.
    pub change: Change,
    /// What differs, for people.
    pub why: String,
    /// The version that it becomes.
    pub version: String,
    /// Over `definition`.
    pub hash: String,
    /// The tool in canonical JSON.
    pub definition: String,
}

/// How a tool has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// Its schemas fit those before no longer, or that is not proven.
    Incompatible,
    /// Its words or annotations alone.
    Words,
}

/// Why a lock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It cannot be read or written.
    #[error("{0}: {1}")]
    File(String, io::Error),
    /// It is not what it should be.
    #[error("{0}: {1}")]
    Shape(String, String),
}

impl Lock {
    /// A lock of no tools.
    pub const fn new() -> Self {
        Self { version: FORMAT, signer: None, tools: Vec::new() }
    }

    /// Reads the file; none where there is none.
    ///
    /// **Errors:** [`LockError`], with line and key.
    pub fn read(path: &Path) -> Result<Option<Self>, LockError> {
        let place = || path.display().to_string();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LockError::File(place(), error)),
        };
        let lock: Self = toml::from_str(&text)
            .map_err(|error| LockError::Shape(place(), error.to_string().trim_end().to_owned()))?;
        if lock.version != FORMAT {
            let problem = format!("version = {}; accepted: {FORMAT}", lock.version);
            return Err(LockError::Shape(place(), problem));
        }
        for entry in &lock.tools {
            entry.check().map_err(|problem| LockError::Shape(place(), problem))?;
        }
        Ok(Some(lock))
    }

    /// Writes the file as a whole, so that a reader sees the old or the new one.
    ///
    /// **Errors:** [`LockError::File`]; the old one stands then.
    pub fn write(&self, path: &Path, kind: &Kind) -> Result<(), LockError> {
        let failed = |error: io::Error| LockError::File(path.display().to_string(), error);
        let text = toml::to_string_pretty(self).map_err(|error| failed(io::Error::other(error)))?;
        let text = format!("{}\n{text}", head(kind));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let written = fs::File::create(&temporary)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&temporary, path));
        written.map_err(|error| {
            // The error to report is the first one.
            let _ = fs::remove_file(&temporary);
            failed(error)
        })
    }

    /// The entry of a tool of this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.tools.iter().find(|entry| entry.name == name)
    }

    pub(super) fn entry_mut(&mut self, name: &str) -> Option<&mut Entry> {
        self.tools.iter_mut().find(|entry| entry.name == name)
    }

    /// Approves what waits of the tools of these names, or of all. The names that were approved.
    pub fn approve(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut approved = Vec::new();
        for entry in self.tools.iter_mut().filter(|entry| wanted(&entry.name)) {
            let is_new = !std::mem::replace(&mut entry.approved, true);
            let pending = entry.pending.take();
            if let Some(pending) = &pending {
                entry.version.clone_from(&pending.version);
                entry.hash.clone_from(&pending.hash);
                entry.definition.clone_from(&pending.definition);
            }
            if is_new || pending.is_some() {
                approved.push(entry.name.clone());
            }
        }
        approved
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Entry {
    /// The tool as callers see it.
    ///
    /// **Errors:** the lock file was not checked when it was read.
    pub fn tool(&self) -> Result<Tool, String> {
        Tool::of_definition(&self.definition)
    }

    /// Nobody may have changed a definition by hand: its hash says what was approved.
    fn check(&self) -> Result<(), String> {
        let about = |problem: String| format!("tool {:?}: {problem}", self.name);
        let hashed = |definition: &str, hash: &str| match Tool::of_definition(definition) {
            Ok(tool) if tool.hash() == hash && tool.name == self.name => Ok(()),
            Ok(_) => Err(about("the definition does not have the hash that stands beside it".to_owned())),
            Err(error) => Err(about(format!("the definition cannot be read: {error}"))),
        };
        hashed(&self.definition, &self.hash)?;
        self.pending.as_ref().map_or(Ok(()), |pending| hashed(&pending.definition, &pending.hash))?;
        format!("{}:{}", self.capability, self.version)
            .parse::<capd_proto::capability::CapabilityId>()
            .map(drop)
            .map_err(|error| about(error.to_string()))
    }
}

const FORMAT: u32 = 1;

/// What the file begins with.
fn head(kind: &Kind) -> String {
    let Kind { program, lock_of, .. } = kind;
    format!(
        "# What was approved of {lock_of}. {program} writes this file; commit it. `idempotent` is yours to\n\
         # set. `{program} approve` approves what is pending."
    )
}
