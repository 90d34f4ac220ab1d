//! Lets one agent safely call what another agent can do: the sidecar daemon, its client library, and their parts.
//!
//! Read downwards, along one message:
//!
//! 1. [`net`] carries frames and drives the machines of `capd-proto`.
//! 2. [`router`] chooses the provider of a call.
//! 3. [`provider`] runs the call.
//! 4. [`schema`] checks params and results.
//! 5. [`registry`] knows which capabilities are served, and by which agent.
//! 6. [`policy`] decides which callers may call what, and how often.
//! 7. [`store`] keeps everything that must survive a crash.
//!
//! [`daemon`] is the only room that knows them all. [`config`] and [`declaration`] read the two files that an owner writes.
//! [`client`] is the library of `capctl`, tests and other programs. [`admin`] names the metrics, [`log`] writes the log,
//! [`text`] escapes foreign text, and [`fault`] handles panics.

pub mod admin;
mod changes;
pub mod client;
pub mod config;
pub mod daemon;
pub mod declaration;
pub mod fault;
mod kin;
pub mod log;
pub mod net;
pub mod policy;
pub mod provider;
pub mod registry;
pub mod router;
pub mod schema;
pub mod store;
pub mod text;
