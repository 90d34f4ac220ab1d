//! Declarations in; who can use whom, what breaks, and which version it needs, out.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

/// A declaration of `org.example.review` in these versions, `version => (input, output)`.
fn declaration(versions: &[(&str, Value, Value)]) -> String {
    let capabilities: Vec<_> = versions
        .iter()
        .map(|(version, input, output)| {
            json!({"name": "review", "version": version, "idempotent": true, "command": ["cat"],
                   "inputSchema": input, "outputSchema": output})
        })
        .collect();
    json!({"version": 1, "namespace": "org.example", "capabilities": capabilities}).to_string()
}

fn takes(names: &[&str], required: &[&str]) -> Value {
    let properties: serde_json::Map<_, _> =
        names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn gives() -> Value {
    json!({"type": "object", "properties": {"issues": {"type": "array"}}, "required": ["issues"]})
}

/// 1.0.0 takes `code`, 1.1.0 a `language` too, and 2.0.0 needs it.
fn first() -> (&'static str, Value, Value) {
    ("1.0.0", takes(&["code"], &["code"]), gives())
}

fn wider() -> (&'static str, Value, Value) {
    ("1.1.0", takes(&["code", "language"], &["code"]), gives())
}

fn stricter() -> (&'static str, Value, Value) {
    ("2.0.0", takes(&["code", "language"], &["code", "language"]), gives())
}

#[track_caller]
fn run(dir: &Path, line: &[&str]) -> (i32, String, String) {
    let output = run_with(capctl(None).current_dir(dir).args(line), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

#[track_caller]
fn json_of(dir: &Path, exit: i32, line: &[&str]) -> Value {
    let (code, out, errors) = run(dir, line);
    assert_eq!(code, exit, "{line:?}\n{out}\n{errors}");
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

fn files(files: &[(&str, String)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

#[test]
fn diff_says_what_is_lost_or_refused_where_and_shows_it() {
    let dir = files(&[("all.yaml", declaration(&[first(), wider(), stricter()]))]);
    let line = ["diff", "--json", "all.yaml#review:1.0.0", "all.yaml#review:1.1.0"];
    let document = json_of(dir.path(), 0, &line);
    assert_eq!(document["a_calls_b"]["verdict"], "full");
    assert_eq!((&document["bump"], &document["declared_bump"]), (&json!("minor"), &json!("minor")));
    let lost = &document["b_calls_a"]["requests"]["lost"][0];
    assert_eq!((&lost["path"], &lost["kind"]), (&json!("/language"), &json!("property")), "{document}");
    assert_eq!(lost["refuted"]["rule"], "additionalProperties");
    assert!(lost["refuted"]["witness"]["language"].is_string(), "{document}");
    let line = ["diff", "--json", "all.yaml#review:1.1.0", "all.yaml#review:2.0.0"];
    let document = json_of(dir.path(), 0, &line);
    let requests = &document["a_calls_b"]["requests"];
    assert_eq!(requests["verdict"], "incompatible");
    assert_eq!((&requests["path"], &requests["rule"]), (&json!("/language"), &json!("required")));
    assert_eq!(document["bump"], "major");
}

#[test]
fn an_operand_that_names_several_says_how_to_name_one() {
    let dir = files(&[("all.yaml", declaration(&[first(), wider()]))]);
    let (code, out, errors) = run(dir.path(), &["diff", "all.yaml", "all.yaml"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(errors.contains("all.yaml#org.example.review:1.1.0"), "{errors}");
    let (code, _, errors) = run(dir.path(), &["diff", "all.yaml#review:3.0.0", "all.yaml"]);
    assert_eq!(code, 3);
    assert!(errors.contains("org.example.review:1.0.0"), "{errors}");
    let broken = declaration(&[("1.0.0", json!({"type": "text"}), gives())]);
    std::fs::write(dir.path().join("broken.yaml"), broken).unwrap();
    let (code, _, errors) = run(dir.path(), &["check", "broken.yaml"]);
    assert_eq!(code, 2);
    assert!(errors.contains("broken.yaml") && errors.contains("/type"), "{errors}");
}

#[test]
fn check_ends_with_4_when_somebody_is_not_served_in_full() {
    let dir = files(&[
        ("first.yaml", declaration(&[first()])),
        ("wider.yaml", declaration(&[wider()])),
        ("stricter.yaml", declaration(&[stricter()])),
    ]);
    let ends = |line: &[&str], exit: i32| {
        let (code, out, errors) = run(dir.path(), line);
        assert_eq!(code, exit, "{line:?}\n{out}{errors}");
    };
    ends(&["check", "first.yaml", "wider.yaml"], 0);
    ends(&["check", "first.yaml", "wider.yaml", "--mode", "forward"], 4);
    ends(&["check", "first.yaml", "wider.yaml", "--mode", "full"], 4);
    ends(&["check", "wider.yaml", "stricter.yaml"], 4);
    ends(&["check", "wider.yaml", "stricter.yaml", "--mode", "forward"], 0);
    // Against the last version, or against all.
    ends(&["check", "first.yaml", "wider.yaml", "stricter.yaml", "--mode", "forward"], 0);
    ends(&["check", "first.yaml", "wider.yaml", "stricter.yaml", "--mode", "forward", "--transitive"], 4);
    let line = ["check", "first.yaml", "wider.yaml", "stricter.yaml", "--transitive", "--json"];
    let document = json_of(dir.path(), 4, &line);
    assert_eq!((&document["ok"], document["checks"].as_array().unwrap().len()), (&json!(false), 2));
    assert_eq!(document["checks"][0]["old"]["id"], "org.example.review:1.0.0");
}

#[test]
fn a_version_that_goes_up_by_too_little_is_a_finding() {
    let (_, input, output) = wider();
    let dir = files(&[
        ("first.yaml", declaration(&[first()])),
        ("patch.yaml", declaration(&[("1.0.1", input.clone(), output.clone())])),
        ("same.yaml", declaration(&[("1.0.0", input.clone(), output.clone())])),
        ("back.yaml", declaration(&[("0.9.0", input, output)])),
    ]);
    for (name, says) in [
        ("patch.yaml", "needs a minor version, and this is a patch one"),
        ("same.yaml", "needs a minor version, and the version stays"),
        ("back.yaml", "needs a minor version, and the version goes back"),
    ] {
        let (code, out, _) = run(dir.path(), &["check", "first.yaml", name]);
        assert_eq!(code, 4, "{out}");
        assert!(out.contains("✅ full") && out.contains(says), "{out}");
    }
    let document = json_of(dir.path(), 4, &["check", "first.yaml", "patch.yaml", "--json"]);
    let check = &document["checks"][0];
    assert_eq!((&check["bump"], &check["bump_suffices"]), (&json!("minor"), &json!(false)));
}

#[test]
fn what_a_new_declaration_leaves_out_is_gone() {
    let other = declaration(&[first()]).replace("\"review\"", "\"other\"");
    let dir = files(&[("old.yaml", declaration(&[first()])), ("new.yaml", other)]);
    let (code, out, _) = run(dir.path(), &["check", "old.yaml", "new.yaml"]);
    assert_eq!(code, 4, "{out}");
    assert!(out.contains("org.example.review\n") && out.contains("gone"), "{out}");
    // One capability of it is not all that it declares.
    assert_eq!(run(dir.path(), &["check", "old.yaml", "new.yaml#other"]).0, 2);
}

#[test]
fn a_schema_that_is_not_known_is_unknown_and_not_kept() {
    let descriptor = |version: &str| {
        json!({"id": format!("org.example.review:{version}"), "input_schema": "https://example.org/in.json"})
            .to_string()
    };
    let dir = files(&[("old.json", descriptor("1.0.0")), ("new.json", descriptor("2.0.0"))]);
    let document = json_of(dir.path(), 4, &["check", "old.json", "new.json", "--json"]);
    let requests = &document["checks"][0]["backward"]["requests"];
    assert_eq!((&requests["verdict"], &requests["construct"]), (&json!("unknown"), &json!("schema")));
    assert!(requests["reason"].as_str().unwrap().contains("https://example.org/in.json"), "{document}");
}

#[test]
fn a_matrix_is_drawn_from_files_and_json_has_every_pair() {
    let dir = files(&[("all.yaml", declaration(&[stricter(), first(), wider()]))]);
    let (code, out, errors) = run(dir.path(), &["matrix", "all.yaml"]);
    assert_eq!(code, 0, "{errors}");
    let rows: Vec<_> = out.lines().filter(|line| line.starts_with("│ Client")).collect();
    let expected = [
        "│ Client 1.0.0 │       ✅       │       ✅       │       ❌       │",
        "│ Client 1.1.0 │       ⚠️       │       ✅       │       ❌       │",
        "│ Client 2.0.0 │       ❌       │       ✅       │       ✅       │",
    ];
    assert_eq!(rows, expected, "{out}");
    let document = json_of(dir.path(), 0, &["matrix", "all.yaml", "--json"]);
    assert_eq!(document["cells"].as_array().unwrap().len(), 9);
    assert_eq!(document["cells"][1]["provider"]["id"], "org.example.review:1.1.0");
}

fn serving(versions: &[(&str, Value, Value)], peers: &[&Sidecar]) -> Sidecar {
    let setup = Setup::new().capabilities(&declaration(versions));
    peers.iter().fold(setup, |setup, peer| setup.peer(peer)).start()
}

#[test]
fn the_registry_and_peers_are_asked_for_ids() {
    let b = serving(&[stricter()], &[]);
    let a = serving(&[first(), wider()], &[&b]);
    let of = |line: &[&str]| {
        let output = run_with(capctl(Some(&a.socket)).args(line), b"");
        (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
    };
    let theirs = format!("{}/org.example.review:2.0.0", b.did);
    let (code, out, errors) = of(&["diff", "org.example.review:1.1.0", &theirs, "--json"]);
    assert_eq!(code, 0, "{errors}");
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(document["b"]["source"], b.did);
    assert_eq!(document["a_calls_b"]["requests"]["path"], "/language");
    // The end of a DID is enough, and a peer that does not have it says so.
    let end = &b.did[b.did.len() - 8..];
    assert_eq!(of(&["check", "org.example.review:1.1.0", &format!("{end}/org.example.review:2.0.0")]).0, 4);
    let (code, _, errors) = of(&["diff", &format!("{end}/org.example.review:1.0.0"), &theirs]);
    assert_eq!(code, 3);
    assert!(errors.contains("does not declare org.example.review:1.0.0"), "{errors}");
    let (code, out, errors) = of(&["matrix", "org.example.review"]);
    assert_eq!(code, 0, "{errors}");
    assert!(out.contains("│ Client 1.1.0 │       ⚠️       │       ✅       │       ❌       │"), "{out}");
    // What describe prints can be kept, and read as a file.
    let kept = of(&["describe", "org.example.review:1.0.0", "--json"]).1;
    let dir = files(&[("kept.json", kept)]);
    let kept = dir.path().join("kept.json");
    let (code, out, errors) = of(&["diff", kept.to_str().unwrap(), "org.example.review:1.0.0"]);
    assert_eq!(code, 0, "{errors}");
    assert!(out.contains("the schemas are the same"), "{out}");
}

#[test]
fn one_id_in_two_forms_must_be_named_with_its_peer() {
    let (_, input, output) = wider();
    let b = serving(&[first()], &[]);
    let c = serving(&[("1.0.0", input, output)], &[]);
    let a = Setup::new().peer(&b).peer(&c).start();
    let run = |line: &[&str]| {
        let output = run_with(capctl(Some(&a.socket)).args(line), b"");
        (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
    };
    let id = "org.example.review:1.0.0";
    let (code, _, errors) = run(&["diff", id, id]);
    assert_eq!(code, 2);
    assert!(errors.contains("in different ways") && errors.contains(&format!("/{id}")), "{errors}");
    let [of_b, of_c] = [&b, &c].map(|peer| format!("{}/{id}", peer.did));
    let (code, out, errors) = run(&["check", &of_b, &of_c]);
    assert_eq!(code, 4, "{errors}");
    assert!(out.contains("needs a minor version, and the version stays"), "{out}");
    let (code, out, errors) = run(&["matrix", "org.example.review"]);
    assert_eq!(code, 0, "{errors}");
    assert_eq!(out.lines().filter(|line| line.starts_with("│ Client 1.0.0 …")).count(), 2, "{out}");
}

/// An agent that requires `org.example.review` in a range, with these schemas.
fn requiring(range: &str, input: Value, output: Value) -> String {
    let required = json!([{"name": "org.example.review", "version": range, "inputSchema": input, "outputSchema": output}]);
    json!({"version": 1, "namespace": "org.other", "requires": required}).to_string()
}

#[test]
fn what_an_agent_requires_is_a_side_of_check_diff_and_matrix() {
    let (_, input, output) = first();
    let dir = files(&[
        ("caller.yaml", requiring(">=1.0.0 <3.0.0", input.clone(), output.clone())),
        ("old.yaml", requiring(">=1.0.0 <2.0.0", input, output)),
        ("wider.yaml", declaration(&[wider()])),
        ("stricter.yaml", declaration(&[stricter()])),
        ("other.yaml", declaration(&[first()]).replace("\"review\"", "\"other\"")),
        ("elsewhere.yaml", declaration(&[first()]).replace("org.example", "org.elsewhere")),
    ]);
    let check = |line: &[&str], exit: i32| json_of(dir.path(), exit, &[&["check", "--json"], line].concat());
    // A provider's new declaration against what requires it, and what is newly required against a provider.
    for line in [["caller.yaml", "wider.yaml"], ["wider.yaml", "caller.yaml"]] {
        assert_eq!(check(&line, 0)["requires"][0]["provider"]["id"], "org.example.review:1.1.0");
    }
    for line in [["caller.yaml", "stricter.yaml"], ["stricter.yaml", "caller.yaml"]] {
        let met = &check(&line, 4)["requires"][0];
        assert_eq!((&met["ok"], &met["state"]), (&json!(false), &json!("compared")));
        assert_eq!(met["backward"]["requests"]["path"], "/language");
    }
    assert_eq!(check(&["old.yaml", "stricter.yaml"], 4)["requires"][0]["state"], "no version");
    assert_eq!(check(&["old.yaml", "other.yaml"], 4)["requires"][0]["state"], "gone");
    // Another agent's capabilities are not this one's affair, and then nothing is checked.
    assert_eq!(run(dir.path(), &["check", "old.yaml", "elsewhere.yaml"]).0, 2);
    let (code, out, errors) = run(dir.path(), &["diff", "old.yaml", "stricter.yaml"]);
    assert_eq!(code, 0, "{errors}");
    assert!(out.contains("❌ incompatible: what requires >=1.0.0 <2.0.0 with a provider of 2.0.0"), "{out}");
    assert!(out.contains("❌ version: 2.0.0 does not serve >=1.0.0 <2.0.0"), "{out}");
    let (code, out, errors) = run(dir.path(), &["matrix", "old.yaml", "wider.yaml", "stricter.yaml"]);
    assert_eq!(code, 0, "{errors}");
    let row = out
        .lines()
        .find(|line| line.starts_with("│ old.yaml >=1.0.0 <2.0.0 │"))
        .unwrap_or_else(|| panic!("{out}"));
    assert_eq!(row.matches('✅').count(), 1, "{out}");
    assert_eq!(row.matches('❌').count(), 1, "{out}");
}

#[test]
fn an_agent_that_declares_nothing_is_told_what_it_lacks() {
    let dir =
        files(&[("empty.yaml", json!({"version": 1, "namespace": "org.other", "requires": []}).to_string())]);
    let (code, _, errors) = run(dir.path(), &["diff", "empty.yaml", "empty.yaml"]);
    assert_eq!(code, 2);
    assert!(errors.contains("declares nothing and requires nothing"), "{errors}");
}

#[test]
fn findings_stand_beside_the_lines_that_they_are_about() {
    let (_, input, output) = first();
    let required =
        "version: 1\nnamespace: org.other\nrequires:\n- name: org.example.review\n  inputSchema: ".to_owned();
    let dir = files(&[
        ("caller.yaml", required + &input.to_string() + "\n  outputSchema: " + &output.to_string()),
        ("old.yaml", declaration(&[wider()])),
        ("new.yaml", declaration(&[stricter()])),
        ("gone.yaml", declaration(&[first()]).replace("\"review\"", "\"other\"")),
    ]);
    let annotated = |line: &[&str]| {
        let (code, out, errors) = run(dir.path(), &[&["check", "--format", "github"], line].concat());
        assert_eq!(code, 4, "{errors}");
        out.lines().filter(|line| line.starts_with("::error ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = annotated(&["old.yaml", "caller.yaml", "new.yaml"]);
    let [broken, unmet] = &lines[..] else { panic!("{lines:?}") };
    assert!(
        broken.starts_with(
            "::error file=new.yaml,line=1,title=org.example.review%3A2.0.0 breaks its callers::"
        ),
        "{broken}"
    );
    assert!(
        broken.contains("a caller of 1.1.0: requests are refused at /language (required), such as {"),
        "{broken}"
    );
    assert!(
        unmet.contains("does not meet what caller.yaml requires::what requires any version: "),
        "{unmet}"
    );
    let lines = annotated(&["caller.yaml", "gone.yaml"]);
    assert!(lines[0].starts_with("::error file=caller.yaml,line=4,title="), "{lines:?}");
    let lines = annotated(&["old.yaml", "gone.yaml"]);
    assert!(
        lines[0].starts_with("::error file=gone.yaml,line=1,title=org.example.review is gone::"),
        "{lines:?}"
    );
    assert_eq!(run(dir.path(), &["check", "--format", "github", "--json", "old.yaml", "new.yaml"]).0, 2);
}
