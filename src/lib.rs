//! capd: the sidecar daemon, its client library, and the parts they are built from.
//!
//! Read downwards, along one message: [`net`] carries frames and drives the machines of `capd-proto`, [`router`]
//! chooses who serves a call, [`provider`] runs it, [`schema`] checks what goes in and out, [`registry`] knows
//! what is served where, [`policy`] how often it may be called, [`store`] keeps what must outlive a crash. [`daemon`]
//! is the only room that knows them all, and [`admin`] has the names under which it tells what they count. [`config`] and [`declaration`] are the two files an owner writes; [`client`]
//! is what `capctl`, tests and other programs use, and [`api`] the same for programs in other languages, over HTTP. [`text`] is how anything that others wrote is shown, and [`log`] how it is
//! logged. [`fault`] is
//! what becomes of a panic.

pub mod admin;
pub mod api;
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
