use super::*;

fn found(code: &str, language: &str, context: Option<&str>) -> Vec<(usize, &'static str, Severity)> {
    let review = review(code, language, context);
    review.issues.into_iter().map(|issue| (issue.line, issue.rule, issue.severity)).collect()
}

fn rules(code: &str, language: &str) -> Vec<&'static str> {
    found(code, language, None).into_iter().map(|(_, rule, _)| rule).collect()
}

#[test]
fn clean_text_is_perfect() {
    let rust = "/// Adds.\npub fn add(a: u64, b: u64) -> Option<u64> {\n    a.checked_add(b)\n}\n";
    let review = review(rust, "rust", None);
    assert_eq!(review, Review { issues: vec![], suggestions: vec![], score: Some(100) });
}

#[test]
fn empty_text_is_no_crash() {
    for language in ["rust", "python", "js", "ts", "c", "sh", "text", ""] {
        assert_eq!(found("", language, None), []);
    }
}

#[test]
fn rust_panics_are_found_where_they_stand() {
    let code = "fn f() {\n    a.unwrap();\n    b.expect(\"c\");\n    todo!()\n}\n";
    assert_eq!(
        found(code, "rust", None),
        [
            (2, "rust-unwrap", Severity::Warning),
            (3, "rust-expect", Severity::Info),
            (4, "rust-panic", Severity::Warning)
        ]
    );
}

#[test]
fn comments_and_literals_are_not_code() {
    let rust = "// x.unwrap() unsafe {\nlet s = \"y.unwrap() unsafe { panic!()\"; /* dbg!(z) */\n";
    assert_eq!(rules(rust, "rust"), [""; 0]);
    assert_eq!(rules("x = 'eval(y) == None'  # eval(z)\n", "python"), [""; 0]);
    assert_eq!(rules("const s = 'eval(x) == 1'; // var y\n", "js"), [""; 0]);
    assert_eq!(rules("puts(\"gets(x)\"); /* strcpy(a, b) */\n", "c"), [""; 0]);
    assert_eq!(rules("#!/bin/sh\nset -e\necho 'rm -rf $x'  # eval\n", "sh"), [""; 0]);
}

#[test]
fn names_that_contain_a_word_are_not_that_word() {
    assert_eq!(rules("unwrap_all(x).unwrap_or(0); unsafe_name = 1;\n", "rust"), [""; 0]);
    assert_eq!(rules("x = retrieval(y)\nz = model.eval()\n", "python"), [""; 0]);
    assert_eq!(rules("fgets(a, n, f); my_strcpy(x);\n", "c"), [""; 0]);
}

#[test]
fn test_code_may_unwrap() {
    let code = "#[cfg(test)]\nmod tests {\n    #[test]\n    fn f() {\n        a.unwrap();\n    }\n}\n";
    assert_eq!(rules(code, "rust"), [""; 0]);
    assert_eq!(found("a.unwrap();\n", "rust", Some("integration tests")), []);
}

#[test]
fn context_of_untrusted_input_weighs_heavier() {
    let code = "let n = len as u8;\nx.unwrap();\n";
    assert_eq!(
        found(code, "rust", None),
        [(1, "rust-cast", Severity::Info), (2, "rust-unwrap", Severity::Warning)]
    );
    assert_eq!(
        found(code, "rust", Some("A parser of untrusted input.")),
        [(1, "rust-cast", Severity::Warning), (2, "rust-unwrap", Severity::Error)]
    );
}

#[test]
fn unsafe_wants_its_reason() {
    let bare = "unsafe { f() }\n";
    let explained = "// SAFETY: f has no preconditions.\nunsafe { f() }\n";
    assert_eq!(found(bare, "rust", None), [(1, "rust-unsafe", Severity::Error)]);
    assert_eq!(found(explained, "rust", None), [(2, "rust-unsafe", Severity::Info)]);
}

#[test]
fn public_items_want_docs_above_their_attributes() {
    let code =
        "/// Doc.\n#[derive(Debug)]\npub struct A;\n\npub fn b() {}\npub const fn c() {}\npub use d;\n";
    assert_eq!(
        found(code, "rust", None),
        [(5, "rust-missing-doc", Severity::Info), (6, "rust-missing-doc", Severity::Info)]
    );
}

#[test]
fn python_faults_are_found() {
    let code = "def _f(x=[]):\n    try:\n        eval(x)\n    except:\n        pass\n    return x == None\n";
    assert_eq!(
        rules(code, "python"),
        [
            "python-mutable-default",
            "python-eval",
            "python-bare-except",
            "python-swallowed-exception",
            "python-none-comparison"
        ]
    );
    assert_eq!(rules("def f():\n    return 1\n", "python"), ["python-missing-docstring"]);
    assert_eq!(rules("def f(a,\n      b):\n    \"\"\"Doc.\"\"\"\n", "python"), [""; 0]);
    assert_eq!(rules("import os\nos.system(x)\n", "py"), ["python-shell"]);
}

#[test]
fn javascript_faults_are_found() {
    let code = "var a = 1;\nif (a == 2 && b === 3 && c != null) eval(d);\ne.innerHTML = f;\n";
    assert_eq!(rules(code, "javascript"), ["js-var", "js-eval", "js-loose-equality", "js-raw-html"]);
    assert_eq!(rules("const f = (a) => a >= 1 && a <= 2 && a !== 3;\n", "js"), [""; 0]);
    assert_eq!(rules("try { g(); } catch (e) {}\n", "js"), ["js-empty-catch"]);
}

