//! Draws `matrix`: every version of a capability in; which callers fit which providers out. **Source:** seed revision
//! 3.2.

use std::fmt::Write as _;

use capd::schema::compat::{self, Compatibility, Verdict};
use serde_json::json;

use super::operand::{Held, Operands};
use super::report;
use crate::args::MatrixArgs;
use crate::failure::Failure;
use crate::{Sidecar, output};

/// Draws the matrix of a capability: all versions that the sidecar knows, or those of the files given.
pub(crate) async fn matrix(sidecar: &Sidecar, args: MatrixArgs, json: bool) -> Result<(), Failure> {
    let held = collect(sidecar, &args).await?;
    let name = held[0].id.name.clone();
    if let Some(other) = held.iter().find(|held| held.id.name != name) {
        return Err(Failure::usage(format!(
            "a matrix has one capability, and these are {name} and {}",
            other.id.name
        ))
        .hint("name one of them: capctl matrix FILE#NAME"));
    }
    if held.len() > VERSIONS_MAX {
        return Err(Failure::usage(format!("{} versions; a matrix has at most {VERSIONS_MAX}", held.len()))
            .hint("name the versions that matter: capctl matrix FILE#NAME:VERSION ..."));
    }
    let rows: Vec<Vec<Compatibility>> = held
        .iter()
        .map(|caller| {
            held.iter().map(|provider| compat::compare(&caller.contract, &provider.contract)).collect()
        })
        .collect();
    if json {
        let cells = held.iter().zip(&rows).flat_map(|(caller, row)| {
            held.iter().zip(row).map(move |(provider, found)| {
                let mut cell = found.json();
                cell["caller"] = report::held_json(caller);
                cell["provider"] = report::held_json(provider);
                cell
            })
        });
        let versions: Vec<_> = held.iter().map(report::held_json).collect();
        let cells: Vec<_> = cells.collect();
        return output::print_json(
            &json!({"capability": name.as_str(), "versions": versions, "cells": cells}),
        );
    }
    let verdicts: Vec<Vec<Verdict>> =
        rows.iter().map(|row| row.iter().map(Compatibility::verdict).collect()).collect();
    output::print(&format!("{}\n{LEGEND}", draw(&labels(&held), &verdicts)))
}

/// The declarations, oldest first, those that say the same under one id once.
async fn collect(sidecar: &Sidecar, args: &MatrixArgs) -> Result<Vec<Held>, Failure> {
    let mut operands = Operands::new(sidecar);
    let mut held: Vec<Held> = Vec::new();
    for text in &args.declarations {
        let found = match text.parse() {
            Ok(name) if !std::path::Path::new(text).is_file() => operands.known(&name).await?,
            Ok(_) | Err(_) => operands.all(text).await?.held,
        };
        for one in found {
            let is_known = |known: &Held| known.id == one.id && known.contract.is_same(&one.contract);
            if !held.iter().any(is_known) {
                held.push(one);
            }
        }
    }
    held.sort_by(|one, other| one.id.version.total_cmp(&other.id.version));
    if held.is_empty() { Err(Failure::usage("nothing is declared there")) } else { Ok(held) }
}

/// A version each, with its source where the version alone does not tell.
fn labels(held: &[Held]) -> Vec<String> {
    held.iter()
        .map(|one| {
            let alike = held.iter().filter(|other| other.id.version == one.id.version).count();
            if alike == 1 {
                return one.id.version.to_string();
            }
            let source = output::one_line(&one.source);
            let skipped = source.chars().count().saturating_sub(SOURCE_CHARS_MAX);
            let end: String = source.chars().skip(skipped).collect();
            format!("{} {}{end}", one.id.version, if skipped > 0 { "…" } else { "" })
        })
        .collect()
}

/// The matrix with a row for each caller and a column for each provider.
fn draw(labels: &[String], verdicts: &[Vec<Verdict>]) -> String {
    let callers: Vec<_> = labels.iter().map(|label| format!("Client {label}")).collect();
    let providers: Vec<_> = labels.iter().map(|label| format!("Provider {label}")).collect();
    let width = |text: &str| text.chars().count();
    let first = callers.iter().map(|text| width(text)).max().unwrap_or(0).max(width(CORNER));
    let widths: Vec<_> = std::iter::once(first).chain(providers.iter().map(|text| width(text))).collect();
    let line = |left: &str, between: &str, right: &str| {
        let bars: Vec<_> = widths.iter().map(|width| "─".repeat(width + 2)).collect();
        format!("{left}{}{right}\n", bars.join(between))
    };
    let mut out = line("┌", "┬", "┐");
    let _ = write!(out, "│ {CORNER:<first$} │");
    for text in &providers {
        let _ = write!(out, " {text} │");
    }
    out.push('\n');
    out += &line("├", "┼", "┤");
    for (caller, row) in callers.iter().zip(verdicts) {
        let _ = write!(out, "│ {caller:<first$} │");
        for (verdict, width) in row.iter().zip(&widths[1..]) {
            // A sign takes two columns of a terminal, the question mark one.
            let columns = if *verdict == Verdict::Unknown { 1 } else { 2 };
            let before = (width + 2 - columns) / 2;
            let after = width + 2 - columns - before;
            let _ = write!(out, "{:before$}{}{:after$}│", "", report::sign(*verdict), "");
        }
        out.push('\n');
    }
    out + &line("└", "┴", "┘")
}

const CORNER: &str = "Requester";
const LEGEND: &str = "\
✅ = Full compatibility
⚠️ = Partial compatibility (some features unavailable)
❌ = Incompatible
?  = Not decided, or a schema is not known; capctl diff says more of each pair
";
/// Most versions of one matrix.
const VERSIONS_MAX: usize = 64;
/// Most characters of a source in a label: the end of it.
const SOURCE_CHARS_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_revisions_matrix_is_drawn() {
        use Verdict::{Full, Incompatible, Partial, Unknown};
        let labels = ["1.0", "1.5", "2.0"].map(str::to_owned);
        let verdicts =
            [vec![Full, Full, Partial], vec![Incompatible, Full, Full], vec![Incompatible, Partial, Unknown]];
        assert_eq!(
            draw(&labels, &verdicts),
            "\
┌────────────┬──────────────┬──────────────┬──────────────┐
│ Requester  │ Provider 1.0 │ Provider 1.5 │ Provider 2.0 │
├────────────┼──────────────┼──────────────┼──────────────┤
│ Client 1.0 │      ✅      │      ✅      │      ⚠️      │
│ Client 1.5 │      ❌      │      ✅      │      ✅      │
│ Client 2.0 │      ❌      │      ⚠️      │      ?       │
└────────────┴──────────────┴──────────────┴──────────────┘
"
        );
    }
}
