//! `capctl policy`: configurations and tables in, rules, mistakes and decisions out; and a policy read anew under way.

use std::path::Path;
use std::process::Output;
use std::time::Instant;

use capd_proto::identity::Identity;
use serde_json::Value;

use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const CALLER: &str = "did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P";
const GRANTS: &str = r#"
[agent]
dir = "state"
[[groups]]
name = "near"
members = ["did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P"]
[[allow]]
callers = ["group:near"]
capabilities = ["org.example.*"]
permissions = ["network:read"]
"#;

/// A folder with a configuration, and files beside it.
fn folder(config: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("capd.toml"), config).unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn policy(dir: &Path, args: &[&str]) -> Output {
    let config = dir.join("capd.toml");
    run_with(capctl(None).arg("policy").args(args).arg("--config").arg(config).env("HOME", dir), b"")
}

fn lines(output: &Output) -> Vec<Value> {
    stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn show_prints_grants_as_policies_that_can_be_policies() {
    let dir = folder(GRANTS, &[]);
    let shown = policy(dir.path(), &["show"]);
    assert_eq!(exit_code(&shown), 0, "{}", stderr(&shown));
    let expected = "// [[allow]] 1\n@id(\"allow-1\")\n@permissions(\"network:read\")\npermit (\n  principal in \
                    Group::\"near\",\n  action in [Action::\"query\", Action::\"invoke\"],\n  resource in \
                    Namespace::\"org.example\"\n);\n";
    assert_eq!(stdout(&shown), expected);
    let groups = GRANTS.split("[[allow]]").next().unwrap();
    let again = folder(&format!("{groups}[policy]\nfiles = [\"p.cedar\"]\n"), &[("p.cedar", stdout(&shown))]);
    let checked = policy(again.path(), &["check"]);
    assert_eq!((exit_code(&checked), stdout(&checked)), (0, "1 rules, no mistake in them\n"));
    let json = lines(&policy(again.path(), &["show", "--json"]));
    assert_eq!(json[0]["id"], "allow-1");
    assert!(json[0]["origin"].as_str().unwrap().ends_with("p.cedar:2"), "{json:?}");
}

#[test]
fn show_has_the_own_agents_rule_once_there_is_a_key() {
    let sidecar = Setup::new().allow("").start();
    let shown = policy(&sidecar.dir, &["show", "--json"]);
    let rules = lines(&shown);
    assert_eq!(rules.len(), 1, "{rules:?}");
    assert!(rules[0]["id"] == "own-agent" && rules[0]["policy"].as_str().unwrap().contains(&sidecar.did));
}

#[test]
fn check_names_file_and_line_of_every_mistake() {
    let cedar = "permit (principal in Group::\"far\", action, resource);\n\npermit (principal, action, resource) when { resource.owner == \"x\" };\n";
    let dir = folder(&format!("{GRANTS}[policy]\nfiles = [\"p.cedar\"]\n"), &[("p.cedar", cedar)]);
    let checked = policy(dir.path(), &["check"]);
    assert_eq!(exit_code(&checked), 2);
    for part in ["p.cedar:1: there is no group \"far\"", "p.cedar:3:", "owner"] {
        assert!(stderr(&checked).contains(part), "{part}: {}", stderr(&checked));
    }
    for (config, part) in [
        ("[[allow]]\ncallers = [\"group:x\"]\ncapabilities = [\"a.b.c\"]\n", "no group \"x\""),
        ("[[allow]]\ncallers = [\"*\"]\n", "capd.toml:1: allow: a grant without capabilities"),
        ("[policy]\nfiles = [\"none.cedar\"]\n", "none.cedar: cannot be opened"),
    ] {
        let checked = policy(folder(config, &[]).path(), &["check"]);
        assert_eq!(exit_code(&checked), 2, "{config}");
        assert!(stderr(&checked).contains(part), "{part}: {}", stderr(&checked));
    }
    let listed = policy(dir.path(), &["show"]);
    assert_eq!(exit_code(&listed), 2, "what has a mistake is not shown as if it held");
}

#[test]
fn check_warns_of_callers_that_are_never_let_in() {
    let checked = policy(folder(GRANTS, &[]).path(), &["check"]);
    assert_eq!(exit_code(&checked), 0);
    assert!(
        stderr(&checked).contains(CALLER) && stderr(&checked).contains("[[peers]]"),
        "{}",
        stderr(&checked)
    );
}

#[test]
fn check_warns_of_names_that_nobody_declares() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - { name: review, command: [cat] }\n";
    let grants = "[agent]\ndir = \"state\"\ncapabilities = \"capabilities.yaml\"\n[peer]\nadmit = \"any\"\n\
                  [policy]\nfiles = [\"p.cedar\"]\n\
                  [[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.example.review\", \"org.example.*\", \"*\"]\n\
                  [[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.example.reveiw\", \"org.exmaple.*\"]\n";
    let cedar = "forbid (principal, action, resource in Namespace::\"com.bank\");\n\
                 permit (principal, action, resource)\nwhen { resource == Capability::\"org.example.reviews\" };\n";
    let dir = folder(grants, &[("capabilities.yaml", yaml), ("p.cedar", cedar)]);
    let checked = policy(dir.path(), &["check", "--json"]);
    assert_eq!(exit_code(&checked), 0, "{}", stderr(&checked));
    let told = lines(&checked)[0]["warnings"].as_array().unwrap().clone();
    let told: Vec<_> = told.iter().map(|warning| warning.as_str().unwrap()).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    for (place, name) in [
        ("[[allow]] 2: ", "org.example.reveiw"),
        ("[[allow]] 2: ", "org.exmaple.*"),
        ("p.cedar:2: ", "org.example.reviews"),
    ] {
        assert!(told.iter().any(|told| told.contains(place) && told.ends_with(name)), "{name}: {told:?}");
    }
    // Where nothing is declared in a file, agents are free to declare what they want.
    let free = folder(&grants.replace("capabilities = \"capabilities.yaml\"\n", ""), &[("p.cedar", cedar)]);
    let checked = policy(free.path(), &["check", "--json"]);
    assert_eq!(lines(&checked)[0]["warnings"], Value::Array(Vec::new()));
}

