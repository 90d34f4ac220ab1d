//! The CDDL examples of cabo/cddlc, each with instances that it accepts (`;;+`) and refuses (`;;-`).
//!
//! Not part of a plain `cargo test`: the files stand beside the project. Run with their folder in the environment:
//! `CAPD_SUITES=<folder> cargo test -p capd-proto --test suites_cddl`.

#[path = "support/edn.rs"]
mod edn;

use std::path::PathBuf;

use capd_proto::cddl::{CompileError, Program};

/// Files that do not compile, and what the error has to name.
const REFUSED: &[(&str, &str)] = &[
    // An integer and a float, and a type of many values, are no bounds; the suite holds that nothing matches then.
    ("11-badrange.cddl", "a range wants two integers or two floats"),
    ("12-unspecrange.cddl", "a range wants two integers or two floats"),
    ("18-abnf.cddl", "`.abnf`"),
];

/// Instances on which we differ from the suite's label, and why.
const DIFFERENT: &[(&str, &str, &str)] = &[
    (
        "6-bigint.cddl",
        "1",
        "the prelude's bigint is tag 2 or 3; the suite takes plain integers as bignums as well",
    ),
    ("6-bigint.cddl", "0", "as above"),
    ("6-bigint.cddl", "-11", "as above"),
    (
        "16-feature.cddl",
        "4.0",
        "`.feature` matches what its target matches; the suite refuses features it was not told of",
    ),
    ("16a-feature.cddl", "4.0", "as above"),
];

fn suite() -> PathBuf {
    let folder = std::env::var_os("CAPD_SUITES").expect("CAPD_SUITES names the folder of the public suites");
    PathBuf::from(folder).join("cddl")
}

#[test]
fn instances_get_the_verdict_of_their_label() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(suite())
        .expect("the folder has a `cddl`")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "cddl"))
        .collect();
    files.sort();
    assert!(files.len() >= 30, "{} files", files.len());
    let mut wrong = Vec::new();
    let mut different = Vec::new();
    let mut judged = 0;
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let refused = REFUSED.iter().find(|(file, _)| *file == name);
        let program = match (Program::compile(&text), refused) {
            (Ok(program), None) => program,
            (Err(error), Some((_, names))) => {
                assert!(error.to_string().contains(names), "{name}: {error}");
                continue;
            }
            (verdict, _) => {
                wrong.push(format!("{name}: compiles: {:?}", verdict.map(|_| ())));
                continue;
            }
        };
        let root = text.split_whitespace().next().unwrap();
        let rule = program.rule(root).expect("the first rule is the root");
        for line in text.lines() {
            let Some((label, instance)) = line.strip_prefix(";;").and_then(|l| l.split_at_checked(1)) else {
                continue;
            };
            // `;;:` is a sample of what the suite's own tool generates.
            if label == ":" {
                continue;
            }
            let Some(bytes) = edn::try_edn(instance) else {
                assert!(
                    instance.trim().starts_with('/') && instance.trim().ends_with('/'),
                    "{name}: {instance}"
                );
                continue;
            };
            let matches = program.run(rule, &bytes).is_ok();
            judged += 1;
            let listed = DIFFERENT.iter().find(|(file, item, _)| *file == name && *item == instance.trim());
            match (matches == (label == "+"), listed) {
                (true, None) => {}
                (false, Some(known)) => different.push(*known),
                (true, Some(_)) => {
                    wrong.push(format!("{name}: {instance} is listed, but judged as labelled"))
                }
                (false, None) => {
                    wrong.push(format!("{name}: {label}{instance}: {:?}", program.run(rule, &bytes)))
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(different.len(), DIFFERENT.len(), "each listed difference was met: {different:?}");
    assert!(judged > 200, "{judged} instances");
}

#[test]
fn an_unsupported_control_is_refused_by_name() {
    let text = std::fs::read_to_string(suite().join("18-abnf.cddl")).expect("the suite has the file");
    assert!(
        matches!(Program::compile(&text), Err(CompileError::Unsupported { construct, .. }) if construct.contains("`.abnf`"))
    );
}
