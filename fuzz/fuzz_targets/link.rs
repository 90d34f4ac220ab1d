//! Fuzzes `bodies/link.rs`.
#![no_main]

capd_fuzz::fuzz_target!("link");
