//! `capctl audit` in; what a sidecar has accounted for, and whether that is still what it wrote, out.

use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

const CAPABILITIES: &str = r#"
version: 1
agent: agent://test
namespace: org.example
capabilities:
  - name: upper
    version: "1.0.0"
    idempotent: true
    command: [tr, a-z, A-Z]
    inputSchema:
      type: object
      required: [N]
      properties:
        N: {type: integer}
  - name: liar
    version: "1.0.0"
    command: [echo, '"text"']
    outputSchema:
      type: integer
"#;

#[track_caller]
fn run(sidecar: Option<&Sidecar>, line: &[&str]) -> (i32, String, String) {
    let output = run_with(capctl(sidecar.map(|sidecar| sidecar.socket.as_path())).args(line), b"");
    (exit_code(&output), stdout(&output).to_owned(), stderr(&output).to_owned())
}

#[track_caller]
fn succeeds(sidecar: &Sidecar, line: &[&str]) -> String {
    let (code, out, errors) = run(Some(sidecar), line);
    assert_eq!((code, errors.as_str()), (0, ""), "{line:?}");
    out
}

/// A sidecar whose log has four rows: two violations of params, one of a result, and that result.
fn audited() -> Sidecar {
    let sidecar = Setup::new().capabilities(CAPABILITIES).start();
    for (call, code) in [("upper", 4), ("upper", 4), ("liar", 4)] {
        let (exit, _, errors) =
            run(Some(&sidecar), &["call", &format!("org.example.{call}"), "--params", "{}"]);
        assert_eq!(exit, code, "{errors}");
    }
    sidecar.audited("raw_result", 1);
    sidecar
}

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Checks exported lines by the rule alone; keys of a `Value` are sorted, and these records have no text to escape
/// otherwise than RFC 8785 does.
#[track_caller]
fn chain_holds(entries: &[Value]) {
    let mut prev = String::new();
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!((&entry["seq"], &entry["prev_hash"]), (&json!(index + 1), &json!(prev)), "{entry}");
        prev = entry["record_hash"].as_str().unwrap().to_owned();
        if entry.get("record").is_some() {
            let hash =
                Sha256::digest(format!("{}\n{}", entry["prev_hash"].as_str().unwrap(), entry["record"]));
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hash, prev, "{entry}");
        } else {
            assert_eq!(entry["pruned"], true, "{entry}");
        }
    }
}

