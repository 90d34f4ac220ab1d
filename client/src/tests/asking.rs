//! Tests what a client gets when it calls and queries.

use capd_proto::code::Code;
use capd_proto::message::{
    CallError, CancelState, CapResult, ContentHash, Declare, DescriptorDraft, DocSend, ErrorBody, HashAlg,
    InputRequired, Processing, Progress as ProgressBody, Request, Response,
};
use serde_json::json;

use super::*;

fn result(value: &serde_json::Value) -> (Type, Vec<u8>) {
    let mut body = Vec::new();
    CapResult { execution_time_ms: Some(7), ..CapResult::success(&cbor(value)) }.encode(&mut body);
    (Type::CapResult, body)
}

fn error(code: Code, details: Option<&[u8]>) -> (Type, Vec<u8>) {
    let mut body = Vec::new();
    ErrorBody { details, ..ErrorBody::new(code, "no") }.encode(&mut body);
    (Type::Error, body)
}

fn pong() -> (Type, Vec<u8>) {
    (Type::Pong, vec![0xf6])
}

#[tokio::test]
async fn a_call_hears_its_progress_and_then_its_one_result() {
    let mut pair = Pair::new(|_, message| match message {
        Message::CapInvoke(invoke) => {
            assert_eq!(invoke.id.as_deref(), Some("org.example.upper:1.0.0"));
            assert_eq!((invoke.timeout_ms, invoke.params), (Some(2_500), &[0x61, b'x'][..]));
            let (mut processing, mut progress, mut input) = (Vec::new(), Vec::new(), Vec::new());
            Processing { eta_ms: Some(9), ..Processing::default() }.encode(&mut processing);
            ProgressBody { progress_pct: 40 }.encode(&mut progress);
            InputRequired { prompt: "sure?".into(), options: None, timeout_ms: None }.encode(&mut input);
            vec![
                (Type::Processing, processing),
                (Type::Progress, progress),
                (Type::InputRequired, input),
                result(&json!({"text": "X"})),
            ]
        }
        _ => panic!("{message:?}"),
    })
    .await;
    assert_eq!(pair.client.did(), sidecar().did());
    let call =
        call_of("org.example.upper:1.0.0").params_json(&json!("x")).timeout(Duration::from_millis(2_500));
    let mut handle = pair.client.call(call).unwrap();
    assert_eq!(
        soon(handle.progress()).await,
        Some(Progress::Processing { status_text: None, eta_ms: Some(9), cancellable: None })
    );
    assert_eq!(soon(handle.progress()).await, Some(Progress::Progress { pct: 40 }));
    assert_eq!(soon(handle.progress()).await, Some(Progress::InputRequired { prompt: "sure?".to_owned() }));
    assert_eq!(soon(handle.progress()).await, None);
    let answer = soon(handle.outcome()).await.unwrap();
    assert_eq!(answer.json(), Some(json!({"text": "X"})));
    assert_eq!((answer.execution_time_ms, answer.is_deprecated), (Some(7), false));
    assert_eq!(&answer.from, sidecar().did());
    let sent = pair.next().await;
    assert_eq!((sent.typ, sent.to.as_str()), (Type::CapInvoke, sidecar().did().as_str()));
    assert!(sent.ttl > 2_500, "an invoke outlives its timeout: {}", sent.ttl);
}

#[tokio::test]
async fn an_answer_from_what_is_no_did_is_an_error() {
    let pair = Pair::new(|_, _| Vec::new()).await;
    let handle = pair.client.call(call_of("org.example.upper:1.0.0")).unwrap();
    let (typ, body) = result(&json!(1));
    let answer = sealed_by("nobody", typ, &body, fresh_id(), Some(handle.id()));
    pair.service.link.lock().unwrap().as_ref().unwrap().notify(answer).unwrap();
    let error = soon(handle.outcome()).await.unwrap_err();
    assert!(matches!(&error, ClientError::Answer(why) if why.contains("not a DID")), "{error}");
}