#[test]
fn check_warns_of_grants_that_lack_what_a_capability_declares() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n\
                - { name: vault, command: [cat], permissions: [\"secrets:read\", \"network:read\"] }\n\
                - { name: plain, command: [cat] }\n";
    let other = "did:key:z6MkgdVE8znf5WwkgBq96qJLg2i2JzTBQZ9LsvzgBWKdi6vi";
    let config = format!(
        "[agent]\ndir = \"state\"\ncapabilities = \"capabilities.yaml\"\n[peer]\nadmit = \"any\"\n\
         [policy]\nfiles = [\"p.cedar\"]\n\
         [[groups]]\nname = \"near\"\nmembers = [{CALLER:?}]\n\
         [[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.example.plain\"]\n\
         [[allow]]\ncallers = [\"group:near\"]\ncapabilities = [\"org.example.*\"]\npermissions = [\"network:*\"]\n\
         [[allow]]\ncallers = [{other:?}]\ncapabilities = [\"org.example.vault\"]\npermissions = [\"network:read\"]\n\
         [[allow]]\ncallers = [{other:?}]\ncapabilities = [\"org.example.*\"]\npermissions = [\"secrets:*\"]\n"
    );
    let cedar = "permit (principal == Caller::\"did:web:a.example\", action, resource);\n";
    let dir = folder(&config, &[("capabilities.yaml", yaml), ("p.cedar", cedar)]);
    let checked = policy(dir.path(), &["check", "--json"]);
    assert_eq!(exit_code(&checked), 0, "{}", stderr(&checked));
    let told = lines(&checked)[0]["warnings"].as_array().unwrap().clone();
    let told: Vec<_> = told.iter().map(|warning| warning.as_str().unwrap()).collect();
    // Two grants to one caller add up.
    assert_eq!(told.len(), 2, "{told:?}");
    let expected = [
        ("[[allow]] 2: ", "does not grant secrets:read"),
        ("p.cedar:1: ", "does not grant secrets:read, network:read"),
    ];
    for (told, (place, lacks)) in told.iter().zip(expected) {
        assert!(
            told.contains(place) && told.contains("org.example.vault:1.0.0") && told.contains(lacks),
            "{told}"
        );
    }
}

#[test]
fn test_decides_each_case_and_fails_with_4_when_one_is_decided_otherwise() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - { name: vault, permissions: [\"secrets:read\"] }\n";
    let case = |capability: &str, more: &str, expect: &str| {
        format!(
            "[[case]]\ncaller = \"{CALLER}\"\ncapability = \"{capability}\"\n{more}expect = \"{expect}\"\n"
        )
    };
    let good = [
        case("org.example.a:1.0.0", "permissions = [\"network:read\"]\n", "allow"),
        case("org.example.a:1.0.0", "permissions = [\"network:write\"]\n", "deny"),
        case("org.example.vault:1.0.0", "", "deny"),
        case("org.example.vault:1.0.0", "action = \"query\"\n", "allow"),
        case("com.other.a", "", "deny"),
    ]
    .concat();
    let config = GRANTS.replace("dir = \"state\"", "dir = \"state\"\ncapabilities = \"capabilities.yaml\"");
    let dir = folder(&config, &[("capabilities.yaml", yaml), ("good.toml", &good)]);
    let table = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let tested = policy(dir.path(), &["test", &table("good.toml")]);
    assert_eq!(exit_code(&tested), 0, "{}{}", stdout(&tested), stderr(&tested));
    assert!(stdout(&tested).contains("it declares secrets:read, which allow-1 does not grant"));
    let wrong = good.replacen("\"allow\"", "\"deny\"", 1);
    std::fs::write(table("wrong.toml"), wrong).unwrap();
    let tested = policy(dir.path(), &["test", &table("wrong.toml"), "--json"]);
    assert_eq!(exit_code(&tested), 4);
    let states: Vec<_> = lines(&tested).iter().map(|line| line["state"].clone()).collect();
    assert_eq!(states, ["failed", "ok", "ok", "ok", "ok"]);
    assert!(stderr(&tested).contains("1 of 5 cases"), "{}", stderr(&tested));
    std::fs::write(
        table("none.toml"),
        "[[case]]\ncaller = \"bob\"\ncapability = \"a.b.c\"\nexpect = \"deny\"\n",
    )
    .unwrap();
    let tested = policy(dir.path(), &["test", &table("none.toml")]);
    assert_eq!(exit_code(&tested), 2);
    assert!(stderr(&tested).contains("none.toml:1: caller \"bob\""), "{}", stderr(&tested));
}

fn why(sidecar: &Sidecar, caller: &str, capability: &str) -> Vec<(String, String, bool, String)> {
    let output =
        run_with(capctl(Some(&sidecar.socket)).args(["policy", "why", caller, capability, "--json"]), b"");
    assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    let text = |line: &Value, key: &str| line[key].as_str().unwrap().to_owned();
    let row = |line: &Value| {
        let allowed = line["allowed"].as_bool().unwrap();
        (text(line, "capability"), text(line, "action"), allowed, text(line, "decision"))
    };
    lines(&output).iter().map(row).collect()
}

const VAULT: &str = "version: 1\nnamespace: org.example\ncapabilities:\n  - { name: vault, command: [cat], permissions: [\"secrets:read\"] }\n";

#[test]
fn why_names_the_rule_that_decided() {
    let allow = "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.example.*\"]\n";
    let sidecar = Setup::new().capabilities(VAULT).allow(allow).start();
    let row = |about: &str, action: &str, allowed, told: &str| {
        (about.to_owned(), action.to_owned(), allowed, told.to_owned())
    };
    let (name, id) = ("org.example.vault", "org.example.vault:1.0.0");
    let lacking = "denied: it declares secrets:read, which allow-1 does not grant";
    assert_eq!(
        why(&sidecar, CALLER, name),
        [
            row(name, "query", true, "allowed by allow-1"),
            row(name, "invoke", true, "allowed by allow-1"),
            row(id, "query", true, "allowed by allow-1"),
            row(id, "invoke", false, lacking),
        ]
    );
    assert!(why(&sidecar, &sidecar.did, name).iter().all(|(.., told)| told.starts_with("allowed by ")));
    let nobody = why(&sidecar, CALLER, "com.other.a");
    assert_eq!(nobody[1], row("com.other.a", "invoke", false, "denied: no rule grants it"));
    let table = run_with(capctl(Some(&sidecar.socket)).args(["policy", "why", CALLER, name]), b"");
    assert!(stdout(&table).lines().last().unwrap().ends_with(lacking), "{}", stdout(&table));
}

fn reload(sidecar: &Sidecar) -> Output {
    run_with(capctl(Some(&sidecar.socket)).args(["policy", "reload"]), b"")
}

/// Puts other grants in the sidecar's configuration.
fn rewrite(sidecar: &Sidecar, from: &str, to: &str) {
    let path = sidecar.dir.join("capd.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(&path, text.replace(from, to)).unwrap();
}

fn call(sidecar: &Sidecar) -> Output {
    let mut command = capctl(Some(&sidecar.socket));
    run_with(command.args(["call", "org.example.echo", "--params", "1", "--timeout", "20s"]), b"")
}

#[test]
fn a_policy_read_anew_holds_from_then_on_and_one_with_a_mistake_changes_nothing() {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - { name: echo, command: [cat], idempotent: true }\n";
    let granted = "capabilities = [\"org.example.*\"]";
    let allow = format!("[[allow]]\ncallers = [\"*\"]\n{granted}\n");
    let provider = Setup::new().capabilities(yaml).allow(&allow).start();
    let caller = Setup::new().peer(&provider).start();
    let called = call(&caller);
    assert_eq!((exit_code(&called), stdout(&called)), (0, "1\n"), "{}", stderr(&called));

    rewrite(&provider, granted, "capabilities = [\"org.other.*\"]");
    let called = call(&caller);
    assert_eq!(exit_code(&called), 0, "nothing holds before it is read: {}", stderr(&called));
    let reloaded = reload(&provider);
    assert_eq!((exit_code(&reloaded), stdout(&reloaded)), (0, "2 rules in force\n"), "{}", stderr(&reloaded));
    let called = call(&caller);
    assert_eq!(exit_code(&called), 3, "{}", stderr(&called));
    assert!(stderr(&called).contains("3001"), "{}", stderr(&called));

    rewrite(&provider, "capabilities = [\"org.other.*\"]", "capabilities = [\"org..other\"]");
    let reloaded = reload(&provider);
    assert_eq!(exit_code(&reloaded), 2, "as `capctl reload` says it: {}", stdout(&reloaded));
    assert!(stderr(&reloaded).contains("org..other"), "{}", stderr(&reloaded));
    assert!(stderr(&reloaded).contains("capd config check"), "{}", stderr(&reloaded));
    assert!(provider.log().contains("org..other"), "the log names the mistake");
    assert!(!stderr(&reloaded).contains(provider.dir.to_str().unwrap()), "a message names no file");
    assert_eq!(exit_code(&call(&caller)), 3, "the old rules stay in force");

    // A signal does the same.
    rewrite(&provider, "capabilities = [\"org..other\"]", granted);
    let pid = rustix::process::Pid::from_raw(provider.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while exit_code(&call(&caller)) != 0 {
        assert!(Instant::now() < deadline, "{}", provider.log());
    }
}

#[test]
fn only_the_own_agent_may_look_into_the_policy() {
    let sidecar = Setup::new().start();
    let stranger = Identity::from_seed([7; 32]).did().to_string();
    let wrong = run_with(capctl(Some(&sidecar.socket)).args(["policy", "why", "bob", "a.b.c"]), b"");
    assert_eq!(exit_code(&wrong), 3, "{}", stderr(&wrong));
    assert!(!why(&sidecar, &stranger, "a.b.c").is_empty());
}
