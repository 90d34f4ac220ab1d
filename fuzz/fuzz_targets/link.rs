//! Any bytes in; the claims of `bodies/link.rs` hold, or the fuzzer keeps the input.
#![no_main]

#[path = "../bodies/link.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
