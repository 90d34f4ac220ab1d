//! The public JSON Schema suite in, each case over CBOR bytes; every verdict that differs is listed here with its reason.
//!
//! Run with `CAPD_SUITES=DIR cargo test --test suites_json_schema`.

#![allow(clippy::unwrap_used, reason = "a test target's helper functions; a panic is its failure")]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use capd::schema::{CompileError, Side, Validator};
use capd_proto::cbor;
use serde_json::Value;

/// Verdicts that differ for one reason.
struct Difference {
    file: &'static str,
    /// What the descriptions of the tests contain.
    tests: &'static str,
    /// Our verdict.
    fits: bool,
    drafts: &'static [&'static str],
    reason: &'static str,
}

const DIFFERENCES: &[Difference] = &[Difference {
    file: "format.json",
    tests: "is only an annotation by default",
    fits: false,
    drafts: &["draft2020-12"],
    reason: "formats are asserted under both drafts: a contract that is not checked is none",
}];

/// Documents that are not loaded for one reason.
struct Refusal {
    draft: &'static str,
    /// What the refusals say.
    says: &'static str,
    /// How many cases.
    count: usize,
    reason: &'static str,
}

const REFUSALS: &[Refusal] = &[
    Refusal {
        draft: "draft7",
        says: "is no format that is enforced",
        count: 6,
        reason: "a format that nobody checks is no contract; those of international names need tables left out of the build",
    },
    Refusal {
        draft: "draft2020-12",
        says: "is no format that is enforced",
        count: 6,
        reason: "a format that nobody checks is no contract; those of international names need tables left out of the build",
    },
    Refusal {
        draft: "draft7",
        says: "is no keyword",
        count: 1,
        reason: "an unknown keyword is a misspelt one, or one that nobody checks",
    },
    Refusal {
        draft: "draft2020-12",
        says: "is no keyword",
        count: 5,
        reason: "an unknown keyword is a misspelt one, or one that nobody checks",
    },
    Refusal {
        draft: "draft7",
        says: "leads outside the document",
        count: 2,
        reason: "metaschemas are documents of their own",
    },
    Refusal {
        draft: "draft2020-12",
        says: "leads outside the document",
        count: 2,
        reason: "metaschemas are documents of their own",
    },
    Refusal {
        draft: "draft2020-12",
        says: "leads to something that is no schema",
        count: 1,
        reason: "what stands under examples is a value, and nobody has looked at it as a schema",
    },
    Refusal {
        draft: "draft7",
        says: "no effect beside $ref",
        count: 1,
        reason: "draft-07 ignores it, so that it would not be enforced",
    },
    Refusal {
        draft: "draft2020-12",
        says: "checks nothing",
        count: 4,
        reason: "2020-12 has the content keywords as remarks",
    },
];

/// Where the suite keeps schemas that its cases fetch; nothing is ever fetched here (PROTOCOL 7.2).
const REMOTE: &str = "http://localhost:1234";

struct Outcome {
    file: String,
    case: String,
    test: String,
    /// Our verdict, or why there is none.
    verdict: Result<bool, CompileError>,
}

impl Difference {
    fn is(&self, draft: &str, outcome: &Outcome) -> bool {
        let verdict = outcome.verdict.as_ref() == Ok(&self.fits);
        verdict
            && self.drafts.contains(&draft)
            && self.file == outcome.file
            && outcome.test.contains(self.tests)
    }
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("the suite's folder is there")
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            files(&entry, out);
        } else if entry.extension().is_some_and(|extension| extension == "json") {
            out.push(entry);
        }
    }
}

fn run(draft: &str, uri: &str) {
    let suites = std::env::var("CAPD_SUITES").expect("CAPD_SUITES names the folder of the public suites");
    let root = Path::new(&suites).join("json-schema").join(draft);
    let mut paths = Vec::new();
    files(&root, &mut paths);
    let (mut passed, mut remote, mut unlike) = (0, 0, Vec::new());
    for path in paths {
        let file = path.strip_prefix(&root).unwrap().display().to_string();
        let cases: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for case in cases.as_array().unwrap() {
            let description = case["description"].as_str().unwrap();
            let mut schema = case["schema"].clone();
            if let Some(members) = schema.as_object_mut() {
                members.entry("$schema").or_insert_with(|| uri.into());
            }
            let text = schema.to_string();
            let outcome = |test: &Value, verdict| Outcome {
                file: file.clone(),
                case: description.to_owned(),
                test: test.as_str().unwrap_or_default().to_owned(),
                verdict,
            };
            let validator = match Validator::compile(text.as_bytes()) {
                Ok(validator) => validator,
                Err(_) if text.contains(REMOTE) => {
                    remote += 1;
                    continue;
                }
                Err(error) => {
                    unlike.push(outcome(&Value::Null, Err(error)));
                    continue;
                }
            };
            for test in case["tests"].as_array().unwrap() {
                let mut payload = Vec::new();
                cbor::json::from_json(&test["data"], &mut payload);
                cbor::check(&payload).unwrap();
                let fits = validator.validate(&payload, Side::Response).is_ok();
                if fits == test["valid"].as_bool().unwrap() {
                    passed += 1;
                } else {
                    unlike.push(outcome(&test["description"], Ok(fits)));
                }
            }
        }
    }
    println!(
        "{draft}: {passed} verdicts alike, {} listed, {remote} cases with remote references left out",
        unlike.len()
    );
    assert!(passed > 1_000, "the suite is smaller than it should be");
    let mut unlisted = String::new();
    for refusal in REFUSALS.iter().filter(|refusal| refusal.draft == draft) {
        let is = |outcome: &Outcome| {
            outcome.verdict.as_ref().is_err_and(|error| error.to_string().contains(refusal.says))
        };
        let count = unlike.iter().filter(|outcome| is(outcome)).count();
        assert_eq!(
            count, refusal.count,
            "{draft}: cases refused with {:?}: {}",
            refusal.says, refusal.reason
        );
        unlike.retain(|outcome| !is(outcome));
    }
    for outcome in unlike.iter().filter(|outcome| !DIFFERENCES.iter().any(|listed| listed.is(draft, outcome)))
    {
        let Outcome { file, case, test, verdict } = outcome;
        writeln!(unlisted, "{file} | {case} | {test} | {verdict:?}").unwrap();
    }
    assert!(unlisted.is_empty(), "verdicts that differ and are not listed:\n{unlisted}");
    for listed in DIFFERENCES.iter().filter(|listed| listed.drafts.contains(&draft)) {
        let is_needed = unlike.iter().any(|outcome| listed.is(draft, outcome));
        assert!(is_needed, "{}: nothing differs any longer because {}", listed.file, listed.reason);
    }
}

#[test]
fn draft_07_verdicts_over_cbor_are_the_suite_s() {
    run("draft7", "http://json-schema.org/draft-07/schema#");
}

#[test]
fn draft_2020_12_verdicts_over_cbor_are_the_suite_s() {
    run("draft2020-12", "https://json-schema.org/draft/2020-12/schema");
}
