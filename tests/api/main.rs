//! Requests in raw HTTP to real sidecars in; status, fields, bodies and events out.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]
#![allow(clippy::disallowed_methods, reason = "real processes are met in real time")]

#[path = "../support/mod.rs"]
mod support;

mod agent;
mod attacks;
mod call;
mod door;
mod history;
mod http;
mod keys;
mod kills;
mod lists;
mod page;
mod provide;
mod push;
mod timeline;
mod tools;
