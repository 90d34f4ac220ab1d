//! `capctl gen`: from a file, from a fleet's folder and from a sidecar; what is written, shown and refused.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const REVIEWER: &str = include_str!("../codegen/declarations/pr-reviewer.yaml");
const GOLDEN: &str = include_str!("../codegen/golden/typescript/pr-reviewer.ts");

/// Runs `capctl gen` in `dir`.
fn run(dir: &Path, sidecar: Option<&Sidecar>, line: &[&str]) -> (i32, String, String) {
    let mut command: Command = capctl(sidecar.map(|sidecar| sidecar.socket.as_path()));
    let output = run_with(command.arg("gen").args(line).current_dir(dir), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

fn with_reviewer() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("capabilities.yaml"), REVIEWER).unwrap();
    dir
}

const FROM_FILE: [&str; 4] = ["--capabilities", "capabilities.yaml", "--lang", "typescript"];

#[test]
fn a_declaration_becomes_a_file_once_and_is_up_to_date_from_then_on() {
    let dir = with_reviewer();
    let (code, out, _) = run(dir.path(), None, &FROM_FILE);
    assert_eq!((code, out.as_str()), (0, "✓ wrote generated/pr-reviewer.ts (1 capability)\n"));
    let file = dir.path().join("generated/pr-reviewer.ts");
    assert_eq!(fs::read_to_string(&file).unwrap(), GOLDEN);
    assert_eq!(fs::read_dir(dir.path().join("generated")).unwrap().count(), 1);
    let (code, out, _) = run(dir.path(), None, &FROM_FILE);
    assert_eq!((code, out.as_str()), (0, "✓ generated/pr-reviewer.ts is up to date (1 capability)\n"));
    for (language, file) in
        [("python", "pr_reviewer.py"), ("go", "prreviewer/prreviewer.go"), ("rust", "pr_reviewer.rs")]
    {
        let line = ["--capabilities", "capabilities.yaml", "--lang", language, "--out", "src/gen"];
        let (code, out, _) = run(dir.path(), None, &line);
        assert_eq!((code, out), (0, format!("✓ wrote src/gen/{file} (1 capability)\n")));
    }
}

#[test]
fn check_writes_nothing_shows_the_difference_and_ends_with_1() {
    let dir = with_reviewer();
    let check = [&FROM_FILE[..], &["--check"]].concat();
    let (code, out, errors) = run(dir.path(), None, &check);
    assert_eq!((code, errors.as_str()), (1, ""));
    assert!(out.starts_with("--- /dev/null\n+++ generated/pr-reviewer.ts\n@@ -0,0 +1,"), "{out}");
    assert!(!dir.path().join("generated").exists());
    run(dir.path(), None, &FROM_FILE);
    assert_eq!(run(dir.path(), None, &check).0, 0);
    let changed = REVIEWER.replace("enum: [low, med, high]", "enum: [low, high]");
    fs::write(dir.path().join("capabilities.yaml"), changed).unwrap();
    let (code, out, _) = run(dir.path(), None, &check);
    assert_eq!(code, 1);
    assert!(
        out.contains("\n-  severity: \"low\" | \"med\" | \"high\";\n+  severity: \"low\" | \"high\";\n"),
        "{out}"
    );
    assert_eq!(fs::read_to_string(dir.path().join("generated/pr-reviewer.ts")).unwrap(), GOLDEN);
    let (code, out, _) = run(dir.path(), None, &[&check[..], &["--json"]].concat());
    let document: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &document["files"][0]["changed"]), (1, &true.into()));
    assert!(
        document["files"][0]["diff"].as_str().unwrap().starts_with("--- generated/pr-reviewer.ts\n"),
        "{document}"
    );
}

#[test]
fn json_says_what_was_written_from_what() {
    let dir = with_reviewer();
    let (code, out, _) = run(dir.path(), None, &[&FROM_FILE[..], &["--json"]].concat());
    let expected = serde_json::json!({"language": "typescript", "files": [{
        "agent": "agent://pr-reviewer",
        "capabilities": ["agent.pr-reviewer.review-pr:1.0.0"],
        "changed": true,
        "path": "generated/pr-reviewer.ts",
    }]});
    assert_eq!((code, serde_json::from_str::<serde_json::Value>(&out).unwrap()), (0, expected));
}

