//! Checks the files that a sidecar relies on, and reports the first that another user may write.
//!
//! Anyone who can write one of these files controls the sidecar. So each must belong to its user or to root, and nobody
//! else may write or replace it. Below a folder that others cannot enter, modes do not matter.

use std::fs::{self, DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use super::StartError;
use crate::config::Config;

/// Makes the state folder, and those that lead to it, for its owner alone, where they are not there.
pub(super) fn create_dir(dir: &Path) -> Result<(), StartError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| StartError::File { path: dir.to_owned(), error })
}

/// Checks the state folder, the configuration, the declaration and the policies.
///
/// **Errors:** [`StartError::Exposed`] for the first that somebody else may write, unless `agent.check_files` is off.
pub(super) fn check(config: &Config) -> Result<(), StartError> {
    if !config.agent.check_files {
        return Ok(());
    }
    let file = config.sources().and_then(|sources| sources.file.as_deref());
    let declaration = config.agent.capabilities.as_deref();
    let documents = config.agent.did_documents.iter().chain(&config.policy.files).map(|path| path.as_path());
    let agent = [config.agent.dir.as_path(), &config.agent.key_file, &config.listen.token_file];
    for path in agent.into_iter().chain(file).chain(declaration).chain(documents) {
        match exposed(path) {
            Ok(None) => {}
            Ok(Some(reason)) => return Err(StartError::Exposed(reason)),
            // Whatever reads it says what is wrong with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(StartError::File { path: path.to_owned(), error }),
        }
    }
    Ok(())
}

/// Why somebody else may write what is at `path`, with the way out; `None` where nobody else may.
fn exposed(path: &Path) -> io::Result<Option<String>> {
    let resolved = path.canonicalize()?;
    let own = rustix::process::geteuid().as_raw();
    let found = resolved.metadata()?;
    let way_out = "or set agent.check_files = \"off\"";
    if ![own, 0].contains(&found.uid()) {
        let (shown, owner) = (resolved.display(), found.uid());
        return Ok(Some(format!(
            "{shown} belongs to user {owner}, who can thereby control capd, which runs as user {own}; run chown {own} {shown}, \
             {way_out}"
        )));
    }
    let folder =
        resolved.parent().map(|folder| folder.metadata().map(|found| (folder, found))).transpose()?;
    let itself = is_open(&found, found.is_dir()).then_some(&*resolved);
    // Whoever may write a folder may put another file there, unless the sticky bit keeps each to its own.
    let beside = folder.filter(|(_, found)| is_open(found, true)).map(|(folder, _)| folder);
    let Some(open) = itself.or(beside) else { return Ok(None) };
    if is_out_of_reach(&resolved, own)? {
        return Ok(None);
    }
    let mode = open.metadata()?.mode() & 0o7777;
    let (shown, open) = (path.display(), open.display());
    Ok(Some(format!(
        "other users may write {shown}, and so control capd: {open} has mode {mode:04o}; run chmod go-w {open}, {way_out}"
    )))
}

/// Whether group or others may write it, as far as its mode goes.
fn is_open(found: &Metadata, is_dir: bool) -> bool {
    let is_sticky = is_dir && found.mode() & 0o1000 != 0;
    found.mode() & 0o022 != 0 && !is_sticky
}

/// Whether a folder on the way there is closed to everybody but its owner, who is this user or root.
fn is_out_of_reach(resolved: &Path, own: u32) -> io::Result<bool> {
    for folder in resolved.ancestors().skip(1) {
        let found = fs::metadata(folder)?;
        if found.mode() & 0o011 == 0 && [own, 0].contains(&found.uid()) {
            return Ok(true);
        }
    }
    Ok(false)
}
