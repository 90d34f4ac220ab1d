//! A saved state in, the same state or a clear refusal out.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use bytes::Bytes;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::{BodyDigest, Key};

use super::*;
use crate::store::{Begun, Change, Options, Row, Sqlite, Storage as _, StoreErrorKind};

fn place(dir: &Path) -> Place {
    Place {
        dir: dir.to_owned(),
        key_file: dir.join("identity.key"),
        audit: None,
        tenant: "default".to_owned(),
        configuration: vec![dir.join("capd.toml"), dir.join("missing.yaml")],
    }
}

fn begun(row: u64) -> Change {
    Change::Begin(Begun {
        row: Row(row),
        key: Key {
            from: Did::parse("did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp").unwrap(),
            id: MessageId::new(row, [3; 8]),
        },
        body: BodyDigest([3; 32]),
        expires_at_ms: 10,
        started_at_ms: 1,
        capability: "org.example.echo:1.0.0".into(),
    })
}

/// A state with `calls` calls, the last of them begun while the copy was made; and its backup.
fn saved(dir: &Path, calls: u64) -> (PathBuf, Manifest) {
    fs::write(dir.join("identity.key"), "a key").unwrap();
    fs::write(dir.join("capd.toml"), "[agent]\n").unwrap();
    fs::write(dir.join("fleet.incarnation"), "4\n").unwrap();
    let mut journal = Sqlite::open(dir, Options { page_bytes: 512, ..Options::default() }).unwrap();
    let changes: Vec<_> = (1..calls).map(begun).collect();
    journal.commit(&changes).unwrap();
    let finish = Change::Finish { row: Row(1), result: Bytes::from(vec![7; 400_000]), finished_at_ms: 5 };
    journal.commit(&[finish]).unwrap();
    let copying = Copying::begin(place(dir)).unwrap();
    let mut steps = 0;
    journal
        .copy(&copying.journal(), &mut |journal| {
            steps += 1;
            if steps == 1 {
                journal.commit(&[begun(calls)]).unwrap();
            }
        })
        .unwrap();
    assert!(steps > 1, "the copy is made in steps");
    let about =
        About { did: "did:key:z6Mk".into(), journal: journal.journal_id().to_string(), now_ms: 86_400_123 };
    let (path, bytes) = copying.finish(&about).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
    assert_eq!(path.file_name().unwrap(), "backup-1970-01-02T000000Z-123.tar");
    (path.clone(), restore(&path, &place(tempfile::tempdir().unwrap().path()), false, 7).unwrap().manifest)
}

#[test]
fn a_restored_state_has_every_commit_and_a_journal_of_another_id() {
    let dir = tempfile::tempdir().unwrap();
    let (file, manifest) = saved(dir.path(), 20);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<_> = manifest.files.iter().map(|file| &*file.name).collect();
    assert_eq!(names, ["identity.key", "journal.db", "fleet.incarnation", "configuration/capd.toml"]);

    let to = tempfile::tempdir().unwrap();
    let restored = restore(&file, &place(to.path()), false, 7).unwrap();
    assert_eq!((restored.calls, restored.given, restored.moved.len()), (20, 0, 0));
    assert_ne!(restored.journal.to_string(), restored.manifest.journal);
    let mut found: Vec<_> = fs::read_dir(to.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, ["fleet.incarnation", "identity.key", "journal.db", "journal.mark", "last-journal"]);
    for name in found {
        let mode = fs::metadata(to.path().join(&name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    let mut journal = Sqlite::open(to.path(), Options::default()).unwrap();
    assert_eq!(journal.journal_id(), restored.journal, "a start keeps the new id");
    assert_eq!(journal.load().unwrap().calls.len(), 20);
    assert_eq!(journal.read(Row(1)).unwrap(), vec![7; 400_000]);
}

#[test]
fn a_state_that_is_used_or_there_is_not_replaced_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = saved(dir.path(), 3);
    let to = tempfile::tempdir().unwrap();
    let running = Sqlite::open(to.path(), Options::default()).unwrap();
    for replace in [false, true] {
        let refused = restore(&file, &place(to.path()), replace, 7).unwrap_err();
        let BackupError::Store(error) = &refused else { panic!("{refused}") };
        assert_eq!(error.kind(), StoreErrorKind::Locked);
    }
    let former = running.journal_id();
    drop(running);
    let before = fs::read(to.path().join("journal.db")).unwrap();
    assert!(matches!(restore(&file, &place(to.path()), false, 7), Err(BackupError::Exists(_))));
    assert_eq!(fs::read(to.path().join("journal.db")).unwrap(), before, "it is as it was");

    let restored = restore(&file, &place(to.path()), true, 7).unwrap();
    assert_eq!(restored.moved, [to.path().join("replaced-1")]);
    assert_eq!(fs::read(restored.moved[0].join("journal.db")).unwrap(), before);
    let journal = Sqlite::open(to.path(), Options::default()).unwrap();
    assert!(journal.journal_id() == restored.journal && journal.journal_id() != former);
}

#[test]
fn a_backup_that_is_cut_or_changed_anywhere_restores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _) = saved(dir.path(), 2);
    let good = fs::read(&file).unwrap();
    let bad = dir.path().join("bad.tar");
    let to = tempfile::tempdir().unwrap();
    let refused = |bytes: &[u8], what: &str| {
        fs::write(&bad, bytes).unwrap();
        restore(&bad, &place(to.path()), false, 7).expect_err(what);
        assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0, "{what}: nothing is left");
    };
    // The end of an archive is padding.
    let end = good.iter().rposition(|byte| *byte != 0).unwrap();
    for length in (0..end).step_by(20_011) {
        refused(&good[..length], &format!("cut to {length} bytes"));
    }
    // Each header and the content behind it; padding and times are nobody's.
    for at in (0..end).step_by(10_007).filter(|at| good[*at] != 0) {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        refused(&bytes, &format!("byte {at} changed"));
    }
    refused(b"no archive", "another file");
}

#[test]
fn a_member_that_names_a_path_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["../escaped", "/tmp/escaped", "a/b", ".."] {
        let manifest = Manifest {
            format: FORMAT,
            capd: "0".into(),
            did: String::new(),
            journal: String::new(),
            created: String::new(),
            files: vec![Listed { name: name.into(), bytes: 1, sha256: String::new() }],
        };
        let text = serde_json::to_vec(&manifest).unwrap();
        let mut tar = tar::Builder::new(Vec::new());
        for (name, content) in [("manifest.json", &*text), (name, b"x")] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            // As an attacker would, past the checks of the writer.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            tar.append(&header, content).unwrap();
        }
        let file = dir.path().join("bad.tar");
        fs::write(&file, tar.into_inner().unwrap()).unwrap();
        let to = dir.path().join("to");
        let refused = restore(&file, &place(&to), false, 7).unwrap_err().to_string();
        assert!(refused.contains("is no plain file"), "{name}: {refused}");
        assert!(!dir.path().join("escaped").exists());
    }
}
