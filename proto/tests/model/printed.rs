//! A way to make operations and a check of them in; the shortest operations that fail it, as a Rust test, out.

use std::fmt::{Debug, Write};

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestError, TestRunner};

/// Fails with a test to paste if the check fails for any operations tried. `PROPTEST_CASES` sets how many are.
///
/// `check` is the check of `ops` as `regressions.rs` writes it, such as `link::check(&ops)`.
pub(crate) fn hold<Op: Debug + Clone>(
    check: &str,
    cases: u32,
    ops_max: usize,
    op: impl Strategy<Value = Op>,
    holds: impl Fn(&[Op]) -> Result<(), String>,
) {
    if let Err(test) = look(check, cases, ops_max, op, holds) {
        panic!("{test}");
    }
}

/// As [`hold`], but hands the failure's text back.
pub(crate) fn look<Op: Debug + Clone>(
    check: &str,
    cases: u32,
    ops_max: usize,
    op: impl Strategy<Value = Op>,
    holds: impl Fn(&[Op]) -> Result<(), String>,
) -> Result<(), String> {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config { cases: asked.unwrap_or(cases), failure_persistence: None, ..Config::default() };
    let ops = proptest::collection::vec(op, 0..ops_max);
    let found = TestRunner::new(config)
        .run(&ops, |ops| holds(&ops).map_err(proptest::test_runner::TestCaseError::fail));
    match found {
        Ok(()) => Ok(()),
        Err(TestError::Fail(reason, ops)) => Err(printed(check, reason.message(), &ops)),
        Err(TestError::Abort(reason)) => Err(format!("{check} was given up: {reason}")),
    }
}

/// The operations as a test for `regressions.rs`.
fn printed<Op: Debug>(check: &str, reason: &str, ops: &[Op]) -> String {
    let (machine, _) = check.split_once("::").unwrap_or((check, ""));
    let mut test = format!("{reason}\n\n#[test]\nfn {machine}_to_be_named() {{\n");
    let _ = writeln!(test, "    use {machine}::Op::*;");
    let _ = writeln!(test, "    let ops = [");
    for op in ops {
        let _ = writeln!(test, "        {op:?},");
    }
    let _ = writeln!(test, "    ];\n    assert_eq!({check}, Ok(()));\n}}");
    test
}
