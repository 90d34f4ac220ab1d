//! PROTOCOL 7.6: cancels of what is not there or another's in, "unknown" out; operations that nobody knows in, 4001 out.

use ciborium::{Value, cbor};

use crate::fixture::{
    CAP_INVOKE, CAP_RESULT, INPUT_REQUIRED, PROCESSING, PROGRESS, REQUEST, RESPONSE, loose, served,
};
use crate::peer::{RawLink, Transport};
use crate::support::{field, map};

const KINDS: [Transport; 3] = [Transport::Unix, Transport::Tcp, Transport::Quic];

/// The state that a cancel of `target` is answered with.
fn cancel(link: &mut RawLink, target: &[u8]) -> String {
    let target = Value::Bytes(target.to_vec());
    let response = link.ask(REQUEST, map([("op", "cancel".into()), ("target", target.clone())]));
    assert_eq!(response.typ(), RESPONSE, "{response:?}");
    assert_eq!(field(response.body(), "op"), Some(&"cancel".into()), "{response:?}");
    assert_eq!(field(response.body(), "target"), Some(&target), "{response:?}");
    field(response.body(), "state").and_then(Value::as_text).unwrap().to_owned()
}

fn call() -> Value {
    cbor!({ "id" => "com.example.echo:1.0.0", "params" => null }).unwrap()
}

#[test]
fn an_operation_that_nobody_knows_is_4001() {
    let (sidecar, _agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for op in ["", "Cancel", "cancel ", "pause"] {
            let refusal = link.refused(REQUEST, cbor!({ "op" => op, "target" => 1 }).unwrap());
            assert_eq!(refusal.code, 4001, "{transport:?}: {op:?}: {refusal:?}");
        }
    }
}

#[test]
fn cancelling_a_call_that_never_was_is_unknown() {
    let (sidecar, _agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        assert_eq!(cancel(&mut link, &[7; 16]), "unknown", "{transport:?}");
        link.ping();
    }
}

#[test]
fn cancelling_anothers_call_is_unknown_and_cancels_nothing() {
    let (sidecar, mut agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for caller in KINDS {
        let mut link = RawLink::open(&sidecar, caller);
        let id = link.send(CAP_INVOKE, call());
        let invoke = agent.message_of(CAP_INVOKE);
        for stranger in Transport::PEER {
            assert_eq!(
                cancel(&mut RawLink::open(&sidecar, stranger), &id),
                "unknown",
                "{caller:?}: {stranger:?}"
            );
        }
        if !caller.is_local() {
            assert_eq!(cancel(&mut RawLink::open(&sidecar, Transport::Unix), &id), "unknown", "{caller:?}");
        }
        agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
        let result = link.reply(&id);
        assert_eq!(field(result.body(), "result"), Some(&1.into()), "{caller:?}: {result:?}");
        assert_eq!(cancel(&mut link, &id), "finished", "{caller:?}");
    }
}

#[test]
fn a_cancelled_call_ends_with_4901() {
    let (sidecar, mut agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let id = link.send(CAP_INVOKE, call());
        let invoke = agent.message_of(CAP_INVOKE);
        let request =
            link.send(REQUEST, map([("op", "cancel".into()), ("target", Value::Bytes(id.clone()))]));
        let mut answers = [&request, &id].map(|_| {
            link.message_where(|message| [Some(&request), Some(&id)].contains(&message.reply_to().as_ref()))
        });
        answers.sort_by_key(|answer| answer.typ());
        let [response, result] = answers;
        assert_eq!(
            field(response.body(), "state"),
            Some(&"cancelling".into()),
            "{transport:?}: {response:?}"
        );
        assert_eq!((result.typ(), result.code()), (CAP_RESULT, Some(4901)), "{transport:?}: {result:?}");
        let told = agent.message_of(REQUEST);
        assert_eq!(field(told.body(), "target"), Some(&Value::Bytes(invoke.id())), "{transport:?}");
    }
}

#[test]
fn progress_of_a_running_call_is_relayed_and_ends_nothing() {
    let (sidecar, mut agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let id = link.send(CAP_INVOKE, call());
        let invoke = agent.message_of(CAP_INVOKE);
        let notices = [
            (PROCESSING, cbor!({ "status_text" => "x", "eta_ms" => 1, "cancellable" => true, "more" => 1 })),
            (PROGRESS, cbor!({ "progress_pct" => 50 })),
            (INPUT_REQUIRED, cbor!({ "prompt" => "which?", "options" => ["a", 1] })),
        ];
        for (typ, body) in notices {
            let body = body.unwrap();
            agent.answer(&invoke, typ, &body);
            let relayed = link.reply(&id);
            assert_eq!((relayed.typ(), relayed.body()), (typ, &body), "{transport:?}");
        }
        let bad = agent.answer(&invoke, PROGRESS, &cbor!({ "progress_pct" => 101 }).unwrap());
        assert_eq!(agent.refusal(&bad).code, 1001, "{transport:?}");
        agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
        assert_eq!(link.reply(&id).typ(), CAP_RESULT, "{transport:?}");
    }
}

#[test]
fn resetting_the_stream_of_a_single_call_cancels_it() {
    let (sidecar, mut agent) = served(vec![loose("com.example.echo:1.0.0")]);
    let mut link = RawLink::open(&sidecar, Transport::Quic);
    let id = link.send(CAP_INVOKE, call());
    agent.message_of(CAP_INVOKE);
    link.reset_stream(0x4901);
    let told = agent.message_of(REQUEST);
    assert_eq!(field(told.body(), "target"), Some(&Value::Bytes(id.clone())), "{told:?}");
    link.use_exchange_stream();
    assert_eq!(cancel(&mut link, &id), "finished");
    link.ping();
}

#[test]
fn resetting_a_stream_of_several_calls_or_with_another_code_cancels_nothing() {
    let (sidecar, mut agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for (is_shared, code) in [(true, 0x4901), (false, 0)] {
        let mut link = RawLink::open(&sidecar, Transport::Quic);
        if is_shared {
            link.ping();
        }
        let id = link.send(CAP_INVOKE, call());
        let invoke = agent.message_of(CAP_INVOKE);
        link.reset_stream(code);
        link.use_exchange_stream();
        link.ping();
        // What was sent to the agent would stand before the PONG.
        let ping = agent.send(0x01, map([]));
        let next = agent.message();
        assert_eq!(next.reply_to(), Some(ping), "{is_shared}, {code:#x}: {next:?}");
        agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
        agent.ping();
        assert_eq!(cancel(&mut link, &id), "finished", "{is_shared}, {code:#x}");
    }
}
