//! Restores a state: an archive in, checked, and the files of a sidecar that has not run yet out.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use capd_proto::ledger::JournalId;
use tar::{Archive, Entry, EntryType};

use super::{
    AUDIT, BackupError, CONFIGURATION, FORMAT, JOURNAL, KEY, Listed, MANIFEST, Manifest, Place, copy, failed,
    sync,
};
use crate::store::audit::{AuditFile, Kind, Record, short};
use crate::store::{Sqlite, Unused};

/// What was restored.
#[derive(Clone, Debug)]
pub struct Restored {
    /// What the backup said of itself.
    pub manifest: Manifest,
    /// The new id of the journal.
    pub journal: JournalId,
    /// Calls that the journal remembers.
    pub calls: usize,
    /// Calls of the agent that peers got, and that the journal remembers.
    pub given: usize,
    /// The folders that the former state was moved into.
    pub moved: Vec<PathBuf>,
}

/// Restores the archive `file` at `place`. With `replace`, a state that is there is moved aside; without, it is an error.
/// The configuration in the archive is checked, and not restored. The audit log gets a record of it, of the time `now_ms`.
///
/// **Errors:** [`BackupError`]. A sidecar that runs there is always an error.
pub fn restore(file: &Path, place: &Place, replace: bool, now_ms: u64) -> Result<Restored, BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(&place.dir).map_err(failed(&place.dir, "create"))?;
    let lock = Unused::lock(&place.dir)?;
    let staging = Staging::make(&place.dir)?;
    let manifest = staging.unpack(file)?;
    let (journal, loaded) = Sqlite::renew(&staging.0).map_err(|error| staging.damaged(file, &error))?;
    if journal.to_string() == manifest.journal {
        return Err(staging.damaged(file, &"its journal kept its id"));
    }
    let is_noted = staging.note(&manifest, &journal, place, now_ms)?;
    let mut puts = Vec::new();
    for listed in &manifest.files {
        if let Some(target) = place.target(&listed.name)
            && ((is_noted && listed.name == AUDIT) || !is_same(&target, listed)?)
        {
            puts.push((staging.0.join(&listed.name), target));
        }
    }
    let beside = ["journal.mark", "last-journal"].map(|name| (staging.0.join(name), place.dir.join(name)));
    // The journal last: until it is there, a sidecar has no memory that is wrong.
    puts.sort_by_key(|(from, _)| from.ends_with(JOURNAL));
    let puts: Vec<_> = beside.into_iter().chain(puts).collect();
    let mut old: Vec<PathBuf> = puts.iter().map(|(_, to)| to.clone()).filter(|to| to.exists()).collect();
    let logs = [Some(place.dir.join(JOURNAL)), place.audit.clone()];
    let logs = logs.into_iter().flatten().flat_map(|path| [behind(&path, "-wal"), behind(&path, "-shm")]);
    old.extend(logs.filter(|path| path.exists()));
    if let Some(found) = old.first().filter(|_| !replace) {
        return Err(BackupError::Exists(found.clone()));
    }
    let moved = move_aside(&old)?;
    for (from, to) in &puts {
        put(from, to)?;
    }
    sync(&place.dir)?;
    drop(lock);
    Ok(Restored { manifest, journal, calls: loaded.calls.len(), given: loaded.given.len(), moved })
}

/// A folder of the state directory that holds what is restored until all of it is checked.
struct Staging(PathBuf);

