//! Fuzzes `bodies/declaration.rs`.
#![no_main]

capd_fuzz::fuzz_target!("declaration");
