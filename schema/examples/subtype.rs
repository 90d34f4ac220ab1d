//! Proves that every value of one schema is a value of another, or shows a value that is not.
//!
//! `cargo run -p capd-schema --example subtype`

use std::fmt::Write as _;

use capd_schema::CompileError;
use capd_schema::subtype::{Compiled, Verdict, is_subtype};

const PORT: &[u8] = br#"{"type": "integer", "minimum": 1, "maximum": 65535}"#;
const POSITIVE: &[u8] = br#"{"type": "number", "exclusiveMinimum": 0}"#;

fn main() -> Result<(), CompileError> {
    print!("{}", run()?);
    Ok(())
}

/// Returns one line for each question.
pub fn run() -> Result<String, CompileError> {
    let (port, positive) = (Compiled::compile(PORT)?, Compiled::compile(POSITIVE)?);
    let questions = [("port <: positive", &port, &positive), ("positive <: port", &positive, &port)];
    let mut out = String::new();
    for (question, narrow, wide) in questions {
        let verdict = match is_subtype(narrow, wide) {
            Verdict::Proven => "proven".to_owned(),
            Verdict::Refuted { witness, path, rule } => format!("refuted: {witness} breaks {rule} at {path}"),
            Verdict::Unknown { path, construct } => format!("unknown: {construct} at {path}"),
        };
        writeln!(out, "{question}  {verdict}").expect("writing to a String does not fail");
    }
    Ok(out)
}
