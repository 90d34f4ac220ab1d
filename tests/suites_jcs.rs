//! The public RFC 8785 test data in; each input's canonical form is the output beside it.
//!
//! Run with `CAPD_SUITES=DIR cargo test --test suites_jcs`.

#![allow(clippy::unwrap_used, reason = "a test target's helper functions; a panic is its failure")]

use std::path::Path;

use capd::schema::hash::canonical;

#[test]
fn each_input_has_its_output() {
    let suites = std::env::var("CAPD_SUITES").expect("CAPD_SUITES names the folder of the public suites");
    let root = Path::new(&suites).join("jcs");
    let mut names: Vec<_> =
        std::fs::read_dir(root.join("input")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert!(names.len() >= 6, "the suite is smaller than it should be");
    for name in names {
        let read = |folder: &str| std::fs::read(root.join(folder).join(&name)).unwrap();
        let written = canonical(&read("input")).unwrap();
        let expected = read("output");
        let [written, expected] = [&written[..], expected.trim_ascii_end()].map(String::from_utf8_lossy);
        assert_eq!(written, expected, "{}", name.display());
    }
}
