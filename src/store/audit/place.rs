//! Opens an audit log: a working storage for every place, whatever file is there.
//!
//! Calls matter more than their account, so a sidecar also starts with a damaged audit log. The damaged file is moved
//! aside unchanged, and a new chain begins with a record that says so. After any other fault, each write tries again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::{StoreError, StoreErrorKind};
use super::chain::{Entry, Head};
use super::file::{beside, refused};
use super::{AuditFile, AuditStorage, Kind, Record};

/// How an audit log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// Its file.
    pub file: PathBuf,
    /// The tenant in the records.
    pub tenant: String,
    /// Largest size of the file; records that do not fit are lost and counted. **Units:** bytes.
    pub file_bytes_max: u64,
}

/// The place of an audit log.
#[derive(Debug)]
pub struct AuditPlace {
    options: AuditOptions,
    open: Option<AuditFile>,
    /// The damage found while writing: the file is replaced before the next write.
    damage: Option<StoreError>,
    /// The latest known time. **Units:** milliseconds since the Unix epoch.
    now_ms: u64,
}

impl AuditPlace {
    /// Opens, makes or replaces the log at this place at `now_ms`. If all of this fails, each write tries again, and
    /// the log says why.
    pub fn open(options: AuditOptions, now_ms: u64) -> Self {
        let mut place = Self { options, open: None, damage: None, now_ms };
        if let Err(error) = place.file() {
            tracing::error!(%error, "the audit log cannot be used; until it can be, its records are lost");
        }
        place
    }

    fn file(&mut self) -> Result<&mut AuditFile, StoreError> {
        // What was moved or removed under its name would be written where nobody looks.
        if self.open.as_ref().is_some_and(|file| !file.is_in_place()) {
            self.open = None;
        }
        if self.open.is_none() {
            self.open = Some(self.ready()?);
        }
        Ok(self.open.as_mut().expect("it was just opened"))
    }

    fn ready(&mut self) -> Result<AuditFile, StoreError> {
        let path = self.options.file.clone();
        let opened = match self.damage.take() {
            Some(damage) => Err(damage),
            None => AuditFile::write(&path, Some(self.options.file_bytes_max)),
        };
        match opened {
            Err(error) if error.kind() == StoreErrorKind::Missing => {
                AuditFile::make(&path)?;
                AuditFile::write(&path, Some(self.options.file_bytes_max))
            }
            Err(error) if error.kind() == StoreErrorKind::Corrupt => self.replace(&path, &error),
            opened => opened,
        }
    }

    /// Moves what is there aside, and begins a new chain.
    fn replace(&mut self, path: &Path, damage: &StoreError) -> Result<AuditFile, StoreError> {
        let aside = move_aside(path).inspect_err(|_| self.damage = Some(damage.clone()))?;
        tracing::error!(%damage, aside = %aside.display(), "the audit log was damaged: it was moved aside, and a new chain begins");
        AuditFile::make(path)?;
        let mut file = AuditFile::write(path, Some(self.options.file_bytes_max))?;
        let name = aside.file_name().unwrap_or_default().to_string_lossy();
        let record = Record::new(Kind::Replaced, self.now_ms).with("movedTo", name.as_ref());
        let record = record.with("reason", super::short(damage.what()));
        file.append(&[record.canonical(&self.options.tenant)])?;
        Ok(file)
    }

    /// Notes damage that was met while writing, so that the file is replaced before the next write. Any other fault
    /// leaves it open: one that is closed may not open again before its disk has recovered.
    fn written<T>(&mut self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &outcome
            && error.kind() == StoreErrorKind::Corrupt
        {
            self.open = None;
            self.damage = Some(error.clone());
        }
        outcome
    }
}

impl AuditStorage for AuditPlace {
    fn append(&mut self, records: &[String]) -> Result<(), StoreError> {
        let ts_ms = |record: &String| serde_json::from_str::<Value>(record).ok()?["ts"].as_u64();
        if self.open.is_none() {
            self.now_ms = records.iter().filter_map(ts_ms).max().unwrap_or(0).max(self.now_ms);
        }
        let written = self.file().and_then(|file| file.append(records));
        self.written(written)
    }

    fn head(&mut self) -> Result<Head, StoreError> {
        self.file().and_then(AuditStorage::head)
    }

    fn read(&mut self, after: u64, rows_max: usize, bytes_max: usize) -> Result<Vec<Entry>, StoreError> {
        // What is damaged where nothing is written may still be read elsewhere.
        self.file().and_then(|file| file.read(after, rows_max, bytes_max))
    }

    fn used_percent(&mut self) -> Result<u64, StoreError> {
        self.open.as_mut().map_or(Ok(0), AuditStorage::used_percent)
    }

    fn erase(&mut self, places: &[(u64, u64)], note: &str) -> Result<(), StoreError> {
        let erased = self.file().and_then(|file| file.erase(places, note));
        self.written(erased)
    }
}

/// Gives the file, and what SQLite keeps beside it, names that are free; returns the file's.
fn move_aside(path: &Path) -> Result<PathBuf, StoreError> {
    let named = |number: u32, suffix: &str| beside(path, &format!(".damaged-{number}{suffix}"));
    let number = (1..=ASIDE_MAX)
        .find(|number| ["", "-wal"].iter().all(|suffix| !named(*number, suffix).exists()))
        .ok_or_else(|| {
            let error =
                StoreError::new(StoreErrorKind::Io, path.display(), "too many damaged files are beside it");
            error.remedy("move them elsewhere")
        })?;
    // The log first: without it the file must not be found under its name.
    for suffix in ["-wal", ""] {
        match fs::rename(beside(path, suffix), named(number, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(refused(path, "move aside", &error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    // An index of the log, which SQLite makes anew.
    let _gone = fs::remove_file(beside(path, "-shm"));
    Ok(named(number, ""))
}

/// Most damaged files that stand beside a log.
const ASIDE_MAX: u32 = 100;
