//! Fuzzes `bodies/envelope.rs`.
#![no_main]

capd_fuzz::fuzz_target!("envelope");
