//! A listed peer that asks for what it may not have, as fast as it can; a log and an audit log that stay readable, and
//! room in the audit log for everything else.

use std::time::Instant;

use capd_proto::identity::Identity;
use ciborium::{Value, cbor};
use serde_json::Value as Json;

use crate::peer::{RawLink, Transport, fresh_seed};
use crate::support::{PATIENCE, Setup, Sidecar, field};

const CAP_DECLARE: u64 = 0x21;
const CAP_INVOKE: u64 = 0x22;
const CAP_RESULT: u64 = 0x23;
/// Messages of a flood.
const FLOOD: usize = 5_000;
/// Messages sent before their answers are read.
const BATCH: usize = 50;
/// Records and lines that one peer may cause in a minute: those of its own, and those that tell of many.
const TOLD_MAX: usize = 26;

fn call(name: &str) -> Value {
    cbor!({ "id" => format!("{name}:1.0.0"), "params" => Value::Null }).unwrap()
}

/// An agent that serves `org.open.echo`, and answers its calls on a thread of its own.
fn serve_open(sidecar: &Sidecar) {
    let mut agent = RawLink::open(sidecar, Transport::Unix);
    let declare = cbor!({ "capabilities" => [{ "id" => "org.open.echo:1.0.0", "idempotent" => true }] });
    agent.send(CAP_DECLARE, declare.unwrap());
    agent.ping();
    std::thread::spawn(move || {
        loop {
            let call = agent.message_of(CAP_INVOKE);
            agent.answer(&call, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
        }
    });
}

/// The codes that a flood of denied calls, each of another name, is answered with.
fn flood(peer: &mut RawLink, count: usize) -> Vec<u64> {
    let mut codes = Vec::with_capacity(count);
    for batch in 0..count / BATCH {
        let ids: Vec<_> = (0..BATCH)
            .map(|number| peer.send(CAP_INVOKE, call(&format!("org.hidden.a{}", batch * BATCH + number))))
            .collect();
        codes.extend(ids.iter().map(|id| peer.reply(id).code().expect("it is refused")));
    }
    codes
}

fn count(records: &[Json], peer: &str) -> u64 {
    let of_peer = records.iter().filter(|record| record["kind"] == "denied" && record["peerId"] == peer);
    of_peer.map(|record| record["count"].as_u64().unwrap_or(1)).sum()
}

#[test]
fn a_flood_of_denied_calls_is_slowed_down_and_told_in_a_few_records() {
    let seed = fresh_seed();
    let did = Identity::from_seed(seed).did().to_string();
    let setup = Setup::new().set("peer.admit", "listed").set("log.level", "info").peer_at(&did, &[]);
    let open = "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"org.open.*\"]\n";
    let mut sidecar = setup.allow(open).start();
    serve_open(&sidecar);
    let mut peer = RawLink::open_as(&sidecar, Transport::Tcp, seed);
    let log = sidecar.log().len();
    let codes = flood(&mut peer, FLOOD);
    let (records, logged) = (sidecar.audit(), sidecar.log().len() - log);
    assert!(records.len() <= TOLD_MAX, "{} records", records.len());
    assert!(logged < 32 * 1024, "{logged} bytes of log");
    // The burst is denied as any message is; what comes faster than ten a second is told when to come back.
    let denied = codes.iter().take_while(|code| **code == 3001).count();
    assert!((100..FLOOD / 2).contains(&denied), "{denied} of {FLOOD}");
    assert!(codes.iter().skip(denied).filter(|code| **code == 3005).count() > FLOOD / 2);
    let (id, refusal) = loop {
        let id = peer.send(CAP_INVOKE, call("org.hidden.a"));
        let refusal = peer.reply(&id);
        if refusal.code() == Some(3005) {
            break (id, refusal);
        }
    };
    assert!(
        field(field(refusal.body(), "details").unwrap(), "retry_after_seconds").is_some(),
        "{id:?}: {refusal:?}"
    );
    // What it may do it still may.
    assert_eq!(peer.ask(CAP_INVOKE, call("org.open.echo")).typ(), CAP_RESULT);
    sidecar.refused_at_least("limits.denied_rate_per_peer", FLOOD as u64 / 2);
    assert!(sidecar.metric("capd_denied_total") > FLOOD as u64);
    // At its end the sidecar has told of each of them.
    assert!(sidecar.terminate().success());
    let records = sidecar.audit();
    assert!(records.len() <= TOLD_MAX, "{} records", records.len());
    assert!(count(&records, &did) > FLOOD as u64, "{records:?}");
    let folded = records.iter().find(|record| record["count"].as_u64() > Some(1)).unwrap();
    assert!(folded["firstAt"].as_u64() < folded["lastAt"].as_u64(), "{folded}");
}

#[test]
fn denials_leave_the_last_of_the_audit_log_to_other_kinds() {
    let setup = Setup::new().allow("").set("log.level", "info").set("limits.denied_rate_per_peer", "off");
    let setup = setup.set("audit.file_bytes_max", "1048576").set("audit.reserved_percent", "50");
    let sidecar = setup.start();
    // Each peer may have a few records of its own, so it takes many, and names as long as a name may be.
    let begin = Instant::now();
    let mut used = Vec::new();
    while sidecar.metric("capd_audit_denials_withheld_total") == 0 {
        assert!(begin.elapsed() < 2 * PATIENCE, "{used:?}");
        for _ in 0..10 {
            let mut peer = RawLink::open(&sidecar, Transport::Tcp);
            let name = format!("org.hidden.{}", "a".repeat(60));
            let ids: Vec<_> = (0..20).map(|_| peer.send(CAP_INVOKE, call(&name))).collect();
            ids.iter().for_each(|id| assert_eq!(peer.reply(id).code(), Some(3001)));
        }
        used.push(sidecar.metric("capd_audit_used_percent"));
    }
    assert!(used.iter().all(|used| *used <= 55), "{used:?}");
    let told = sidecar.log();
    assert_eq!(told.lines().filter(|line| line.contains("no longer recorded")).count(), 1, "{told}");
    // Another kind has its place: an agent's answer that nobody asked for.
    let mut agent = RawLink::open(&sidecar, Transport::Unix);
    let mut letter = agent.letter(CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
    letter.reply_to = Some(vec![7; 16]);
    agent.send_letter(&letter);
    agent.ping();
    assert_eq!(sidecar.audited("duplicate_result", 1).len(), 1);
    let lost = sidecar.audited("audit_lost", 1);
    assert!(lost[0]["records"].as_u64() > Some(0), "{lost:?}");
}
