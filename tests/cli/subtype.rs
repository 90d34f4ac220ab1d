//! Schemas in files and lines; verdicts, exit codes and the places of faults out.

use serde_json::{Value, json};

use crate::support::{capctl, exit_code, run_with, stderr, stdout};

/// Files in a folder of their own, and what `capctl subtype` says there.
struct Desk(tempfile::TempDir);

impl Desk {
    fn with(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Self(dir)
    }

    #[track_caller]
    fn run(&self, line: &[&str], input: &[u8]) -> (i32, String, String) {
        let output = run_with(capctl(None).current_dir(self.0.path()).arg("subtype").args(line), input);
        (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
    }
}

#[test]
fn each_verdict_has_its_exit_code_and_its_document() {
    let desk = Desk::with(&[
        ("int.json", r#"{"type": "integer"}"#),
        ("num.json", r#"{"type": "number"}"#),
        ("word.json", r#"{"pattern": "\\bx"}"#),
    ]);
    for (line, code, verdict) in [
        (&["int.json", "num.json"][..], 0, json!({"verdict": "proven"})),
        (
            &["num.json", "int.json"],
            4,
            json!({"verdict": "refuted", "witness": 0.1, "path": "/", "rule": "type"}),
        ),
        (&["num.json", "num.json"], 0, json!({"verdict": "proven"})),
        (&["word.json", "word.json"], 0, json!({"verdict": "proven"})),
    ] {
        let line: Vec<_> = line.iter().chain(&["--json"]).copied().collect();
        let (found, out, errors) = desk.run(&line, b"");
        assert_eq!((found, errors.as_str()), (code, ""), "{line:?}\n{out}");
        assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), verdict, "{line:?}");
    }
    let (code, out, errors) = desk.run(&["-", "word.json", "--json"], br#"{"const": "x"}"#);
    assert_eq!((code, errors.as_str()), (7, ""), "{out}");
    let unknown = json!({"verdict": "unknown", "path": "/pattern", "rule": "pattern"});
    assert_eq!(serde_json::from_str::<Value>(&out).unwrap(), unknown);
}

#[test]
fn a_file_that_is_no_schema_is_named_with_the_place_of_its_fault() {
    let desk = Desk::with(&[
        ("good.json", "true"),
        ("typo.json", r#"{"properties": {"a/b": {"type": "text"}}}"#),
        ("text.json", "{\n  a: 1\n}"),
        ("large.json", &format!(r#"{{"description": "{}"}}"#, "x".repeat(256 * 1024))),
    ]);
    for (file, said) in [
        ("typo.json", "at /properties/a~1b/type"),
        ("text.json", "line 2"),
        ("large.json", "at most 262144 bytes"),
        ("none.json", "No such file"),
    ] {
        for line in [[file, "good.json"], ["good.json", file]] {
            let (code, out, errors) = desk.run(&line, b"");
            assert_eq!((code, out.as_str()), (2, ""), "{line:?}\n{errors}");
            assert!(errors.contains(file) && errors.contains(said), "{line:?}\n{errors}");
        }
    }
}

#[test]
fn lines_are_answered_one_by_one_and_bad_ones_named() {
    let long = format!(r#"{{"sub": "{}"}}"#, "x".repeat(600 * 1024));
    let lines = [
        r#"{"sub": {"const": 1.0}, "sup": {"type": "integer"}, "id": 7}"#,
        "",
        r#"{"sub": {"items": {"type": "text"}}, "sup": true}"#,
        r#"{"sub": true}"#,
        "{",
        &long,
        r#"{"sub": true, "sup": {"$schema": "http://json-schema.org/draft-04/schema#"}}"#,
        r#"{"sub": {"type": "array"}, "sup": {"maxItems": 1}}"#,
    ];
    let desk = Desk::with(&[("pairs.jsonl", &lines.join("\n"))]);
    let (code, out, errors) = desk.run(&["--pairs", "pairs.jsonl"], b"");
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("pairs.jsonl: line 3, at /sub/items/type"), "{errors}");
    assert!(errors.contains("and 4 more lines") && errors.contains(r#"{"sub": SCHEMA"#), "{errors}");
    let answers: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<_> = answers.iter().map(|answer| answer["verdict"].as_str().unwrap()).collect();
    assert_eq!(
        verdicts,
        ["proven", "unknown", "unknown", "unknown", "unknown", "unknown", "refuted"],
        "{out}"
    );
    for (at, path, said) in [
        (1, "/sub/items/type", "line 3"),
        (2, "/", "no \"sup\""),
        (3, "/", "line 5, at /: not JSON, column 1"),
        (4, "/", "longer than"),
        (5, "/sup", "draft-04"),
    ] {
        assert_eq!(answers[at]["path"], path, "{out}");
        assert!(answers[at]["error"].as_str().unwrap().contains(said), "{out}");
    }
    assert_eq!(answers[6]["rule"], "maxItems");
    assert!(answers[6]["witness"].as_array().unwrap().len() > 1, "{out}");
}

#[test]
fn lines_come_from_stdin_as_well_and_verdicts_alone_are_no_failure() {
    let desk = Desk::with(&[]);
    let lines = b"{\"sub\": true, \"sup\": false}\n{\"sub\": false, \"sup\": true}\n";
    let (code, out, errors) = desk.run(&["--pairs", "-"], lines);
    assert_eq!((code, errors.as_str()), (0, ""), "{out}");
    let verdicts: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&verdicts[0]["verdict"], &verdicts[1]["verdict"]), (&json!("refuted"), &json!("proven")));
    assert_eq!(desk.run(&["--pairs", "-"], b""), (0, String::new(), String::new()));
}

#[test]
fn a_witness_cannot_steer_the_terminal() {
    let desk = Desk::with(&[("a.json", r#"{"const": "\u009b2J"}"#), ("b.json", "false")]);
    let (code, out, _) = desk.run(&["a.json", "b.json"], b"");
    assert_eq!(code, 4);
    assert!(out.contains(r"\u009b") && !out.contains('\u{9b}'), "{out}");
}
