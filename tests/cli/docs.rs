//! The examples of docs/capctl.md, run as they stand there: what they print is what the page says.

use std::io::BufRead as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Setup, exit_code, run_with, stdout};

const PAGE: &str = include_str!("../../docs/capctl.md");
/// The agent that the page's examples were made with.
const PAGE_DID: &str = "did:key:z6MkgdVE8znf5WwkgBq96qJLg2i2JzTBQZ9LsvzgBWKdi6vi";

/// One command of the page, and what it shows below; empty where it shows nothing.
struct Example {
    command: String,
    shown: String,
}

/// The examples of one section.
fn examples(section: &str) -> Vec<Example> {
    examples_of(PAGE, section)
}

fn examples_of(page: &str, section: &str) -> Vec<Example> {
    let start = page.find(&format!("\n## {section}\n")).unwrap_or_else(|| panic!("no section {section}"));
    let text = &page[start + 1..];
    let text = &text[..text[1..].find("\n## ").map_or(text.len(), |end| end + 1)];
    let mut examples = Vec::new();
    for block in text.split("```").skip(1).step_by(2) {
        for line in block.lines().skip(1) {
            match (line.strip_prefix("$ "), examples.last_mut()) {
                (Some(command), _) => {
                    examples.push(Example { command: command.to_owned(), shown: String::new() })
                }
                (None, Some(Example { shown, .. })) => *shown += &format!("{line}\n"),
                // A synopsis or a file.
                (None, None) => {}
            }
        }
    }
    examples
}

fn shell(command: &str, home: &Path) -> Command {
    let mut shell = Command::new("sh");
    let binaries = Path::new(env!("CARGO_BIN_EXE_capctl")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let dirs = std::iter::once(binaries.to_owned()).chain(std::env::split_paths(&path));
    shell.env_clear().env("PATH", std::env::join_paths(dirs).unwrap()).env("HOME", home).current_dir(home);
    shell.args(["-c", &format!("exec 2>&1; {command}")]);
    shell
}

/// Runs each example in `home`, and compares what it prints with what the page shows, if it shows anything.
#[track_caller]
fn hold(section: &str, home: &Path, did: &str) {
    hold_examples(section, examples(section), home, did);
}

#[track_caller]
fn hold_examples(section: &str, examples: Vec<Example>, home: &Path, did: &str) {
    assert!(!examples.is_empty(), "{section}");
    for Example { command, shown } in examples {
        let output = run_with(&mut shell(&command, home), b"");
        if shown.is_empty() {
            assert_eq!(exit_code(&output), 0, "{command}\n{}", stdout(&output));
        } else {
            assert_eq!(stdout(&output), shown.replace(PAGE_DID, did), "{command}");
        }
    }
}

#[test]
fn the_examples_without_a_sidecar_print_what_the_page_shows() {
    let home = tempfile::tempdir().unwrap();
    hold("Which sidecar", home.path(), "");
    hold("decode", home.path(), "");
    hold("gen", home.path(), "");
    hold("hash", home.path(), "");
    let example = Path::new(env!("CARGO_MANIFEST_DIR"));
    for section in ["diff", "check", "matrix"] {
        hold(section, example, "");
    }
    hold("subtype", home.path(), "");
}

#[test]
fn the_page_about_generated_code_shows_what_is_generated() {
    let page = include_str!("../../docs/codegen.md");
    let home = tempfile::tempdir().unwrap();
    let declaration = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(home.path().join("capabilities.yaml"), declaration).unwrap();
    for section in ["Generate", "Keep it current"] {
        hold_examples(section, examples_of(page, section), home.path(), "");
    }
}

#[test]
fn the_examples_with_a_sidecar_print_what_the_page_shows() {
    let sidecar = Setup::new().at_home().start();
    std::fs::write(sidecar.dir.join("params.json"), "\"hello\"").unwrap();
    let serve = examples("serve");
    let [schema, serve] = serve.as_slice() else { panic!("{} examples of serve", serve.len()) };
    assert_eq!(exit_code(&run_with(&mut shell(&schema.command, &sidecar.dir), b"")), 0);
    let mut server = shell(&format!("exec {}", serve.command), &sidecar.dir);
    let mut server = server.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut announced = String::new();
    // Nobody reads on after this line, and what serve says of each call must not end it.
    std::io::BufReader::new(server.stdout.take().unwrap()).read_line(&mut announced).unwrap();
    assert_eq!(announced, serve.shown.replace(PAGE_DID, &sidecar.did));
    for section in [
        "call",
        "What became of my call?",
        "calls",
        "audit",
        "query",
        "ls",
        "describe",
        "doctor",
        "policy",
        "id",
    ] {
        hold(section, &sidecar.dir, &sidecar.did);
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn the_page_names_every_exit_code_and_flag_of_the_help() {
    let help = run_with(&mut shell("capctl --help", Path::new("/")), b"");
    let codes = stdout(&help).split("Exit codes:").nth(1).expect("the help lists the exit codes");
    for line in codes.lines().filter(|line| !line.trim().is_empty()) {
        let (code, meaning) = line.trim().split_once(' ').unwrap();
        assert!(PAGE.replace('`', "").contains(&format!("| {code} | {} |", meaning.trim())), "{line}");
    }
    let audit = ["audit query", "audit verify", "audit export", "audit prune"];
    let others = [
        "call", "calls", "metrics", "query", "ls", "describe", "serve", "cancel", "ping", "bench", "id",
        "diff", "check", "matrix", "decode", "gen", "hash", "subtype",
    ];
    let policy = ["policy show", "policy check", "policy test", "policy why", "policy reload"];
    for subcommand in audit.into_iter().chain(others).chain(["doctor"]).chain(policy) {
        let help = run_with(&mut shell(&format!("capctl {subcommand} --help"), Path::new("/")), b"");
        let own = stdout(&help).split("Sidecar:").next().unwrap().to_owned();
        for flag in own.split_whitespace().filter(|word| word.starts_with("--")) {
            let flag = flag.trim_end_matches(|char: char| !char.is_ascii_alphanumeric());
            let shown = PAGE.contains(flag) || flag == "--help" || flag.is_empty();
            assert!(shown, "{subcommand}: {flag}");
        }
    }
}
