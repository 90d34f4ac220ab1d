//! Remembers what confinement kept a capability's command from: its words when it fails in; what `capctl doctor` tells of
//! it, until the command succeeds, out.

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::confine::Denied;
use super::{ProcessSpec, program};

/// A capability whose command failed because of its confinement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The capability id.
    pub capability: String,
    /// What its command was kept from.
    pub denied: Denied,
}

/// The last failure of a command, if confinement was its cause and nothing has succeeded since.
#[derive(Debug, Default)]
pub(super) struct Denials(Mutex<Option<Denial>>);

impl Denials {
    /// The failure that `capctl doctor` tells.
    pub(super) fn last(&self) -> Option<Denial> {
        self.kept().clone()
    }

    /// The command works.
    pub(super) fn on_success(&self) {
        *self.kept() = None;
    }

    /// The command failed with these words, and with this environment.
    pub(super) fn on_failure(
        &self,
        capability: &str,
        stderr: &[u8],
        spec: &ProcessSpec,
        environment: &[(&'static str, OsString)],
    ) {
        let Some(confined) = &spec.confined else { return };
        let path = environment.iter().find(|(name, _)| *name == "PATH").map(|(_, path)| path.as_os_str());
        let Ok(file) = program::file_in(&spec.program, &spec.dir, path) else { return };
        let Some(denied) = confined.confinement.denied(stderr, &file, &spec.dir, path) else { return };
        match denied.permission() {
            Some(permission) => {
                tracing::warn!(
                    capability,
                    %denied,
                    %permission,
                    "confinement denied a command what its capability does not declare"
                );
            }
            None => {
                tracing::warn!(capability, %denied, "confinement denied a command one of the sidecar's own files");
            }
        }
        *self.kept() = Some(Denial { capability: capability.to_owned(), denied });
    }

    fn kept(&self) -> MutexGuard<'_, Option<Denial>> {
        // Each change leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