fn change(file: &Path, sql: &str) {
    Connection::open(file).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn records_are_queried_by_what_they_are_about() {
    let sidecar = audited();
    let table = succeeds(&sidecar, &["audit", "query"]);
    let rows: Vec<_> = table.lines().collect();
    assert_eq!(rows.len(), 5, "{table}");
    assert!(rows[0].starts_with("ROW  TIME "), "{table}");
    assert!(rows[1].contains("request: /N is required and missing"), "{table}");
    assert!(rows[3].contains("response: / must be an integer"), "{table}");
    let file = sidecar.audit_file();
    let file = file.to_str().unwrap();
    for (filter, seqs) in [
        (&["--kind", "capability_schema_violation"][..], &[1, 2, 3][..]),
        (&["--capability", "org.example.upper"], &[1, 2]),
        (&["--capability", "org.example.*", "--kind", "raw_result"], &[4]),
        (&["--peer", &sidecar.did], &[1, 2, 3, 4]),
        (&["--peer", "did:key:other"], &[]),
        (&["--since", "1h"], &[1, 2, 3, 4]),
        (&["--since", "2100-01-01T00:00:00Z"], &[]),
        (&["--kind", "drift"], &[]),
    ] {
        for read in [&[][..], &["--file", file]] {
            let line: Vec<_> =
                ["audit", "query", "--json"].iter().chain(filter).chain(read).copied().collect();
            let found = lines(&succeeds(&sidecar, &line));
            let found: Vec<_> = found.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
            assert_eq!(found, seqs, "{line:?}");
        }
    }
    let (code, out, errors) = run(Some(&sidecar), &["audit", "query", "--kind", "drift"]);
    assert_eq!((code, out.as_str(), errors.as_str()), (0, "", "no records\n"));
    let (code, _, errors) = run(Some(&sidecar), &["audit", "query", "--kind", "drifted"]);
    assert_eq!((code, errors.contains("did you mean \"drift\"?")), (2, true), "{errors}");
    let (code, _, errors) = run(Some(&sidecar), &["audit", "query", "--kind", "nonsense"]);
    assert_eq!((code, errors.contains("binding_mismatch")), (2, true), "{errors}");
    let (code, _, errors) = run(Some(&sidecar), &["audit", "query", "--since", "yesterday"]);
    assert_eq!((code, errors.contains("24h")), (2, true), "{errors}");
}

#[test]
fn an_export_is_verified_without_capd_and_a_pruned_one_too() {
    let sidecar = audited();
    let entries = lines(&succeeds(&sidecar, &["audit", "export"]));
    assert_eq!(entries.len(), 4);
    chain_holds(&entries);
    let summary = lines(&succeeds(&sidecar, &["audit", "verify", "--json"])).remove(0);
    assert_eq!(
        (&summary["ok"], &summary["records"], &summary["pruned"]),
        (&json!(true), &json!(4), &json!(0))
    );
    assert_eq!(summary["head"], json!({"seq": 4, "hash": entries[3]["record_hash"]}));

    let pruned = lines(&succeeds(&sidecar, &["audit", "prune", "--older-than", "0s", "--json"])).remove(0);
    assert_eq!(pruned["pruned"], 4);
    let out = sidecar.dir.join("audit.jsonl");
    let (code, shown, note) = run(Some(&sidecar), &["audit", "export", "--output", out.to_str().unwrap()]);
    assert_eq!((code, shown.as_str(), note.as_str()), (0, "", "5 entries\n"));
    let after = lines(&std::fs::read_to_string(&out).unwrap());
    chain_holds(&after);
    assert!(after[..4].iter().all(|entry| entry["pruned"] == true));
    assert_eq!(after[4]["record"]["kind"], "audit_pruned");
    assert_eq!(after[4]["record"]["ranges"], json!([[1, 4]]));
    let text = succeeds(&sidecar, &["audit", "verify"]);
    assert!(text.starts_with("the chain is intact: 1 records, 4 pruned\nits end is 5:sha-256:"), "{text}");
    let anchor = text.trim_end().rsplit_once(' ').unwrap().1;
    succeeds(&sidecar, &["audit", "verify", "--anchor", anchor]);
    succeeds(&sidecar, &["audit", "verify", "--anchor", &anchor.replace("sha-256:", "")]);
    let other = format!("4:{}", anchor.split_once(':').unwrap().1);
    let (code, _, errors) = run(Some(&sidecar), &["audit", "verify", "--anchor", &other]);
    assert_eq!((code, errors.contains("row 4")), (4, true), "{errors}");
    let (code, _, errors) =
        run(Some(&sidecar), &["audit", "verify", "--anchor", &anchor.replace("5:", "9:")]);
    assert_eq!((code, errors.contains("row 9")), (4, true), "{errors}");
    // What was pruned is not in the table, and a prune of nothing is no error.
    let table = succeeds(&sidecar, &["audit", "query"]);
    assert_eq!((table.lines().count(), table.contains("4 records were removed")), (2, true), "{table}");
    let again = succeeds(&sidecar, &["audit", "prune", "--older-than", "90d"]);
    assert!(again.starts_with("0 records "), "{again}");
}

#[test]
fn what_was_changed_is_named_with_its_row_by_the_sidecar_and_from_the_file() {
    let mut sidecar = audited();
    sidecar.terminate();
    let file = sidecar.audit_file();
    change(&file, "UPDATE records SET record = replace(record, '/N', '/M') WHERE seq = 2");
    let path = file.to_str().unwrap();
    let (code, out, errors) = run(None, &["audit", "verify", "--file", path]);
    assert_eq!((code, out.as_str()), (4, ""), "{errors}");
    assert!(
        errors.contains("the chain is broken at row 2: its record does not have its record_hash"),
        "{errors}"
    );
    let (code, out, errors) = run(None, &["audit", "verify", "--file", path, "--json"]);
    assert_eq!((code, &lines(&out)[0]["seq"]), (4, &json!(2)), "{errors}");
    assert_eq!(lines(&errors)[0]["exit"], 4);
    // The sidecar goes on with the chain, and does not hide what happened to it.
    let sidecar = sidecar.restart();
    run(Some(&sidecar), &["call", "org.example.upper", "--params", "{}"]);
    sidecar.audited("capability_schema_violation", 4);
    let (code, _, errors) = run(Some(&sidecar), &["audit", "verify"]);
    assert_eq!((code, errors.contains("row 2")), (4, true), "{errors}");
}

#[test]
fn a_file_without_a_sidecar_is_read_pruned_and_refused_where_it_is_none() {
    let mut sidecar = audited();
    sidecar.kill();
    let file = sidecar.audit_file();
    let path = file.to_str().unwrap();
    // The last commits stand in SQLite's log, which a kill leaves.
    let (code, out, errors) = run(None, &["audit", "verify", "--file", path]);
    assert_eq!((code, out.starts_with("the chain is intact: 4 records\n")), (0, true), "{errors}");
    let (code, out, errors) = run(None, &["audit", "prune", "--older-than", "0s", "--file", path]);
    assert_eq!((code, out.starts_with("4 records ")), (0, true), "{errors}");
    let (code, out, errors) = run(None, &["audit", "verify", "--file", path]);
    assert_eq!((code, out.starts_with("the chain is intact: 1 records, 4 pruned\n")), (0, true), "{errors}");
    let entries = run(None, &["audit", "export", "--file", path]).1;
    assert_eq!(lines(&entries)[4]["record"]["tenantId"], "default");

    let (code, _, errors) = run(None, &["audit", "verify", "--file", "/nonexistent/audit.db"]);
    assert_eq!((code, errors.contains("/nonexistent/audit.db")), (2, true), "{errors}");
    let other = sidecar.dir.join("other.db");
    change(&other, "CREATE TABLE t (a)");
    let (code, _, errors) = run(None, &["audit", "verify", "--file", other.to_str().unwrap()]);
    assert_eq!((code, errors.contains("no audit log")), (2, true), "{errors}");
    std::fs::write(&other, [7; 4_096]).unwrap();
    let (code, _, errors) = run(None, &["audit", "verify", "--file", other.to_str().unwrap()]);
    assert_eq!(code, 4, "{errors}");
}

#[test]
fn many_records_come_in_pages() {
    let mut sidecar = audited();
    sidecar.terminate();
    let options = capd::store::audit::AuditOptions {
        file: sidecar.audit_file(),
        tenant: "default".to_owned(),
        file_bytes_max: 1 << 30,
    };
    let storage = capd::store::audit::AuditPlace::open(options, 0);
    let (audit, writer) = capd::store::audit::audit(storage, "default");
    let thread = writer.spawn().unwrap();
    for number in 0..3_000 {
        let kind = capd::store::audit::Kind::Denied;
        audit.record(capd::store::audit::Record::new(kind, number).with("reason", "x".repeat(500)));
    }
    drop(audit);
    thread.join();
    let sidecar = sidecar.restart();
    assert_eq!(succeeds(&sidecar, &["audit", "query", "--kind", "denied"]).lines().count(), 3_001);
    let entries = lines(&succeeds(&sidecar, &["audit", "export"]));
    assert_eq!(entries.len(), 3_004);
    chain_holds(&entries);
    succeeds(&sidecar, &["audit", "verify"]);
    let pruned = succeeds(&sidecar, &["audit", "prune", "--older-than", "1970-01-01T00:00:02Z"]);
    assert!(pruned.starts_with("2000 records from before 1970-01-01T00:00:02Z"), "{pruned}");
    succeeds(&sidecar, &["audit", "verify"]);
}

#[test]
fn what_could_not_be_written_is_told_with_every_answer() {
    let sidecar = Setup::new().capabilities(CAPABILITIES).meets_file_limits().start();
    sidecar.fill_disk();
    for _ in 0..2 {
        let (code, _, errors) = run(Some(&sidecar), &["call", "org.example.upper", "--params", "{}"]);
        assert_eq!(code, 4, "{errors}");
    }
    for line in [&["audit", "query"][..], &["audit", "verify"], &["audit", "export"]] {
        let (code, _, errors) = run(Some(&sidecar), line);
        assert_eq!(code, 0, "{line:?}: {errors}");
        let told = "records that could not be written since the sidecar started: 2\n";
        assert!(errors.ends_with(told), "{line:?}: {errors}");
    }
    sidecar.free_disk();
    run(Some(&sidecar), &["call", "org.example.upper", "--params", "{}"]);
    assert_eq!(sidecar.audited("audit_lost", 1)[0]["records"], 2);
    let summary = run(Some(&sidecar), &["audit", "verify", "--json"]).1;
    assert_eq!((&lines(&summary)[0]["ok"], &lines(&summary)[0]["lost"]), (&json!(true), &json!(2)));
}

#[test]
fn a_log_that_is_off_says_so_and_a_sidecar_that_is_not_there_too() {
    let sidecar = Setup::new().set("audit.file", "off").start();
    let (code, _, errors) = run(Some(&sidecar), &["audit", "query"]);
    assert_eq!((code, errors.contains("5002")), (5, true), "{errors}");
    assert!(sidecar.log().contains("set audit.file to keep one"), "{}", sidecar.log());
    let (code, _, errors) = run(None, &["audit", "verify", "--socket", "/nonexistent/capd.sock"]);
    assert_eq!(code, 5, "{errors}");
}