#[test]
fn a_peer_of_the_fleet_is_read_from_its_folder_without_a_sidecar() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("agents/pr-reviewer")).unwrap();
    fs::write(dir.path().join("agents/pr-reviewer/capabilities.yaml"), REVIEWER).unwrap();
    for name in ["pr-reviewer", "agent://pr-reviewer"] {
        let (code, _, errors) = run(dir.path(), None, &["--lang", "typescript", "--peer", name]);
        assert_eq!((code, errors.as_str()), (0, ""), "{name}");
    }
    assert_eq!(fs::read_to_string(dir.path().join("generated/pr-reviewer.ts")).unwrap(), GOLDEN);
}

#[test]
fn what_cannot_be_generated_is_refused_with_a_way_out() {
    let dir = with_reviewer();
    fs::write(dir.path().join("broken.yaml"), REVIEWER.replace("type: string }", "type: strin }")).unwrap();
    fs::write(dir.path().join("hostile.yaml"), REVIEWER.replace("agent://pr-reviewer", "agent://../../x"))
        .unwrap();
    fs::write(dir.path().join("none.yaml"), "version: 1\ncapabilities: []\n").unwrap();
    let large = REVIEWER.replace("type: object", "type: object\n      maxProperties: 9007199254740993");
    let large = large.replace("review-pr\n", "review-pr\n    schemaProfile: full\n");
    fs::write(dir.path().join("large.yaml"), large).unwrap();
    fs::write(dir.path().join("taken"), "").unwrap();
    for (line, said) in [
        (&["--capabilities", "gone.yaml"][..], "gone.yaml"),
        (&["--capabilities", "broken.yaml"], "strin"),
        (&["--capabilities", "hostile.yaml"], "is no agent"),
        (&["--capabilities", "none.yaml"], "declares no capability"),
        (&["--capabilities", "large.yaml"], "2^53"),
        (
            &["--capabilities", "capabilities.yaml", "review"],
            "declared are agent.pr-reviewer.review-pr:1.0.0",
        ),
        (&["--capabilities", "capabilities.yaml", "--peer", "x"], "--peer"),
        (&["--capabilities", "capabilities.yaml", "--out", "taken"], "--out names another folder"),
    ] {
        let (code, out, errors) = run(dir.path(), None, &[line, &["--lang", "go"]].concat());
        let exit = if said.starts_with("declared are") { 3 } else { 2 };
        assert_eq!((code, out.as_str()), (exit, ""), "{line:?}\n{errors}");
        assert!(errors.contains(said), "{line:?}\n{errors}");
    }
    let (code, _, errors) = run(dir.path(), None, &["--lang", "java"]);
    assert!(code == 2 && errors.contains("typescript, python, go, rust"), "{errors}");
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        ["broken.yaml", "capabilities.yaml", "hostile.yaml", "large.yaml", "none.yaml", "taken"]
    );
}

#[test]
fn a_sidecar_tells_the_same_of_its_agents_as_their_files() {
    let served = REVIEWER.replace("    idempotent: true\n", "    idempotent: true\n    command: [cat]\n");
    let reviewer = Setup::new().capabilities(&served).start();
    let caller = Setup::new().peer(&reviewer).start();
    let dir = tempfile::tempdir().unwrap();
    for line in [
        &[][..],
        &["--peer", "pr-reviewer"],
        &["--peer", &reviewer.did],
        &["--peer", &reviewer.did[reviewer.did.len() - 8..]],
        &["review-pr"],
        &["agent.pr-reviewer.review-pr:1.0.0"],
    ] {
        let _ = fs::remove_dir_all(dir.path().join("generated"));
        let (code, out, errors) = run(dir.path(), Some(&caller), &[line, &["--lang", "typescript"]].concat());
        assert_eq!((code, errors.as_str()), (0, ""), "{line:?}");
        assert_eq!(out, "✓ wrote generated/pr-reviewer.ts (1 capability)\n", "{line:?}");
        assert_eq!(
            fs::read_to_string(dir.path().join("generated/pr-reviewer.ts")).unwrap(),
            GOLDEN,
            "{line:?}"
        );
    }
    for (line, said) in [
        (&["--peer", "somebody"][..], "knows nothing of \"somebody\""),
        (&["--peer", "pr-reviewer", "lint"], "does not declare lint"),
        (&["lint"], "nobody declares lint"),
    ] {
        let (code, _, errors) = run(dir.path(), Some(&caller), &[line, &["--lang", "typescript"]].concat());
        assert_eq!(code, 3, "{line:?}");
        assert!(errors.contains(said) && errors.contains("capctl ls"), "{line:?}\n{errors}");
    }
}
