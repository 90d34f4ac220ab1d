//! Implements `cddl`: a CDDL text and CBOR items in; for each item whether it matches, and the first mismatch, out.

use std::path::Path;

use capd_proto::cbor;
use capd_proto::cddl::{Mismatch, Program, RuleId};
use serde_json::{Value, json};

use crate::args::CddlCheckArgs;
use crate::failure::{Exit, Failure};
use crate::{input, output};

/// Checks every item, and prints one line for each.
///
/// **Errors:** usage, when a file cannot be read, the CDDL does not compile, or it has no such rule; refused, when an
/// item does not match.
pub(crate) fn check(args: &CddlCheckArgs, json: bool) -> Result<(), Failure> {
    let program = program(&args.cddl)?;
    let (name, rule) = rule(&program, args)?;
    let mut misfits = 0;
    for file in &args.cbor {
        let verdict = verdict(&program, rule, &input::bytes(file)?);
        misfits += usize::from(verdict.is_err());
        let file = file.display().to_string();
        if json {
            output::print_json(&verdict_json(&file, name, &verdict))?;
        } else {
            output::print(&match verdict {
                Ok(()) => format!("{file}: matches {name}"),
                Err(misfit) => format!("{file}: {misfit}"),
            })?;
        }
    }
    if misfits == 0 { Ok(()) } else { Err(Failure::told(Exit::Refused)) }
}

/// Why an item is not what the rule describes.
enum Misfit {
    /// It is not one well-formed item.
    Malformed(cbor::Error),
    Mismatch(Mismatch),
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "not accepted as CBOR: {error}"),
            Self::Mismatch(mismatch) => mismatch.fmt(f),
        }
    }
}

fn program(file: &Path) -> Result<Program, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    Program::compile(&text).map_err(|error| wrong(&error))
}

/// The rule that the command line names, or that the text begins with.
fn rule<'a>(program: &'a Program, args: &'a CddlCheckArgs) -> Result<(&'a str, RuleId), Failure> {
    let file = args.cddl.display();
    let rules = || format!("its type rules are {}", program.rules().collect::<Vec<_>>().join(", "));
    match &args.rule {
        Some(name) => match program.rule(name) {
            Some(rule) => Ok((name, rule)),
            None => Err(Failure::usage(format!("{file}: no type rule {name:?}")).hint(rules())),
        },
        None => program.root().ok_or_else(|| {
            Failure::usage(format!("{file}: the first rule is a group or generic; name a rule with --rule"))
                .hint(rules())
        }),
    }
}

fn verdict(program: &Program, rule: RuleId, bytes: &[u8]) -> Result<(), Misfit> {
    cbor::check(bytes).map_err(Misfit::Malformed)?;
    program.run(rule, bytes).map_err(Misfit::Mismatch)
}

fn verdict_json(file: &str, rule: &str, verdict: &Result<(), Misfit>) -> Value {
    let mut document = json!({"file": file, "rule": rule, "matches": verdict.is_ok()});
    match verdict {
        Ok(()) => {}
        Err(Misfit::Malformed(error)) => {
            document["malformed"] = json!({"byte": error.offset, "reason": error.kind.to_string()});
        }
        Err(Misfit::Mismatch(Mismatch { rule, path, offset, expected })) => {
            document["mismatch"] = json!({"rule": rule, "path": path, "byte": offset, "expected": expected});
        }
    }
    document
}
