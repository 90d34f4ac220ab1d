//! Fuzzes `bodies/cbor.rs`.
#![no_main]

capd_fuzz::fuzz_target!("cbor");
