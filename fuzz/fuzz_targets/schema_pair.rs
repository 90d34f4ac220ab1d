//! Fuzzes `bodies/schema_pair.rs`.
#![no_main]

capd_fuzz::fuzz_target!("schema_pair");
