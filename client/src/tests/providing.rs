//! Tests what the sidecar gets from a client that serves.

use capd_proto::code::Code;
use capd_proto::message::{
    CancelState, CapResult, Declare, Descriptor, DescriptorDraft, ErrorBody, Invoke, Outcome, Preferences,
    Progress as ProgressBody, Request, Response,
};
use serde_json::json;

use super::*;

fn descriptor(text: &str) -> Descriptor {
    DescriptorDraft::new(capability(text)).finish().unwrap()
}

/// Takes every declaration, and answers PING.
fn taken(_: &Envelope<'_>, message: &Message<'_>) -> Vec<(Type, Vec<u8>)> {
    match message {
        Message::Ping(_) => vec![(Type::Pong, vec![0xf6])],
        _ => vec![],
    }
}

fn invoke_of(id: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let params = cbor(&json!({"n": 1}));
    Invoke { id: Some(id.into()), ..Invoke::new(&params) }.encode(&mut body);
    body
}

/// A pair whose client serves two versions with `handler`, and has told so.
async fn serving(calls_max: usize, handler: impl Handler) -> Pair {
    let mut pair = Pair::new(taken).await;
    pair.client.serve(calls_max, handler).unwrap();
    let both = [descriptor("org.example.upper:1.0.0"), descriptor("org.example.upper:2.0.0")];
    pair.client.declare(&both).await.unwrap();
    let declared = pair.next().await;
    assert_eq!(Declare::decode(&declared.body).unwrap().descriptors().unwrap(), both);
    assert_eq!(pair.next().await.typ, Type::Ping);
    pair
}

fn code_of(seen: &Seen) -> Code {
    match seen.typ {
        Type::Error => ErrorBody::decode(&seen.body).unwrap().code,
        _ => match CapResult::decode(&seen.body).unwrap().outcome {
            Outcome::Error(error) => error.code,
            Outcome::Success(_) => panic!("{seen:?}"),
        },
    }
}

#[tokio::test]
async fn a_call_reaches_the_handler_and_its_result_goes_back() {
    let handler = |invocation: Invocation| async move {
        assert_eq!(invocation.params, cbor(&json!({"n": 1})));
        assert_eq!(&invocation.from, sidecar().did());
        invocation.reporter.progress(50).unwrap();
        Ok(cbor(&json!(invocation.capability.to_string())))
    };
    let mut pair = serving(4, handler).await;
    let id = fresh_id();
    pair.say(Type::CapInvoke, &invoke_of("org.example.upper:1.0.0"), id);
    let progress = pair.next().await;
    assert_eq!((progress.typ, progress.reply_to), (Type::Progress, Some(id)));
    assert_eq!(ProgressBody::decode(&progress.body).unwrap().progress_pct, 50);
    let result = pair.next().await;
    assert_eq!((result.typ, result.reply_to), (Type::CapResult, Some(id)));
    let expected = cbor(&json!("org.example.upper:1.0.0"));
    assert_eq!(CapResult::decode(&result.body).unwrap().outcome, Outcome::Success(&expected));

    // By name and range, the highest that fits serves.
    let mut body = Vec::new();
    let params = cbor(&json!({"n": 1}));
    let negotiate = Some(Preferences { range: Some(">=1.0.0".into()), ..Preferences::default() });
    Invoke { capability: Some("org.example.upper".into()), negotiate, ..Invoke::new(&params) }
        .encode(&mut body);
    pair.say(Type::CapInvoke, &body, fresh_id());
    assert_eq!(pair.next().await.typ, Type::Progress);
    let expected = cbor(&json!("org.example.upper:2.0.0"));
    let result = pair.next().await;
    assert_eq!(CapResult::decode(&result.body).unwrap().outcome, Outcome::Success(&expected));
}

#[tokio::test]
async fn what_is_not_declared_is_refused_and_a_full_agent_says_so() {
    let handler = |invocation: Invocation| async move {
        invocation.cancelled.cancelled().await;
        Ok(cbor(&json!(null)))
    };
    let mut pair = serving(1, handler).await;
    for (id, code) in [
        ("org.example.lower:1.0.0", Code::CAPABILITY_NOT_FOUND),
        ("org.example.upper:3.0.0", Code::VERSION_MISMATCH),
    ] {
        pair.say(Type::CapInvoke, &invoke_of(id), fresh_id());
        assert_eq!(code_of(&pair.next().await), code, "{id}");
    }
    let running = fresh_id();
    pair.say(Type::CapInvoke, &invoke_of("org.example.upper:1.0.0"), running);
    pair.say(Type::CapInvoke, &invoke_of("org.example.upper:1.0.0"), running);
    assert_eq!(code_of(&pair.next().await), Code::BAD_REQUEST);
    pair.say(Type::CapInvoke, &invoke_of("org.example.upper:1.0.0"), fresh_id());
    assert_eq!(code_of(&pair.next().await), Code::OVERLOADED);
}

