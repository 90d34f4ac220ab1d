//! A whole fleet of sidecars in one thread, with time, randomness, network, disks and crashes all from one seed.
//!
//! Read it from [`world`]: it builds the [`machine`]s of a [`plan`], lets [`caller`]s call what [`provider`]s and [`rude`] ones serve,
//! and asks the [`oracle`] what it saw. [`process`], [`network`] and [`disk`] stand in for the machine; [`dice`], [`keys`] and [`trace`]
//! make a world replay exactly; [`report`] adds worlds up.

#![allow(dead_code, unreachable_pub, reason = "the tests and the example each use a part of it")]

pub mod caller;
pub mod dice;
pub mod disk;
pub mod keys;
pub mod machine;
pub mod network;
pub mod oracle;
pub mod plan;
pub mod process;
pub mod provider;
pub mod report;
pub mod rude;
pub mod trace;
pub mod world;
