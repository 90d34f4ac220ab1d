//! Fuzzes `bodies/cursor.rs`.
#![no_main]

capd_fuzz::fuzz_target!("cursor");
