//! Fuzzes `bodies/ledger_model.rs`.
#![no_main]

capd_fuzz::fuzz_target!("ledger_model");
