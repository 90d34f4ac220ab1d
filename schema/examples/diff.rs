//! Compares two versions of a contract: what breaks, for whom, and which version number the change needs.
//!
//! `cargo run -p capd-schema --example diff`

use std::fmt::Write as _;

use capd_schema::CompileError;
use capd_schema::compat::{Contract, Outcome, Terms, compare, version};

const OLD_INPUT: &[u8] = br#"{
    "type": "object",
    "required": ["code"],
    "properties": {"code": {"type": "string"}, "style": {"enum": ["short", "long", "poem"]}},
    "additionalProperties": false
}"#;
const NEW_INPUT: &[u8] = br#"{
    "type": "object",
    "required": ["code"],
    "properties": {"code": {"type": "string"}, "style": {"enum": ["short", "long"]}},
    "additionalProperties": false
}"#;
const OUTPUT: &[u8] = br#"{"type": "string"}"#;

fn main() -> Result<(), CompileError> {
    print!("{}", run()?);
    Ok(())
}

/// Returns the verdict, one line for each lost feature, and the version step.
pub fn run() -> Result<String, CompileError> {
    let old = Contract { input: Terms::read(OLD_INPUT)?, output: Terms::read(OUTPUT)? };
    let new = Contract { input: Terms::read(NEW_INPUT)?, output: Terms::read(OUTPUT)? };
    // The caller was built against the old contract and meets a provider of the new one.
    let compatibility = compare(&old, &new);
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a String does not fail");
    line(format!("verdict  {}", compatibility.verdict().as_str()));
    for (side, outcome) in [("params", &compatibility.requests), ("result", &compatibility.results)] {
        match outcome {
            Outcome::Full => {}
            Outcome::Partial(lost) => {
                lost.iter().for_each(|lost| line(format!("{side}   {}: {}", lost.path, lost.feature)));
            }
            Outcome::Unknown { reason, .. } => line(format!("{side}   {reason}")),
            Outcome::Incompatible(refutation) => {
                line(format!("{side}   {} breaks {}", refutation.witness, refutation.rule));
            }
        }
    }
    let step = version::needed(&old, &new).map_or("none", version::Bump::as_str);
    line(format!("step     {step}"));
    Ok(out)
}