#[tokio::test]
async fn a_repeated_call_expires_when_the_first_one_does() {
    let mut pair = Pair::new(|_, _| vec![result(&json!(1))]).await;
    let hour = Duration::from_secs(3_600);
    for (request, ttl_ms) in [
        (call_of("org.example.upper:1.0.0"), 3_600_000),
        (call_of("org.example.upper:1.0.0").timeout(Duration::from_secs(1)), 61_000),
        (call_of("org.example.upper:1.0.0").timeout(Duration::from_secs(1)).ttl(hour), 3_600_000),
    ] {
        let handle = pair.client.call(request.clone()).unwrap();
        let id = handle.id();
        soon(handle.outcome()).await.unwrap();
        let first = pair.next().await;
        let again = pair.client.call(request.id(id)).unwrap();
        assert_eq!(again.id(), id);
        soon(again.outcome()).await.unwrap();
        let second = pair.next().await;
        assert_eq!((first.ts, first.ttl), (id.ts_ms(), ttl_ms));
        assert_eq!(first, second);
    }
}

#[tokio::test]
async fn a_second_result_is_dropped_and_told_so() {
    let mut pair = Pair::new(|_, message| match message {
        Message::CapInvoke(_) => vec![result(&json!(1)), result(&json!(2))],
        _ => vec![],
    })
    .await;
    let handle = pair.client.call(call_of("org.example.upper:1.0.0")).unwrap();
    assert_eq!(soon(handle.outcome()).await.unwrap().json(), Some(json!(1)));
    assert_eq!(pair.next().await.typ, Type::CapInvoke);
    let told = pair.next().await;
    assert_eq!(told.typ, Type::Error);
    assert_eq!(ErrorBody::decode(&told.body).unwrap().code, Code::BAD_REQUEST);
}

#[tokio::test]
async fn a_refusal_and_an_error_result_are_told_apart() {
    let violation = json!({"violations": [{"path": "/a", "message": "m", "keyword": "type"}]});
    let details = cbor(&violation);
    let pair = Pair::new(move |_, message| match message {
        Message::CapInvoke(invoke) if invoke.params == [0xf6] => {
            vec![error(Code::SCHEMA_VIOLATION, Some(&details))]
        }
        Message::CapInvoke(_) => {
            let mut body = Vec::new();
            CapResult::error(CallError::new(Code::INTERNAL_ERROR, "broke", None)).encode(&mut body);
            vec![(Type::CapResult, body)]
        }
        _ => vec![pong()],
    })
    .await;
    let refused = pair.client.call(call_of("org.example.upper:1.0.0")).unwrap();
    let Err(ClientError::Refused(refused)) = soon(refused.outcome()).await else { panic!("not refused") };
    assert_eq!(refused.code, Code::SCHEMA_VIOLATION);
    assert_eq!(refused.violations()[0].path, "/a");
    let failed = pair.client.call(call_of("org.example.upper:1.0.0").params_json(&json!({}))).unwrap();
    let failed = soon(failed.outcome()).await;
    let expected = WireError { code: Code::INTERNAL_ERROR, message: "broke".to_owned(), details: None };
    assert_eq!(failed, Err(ClientError::Result(expected)));
    pair.client.ping(pair.client.did(), PATIENCE).await.unwrap();
}

#[tokio::test]
async fn params_that_are_no_cbor_item_are_not_sent() {
    let pair = Pair::new(silence).await;
    for params in [&b""[..], &[0x61], &[0xf6, 0xf6]] {
        let call = call_of("org.example.upper:1.0.0").params_cbor(params.to_vec());
        assert!(matches!(pair.client.call(call), Err(ClientError::Invalid(_))), "{params:?}");
    }
}

#[tokio::test]
async fn what_is_not_answered_ends_at_its_deadline() {
    let pair = Pair::new(silence).await;
    let wait = Duration::from_millis(30);
    let error = soon(pair.client.ping(pair.client.did(), wait)).await.unwrap_err();
    assert!(matches!(error, ClientError::Timeout { after, .. } if after == wait), "{error}");
    // An earlier deadline than the one that is waited for counts too.
    let (slow, quick) = tokio::join!(
        pair.client.ping(pair.client.did(), Duration::from_millis(60)),
        pair.client.ping(pair.client.did(), wait)
    );
    assert!(matches!((slow, quick), (Err(ClientError::Timeout { .. }), Err(ClientError::Timeout { .. }))));
}