impl Staging {
    fn make(dir: &Path) -> Result<Self, BackupError> {
        let folder = dir.join(FOLDER);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&folder, "remove")(error));
            }
            Ok(()) | Err(_) => {}
        }
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed(&folder, "create"))?;
        Ok(Self(folder))
    }

    /// Records in the audit log, if there is one and it is to be restored, that the state is as of the backup.
    fn note(
        &self,
        manifest: &Manifest,
        journal: &JournalId,
        place: &Place,
        now_ms: u64,
    ) -> Result<bool, BackupError> {
        let log = self.0.join(AUDIT);
        if place.audit.is_none() || !log.exists() {
            return Ok(false);
        }
        let record = Record::new(Kind::Restored, now_ms)
            .with("created", short(&manifest.created))
            .with("formerJournal", short(&manifest.journal))
            .with("journal", journal.to_string());
        AuditFile::write(&log, None)?.note(record, &place.tenant)?;
        Ok(true)
    }

    /// Unpacks what the manifest lists, and nothing else.
    fn unpack(&self, file: &Path) -> Result<Manifest, BackupError> {
        let opened = File::open(file).map_err(failed(file, "open"))?;
        let mut archive = Archive::new(io::BufReader::new(opened));
        let unreadable =
            |error: io::Error| self.damaged(file, &format_args!("it is no backup of capd's: {error}"));
        let mut entries = archive.entries().map_err(unreadable)?;
        let first = entries.next().transpose().map_err(unreadable)?;
        let manifest = first.map(|entry| self.manifest(file, entry)).transpose()?;
        let manifest = manifest.ok_or_else(|| self.damaged(file, &"it is empty"))?;
        let mut missing: BTreeSet<&str> = manifest.files.iter().map(|listed| &*listed.name).collect();
        for entry in entries {
            let entry = entry.map_err(|error| self.damaged(file, &error))?;
            let name =
                entry.path().map_err(|error| self.damaged(file, &error))?.to_string_lossy().into_owned();
            let listed = manifest.files.iter().find(|listed| listed.name == name);
            let Some(listed) = listed.filter(|_| missing.remove(&*name)) else {
                return Err(
                    self.damaged(file, &format_args!("{name:?} is not in its manifest, or twice in it"))
                );
            };
            self.take(file, entry, listed)?;
        }
        let needed =
            [KEY, JOURNAL].into_iter().find(|name| !manifest.files.iter().any(|file| file.name == *name));
        let lacking = missing.into_iter().next().or(needed);
        match lacking {
            Some(name) => Err(self.damaged(file, &format_args!("{name:?} is missing: it was cut off"))),
            None => Ok(manifest),
        }
    }

    fn manifest(&self, file: &Path, entry: Entry<'_, impl Read>) -> Result<Manifest, BackupError> {
        let is_manifest = entry.path().is_ok_and(|path| path.as_os_str() == MANIFEST);
        let mut text = Vec::new();
        let read = entry.take(MANIFEST_BYTES_MAX).read_to_end(&mut text);
        read.map_err(|error| self.damaged(file, &error))?;
        if !is_manifest {
            return Err(self.damaged(
                file,
                &format_args!("it is no backup of capd's: its first member is not {MANIFEST}"),
            ));
        }
        let manifest: Manifest = serde_json::from_slice(&text)
            .map_err(|error| self.damaged(file, &format_args!("{MANIFEST}: {error}")))?;
        if manifest.format != FORMAT {
            let what = format!(
                "its format is {}, and this capd knows {FORMAT}: use a later capctl",
                manifest.format
            );
            return Err(self.damaged(file, &what));
        }
        Ok(manifest)
    }

    /// Unpacks one member, and holds it against the manifest. What the owner wrote is only checked.
    fn take(&self, file: &Path, mut entry: Entry<'_, impl Read>, listed: &Listed) -> Result<(), BackupError> {
        let Listed { name, bytes, sha256 } = listed;
        let is_kept = !name.starts_with(CONFIGURATION);
        // A name of the manifest becomes the name of a file.
        let is_plain = !name.contains('/') && name != ".." && name != ".";
        if entry.header().entry_type() != EntryType::Regular || (is_kept && !is_plain) {
            return Err(self.damaged(file, &format_args!("{name:?} is no plain file")));
        }
        let path = self.0.join(name);
        let copied = if is_kept {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let mut target = made.map_err(failed(&path, "create"))?;
            let copied = copy(&mut entry, &mut target);
            target.sync_all().map_err(failed(&path, "sync"))?;
            copied
        } else {
            copy(&mut entry, io::sink())
        };
        if copied.map_err(failed(&path, "unpack"))? != (*bytes, sha256.clone()) {
            return Err(self.damaged(file, &format_args!("{name:?} is not what was saved")));
        }
        Ok(())
    }

    fn damaged(&self, file: &Path, what: &dyn std::fmt::Display) -> BackupError {
        BackupError::Damaged { file: file.to_owned(), what: what.to_string() }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What stays is removed by the next restore.
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// Whether what stands at `target` has the content of the member already, as a key that a secret store put there.
fn is_same(target: &Path, listed: &Listed) -> Result<bool, BackupError> {
    if listed.name == JOURNAL {
        return Ok(false);
    }
    let mut file = match File::open(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(failed(target, "open"))?,
    };
    let (_, sha256) = copy(&mut file, io::sink()).map_err(failed(target, "read"))?;
    Ok(sha256 == listed.sha256)
}

/// Moves files into a new folder beside each of them, under their own names.
fn move_aside(files: &[PathBuf]) -> Result<Vec<PathBuf>, BackupError> {
    let mut folders: Vec<(PathBuf, PathBuf)> = Vec::new();
    for file in files {
        let parent = file.parent().unwrap_or(Path::new("/"));
        let known = folders.iter().find(|(beside, _)| beside == parent).map(|(_, folder)| folder.clone());
        let folder = match known {
            Some(folder) => folder,
            None => {
                let folder = free_folder(parent)?;
                folders.push((parent.to_owned(), folder.clone()));
                folder
            }
        };
        let to = folder.join(file.file_name().unwrap_or_default());
        fs::rename(file, &to).map_err(failed(file, "move aside"))?;
    }
    Ok(folders.into_iter().map(|(_, folder)| folder).collect())
}

fn free_folder(parent: &Path) -> Result<PathBuf, BackupError> {
    for number in 1..=FOLDERS_MAX {
        let folder = parent.join(format!("replaced-{number}"));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder.clone()).map_err(failed(&folder, "create")),
        }
    }
    Err(BackupError::Exists(parent.join(format!("replaced-{FOLDERS_MAX}"))))
}

/// Moves a checked file into its place, which may be on another file system.
fn put(from: &Path, to: &Path) -> Result<(), BackupError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
        renamed => return renamed.map_err(failed(to, "write")),
    }
    let beside = behind(to, ".new");
    let copied = fs::copy(from, &beside).and_then(|_| File::open(&beside)?.sync_all());
    copied.and_then(|()| fs::rename(&beside, to)).map_err(failed(to, "write"))
}

fn behind(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The folder of a state that is being restored.
const FOLDER: &str = "restore.new";
/// Largest manifest. **Units:** bytes.
const MANIFEST_BYTES_MAX: u64 = 1024 * 1024;
/// Former states beside each other.
const FOLDERS_MAX: u32 = 1_000;
