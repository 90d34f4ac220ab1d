//! Attacks on a sidecar, each as somebody would make it, in; what it gives away, which must be nothing, out.
//!
//! Each module is one topic of `SECURITY.md`. A test that needs what this machine does not have prints what it left out.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]
#![allow(clippy::disallowed_methods, reason = "real processes are waited for in real time")]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "its other users need more of it")]
#[path = "../calls/agents.rs"]
mod agents;
#[allow(dead_code, reason = "its other users need more of it")]
#[path = "../support/peer/mod.rs"]
mod peer;

mod commands;
mod denied;
mod discovery;
mod files;
mod names;
mod schemas;
mod text;
mod token;
