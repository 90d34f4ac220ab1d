//! How many changes a second the journal takes, by the size of its groups, and how long one commit lasts.
//!
//! `cargo bench --bench store [-- FOLDER]`; the folder's disk is what is measured, the system's temporary one unless
//! named. Each call is begun, finished with a result of 400 bytes, and forgotten 10,000 calls later.

#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use capd::store::{Begun, Change, Options, Row, Sqlite, Storage};
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::ledger::{BodyDigest, Key};

fn main() {
    // `cargo test` runs a bench to see that it works, and wants no figures.
    let measured =
        if std::env::args().any(|argument| argument == "--bench") { MEASURED } else { Duration::ZERO };
    let folder = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    for group in [1, 2, 8, 32, 64, 256, 1_024] {
        let dir = match &folder {
            Some(folder) => tempfile::tempdir_in(folder),
            None => tempfile::tempdir(),
        };
        let dir = dir.expect("the folder takes a folder");
        let mut journal = Sqlite::open(dir.path(), Options::default()).expect("an empty folder");
        measure(&mut journal, group, measured);
    }
}

fn measure(journal: &mut Sqlite, group: usize, measured: Duration) {
    let mut changes = calls();
    let mut latencies = Vec::new();
    let mut batch = Vec::with_capacity(group);
    let start = Instant::now();
    loop {
        batch.clear();
        batch.extend(changes.by_ref().take(group));
        let before = Instant::now();
        journal.commit(&batch).expect("the disk takes it");
        latencies.push(before.elapsed());
        if start.elapsed() >= measured {
            break;
        }
    }
    let rate = (latencies.len() * group) as f64 / start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    println!(
        "groups of {group:>5}: {rate:>9.0} changes/s, {:>6} commits, median {:>9.1?}, 99% {:>9.1?}, longest {:>9.1?}",
        latencies.len(),
        at(0.5),
        at(0.99),
        at(1.0),
    );
}

/// Changes without end, interleaved as 64 calls in flight would.
fn calls() -> impl Iterator<Item = Change> {
    let from = Did::parse("did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P").expect("a DID");
    let result = Bytes::from(vec![0x5a; 400]);
    (1_u64..).flat_map(move |row| {
        let key = Key {
            from: from.clone(),
            id: MessageId::new(row, row.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()),
        };
        let begun = Begun {
            row: Row(row),
            key,
            body: BodyDigest([0x42; 32]),
            expires_at_ms: row + 300_000,
            started_at_ms: row,
            capability: "org.agentries.code-review:2.0.0".into(),
        };
        let finish = row.checked_sub(64).filter(|row| *row > 0);
        let finish =
            finish.map(|row| Change::Finish { row: Row(row), result: result.clone(), finished_at_ms: row });
        let forget =
            row.checked_sub(10_000).filter(|row| *row > 0).map(|row| Change::Forget { row: Row(row) });
        [Some(Change::Begin(begun)), finish, forget].into_iter().flatten()
    })
}

const MEASURED: Duration = Duration::from_secs(3);
