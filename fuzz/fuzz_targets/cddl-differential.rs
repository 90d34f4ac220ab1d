//! Fuzzes `bodies/cddl.rs`.
#![no_main]

capd_fuzz::fuzz_target!("cddl-differential");
