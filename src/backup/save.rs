//! Saves a state: copies of a running sidecar's files in, one archive out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tar::{Builder, Header};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{
    AUDIT, BackupError, CONFIGURATION, FORMAT, JOURNAL, KEY, Listed, MANIFEST, Manifest, OTHERS, Place, copy,
    failed, sync,
};
use crate::store::StoreErrorKind;
use crate::store::audit::AuditFile;

/// Whose state is saved, and when.
#[derive(Clone, Debug)]
pub struct About {
    /// The agent's DID.
    pub did: String,
    /// The id of the journal, in hexadecimal digits.
    pub journal: String,
    /// **Units:** milliseconds since the Unix epoch.
    pub now_ms: u64,
}

/// A backup that is being made: a folder of the state directory, which is removed when this is dropped.
#[derive(Debug)]
pub struct Copying {
    place: Place,
    folder: PathBuf,
}

impl Copying {
    /// Makes the folder; one that a crash left is removed first.
    ///
    /// **Errors:** the system refuses.
    pub fn begin(place: Place) -> Result<Self, BackupError> {
        let folder = place.dir.join(FOLDER);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&folder, "remove")(error));
            }
            Ok(()) | Err(_) => {}
        }
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed(&folder, "create"))?;
        Ok(Self { place, folder })
    }

    /// Where the journal's writer must copy the journal.
    pub fn journal(&self) -> PathBuf {
        self.folder.join(JOURNAL)
    }

    /// Adds everything else, and writes the archive into the state directory. Returns its path and its length.
    ///
    /// **Errors:** a file cannot be read or written.
    pub fn finish(self, about: &About) -> Result<(PathBuf, u64), BackupError> {
        let names = self.gather()?;
        let files = names.iter().map(|name| self.listed(name)).collect::<Result<Vec<_>, _>>()?;
        let moment = OffsetDateTime::from_unix_timestamp((about.now_ms / 1_000).cast_signed())
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let created = moment.format(&Rfc3339).unwrap_or_default();
        let manifest = Manifest {
            format: FORMAT,
            capd: env!("CARGO_PKG_VERSION").to_owned(),
            did: about.did.clone(),
            journal: about.journal.clone(),
            created: created.clone(),
            files,
        };
        let archive = self.folder.join("backup.tar");
        let bytes =
            self.write(&archive, &manifest, about.now_ms / 1_000).map_err(failed(&archive, "write"))?;
        let name = format!("backup-{}-{:03}.tar", created.replace(':', ""), about.now_ms % 1_000);
        let path = self.place.dir.join(name);
        fs::rename(&archive, &path).map_err(failed(&path, "rename"))?;
        sync(&self.place.dir)?;
        Ok((path, bytes))
    }

    /// Copies into the folder what is not there yet; returns the names of all members.
    fn gather(&self) -> Result<Vec<String>, BackupError> {
        self.add(&self.place.key_file, KEY)?;
        let mut names = vec![KEY.to_owned(), JOURNAL.to_owned()];
        if let Some(audit) = &self.place.audit {
            // A log that cannot be used loses records, and is no reason to have no backup of the rest.
            match AuditFile::read(audit) {
                Ok(log) => {
                    log.copy(&self.folder.join(AUDIT))?;
                    names.push(AUDIT.to_owned());
                }
                Err(error) if error.kind() == StoreErrorKind::Missing => {}
                Err(error) => return Err(error.into()),
            }
        }
        for name in OTHERS {
            if self.add_if_there(&self.place.dir.join(name), name)? {
                names.push(name.to_owned());
            }
        }
        let inner = self.folder.join(CONFIGURATION);
        DirBuilder::new().mode(0o700).create(&inner).map_err(failed(&inner, "create"))?;
        for path in &self.place.configuration {
            let base = path.file_name().unwrap_or_default().to_string_lossy();
            let mut name = format!("{CONFIGURATION}{base}");
            let mut number = 1;
            while names.contains(&name) {
                number += 1;
                name = format!("{CONFIGURATION}{number}-{base}");
            }
            if self.add_if_there(path, &name)? {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn add(&self, path: &Path, name: &str) -> Result<(), BackupError> {
        fs::copy(path, self.folder.join(name)).map(drop).map_err(failed(path, "copy"))
    }

    /// What was configured may have been removed since.
    fn add_if_there(&self, path: &Path, name: &str) -> Result<bool, BackupError> {
        match self.add(path, name) {
            Err(BackupError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            added => added.map(|()| true),
        }
    }

    fn listed(&self, name: &str) -> Result<Listed, BackupError> {
        let path = self.folder.join(name);
        let copied = File::open(&path).and_then(|mut file| copy(&mut file, io::sink()));
        let (bytes, sha256) = copied.map_err(failed(&path, "read"))?;
        Ok(Listed { name: name.to_owned(), bytes, sha256 })
    }

    /// Writes the archive, which only its owner may read from its first byte on; it is on disk when this returns.
    fn write(&self, archive: &Path, manifest: &Manifest, mtime: u64) -> io::Result<u64> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(archive)?;
        let mut tar = Builder::new(io::BufWriter::new(file));
        let header = |bytes: u64| {
            let mut header = Header::new_gnu();
            header.set_size(bytes);
            header.set_mode(0o600);
            header.set_mtime(mtime);
            header
        };
        let mut text = serde_json::to_vec_pretty(manifest)?;
        text.push(b'\n');
        tar.append_data(&mut header(text.len() as u64), MANIFEST, &*text)?;
        for Listed { name, bytes, .. } in &manifest.files {
            tar.append_data(&mut header(*bytes), name, File::open(self.folder.join(name))?)?;
        }
        let mut written = tar.into_inner()?;
        written.flush()?;
        let file = written.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(file.metadata()?.len())
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        // What stays is removed by the next backup.
        let _left = fs::remove_dir_all(&self.folder);
    }
}

/// The folder of a backup that is being made.
const FOLDER: &str = "backup.new";
