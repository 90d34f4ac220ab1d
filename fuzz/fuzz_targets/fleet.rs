//! Fuzzes `bodies/fleet.rs`.
#![no_main]

capd_fuzz::fuzz_target!("fleet");
