//! Commands that try more than their capability declares in; what they are kept from out.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use capd::provider::process::confine::Enforced;
use ciborium::Value;

use crate::agents::{Caller, by_id, success};
use crate::support::{Setup, Sidecar};

/// A declaration of scripts, each with its permissions.
fn declaring(capabilities: &[(&str, &str, &[&str])]) -> Setup {
    let mut yaml = "version: 1\nnamespace: org.example\ncapabilities:\n".to_owned();
    for (name, script, permissions) in capabilities {
        yaml += &format!("  - name: {name}\n    command: [sh, -c, {script:?}]\n");
        yaml += &format!("    permissions: {permissions:?}\n");
    }
    Setup::new().capabilities(&yaml)
}

/// What the script of this name says.
fn said(sidecar: &Sidecar, name: &str) -> Value {
    let mut caller = Caller::of(sidecar);
    let id = caller.invoke(by_id(&format!("org.example.{name}:1.0.0"), Value::Null));
    success(&caller.result(&id)).clone()
}

/// A script that says whether it can do this.
fn attempt(command: &str) -> String {
    format!("({command}) >/dev/null 2>&1 && echo true || echo false")
}

/// What this machine's kernel keeps commands from; its absence is told in the log.
fn is_enforced(part: &str) -> bool {
    Enforced::here().told().0.split(", ").any(|enforced| enforced == part)
}

#[test]
fn a_command_has_no_more_than_its_bounds_and_gains_no_privileges() {
    let b = declaring(&[
        ("privileges", "sed -n 's/^NoNewPrivs:[^0-9]*//p' /proc/self/status", &[]),
        ("files", "ulimit -n", &[]),
        ("core", "ulimit -c", &[]),
        ("inherited", "sh -c 'ulimit -n'", &["filesystem:write", "network:write"]),
        ("data", "sed -n 's/^Max data size *\\([0-9]*\\) .*/\\1/p' /proc/self/limits", &[]),
    ])
    .set("process.open_files_max", "64")
    .set("process.memory_bytes_max", "1073741824")
    .start();
    for (name, value) in [("privileges", 1), ("files", 64), ("core", 0), ("inherited", 64), ("data", 1 << 30)]
    {
        assert_eq!(said(&b, name), Value::from(value), "{name}");
    }
    let log = b.log();
    assert!(log.contains("commands are confined") && log.contains("no new privileges"), "{log}");
    assert!(log.contains("resource limits") && log.contains("not_enforced="), "{log}");
}

#[test]
fn a_command_reaches_the_files_that_its_capability_declares() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let read = attempt(&format!("cat {}", secret.display()));
    let write = attempt(&format!("echo x > {}", outside.path().join("written").display()));
    let beside = attempt("cat beside.txt");
    let key = attempt("cat state/identity.key");
    let (none, reads, writes): (&[_], &[_], &[_]) = (&[], &["filesystem:read"], &["filesystem:write"]);
    let b = declaring(&[
        ("beside", &beside, none),
        ("read-none", &read, none),
        ("key-none", &key, none),
        ("write-none", &write, none),
        ("read-read", &read, reads),
        ("write-read", &write, reads),
        ("read-write", &read, writes),
        ("write-write", &write, writes),
    ])
    .file("beside.txt", "what the command needs")
    .start();
    let free = !is_enforced("files");
    for (name, may) in [
        ("beside", true),
        ("read-none", free),
        ("key-none", free),
        ("write-none", free),
        ("read-read", true),
        ("write-read", free),
        ("read-write", true),
        ("write-write", true),
    ] {
        assert_eq!(said(&b, name), Value::Bool(may), "{name}");
    }
}

#[test]
fn a_command_reaches_the_network_only_where_its_capability_declares_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = attempt(&format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'"));
    let b = declaring(&[
        ("none", &connect, &["filesystem:write"]),
        ("read", &connect, &["network:read"]),
        ("write", &connect, &["network:write"]),
    ])
    .start();
    assert_eq!(said(&b, "none"), Value::Bool(!is_enforced("TCP")));
    assert_eq!(said(&b, "read"), Value::Bool(true));
    assert_eq!(said(&b, "write"), Value::Bool(true));
}

#[test]
fn a_command_cannot_signal_its_sidecar() {
    let signal = attempt("kill -0 $PPID");
    let b = declaring(&[("signal", &signal, &["filesystem:write"])]).start();
    assert_eq!(said(&b, "signal"), Value::Bool(!is_enforced("signals")));
}

/// A virtual environment in somebody's folder, with a module of its own; none where this machine has no Python.
fn environment(dir: &Path) -> Option<PathBuf> {
    let mut python = Command::new("python3");
    let made = python.args(["-m", "venv", "--without-pip"]).arg(dir).output().ok()?;
    made.status.success().then_some(())?;
    let lib = std::fs::read_dir(dir.join("lib")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(lib.join("site-packages/only_here.py"), "WORD = 7\n").unwrap();
    Some(dir.join("bin/python"))
}

#[test]
fn a_python_of_a_virtual_environment_runs_with_its_modules_and_reads_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let Some(python) = environment(&home.path().join("venv")) else {
        println!("not run: there is no python3 that makes a virtual environment");
        return;
    };
    std::fs::write(home.path().join("secret"), "secret").unwrap();
    let read = format!("import json, only_here; print(open({:?}).read())", home.path().join("secret"));
    let yaml = format!(
        "version: 1\nnamespace: org.example\ncapabilities:\n\
         - {{ name: command, command: [{python:?}, -c, \"import json, only_here; print(json.dumps(only_here.WORD))\"] }}\n\
         - {{ name: script, command: [./script] }}\n\
         - {{ name: system, command: [./system] }}\n\
         - {{ name: secret, command: [{python:?}, -c, {read:?}] }}\n"
    );
    let text = "import json\nfrom only_here import WORD\nprint(json.dumps(WORD))\n";
    let b = Setup::new()
        .capabilities(&yaml)
        .file("script", &format!("#!{}\n{text}", python.display()))
        .mode("script", 0o755)
        // That of pyenv, where there is one.
        .file("system", "#!/usr/bin/env python3\nimport json, ssl, sqlite3\nprint(json.dumps(7))\n")
        .mode("system", 0o755)
        .environment("PATH", &std::env::var("PATH").unwrap())
        .start();
    for name in ["command", "script", "system"] {
        assert_eq!(said(&b, name), Value::from(7), "{name}: {}", b.log());
    }
    if is_enforced("files") {
        let mut caller = Caller::of(&b);
        let id = caller.invoke(by_id("org.example.secret:1.0.0", Value::Null));
        caller.result(&id);
        assert!(b.log().contains("permission=filesystem:read"), "{}", b.log());
    }
}
