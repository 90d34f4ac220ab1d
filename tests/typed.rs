//! Typed calls, a typed agent and generated code over the binary link, beside real sidecars.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(clippy::disallowed_methods, reason = "real processes are met in real time")]

mod support;

#[path = "codegen/golden/rust/pr_reviewer.rs"]
#[allow(missing_docs, unreachable_pub, dead_code, reason = "it is generated")]
mod pr_reviewer;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capd_client::proto::capability::CapabilityPattern;
use capd_client::proto::code::Code;
use capd_client::proto::envelope::MessageId;
use capd_client::proto::message::CancelState;
use capd_client::proto::negotiate::Negotiate;
use capd_client::{
    Agent, BuiltAgainst, CallOptions, CallRequest, Capability, Client, ClientError, Endpoint, Event,
    Invocation, Options, Outcome, Query, Schema, Target, ToolFormat, WireError,
};
use pr_reviewer::{ReviewPrRequest, ReviewPrRequestSeverity, ReviewPrResponseVerdict};
use serde_json::{Value, json};
use support::{PATIENCE, Setup, Sidecar};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// An agent that serves until this is dropped.
struct Serving {
    _stop: oneshot::Sender<()>,
    _ended: JoinHandle<Result<(), ClientError>>,
}

impl Serving {
    /// Serves, and waits until the sidecar lists `id`.
    async fn new(sidecar: &Sidecar, agent: Agent, id: &str) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = agent.serve(endpoint(sidecar), Options::default(), async {
            let _ = stopped.await;
        });
        let serving = Self { _stop: stop, _ended: tokio::spawn(serving) };
        let client = client_of(sidecar).await;
        listed(&client, id).await;
        serving
    }
}

fn endpoint(sidecar: &Sidecar) -> Endpoint {
    Endpoint::Unix(sidecar.socket.clone())
}

async fn client_of(sidecar: &Sidecar) -> Client {
    Client::connect(endpoint(sidecar), Options::default()).await.unwrap()
}

