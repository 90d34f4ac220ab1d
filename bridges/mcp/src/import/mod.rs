//! Import: the tools of an MCP server in; capabilities of the sidecar's agent out.
//!
//! Read in this order: [`tool`] reads what a server lists, [`lock`] is what its owner approved, [`drift`] compares both with
//! the help of `text`; [`child`] runs the server, [`peer`] speaks with it, `call` serves one call; [`run`] keeps all of it
//! going, and [`show`] tells people.

mod call;
pub mod child;
pub mod drift;
pub mod lock;
pub mod peer;
pub mod run;
pub mod show;
mod text;
pub mod tool;
