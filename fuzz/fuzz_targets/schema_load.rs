//! Any bytes in; the claims of `bodies/schema_load.rs` hold, or the fuzzer keeps the input.
#![no_main]

#[path = "../bodies/schema_load.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
