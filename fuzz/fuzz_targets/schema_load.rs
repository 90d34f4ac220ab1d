//! Fuzzes `bodies/schema_load.rs`.
#![no_main]

capd_fuzz::fuzz_target!("schema_load");
