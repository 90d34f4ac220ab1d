//! Queues local connections that have not finished HELLO, and ends the oldest for a new one.
//!
//! Only the agent's own user can connect, or a process that tries the loopback port. Connections that stay silent must
//! not keep the agent from its sidecar until they time out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio_util::sync::CancellationToken;

use super::close::Fault;
use super::stream::Flow;

/// The local connections that are opening.
#[derive(Default)]
pub(super) struct HalfOpen(Mutex<Connections>);

#[derive(Default)]
struct Connections {
    next: u64,
    /// By number.
    held: BTreeMap<u64, Held>,
}

/// Who has a connection that is opening, and ends it.
enum Held {
    /// Nobody yet.
    Unheld,
    /// The driver of a link.
    Driver(Weak<Flow>),
    /// Whoever waits for its first byte, or for the head of its first HTTP request.
    Waits(CancellationToken),
}

/// What ends a connection.
enum End {
    Driver(Arc<Flow>),
    Waits(CancellationToken),
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
        connections.held.insert(number, Held::Unheld);
        drop(connections);
        Place { all: Arc::clone(self), number }
    }

    /// Ends the oldest connection, which is told why; `false` when there is none that could be.
    pub(super) fn end_oldest(&self) -> bool {
        let mut connections = self.connections();
        let oldest = connections.held.iter().find_map(|(number, held)| match held {
            Held::Unheld => None,
            Held::Driver(flow) => Some((*number, End::Driver(flow.upgrade()?))),
            Held::Waits(given_up) => Some((*number, End::Waits(given_up.clone()))),
        });
        let Some((number, end)) = oldest else { return false };
        connections.held.remove(&number);
        match end {
            End::Driver(flow) => flow.wish(|wishes| {
                wishes.close.get_or_insert(Fault::crowded(CROWDED).into());
            }),
            End::Waits(given_up) => given_up.cancel(),
        }
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
        self.hold(Held::Driver(Arc::downgrade(flow)));
    }

    /// Set when whoever waits for the connection to speak is to make room.
    pub(super) fn wait(&self) -> CancellationToken {
        let given_up = CancellationToken::new();
        self.hold(Held::Waits(given_up.clone()));
        given_up
    }

    fn hold(&self, held: Held) {
        if let Some(place) = self.all.connections().held.get_mut(&self.number) {
            *place = held;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.connections().held.remove(&self.number);
    }
}

/// Why a connection that said nothing has to go.
pub(super) const CROWDED: &str = "has too many half-open local connections";
