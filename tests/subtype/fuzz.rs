//! The kept corpus of the fuzz target in; its claims hold on the stable toolchain.
//!
//! What the fuzzer finds becomes a file in `fuzz/corpus/subtype/`, and a pair with its true answer in `pairs.jsonl`.

#[path = "../../fuzz/bodies/subtype.rs"]
mod body;

use std::path::Path;

use super::{generate, support, values};

#[test]
fn subtype_claims_hold_on_the_corpus() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/subtype");
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        if let Err(panic) = std::panic::catch_unwind(|| body::run(&bytes)) {
            eprintln!("with {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
    body::run(b"");
}
