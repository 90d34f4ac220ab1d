//! Any bytes in; the claims of `bodies/ledger_model.rs` hold, or the fuzzer keeps the input.
#![no_main]

#[path = "../bodies/ledger_model.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
