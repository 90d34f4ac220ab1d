//! Any bytes in; the claims of `bodies/policy_tables.rs` hold, or the fuzzer keeps the input.
#![no_main]

#[path = "../bodies/policy_tables.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
