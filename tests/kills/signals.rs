//! What agents have just done in; whoever waits for it, to strike right then, out.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A point in a call's life that an agent sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The caller has just sent an invoke.
    Sent,
    /// The provider has just got one.
    Invoked,
    /// The provider has just answered one.
    Answered,
    /// The caller has just heard a result.
    Heard,
}

/// How often each signal was raised.
#[derive(Debug, Default)]
pub struct Signals {
    raised: Mutex<[u64; 4]>,
    changed: Condvar,
}

impl Signals {
    pub fn raise(&self, signal: Signal) {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner)[signal as usize] += 1;
        self.changed.notify_all();
    }

    /// Waits until the signal is raised once more, or gives up after `wait`.
    pub fn next(&self, signal: Signal, wait: Duration) {
        let raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let before = raised[signal as usize];
        let unchanged = |raised: &mut [u64; 4]| raised[signal as usize] == before;
        drop(self.changed.wait_timeout_while(raised, wait, unchanged));
    }
}
