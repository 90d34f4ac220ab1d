//! Any bytes in; the claims of `bodies/cddl.rs` hold, or the fuzzer keeps the input.
#![no_main]

#[path = "../bodies/cddl.rs"]
mod body;

libfuzzer_sys::fuzz_target!(
    init: {
        // An oracle's own panics are caught where it is asked. Ours are told, and end the process on their way up.
        std::panic::set_hook(Box::new(|panic| {
            let of_oracle = panic.location().is_some_and(|place| place.file().contains("/cddl-"));
            if !of_oracle {
                eprintln!("{panic}");
            }
        }));
        // Three crates compile every schema once; that takes longer than one input may.
        body::run(&[0, 0xf6]);
    },
    |bytes: &[u8]| body::run(bytes)
);
