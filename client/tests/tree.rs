//! The crates an agent builds with this client, as cargo tells them: none of the daemon's heavy parts.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::process::Command;

/// Of the daemon, of links between sidecars, and of JSON Schema.
const ABSENT: [&str; 7] =
    ["capd", "capd-schema", "cedar-policy", "jsonschema", "libsqlite3-sys", "quinn", "rustls"];

#[test]
fn a_client_builds_without_the_daemon_s_parts() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--package", "capd-client", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8(tree.stdout).unwrap();
    let names: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"capd-proto") && names.contains(&"tokio"), "{text}");
    let found: Vec<_> = ABSENT.into_iter().filter(|name| names.contains(name)).collect();
    assert!(found.is_empty(), "the client builds with {found:?}");
}
