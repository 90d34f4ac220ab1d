//! capd: the sidecar daemon and the parts it is built from.
//!
//! Read downwards, along one message: [`net`] carries frames and drives the machines of `capd-proto`, [`router`]
//! chooses who serves a call, [`provider`] runs it, [`schema`] checks what goes in and out, [`registry`] knows
//! what is served where, [`policy`] how often it may be called, [`store`] keeps what must outlive a crash. [`daemon`]
//! is the only room that knows them all, and [`admin`] has the names under which it tells what they count.
//! [`config`] and [`declaration`] are the two files an owner writes; [`codegen`] writes what callers of a
//! declaration compile. [`text`] is how anything that others wrote is shown, and [`log`] how it is logged. [`fault`]
//! is what becomes of a panic.
//!
//! Three of these are crates of their own, so that other programs can use them without the daemon: [`schema`] is
//! `capd-schema`, [`client`] is `capd-client`, and [`net`] is `capd-net`, the transport that both ends share.

pub mod admin;
mod changes;
pub mod codegen;
pub mod config;
pub mod daemon;
pub mod declaration;
pub mod log;
pub mod policy;
pub mod provider;
pub mod registry;
pub mod router;
pub mod store;
pub mod text;

pub use capd_client as client;
pub use capd_net as net;
pub use capd_net::fault;
pub use capd_schema as schema;

use capd_net::kin;
