//! Lets one agent safely call what another agent can do: the sidecar daemon and its parts.
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
//! 8. [`fleet`] finds other sidecars through a registry.
//!
//! [`daemon`] is the only room that knows them all. [`config`] and [`declaration`] read the two files that an owner writes.
//! [`api`] is the front for agents in any language: HTTP on the local socket.
//! [`codegen`] writes the code that callers of a declaration compile.
//! [`page`] shows a running sidecar in a browser.
//! [`health`] answers orchestrators and scrapers. [`admin`] names the metrics, [`log`] writes the log, [`otlp`] exports traces, [`text`] escapes foreign text, and [`fault`] handles panics.
//! [`backup`] saves and restores the state of a sidecar.
//! [`pair`] introduces two sidecars that never met. [`manual`] writes completions and manual pages of the programs,
//! and [`suggest`] names the verb that was meant.
//!
//! Three of these are crates of their own, so that other programs can use them without the daemon: [`schema`] is
//! `capd-schema`, [`client`] is `capd-client`, and [`net`] is `capd-net`, the transport of both ends.

pub mod admin;
pub mod api;
pub mod backup;
mod changes;
pub mod codegen;
pub mod config;
pub mod daemon;
pub mod declaration;
pub mod fleet;
pub mod health;
pub mod log;
pub mod manual;
pub mod otlp;
pub mod page;
pub mod pair;
pub mod policy;
pub mod provider;
pub mod registry;
pub mod router;
pub mod store;
pub mod suggest;
pub mod text;

pub use capd_client as client;
pub use capd_net as net;
pub use capd_net::fault;
pub use capd_schema as schema;

use capd_net::kin;
