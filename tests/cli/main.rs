//! Command lines in; exit codes, stdout and stderr of the real `capctl` out.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(clippy::disallowed_methods, reason = "real processes are met in real time")]

#[path = "../support/mod.rs"]
mod support;

mod audit;
mod causes;
mod commands;
mod compat;
mod crowded;
mod docs;
mod doctor;
mod fleet;
mod gen_code;
mod grammar;
mod offline;
mod pair;
mod policy;
mod reload;
mod subtype;
mod watch;
mod with_sidecar;
