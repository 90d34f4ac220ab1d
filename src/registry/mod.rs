//! Knows what is served, and where: events in (who declares what, who is gone), immutable snapshots out.
//!
//! Readers never wait: a call is routed by the snapshot at its arrival. The embedded registry below is the only one so
//! far; a fleet's registry feeds the same events.

pub mod latency;
mod persistent;
pub mod snapshot;

use std::sync::{Arc, PoisonError, RwLock};

use snapshot::{Event, Snapshot};

use crate::changes::{Changes, Watch};

/// The embedded registry: one snapshot at a time, replaced as a whole by each event.
#[derive(Default)]
pub struct Registry {
    current: RwLock<Arc<Snapshot>>,
    /// Counts snapshots, for those who wait for the next one.
    changes: Changes,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies an event; returns `true` and wakes waiting tasks if it changed anything.
    pub fn apply(&self, event: Event) -> bool {
        {
            let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
            let Some(next) = current.apply(event) else { return false };
            *current = Arc::new(next);
        }
        self.changes.changed();
        true
    }

    /// Wakes at each later snapshot.
    pub(crate) fn watch(&self) -> Watch {
        self.changes.watch()
    }
}
