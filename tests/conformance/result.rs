//! PROTOCOL 7.4: results that nobody waits for in, 4001 out; results that break their schema in, 5901 out.

use ciborium::{Value, cbor};

use crate::fixture::{CAP_INVOKE, CAP_RESULT, checked, loose, quiet_sidecar, served};
use crate::peer::{RawLink, Transport};
use crate::support::{Message, field, map};

const KINDS: [Transport; 3] = [Transport::Unix, Transport::Tcp, Transport::Quic];
const OUTPUT: &str = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;

fn error_of(result: &Message) -> &Value {
    assert_eq!(result.typ(), CAP_RESULT, "{result:?}");
    assert_eq!(field(result.body(), "status"), Some(&"error".into()), "{result:?}");
    field(result.body(), "error").unwrap()
}

#[test]
fn a_result_that_nobody_waits_for_is_4001() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let bodies = [
            cbor!({ "status" => "success", "result" => 1 }),
            cbor!({ "status" => "error", "error" => { "code" => 5001 } }),
            cbor!({ "status" => "error", "error" => "an older peer's" }),
        ];
        for body in bodies {
            let body = body.unwrap();
            for reply_to in [None, Some(vec![7; 16]), Some(vec![7; 3])] {
                let mut letter = link.letter(CAP_RESULT, &body);
                letter.reply_to.clone_from(&reply_to);
                let id = link.send_letter(&letter);
                let refusal = link.refusal(&id);
                assert_eq!(refusal.code, 4001, "{transport:?}: {body:?} to {reply_to:?}: {refusal:?}");
            }
        }
    }
}

#[test]
fn a_result_that_breaks_its_schema_is_5901_and_does_not_reach_the_caller() {
    let (sidecar, mut agent) = served(vec![checked("com.example.strict:1.0.0", "true", OUTPUT)]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for (result, path, keyword) in [
            (cbor!({ "secret" => 1 }), "/n", "required"),
            (cbor!({ "n" => "secret" }), "/n", "type"),
            (cbor!({ "n" => f64::NAN, "s" => "secret" }), "/n", ""),
        ] {
            let id =
                link.send(CAP_INVOKE, cbor!({ "id" => "com.example.strict:1.0.0", "params" => {} }).unwrap());
            let invoke = agent.message_of(CAP_INVOKE);
            agent.answer(
                &invoke,
                CAP_RESULT,
                &map([("status", "success".into()), ("result", result.unwrap())]),
            );
            let result = link.reply(&id);
            let error = error_of(&result);
            assert_eq!(result.code(), Some(5901), "{transport:?}: {result:?}");
            let details = field(error, "details").unwrap();
            assert_eq!(field(details, "schema_side"), Some(&"response".into()), "{transport:?}: {details:?}");
            assert_eq!(field(details, "raw"), None, "{transport:?}: {details:?}");
            let violation = &field(details, "violations").and_then(Value::as_array).unwrap()[0];
            assert_eq!(field(violation, "path"), Some(&path.into()), "{transport:?}: {details:?}");
            let found = field(violation, "keyword").and_then(Value::as_text).unwrap();
            assert!(keyword.is_empty() || found == keyword, "{transport:?}: {details:?}");
            let leak = result.bytes.windows(6).find(|window| window == b"secret");
            assert_eq!(leak, None, "{transport:?}: {result:?}");
        }
        link.ping();
        agent.ping();
    }
}

#[test]
fn an_error_of_any_shape_is_taken_from_a_provider() {
    let (sidecar, mut agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for error in [
            cbor!("it broke"),
            cbor!(7),
            cbor!({ "reason" => [1] }),
            cbor!({ "code" => 5001, "message" => "x", "more" => 1 }),
        ] {
            let id =
                link.send(CAP_INVOKE, cbor!({ "id" => "com.example.echo:1.0.0", "params" => {} }).unwrap());
            let invoke = agent.message_of(CAP_INVOKE);
            agent.answer(&invoke, CAP_RESULT, &map([("status", "error".into()), ("error", error.unwrap())]));
            error_of(&link.reply(&id));
        }
    }
}

#[test]
fn a_providers_result_of_another_shape_is_1001_and_the_call_still_waits() {
    let (sidecar, mut agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let id = link.send(CAP_INVOKE, cbor!({ "id" => "com.example.echo:1.0.0", "params" => {} }).unwrap());
        let invoke = agent.message_of(CAP_INVOKE);
        let bad = agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success" }).unwrap());
        assert_eq!(agent.refusal(&bad).code, 1001, "{transport:?}");
        agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
        let result = link.reply(&id);
        assert_eq!(field(result.body(), "result"), Some(&1.into()), "{transport:?}: {result:?}");
        // A second answer is dropped, and the provider is told.
        let second =
            agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 2 }).unwrap());
        assert_eq!(agent.refusal(&second).code, 4001, "{transport:?}");
        link.ping();
    }
}

#[test]
fn another_links_call_cannot_be_answered() {
    let (sidecar, mut agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, Transport::Tcp);
        let id = link.send(CAP_INVOKE, cbor!({ "id" => "com.example.echo:1.0.0", "params" => {} }).unwrap());
        let invoke = agent.message_of(CAP_INVOKE);
        let mut forger = RawLink::open(&sidecar, transport);
        let forged =
            forger.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 666 }).unwrap());
        // On a peer link `to` would be the caller; the forger addresses the sidecar.
        assert_eq!(forger.refusal(&forged).code, 4001, "{transport:?}");
        agent.answer(&invoke, CAP_RESULT, &cbor!({ "status" => "success", "result" => 1 }).unwrap());
        assert_eq!(field(link.reply(&id).body(), "result"), Some(&1.into()), "{transport:?}");
    }
}