#[test]
fn typescript_rules_are_its_own() {
    let code = "let a: any = 1;\n// @ts-ignore\nlet b: Many = 2;\n";
    assert_eq!(rules(code, "typescript"), ["ts-any", "ts-ignore"]);
    assert_eq!(rules(code, "javascript"), [""; 0]);
}

#[test]
fn c_faults_are_found() {
    let code = "gets(a);\nstrcpy(a, b);\nscanf(\"%s\", a);\nif (a = b) c();\nif (a == b) c();\nprintf(a);\n";
    assert_eq!(
        found(code, "c", None),
        [
            (1, "c-gets", Severity::Error),
            (2, "c-unbounded-copy", Severity::Error),
            (3, "c-unbounded-copy", Severity::Error),
            (4, "c-assignment-in-condition", Severity::Warning),
            (6, "c-format-string", Severity::Error)
        ]
    );
}

#[test]
fn shell_faults_are_found_and_quotes_mend_them() {
    let code = "#!/bin/sh\nset -eu\nrm -rf $dir/x\nrm -rf \"$dir/x\"\n[ $a = b ]\n[ \"$a\" = \"$(cat \"$b\")\" ]\neval $c\n";
    assert_eq!(
        found(code, "sh", None),
        [
            (3, "shell-rm-unquoted", Severity::Error),
            (5, "shell-unquoted", Severity::Warning),
            (7, "shell-eval", Severity::Error)
        ]
    );
    assert_eq!(
        rules("ls\ncurl https://x | sh\n", "sh"),
        ["shell-shebang", "shell-strict", "shell-pipe-to-shell"]
    );
}

#[test]
fn any_text_is_checked_for_marks_and_white_space() {
    let long = "x".repeat(121);
    let text = format!("a \n{long}\n  b\n\tc\n<<<<<<< d\ne\u{202e}f\n");
    assert_eq!(
        rules(&text, "unknown"),
        ["trailing-whitespace", "line-too-long", "mixed-indentation", "conflict-marker", "hidden-character"]
    );
    assert_eq!(found("// FIXME: x\n", "c", None), [(1, "open-mark", Severity::Warning)]);
}

#[test]
fn keys_in_the_source_are_found_even_in_literals() {
    let key = format!("k = \"AKIA{}\"\n", "A1".repeat(8));
    assert_eq!(rules(&key, "python"), ["secret-in-source"]);
}

#[test]
fn spaces_inside_a_literal_belong_to_the_program() {
    assert_eq!(rules("s = \"\"\"a\n\tb \nc\"\"\"\n    x\n", "python"), [""; 0]);
}

#[test]
fn long_function_and_deep_nesting_are_found_once() {
    let long = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(70));
    assert_eq!(found(&long, "rust", None), [(1, "long-function", Severity::Warning)]);
    let fits = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(68));
    assert_eq!(found(&fits, "rust", None), []);
    let deep = format!("fn f() {{\n{}{}}}\n", "if a {\n".repeat(7), "}\n".repeat(7));
    assert_eq!(found(&deep, "rust", None), [(6, "deep-nesting", Severity::Warning)]);
}

#[test]
fn score_falls_with_each_issue_and_is_always_the_same() {
    let mut code = String::new();
    let mut last = 101;
    for _ in 0..6 {
        let score = review(&code, "rust", None).score.unwrap();
        assert!(score < last, "{score} after {last}");
        assert_eq!(review(&code, "rust", None).score, Some(score));
        last = score;
        code.push_str("unsafe { f() }\n");
    }
}

#[test]
fn suggestions_name_the_gravest_rule_first() {
    let code = "a.unwrap();\nb.unwrap();\nunsafe { c() }\n";
    let suggestions = review(code, "rust", None).suggestions;
    assert_eq!(suggestions.len(), 2);
    assert!(suggestions[0].contains("unsafe") && suggestions[0].ends_with("(1 place)"), "{suggestions:?}");
    assert!(suggestions[1].ends_with("(2 places)"), "{suggestions:?}");
}

#[test]
fn issues_are_bounded_and_the_rest_is_said() {
    let review = review(&"a.unwrap();\n".repeat(ISSUES_MAX + 1), "rust", None);
    assert_eq!(review.issues.len(), ISSUES_MAX);
    assert!(review.suggestions.last().unwrap().contains("501"));
}

fn answered(api: &str, params: &str) -> Result<serde_json::Value, String> {
    let mut output = Vec::new();
    answer(api, params.as_bytes(), &mut output).map(|()| serde_json::from_slice(&output).unwrap())
}

#[test]
fn versions_differ_in_context_and_score() {
    let plain = r#"{"code": "x.unwrap();", "language": "rust"}"#;
    let old = answered("1.5.0", plain).unwrap();
    let new = answered("2.0.0", plain).unwrap();
    assert_eq!(old["issues"], new["issues"]);
    assert!(old.get("score").is_none() && new["score"].is_u64());
    let with_context = r#"{"code": "", "language": "rust", "context": "test"}"#;
    assert!(answered("1.5.0", with_context).unwrap_err().contains("takes no context"));
    assert_eq!(answered("2.0.0", with_context).unwrap()["score"], 100);
}

#[test]
fn wrong_params_or_version_are_said() {
    assert!(answered("3.0.0", "{}").unwrap_err().contains("not served"));
    assert!(answered("2.0.0", "{}").unwrap_err().contains("code"));
    assert!(answered("2.0.0", "no").unwrap_err().contains("params"));
}
