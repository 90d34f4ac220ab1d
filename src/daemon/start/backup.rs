//! Copies the state of a running sidecar into one file of its state directory, and accounts for it.

use std::path::Path;

use capd_proto::message::BackedUp;

use crate::api::operator::{Act, Operator as _};
use crate::backup::{About, Copying, Place};
use crate::daemon::sidecar::Sidecar;
use crate::store::{Desk as _, Work};

/// Copies the state. Calls go on meanwhile.
///
/// **Errors:** why it cannot be copied, for the log.
pub(super) async fn backup(sidecar: &Sidecar) -> Result<BackedUp<'static>, String> {
    let stopping = || "the sidecar is shutting down".to_owned();
    let place = Place::of(&sidecar.ctx.config());
    let tasks = &sidecar.ctx.tasks;
    let begun = tasks.compute(move || Copying::begin(place)).await.ok_or_else(stopping)?;
    let copying = begun.map_err(|error| error.to_string())?;
    let asked = sidecar.journal.ask(Work::Copy(copying.journal()));
    let copied = asked.map_err(|reason| format!("the journal's queue: {reason:?}"))?;
    copied.await.map_err(|_gone| stopping())?.map_err(|error| error.to_string())?;
    let about = About {
        did: sidecar.ctx.did().as_str().to_owned(),
        journal: sidecar.journal.id().to_string(),
        now_ms: sidecar.ctx.clock.wall_ms(),
    };
    let finished = tasks.compute(move || copying.finish(&about)).await.ok_or_else(stopping)?;
    let (path, bytes) = finished.map_err(|error| error.to_string())?;
    tell(sidecar, &path, bytes);
    Ok(BackedUp { file: path.to_string_lossy().into_owned().into(), bytes })
}

/// Its holder has the agent's key, so each is accounted for.
fn tell(sidecar: &Sidecar, path: &Path, bytes: u64) {
    tracing::info!(file = %path.display(), bytes, "the state is backed up");
    sidecar.desk.acted(&Act { with: "local link", action: "backup", capability: None, call: None });
}
