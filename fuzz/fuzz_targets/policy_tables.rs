//! Fuzzes `bodies/policy_tables.rs`.
#![no_main]

capd_fuzz::fuzz_target!("policy_tables");
