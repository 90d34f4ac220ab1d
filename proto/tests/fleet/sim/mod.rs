//! A fleet in one thread: machines, a registry that fails in every way that etcd can, and an oracle that reads along.

#![allow(clippy::wildcard_enum_match_arm, reason = "what is told of the rest is its debug form")]
#![allow(dead_code, unreachable_pub, reason = "the tests and the example each use a part of it")]

mod blows;
mod links;
mod oracle;
pub mod plan;
mod process;
mod rng;
mod store;
pub mod world;