#[tokio::test]
async fn a_cancel_reaches_the_handler_and_the_call_still_ends_once() {
    let handler = |invocation: Invocation| async move {
        invocation.cancelled.cancelled().await;
        Err(WireError { code: Code::CANCELLED, message: "cancelled".to_owned(), details: None })
    };
    let mut pair = serving(1, handler).await;
    let id = fresh_id();
    pair.say(Type::CapInvoke, &invoke_of("org.example.upper:1.0.0"), id);
    let mut body = Vec::new();
    Request::Cancel { target: id }.encode(&mut body);
    pair.say(Type::Request, &body, fresh_id());
    let response = pair.next().await;
    let state = CancelState::Cancelling;
    assert_eq!(Response::decode(&response.body).unwrap(), Response::Cancel { target: id, state });
    let result = pair.next().await;
    assert_eq!((result.reply_to, code_of(&result)), (Some(id), Code::CANCELLED));
    pair.say(Type::Request, &body, fresh_id());
    let response = pair.next().await;
    let state = CancelState::Unknown;
    assert_eq!(Response::decode(&response.body).unwrap(), Response::Cancel { target: id, state });
}

#[tokio::test]
async fn a_handler_that_panics_has_answered_with_5001() {
    let handler = |_: Invocation| async { panic!("the test wants this") };
    let mut pair = serving(1, handler).await;
    for _ in 0..2 {
        let id = fresh_id();
        pair.say(Type::CapInvoke, &invoke_of("org.example.upper:1.0.0"), id);
        let result = pair.next().await;
        assert_eq!((result.typ, result.reply_to), (Type::CapResult, Some(id)));
        assert_eq!(code_of(&result), Code::INTERNAL_ERROR);
    }
}

#[tokio::test]
async fn an_answer_that_no_message_can_carry_is_an_error_result() {
    let answers = [vec![], vec![0x61], vec![0xf6, 0xf6], [vec![0x81; 63], vec![0xf6]].concat()];
    let next = std::sync::atomic::AtomicUsize::new(0);
    let handler = move |_: Invocation| {
        let answer = answers[next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)].clone();
        async move { Ok(Bytes::from(answer)) }
    };
    let mut pair = serving(1, handler).await;
    for _ in 0..4 {
        let id = fresh_id();
        pair.say(Type::CapInvoke, &invoke_of("org.example.upper:1.0.0"), id);
        let result = pair.next().await;
        assert_eq!((result.reply_to, code_of(&result)), (Some(id), Code::INTERNAL_ERROR));
    }
}

#[tokio::test]
async fn a_declaration_that_is_refused_is_an_error() {
    let pair = Pair::new(|_, message| match message {
        Message::CapDeclare(_) => {
            let mut body = Vec::new();
            ErrorBody::new(Code::UNSUPPORTED_SCHEMA, "no").encode(&mut body);
            vec![(Type::Error, body)]
        }
        _ => vec![(Type::Pong, vec![0xf6])],
    })
    .await;
    let upper = [descriptor("org.example.upper:1.0.0")];
    assert!(matches!(pair.client.declare(&upper).await, Err(ClientError::Invalid(_))), "serve comes first");
    let handler = |_: Invocation| async { Ok(Bytes::from_static(&[0xf6])) };
    pair.client.serve(1, handler).unwrap();
    assert!(matches!(pair.client.serve(1, handler), Err(ClientError::Invalid(_))), "there is one handler");
    assert!(matches!(pair.client.declare(&[]).await, Err(ClientError::Invalid(_))));
    let Err(ClientError::Refused(error)) = soon(pair.client.declare(&upper)).await else {
        panic!("not refused")
    };
    assert_eq!(error.code, Code::UNSUPPORTED_SCHEMA);
}

#[tokio::test]
async fn an_agent_that_serves_nothing_refuses_calls_and_answers_pings() {
    let mut pair = Pair::new(silence).await;
    pair.say(Type::CapInvoke, &invoke_of("org.example.upper:1.0.0"), fresh_id());
    assert_eq!(code_of(&pair.next().await), Code::CAPABILITY_NOT_FOUND);
    let id = fresh_id();
    pair.say(Type::Ping, &[0x01], id);
    let pong = pair.next().await;
    assert_eq!((pong.typ, pong.reply_to, &pong.body[..]), (Type::Pong, Some(id), &[0x01][..]));
}
