//! A state that is copied while calls run, and restored, in; the same agent with all it did until then, and no call that
//! runs a second time, out (PROTOCOL 8).

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ciborium::Value;

use crate::agents::{CAP_INVOKE, Caller, Provider, by_id, loose, success};
use crate::memory::is_unknown;
use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const ONCE: &str = "org.example.once:1.0.0";

/// Its exit code, and what it prints: on stdout if it is 0.
fn run(sidecar: &Sidecar, words: &[&str]) -> (i32, String) {
    let output = run_with(capctl(Some(&sidecar.socket)).args(words), b"");
    let code = exit_code(&output);
    (code, if code == 0 { stdout(&output).to_owned() } else { stderr(&output).to_owned() })
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn backup(sidecar: &Sidecar, file: &Path) {
    let (code, printed) = run(sidecar, &["backup", text(file)]);
    assert_eq!(code, 0, "{printed}");
}

fn restore(sidecar: &Sidecar, file: &Path, more: &[&str]) -> (i32, String) {
    let config = sidecar.dir.join("capd.toml");
    run(sidecar, &[&["restore", text(file), "--config", text(&config)], more].concat())
}

#[test]
fn a_call_never_runs_again_where_a_backup_was_restored() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.backup");
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    let known = caller.link.envelope(CAP_INVOKE, by_id(ONCE, "known to the copy".into()));
    let known_id = caller.link.send_envelope(&known);
    provider.echo();
    success(&caller.result(&known_id));
    backup(&b, &file);
    let done = caller.link.envelope(CAP_INVOKE, by_id(ONCE, "done since".into()));
    let done_id = caller.link.send_envelope(&done);
    provider.echo();
    success(&caller.result(&done_id));
    let held = caller.link.envelope(CAP_INVOKE, by_id(ONCE, "held".into()));
    let held_id = caller.link.send_envelope(&held);
    let _held = provider.taken();

    let mut b = b;
    let (code, told) = restore(&b, &file, &["--replace"]);
    assert!(code == 3 && told.contains("a sidecar runs with this state"), "{code} {told}");
    b.kill();
    let (code, told) = restore(&b, &file, &[]);
    assert!(code == 3 && told.contains("--replace"), "{code} {told}");
    let (code, told) = restore(&b, &file, &["--replace"]);
    assert_eq!(code, 0, "{told}");
    assert!(told.contains(&format!("{} as of ", b.did)) && told.contains("1 calls of peers"), "{told}");

    let did = b.did.clone();
    let b = b.restart();
    assert_eq!(b.did, did);
    let restored = b.audited("state_restored", 1);
    assert_eq!(restored.len(), 1);
    let journals = ["formerJournal", "journal"].map(|field| restored[0][field].as_str().unwrap());
    assert!(restored[0]["created"].is_string() && journals[0] != journals[1], "{restored:?}");
    let checked = run(&b, &["audit", "verify"]);
    assert_eq!(checked.0, 0, "{}", checked.1);
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    is_unknown(&caller.result(&held_id));
    // Whatever the copy knows, nobody can say that it knows what came after.
    for (envelope, id) in [(&held, &held_id), (&done, &done_id), (&known, &known_id)] {
        caller.link.send_envelope(envelope);
        is_unknown(&caller.result(id));
    }
    provider.heard_nothing_more();
    let other = caller.invoke(by_id(ONCE, "other".into()));
    provider.echo();
    assert_eq!(success(&caller.result(&other)), &Value::from("other"));
}

#[test]
fn a_backup_is_made_beside_calls_and_has_one_moment_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.backup");
    let b = Sidecar::start();
    let mut caller = Caller::of(&b);
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    // Some MiB, so that the copy is made in several steps.
    let large: String = "x".repeat(100_000);
    let mut call = |caller: &mut Caller, params: &str| {
        let id = caller.invoke(by_id(ONCE, params.into()));
        provider.echo();
        assert_eq!(success(&caller.result(&id)), &Value::from(params));
    };
    (0..60).for_each(|_| call(&mut caller, &large));
    let declared = b.dir.join("state/declared-by-agents.json");
    let kept = Instant::now() + PATIENCE;
    while !declared.exists() {
        assert!(Instant::now() < kept, "what the agent declared is not kept");
        std::thread::yield_now();
    }
    let (mut beside, deadline) = (0, Instant::now() + PATIENCE);
    std::thread::scope(|scope| {
        let backing = scope.spawn(|| backup(&b, &file));
        while !backing.is_finished() {
            assert!(Instant::now() < deadline, "no end of it");
            call(&mut caller, "beside");
            beside += 1;
        }
    });
    call(&mut caller, "after");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(names(&b.dir.join("state")).iter().filter(|name| name.contains("backup")).count(), 0);
    let audited = b.audited("operator", 1);
    assert_eq!(audited[0]["record"]["action"].as_str().or(audited[0]["action"].as_str()), Some("backup"));

    let fresh = tempfile::tempdir().unwrap();
    std::fs::set_permissions(fresh.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let config = fresh.path().join("capd.toml");
    let state = fresh.path().join("state");
    std::fs::write(&config, format!("[agent]\ndir = {state:?}\n")).unwrap();
    let (code, printed) = run(&b, &["restore", text(&file), "--config", text(&config), "--json"]);
    assert_eq!(code, 0, "{printed}");
    let told: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let calls = told["calls"].as_u64().unwrap();
    assert!((60..=60 + beside).contains(&calls), "{told}, {beside} beside it");
    assert_eq!(told["did"], b.did.as_str());
    let found = names(&state);
    let expected =
        ["audit.db", "declared-by-agents.json", "identity.key", "journal.db", "journal.mark", "last-journal"];
    assert_eq!(found, expected);
    let verify = ["audit", "verify", "--file", text(&state.join("audit.db"))].map(str::to_owned);
    let (code, told) = run(&b, &verify.each_ref().map(String::as_str));
    assert_eq!(code, 0, "{told}");
}

fn names(folder: &Path) -> Vec<String> {
    let entries: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let mut names: Vec<_> =
        entries.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}
