//! Fleets of real sidecars: who is let in, who finds whom, and what happens when members or the registry go away.
//!
//! `cell` makes members. `admission` has no registry at all. `finding`, `ending`, `failing`, `asking`, `retiring` and `split` have one in a file. `network` has mDNS.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(unreachable_pub, reason = "it is no library: its callers stand beside it")]
#![allow(clippy::disallowed_methods, reason = "real processes are waited for in real time")]

#[path = "../support/mod.rs"]
mod support;

mod cell;

mod admission;
mod asking;
mod ending;
mod failing;
mod finding;
mod network;
mod retiring;
mod split;
