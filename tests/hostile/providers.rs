//! Providers that answer twice, late, oversized or never in; one result for each call, and a word to the provider, out.

use ciborium::Value;

use crate::field::{CAP_DECLARE, CAP_INVOKE, CAP_QUERY, CAP_RESULT, ERROR, Field};
use crate::peer::{ERROR_FRAME, RawLink, Transport};
use crate::support::{BytePeer, Message, decode, field as field_of, map, set};

const HOSTILE: &str = "org.example.hostile:1.0.0";
/// Calls of each kind.
const OF_EACH: u32 = 20;
/// A time limit that is meant to pass.
const SOON_MS: u64 = 300;
const MIB: usize = 1024 * 1024;

/// A hostile agent on the sidecar, and a peer that calls it.
fn hostile_agent(field: &Field) -> (RawLink, RawLink) {
    let mut agent = RawLink::open(&field.sidecar, Transport::Unix);
    let descriptor = map([("id", HOSTILE.into()), ("idempotent", true.into())]);
    agent.send(CAP_DECLARE, map([("capabilities", Value::Array(vec![descriptor]))]));
    agent.ping();
    (agent, RawLink::open(&field.sidecar, Transport::Tcp))
}

fn invoke(timeout_ms: u64) -> Value {
    map([("id", HOSTILE.into()), ("params", Value::Null), ("timeout_ms", timeout_ms.into())])
}

fn success(result: Value) -> Value {
    map([("status", "success".into()), ("result", result)])
}

#[track_caller]
fn refused(link: &mut RawLink, id: &[u8], code: u64) {
    let refusal = link.reply(id);
    assert_eq!((refusal.typ(), refusal.code()), (ERROR, Some(code)), "{refusal:?}");
}

#[track_caller]
fn result(link: &mut RawLink, id: &[u8]) -> Message {
    let result = link.reply(id);
    assert_eq!(result.typ(), CAP_RESULT, "{result:?}");
    result
}

#[test]
fn an_agent_that_answers_twice_is_told_4001_and_its_first_answer_stands() {
    let mut field = Field::start();
    field.withstands("agents that answer twice", |field| {
        let (mut agent, mut peer) = hostile_agent(field);
        for number in 0..OF_EACH {
            let id = peer.send(CAP_INVOKE, invoke(60_000));
            let call = agent.message_of(CAP_INVOKE);
            agent.answer(&call, CAP_RESULT, &success(number.into()));
            let again = agent.answer(&call, CAP_RESULT, &success("again".into()));
            refused(&mut agent, &again, 4001);
            let result = result(&mut peer, &id);
            assert_eq!(field_of(result.body(), "result"), Some(&number.into()), "{result:?}");
        }
        peer.ping();
        (agent, peer)
    });
}

#[test]
fn an_agent_that_answers_late_or_never_costs_the_caller_5003() {
    let mut field = Field::start();
    field.withstands("agents that answer late or never", |field| {
        let (mut agent, mut peer) = hostile_agent(field);
        let ids: Vec<_> = (0..2 * OF_EACH).map(|_| peer.send(CAP_INVOKE, invoke(SOON_MS))).collect();
        let calls: Vec<_> = ids.iter().map(|_| agent.message_of(CAP_INVOKE)).collect();
        for id in &ids {
            let result = result(&mut peer, id);
            assert_eq!(result.code(), Some(5003), "{result:?}");
        }
        // Every other one is answered now that nobody waits; the rest never is.
        for call in calls.iter().step_by(2) {
            let late = agent.answer(call, CAP_RESULT, &success(1.into()));
            refused(&mut agent, &late, 4001);
        }
        peer.ping();
        (agent, peer)
    });
}

#[test]
fn an_agent_whose_answer_is_too_large_is_closed_with_1001_and_its_call_ends_with_5002() {
    let mut field = Field::start();
    let above = u32::try_from(16 * MIB + 1).unwrap().to_be_bytes();
    field.withstands("agents whose answers are too large", |field| {
        let mut peer = RawLink::open(&field.sidecar, Transport::Tcp);
        for _ in 0..OF_EACH / 4 {
            let (mut agent, _) = hostile_agent(field);
            let id = peer.send(CAP_INVOKE, invoke(60_000));
            agent.message_of(CAP_INVOKE);
            agent.send_raw(&above);
            let frames = agent.closed();
            let error = frames.last().filter(|frame| frame.frame_type == ERROR_FRAME);
            let error = error.map(|frame| decode(&frame.payload)).unwrap_or_else(|| panic!("{frames:?}"));
            assert_eq!(field_of(&error, "code"), Some(&1001.into()), "{error:?}");
            let result = result(&mut peer, &id);
            assert_eq!(result.code(), Some(5002), "{result:?}");
        }
        peer.ping();
        peer
    });
}

/// The sidecar's agent, and a hostile peer that says it serves.
fn hostile_peer(field: &Field) -> (BytePeer, RawLink) {
    let mut peer = RawLink::open(&field.sidecar, Transport::Tcp);
    // The sidecar asks whoever opens a link what it serves.
    let query = peer.message_of(CAP_QUERY);
    let descriptor = map([("id", HOSTILE.into()), ("idempotent", true.into())]);
    peer.answer(&query, CAP_DECLARE, &map([("capabilities", Value::Array(vec![descriptor]))]));
    peer.ping();
    (BytePeer::open(&field.sidecar.socket), peer)
}

fn call(agent: &mut BytePeer, peer: &RawLink, timeout_ms: u64) -> Vec<u8> {
    let mut envelope = agent.envelope(CAP_INVOKE, invoke(timeout_ms));
    set(&mut envelope, "to", peer.from.as_str().into());
    agent.send_envelope(&envelope)
}

#[track_caller]
fn agents_result(agent: &mut BytePeer, id: &[u8]) -> Message {
    loop {
        let message = agent.message();
        if message.reply_to().as_deref() == Some(id) {
            assert_eq!(message.typ(), CAP_RESULT, "{message:?}");
            return message;
        }
    }
}

#[test]
fn a_peer_that_answers_twice_or_late_or_never_is_told_4001_and_the_agent_sees_one_result() {
    let mut field = Field::start();
    field.withstands("peers that answer twice, late, or never", |field| {
        let (mut agent, mut peer) = hostile_peer(field);
        for number in 0..OF_EACH {
            let id = call(&mut agent, &peer, 60_000);
            let taken = peer.message_of(CAP_INVOKE);
            peer.answer(&taken, CAP_RESULT, &success(number.into()));
            let again = peer.answer(&taken, CAP_RESULT, &success("again".into()));
            refused(&mut peer, &again, 4001);
            let result = agents_result(&mut agent, &id);
            assert_eq!(field_of(result.body(), "result"), Some(&number.into()), "{result:?}");
        }
        let ids: Vec<_> = (0..OF_EACH).map(|_| call(&mut agent, &peer, SOON_MS)).collect();
        let taken: Vec<_> = ids.iter().map(|_| peer.message_of(CAP_INVOKE)).collect();
        for id in &ids {
            let result = agents_result(&mut agent, id);
            assert_eq!(result.code(), Some(5003), "{result:?}");
        }
        for call in taken.iter().step_by(2) {
            let late = peer.answer(call, CAP_RESULT, &success(1.into()));
            refused(&mut peer, &late, 4001);
        }
        assert!(agent.ping().is_empty(), "the agent hears of no second result");
        (agent, peer)
    });
}
