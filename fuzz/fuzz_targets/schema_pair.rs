//! Any bytes in; the claims of `bodies/schema_pair.rs` hold, or the fuzzer keeps the input.
#![no_main]

#[path = "../bodies/schema_pair.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
