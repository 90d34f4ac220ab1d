//! Declarations whose commands cannot run in; each told with its place before anybody calls it, out.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Setup, exit_code, run_with, stderr, stdout};

/// A folder with `commands` as capabilities, one a line from line 4 on, and a file and a folder that are no programs.
fn folder(commands: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let config = "[agent]\ndir = \"state\"\ncapabilities = \"agent/capabilities.yaml\"\n[process]\nallow_root = \"on\"\n";
    std::fs::write(dir.path().join("capd.toml"), config).unwrap();
    let agent = dir.path().join("agent");
    std::fs::create_dir_all(agent.join("folder")).unwrap();
    std::fs::write(agent.join("text"), "#!/bin/sh\n").unwrap();
    std::fs::write(agent.join("tool"), "#!/bin/sh\ncat\n").unwrap();
    std::fs::set_permissions(agent.join("tool"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut yaml = "version: 1\nnamespace: org.example\ncapabilities:\n".to_owned();
    for (index, command) in commands.iter().enumerate() {
        yaml += &format!("  - {{ name: c{index}, command: [{command}] }}\n");
    }
    std::fs::write(agent.join("capabilities.yaml"), yaml).unwrap();
    dir
}

fn capd(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // From elsewhere: a relative program stands beside its declaration.
    command.env_clear().env("HOME", dir).env("PATH", path).current_dir("/").args(words);
    run_with(command.arg("--config").arg(dir.join("capd.toml")), b"")
}

#[test]
fn a_command_that_cannot_run_is_a_mistake_with_its_place_and_why() {
    let dir = folder(&[
        "no-such-program-anywhere",
        "./missing, -v",
        "./text",
        "./folder",
        "/nonexistent/tool",
        "cat",
        "./tool",
    ]);
    let checked = capd(dir.path(), &["config", "check"]);
    assert_eq!(exit_code(&checked), 2, "{checked:?}");
    let file = dir.path().join("agent/capabilities.yaml");
    let expected = [
        (4, 0, "\"no-such-program-anywhere\" is in no folder of PATH"),
        (5, 1, "\"./missing\" does not exist"),
        (6, 2, "\"./text\" is not executable"),
        (7, 3, "\"./folder\" is a directory"),
        (8, 4, "\"/nonexistent/tool\" does not exist"),
    ];
    let said = stderr(&checked);
    assert_eq!(said.lines().count(), expected.len(), "{said}");
    for (line, index, problem) in expected {
        let place =
            format!("{}:{line}: capabilities[{index}].command[0]: {problem}; accepted: ", file.display());
        assert!(said.contains(&place), "{place}\n{said}");
    }
    // A start says the same, and starts nothing.
    let run = capd(dir.path(), &["run"]);
    assert_eq!(exit_code(&run), 2, "{run:?}");
    assert!(stderr(&run).contains("capabilities[2].command[0]: \"./text\" is not executable"), "{run:?}");
    assert!(!stderr(&run).contains("serving by process"), "{run:?}");
    let fine = capd(folder(&["cat", "./tool"]).path(), &["config", "check"]);
    assert_eq!((exit_code(&fine), stdout(&fine)), (0, "the configuration has no mistakes\n"), "{fine:?}");
}

#[test]
fn a_permission_that_is_nearly_one_that_is_enforced_is_a_mistake_with_the_nearest() {
    let setup = |permission: &str| {
        let yaml = format!(
            "version: 1\nnamespace: org.example\ncapabilities:\n  - name: a\n    command: [cat]\n    permissions: [{permission:?}]\n"
        );
        Setup::new().capabilities(&yaml)
    };
    let refused = setup("network:reed").refused_to_start();
    let place = "capabilities.yaml:6: capabilities[0].permissions[0]: ";
    assert!(refused.contains(place) && refused.contains("did you mean \"network:read\"?"), "{refused}");
    let odd = setup("network:listen").start();
    let said = "network:listen grants a command no right";
    assert!(odd.log().lines().any(|line| line.contains(" WARN ") && line.contains(said)), "{}", odd.log());
    let own = setup("acme:approve").start();
    assert!(!own.log().contains("acme:approve grants"), "{}", own.log());
}
