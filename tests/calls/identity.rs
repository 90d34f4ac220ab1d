//! A key file that is gone, with the rest of the state there; no new identity without a yes.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{Setup, Sidecar, exit_code, run_with, stderr, stdout};

/// Runs a command of `capd` with the configuration of the sidecar in `dir`.
fn capd(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
    command.env_clear().env("HOME", dir).args(words).arg("--config").arg(dir.join("capd.toml"));
    run_with(&mut command, b"")
}

/// A sidecar that ran once and has lost its key; the file.
fn without_its_key() -> (Sidecar, std::path::PathBuf) {
    let mut sidecar = Sidecar::start();
    assert!(sidecar.terminate().success());
    let key = sidecar.dir.join("state/identity.key");
    std::fs::remove_file(&key).unwrap();
    (sidecar, key)
}

#[test]
fn state_without_its_key_is_no_reason_for_a_new_identity() {
    let (sidecar, key) = without_its_key();
    let state = sidecar.dir.join("state");
    let refused = |words: &[&str], found: &str| {
        let output = capd(&sidecar.dir, words);
        assert_eq!(exit_code(&output), 2, "{output:?}");
        let found = state.join(found);
        let said = format!(
            "capd: identity key {}: the file is missing, but {} is of an earlier identity; restore the key file, or add \
             --new-identity for a new DID, which every peer must then list\n",
            key.display(),
            found.display(),
        );
        assert_eq!(stderr(&output).lines().last(), said.lines().last(), "{output:?}");
        assert!(!key.exists(), "no key is made");
    };
    refused(&["id"], "journal.db");
    refused(&["run"], "journal.db");
    for file in ["journal.db", "journal.db-wal"] {
        // The log is gone after an orderly stop.
        let _ = std::fs::remove_file(state.join(file));
    }
    refused(&["id"], "journal.mark");
    std::fs::remove_file(state.join("journal.mark")).unwrap();
    refused(&["run"], "audit.db");
    let checked = capd(&sidecar.dir, &["config", "check"]);
    assert_eq!(exit_code(&checked), 0, "{checked:?}");
    assert!(stdout(&checked).contains("warning: identity key "), "{checked:?}");
    // Nothing is left of it, so whoever starts is the first.
    std::fs::remove_file(state.join("audit.db")).unwrap();
    assert_eq!(exit_code(&capd(&sidecar.dir, &["id"])), 0);
    assert!(key.exists());
}

#[test]
fn a_new_identity_is_made_for_who_asks_for_it_and_no_key_is_replaced() {
    let (sidecar, key) = without_its_key();
    let output = capd(&sidecar.dir, &["id", "--new-identity"]);
    assert_eq!(exit_code(&output), 0, "{output:?}");
    let did = stdout(&output).trim().to_owned();
    assert_ne!(did, sidecar.did);
    let made = std::fs::read(&key).unwrap();
    // With a key there is nothing to ask for.
    assert_eq!(stdout(&capd(&sidecar.dir, &["id", "--new-identity"])).trim(), did);
    assert_eq!(std::fs::read(&key).unwrap(), made);
    assert_eq!(sidecar.restart().did, did);
}

#[test]
fn a_run_with_a_yes_goes_on_under_a_new_did() {
    let (sidecar, key) = without_its_key();
    let former = sidecar.did.clone();
    let sidecar = sidecar.restart_with(|setup| setup.flag("--new-identity"));
    assert_ne!(sidecar.did, former);
    assert!(key.exists());
    drop(sidecar);
    let fresh = Setup::new().flag("--new-identity").start();
    assert!(fresh.dir.join("state/identity.key").exists());
}
