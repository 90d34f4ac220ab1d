//! Counts changes, and wakes waiting tasks in the order in which they began to wait.
//!
//! Tokio's `watch` wakes its receivers in a random order, which a simulation could not replay.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Something that changes, as those see it who change it.
#[derive(Default)]
pub(crate) struct Changes(Arc<Shared>);

#[derive(Default)]
struct Shared {
    count: AtomicU64,
    wake: Notify,
}

/// The same, as those see it who wait for a change.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    seen: u64,
}

impl Changes {
    /// Counts a change and wakes everybody who waits for one.
    pub(crate) fn changed(&self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        self.0.wake.notify_waiters();
    }

    /// Sees every change from here on.
    pub(crate) fn watch(&self) -> Watch {
        Watch { shared: Arc::clone(&self.0), seen: self.0.count.load(Ordering::Acquire) }
    }
}

impl Watch {
    /// What has changed until now is seen.
    pub(crate) fn look(&mut self) {
        self.seen = self.shared.count.load(Ordering::Acquire);
    }

    /// Waits until something has changed since the last time; cancelling it loses no change.
    pub(crate) async fn changed(&mut self) {
        loop {
            let mut woken = pin!(self.shared.wake.notified());
            // A change between the look and the wait must wake us.
            woken.as_mut().enable();
            let count = self.shared.count.load(Ordering::Acquire);
            if count != self.seen {
                self.seen = count;
                return;
            }
            woken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_seen_once_and_none_from_before() {
        let changes = Changes::default();
        changes.changed();
        let mut watch = changes.watch();
        let moment = Duration::from_millis(1);
        assert!(timeout(moment, watch.changed()).await.is_err());
        changes.changed();
        changes.changed();
        assert!(timeout(moment, watch.changed()).await.is_ok());
        assert!(timeout(moment, watch.changed()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_began() {
        let changes = Changes::default();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..32)
            .map(|number| {
                let (mut watch, woken) = (changes.watch(), Arc::clone(&woken));
                tokio::spawn(async move {
                    watch.changed().await;
                    woken.lock().unwrap().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        changes.changed();
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(*woken.lock().unwrap(), (0..32).collect::<Vec<_>>());
    }
}
