//! The test vectors of RFC 8949 (cbor-wg/cbor-test-vectors), held against the reader and the deterministic writer.
//!
//! Not part of a plain `cargo test`: the files stand beside the project. Run with their folder in the environment:
//! `CAPD_SUITES=<folder> cargo test -p capd-proto --test suites_cbor`.

use std::path::PathBuf;

use capd_proto::cbor::{self, Reader};

/// Vectors on which we differ from the suite, by description, and why.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "date: unexpected object instead of offset",
        "what a tag holds is for the CDDL rule; the reader takes any item",
    ),
    ("date: unexpected object instead of string", "as above"),
    ("array: deeply-nested", "deeper than the 64 of PROTOCOL 5"),
    ("map: deeply-nested key", "as above"),
    ("map: deeply-nested value", "as above"),
];

struct Vector {
    description: String,
    encoded: Vec<u8>,
    fails: bool,
    /// The suite says that encoding what was decoded gives the same bytes.
    round_trips: bool,
}

fn vectors(file: &str) -> Vec<Vector> {
    let folder = std::env::var_os("CAPD_SUITES").expect("CAPD_SUITES names the folder of the public suites");
    let path = PathBuf::from(folder).join("cbor").join(file);
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // The files are CBOR, and hold what generic decoders choke on: unassigned simple values, deep nesting.
    let mut reader = Reader::new(&bytes);
    let (mut fails, mut out) = (false, Vec::new());
    let mut fields = reader.map().expect("the suite is a map");
    while reader.has_next(&mut fields) {
        match reader.text().expect("its keys are texts").as_ref() {
            "fail" => fails = reader.bool().expect("a flag"),
            "tests" => {
                let mut tests = reader.array().expect("the tests are an array");
                while reader.has_next(&mut tests) {
                    out.push(vector(&mut reader));
                }
            }
            _ => _ = reader.skip().expect("well-formed"),
        }
    }
    out.iter_mut().for_each(|vector| vector.fails |= fails);
    out
}

fn vector(reader: &mut Reader<'_>) -> Vector {
    let mut vector =
        Vector { description: String::new(), encoded: Vec::new(), fails: false, round_trips: true };
    let mut fields = reader.map().expect("a test is a map");
    while reader.has_next(&mut fields) {
        match reader.text().expect("its keys are texts").as_ref() {
            "description" => vector.description = reader.text().expect("a text").into_owned(),
            "encoded" => vector.encoded = reader.bytes().expect("bytes").into_owned(),
            "fail" => vector.fails = reader.bool().expect("a flag"),
            "roundtrip" => vector.round_trips = reader.bool().expect("a flag"),
            _ => _ = reader.skip().expect("well-formed"),
        }
    }
    vector
}

fn hold(file: &str, at_least: usize) {
    let vectors = vectors(file);
    assert!(vectors.len() >= at_least, "{file}: {} vectors", vectors.len());
    let mut wrong = Vec::new();
    for vector in vectors {
        let Vector { description, encoded, fails, round_trips } = vector;
        let listed = DIFFERENT.iter().any(|(known, _)| *known == description);
        let verdict = cbor::check(&encoded);
        if (verdict.is_err() == fails) == listed {
            wrong.push(format!("{description}: {encoded:02x?}: {verdict:?}"));
        }
        if fails || verdict.is_err() {
            continue;
        }
        let mut written = Vec::new();
        cbor::deterministic(&encoded, &mut written).expect("what was accepted can be written");
        if round_trips && written != encoded {
            wrong.push(format!("{description}: {encoded:02x?} is written as {written:02x?}"));
        }
        assert!(cbor::is_deterministic(&written), "{description}: {written:02x?}");
    }
    assert!(wrong.is_empty(), "{file}: {wrong:#?}");
}

#[test]
fn what_rfc_8949_calls_bad_is_refused() {
    hold("rfc8949/bad.cbor", 30);
}

#[test]
fn what_rfc_8949_calls_good_is_accepted_and_written_shortest() {
    hold("rfc8949/good.cbor", 30);
}

#[test]
fn the_examples_of_appendix_a_are_accepted_and_written_as_they_stand() {
    for file in ["mt0", "mt1", "mt2", "mt3", "mt4", "mt5", "mt6", "mt7-float", "mt7-simple", "streaming"] {
        hold(&format!("rfc8949-appendixA/{file}.cbor"), 2);
    }
}
