//! The kept corpora of the fuzz targets of package `capd` in; their claims hold on the stable toolchain.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

#[path = "../fuzz/bodies/config.rs"]
mod config;
#[path = "../fuzz/bodies/declaration.rs"]
mod declaration;
#[path = "../fuzz/bodies/policy_tables.rs"]
mod policy_tables;
#[path = "../fuzz/bodies/schema_pair.rs"]
mod schema_pair;

use std::path::Path;

fn replay(target: &str, body: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| body(&bytes)) {
            eprintln!("with {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
    body(b"");
}

#[test]
fn config_claims_hold_on_the_corpus() {
    replay("config", config::run);
}

#[test]
fn policy_table_claims_hold_on_the_corpus() {
    replay("policy_tables", policy_tables::run);
}

#[test]
fn declaration_claims_hold_on_the_corpus() {
    replay("declaration", declaration::run);
}

#[test]
fn schema_pair_claims_hold_on_the_corpus() {
    replay("schema_pair", schema_pair::run);
}
