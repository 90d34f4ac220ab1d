//! Implements `hash`: a declaration's file in; the hashes of its capabilities, of their lineages, and of the whole out.

use std::fmt::Display;
use std::path::Path;

use capd::daemon;
use capd::declaration::Declaration;
use serde_json::json;

use crate::args::HashArgs;
use crate::failure::Failure;
use crate::output;

/// Hashes a declaration.
///
/// **Errors:** usage, when the file or a schema cannot be read, or a schema is not of its profile.
pub(crate) fn run(args: &HashArgs, json: bool) -> Result<(), Failure> {
    let declaration = declaration(&args.file, args.no_validate)?;
    let hashes = daemon::hashes(&declaration).map_err(|error| Failure::usage(error.to_string()))?;
    if json {
        let capabilities: Vec<_> = hashes
            .capabilities
            .iter()
            .map(|hashed| {
                json!({
                    "id": hashed.id.to_string(),
                    "static_hash": hashed.static_hash.to_string(),
                    "lineage": hashed.lineage.to_string(),
                })
            })
            .collect();
        let toolkit = hashes.toolkit.to_string();
        return output::print_json(&json!({ "capabilities": capabilities, "toolkit": toolkit }));
    }
    let mut rows = Vec::new();
    for hashed in &hashes.capabilities {
        rows.push(vec!["static".to_owned(), named(&hashed.static_hash), hashed.id.to_string()]);
        rows.push(vec!["lineage".to_owned(), named(&hashed.lineage), hashed.id.to_string()]);
    }
    rows.push(vec!["toolkit".to_owned(), named(&hashes.toolkit), args.file.display().to_string()]);
    output::print_table(&output::table(&["KIND", "HASH", "OF"], &rows))
}

/// A hash as people see all of them: with its algorithm in front.
pub(crate) fn named(hash: &impl Display) -> String {
    format!("sha-256:{hash}")
}

/// Reads a declaration; its schemas are held to their profiles unless it is only looked at.
///
/// **Errors:** usage, with every mistake of the file, or the first schema that would not be enforced.
pub(crate) fn declaration(file: &Path, no_validate: bool) -> Result<Declaration, Failure> {
    let declaration = Declaration::load(file).map_err(|mistakes| Failure::usage(mistakes.to_string()))?;
    if !no_validate {
        daemon::check_schemas(&declaration).map_err(|error| {
            Failure::usage(error.to_string()).hint("--no-validate reads it for inspection only")
        })?;
    }
    Ok(declaration)
}
