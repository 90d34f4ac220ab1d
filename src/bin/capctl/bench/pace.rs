//! Waits for the moments at which calls are due at a rate.
//!
//! An async timer counts in milliseconds, which is longer than a call, so a thread sleeps instead.

use std::num::NonZeroU64;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::failure::Failure;

/// Gives moments `rate` times a second, from `first` on and none from `ends` on, until the receiver is dropped. Moments that are not taken wait, and come late.
///
/// **Errors:** the system gives no thread.
pub(super) fn moments(first: Instant, rate: u32, ends: Instant) -> Result<mpsc::Receiver<Instant>, Failure> {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let work = move || {
        let precise = Some(NonZeroU64::MIN);
        // Without it the system may wake us some fifty microseconds late.
        let _ = rustix::thread::set_current_timer_slack(precise);
        for number in 0_u64.. {
            let after = number.saturating_mul(NANOSECONDS) / u64::from(rate);
            let due = first + Duration::from_nanos(after);
            if due >= ends {
                return;
            }
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                thread::sleep(wait.max(SLEEP_MIN));
            }
            if sender.blocking_send(due).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("pace".to_owned()).spawn(work)?;
    Ok(receiver)
}

const NANOSECONDS: u64 = 1_000_000_000;
/// What takes a core some tens of microseconds, each wake-up, is not done for every call: those that are due meanwhile are
/// made together, and count from when they were due.
const SLEEP_MIN: Duration = Duration::from_micros(100);
/// Moments that may wait to be taken; more wait in the thread.
const WAITING_MAX: usize = 1_024;
