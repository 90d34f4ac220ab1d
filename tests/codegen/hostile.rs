//! Names, descriptions and schemas that want out of their place; code in which they stay in it.
//!
//! What is generated for a drawn agent is read by a lexer of its language, which takes out literals and comments. Nothing of a
//! text may be left in the code around them.

use std::path::{Component, Path};
use std::time::{Duration, Instant};

use capd::codegen::{Agent, Capability, Language, Schema, generate};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::draw::Draw;

/// What a lexer leaves of a program: its code without comments and literals.
fn code(language: Language, text: &str) -> Result<String, String> {
    let comment = if language == Language::Python { "#" } else { "//" };
    let mut code = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = if rest.starts_with(comment) {
            &rest[rest.find('\n').ok_or("a comment without an end")?..]
        } else if language == Language::TypeScript && rest.starts_with("/*") {
            &rest[rest.find("*/").ok_or("a comment without an end")? + 2..]
        } else if language == Language::Go && first == '`' {
            &rest[rest[1..].find('`').ok_or("a literal without an end")? + 2..]
        } else if language == Language::Python && rest.starts_with("\"\"\"") {
            literal(&rest[3..], "\"\"\"", true)?
        } else if first == '"' {
            literal(&rest[1..], "\"", false)?
        } else {
            code.push(first);
            &rest[first.len_utf8()..]
        };
        rest = after;
    }
    Ok(code)
}

/// What is behind a literal.
fn literal<'t>(text: &'t str, end: &str, has_lines: bool) -> Result<&'t str, String> {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let first = rest.chars().next().ok_or("a literal without an end")?;
        match first {
            _ if rest.starts_with(end) => return Ok(&rest[end.len()..]),
            '\n' if !has_lines => return Err(format!("a literal on two lines: {:?}", &text[..at])),
            '\\' => at += 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => at += first.len_utf8(),
        }
    }
}

/// Whether brackets are closed by their own kind.
fn is_balanced(code: &str) -> bool {
    let mut open = Vec::new();
    for char in code.chars() {
        match char {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(char) => return false,
            _ => {}
        }
    }
    open.is_empty()
}

