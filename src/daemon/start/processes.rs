//! A declaration's commands in; process providers, each held to what its capability declares, out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{StartError, schema_error};
use crate::config::Config;
use crate::daemon::hashes::hashes;
use crate::daemon::node::Node;
use crate::daemon::providers::Place;
use crate::declaration::Declaration;
use crate::provider::process::confine::{Enforced, ResourceLimits, SYSTEM, beside};

/// Serves every capability that has a command.
pub(super) fn serve_processes(
    node: &Arc<Node>,
    config: &Config,
    declaration: &Declaration,
    helper: Option<PathBuf>,
) -> Result<(), StartError> {
    let dir = config.agent.capabilities.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    let dir = std::path::absolute(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })
        .map_err(|error| StartError::File { path: dir.to_owned(), error })?;
    if declaration.capabilities.iter().any(|declared| declared.command.is_some()) {
        tell(helper.is_some());
    }
    let hidden = [&*config.agent.dir, &config.agent.key_file, &config.listen.token_file];
    let folders = SYSTEM.iter().map(Path::new).chain([dir.as_path()]);
    let readable =
        folders.flat_map(|folder| beside(folder, &hidden)).chain(std::env::current_exe().ok()).collect();
    let limits = ResourceLimits {
        memory_bytes_max: config.process.memory_bytes_max,
        file_bytes_max: config.process.file_bytes_max,
        open_files_max: config.process.open_files_max,
    };
    let place = Place { dir, helper, readable, limits };
    let hashes = hashes(declaration)?;
    for declared in &declaration.capabilities {
        let served = node.serve_declared(declared, hashes.of(&declared.id), &place);
        served.map_err(|(schema, error)| match schema {
            Some(schema) => schema_error(&declared.id, schema, &error),
            None => StartError::System(error),
        })?;
    }
    Ok(())
}

/// Says what commands are kept from on this machine, and what not.
fn tell(is_confined: bool) {
    if !is_confined {
        tracing::warn!("commands are not confined: no program was named that does it");
        return;
    }
    let (enforced, not_enforced) = Enforced::here().told();
    tracing::info!(enforced, not_enforced, "commands are confined to what their capabilities declare");
}
