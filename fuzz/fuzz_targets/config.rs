//! Fuzzes `bodies/config.rs`.
#![no_main]

capd_fuzz::fuzz_target!("config");
