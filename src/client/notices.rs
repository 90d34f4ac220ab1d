//! What a running call says in; the same, in order, to whoever listens, out.
//!
//! Most calls say nothing before they end, and a channel of tokio's makes room for its first 32 messages when it is made.
//! This queue takes no room before anything is said.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Progress;

/// A queue that keeps `notices_max` for a slow listener.
pub(super) fn notices(notices_max: usize) -> (Teller, Listener) {
    let shared = Arc::new(Shared { said: Mutex::default(), wake: Notify::new(), notices_max });
    (Teller(Arc::clone(&shared)), Listener(shared))
}

/// The end that speaks. Dropping it ends the queue once everything in it is heard.
pub(super) struct Teller(Arc<Shared>);

/// The end that listens.
#[derive(Debug)]
pub(super) struct Listener(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    said: Mutex<Said>,
    /// Wakes the listener: something was said, or nothing will be any more.
    wake: Notify,
    notices_max: usize,
}

#[derive(Debug, Default)]
struct Said {
    unheard: VecDeque<Progress>,
    is_over: bool,
}

impl Teller {
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
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.said().is_over = true;
        self.0.wake.notify_one();
    }
}

impl Listener {
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

impl Shared {
    fn said(&self) -> MutexGuard<'_, Said> {
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
        let (teller, mut listener) = notices(8);
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
        let (teller, mut listener) = notices(8);
        let (heard, ()) = tokio::join!(listener.next(), async { teller.tell(pct(1)) });
        assert_eq!(heard, Some(pct(1)));
        let (heard, ()) = tokio::join!(listener.next(), async { drop(teller) });
        assert_eq!(heard, None);
    }

    #[tokio::test]
    async fn a_slow_listener_misses_what_finds_no_room() {
        let (teller, mut listener) = notices(2);
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
}
