//! Events in (who declares what, who is gone), immutable snapshots out: what is served, and where.
//!
//! Readers never wait: a call is routed by the snapshot that stood when it came. The embedded registry below is the
//! only one so far; a fleet's registry feeds the same events.

pub mod snapshot;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use snapshot::{Event, Snapshot};

/// The embedded registry: one snapshot at a time, replaced as a whole by each event.
#[derive(Debug)]
pub struct Registry {
    writer: Mutex<()>,
    current: watch::Sender<Arc<Snapshot>>,
}

impl Registry {
    /// A registry that knows nothing yet.
    pub fn new() -> Self {
        Self { writer: Mutex::new(()), current: watch::Sender::new(Arc::new(Snapshot::default())) }
    }

    /// The snapshot that stands.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.borrow())
    }

    /// Applies an event; `true` when it changed anything, and those who [`watch`](Self::watch) are woken then.
    pub fn apply(&self, event: Event) -> bool {
        let _one_at_a_time = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.snapshot().apply(event);
        let is_changed = next.is_some();
        if let Some(next) = next {
            self.current.send_replace(Arc::new(next));
        }
        is_changed
    }

    /// A receiver that sees every later snapshot, or the latest of those it was too slow for.
    pub fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.current.subscribe()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}