#[tokio::test]
async fn a_link_that_closes_ends_every_wait_and_takes_no_more() {
    let mut pair = Pair::new(silence).await;
    let handle = pair.client.call(call_of("org.example.upper:1.0.0")).unwrap();
    let ping = tokio::spawn({
        let client = pair.client.clone();
        async move { client.ping(client.did(), PATIENCE).await }
    });
    pair.next().await;
    pair.next().await;
    let link = pair.service.link.lock().unwrap().take().unwrap();
    link.close(CloseReason::Local("the test ends it".to_owned()));
    assert!(matches!(soon(handle.outcome()).await, Err(ClientError::Closed(_))));
    assert!(matches!(soon(ping).await.unwrap(), Err(ClientError::Closed(_))));
    soon(pair.client.closed()).await;
    let after = pair.client.call(call_of("org.example.upper:1.0.0"));
    assert!(matches!(after, Err(ClientError::Closed(_))), "{after:?}");
}

#[tokio::test]
async fn more_requests_than_the_table_takes_are_not_sent() {
    let pair = Pair::with(Options { pending_max: 1, ..Options::default() }, silence).await;
    let _held = pair.client.call(call_of("org.example.upper:1.0.0")).unwrap();
    let refused = pair.client.call(call_of("org.example.upper:1.0.0"));
    assert!(matches!(refused, Err(ClientError::Unsent(_))), "{refused:?}");
}

#[tokio::test]
async fn an_answer_of_another_type_or_to_something_else_is_an_error() {
    let pair = Pair::new(|_, message| match message {
        Message::Request(_) => {
            let mut body = Vec::new();
            let target = MessageId::new(1, [9; 8]);
            Response::Cancel { target, state: CancelState::Finished }.encode(&mut body);
            vec![(Type::Response, body)]
        }
        _ => vec![pong()],
    })
    .await;
    let handle = pair.client.call(call_of("org.example.upper:1.0.0")).unwrap();
    assert!(matches!(soon(handle.outcome()).await, Err(ClientError::Answer(_))));
    assert!(matches!(pair.client.cancel(fresh_id()).await, Err(ClientError::Answer(_))));
}

#[tokio::test]
async fn cancel_names_its_call_and_a_dropped_handle_cancels_only_when_asked() {
    let mut pair = Pair::new(|_, message| match message {
        Message::Request(Request::Cancel { target }) => {
            let mut body = Vec::new();
            Response::Cancel { target: *target, state: CancelState::Cancelling }.encode(&mut body);
            vec![(Type::Response, body)]
        }
        _ => vec![pong()],
    })
    .await;
    let call = || call_of("org.example.upper:1.0.0").timeout(PATIENCE);
    assert_eq!(pair.client.cancel(fresh_id()).await, Ok(CancelState::Cancelling));
    assert_eq!(pair.next().await.typ, Type::Request);
    drop(pair.client.call(call()).unwrap());
    let mut handle = pair.client.call(call()).unwrap();
    let id = handle.id();
    handle.cancel_on_drop();
    drop(handle);
    assert_eq!(pair.next().await.typ, Type::CapInvoke);
    assert_eq!(pair.next().await.typ, Type::CapInvoke);
    let cancel = pair.next().await;
    assert_eq!(Request::decode(&cancel.body).unwrap(), Request::Cancel { target: id });
}