fn check(agent: &Agent) -> Result<(), TestCaseError> {
    for language in Language::ALL {
        let generated = generate(language, agent);
        prop_assert_eq!(&generated, &generate(language, agent));
        let path = generated.path.to_str().unwrap();
        let steps: Vec<_> = Path::new(path).components().collect();
        prop_assert!(
            steps.iter().all(|step| matches!(step, Component::Normal(_))) && (1..=2).contains(&steps.len()),
            "{}",
            path
        );
        prop_assert!(
            path.chars().all(|char| char.is_ascii_alphanumeric() || "-_./".contains(char))
                && path.len() < 250,
            "{}",
            path
        );
        prop_assert!(!path.starts_with('.') && !path.contains("/.") && !path.ends_with(".d.ts"), "{}", path);
        let text = &generated.text;
        // Go is set in by tabs.
        let is_space = |char| char == '\n' || (char == '\t' && language == Language::Go);
        let hidden = text.chars().find(|char| !is_space(*char) && capd::text::is_hidden(*char));
        prop_assert_eq!(hidden, None, "{}", text);
        let code = code(language, text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        let stray = code.chars().find(|char| !char.is_ascii() || "$`\\'@".contains(*char));
        prop_assert_eq!(stray, None, "{}", code);
        prop_assert!(is_balanced(&code), "{}", code);
        // Orders to a compiler or a tool, which a text must not give.
        for line in text.lines().map(str::trim_start) {
            let comment = line.trim_start_matches(['/', '*', '#', ' ']);
            prop_assert!(!(comment.starts_with("@ts-") && language == Language::TypeScript), "{}", line);
            prop_assert!(!(comment.starts_with("+build") && language == Language::Go), "{}", line);
            prop_assert!(
                !(line.contains("```") && line.starts_with("///") && language == Language::Rust),
                "{}",
                line
            );
            prop_assert!(
                !["# type:", "# mypy:", "#type:", ">>> "].iter().any(|order| line.starts_with(order)),
                "{}",
                line
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_leaves_its_literal_or_comment_and_no_name_the_folder(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&Draw(&bytes).agent())?;
    }
}

#[test]
fn an_agent_that_is_called_like_a_path_gets_a_plain_file() {
    for (name, stems) in [
        ("agent://../../x", ["x.ts", "x.py", "x/x.go", "x.rs"]),
        (
            "agent:///etc/passwd",
            ["etc-passwd.ts", "etc_passwd.py", "etcpasswd/etcpasswd.go", "etc_passwd.rs"],
        ),
        ("..", ["capabilities.ts", "capabilities.py", "capabilities/capabilities.go", "capabilities.rs"]),
        ("agent://C:\\x\0y", ["c-x-y.ts", "c_x_y.py", "cxy/cxy.go", "c_x_y.rs"]),
        ("agent://con", ["con-agent.ts", "con_agent.py", "conagent/conagent.go", "con_agent.rs"]),
        ("agent://2fa", ["2fa.ts", "x2fa.py", "x2fa/x2fa.go", "x2fa.rs"]),
        ("agent://class", ["class.ts", "class_.py", "class/class.go", "class.rs"]),
        ("agent://main", ["main.ts", "main.py", "mainx/mainx.go", "main_.rs"]),
        ("agent://a.d", ["a-d.ts", "a_d.py", "ad/ad.go", "a_d.rs"]),
    ] {
        let agent = Agent { name: Some(name.to_owned()), capabilities: Vec::new() };
        let paths = Language::ALL.map(|language| generate(language, &agent).path.display().to_string());
        assert_eq!(paths, stems, "{name}");
    }
    let long = Agent { name: Some(format!("agent://{}", "a".repeat(10_000))), capabilities: Vec::new() };
    for language in Language::ALL {
        assert!(generate(language, &long).path.as_os_str().len() < 250);
    }
}

/// One capability that takes what fits `schema`.
fn taking(schema: &Value) -> Agent {
    let input = Some(Schema::read(schema.to_string().as_bytes()).unwrap());
    let id = "org.example.a:1.0.0".parse().unwrap();
    Agent { name: None, capabilities: vec![Capability { id, description: None, input, output: None }] }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "what is bounded is real time")]
fn large_and_tangled_schemas_take_bounded_time_and_room() {
    let doubling: Map<_, _> = (0..60)
        .map(|number| {
            let below = json!({"allOf": [{"$ref": format!("#/definitions/d{}", number + 1)}, {"type": "object", "properties": {"x": {}}}]});
            let twice = json!({"allOf": [{"type": "object", "properties": {"l": below, "r": below}}, {"type": "object", "properties": {"y": {}}}]});
            (format!("d{number}"), twice)
        })
        .chain([("d60".to_owned(), json!({"type": "object"}))])
        .collect();
    let names: Vec<_> =
        (0..6_000).map(|number| format!("!{}", "?".repeat(number % 7) + &number.to_string())).collect();
    let deep =
        (0..50).fold(json!({"type": "string"}), |below, _| json!({"anyOf": [below, {"type": "null"}]}));
    for schema in [
        json!({"$ref": "#/definitions/d0", "definitions": doubling}),
        json!({"enum": names}),
        json!({"type": "object", "properties": names.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect::<Map<_, _>>()}),
        deep,
    ] {
        for language in Language::ALL {
            let begin = Instant::now();
            let text = generate(language, &taking(&schema)).text;
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "{}: {:?}",
                language.as_str(),
                begin.elapsed()
            );
            assert!(text.len() < 64 << 20, "{}: {} bytes", language.as_str(), text.len());
        }
    }
}

#[test]
fn a_reference_in_a_circle_is_unknown_and_says_where() {
    let schema = json!({
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/a"}, "gone": {"$ref": "#/definitions/gone"}, "far": {"$ref": "https://example.org/x"}},
        "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"anyOf": [{"$ref": "#/definitions/a"}]}},
    });
    for language in Language::ALL {
        let text = generate(language, &taking(&schema)).text;
        for said in [
            "No type for #/definitions/a: it leads back to itself on the same value, so nothing decides.",
            "No type for #/properties/gone: \"#/definitions/gone\" leads outside the document.",
            "No type for #/properties/far: \"https://example.org/x\" leads outside the document.",
        ] {
            assert!(text.contains(said), "{}: {said}\n{text}", language.as_str());
        }
    }
}

#[test]
fn a_record_that_is_made_of_itself_and_more_ends_somewhere() {
    let schema = json!({
        "$ref": "#/definitions/n",
        "definitions": {"n": {"type": "object", "properties": {
            "left": {"allOf": [{"$ref": "#/definitions/n"}, {"type": "object", "properties": {"more": {"type": "string"}}}]},
            "right": {"allOf": [{"$ref": "#/definitions/n"}, {"type": "object", "required": ["left"]}]},
        }}},
    });
    for language in Language::ALL {
        let text = generate(language, &taking(&schema)).text;
        assert!(text.len() < 200_000, "{}: {} bytes", language.as_str(), text.len());
        let is_cut = text.contains("its parts lead back to themselves.");
        assert_eq!(is_cut, language != Language::TypeScript, "{}", language.as_str());
    }
}

/// Writes random agents for `.ci/codegen` to compile, each language into a folder of its own below `CAPD_CODEGEN_MORE`.
#[test]
#[ignore = "by hand: CAPD_CODEGEN_MORE=DIR cargo test --test codegen -- --ignored, then CAPD_CODEGEN_MORE=DIR .ci/codegen"]
fn random_agents_are_written_to_be_compiled() {
    let folder = std::path::PathBuf::from(std::env::var_os("CAPD_CODEGEN_MORE").unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for number in 0..60 {
        let bytes: Vec<u8> = (0..500)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .collect();
        let agent = Agent { name: Some(format!("agent://random{number}")), ..Draw(&bytes).agent() };
        for language in Language::ALL {
            let generated = generate(language, &agent);
            let path = folder.join(language.as_str()).join(generated.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, generated.text).unwrap();
        }
    }
}
