//! Runs a sidecar's part in its fleet: the daemon's facts and a registry in, dials, candidates and a status out.
//!
//! The rules are those of [`capd_proto::fleet::machine`]; here is the I/O around them.
//!
//! 1. [`engine`] says what a registry must be able to do.
//! 2. [`Fleet`] is what the daemon holds: it brings facts, and reads candidates and status without waiting.
//! 3. [`Driver`] is one task: it owns the machine, asks the engine, and tells the [`Owner`] what to do.
//! 4. [`disk`] keeps what a later process begins with.
//! 5. [`mod@file`] is a registry for the sidecars of one machine; [`nowhere`] stands in where there is none.
//! 6. [`mdns`] is a registry for the sidecars of one network, without a server.
//! 7. `etcd` is a registry for many machines; it needs the feature of that name.

pub mod disk;
pub mod engine;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod file;
pub mod mdns;
pub mod nowhere;

mod driver;
mod facts;
mod handle;
mod view;

pub use driver::{Driver, Event, Owner, Setup, start};
pub use handle::{Fleet, Names};
pub use view::{Candidates, Inspection, Split, Status};
