//! Encodes the operations `reload`, `backup` and `drain` of REQUEST and RESPONSE: apply the configuration's file as a
//! whole, copy the sidecar's state, take no new calls.
//!
//! They are extensions of capd for local links only; a peer gets the error of an unknown operation.

use std::borrow::Cow;

use super::body::{BodyError, MapWriter, read_array, read_map, read_texts, required, wrong_value};
use crate::cbor::{Reader, Writer};

/// Applies the configuration's file, or only compares it. **Shape:** `{"op": "reload", ? "dry_run": bool}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReloadRequest {
    /// Whether nothing is applied.
    pub dry_run: bool,
}

/// The difference of the file and the running configuration.
///
/// **Shape:** `{"op": "reload", "rules": uint, "applied": bool, "changes": [* config-change], ? "omitted": uint, ?
/// "warnings": [* tstr]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded<'a> {
    /// Policy rules of the file.
    pub rules: u64,
    /// Whether the file is the running configuration from here on.
    pub applied: bool,
    /// What the file changes.
    pub changes: Vec<ConfigChange<'a>>,
    /// Changes beyond those that are listed.
    pub omitted: u64,
    /// Likely mistakes in the file.
    pub warnings: Vec<Cow<'a, str>>,
}

/// One key, or one entry of a list.
///
/// **Shape:** `{? "to": tstr, "key": tstr, ? "from": tstr, "takes": "now" / "new-links" / "restart"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange<'a> {
    /// The dotted key.
    pub key: Cow<'a, str>,
    /// The running value; none for an entry that is added.
    pub from: Option<Cow<'a, str>>,
    /// The file's value; none for an entry that is removed.
    pub to: Option<Cow<'a, str>>,
    /// When it takes effect.
    pub takes: Takes,
}

/// When a change of the configuration takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Takes {
    /// With the reload.
    Now,
    /// With the reload, for links that open from then on.
    NewLinks,
    /// At the next start; a reload refuses it.
    Restart,
}

impl Takes {
    /// The word as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::NewLinks => "new-links",
            Self::Restart => "restart",
        }
    }
}

/// The state was copied. **Shape:** `{"op": "backup", "file": tstr, "bytes": uint}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUp<'a> {
    /// The copy's file in the state directory; whoever asked takes it from there.
    pub file: Cow<'a, str>,
    /// Its length.
    pub bytes: u64,
}

/// The sidecar takes no new calls. **Shape:** `{"op": "drain", "made": uint, "executing": uint, ? "remembered": uint, ? "until_ms":
/// uint}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draining {
    /// Calls of its agent that have no result yet.
    pub made: u64,
    /// Calls that its agents execute.
    pub executing: u64,
    /// Calls of peers that ran, or run, and that their callers may still ask for; counted only for a sidecar that is to go for
    /// good.
    pub remembered: u64,
    /// When the last of them is remembered no longer. **Units:** milliseconds since the Unix epoch.
    pub until_ms: Option<u64>,
}

impl ReloadRequest {
    pub(super) fn read(body: &[u8]) -> Result<Self, BodyError> {
        let mut dry_run = false;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"dry_run" => dry_run = reader.bool()?,
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { dry_run })
    }

    pub(super) fn write(self, map: &mut MapWriter<'_>) {
        map.text("op", OP_RELOAD);
        map.bool_if("dry_run", self.dry_run.then_some(true));
    }
}

