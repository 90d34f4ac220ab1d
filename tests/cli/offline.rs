//! What needs no sidecar: usage, contexts, decode, and that there is none.

use crate::support::{capctl, exit_code, run_with, stderr, stdout};

/// AMP 001 appendix A.2: a MESSAGE, type 10, which we do not speak; signed by a `did:web`.
const VECTOR_1: &str = "a9617601626964500000018d746b3700000000000000000162746f781d6469643a7765623a6578616d706c652e636f6d3a6167656e743a626f626274731b0000018d746b3700637369675840ddfe6db4951b1244be2953963b3323d1957bf95f04e123b0e4283fec5267961c6af0752a2e6ccbbfe313d08107c3ccc45a79add798bc4afd1d78f89ae38fdb026374746c1a05265c00637479701064626f6479f66466726f6d781f6469643a7765623a6578616d706c652e636f6d3a6167656e743a616c696365";

#[track_caller]
fn run(line: &[&str]) -> (i32, String, String) {
    let output = run_with(capctl(None).args(line), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

#[test]
fn help_names_every_exit_code_and_subcommand() {
    let (code, text, _) = run(&["--help"]);
    assert_eq!(code, 0);
    for word in [
        "call", "calls", "top", "ls", "describe", "serve", "cancel", "ping", "bench", "id", "diff", "check",
        "matrix", "decode", "cddl", "gen", "hash", "subtype", "fleet", "context",
    ] {
        assert!(text.contains(&format!("\n  {word} ")), "{word}\n{text}");
    }
    for exit in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "7 ", "130"] {
        assert!(text.contains(&format!("\n  {exit}")), "{exit}\n{text}");
    }
}

#[test]
fn version_is_printed_at_the_top_and_a_range_below() {
    let (code, text, _) = run(&["--version"]);
    assert_eq!((code, text.trim()), (0, concat!("capctl ", env!("CARGO_PKG_VERSION"))));
    let (code, _, text) = run(&["query", "org.example.review", "--version", "^1.0"]);
    assert_eq!(code, 2);
    assert!(text.contains("not accepted") && text.contains(">="), "{text}");
}

#[test]
fn bad_usage_is_exit_2_and_says_what_is_accepted() {
    for (line, said) in [
        (&["call"][..], "CAPABILITY"),
        (&["frobnicate"], "frobnicate"),
        (&["call", "org.example.review", "--timeout", "30"], "500ms, 30s, 2m"),
        (&["call", "org.example.review", "--params", "{a: 1}"], "not JSON"),
        (&["call", "org.example.review", "--params", "@/nonexistent.json"], "/nonexistent.json"),
        (&["call", "org.example.review:1.0.0", "--version", ">=1.0.0"], "already has a version"),
        (&["call", "a..b"], "a..b"),
        (&["cancel", "12"], "32 hex digits"),
        (&["call", "org.example.review", "--id", "12"], "32 hex digits"),
        (&["calls", "12"], "32 hex digits"),
        (&["call", "org.example.review", "--ttl", "10"], "500ms, 30s, 2m"),
        (&["describe", "org.example.review:x"], "org.example.review:x"),
        (&["serve", "org.example.review:1.0.0"], "COMMAND"),
        (&["decode", "--hex", "0x"], "hexadecimal"),
        (&["decode", "/nonexistent.bin"], "/nonexistent.bin"),
        (&["decode"], "FILE"),
        (&["diff", "no where", "a.b.c:1.0.0"], "neither a file nor a capability"),
        (&["diff", "/nonexistent.yaml", "a.b.c:1.0.0"], "/nonexistent.yaml"),
        (&["check"], "OLD... NEW"),
        (&["check", "a.b.c:1.0.0", "--mode", "sideways"], "backward, forward, full"),
        (&["matrix"], "CAPABILITY|DECLARATION"),
        (&["gen"], "--lang"),
        (&["subtype"], "SUB"),
        (&["subtype", "/nonexistent.json"], "SUP"),
        (&["subtype", "/nonexistent.json", "-"], "/nonexistent.json"),
        (&["subtype", "-", "-"], "stdin"),
        (&["subtype", "a.json", "b.json", "--pairs", "-"], "--pairs"),
        (&["subtype", "--pairs", "/nonexistent.jsonl"], "/nonexistent.jsonl"),
        (&["id", "--address", "127.0.0.1:1"], "--token-file"),
    ] {
        let (code, out, text) = run(line);
        assert_eq!((code, out.as_str()), (2, ""), "{line:?}\n{text}");
        assert!(text.contains(said), "{line:?}\n{text}");
    }
}

#[test]
fn without_a_sidecar_the_exit_code_is_5_and_the_way_out_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("no.sock");
    let socket = socket.to_str().unwrap();
    for line in [
        &["id"][..],
        &["ls"],
        &["query", "org.example.review"],
        &["describe", "org.example.review:1.0.0"],
        &["call", "org.example.review"],
        &["calls"],
        &["cancel", "0000018d746b37000000000000000001"],
        &["ping"],
        &["diff", "org.example.review:1.0.0", "org.example.review:2.0.0"],
        &["check", "did:key:z6Mk/org.example.review:1.0.0", "org.example.review:2.0.0"],
        &["matrix", "org.example.review"],
        &["gen", "--lang", "go"],
        &["gen", "--lang", "go", "--peer", "reviewer"],
        &["serve", "org.example.review:1.0.0", "--", "cat"],
    ] {
        let line: Vec<_> = ["--socket", socket].iter().chain(line).copied().collect();
        let (code, out, text) = run(&line);
        assert_eq!((code, out.as_str()), (5, ""), "{line:?}\n{text}");
        assert!(text.contains(socket) && text.contains("capd run"), "{line:?}\n{text}");
    }
}

