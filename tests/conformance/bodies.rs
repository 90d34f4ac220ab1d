//! PROTOCOL 7: bodies that break the rule of their type in, 1001 and a working link out.

use ciborium::{Value, cbor};

use crate::fixture::{
    ACK, CAP_DECLARE, CAP_INVOKE, CAP_QUERY, CAP_RESULT, DOC_REQUEST, DOC_SEND, ERROR, INPUT_REQUIRED,
    PROCESSING, PROGRESS, REQUEST, RESPONSE, quiet_sidecar,
};
use crate::peer::{RawLink, Transport};
use crate::support::encode;

fn bytes(length: usize) -> Value {
    Value::Bytes(vec![1; length])
}

fn all(bodies: Vec<Result<Value, ciborium::value::Error>>) -> Vec<Value> {
    bodies.into_iter().map(Result::unwrap).collect()
}

/// Bodies that their rules refuse. A known key with a value of another type never passes as one that nobody knows.
fn unfit() -> Vec<(u64, Vec<Value>)> {
    let id = || "com.example.echo:1.0.0";
    vec![
        (
            PROCESSING,
            all(vec![
                cbor!([]),
                cbor!({ "eta_ms" => "soon" }),
                cbor!({ "cancellable" => 1 }),
                cbor!({ "status_text" => 1 }),
            ]),
        ),
        (
            PROGRESS,
            all(vec![
                cbor!({}),
                cbor!({ "progress_pct" => 101 }),
                cbor!({ "progress_pct" => -1 }),
                cbor!({ "progress_pct" => "50" }),
            ]),
        ),
        (
            INPUT_REQUIRED,
            all(vec![cbor!({}), cbor!({ "prompt" => 1 }), cbor!({ "prompt" => "x", "timeout_ms" => -1 })]),
        ),
        (
            REQUEST,
            all(vec![
                cbor!({}),
                cbor!({ "op" => 1 }),
                cbor!({ "op" => "cancel" }),
                cbor!({ "op" => "cancel", "target" => bytes(15) }),
                cbor!({ "op" => "cancel", "target" => "0123456789abcdef" }),
                cbor!({ "op" => "negotiate" }),
                cbor!({ "op" => "negotiate", "capability" => 1 }),
                cbor!({ "op" => "negotiate", "capability" => "a.b.c", "acceptable_versions" => "1.0.0" }),
                cbor!({ "op" => "negotiate", "capability" => "a.b.c", "preferred_version" => 1 }),
                cbor!({ "op" => "negotiate", "capability" => "a.b.c", "range" => null }),
                cbor!({ "op" => "calls", "target" => bytes(15) }),
                cbor!({ "op" => "calls", "cursor" => "x" }),
                cbor!({ "op" => "calls", "limit" => -1 }),
            ]),
        ),
        (
            RESPONSE,
            all(vec![
                cbor!({}),
                cbor!({ "op" => "cancel", "target" => bytes(16), "state" => "done" }),
                cbor!({ "op" => "cancel", "state" => "unknown" }),
                cbor!({ "op" => "accept", "capability" => "a.b.c", "agreed_version" => "1.0.0", "session_id" => bytes(15), "expires_at" => 1 }),
                cbor!({ "op" => "accept", "capability" => "a.b.c", "agreed_version" => "1.0.0", "session_id" => bytes(16) }),
            ]),
        ),
        (
            CAP_QUERY,
            all(vec![
                cbor!([]),
                cbor!({}),
                cbor!({ "filter" => null }),
                cbor!({ "filter" => { "capability" => 1 } }),
                cbor!({ "filter" => { "capability" => "a.b.c", "type" => 1 } }),
                cbor!({ "filter" => { "capability" => "a.b.c", "version" => 1.0 } }),
                cbor!({ "filter" => { "capability" => "a.b.c" }, "limit" => -1 }),
                cbor!({ "filter" => { "capability" => "a.b.c" }, "limit" => "5" }),
                cbor!({ "filter" => { "capability" => "a.b.c" }, "cursor" => bytes(3) }),
                cbor!({ "filter" => { "capability" => "a.b.c" }, "order" => "newest" }),
            ]),
        ),
        (
            CAP_INVOKE,
            all(vec![
                cbor!([]),
                cbor!({ "id" => id() }),
                cbor!({ "id" => 1, "params" => null }),
                cbor!({ "id" => id(), "capability" => 1, "params" => null }),
                cbor!({ "id" => id(), "type" => null, "params" => null }),
                cbor!({ "id" => id(), "version" => 1, "params" => null }),
                cbor!({ "id" => id(), "timeout_ms" => "1s", "params" => null }),
                cbor!({ "id" => id(), "timeout_ms" => -1, "params" => null }),
                cbor!({ "capability" => "a.b.c", "negotiate" => "1.0.0", "params" => null }),
                cbor!({ "capability" => "a.b.c", "negotiate" => { "preferred" => 1 }, "params" => null }),
                cbor!({ "capability" => "a.b.c", "negotiate" => { "acceptable" => "1.0.0" }, "params" => null }),
                cbor!({ "capability" => "a.b.c", "negotiate" => { "acceptable" => [1] }, "params" => null }),
                cbor!({ "capability" => "a.b.c", "negotiate" => { "range" => 1 }, "params" => null }),
                cbor!({ "id" => id(), "session" => null, "params" => null }),
                cbor!({ "id" => id(), "session" => {}, "params" => null }),
                cbor!({ "id" => id(), "session" => { "session_id" => bytes(15) }, "params" => null }),
                cbor!({ "id" => id(), "session" => { "session_id" => bytes(17) }, "params" => null }),
                cbor!({ "id" => id(), "session" => { "session_id" => "0123456789abcdef" }, "params" => null }),
                cbor!({ "id" => id(), "session" => { "session_id" => bytes(16), "session_scope" => false }, "params" => null }),
            ]),
        ),
        (
            CAP_RESULT,
            all(vec![
                cbor!({}),
                cbor!({ "status" => "done", "result" => 1 }),
                cbor!({ "status" => "success" }),
                cbor!({ "status" => "error" }),
                cbor!({ "status" => "success", "result" => 1, "execution_time_ms" => "1" }),
                cbor!({ "status" => "success", "result" => 1, "session" => { "session_id" => bytes(3) } }),
                cbor!({ "status" => "success", "result" => 1, "cost_estimate" => { "eur" => "1" } }),
            ]),
        ),
        (
            DOC_SEND,
            all(vec![
                cbor!({}),
                cbor!({ "content_type" => "x", "filename" => "x", "size" => 1, "hash" => bytes(32), "data" => "x" }),
                cbor!({ "content_type" => "x", "filename" => "x", "size" => -1, "hash" => bytes(32), "data" => bytes(1) }),
            ]),
        ),
        (DOC_REQUEST, all(vec![cbor!({}), cbor!({ "hash" => "x" }), cbor!({ "hash" => [1] })])),
    ]
}