impl<'a> Reloaded<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut rules, mut applied, mut changes) = (None, None, None);
        let (mut omitted, mut warnings) = (0, Vec::new());
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"rules" => rules = Some(reader.uint()?),
                b"applied" => applied = Some(reader.bool()?),
                b"changes" => changes = Some(read_array(reader, ConfigChange::read)?),
                b"omitted" => omitted = reader.uint()?,
                b"warnings" => warnings = read_texts(reader)?,
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            rules: required(rules, "rules")?,
            applied: required(applied, "applied")?,
            changes: required(changes, "changes")?,
            omitted,
            warnings,
        })
    }

    /// The same answer, owned.
    pub fn into_owned(self) -> Reloaded<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let changes = self.changes.into_iter().map(|change| ConfigChange {
            key: owned(change.key),
            from: change.from.map(owned),
            to: change.to.map(owned),
            takes: change.takes,
        });
        Reloaded {
            rules: self.rules,
            applied: self.applied,
            changes: changes.collect(),
            omitted: self.omitted,
            warnings: self.warnings.into_iter().map(owned).collect(),
        }
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP_RELOAD);
        map.uint("rules", self.rules);
        map.bool_if("applied", Some(self.applied));
        let out = map.key_then("changes");
        Writer::new(out).array(self.changes.len() as u64);
        for change in &self.changes {
            change.write(out);
        }
        map.uint_if("omitted", (self.omitted > 0).then_some(self.omitted));
        map.texts_if("warnings", &self.warnings);
    }
}

impl<'a> ConfigChange<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut key, mut from, mut to, mut takes) = (None, None, None, None);
        read_map(reader, |name, reader| {
            match name {
                b"to" => to = Some(reader.text()?),
                b"key" => key = Some(reader.text()?),
                b"from" => from = Some(reader.text()?),
                b"takes" => {
                    takes = Some(match &*reader.text()? {
                        "now" => Takes::Now,
                        "new-links" => Takes::NewLinks,
                        "restart" => Takes::Restart,
                        _ => return Err(wrong_value(reader, "takes", "now, new-links or restart")),
                    });
                }
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { key: required(key, "key")?, from, to, takes: required(takes, "takes")? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text_if("to", self.to.as_deref());
        map.text("key", &self.key);
        map.text_if("from", self.from.as_deref());
        map.text("takes", self.takes.as_str());
    }
}

impl<'a> BackedUp<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut file, mut bytes) = (None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"file" => file = Some(reader.text()?),
                b"bytes" => bytes = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { file: required(file, "file")?, bytes: required(bytes, "bytes")? })
    }

    /// The same answer, owned.
    pub fn into_owned(self) -> BackedUp<'static> {
        BackedUp { file: Cow::Owned(self.file.into_owned()), bytes: self.bytes }
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP_BACKUP);
        map.text("file", &self.file);
        map.uint("bytes", self.bytes);
    }
}

impl Draining {
    pub(super) fn read(body: &[u8]) -> Result<Self, BodyError> {
        let (mut made, mut executing) = (None, None);
        let (mut remembered, mut until_ms) = (0, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"made" => made = Some(reader.uint()?),
                b"until_ms" => until_ms = Some(reader.uint()?),
                b"executing" => executing = Some(reader.uint()?),
                b"remembered" => remembered = reader.uint()?,
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        let (made, executing) = (required(made, "made")?, required(executing, "executing")?);
        Ok(Self { made, executing, remembered, until_ms })
    }

    pub(super) fn write(self, map: &mut MapWriter<'_>) {
        map.text("op", OP_DRAIN);
        map.uint("made", self.made);
        map.uint_if("until_ms", self.until_ms);
        map.uint("executing", self.executing);
        map.uint_if("remembered", Some(self.remembered).filter(|remembered| *remembered > 0));
    }
}

/// Whether a sidecar that is to be drained is to go for good.
pub(super) fn read_retire(body: &[u8]) -> Result<bool, BodyError> {
    let mut retire = false;
    read_map(&mut Reader::new(body), |key, reader| {
        match key {
            b"retire" => retire = reader.bool()?,
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    Ok(retire)
}

/// The operation that applies the configuration's file.
pub(super) const OP_RELOAD: &str = "reload";
/// The operation that copies the state.
pub(super) const OP_BACKUP: &str = "backup";
/// The operation that takes no new calls.
pub(super) const OP_DRAIN: &str = "drain";
