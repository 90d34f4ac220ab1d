//! Any bytes in; the claims of `bodies/subtype.rs` hold, or the fuzzer keeps the input.
#![no_main]

#[path = "../bodies/subtype.rs"]
mod body;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/subtype/generate.rs"]
mod generate;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../../tests/subtype/support.rs"]
mod support;
#[path = "../../tests/subtype/tables.rs"]
mod tables;
#[path = "../../tests/subtype/values.rs"]
mod values;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| body::run(bytes));
