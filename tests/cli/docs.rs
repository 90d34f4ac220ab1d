//! `docs/capctl.md` names what the help of each command names. Its examples are run by `tests/docs.rs`.

use std::path::Path;
use std::process::Command;

use crate::support::{run_with, stdout};

const PAGE: &str = include_str!("../../docs/capctl.md");

fn shell(command: &str, home: &Path) -> Command {
    let mut shell = Command::new("sh");
    let binaries = Path::new(env!("CARGO_BIN_EXE_capctl")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let dirs = std::iter::once(binaries.to_owned()).chain(std::env::split_paths(&path));
    shell.env_clear().env("PATH", std::env::join_paths(dirs).unwrap()).env("HOME", home).current_dir(home);
    shell.args(["-c", &format!("exec 2>&1; {command}")]);
    shell
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
        "call",
        "calls",
        "top",
        "metrics",
        "query",
        "ls",
        "describe",
        "serve",
        "cancel",
        "ping",
        "bench",
        "id",
        "diff",
        "check",
        "matrix",
        "decode",
        "gen",
        "hash",
        "subtype",
        "reload",
        "config diff",
        "drain",
        "backup",
        "restore",
    ];
    let policy = ["show", "check", "test", "why", "grant", "revoke", "reload"];
    let policy = policy.map(|verb| format!("policy {verb}"));
    let fleet = ["fleet init", "fleet admit", "fleet revoke", "fleet ls", "fleet why", "fleet doctor"];
    for subcommand in audit
        .into_iter()
        .chain(others)
        .chain(["doctor"])
        .chain(fleet)
        .chain(policy.iter().map(String::as_str))
    {
        let help = run_with(&mut shell(&format!("capctl {subcommand} --help"), Path::new("/")), b"");
        let own = stdout(&help).split("Sidecar:").next().unwrap().to_owned();
        for flag in own.split_whitespace().filter(|word| word.starts_with("--")) {
            let flag = flag.trim_end_matches(|char: char| !char.is_ascii_alphanumeric());
            let shown = PAGE.contains(flag) || flag == "--help" || flag.is_empty();
            assert!(shown, "{subcommand}: {flag}");
        }
    }
}
