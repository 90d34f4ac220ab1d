//! Fuzzes `bodies/frame.rs`.
#![no_main]

capd_fuzz::fuzz_target!("frame");
