//! Import: the tools of an MCP server in; capabilities of the sidecar's agent out.
//!
//! Read in this order: [`child`] runs the server, [`peer`] speaks with it, over `streams` or over HTTP (`remote`, `headers`),
//! `call` serves one call; [`run`] keeps all of it going. What is served of the tools is decided by `capd_bridge::import`.

mod call;
pub mod child;
mod headers;
pub mod peer;
mod remote;
pub mod run;
mod streams;

use capd_bridge::import::kind::Kind;

/// What a server's tools are called.
pub static KIND: Kind = Kind {
    program: "capd-mcp",
    item: "tool",
    peer: "server",
    category: "mcp",
    result_schema: crate::content::SCHEMA,
    lock_of: "an MCP server's tools",
};
