//! Runs the fuzz bodies by name, for the thin files in `fuzz_targets/`.

#[path = "../bodies/mod.rs"]
mod bodies;

use bodies::{TARGETS, Target};

/// Defines the libFuzzer entry points of the target of this name.
#[macro_export]
macro_rules! fuzz_target {
    ($name:expr) => {
        static BODY: std::sync::OnceLock<fn(&[u8])> = std::sync::OnceLock::new();
        libfuzzer_sys::fuzz_target!(
            init: {
                BODY.get_or_init(|| $crate::prepared($name));
            },
            |bytes: &[u8]| BODY.get().expect("libFuzzer initializes first")(bytes)
        );
    };
}

/// Returns the body of this name, ready to run within the time that one input has.
///
/// # Panics
/// When there is no such body; the message lists all names.
pub fn prepared(name: &str) -> fn(&[u8]) {
    let names = || TARGETS.each_ref().map(|target| target.name).join(", ");
    let target = TARGETS.iter().find(|target| target.name == name);
    let Target { run, .. } = target.unwrap_or_else(|| panic!("no body {name:?}; there are {}", names()));
    if name == "cddl-differential" {
        silence_oracles();
        // Three crates compile every schema once; that takes longer than one input may.
        run(&[0, 0xf6]);
    }
    *run
}

/// Returns the value of the process argument `--body=NAME`. libFuzzer ignores arguments that begin with two hyphens.
///
/// # Panics
/// When the argument is missing.
pub fn body_argument() -> String {
    let given = std::env::args().find_map(|argument| argument.strip_prefix("--body=").map(str::to_owned));
    given.expect("pass --body=NAME behind `--`: cargo fuzz run any fuzz/corpus/NAME -- --body=NAME")
}

/// Keeps the panics of the other CDDL crates quiet: the body catches them. Ours are printed and end the process.
fn silence_oracles() {
    std::panic::set_hook(Box::new(|panic| {
        let of_oracle = panic.location().is_some_and(|place| place.file().contains("/cddl-"));
        if !of_oracle {
            eprintln!("{panic}");
        }
    }));
}
