//! Fuzzes `bodies/local.rs`.
#![no_main]

capd_fuzz::fuzz_target!("local");
