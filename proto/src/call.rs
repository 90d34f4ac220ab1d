//! What happens to one call in, what to do about it out: the two machines of a call (PROTOCOL 7, 8).
//!
//! [`Caller`] stands in the sidecar of the agent that asks, [`Executor`] in the sidecar of the agent that provides.
//! Both are driven alike: tell the machine what happened (`handle`), do what `poll_output` says until it yields nothing,
//! and come back with `Input::Timeout` when `poll_timeout` says so. They hold no payload: an output such as
//! "deliver the result just handled" speaks of what the daemon has in its hand. Whether an invoke is new at all is the
//! [`ledger`](crate::ledger)'s to say, before an executor exists.

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
