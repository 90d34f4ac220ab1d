//! Passes progress and the end of a running call to its listener, in order.
//!
//! Most calls have no progress, and a tokio channel allocates space for its first 32 messages at once. This queue
//! allocates nothing before the first notice, and contains the end itself.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capd_proto::envelope::MessageId;
use tokio::sync::Notify;

use super::Progress;
use super::handle::Heard;

/// A queue that keeps `notices_max` for a slow listener, and the end, an `E`, besides.
pub(super) fn notices<E>(notices_max: usize) -> (Teller<E>, Listener<E>) {
    let shared = Arc::new(Shared { said: Mutex::default(), wake: Notify::new(), notices_max });
    (Teller(Arc::clone(&shared)), Listener(shared))
}

/// The side that speaks. Dropping it ends the queue once everything in it is heard.
pub(super) struct Teller<E>(Arc<Shared<E>>);

/// The side that listens.
#[derive(Debug)]
pub(super) struct Listener<E>(Arc<Shared<E>>);

/// That the sidecar has taken a call in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// The call's id.
    pub(super) call: MessageId,
    /// What it calls, as far as the sidecar says it.
    pub(super) capability: Option<String>,
}

#[derive(Debug)]
struct Shared<E> {
    said: Mutex<Said<E>>,
    /// Wakes the listener: something was said, or nothing will be any more.
    wake: Notify,
    notices_max: usize,
}

#[derive(Debug)]
struct Said<E> {
    unheard: VecDeque<Progress>,
    accepted: Option<Accepted>,
    is_accepted_heard: bool,
    /// Whether the side that speaks is gone.
    is_over: bool,
    /// How it ended, until that is heard.
    end: Option<E>,
}

impl<E> Default for Said<E> {
    fn default() -> Self {
        Self { unheard: VecDeque::new(), accepted: None, is_accepted_heard: false, is_over: false, end: None }
    }
}

impl<E> Teller<E> {
    /// Queues it; a listener that is too slow misses it.
    pub(super) fn tell(&self, progress: Progress) {
        let mut said = self.0.said();
        if said.unheard.len() == self.0.notices_max || Arc::strong_count(&self.0) == 1 {
            return;
        }
        said.unheard.push_back(progress);
        drop(said);
        self.0.wake.notify_one();
    }

    /// Says that it was taken in; the first word of it counts.
    pub(super) fn accept(&self, accepted: Accepted) {
        self.0.said().accepted.get_or_insert(accepted);
        self.0.wake.notify_one();
    }

    /// Says how it ends.
    pub(super) fn end(self, end: E) {
        self.0.said().end = Some(end);
    }
}

impl<E> Drop for Teller<E> {
    fn drop(&mut self) {
        self.0.said().is_over = true;
        self.0.wake.notify_one();
    }
}

impl<E> Listener<E> {
    /// The same queue, for who waits until it is taken in.
    pub(super) fn again(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// That it was taken in, once that is said; `None` when it never is. What is said otherwise stays to be heard.
    pub(super) async fn accepted(&self) -> Option<Accepted> {
        loop {
            {
                let said = self.0.said();
                if said.accepted.is_some() || said.is_over {
                    return said.accepted.clone();
                }
            }
            self.0.wake.notified().await;
        }
    }
    /// How it ended; `None` when nobody says so any more. What was not heard before is skipped.
    pub(super) async fn end(&mut self) -> Option<E> {
        loop {
            {
                let mut said = self.0.said();
                if said.is_over {
                    return said.end.take();
                }
            }
            self.0.wake.notified().await;
        }
    }

    /// What was said next; `None` once there is no more and will be none. Cancelling this future loses nothing.
    pub(super) async fn next(&mut self) -> Option<Progress> {
        loop {
            {
                let mut said = self.0.said();
                if let Some(progress) = said.unheard.pop_front() {
                    return Some(progress);
                }
                if said.is_over {
                    return None;
                }
            }
            self.0.wake.notified().await;
        }
    }
}

impl Listener<super::handle::Outcome> {
    /// What was said next, the end included; `None` once that was heard. Cancelling this future loses nothing.
    pub(super) async fn heard(&mut self) -> Option<Heard> {
        loop {
            {
                let mut said = self.0.said();
                if let (Some(accepted), false) = (said.accepted.clone(), said.is_accepted_heard) {
                    said.is_accepted_heard = true;
                    return Some(Heard::Accepted(accepted));
                }
                if let Some(progress) = said.unheard.pop_front() {
                    return Some(Heard::Progress(progress));
                }
                if said.is_over {
                    return said.end.take().map(Heard::End);
                }
            }
            self.0.wake.notified().await;
        }
    }
}

impl<E> Shared<E> {
    fn said(&self) -> MutexGuard<'_, Said<E>> {
        // The queue changes in single steps, so a panic leaves none half done.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pct(pct: u8) -> Progress {
        Progress::Progress { pct }
    }

    #[tokio::test]
    async fn what_was_said_is_heard_in_order_and_then_the_end() {
        let (teller, mut listener) = notices::<()>(8);
        teller.tell(pct(1));
        teller.tell(pct(2));
        drop(teller);
        assert_eq!(listener.next().await, Some(pct(1)));
        assert_eq!(listener.next().await, Some(pct(2)));
        assert_eq!(listener.next().await, None);
        assert_eq!(listener.next().await, None);
    }

    #[tokio::test]
    async fn a_listener_that_waits_is_woken_by_a_word_and_by_the_end() {
        let (teller, mut listener) = notices::<()>(8);
        let (heard, ()) = tokio::join!(listener.next(), async { teller.tell(pct(1)) });
        assert_eq!(heard, Some(pct(1)));
        let (heard, ()) = tokio::join!(listener.next(), async { drop(teller) });
        assert_eq!(heard, None);
    }

    #[tokio::test]
    async fn a_slow_listener_misses_what_finds_no_room() {
        let (teller, mut listener) = notices::<()>(2);
        for number in 0..4 {
            teller.tell(pct(number));
        }
        assert_eq!(listener.next().await, Some(pct(0)));
        teller.tell(pct(9));
        drop(teller);
        assert_eq!(listener.next().await, Some(pct(1)));
        assert_eq!(listener.next().await, Some(pct(9)));
        assert_eq!(listener.next().await, None);
    }
    #[tokio::test]
    async fn the_end_is_heard_once_whether_or_not_what_came_before_was() {
        let (teller, mut listener) = notices(8);
        teller.tell(pct(1));
        let (end, ()) = tokio::join!(listener.end(), async { teller.end("done") });
        assert_eq!(end, Some("done"));
        assert_eq!(listener.next().await, Some(pct(1)));
        assert_eq!(listener.next().await, None);
        assert_eq!(listener.end().await, None);
        let (teller, mut listener) = notices::<()>(8);
        let (end, ()) = tokio::join!(listener.end(), async { drop(teller) });
        assert_eq!(end, None);
    }
}
