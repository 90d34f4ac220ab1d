//! Registry bytes in, believed records out: how the sidecars of a fleet find each other.
//!
//! The registry says whom to dial, the TLS key says who answered, and CAP_QUERY says what it serves. Nobody believes the
//! registry itself: each record in it is signed, and the right to register at all is signed by the cell's authority.
//!
//! 1. [`Cell`], [`Agent`] and [`Key`] name who and where: `/capd/1/<cell>/n/<name>/<shard>/<agent>`.
//! 2. [`Membership`] and [`Revocation`] are the authority's words: who may serve which names, and who no longer may.
//! 3. [`Registration`] is the agent's own: where it is reached, and which versions of a name it serves.
//! 4. [`Fence`] lets one process at a time register for an agent.
//! 5. [`Verifier`] decides which of these bytes a watcher believes.
//! 6. [`machine`] registers, watches, and says whom to dial; [`engine`] has the words between it and a registry.

mod agent;
mod cell;
pub mod engine;
mod fence;
mod key;
pub mod machine;
mod membership;
mod record;
mod registration;
mod revocation;
mod verify;

pub use agent::{Agent, AgentError};
pub use cell::{Cell, CellError};
pub use fence::{Fence, FenceError};
pub use key::{Key, PathError, Prefix, Shard};
pub use membership::{Membership, MembershipError};
pub use record::RecordError;
pub use registration::{Address, Registration, Served, State, Transport};
pub use revocation::Revocation;
pub use verify::{Known, Refused, Registered, Verifier};

#[cfg(test)]
mod tests;