/// Waits until `id` may be called.
async fn listed(client: &Client, id: &str) {
    let (name, _) = id.split_once(':').unwrap();
    let query = Query::new(name.parse::<capd_client::proto::capability::CapabilityName>().unwrap());
    soon(async {
        while client.query(&query).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it ends")
}

/// The answer to one HTTP request: its head and its body.
fn http(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn options(key: &str) -> CallOptions {
    CallOptions { key: Some(key.to_owned()), timeout: Some(PATIENCE), ..CallOptions::default() }
}

/// Counts its calls, and answers each with that count.
fn counter(calls: &Arc<AtomicUsize>) -> Agent {
    let calls = Arc::clone(calls);
    let capability = Capability::new("org.example.count", "1.0.0").unwrap().idempotent(true);
    let serve = move |_params: Value, _call: Invocation| {
        let count = calls.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok(count) }
    };
    Agent::new().capability(capability, serve).unwrap()
}

fn reviewer(severities: &Value, calls: &Arc<AtomicUsize>) -> Agent {
    let calls = Arc::clone(calls);
    let input = json!({
        "type": "object", "required": ["prUrl", "severity"], "additionalProperties": false,
        "properties": {"prUrl": {"type": "string"}, "severity": {"enum": severities}},
    });
    let capability = Capability::new("agent.pr-reviewer.review-pr", "1.0.0").unwrap().input_schema(&input);
    let capability = capability.output_schema(&json!({
        "type": "object", "required": ["verdict", "summary"],
        "properties": {"summary": {"type": "string"}, "verdict": {"enum": ["approve", "request-changes", "comment"]}},
    }));
    let serve = move |params: ReviewPrRequest, _call: Invocation| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move { Ok(json!({"summary": params.pr_url, "verdict": "comment"})) }
    };
    Agent::new().capability(capability, serve).unwrap()
}

#[tokio::test]
async fn generated_code_is_proven_before_it_is_sent_and_a_drift_is_refused_with_4902() {
    let params = ReviewPrRequest {
        pr_url: "https://example.org/1".to_owned(),
        severity: ReviewPrRequestSeverity::High,
    };
    let calls = Arc::<AtomicUsize>::default();
    let far = Sidecar::start();
    let id = "agent.pr-reviewer.review-pr:1.0.0";
    // It takes more than the code was built against, under other hashes: no drift.
    let kept = Serving::new(&far, reviewer(&json!(["low", "med", "high", "worst"]), &calls), id).await;
    let near = Setup::new().peer(&far).start();
    let caller = client_of(&near).await;
    listed(&caller, id).await;
    let options = CallOptions { timeout: Some(PATIENCE), ..CallOptions::default() };
    let reviewed = soon(pr_reviewer::review_pr(&caller, &params, options.clone())).await.unwrap();
    assert_eq!(
        (reviewed.verdict, reviewed.summary),
        (ReviewPrResponseVerdict::Comment, params.pr_url.clone())
    );
    assert_eq!(calls.load(Ordering::SeqCst), 1);

    // The same agent no longer takes "high".
    drop(kept);
    drop(near);
    let drifted = Serving::new(&far, reviewer(&json!(["low", "med"]), &calls), id).await;
    let near = Setup::new().peer(&far).start();
    let caller = client_of(&near).await;
    listed(&caller, id).await;
    let error = soon(pr_reviewer::review_pr(&caller, &params, options)).await.unwrap_err();
    let ClientError::Refused(refusal) = &error else { panic!("{error}") };
    assert_eq!((refusal.code, error.outcome()), (Code::SCHEMA_DRIFT, Outcome::Refused), "{error}");
    assert_eq!(refusal.details_json().unwrap()["findings"][0]["path"], "/severity", "{error}");
    // Not even params that fit are sent.
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    drop(drifted);
}

#[tokio::test]
async fn a_key_is_one_call_over_the_link_and_over_http_also_after_a_kill() {
    let calls = Arc::<AtomicUsize>::default();
    let sidecar = Sidecar::start();
    let _serving = Serving::new(&sidecar, counter(&calls), "org.example.count:1.0.0").await;
    let client = client_of(&sidecar).await;
    let mut first =
        client.start::<_, u64>("org.example.count", &json!({"b": 1, "a": 2}), options("k")).unwrap();
    let Some(Event::Accepted { call, .. }) = soon(first.event()).await else { panic!("it is not accepted") };
    assert_eq!(soon(first.result()).await, Ok(1));
    let again = client.start::<_, u64>("org.example.count", &json!({"a": 2, "b": 1}), options("k")).unwrap();
    let answer = soon(again.answer()).await.unwrap();
    assert_eq!((answer.json(), answer.is_replayed), (Some(json!(1)), true));

    let post = "POST /v1/call/org.example.count HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: k\r\n\
                Content-Type: application/json\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{\"a\":2,\"b\":1}";
    let answer = http(&sidecar.socket, post);
    assert!(
        answer.contains(&format!("capd-call: {call}")) && answer.contains("capd-replayed: true"),
        "{answer}"
    );

    let other = json!({"a": 3});
    let reused = client.call_typed::<_, u64>("org.example.count", &other, options("k"));
    let error = soon(reused).await.unwrap_err();
    assert_eq!((error.outcome(), error.code()), (Outcome::Refused, Code::BAD_REQUEST), "{error}");
    let ClientError::Refused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.details_json(), Some(json!({"reason": "key_reused"})));

    let sidecar = sidecar.restart();
    // The same client: its link is opened anew.
    let answer = soon(
        client.start::<_, u64>("org.example.count", &json!({"a": 2, "b": 1}), options("k")).unwrap().answer(),
    );
    let answer = answer.await.unwrap();
    assert_eq!((answer.json(), answer.is_replayed), (Some(json!(1)), true));
    // So is the agent's, and what it declared before is declared again.
    let once_served = async {
        loop {
            match client.call_typed::<_, u64>("org.example.count", &json!(0), options("l")).await {
                Err(error) if error.code() == Code::CAPABILITY_NOT_FOUND => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
    };
    assert_eq!(soon(once_served).await, Ok(2));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    drop(sidecar);
}

#[tokio::test]
async fn an_answer_to_a_key_that_was_heard_outlives_a_kill() {
    const CALLS: usize = 64;
    let calls = Arc::<AtomicUsize>::default();
    let mut sidecar = Sidecar::start();
    for round in 0..5 {
        let serving = Serving::new(&sidecar, counter(&calls), "org.example.count:1.0.0").await;
        let (heard, mut answers) = mpsc::channel(CALLS);
        let client = client_of(&sidecar).await;
        for number in 0..CALLS {
            let (client, heard, key) = (client.clone(), heard.clone(), format!("{round}.{number}"));
            tokio::spawn(async move {
                let answer = client.call_typed::<_, u64>("org.example.count", &0, options(&key)).await;
                let _ = answer.map(|count| heard.try_send((key, count)));
            });
        }
        let mut known = vec![soon(answers.recv()).await.unwrap()];
        // Nobody serves it any more, so only the record has the answers.
        sidecar = sidecar.restart_with(|setup| {
            drop(serving);
            setup
        });
        known.extend(std::iter::from_fn(|| answers.try_recv().ok()));
        let client = client_of(&sidecar).await;
        for (key, count) in known {
            let again = client.call_typed::<_, u64>("org.example.count", &0, options(&key));
            assert_eq!(soon(again).await, Ok(count), "{key}");
        }
    }
}

#[tokio::test]
async fn a_key_whose_call_may_have_run_before_a_kill_is_never_refused() {
    let (calls, permits) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
    let sidecar = Sidecar::start();
    let serving = Serving::new(&sidecar, idempotent_gated(&calls, &permits), "org.example.gated:1.0.0").await;
    let client = client_of(&sidecar).await;
    let mut made = client.start::<_, u64>("org.example.gated", &json!(1), options("k")).unwrap();
    let accepted = soon(made.event()).await;
    assert!(matches!(accepted, Some(Event::Accepted { .. })), "{accepted:?}");
    assert_eq!(soon(made.event()).await, Some(Event::Progress { pct: 1 }));
    let sidecar = sidecar.restart_with(|setup| {
        drop((made, serving, client));
        setup
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // It ran, or runs, and nobody serves it here: it is not known what it did.
    let client = client_of(&sidecar).await;
    let again = client.call_typed::<_, u64>("org.example.gated", &1, options("k"));
    let error = soon(again).await.unwrap_err();
    assert_eq!((error.outcome(), error.code()), (Outcome::Unknown, Code::INTERRUPTED), "{error}");
    let ClientError::Result(unknown) = error else { panic!("{error}") };
    let details = unknown.details_json().unwrap();
    assert_eq!((&details["final"], &details["error"]["code"]), (&json!(false), &json!(4002)), "{details}");
}

/// Counts its calls; each reports progress, and ends when there is a permit for it.
fn gated(calls: &Arc<AtomicUsize>, permits: &Arc<Semaphore>) -> Agent {
    gated_by(Capability::new("org.example.gated", "1.0.0").unwrap(), calls, permits)
}

fn idempotent_gated(calls: &Arc<AtomicUsize>, permits: &Arc<Semaphore>) -> Agent {
    gated_by(Capability::new("org.example.gated", "1.0.0").unwrap().idempotent(true), calls, permits)
}

fn gated_by(capability: Capability, calls: &Arc<AtomicUsize>, permits: &Arc<Semaphore>) -> Agent {
    let (calls, permits) = (Arc::clone(calls), Arc::clone(permits));
    let serve = move |_params: Value, call: Invocation| {
        let (count, permits) = (calls.fetch_add(1, Ordering::SeqCst) + 1, Arc::clone(&permits));
        async move {
            call.reporter.progress(1).unwrap();
            permits.acquire().await.unwrap().forget();
            Ok(count)
        }
    };
    Agent::new().capability(capability, serve).unwrap()
}

#[tokio::test]
async fn a_call_s_id_alone_gives_its_result_when_its_client_and_its_sidecar_are_gone() {
    let (calls, permits) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
    let sidecar = Sidecar::start();
    let _serving = Serving::new(&sidecar, gated(&calls, &permits), "org.example.gated:1.0.0").await;
    let maker = client_of(&sidecar).await;
    let mut made = maker.start::<_, u64>("org.example.gated", &json!(1), options("k")).unwrap();
    let id = soon(made.accepted()).await.unwrap();
    made.keep_on_drop();
    drop((made, maker));

    let client = client_of(&sidecar).await;
    let followed = || client.follow::<u64>(id);
    // Dropping a question for a call leaves the call running.
    let mut dropped = followed();
    assert_eq!(dropped.id(), Some(id));
    let accepted = Event::Accepted { call: id, capability: "org.example.gated".to_owned() };
    assert_eq!(soon(dropped.event()).await, Some(accepted));
    assert_eq!(soon(dropped.event()).await, Some(Event::Progress { pct: 1 }));
    drop(dropped);
    permits.add_permits(1);
    assert_eq!(soon(followed().result()).await, Ok(1));

    // So does the id of a call that was made over HTTP.
    permits.add_permits(1);
    let post = "POST /v1/call/org.example.gated HTTP/1.1\r\nHost: localhost\r\nPrefer: respond-async\r\n\
                Content-Type: application/json\r\nContent-Length: 1\r\nConnection: close\r\n\r\n2";
    let answer = http(&sidecar.socket, post);
    let (_, other) = answer.split_once("capd-call: ").unwrap();
    let other = other[..32].parse().unwrap();
    assert_eq!(soon(client.result::<u64>(other)).await, Ok(2));

    let sidecar = sidecar.restart();
    // What a key stands for is on disk.
    let answer = soon(followed().answer()).await.unwrap();
    assert_eq!((answer.json(), answer.is_replayed), (Some(json!(1)), true));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    drop(sidecar);
}

#[tokio::test]
async fn the_id_of_an_unknown_call_is_refused_and_an_answer_that_nobody_recorded_is_unknown() {
    let (calls, permits) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
    let sidecar = Sidecar::start();
    let _serving = Serving::new(&sidecar, gated(&calls, &permits), "org.example.gated:1.0.0").await;
    let client = client_of(&sidecar).await;
    let error = soon(client.result::<u64>(MessageId([7; 16]))).await.unwrap_err();
    assert_eq!((error.outcome(), error.code()), (Outcome::Refused, Code::BAD_REQUEST), "{error}");
    assert!(error.to_string().contains("no such call is known here"), "{error}");

    // A call over the link without a key is known by its state alone.
    let params = json!(1);
    let mut made = client.start::<_, u64>("org.example.gated", &params, CallOptions::default()).unwrap();
    let id = soon(made.accepted()).await.unwrap();
    assert!(matches!(soon(made.event()).await, Some(Event::Accepted { .. })));
    assert_eq!(soon(made.event()).await, Some(Event::Progress { pct: 1 }));
    let mut followed = client.follow::<u64>(id);
    assert!(matches!(soon(followed.event()).await, Some(Event::Accepted { call, .. }) if call == id));
    permits.add_permits(1);
    assert_eq!(soon(made.result()).await, Ok(1));
    let error = soon(followed.result()).await.unwrap_err();
    assert_eq!((error.outcome(), error.code()), (Outcome::Unknown, Code::INTERRUPTED), "{error}");
}

#[tokio::test]
async fn words_are_looked_for_in_ids_and_descriptions() {
    let sidecar = Sidecar::start();
    let capability = |name: &str| Capability::new(name, "1.0.0").unwrap();
    let echo = async |params: Value, _call: Invocation| Ok(params);
    let agent = Agent::new().capability(capability("org.example.upper").description("Makes LOUD."), echo);
    let agent = agent.unwrap().capability(capability("org.example.lower"), echo).unwrap();
    let _serving = Serving::new(&sidecar, agent, "org.example.lower:1.0.0").await;
    let client = client_of(&sidecar).await;
    let found = async |words: &str, pages_of| {
        let query =
            Query { words: Some(words.to_owned()), limit: pages_of, ..Query::new(CapabilityPattern::Any) };
        let offers = soon(client.query_all(&query)).await;
        offers.map(|offers| offers.iter().map(|offer| offer.id().name.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(found("loud", None).await.unwrap(), ["org.example.upper"]);
    assert_eq!(found("LOWER:1", None).await.unwrap(), ["org.example.lower"]);
    for (words, pages_of) in [("", None), ("EXAMPLE.", Some(1))] {
        assert_eq!(found(words, pages_of).await.unwrap(), ["org.example.lower", "org.example.upper"]);
    }
    assert_eq!(found("nothing has this", None).await.unwrap_err().code(), Code::CAPABILITY_NOT_FOUND);
}

/// An agent whose one call tells when it has begun, and when its future is dropped.
fn endless(told: &mpsc::Sender<&'static str>) -> Agent {
    struct Dropped(mpsc::Sender<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            // The test may be over.
            let _ = self.0.try_send("dropped");
        }
    }
    let told = told.clone();
    let capability = Capability::new("org.example.endless", "1.0.0").unwrap();
    let serve = move |_params: Value, call: Invocation| {
        let dropped = Dropped(told.clone());
        async move {
            call.reporter.progress(1).unwrap();
            dropped.0.try_send("begun").unwrap();
            std::future::pending::<Result<(), WireError>>().await
        }
    };
    Agent::new().capability(capability, serve).unwrap()
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_with_a_key_and_without() {
    let (told, mut hears) = mpsc::channel(8);
    let sidecar = Sidecar::start();
    let _serving = Serving::new(&sidecar, endless(&told), "org.example.endless:1.0.0").await;
    let client = client_of(&sidecar).await;
    for key in [None, Some("k".to_owned())] {
        let options = CallOptions { key, ..CallOptions::default() };
        let mut call = client.start::<_, Value>("org.example.endless", &json!(1), options).unwrap();
        assert!(matches!(soon(call.event()).await, Some(Event::Accepted { .. })));
        assert!(matches!(soon(call.event()).await, Some(Event::Progress { pct: 1 })));
        assert_eq!(soon(hears.recv()).await, Some("begun"));
        drop(call);
        assert_eq!(soon(hears.recv()).await, Some("dropped"));
    }
    // By the handle: the call has its one result.
    let mut call = client.start::<_, Value>("org.example.endless", &json!(1), options("l")).unwrap();
    assert!(soon(call.accepted()).await.is_ok());
    assert_eq!(soon(hears.recv()).await, Some("begun"));
    assert_eq!(soon(call.cancel()).await, Ok(CancelState::Cancelling));
    let error = soon(call.result()).await.unwrap_err();
    assert_eq!((error.outcome(), error.code()), (Outcome::Failed, Code::CANCELLED), "{error}");
}

#[tokio::test]
async fn a_typed_agent_refuses_what_is_no_request_of_its_own_and_tells_nothing_of_errors() {
    let sidecar = Sidecar::start();
    let typed = |name| Capability::new(name, "1.0.0").unwrap();
    let serve = async |number: u32, _call: Invocation| match number {
        0 => Err(WireError::new(Code(4711), "nothing")),
        1 => "hunter2".parse::<u32>().map_err(|_| WireError::internal("hunter2")),
        2 => panic!("hunter2"),
        number => Ok(number + 1),
    };
    let agent = Agent::new().capability(typed("org.example.next"), serve).unwrap();
    assert!(agent.handler(typed("org.example.next"), async |call: Invocation| Ok(call.params)).is_err());
    let agent = Agent::new().capability(typed("org.example.next"), serve).unwrap();
    let _serving = Serving::new(&sidecar, agent, "org.example.next:1.0.0").await;
    let client = client_of(&sidecar).await;
    let next = async |params: Value| {
        let options = CallOptions { timeout: Some(PATIENCE), ..CallOptions::default() };
        soon(client.call_typed::<_, u32>("org.example.next", &params, options)).await
    };
    assert_eq!(next(json!(7)).await, Ok(8));
    for (params, code) in [(json!(0), 4711), (json!(1), 5001), (json!(2), 5001), (json!("x"), 4004)] {
        let error = next(params).await.unwrap_err();
        assert_eq!((error.outcome(), error.code()), (Outcome::Failed, Code(code)), "{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn an_agent_whose_declaration_stays_refused_ends_with_the_reason() {
    let sidecar = Sidecar::start();
    let schema = json!({"type": "string", "format": "no-such-format"});
    let capability = Capability::new("org.example.odd", "1.0.0").unwrap().input_schema(&schema);
    let agent = Agent::new().handler(capability, async |call: Invocation| Ok(call.params)).unwrap();
    let ended = soon(agent.serve(endpoint(&sidecar), Options::default(), std::future::pending())).await;
    assert!(matches!(&ended, Err(ClientError::Refused(_))), "{ended:?}");
}

#[tokio::test]
async fn tools_are_those_of_the_http_api_and_a_choice_of_the_model_s_is_a_call() {
    let sidecar = Sidecar::start();
    let upper = Capability::new("org.example.upper", "1.0.0").unwrap().description("Upper case.");
    let upper = upper.input_schema(&json!({"type": "string"})).output_schema(&json!({"type": "string"}));
    let agent = Agent::new()
        .capability(upper, async |text: String, _call: Invocation| Ok(text.to_uppercase()))
        .unwrap();
    let _serving = Serving::new(&sidecar, agent, "org.example.upper:1.0.0").await;
    let client = client_of(&sidecar).await;
    for (format, name) in
        [(ToolFormat::OpenAi, "openai"), (ToolFormat::Anthropic, "anthropic"), (ToolFormat::Mcp, "mcp")]
    {
        let tools = soon(client.tools(format, None)).await.unwrap();
        let request =
            format!("GET /v1/tools?format={name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = http(&sidecar.socket, &request);
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(tools.json(), serde_json::from_str::<Value>(body).unwrap());
        assert_eq!(tools.tools().len(), 1);
    }
    let namespace = Some("org.example.*".parse().unwrap());
    let tools = soon(client.tools(ToolFormat::Anthropic, namespace)).await.unwrap();
    for arguments in [json!({"value": "hello"}), json!("{\"value\": \"hello\"}")] {
        let said = soon(client.call_tool(&tools, "org_example_upper", &arguments, CallOptions::default()));
        assert_eq!(said.await, Ok(json!("HELLO")));
    }
    let made_up =
        soon(client.call_tool(&tools, "org_example_lower", &json!({}), CallOptions::default())).await;
    assert_eq!(made_up.unwrap_err().code(), Code::CAPABILITY_NOT_FOUND);
    let elsewhere = client.tools(ToolFormat::Anthropic, Some("com.example.*".parse().unwrap()));
    assert_eq!(soon(elsewhere).await.unwrap().tools(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_client_and_an_agent_that_come_before_their_sidecar_wait_for_it() {
    let calls = Arc::<AtomicUsize>::default();
    let sidecar = Sidecar::start();
    let serving = Serving::new(&sidecar, counter(&calls), "org.example.count:1.0.0").await;
    let client = client_of(&sidecar).await;
    let place = endpoint(&sidecar);
    let mut sidecar = sidecar;
    sidecar.kill();
    soon(client.closed()).await;
    let short = Options { wait: std::time::Duration::from_millis(50), ..Options::default() };
    let nobody = soon(Client::connect_within(place.clone(), short)).await.unwrap_err();
    assert_eq!((nobody.outcome(), nobody.code()), (Outcome::Refused, Code::ENDPOINT_UNREACHABLE), "{nobody}");
    let params = json!(1);
    let call = client.call_typed::<_, u64>("org.example.count", &params, CallOptions::default());
    let (restarted, connected, called) = tokio::join!(
        tokio::task::spawn_blocking(move || sidecar.restart()),
        soon(Client::connect_within(place, Options::default())),
        soon(call),
    );
    // A sidecar that has just come back may not have heard yet what its agent serves: then it said so.
    let refused = called.as_ref().err().map(ClientError::code);
    assert!(called == Ok(1) || refused == Some(Code::CAPABILITY_NOT_FOUND), "{called:?}");
    listed(&connected.unwrap(), "org.example.count:1.0.0").await;
    let again = client.call_typed::<_, u64>("org.example.count", &params, CallOptions::default());
    assert_eq!(soon(again).await, Ok(1 + u64::from(refused.is_none())));
    drop((restarted, serving));
}

#[tokio::test]
async fn a_call_with_a_key_says_what_it_calls_and_a_proof_needs_a_key() {
    let calls = Arc::<AtomicUsize>::default();
    let sidecar = Sidecar::start();
    let _serving = Serving::new(&sidecar, counter(&calls), "org.example.count:1.0.0").await;
    let client = client_of(&sidecar).await;
    let outcome = async |request: CallRequest| soon(client.call(request).unwrap().outcome()).await;
    let name = || "org.example.count".parse().unwrap();
    let schema =
        Schema { sha256: "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a", json: "{}" };
    let built = BuiltAgainst { input: Some(schema), output: None };
    let version = Some("1.0.0".parse().unwrap());
    let exactly = Target::Name { name: name(), version: version.clone(), negotiate: None };
    let wanted = Negotiate { preferred: version, ..Negotiate::default() };
    let preferred = Target::Name { name: name(), version: None, negotiate: Some(wanted) };
    for (request, why) in [
        (CallRequest::new(Target::newest(name())).built_against(built), "need ext.capd-key"),
        (CallRequest::new(preferred).key("k"), "names one of"),
        (CallRequest::new(Target::newest(name())).key("k".repeat(256)), "1 to 255 bytes"),
        (CallRequest::new(Target::newest(name())).key(""), "1 to 255 bytes"),
        (CallRequest::new(Target::newest(name())).key("k").thread_id(&[0xff][..]), "UTF-8"),
    ] {
        let error = outcome(request).await.unwrap_err();
        assert_eq!((error.outcome(), error.code()), (Outcome::Refused, Code::BAD_REQUEST), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);

    // What is served has no schema, so what was built against {} must be there to be compared.
    let request = || CallRequest::new(exactly.clone()).key("l").built_against(built);
    let ClientError::Refused(unknown) = outcome(request()).await.unwrap_err() else { panic!("it is known") };
    assert_eq!(unknown.details_json(), Some(json!({"unknown_schemas": [schema.sha256]})), "{unknown}");
    let other = Schema { json: "true", ..schema };
    let refused = soon(client.put_schema(&other)).await.unwrap_err();
    assert_eq!((refused.outcome(), calls.load(Ordering::SeqCst)), (Outcome::Refused, 0), "{refused}");
    soon(client.put_schema(&schema)).await.unwrap();
    assert_eq!(outcome(request()).await.unwrap().json(), Some(json!(1)));
}
