//! Drives one call: what happened to it in, what to do about it out. Two machines, one for each side (PROTOCOL 7, 8).
//!
//! [`Caller`] runs in the sidecar of the calling agent, [`Executor`] in the sidecar of the provider. Both have the same
//! interface: tell the machine what happened (`handle`), do what `poll_output` says until it yields nothing, and return
//! with `Input::Timeout` at the time of `poll_timeout`. The machines hold no payload: an output such as "deliver the
//! result just handled" refers to what the daemon holds. The [`ledger`](crate::ledger) decides whether an invoke is
//! new, before an executor exists.

pub mod caller;
pub mod executor;
mod retry;

pub use caller::Caller;
pub use executor::Executor;
pub use retry::{Jitter, RetryPolicy};

use smallvec::SmallVec;

/// What a machine has said and nobody has asked for yet, oldest first: hardly ever more than two things.
type Outputs<T> = SmallVec<[T; 2]>;

/// Takes the oldest.
fn next_output<T>(outputs: &mut Outputs<T>) -> Option<T> {
    if outputs.is_empty() { None } else { Some(outputs.remove(0)) }
}