#[test]
fn an_error_is_one_json_document_when_json_is_asked_for() {
    for (line, exit) in [
        (&["--json", "id", "--socket", "/nonexistent.sock"][..], 5),
        (&["--json", "call"], 2),
        (&["call", "a..b", "--json"], 2),
    ] {
        let (code, out, text) = run(line);
        assert_eq!((code, out.as_str()), (exit, ""), "{line:?}\n{text}");
        let document: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        assert_eq!(document["exit"], exit);
        assert!(document["error"]["message"].is_string(), "{document}");
    }
}

#[test]
fn decode_shows_an_envelope_and_refuses_its_type() {
    let (code, text, errors) = run(&["decode", "--hex", VECTOR_1]);
    assert_eq!(code, 3, "{errors}");
    insta::assert_snapshot!(text);
    assert!(errors.contains("1005"), "{errors}");
    let (code, text, _) = run(&["decode", "--json", "--hex", VECTOR_1]);
    assert_eq!(code, 3);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["envelope"]["id"], "0000018d746b37000000000000000001");
    assert_eq!(document["envelope"]["typ"], 16);
    assert_eq!(document["refusals"].as_array().unwrap().len(), 1);
}

#[test]
fn decode_takes_the_same_bytes_as_text_binary_or_stdin() {
    let dir = tempfile::tempdir().unwrap();
    let body = [0xa1, 0x66, b't', b'a', b'r', b'g', b'e', b't', 0x01];
    std::fs::write(dir.path().join("binary"), body).unwrap();
    std::fs::write(dir.path().join("text"), "a1 66 74 61 72 67\n65 74 01\n").unwrap();
    let of = |line: &[&str], input: &[u8]| {
        let output = run_with(capctl(None).current_dir(dir.path()).args(line), input);
        (exit_code(&output), stdout(&output).to_owned())
    };
    let from_flag = of(&["decode", "--body", "01", "--hex", "a166746172676574 01"], b"");
    assert_eq!(from_flag.0, 0, "{}", from_flag.1);
    assert!(from_flag.1.contains(r#"{"target": 1}"#), "{}", from_flag.1);
    assert_eq!(of(&["decode", "--body", "ping", "binary"], b""), from_flag);
    assert_eq!(of(&["decode", "--body", "PING", "text"], b""), from_flag);
    assert_eq!(of(&["decode", "--body", "0x01", "-"], &body), from_flag);
}

#[test]
fn decode_gives_the_cddl_verdict_with_rule_path_and_offset() {
    // REQUEST {"op": "cancel", "target": h'01'}: the target is too short.
    let (code, text, errors) =
        run(&["decode", "--body", "REQUEST", "--hex", "a2626f706663616e63656c667461726765744101"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("does not match") && text.contains("/target"), "{text}");
    assert!(errors.contains("1001"), "{errors}");
    let (code, text, _) = run(&["decode", "--body", "CAP_INVOKE", "--hex", "a166706172616d73f6"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("matches cap-invoke-body"), "{text}");
}

#[test]
fn decode_cuts_frames_and_says_where_they_break() {
    // PROTOCOL 3: two examples in bytes, then a PING.
    let (code, text, errors) = run(&["decode", "--hex", "0000000501a1617801 0000000303abcd 00000009"]);
    assert_eq!(code, 3);
    assert!(text.contains("frame AMP_MESSAGE at byte 0"), "{text}");
    assert!(text.contains("frame PING at byte 9") && text.contains("h'abcd'"), "{text}");
    assert!(text.contains("byte 16"), "{text}");
    assert!(errors.contains("1001"), "{errors}");
    let (code, text, _) = run(&["decode", "--frame", "--hex", "00000000"]);
    assert_eq!(code, 3);
    assert!(text.contains("frame length is 0"), "{text}");
}

#[test]
fn contexts_are_written_listed_and_chosen() {
    let home = tempfile::tempdir().unwrap();
    let of = |line: &[&str]| {
        let mut command = capctl(None);
        command.env("HOME", home.path()).current_dir(home.path()).args(line);
        let output = run_with(&mut command, b"");
        (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
    };
    assert_eq!(of(&["context", "set", "here", "--socket", "a.sock"]).0, 0);
    assert_eq!(of(&["context", "set", "there", "--address", "127.0.0.1:7003", "--token-file", "/t"]).0, 0);
    let absolute = home.path().join("a.sock");
    let (code, text, _) = of(&["context", "show"]);
    assert_eq!((code, text.contains(absolute.to_str().unwrap())), (0, true), "{text}");
    assert_eq!(of(&["context", "use", "there"]).0, 0);
    let (_, text, _) = of(&["context", "ls"]);
    assert!(text.contains("*  there  127.0.0.1:7003"), "{text}");
    let (code, _, text) = of(&["context", "use", "nowhere"]);
    assert_eq!(code, 2);
    assert!(text.contains("here, there"), "{text}");
    let (code, _, text) = of(&["id", "--context", "here"]);
    assert_eq!((code, text.contains("a.sock")), (5, true), "{text}");
}

#[test]
fn a_reader_that_closed_early_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = capctl(None);
    let status = command.args(["decode", "--body", "PING", "--hex", "f6"]).stdout(writer).status().unwrap();
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn hash_prints_every_hash_of_a_declaration_and_refuses_what_would_not_be_served() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("capabilities.yaml");
    let path = file.to_str().unwrap();
    let declared = |schema: &str| {
        let text = format!(
            "version: 1\nnamespace: org.example\ncapabilities:\n- name: b\n  version: \"2.0.0\"\n  inputSchema: {schema}\n- name: b\n- name: a\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    declared("{ type: string, maxLength: 3 }");
    let (code, text, _) = run(&["hash", path, "--json"]);
    assert_eq!(code, 0);
    let hashes: serde_json::Value = serde_json::from_str(&text).unwrap();
    let capabilities = hashes["capabilities"].as_array().unwrap();
    let ids: Vec<_> = capabilities.iter().map(|hashed| hashed["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["org.example.a:1.0.0", "org.example.b:1.0.0", "org.example.b:2.0.0"]);
    let (code, plain, _) = run(&["hash", path]);
    assert_eq!(code, 0);
    for hash in capabilities.iter().flat_map(|hashed| [&hashed["static_hash"], &hashed["lineage"]]) {
        assert!(plain.contains(hash.as_str().unwrap()), "{hash}");
    }
    assert!(plain.contains(hashes["toolkit"].as_str().unwrap()), "{plain}");
    // Order and white space do not count, a field does.
    declared("{ maxLength: 3,   type: string }");
    assert_eq!(run(&["hash", path, "--json"]).1, text);
    declared("{ maxLength: 4, type: string }");
    assert_ne!(run(&["hash", path, "--json"]).1, text);
    for (schema, words, inspected) in [
        ("{ type: strng }", "at /type: \"strng\" is no type", 0),
        ("{ multipleOf: 2 }", "at /multipleOf: is not of the profile strict", 0),
        ("{ maximum: 9007199254740993 }", "at /maximum: 9007199254740993 has no hash of its own", 2),
    ] {
        declared(schema);
        let (code, out, error) = run(&["hash", path]);
        assert_eq!((code, out.as_str()), (2, ""), "{schema}");
        assert!(error.contains(words) && error.contains("org.example.b:2.0.0"), "{error}");
        assert_eq!(run(&["hash", path, "--no-validate"]).0, inspected, "{schema}");
    }
    let (code, _, error) = run(&["hash", "/nonexistent.yaml"]);
    assert_eq!(code, 2);
    assert!(error.contains("/nonexistent.yaml"), "{error}");
}

#[test]
fn any_cbor_is_checked_against_any_cddl() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cddl = file("point.cddl", b"point = { x: uint, ? label: tstr }\nname = tstr\n");
    let fits = file("fits.cbor", &[0xa1, 0x61, b'x', 0x05]);
    let text = file("fits.hex", b"a1 61 78 05\n");
    let misfit = file("misfit.cbor", &[0xa1, 0x61, b'x', 0x61, b'5']);
    let cut = file("cut.cbor", &[0xa1, 0x61, b'x']);

    let (code, said, told) = run(&["cddl", "check", "--cddl", &cddl, &fits, &text]);
    assert_eq!((code, told.as_str()), (0, ""), "{said}");
    assert_eq!(said, format!("{fits}: matches point\n{text}: matches point\n"));

    let (code, said, _) = run(&["cddl", "check", "--cddl", &cddl, &misfit, &fits]);
    assert_eq!(code, 3);
    assert_eq!(said, format!("{misfit}: point: at \"/x\" (byte 3): expected uint\n{fits}: matches point\n"));

    let (code, said, _) = run(&["--json", "cddl", "check", "--cddl", &cddl, &misfit, &cut]);
    assert_eq!(code, 3);
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines[0]["mismatch"],
        serde_json::json!({"rule": "point", "path": "/x", "byte": 3, "expected": "uint"})
    );
    assert_eq!((&lines[1]["matches"], &lines[1]["malformed"]["byte"]), (&false.into(), &3.into()));

    let (code, said, _) = run(&["cddl", "check", "--cddl", &cddl, "--rule", "name", &fits]);
    assert_eq!((code, said), (3, format!("{fits}: name: at \"\" (byte 0): expected tstr\n")));

    let (code, _, told) = run(&["cddl", "check", "--cddl", &cddl, "--rule", "nmae", &fits]);
    assert_eq!(code, 2);
    assert!(told.contains("no type rule \"nmae\"") && told.contains("name, point"), "{told}");
    let broken = file("broken.cddl", b"point = { x: unit }\n");
    let (code, _, told) = run(&["cddl", "check", "--cddl", &broken, &fits]);
    assert_eq!(code, 2);
    assert!(told.contains("`unit` is not defined"), "{told}");
    let generic = file("generic.cddl", b"pair<a> = [a, a]\npoint = pair<uint>\n");
    let (code, _, told) = run(&["cddl", "check", "--cddl", &generic, &fits]);
    assert_eq!(code, 2);
    assert!(told.contains("--rule") && told.contains("point"), "{told}");
}

#[test]
fn colours_are_for_terminals_or_who_forces_them() {
    let table = |variables: &[(&str, &str)]| {
        let mut command = capctl(None);
        command.args(["hash", "tests/codegen/declarations/none.yaml"]).env_remove("NO_COLOR");
        let output = run_with(command.envs(variables.iter().copied()), b"");
        assert_eq!(exit_code(&output), 2);
        stderr(&output).to_owned()
    };
    assert!(table(&[]).starts_with("capctl: "), "a pipe is no terminal");
    assert!(table(&[("CLICOLOR_FORCE", "1")]).starts_with("\u{1b}[31mcapctl:\u{1b}[0m "));
    assert!(table(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).starts_with("capctl: "));

    let home = tempfile::tempdir().unwrap();
    let contexts = |variables: &[(&str, &str)]| {
        let run = |line: &[&str]| {
            let mut command = capctl(None);
            command.args(line).env("XDG_CONFIG_HOME", home.path()).env_remove("NO_COLOR");
            run_with(command.envs(variables.iter().copied()), b"")
        };
        assert_eq!(exit_code(&run(&["context", "set", "a", "--socket", "/a"])), 0);
        stdout(&run(&["context", "ls"])).to_owned()
    };
    assert_eq!(contexts(&[]), "   NAME  SIDECAR\n*  a     /a\n");
    assert!(contexts(&[("CLICOLOR_FORCE", "1")]).starts_with("\u{1b}[1m   NAME  SIDECAR\u{1b}[0m\n*  a "));
}