/// Declarations whose shape is refused; they are looked at on local links only.
fn unfit_declarations() -> Vec<Value> {
    let with = |key: &str, value: Value| {
        Value::Map(vec![("id".into(), "com.example.echo:1.0.0".into()), (key.into(), value)])
    };
    let hash = |schema: Result<Value, ciborium::value::Error>| with("input_schema", schema.unwrap());
    let descriptors = vec![
        cbor!({}).unwrap(),
        cbor!({ "id" => 1 }).unwrap(),
        "com.example.echo:1.0.0".into(),
        with("name", 1.into()),
        with("version", 1.into()),
        with("idempotent", 1.into()),
        with("timeout_ms", "1".into()),
        with("supported_ranges", "1.0.0".into()),
        with("deprecated_ranges", cbor!([1]).unwrap()),
        with("deprecated_versions", "1.0.0".into()),
        with("descriptor_sig", "x".into()),
        with("permissions", "x".into()),
        with("rate_limit", cbor!({ "requests" => 1 }).unwrap()),
        with("rate_limit", cbor!({ "requests" => "1", "period" => "1m" }).unwrap()),
        with("retry_policy", 1.into()),
        with("static_hash", bytes(31)),
        with("lineage", bytes(33)),
        with("input_schema", 1.into()),
        with("output_schema", cbor!([]).unwrap()),
        hash(cbor!({})),
        hash(cbor!({ "uri" => "x" })),
        hash(cbor!({ "hash_alg" => "sha-256", "hash" => bytes(32) })),
        hash(cbor!({ "hash_alg" => "sha-256", "hash" => bytes(31), "uri" => "x" })),
        hash(cbor!({ "hash_alg" => "sha-256", "hash" => bytes(64), "uri" => "x" })),
        hash(cbor!({ "hash_alg" => "sha-512", "hash" => bytes(32), "uri" => "x" })),
        hash(cbor!({ "hash_alg" => "md5", "hash" => bytes(32), "uri" => "x" })),
        hash(cbor!({ "hash_alg" => "sha-256", "hash" => bytes(32), "bundle_id" => "x" })),
    ];
    let mut bodies: Vec<_> = descriptors
        .into_iter()
        .map(|descriptor| cbor!({ "capabilities" => [descriptor] }).unwrap())
        .collect();
    bodies.push(cbor!({}).unwrap());
    bodies.push(cbor!({ "capabilities" => [] }).unwrap());
    bodies.push(cbor!({ "capabilities" => "x" }).unwrap());
    bodies.push(cbor!({ "capabilities" => [{ "id" => "a.b.c:1.0.0" }], "next_cursor" => 1 }).unwrap());
    bodies.push(
        cbor!({ "capabilities" => [{ "id" => "a.b.c:1.0.0" }], "capabilities_version" => 1.0 }).unwrap(),
    );
    bodies
}

