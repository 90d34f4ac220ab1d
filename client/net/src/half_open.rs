//! Local connections that have not finished HELLO in, in the order in which they came; the oldest ended for a newcomer.
//!
//! Whoever may connect is the agent's own user, or has a loopback port to try: connections that say nothing must not keep
//! the agent from its sidecar until their time is up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::close::Fault;
use super::stream::Flow;

/// The local connections that are opening.
#[derive(Default)]
pub(super) struct HalfOpen(Mutex<Connections>);

#[derive(Default)]
struct Connections {
    next: u64,
    /// By number; one that no driver has taken up yet has no flow.
    flows: BTreeMap<u64, Weak<Flow>>,
}

/// One connection's place among them, until it is dropped.
pub(super) struct Place {
    all: Arc<HalfOpen>,
    number: u64,
}

impl HalfOpen {
    /// A place for a connection that has just come.
    pub(super) fn place(self: &Arc<Self>) -> Place {
        let mut connections = self.connections();
        let number = connections.next;
        connections.next += 1;
        connections.flows.insert(number, Weak::new());
        drop(connections);
        Place { all: Arc::clone(self), number }
    }

    /// Ends the oldest connection, which is told why; `false` when there is none that could be.
    pub(super) fn end_oldest(&self) -> bool {
        let mut connections = self.connections();
        let oldest = connections.flows.iter().find_map(|(number, flow)| Some((*number, flow.upgrade()?)));
        let Some((number, flow)) = oldest else { return false };
        connections.flows.remove(&number);
        flow.wish(|wishes| {
            wishes.close.get_or_insert(Fault::crowded("has too many half-open local connections").into());
        });
        true
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        // A panic leaves at worst a place that is empty.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The connection's driver is there.
    pub(super) fn take(&self, flow: &Arc<Flow>) {
        if let Some(place) = self.all.connections().flows.get_mut(&self.number) {
            *place = Arc::downgrade(flow);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.connections().flows.remove(&self.number);
    }
}
