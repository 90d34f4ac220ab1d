//! The examples run, and print what the crate's README shows.

#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(dead_code, unreachable_pub, missing_docs, reason = "an example's main stands unused here")]

#[path = "../examples/diff.rs"]
mod diff;
#[path = "../examples/subtype.rs"]
mod subtype;
#[path = "../examples/validate.rs"]
mod validate;

const README: &str = include_str!("../README.md");

#[test]
fn examples_print_what_the_readme_shows() {
    for (name, printed) in [("validate", validate::run()), ("subtype", subtype::run()), ("diff", diff::run())]
    {
        let shown = format!("$ cargo run -p capd-schema --example {name}\n{}```", printed.unwrap());
        assert!(README.contains(&shown), "README.md does not show:\n{shown}");
    }
}
