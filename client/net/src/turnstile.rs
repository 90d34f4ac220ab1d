//! Makes large messages take turns, with all other work between two turns.
//!
//! A runtime runs tasks in the order in which they were woken. Without turns, each of the few steps of a small message
//! would wait for one step of every large message in flight.

use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// Lets one task of a process at a time go on with a large message.
#[derive(Debug)]
pub(super) struct Turnstile(Semaphore);

impl Default for Turnstile {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

impl Turnstile {
    /// Waits until it is this task's turn. Cancelling loses nothing.
    ///
    /// Nobody holds anything while it works: the next in line has to wait for all that is due by then, too, and for what
    /// the system has to tell.
    pub(super) async fn pass(&self) {
        // Nobody closes it.
        let _first_in_line = self.0.acquire().await;
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    /// Of eight tasks at work on large messages, each has something small to be done after each of its turns, which takes
    /// three tasks one after the other.
    #[tokio::test]
    async fn whatever_is_due_is_done_before_the_next_turn() {
        let turnstile = Arc::new(Turnstile::default());
        let hops: Arc<[Notify; 3]> = Arc::default();
        let (begun, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for hop in 0..hops.len() {
            let (hops, done) = (Arc::clone(&hops), Arc::clone(&done));
            tokio::spawn(async move {
                loop {
                    hops[hop].notified().await;
                    match hops.get(hop + 1) {
                        Some(next) => next.notify_one(),
                        None => drop(done.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
        let turns = (0..8).map(|_| {
            let (turnstile, hops) = (Arc::clone(&turnstile), Arc::clone(&hops));
            let (begun, done) = (Arc::clone(&begun), Arc::clone(&done));
            tokio::spawn(async move {
                for _ in 0..10 {
                    turnstile.pass().await;
                    assert_eq!(done.load(Ordering::Relaxed), begun.fetch_add(1, Ordering::Relaxed));
                    hops[0].notify_one();
                }
            })
        });
        for turn in turns.collect::<Vec<_>>() {
            turn.await.unwrap();
        }
        assert_eq!(begun.load(Ordering::Relaxed), 80);
    }
}