#[test]
fn bodies_that_break_their_rule_are_1001() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for (typ, bodies) in unfit() {
            for body in bodies {
                // What answers something says what, so that only its body is at fault.
                let mut letter = link.letter(typ, &body);
                letter.reply_to = Some(vec![7; 16]);
                let id = link.send_letter(&letter);
                let refusal = link.refusal(&id);
                assert_eq!(refusal.code, 1001, "{transport:?}: {typ:#04x} {body:?}: {refusal:?}");
            }
        }
    }
}

#[test]
fn declarations_that_break_their_rule_are_1001() {
    let sidecar = quiet_sidecar();
    for transport in Transport::LOCAL {
        let mut link = RawLink::open(&sidecar, transport);
        for body in unfit_declarations() {
            let refusal = link.refused(CAP_DECLARE, body.clone());
            assert_eq!(refusal.code, 1001, "{transport:?}: {body:?}: {refusal:?}");
        }
    }
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for body in unfit_declarations() {
            let mut letter = link.letter(CAP_DECLARE, &body);
            letter.reply_to = Some(vec![7; 16]);
            let id = link.send_letter(&letter);
            let refusal = link.refusal(&id);
            assert_eq!(refusal.code, 1001, "{transport:?}: {body:?}: {refusal:?}");
        }
    }
}

#[test]
fn a_refused_body_names_the_byte() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let body = cbor!({ "filter" => { "capability" => "a.b.c" }, "limit" => "5" }).unwrap();
        let refusal = link.refused(CAP_QUERY, body.clone());
        let at = encode(&body).len() - encode(&"5".into()).len();
        assert!(refusal.message.contains(&format!("byte {at}")), "{transport:?}: {refusal:?}");
        assert!(refusal.message.contains("limit"), "{transport:?}: {refusal:?}");
    }
}

#[test]
fn an_ack_is_taken_and_gets_no_answer() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let ack = link.send(ACK, cbor!({}).unwrap());
        let ping = link.send(0x01, cbor!({}).unwrap());
        let answer =
            link.message_where(|message| [Some(&ack), Some(&ping)].contains(&message.reply_to().as_ref()));
        assert_eq!(answer.reply_to(), Some(ping), "{transport:?}: {answer:?}");
    }
}

#[test]
fn answers_that_nobody_waits_for_are_dropped_in_silence() {
    let sidecar = quiet_sidecar();
    let answers = [
        (RESPONSE, cbor!({ "op" => "cancel", "target" => bytes(16), "state" => "unknown" })),
        (CAP_DECLARE, cbor!({ "capabilities" => [{ "id" => "a.b.c:1.0.0" }] })),
        (PROGRESS, cbor!({ "progress_pct" => 1 })),
        (ERROR, cbor!({ "code" => 5001, "category" => "server", "message" => "x" })),
        // An ERROR is never answered by one, or two sides would go on for ever.
        (ERROR, cbor!({})),
        (ERROR, cbor!({ "code" => "4001", "category" => "client", "message" => "x" })),
        (ERROR, cbor!({ "code" => 4001, "category" => "other", "message" => "x" })),
    ];
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for (typ, body) in &answers {
            let mut letter = link.letter(*typ, body.as_ref().unwrap());
            letter.reply_to = Some(vec![7; 16]);
            let id = link.send_letter(&letter);
            let ping = link.send(0x01, cbor!({}).unwrap());
            let next =
                link.message_where(|message| [Some(&id), Some(&ping)].contains(&message.reply_to().as_ref()));
            assert_eq!(next.reply_to(), Some(ping), "{transport:?}: {typ:#04x}: {next:?}");
        }
    }
}

#[test]
fn unknown_text_keys_are_carried_and_ignored() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let query = cbor!({
            "filter" => { "capability" => "com.example.none", "colour" => [1, { "x" => null }] },
            "newer" => { "a" => 1.5 },
        });
        assert_eq!(link.refused(CAP_QUERY, query.unwrap()).code, 4002, "{transport:?}");
        let other_key = Value::Map(vec![
            ("filter".into(), cbor!({ "capability" => "a.b.c" }).unwrap()),
            (1.into(), 2.into()),
        ]);
        assert_eq!(link.refused(CAP_QUERY, other_key).code, 1001, "{transport:?}: only text keys are open");
    }
}
