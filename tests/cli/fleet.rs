//! Memberships and revocations, as `capctl fleet` signs them, are what sidecars believe.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capd_proto::fleet::{Agent, Cell, Membership, MembershipError, Refused, Verifier};
use capd_proto::identity::{Identity, PublicKey};
use serde_json::Value;

use crate::support::{capctl, exit_code, run_with, stderr, stdout};

fn run(dir: &Path, line: &[&str]) -> (i32, String, String) {
    let output = run_with(capctl(None).current_dir(dir).arg("fleet").args(line), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

fn json(dir: &Path, line: &[&str]) -> Value {
    let (code, text, error) = run(dir, &[line, &["--json"]].concat());
    assert_eq!((code, error.as_str()), (0, ""), "{text}");
    serde_json::from_str(&text).unwrap()
}

fn member() -> Agent {
    Identity::from_seed([5; 32]).public_key().into()
}

fn cell() -> Cell {
    "test".parse().unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap()
}

fn now_ms() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64
}

#[test]
fn an_admitted_agent_is_a_member_until_it_is_revoked_and_again_once_admitted_later() {
    let dir = tempfile::tempdir().unwrap();
    let made = json(dir.path(), &["init", "--cell", "test"]);
    let key = dir.path().join("test.authority.key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let authority = PublicKey::from_did(made["authority"].as_str().unwrap()).unwrap();

    let (agent, did) = (member(), member().did().to_string());
    let admit = ["admit", &did, "--cell", "test", "--serves", "org.example.billing.*", "--serves", "a.b.c"];
    let admitted = json(dir.path(), &admit);
    let membership = bytes(&admitted["membership"]);
    let member = Membership::verify(&membership, &cell(), &authority, now_ms()).unwrap();
    assert_eq!(member.agent, agent);
    assert!(member.allows("org.example.billing.invoice") && member.allows("a.b.c"));
    assert!(!member.allows("org.example.bank.pay"));
    let day_ms = 24 * 60 * 60 * 1_000;
    let later_ms = now_ms() + 91 * day_ms;
    let ended = Membership::verify(&membership, &cell(), &authority, later_ms).unwrap_err();
    assert!(matches!(ended, MembershipError::Expired { .. }));

    let mut verifier = Verifier::new(cell(), authority);
    verifier.membership(&membership, &agent, now_ms()).unwrap();
    let revoked = json(dir.path(), &["revoke", &did, "--cell", "test"]);
    assert_eq!(revoked["key"], format!("/capd/1/test/d/{agent}"));
    verifier.revocation(&agent, &bytes(&revoked["value"])).unwrap();
    assert_eq!(verifier.membership(&membership, &agent, now_ms()), Err(Refused::Revoked));
    let anew = json(dir.path(), &admit);
    verifier.membership(&bytes(&anew["membership"]), &agent, now_ms()).unwrap();
}

#[test]
fn the_etcd_commands_give_an_agent_its_own_keys_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let made = json(dir.path(), &["init", "--cell", "test"]);
    assert_eq!(
        made["etcd"][1],
        "etcdctl role grant-permission capd-test --prefix=true readwrite /capd/1/test/"
    );
    let (agent, did) = (member(), member().did().to_string());
    let admitted = json(dir.path(), &["admit", &did, "--cell", "test", "--serves", "a.b.c"]);
    let commands: Vec<_> =
        admitted["etcd"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    let writes: Vec<_> = commands.iter().filter(|line| line.contains("write")).collect();
    let shard = capd_proto::fleet::Shard::of(&agent);
    let expected = [
        format!("etcdctl role grant-permission {agent} readwrite /capd/1/test/i/{agent}"),
        format!("etcdctl role grant-permission {agent} readwrite /capd/1/test/n/a.b.c/{shard}/{agent}"),
    ];
    assert_eq!(writes, expected.iter().collect::<Vec<_>>());
    assert!(writes.iter().all(|line| !line.contains("--prefix")));
    // The authority's key is in no output.
    let key = fs::read_to_string(dir.path().join("test.authority.key")).unwrap();
    assert!(!made.to_string().contains(key.trim()) && !admitted.to_string().contains(key.trim()));
}

#[test]
fn a_membership_can_be_written_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    json(dir.path(), &["init", "--cell", "test", "--authority", "keys"]);
    let did = member().did().to_string();
    let line = ["admit", &did, "--cell", "test", "--authority", "keys", "--days", "1", "--output", "member"];
    let admitted = json(dir.path(), &line);
    let file = fs::read_to_string(dir.path().join("member")).unwrap();
    assert_eq!(file.trim(), admitted["membership"].as_str().unwrap());
    assert_eq!(admitted["serves"], Value::Array(Vec::new()));
}

#[test]
fn mistakes_are_exit_2_and_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let did = member().did().to_string();
    let says = |line: &[&str], words: &[&str]| {
        let (code, text, error) = run(dir.path(), line);
        assert_eq!((code, text.as_str()), (2, ""), "{line:?}: {error}");
        words.iter().for_each(|word| assert!(error.contains(word), "{line:?}: {error}"));
    };
    says(&["admit", &did, "--cell", "test"], &["test.authority.key", "capctl fleet init --cell test"]);
    json(dir.path(), &["init", "--cell", "test"]);
    says(&["init", "--cell", "test"], &["test.authority.key: the file exists", "--authority"]);
    says(&["init", "--cell", "Test"], &["lower-case letters"]);
    says(&["admit", "did:web:example.org", "--cell", "test"], &["did:web:example.org", "capctl id"]);
    says(&["admit", &did, "--cell", "test", "--serves", "org..x"], &["--serves"]);
    says(&["admit", &did, "--cell", "test", "--days", "0"], &["--days"]);
    let many: Vec<String> = (0..17).map(|number| format!("org.example.n{number}")).collect();
    let mut line = vec!["admit", &did, "--cell", "test"];
    many.iter().for_each(|name| line.extend(["--serves", name]));
    says(&line, &["patterns", "org.example.*"]);
    let key = dir.path().join("test.authority.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    says(&["revoke", &did, "--cell", "test"], &["mode is 644", "chmod 600"]);
}

#[test]
fn what_people_read_names_the_agent_and_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let (code, text, _) = run(dir.path(), &["init", "--cell", "test"]);
    assert!(code == 0 && text.starts_with("authority  did:key:z6Mk"), "{text}");
    let did = member().did().to_string();
    let (_, text, _) = run(dir.path(), &["admit", &did, "--cell", "test", "--serves", "org.example.*"]);
    for line in [&format!("agent       {did}"), "serves      org.example.*", "for each NAME of a namespace"] {
        assert!(text.contains(line), "{text}");
    }
    let (_, text, _) = run(dir.path(), &["revoke", &did, "--cell", "test"]);
    assert!(text.contains("| base64 -d | etcdctl put /capd/1/test/d/z6Mk"), "{text}");
}
