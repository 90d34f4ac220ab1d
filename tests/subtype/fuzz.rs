//! The kept corpora of the fuzz targets `subtype` and `schema_load` in; their claims hold on the stable toolchain.
//!
//! What the fuzzer finds becomes a file in `fuzz/corpus/`, and a pair with its true answer in `pairs.jsonl`.

#[path = "../../fuzz/bodies/subtype.rs"]
mod body;
#[path = "../../fuzz/bodies/schema_load.rs"]
mod load;

use std::path::Path;

use super::{generate, support, values};

fn replay(target: &str, run: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| run(&bytes)) {
            eprintln!("with {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
    run(b"");
}

#[test]
fn subtype_claims_hold_on_the_corpus() {
    replay("subtype", body::run);
}

#[test]
fn loading_claims_hold_on_the_corpus() {
    replay("schema_load", load::run);
}
