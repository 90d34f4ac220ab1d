//! Any bytes in; the claims of `bodies/cbor.rs` hold, or the fuzzer keeps the input.
#![no_main]

#[path = "../bodies/cbor.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
