//! Implements `backup` and `restore`: the state of a running sidecar in, one file out; and back, while no sidecar runs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use capd::backup::{self, BackupError, Place, Restored};
use capd::store::StoreErrorKind;
use serde_json::json;

use crate::args::{BackupArgs, RestoreArgs};
use crate::failure::{Exit, Failure};
use crate::{Sidecar, audit, configuration, output, terminal};

/// Has the sidecar write its backup, and moves it where it is wanted.
pub(crate) async fn backup(sidecar: &Sidecar, args: BackupArgs, json: bool) -> Result<(), Failure> {
    if let Some(file) = args.file.as_ref().filter(|file| file.symlink_metadata().is_ok()) {
        return Err(Failure::usage(format!("{}: it exists already", file.display())));
    }
    let made = sidecar.connect().await?.backup().await?;
    let made_at = Path::new(&*made.file);
    let at = args.file.as_deref().unwrap_or(made_at);
    if at != made_at {
        take(made_at, at).map_err(|error| {
            Failure::unexpected(format!("{}: {error}", at.display())).hint(format!(
                "the backup is {} on the sidecar's machine; move it from there, since it holds the agent's key",
                made.file
            ))
        })?;
    }
    if json {
        return output::print_json(&json!({"file": at, "bytes": made.bytes}));
    }
    output::print(&format!(
        "{}: {}; it holds the agent's key",
        at.display(),
        terminal::bytes(made.bytes as f64)
    ))
}

/// Moves a file, also to another file system. Only its owner may read it there, from its first byte on.
fn take(from: &Path, to: &Path) -> io::Result<()> {
    let mut target = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let copied = File::open(from).and_then(|mut file| io::copy(&mut file, &mut target));
    if let Err(error) = copied.and_then(|_| target.sync_all()) {
        // What was reported is the first error.
        let _left = fs::remove_file(to);
        return Err(error);
    }
    fs::remove_file(from)
}

/// Restores a state where a configuration says that it is.
pub(crate) fn restore(args: &RestoreArgs, json: bool) -> Result<(), Failure> {
    let file = configuration::file(args.config.as_ref());
    let config = configuration::load(file).map_err(|mistakes| Failure::usage(mistakes.to_string()))?;
    let place = Place::of(&config);
    let restored = backup::restore(&args.file, &place, args.replace, audit::now_ms())
        .map_err(|error| failure(&error))?;
    if json {
        return output::print_json(&json!({
            "did": restored.manifest.did,
            "created": restored.manifest.created,
            "dir": place.dir,
            "calls": restored.calls,
            "given": restored.given,
            "journal": restored.journal.to_string(),
            "moved": restored.moved,
        }));
    }
    output::print(&told(&restored, &place))
}

fn told(restored: &Restored, place: &Place) -> String {
    let Restored { manifest, calls, given, moved, .. } = restored;
    let mut text = format!(
        "{} as of {}: {} calls of peers, {} calls made\nrestored into {}\n",
        manifest.did,
        manifest.created,
        terminal::grouped(*calls as u64),
        terminal::grouped(*given as u64),
        place.dir.display()
    );
    for folder in moved {
        text += &format!("the former state is in {}\n", folder.display());
    }
    text += "The journal has a new id: calls that peers gave this sidecar before end with 5902, and none runs twice.";
    text
}

fn failure(error: &BackupError) -> Failure {
    match error {
        BackupError::Store(store) if store.kind() == StoreErrorKind::Locked => {
            Failure::unexpected(format!("a sidecar runs with this state: {error}")).exit(Exit::Refused)
        }
        BackupError::Exists(_) => Failure::unexpected(error.to_string()).exit(Exit::Refused),
        BackupError::Damaged { .. } | BackupError::Io { .. } => Failure::usage(error.to_string()),
        BackupError::Store(_) => Failure::unexpected(error.to_string()),
    }
}
