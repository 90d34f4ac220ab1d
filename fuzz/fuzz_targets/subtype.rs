//! Fuzzes `bodies/subtype.rs`.
#![no_main]

capd_fuzz::fuzz_target!("subtype");
