//! Fuzzes `bodies/body.rs`.
#![no_main]

capd_fuzz::fuzz_target!("body");
