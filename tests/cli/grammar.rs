//! Command lines of every verb in; one way to name a capability, to fail, and to help, out.

use std::process::Command;

use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const YAML: &str = "version: 1\nnamespace: org.example\ncapabilities:\n\
                    - { name: upper, version: \"1.0.0\", command: [tr, a-z, A-Z], idempotent: true, inputSchema: {type: string} }\n\
                    - { name: upper, version: \"2.0.0\", command: [tr, a-z, A-Z], idempotent: true }\n\
                    - { name: word-count, version: \"1.0.0\", command: [cat] }\n\
                    - { name: org.example.other.word-count, version: \"1.0.0\", command: [cat] }\n";

fn sidecar() -> Sidecar {
    Setup::new().capabilities(YAML).start()
}

#[track_caller]
fn run(sidecar: &Sidecar, words: &[&str]) -> (i32, String, String) {
    let output = run_with(capctl(Some(&sidecar.socket)).args(words), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

/// Verbs that take a capability of the sidecar, with what else they need; `{}` stands for it.
const VERBS: [&[&str]; 7] = [
    &["call", "{}", "--params", "\"a\""],
    &["describe", "{}"],
    &["matrix", "{}"],
    &["diff", "{}", "org.example.upper:1.0.0"],
    &["bench", "{}", "--params", "\"a\"", "--duration", "50ms", "--warm-up", "10ms", "--in-flight", "1"],
    &["calls", "--capability", "{}"],
    &["policy", "why", "did:web:a.example", "{}"],
];

fn with(verb: &[&'static str], capability: &'static str) -> Vec<&'static str> {
    verb.iter().map(|word| if *word == "{}" { capability } else { word }).collect()
}

#[test]
fn every_verb_that_takes_a_capability_takes_each_of_its_forms() {
    let sidecar = sidecar();
    for verb in VERBS {
        let forms = ["org.example.upper", "upper", "example.upper", "upper:1.0.0", "upper@>=1.0.0 <2.0.0"];
        for form in forms {
            let line = with(verb, form);
            let (code, _, errors) = run(&sidecar, &line);
            assert_eq!(code, 0, "{line:?}: {errors}");
        }
        // An ending of several names is none.
        let line = with(verb, "word-count");
        let (code, _, errors) = run(&sidecar, &line);
        assert_eq!(code, 2, "{line:?}: {errors}");
        assert!(
            errors.contains("write one of: org.example.other.word-count, org.example.word-count"),
            "{errors}"
        );
        // What is not there is not there for any verb, and the nearest is named.
        let line = with(verb, "uper");
        let (code, _, errors) = run(&sidecar, &line);
        assert_eq!(code, 3, "{line:?}: {errors}");
        assert!(errors.contains("did you mean \"org.example.upper\"?"), "{line:?}: {errors}");
        // What is no name is a mistake of the command line.
        let line = with(verb, "a..b");
        assert_eq!(run(&sidecar, &line).0, 2, "{line:?}");
    }
    // A whole name that nobody serves: the sidecar refuses it, and says it alike.
    for verb in &VERBS[..5] {
        let line = with(verb, "org.example.uper");
        let (code, _, errors) = run(&sidecar, &line);
        assert_eq!(code, 3, "{line:?}: {errors}");
        assert!(errors.contains("4002 CAPABILITY_NOT_FOUND"), "{line:?}: {errors}");
        assert!(errors.contains("did you mean \"org.example.upper\"?"), "{line:?}: {errors}");
    }
}

#[test]
fn verbs_about_all_versions_of_a_name_find_it_by_its_end_and_take_no_version() {
    let sidecar = sidecar();
    let verb = ["audit", "query", "--capability"];
    let asked = |capability: &'static str| run(&sidecar, &[&verb[..], &[capability]].concat());
    assert_eq!(asked("upper").0, 0);
    assert_eq!(asked("org.example.*").0, 0);
    let (code, _, errors) = asked("uper");
    assert!(code == 3 && errors.contains("did you mean \"org.example.upper\"?"), "{code}: {errors}");
    let (code, _, errors) = asked("upper:1.0.0");
    assert!(code == 2 && errors.contains("leave the version away: upper"), "{code}: {errors}");
}

#[test]
fn a_list_has_every_name_with_the_part_and_a_name_that_is_not_there_is_not_found() {
    let sidecar = sidecar();
    let count = |words: &[&str]| {
        let (code, text, errors) = run(&sidecar, words);
        assert_eq!(code, 0, "{words:?}: {errors}");
        text.lines().count()
    };
    for verb in ["ls", "query"] {
        assert_eq!(count(&[verb, "--json"]), 4);
        assert_eq!(count(&[verb, "word", "--json"]), 2);
        assert_eq!(count(&[verb, "upper@<2.0.0", "--json"]), 1);
        assert_eq!(count(&[verb, "org.example.upper", "--json"]), 2);
        assert_eq!(count(&[verb, "org.example.other.*", "--json"]), 1);
        assert_eq!(count(&[verb, "com.example.*", "--json"]), 0);
        for missing in ["uper", "org.example.uper"] {
            let (code, _, errors) = run(&sidecar, &[verb, missing]);
            assert!(code == 3 && errors.contains("did you mean \"org.example.upper\"?"), "{errors}");
        }
        // The name is there, and the version is not.
        for missing in ["upper@>=3.0.0", "org.example.upper@>=3.0.0"] {
            let (code, _, errors) = run(&sidecar, &[verb, missing]);
            assert!(code == 3 && errors.contains("4003 VERSION_MISMATCH"), "{errors}");
            assert!(errors.contains("\n  served: 2.0.0, 1.0.0\n"), "{errors}");
        }
    }
}

#[test]
fn a_list_of_what_one_peer_provides_names_that_peer() {
    let b = sidecar();
    let a = Setup::new().peer(&b).start();
    let (code, text, errors) = run(&a, &["ls", "upper", "--to", &b.did, "--wide"]);
    assert_eq!(code, 0, "{errors}");
    assert!(text.lines().nth(1).is_some_and(|line| line.contains(&b.did)), "{text}");
}

#[test]
fn every_verb_that_takes_a_peer_suggests_the_nearest_name() {
    let peer = "[[peers]]\nname = \"billing\"\ndid = \"did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P\"\naddresses = [\"tcp://127.0.0.1:9\"]\n";
    let sidecar = Setup::new().capabilities(YAML).allow(peer).start();
    let lines: [&[&str]; 8] = [
        &["call", "upper", "--to", "biling"],
        &["ls", "--to", "biling"],
        &["ping", "biling"],
        &["calls", "--peer", "biling"],
        &["audit", "query", "--peer", "biling"],
        &["policy", "why", "biling", "upper"],
        &["diff", "upper", "biling/upper"],
        &["gen", "--lang", "python", "--peer", "biling", "upper"],
    ];
    for line in lines {
        let (code, _, errors) = run(&sidecar, line);
        assert_eq!(code, 3, "{line:?}: {errors}");
        assert!(errors.contains("did you mean \"billing\"?"), "{line:?}: {errors}");
    }
    let (code, _, errors) = run(&sidecar, &["gen", "--lang", "python", "uper"]);
    assert!(code == 3 && errors.contains("did you mean \"org.example.upper\"?"), "{errors}");
}

#[test]
fn the_version_that_is_meant_is_the_one_that_is_used() {
    let sidecar = sidecar();
    for (form, version) in [("upper", "2.0.0"), ("upper@<2.0.0", "1.0.0"), ("upper:1.0.0", "1.0.0")] {
        let (_, text, errors) = run(&sidecar, &["describe", form]);
        assert!(text.starts_with(&format!("org.example.upper:{version}\n")), "{form}: {text}{errors}");
    }
    let (code, _, errors) = run(&sidecar, &["call", "upper@>=3.0.0"]);
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("\n  served: 2.0.0, 1.0.0\n") && !errors.contains("details:"), "{errors}");
}

#[test]
fn an_error_about_a_call_ends_with_its_id() {
    let sidecar = sidecar();
    for line in [
        &["call", "upper:1.0.0", "--params", "5"][..],
        &["call", "upper@>=3.0.0"],
        &["call", "org.example.uper"],
        &["call", "other.word-count:1.0.0", "--params", "1", "--to", "did:web:a.example", "--timeout", "1s"],
    ] {
        let (_, _, errors) = run(&sidecar, line);
        let last = errors.trim_end().lines().last().unwrap();
        let id = last.strip_prefix("  call ").unwrap_or_else(|| panic!("{line:?}: {errors}"));
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{line:?}: {errors}");
    }
}

/// Every verb that the program lists, with its own verbs.
fn verbs() -> Vec<Vec<String>> {
    let listed = |words: &[String]| -> Vec<String> {
        let output = run_with(Command::new(env!("CARGO_BIN_EXE_capctl")).args(words).arg("--help"), b"");
        let help = stdout(&output).to_owned();
        let Some((_, commands)) = help.split_once("\nCommands:\n") else { return Vec::new() };
        let commands = commands.lines().take_while(|line| !line.is_empty());
        let names = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    let mut all = Vec::new();
    for verb in listed(&[]).into_iter().filter(|verb| verb != "help") {
        let inner = listed(std::slice::from_ref(&verb));
        let inner = inner.into_iter().filter(|inner| inner != "help");
        let nested: Vec<_> = inner.map(|inner| vec![verb.clone(), inner]).collect();
        all.extend(if nested.is_empty() { vec![vec![verb]] } else { nested });
    }
    all
}

#[test]
fn every_verb_suggests_the_nearest_flag_and_says_usage_alike() {
    let all = verbs();
    assert!(all.len() > 30, "{all:?}");
    for verb in &all {
        let mut command = capctl(None);
        let output = run_with(command.args(verb).arg("--jsn"), b"");
        assert_eq!(exit_code(&output), 2, "{verb:?}");
        assert!(stderr(&output).contains("--json"), "{verb:?}: {}", stderr(&output));
        let output = run_with(capctl(None).args(verb).arg("--help"), b"");
        assert_eq!((exit_code(&output), stderr(&output)), (0, ""), "{verb:?}");
    }
    for (program, words, meant) in [
        (env!("CARGO_BIN_EXE_capd"), &["rnu"][..], "run"),
        (env!("CARGO_BIN_EXE_capd"), &["config", "chekc"], "check"),
        (env!("CARGO_BIN_EXE_capctl"), &["--json", "mna"], "man"),
        (env!("CARGO_BIN_EXE_capctl"), &["policy", "wyh"], "why"),
    ] {
        let output = run_with(Command::new(program).args(words), b"");
        assert!(exit_code(&output) == 2 && stderr(&output).contains(meant), "{words:?}: {}", stderr(&output));
    }
    let output = run_with(capctl(None).arg("descrbe"), b"");
    assert!(stderr(&output).contains("describe") && exit_code(&output) == 2, "{}", stderr(&output));
}

/// The rows of the table of verbs in `docs/capctl.md`, which the program's own test keeps: verb, sidecar, exit codes.
fn table() -> Vec<(String, String, String)> {
    let page = include_str!("../../docs/capctl.md");
    let rows = page.lines().skip_while(|line| *line != "| verb | does | sidecar | exit codes |").skip(2);
    let cells = |row: &str| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    let rows = rows.take_while(|row| row.starts_with('|')).map(|row| {
        let cells: Vec<String> = cells(row);
        (cells[0].trim_matches('`').to_owned(), cells[2].clone(), cells[3].clone())
    });
    rows.collect()
}

#[test]
fn every_verb_shows_examples_and_its_exit_codes_and_only_options_that_it_has() {
    let table = table();
    let names: Vec<_> = verbs().iter().map(|verb| verb.join(" ")).collect();
    assert_eq!(table.iter().map(|(name, ..)| name.clone()).collect::<Vec<_>>(), names);
    for (name, sidecar, codes) in &table {
        let words: Vec<_> = name.split(' ').collect();
        let help = run_with(capctl(None).args(&words).arg("--help"), b"");
        let (_, below) = stdout(&help).split_once("\nExamples:\n").unwrap_or_else(|| panic!("{name}"));
        let (examples, listed) = below.split_once("\nExit codes:\n").unwrap_or_else(|| panic!("{name}"));
        assert!(examples.contains(&format!("capctl {name}")), "{name}: {examples}");
        let listed: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(&listed.join(", "), codes, "{name}");
        // A verb that asks no sidecar has no place for one.
        let is_offline = sidecar == "no" && !["context show", "context set"].contains(&name.as_str());
        assert_eq!(!stdout(&help).contains("--socket"), is_offline, "{name}");
        if is_offline {
            let refused = run_with(capctl(None).args(&words).args(["--socket", "/nonexistent"]), b"");
            let said = stderr(&refused);
            assert_eq!(exit_code(&refused), 2, "{name}: {said}");
            assert!(said.contains("unexpected argument '--socket'"), "{name}: {said}");
        }
    }
}

#[test]
fn options_of_the_sidecar_stand_before_or_after_the_verb_but_not_in_both_places() {
    let sidecar = sidecar();
    let socket = sidecar.socket.to_str().unwrap();
    for line in [&["--socket", socket, "id"][..], &["id", "--socket", socket]] {
        let output = run_with(capctl(None).args(line), b"");
        assert_eq!(exit_code(&output), 0, "{line:?}: {}", stderr(&output));
    }
    let output = run_with(capctl(None).args(["--socket", socket, "id", "--context", "a"]), b"");
    assert_eq!(exit_code(&output), 2);
    assert!(stderr(&output).contains("before and after the verb"), "{}", stderr(&output));
    // An alias may hold them, whatever the verb is.
    let output =
        run_with(capctl(None).args(["--socket", "/nonexistent", "decode", "--hex", "0000000303abcd"]), b"");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
}

/// What stands in front of each SHA-256 of a text.
fn before_hashes(text: &str) -> Vec<&str> {
    let is_digit = |byte: &u8| byte.is_ascii_hexdigit();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(begin) = text.as_bytes()[at..].iter().position(is_digit).map(|begin| at + begin) {
        let digits = text.as_bytes()[begin..].iter().take_while(|byte| is_digit(byte)).count();
        if digits == 64 {
            found.push(
                text[..begin].split(|char: char| char.is_whitespace() || char == '"').next_back().unwrap(),
            );
        }
        at = begin + digits;
    }
    found
}

#[test]
fn every_verb_shows_people_hashes_in_one_form() {
    let sidecar = sidecar();
    let declaration = sidecar.dir.join("capabilities.yaml");
    let declaration = declaration.to_str().unwrap();
    let audit = sidecar.audit_file();
    let refused = ["call", "upper:1.0.0", "--params", "5"];
    assert_eq!(run(&sidecar, &refused).0, 4);
    let contracts = ["upper:1.0.0", "upper:2.0.0"];
    // Of every verb, what it shows of this sidecar; of the others, what they say without words.
    let words = |verb: &str| -> Vec<&str> {
        match verb {
            "call" => refused[1..].to_vec(),
            "describe" | "matrix" => vec![contracts[0]],
            "diff" | "check" => contracts.to_vec(),
            "hash" | "gen" => vec![declaration],
            "audit verify" => vec!["--file", audit.to_str().unwrap()],
            "policy why" => vec!["did:web:a.example", contracts[0]],
            _ => Vec::new(),
        }
    };
    // They run until they are told to end, or end the sidecar.
    let lasting = ["serve", "top", "drain", "bench", "restore", "backup"];
    let mut seen = std::collections::BTreeSet::new();
    for (name, asks, _) in table().iter().filter(|(name, ..)| !lasting.contains(&name.as_str())) {
        let mut command = capctl((asks != "no").then_some(&*sidecar.socket));
        command.args(name.split(' ')).args(words(name)).current_dir(&sidecar.dir);
        let output = run_with(&mut command, b"");
        // An export is JSON, whoever reads it.
        let shown = [stdout(&output), stderr(&output)].into_iter().filter(|_| name != "audit export");
        for before in shown.flat_map(before_hashes) {
            assert!(before.ends_with("sha-256:"), "{name}: {before:?}");
            seen.insert(name.clone());
        }
    }
    for verb in ["audit verify", "describe", "hash"] {
        assert!(seen.contains(verb), "{verb}: {seen:?}");
    }
}
