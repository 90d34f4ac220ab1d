//! Reports a comparison of two declarations: verdicts in, text for people or JSON out.

use std::fmt::Write as _;

use capd::schema::compat::{Compatibility, Outcome, Refutation, Verdict};
use serde_json::{Value, json};

use super::operand::Held;
use crate::output::one_line;

/// The sign of a verdict, as the matrix has it.
pub(super) const fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Full => "✅",
        Verdict::Partial => "⚠️",
        Verdict::Incompatible => "❌",
        Verdict::Unknown => "?",
    }
}

/// Two declarations, for a heading.
pub(super) fn pair(old: &Held, new: &Held) -> String {
    if old.id == new.id {
        format!("{}: {} → {}", old.id, one_line(&old.source), one_line(&new.source))
    } else if old.id.name == new.id.name {
        format!("{}: {} → {}", old.id.name, old.id.version, new.id.version)
    } else {
        format!("{} → {}", old.id, new.id)
    }
}

/// Writes what a caller can expect of a provider.
pub(super) fn direction(out: &mut String, caller: &str, provider: &str, found: &Compatibility) {
    let verdict = found.verdict();
    let _ = writeln!(out, "  {} {}: {caller} with a provider of {provider}", sign(verdict), verdict.as_str());
    outcome(out, "requests", &found.requests);
    outcome(out, "results", &found.results);
}

fn outcome(out: &mut String, name: &str, outcome: &Outcome) {
    let _ = match outcome {
        Outcome::Full => Ok(()),
        Outcome::Unknown { path, reason, .. } => {
            writeln!(out, "     {name}, at {}: {}", one_line(path), one_line(reason))
        }
        Outcome::Incompatible(refutation) => {
            writeln!(out, "     {name} are refused at {}", refuted(refutation))
        }
        Outcome::Partial(lost) => lost.iter().try_for_each(|lost| {
            let shown = lost.refutation.as_ref().map(witness).unwrap_or_default();
            let (path, feature) = (one_line(&lost.path), one_line(&lost.feature.to_string()));
            writeln!(out, "     {name} lose {path}: {feature}{shown}")
        }),
    };
}

fn refuted(refutation: &Refutation) -> String {
    let Refutation { path, rule, .. } = refutation;
    format!("{} ({}){}", one_line(path), one_line(rule), witness(refutation))
}

fn witness(refutation: &Refutation) -> String {
    let mut text = one_line(&refutation.witness.to_string());
    if text.len() > WITNESS_BYTES_MAX {
        text.truncate(text.floor_char_boundary(WITNESS_BYTES_MAX));
        text.push('…');
    }
    format!(", such as {text}")
}

/// A declaration as JSON.
pub(super) fn held_json(held: &Held) -> Value {
    json!({"id": held.id.to_string(), "source": held.source})
}

/// Longest witness that is shown to people; `--json` has it whole.
const WITNESS_BYTES_MAX: usize = 240;
