//! Draws `matrix`: every version of a capability in; which callers fit which providers out. **Source:** seed revision
//! 3.2.

use std::fmt::Write as _;

use capd::schema::compat::{Compatibility, Verdict};
use serde_json::{Value, json};

use super::needed::Needed;
use super::operand::{self, Found, Held, Operands};
use super::report;
use crate::args::MatrixArgs;
use crate::capability::Wanted;
use crate::failure::Failure;
use crate::{Sidecar, output};

/// Draws the matrix of a capability: all versions that the sidecar knows, or those of the files given, and what requires
/// them there.
pub(crate) async fn matrix(sidecar: &Sidecar, args: MatrixArgs, json: bool) -> Result<(), Failure> {
    let Found { held, needed, .. } = collect(sidecar, &args).await?;
    let name = held[0].id.name.clone();
    let mut names = held.iter().map(|held| &held.id.name).chain(needed.iter().map(|needed| &needed.name));
    if let Some(other) = names.find(|other| **other != name) {
        return Err(Failure::usage(format!("a matrix has one capability, and these are {name} and {other}"))
            .hint("name one of them: capctl matrix FILE#NAME"));
    }
    if held.len() + needed.len() > VERSIONS_MAX {
        let versions = held.len() + needed.len();
        return Err(Failure::usage(format!("{versions} versions; a matrix has at most {VERSIONS_MAX}"))
            .hint("name the versions that matter: capctl matrix FILE#NAME:VERSION ..."));
    }
    let callers: Vec<_> = held.iter().map(Caller::Held).chain(needed.iter().map(Caller::Needed)).collect();
    let rows: Vec<Vec<Compatibility>> =
        callers.iter().map(|caller| held.iter().map(|provider| caller.compare(provider)).collect()).collect();
    if json {
        let cells = callers.iter().zip(&rows).flat_map(|(caller, row)| {
            held.iter().zip(row).map(move |(provider, found)| {
                let mut cell = found.json();
                cell["caller"] = caller.json();
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
    let providers = labels(&held);
    let clients = providers.iter().map(|label| format!("Client {label}"));
    let clients: Vec<_> = clients.chain(needed.iter().map(required_label)).collect();
    output::print(&format!("{}\n{LEGEND}", draw(&clients, &providers, &verdicts)))
}

/// A row of the matrix.
enum Caller<'a> {
    /// Built against a declaration.
    Held(&'a Held),
    /// Built against what it requires.
    Needed(&'a Needed),
}

impl Caller<'_> {
    fn compare(&self, provider: &Held) -> Compatibility {
        match self {
            Self::Held(held) => super::compared(&held.contract, &provider.contract),
            Self::Needed(needed) => needed.compare(provider),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Held(held) => report::held_json(held),
            Self::Needed(needed) => json!({"required": needed.json()}),
        }
    }
}

/// The declarations, oldest first, those that say the same under one id once.
async fn collect(sidecar: &Sidecar, args: &MatrixArgs) -> Result<Found, Failure> {
    let mut operands = Operands::new(sidecar);
    let mut all = Found::default();
    for text in &args.declarations {
        let is_meant = !operand::is_file(text) && !text.contains('/');
        let found = match Wanted::read(text, None) {
            // One version that peers declare in different ways is a column each.
            Ok(wanted) if is_meant => operands.known(&wanted).await?,
            Ok(_) | Err(_) => {
                let Found { held, needed, .. } = operands.all(text).await?;
                all.needed.extend(needed);
                held
            }
        };
        for one in found {
            let is_known = |known: &Held| known.id == one.id && known.contract.is_same(&one.contract);
            if !all.held.iter().any(is_known) {
                all.held.push(one);
            }
        }
    }
    all.held.sort_by(|one, other| one.id.version.total_cmp(&other.id.version));
    if all.held.is_empty() { Err(Failure::usage("nothing is declared there")) } else { Ok(all) }
}

/// What requires a capability: its range, and the end of its file's name.
fn required_label(needed: &Needed) -> String {
    let file = needed.place.file.display().to_string();
    let skipped = file.chars().count().saturating_sub(FILE_CHARS_MAX);
    let end: String = output::one_line(&file).chars().skip(skipped).collect();
    format!("{}{end} {}", if skipped > 0 { "…" } else { "" }, needed.versions())
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
fn draw(callers: &[String], providers: &[String], verdicts: &[Vec<Verdict>]) -> String {
    let providers: Vec<_> = providers.iter().map(|label| format!("Provider {label}")).collect();
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
/// Most characters of a file's name in a label: the end of it.
const FILE_CHARS_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_revisions_matrix_is_drawn() {
        use Verdict::{Full, Incompatible, Partial, Unknown};
        let labels = ["1.0", "1.5", "2.0"].map(str::to_owned);
        let clients = labels.clone().map(|label| format!("Client {label}"));
        let verdicts =
            [vec![Full, Full, Partial], vec![Incompatible, Full, Full], vec![Incompatible, Partial, Unknown]];
        assert_eq!(
            draw(&clients, &labels, &verdicts),
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
