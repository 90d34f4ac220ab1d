//! Messages that wait for the compute pool, or for something else, before they are met; in which order, and what has become
//! of their links and streams meanwhile, out.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::daemon::context::lock;
use crate::net::{Link, LinkId, Route};

/// All messages that wait.
#[derive(Default)]
pub(in crate::daemon) struct Waiting {
    state: Mutex<State>,
    /// Wakes those who wait for others to leave.
    left: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    /// In the order in which they came.
    entries: Vec<Entry>,
}

struct Entry {
    number: u64,
    link: LinkId,
    route: Route,
    bytes: usize,
    /// Whether its peer has reset its stream meanwhile.
    is_reset: bool,
}

/// One that waits, until it is dropped.
pub(super) struct Place {
    waiting: Arc<Waiting>,
    number: u64,
}

impl Waiting {
    /// Takes in a message of `bytes`; `None` when as many of its link wait as may. The place that it leaves for this one does
    /// not count.
    pub(super) fn enter(
        self: &Arc<Self>,
        link: &Link,
        route: &Route,
        bytes: usize,
        former: Option<&Place>,
    ) -> Option<Place> {
        let mut state = lock(&self.state);
        let is_former = |entry: &Entry| former.is_some_and(|former| former.number == entry.number);
        let of_link = state.entries.iter().filter(|entry| entry.link == link.id() && !is_former(entry));
        let (count, all) = of_link.fold((0, bytes), |(count, all), entry| (count + 1, all + entry.bytes));
        // One is let in however large it is.
        if count >= WAITING_MAX || (count > 0 && all > WAITING_BYTES_MAX) {
            return None;
        }
        Some(self.enter_any(&mut state, link, route, bytes))
    }

    /// The same of one that must not be turned away.
    pub(super) fn admit(self: &Arc<Self>, link: &Link, route: &Route, bytes: usize) -> Place {
        self.enter_any(&mut lock(&self.state), link, route, bytes)
    }

    fn enter_any(self: &Arc<Self>, state: &mut State, link: &Link, route: &Route, bytes: usize) -> Place {
        let number = state.next;
        state.next += 1;
        state.entries.push(Entry { number, link: link.id(), route: route.clone(), bytes, is_reset: false });
        Place { waiting: Arc::clone(self), number }
    }

    /// Whether a message of this stream waits.
    pub(super) fn has(&self, route: &Route) -> bool {
        lock(&self.state).entries.iter().any(|entry| entry.route.is_same(route))
    }

    /// Whether a message of this link waits.
    pub(super) fn has_of(&self, link: LinkId) -> bool {
        lock(&self.state).entries.iter().any(|entry| entry.link == link)
    }

    /// The peer has reset a stream.
    pub(super) fn reset(&self, route: &Route) {
        for entry in &mut lock(&self.state).entries {
            entry.is_reset |= entry.route.is_same(route);
        }
    }

    /// Waits until no message of this link waits.
    pub(super) async fn emptied(&self, link: LinkId) {
        self.until(|state| !state.entries.iter().any(|entry| entry.link == link)).await;
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            // Made before the look, so that nobody leaves unheard between both.
            let left = self.left.notified();
            if holds(&lock(&self.state)) {
                return;
            }
            left.await;
        }
    }
}

impl Place {
    /// Waits for those that came before it on the same stream, if that carries one call: what a call says is taken in order.
    pub(super) async fn turn(&self) {
        let is_first = |state: &State| {
            let Some(own) = state.entries.iter().find(|entry| entry.number == self.number) else {
                return true;
            };
            !own.route.is_single()
                || !state
                    .entries
                    .iter()
                    .any(|entry| entry.number < self.number && entry.route.is_same(&own.route))
        };
        self.waiting.until(is_first).await;
    }

    /// Whether its peer has reset its stream.
    pub(super) fn is_reset(&self) -> bool {
        lock(&self.waiting.state).entries.iter().any(|entry| entry.number == self.number && entry.is_reset)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = {
            let mut state = lock(&self.waiting.state);
            let at = state.entries.iter().position(|entry| entry.number == self.number);
            at.map(|at| state.entries.remove(at))
        };
        // The last route of a stream ends it, and that must not be locked.
        drop(left);
        self.waiting.left.notify_waiters();
    }
}

/// Messages of one link that wait at most: more would only wait longer, and their memory with them.
const WAITING_MAX: usize = 128;
/// The same in bytes: four of the largest.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
