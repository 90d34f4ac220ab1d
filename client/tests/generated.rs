//! Compiles what `capctl gen` writes for Rust, with warnings denied, and runs what a caller makes of it.

#![deny(warnings)]
#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    reason = "a caller's module, which is in a crate of its own"
)]

#[rustfmt::skip]
#[path = "../../tests/codegen/golden/rust/code_reviewer.rs"]
mod code_reviewer;
#[rustfmt::skip]
#[path = "../../tests/codegen/golden/rust/hostile_linux.rs"]
mod hostile_linux;
#[rustfmt::skip]
#[path = "../../tests/codegen/golden/rust/pr_reviewer.rs"]
mod pr_reviewer;
#[rustfmt::skip]
#[path = "../../tests/codegen/golden/rust/shapes.rs"]
mod shapes;
#[path = "../../tests/codegen/usage/usage.rs"]
mod usage;

#[test]
fn every_reviewed_file_is_compiled_here() {
    let here = include_str!("generated.rs");
    let reviewed =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/codegen/golden/rust")).unwrap();
    for file in reviewed {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(here.contains(&format!("golden/rust/{name}\"]")), "{name} is not compiled");
    }
}
