//! Matches requests to other sidecars with their answers, or ends them when their link is lost or their time is up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Refusal, lock};
use crate::net::pending::Pending;
use crate::net::{Clock, Link, LinkId, Route, SendError};

/// How many requests wait for an answer, in all tables together.
pub(in crate::daemon) struct Slots {
    used: AtomicUsize,
    slots_max: AtomicUsize,
    /// Wakes who looks after links while something waits on one.
    first_taken: Notify,
}

impl Slots {
    pub(in crate::daemon) fn new(slots_max: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            slots_max: AtomicUsize::new(slots_max),
            first_taken: Notify::new(),
        })
    }

    /// Requests that wait.
    pub(in crate::daemon) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// How many may wait.
    pub(in crate::daemon) fn slots_max(&self) -> usize {
        self.slots_max.load(Ordering::Relaxed)
    }

    /// Lets so many wait from here on; those that wait already go on.
    pub(super) fn set_max(&self, slots_max: usize) {
        self.slots_max.store(slots_max, Ordering::Relaxed);
    }

    fn take(self: &Arc<Self>) -> Option<Slot> {
        let slots_max = self.slots_max();
        let more = |used| (used < slots_max).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let before = taken.ok()?;
        if before == 0 {
            self.first_taken.notify_one();
        }
        Some(Slot(Arc::clone(self)))
    }

    /// Resolves once a request waits and none did before it.
    pub(in crate::daemon) async fn first_taken(&self) {
        self.first_taken.notified().await;
    }
}

/// The right to wait.
struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Requests that wait for an answer, by the id they went out under.
pub(in crate::daemon) struct Requests<T> {
    pending: Mutex<Pending<Waiting<T>>>,
    /// Wakes the task that ends what nobody answered, when an earlier deadline came in.
    wake: Notify,
    slots: Arc<Slots>,
}

/// What waits for an answer.
pub(in crate::daemon) struct Waiting<T> {
    pub(in crate::daemon) who: T,
    /// Who alone may answer.
    peer: Did,
    /// The link it went out on.
    link: LinkId,
    /// Counts the request as in flight there.
    route: Option<Route>,
    _slot: Slot,
}

/// Why a request was not sent.
pub(in crate::daemon) enum Unsent {
    /// Too many wait, or one of this id.
    Full,
    /// The link does not take it.
    Link(SendError),
}

impl Unsent {
    pub(in crate::daemon) fn refusal(&self) -> Refusal {
        match self {
            Self::Full => Refusal::new(
                Code::OVERLOADED,
                "too many requests wait for an answer, or one with this id does",
            ),
            Self::Link(error) => {
                let code = match error {
                    SendError::TooLarge { .. } => Code::BAD_REQUEST,
                    SendError::Full => Code::OVERLOADED,
                    SendError::Closed | SendError::Draining => Code::ENDPOINT_UNREACHABLE,
                };
                Refusal::new(code, error.to_string())
            }
        }
    }
}

impl<T> Requests<T> {
    pub(in crate::daemon) fn new(slots: Arc<Slots>) -> Self {
        Self { pending: Mutex::new(Pending::new(slots.slots_max())), wake: Notify::new(), slots }
    }

    /// Remembers who waits for the answer to a request, then has `send` send it.
    pub(in crate::daemon) fn send(
        &self,
        link: &Arc<Link>,
        id: MessageId,
        deadline_ms: u64,
        who: T,
        send: impl FnOnce(&Arc<Link>) -> Result<Route, SendError>,
    ) -> Result<(), Unsent> {
        let slot = self.slots.take().ok_or(Unsent::Full)?;
        let peer = link.principal();
        let waiting = Waiting { who, peer: peer.clone(), link: link.id(), route: None, _slot: slot };
        if !self.wait(id, deadline_ms, waiting) {
            return Err(Unsent::Full);
        }
        match send(link) {
            Ok(route) => {
                if let Some(waiting) = lock(&self.pending).peek(&id) {
                    waiting.route = Some(route);
                }
                Ok(())
            }
            Err(error) => {
                self.take(&id, peer);
                Err(Unsent::Link(error))
            }
        }
    }

    /// Remembers a request; `false` when the id waits already.
    fn wait(&self, id: MessageId, deadline_ms: u64, waiting: Waiting<T>) -> bool {
        let mut pending = lock(&self.pending);
        let is_earliest = pending.next_deadline_ms().is_none_or(|earliest| deadline_ms < earliest);
        let is_taken = pending.insert(id, deadline_ms, waiting).is_ok();
        drop(pending);
        if is_taken && is_earliest {
            self.wake.notify_one();
        }
        is_taken
    }

    /// Takes out what waits for `id`, if `peer` is the one to answer it.
    pub(in crate::daemon) fn take(&self, id: &MessageId, peer: &Did) -> Option<Waiting<T>> {
        lock(&self.pending).take_if(id, |waiting| waiting.peer == *peer)
    }

    /// Takes out those of `ids` for which `is_it` holds.
    pub(in crate::daemon) fn release(
        &self,
        ids: impl Iterator<Item = MessageId>,
        is_it: impl Fn(&T) -> bool,
    ) {
        // Routes count as calls in flight until they are dropped, which wakes links: not under the lock.
        let released: Vec<_> = {
            let mut pending = lock(&self.pending);
            ids.filter_map(|id| pending.take_if(&id, |waiting| is_it(&waiting.who))).collect()
        };
        drop(released);
    }

    /// What `look` sees in what waits for `id`, if `peer` is the one to answer it; it goes on waiting.
    pub(in crate::daemon) fn peek<U>(
        &self,
        id: &MessageId,
        peer: &Did,
        look: impl FnOnce(&T) -> Option<U>,
    ) -> Option<U> {
        let mut pending = lock(&self.pending);
        pending.peek(id).filter(|waiting| waiting.peer == *peer).and_then(|waiting| look(&waiting.who))
    }

    /// Where the request `id` to `peer` went that waits for its answer.
    pub(in crate::daemon) fn route_of(&self, id: &MessageId, peer: &Did) -> Option<(LinkId, Route)> {
        let mut pending = lock(&self.pending);
        let waiting = pending.peek(id).filter(|waiting| waiting.peer == *peer)?;
        waiting.route.clone().map(|route| (waiting.link, route))
    }

    /// Takes out everything that went out on a link.
    pub(in crate::daemon) fn lost(&self, link: &Link) -> Vec<(MessageId, Waiting<T>)> {
        lock(&self.pending).take_where(|waiting| waiting.link == link.id())
    }

    /// Waits until nobody has answered a request in time, and takes it out.
    pub(in crate::daemon) async fn expired(&self, clock: &Clock) -> (MessageId, Waiting<T>) {
        loop {
            if let Some(expired) = lock(&self.pending).take_expired(clock.monotonic_ms()) {
                return expired;
            }
            let next = lock(&self.pending).next_deadline_ms().map(|next| clock.moment(next));
            tokio::select! {
                biased;
                () = sleep_until(next) => {}
                () = self.wake.notified() => {}
            }
        }
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_share_their_slots_and_give_them_back() {
        let slots = Slots::new(2);
        let held = [slots.take(), slots.take()];
        assert!(held.iter().all(Option::is_some) && slots.take().is_none());
        assert_eq!(slots.used(), 2);
        drop(held);
        assert_eq!(slots.used(), 0);
        assert!(slots.take().is_some());
    }
}
