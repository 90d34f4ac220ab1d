//! The kept fuzz corpora in; every claim of every fuzz target holds on them, on the stable toolchain.
//!
//! A crash that the fuzzer finds becomes a file here (`fuzz/corpus/TARGET/`) and a named test beside the code at
//! fault.

use std::path::Path;

#[path = "../../fuzz/bodies/body.rs"]
mod body;
#[path = "../../fuzz/bodies/cbor.rs"]
mod cbor;
#[path = "../../fuzz/bodies/cddl.rs"]
mod cddl;
#[path = "../../fuzz/bodies/cursor.rs"]
mod cursor;
#[path = "../../fuzz/bodies/envelope.rs"]
mod envelope;
#[path = "../../fuzz/bodies/frame.rs"]
mod frame;
#[path = "../../fuzz/bodies/ledger_model.rs"]
mod ledger_model;
#[path = "../../fuzz/bodies/link.rs"]
mod link;
#[path = "../../fuzz/bodies/range.rs"]
mod range;

fn replay(target: &str, body: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&dir).expect("the corpus is kept in the repository");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("the folder is readable").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus for {target}");
    for file in files {
        let bytes = std::fs::read(&file).expect("the file is readable");
        if let Err(panic) = std::panic::catch_unwind(|| body(&bytes)) {
            eprintln!("with {}", file.display());
            std::panic::resume_unwind(panic);
        }
    }
    body(b"");
}

#[test]
fn frame_claims_hold_on_the_corpus() {
    replay("frame", frame::run);
}

#[test]
fn cbor_claims_hold_on_the_corpus() {
    replay("cbor", cbor::run);
}

#[test]
fn link_claims_hold_on_the_corpus() {
    replay("link", link::run);
}

#[test]
fn ledger_model_claims_hold_on_the_corpus() {
    replay("ledger_model", ledger_model::run);
}

#[test]
fn envelope_claims_hold_on_the_corpus() {
    replay("envelope", envelope::run);
}

#[test]
fn body_claims_hold_on_the_corpus() {
    replay("body", body::run);
}

#[test]
fn cddl_claims_hold_on_the_corpus() {
    replay("cddl-differential", cddl::run);
}

#[test]
fn range_claims_hold_on_the_corpus() {
    replay("range", range::run);
}

#[test]
fn cursor_claims_hold_on_the_corpus() {
    replay("cursor", cursor::run);
}
