//! Reports a comparison of two declarations: verdicts in, text for people or JSON out.

use std::fmt::Write as _;

use capd::schema::compat::{Compatibility, Outcome, Verdict};
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
    for sentence in outcome.sentences(name) {
        let _ = writeln!(out, "     {}", one_line(&sentence));
    }
}

/// Adds what a caller cannot expect of a provider, a sentence each.
pub(super) fn broken(findings: &mut Vec<String>, caller: &str, found: &Compatibility) {
    for (name, outcome) in [("requests", &found.requests), ("results", &found.results)] {
        findings.extend(outcome.sentences(name).iter().map(|told| format!("{caller}: {}", one_line(told))));
    }
}

/// A declaration as JSON.
pub(super) fn held_json(held: &Held) -> Value {
    json!({"id": held.id.to_string(), "source": held.source})
}