#[tokio::test]
async fn a_list_is_read_over_its_pages_and_again_when_it_changed_on_the_way() {
    let turns = std::sync::atomic::AtomicU32::new(0);
    let pair = Pair::new(move |_, message| {
        let Message::CapQuery(query) = message else { panic!("{message:?}") };
        let page = |version: &str, cursor: Option<&str>| {
            let draft = DescriptorDraft::new(capability(&format!("org.example.upper:{version}")));
            let descriptor = draft.finish().unwrap();
            let mut body = Vec::new();
            Declare::new(vec![descriptor.as_bytes()], cursor.map(Into::into)).encode(&mut body);
            vec![(Type::CapDeclare, body)]
        };
        match (query.cursor.as_deref(), turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            (None, _) => page("2.0.0", Some("there")),
            (Some(_), 1) => vec![error(Code::BAD_REQUEST, None)],
            (Some(cursor), _) => {
                assert_eq!(cursor, "there");
                page("1.0.0", None)
            }
        }
    })
    .await;
    let offers =
        soon(pair.client.query_all(&Query::new(capability("org.example.upper:1.0.0").name))).await.unwrap();
    let ids: Vec<_> = offers.iter().map(|offer| offer.id().to_string()).collect();
    assert_eq!(ids, ["org.example.upper:2.0.0", "org.example.upper:1.0.0"]);
    assert_eq!((offers[0].is_local, offers[0].provider.as_deref()), (false, None));
}

#[tokio::test]
async fn a_document_is_taken_only_with_the_hash_that_was_asked_for() {
    let document = b"{}";
    let right = ContentHash::of(HashAlg::Sha256, document);
    let pair = Pair::new(move |_, message| {
        let Message::DocRequest(request) = message else { panic!("{message:?}") };
        let mut body = Vec::new();
        let send = DocSend {
            content_type: "application/schema+json".into(),
            filename: "schema.json".into(),
            size: 2,
            hash: request.hash.clone(),
            data: document.into(),
        };
        send.encode(&mut body);
        vec![(Type::DocSend, body)]
    })
    .await;
    assert_eq!(soon(pair.client.document(&right, None)).await.unwrap(), &document[..]);
    let wrong = ContentHash::of(HashAlg::Sha512, b"[]");
    assert!(matches!(soon(pair.client.document(&wrong, None)).await, Err(ClientError::Answer(_))));
}

#[tokio::test]
async fn no_socket_is_unavailable_and_a_wrong_token_is_refused() {
    let (_dir, socket) = socket();
    let error = Client::connect(Endpoint::Unix(socket), Options::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { is_refused: false, .. }), "{error}");

    let (sender, _seen) = mpsc::channel(1);
    let service = Arc::new(Scripted { script: Box::new(silence), seen: sender, link: Mutex::default() });
    let host = Host::sidecar(Settings::default(), &Seed::new(SEED), service as _, System::real()).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let addr = local::listen_tcp(&host, any, Token::new("right")).await.unwrap();
    let wrong = Endpoint::Tcp { addr, token: b"wrong".to_vec() };
    assert!(!format!("{wrong:?}").contains("wrong"));
    let error = Client::connect(wrong, Options::default()).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { is_refused: true, .. }), "{error}");
    let right = Endpoint::Tcp { addr, token: b"right".to_vec() };
    assert_eq!(Client::connect(right, Options::default()).await.unwrap().did(), sidecar().did());
}

#[tokio::test]
async fn times_without_end_are_cut_to_what_an_envelope_may_live() {
    let endless = Duration::MAX;
    let options = Options { connect_timeout: endless, request_timeout: endless, ..Options::default() };
    let mut pair = Pair::with(options, |_, message| match message {
        Message::CapInvoke(invoke) => {
            assert_eq!(invoke.timeout_ms, Some(limits::TTL_MS_MAX));
            vec![result(&json!(1))]
        }
        Message::Ping(_) => vec![pong()],
        _ => panic!("{message:?}"),
    })
    .await;
    let call = call_of("org.example.upper:1.0.0").timeout(endless);
    for call in [call.clone(), call.ttl(endless)] {
        let handle = pair.client.call(call).unwrap();
        assert_eq!(soon(handle.outcome()).await.unwrap().json(), Some(json!(1)));
        assert_eq!(pair.next().await.ttl, limits::TTL_MS_MAX);
    }
    soon(pair.client.ping(&pair.client.did().clone(), endless)).await.unwrap();
}
