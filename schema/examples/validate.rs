//! Compiles a schema once, then checks payloads with it.
//!
//! `cargo run -p capd-schema --example validate`

use std::fmt::Write as _;

use capd_schema::{CompileError, Side, Validator};
use serde_json::json;

const SCHEMA: &[u8] = br#"{
    "type": "object",
    "required": ["file", "lines"],
    "properties": {
        "file": {"type": "string", "minLength": 1},
        "lines": {"type": "integer", "minimum": 1}
    },
    "additionalProperties": false
}"#;

/// Misspelled, so that no validator would ever apply it.
const UNENFORCEABLE: &[u8] = br#"{"type": "string", "minLenght": 3}"#;

fn main() -> Result<(), CompileError> {
    print!("{}", run()?);
    Ok(())
}

/// Returns one line for each payload, and one for each violation.
pub fn run() -> Result<String, CompileError> {
    let mut out = String::new();
    let validator = Validator::compile(SCHEMA)?;
    for payload in [json!({"file": "a.rs", "lines": 10}), json!({"file": "", "lines": 0.5, "x": 1})] {
        match validator.validate_json(&payload, Side::Request) {
            Ok(()) => writeln!(out, "valid    {payload}"),
            Err(violations) => violations.iter().try_fold((), |(), violation| {
                let capd_schema::Violation { path, message, keyword } = violation;
                writeln!(out, "invalid  {path}: {message} ({keyword})")
            }),
        }
        .expect("writing to a String does not fail");
    }
    if let Err(error) = Validator::compile(UNENFORCEABLE) {
        writeln!(out, "refused  {error}").expect("writing to a String does not fail");
    }
    Ok(out)
}
