//! CDDL programs over real bytes: each construct with instances that match and instances that do not, what is refused
//! when compiling, hostile input, and the rules of the protocol's own bodies.

mod bodies;
mod controls;
#[path = "../support/edn.rs"]
mod edn;
mod hostile;
mod maps;
mod refusals;
mod types;

use capd_proto::cddl::{CompileError, Mismatch, Program};
use edn::edn;

/// Runs `bytes` against the rule `a`.
fn run(text: &str, bytes: &[u8]) -> Result<(), Mismatch> {
    let program = Program::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    program.run(program.rule("a").expect("the text has a rule `a`"), bytes)
}

/// `good` and `bad` are instances in diagnostic notation, separated by `;`.
fn holds(text: &str, good: &str, bad: &str) {
    for (label, instances) in [(true, good), (false, bad)] {
        for instance in instances.split(';').map(str::trim).filter(|i| !i.is_empty()) {
            let verdict = run(text, &edn(instance));
            assert_eq!(verdict.is_ok(), label, "{text}\n{instance}\n{verdict:?}");
        }
    }
}

fn fails(text: &str, instance: &str) -> Mismatch {
    run(text, &edn(instance)).expect_err(instance)
}

fn refused(text: &str) -> CompileError {
    Program::compile(text).map(|_| ()).expect_err(text)
}
