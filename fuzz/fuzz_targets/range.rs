//! Fuzzes `bodies/range.rs`.
#![no_main]

capd_fuzz::fuzz_target!("range");
