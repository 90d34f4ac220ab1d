//! The client library as two agents use it: one calls, the other serves, each beside a `capd` process of its own.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use bytes::Bytes;
use capd::client::{
    CallRequest, CancelState, Client, ClientError, Endpoint, Invocation, Options, Progress, Query, Sides,
    Target, Validated, Validator, Violation, WireError,
};
use capd_proto::capability::{CapabilityName, CapabilityPattern};
use capd_proto::code::Code;
use capd_proto::message::{Descriptor, DescriptorDraft};
use capd_proto::negotiate::Negotiate;
use serde_json::{Value, json};
use support::{PATIENCE, Setup, Sidecar};
use tokio::time::timeout;

/// Two sidecars that are peers, and a client of each.
struct World {
    caller: Client,
    provider: Client,
    _sidecars: [Sidecar; 2],
}

impl World {
    /// The provider serves `ids` with `handler`.
    async fn new(ids: &[&str], handler: impl Fn(Invocation) -> Answer + Send + Sync + 'static) -> Self {
        let far = Sidecar::start();
        let provider = client_of(&far).await;
        provider.serve(8, handler).unwrap();
        let descriptors: Vec<_> = ids.iter().map(|id| descriptor(id)).collect();
        provider.declare(&descriptors).await.unwrap();
        let near = Setup::new().peer(&far).start();
        Self { caller: client_of(&near).await, provider, _sidecars: [near, far] }
    }

    async fn outcome(&self, request: CallRequest) -> Result<Value, ClientError> {
        let handle = self.caller.call(request.timeout(PATIENCE))?;
        soon(handle.outcome()).await.map(|answer| answer.json().expect("the handlers here answer with JSON"))
    }
}

type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Bytes, WireError>> + Send>>;

async fn client_of(sidecar: &Sidecar) -> Client {
    Client::connect(Endpoint::Unix(sidecar.socket.clone()), Options::default()).await.unwrap()
}

fn descriptor(id: &str) -> Descriptor {
    DescriptorDraft { idempotent: Some(true), ..DescriptorDraft::new(id.parse().unwrap()) }.finish().unwrap()
}

fn cbor(value: &Value) -> Bytes {
    let mut bytes = Vec::new();
    capd_proto::cbor::json::from_json(value, &mut bytes);
    bytes.into()
}

/// Answers with the capability that was chosen and the params that came.
fn echo(invocation: Invocation) -> Answer {
    Box::pin(async move {
        let params = capd_proto::cbor::json::to_json(&invocation.params).unwrap();
        Ok(cbor(&json!({"served": invocation.capability.to_string(), "params": params})))
    })
}

fn call_of(id: &str) -> CallRequest {
    CallRequest::new(Target::Id(id.parse().unwrap()))
}

async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it ends")
}

#[tokio::test]
async fn a_call_crosses_both_sidecars_whatever_its_size() {
    let world = World::new(&["org.example.echo:1.0.0", "org.example.echo:1.2.0"], echo).await;
    for params in [json!(null), json!({"a": [1, -2, 1.5, "ü"]}), json!("x".repeat(3_000_000))] {
        let answer = world.outcome(call_of("org.example.echo:1.0.0").params_json(&params)).await.unwrap();
        assert_eq!(answer["served"], "org.example.echo:1.0.0");
        assert!(answer["params"] == params);
    }
    let newest = CallRequest::new(Target::newest("org.example.echo".parse().unwrap()));
    assert_eq!(world.outcome(newest).await.unwrap()["served"], "org.example.echo:1.2.0");
    let to = world.provider.did().clone();
    let answer =
        world.outcome(call_of("org.example.echo:1.2.0").to(to).thread_id(&b"thread"[..])).await.unwrap();
    assert_eq!(answer["served"], "org.example.echo:1.2.0");
    world.caller.ping(world.provider.did(), PATIENCE).await.unwrap();
    assert_ne!(world.caller.did(), world.provider.did());
}

#[tokio::test]
async fn progress_reaches_the_caller_before_the_result() {
    let handler = |invocation: Invocation| -> Answer {
        Box::pin(async move {
            invocation.reporter.processing(Some("reading"), Some(10)).unwrap();
            invocation.reporter.progress(70).unwrap();
            invocation.reporter.input_required("go on?").unwrap();
            Ok(cbor(&json!(1)))
        })
    };
    let world = World::new(&["org.example.slow:1.0.0"], handler).await;
    let mut handle = world.caller.call(call_of("org.example.slow:1.0.0").timeout(PATIENCE)).unwrap();
    let mut heard = Vec::new();
    while let Some(progress) = soon(handle.progress()).await {
        heard.push(progress);
    }
    let processing = Progress::Processing {
        status_text: Some("reading".to_owned()),
        eta_ms: Some(10),
        cancellable: Some(true),
    };
    let input = Progress::InputRequired { prompt: "go on?".to_owned() };
    assert!(heard.ends_with(&[processing, Progress::Progress { pct: 70 }, input]), "{heard:?}");
    assert_eq!(soon(handle.outcome()).await.unwrap().json(), Some(json!(1)));
}

#[tokio::test]
async fn a_cancel_travels_to_the_handler_and_ends_the_call_with_4901() {
    let (started, mut starts) = tokio::sync::mpsc::channel(1);
    let (ended, mut ends) = tokio::sync::mpsc::channel(1);
    let handler = move |invocation: Invocation| -> Answer {
        let (started, ended) = (started.clone(), ended.clone());
        Box::pin(async move {
            started.send(()).await.unwrap();
            invocation.cancelled.cancelled().await;
            ended.send(()).await.unwrap();
            Err(WireError { code: Code::CANCELLED, message: "cancelled".to_owned(), details: None })
        })
    };
    let world = World::new(&["org.example.slow:1.0.0"], handler).await;
    let handle = world.caller.call(call_of("org.example.slow:1.0.0").timeout(PATIENCE)).unwrap();
    soon(starts.recv()).await.unwrap();
    assert_eq!(soon(handle.cancel()).await, Ok(CancelState::Cancelling));
    soon(ends.recv()).await.unwrap();
    let id = handle.id();
    let Err(ClientError::Result(error)) = soon(handle.outcome()).await else { panic!("not an error result") };
    assert_eq!(error.code, Code::CANCELLED);
    assert_eq!(soon(world.caller.cancel(id)).await, Ok(CancelState::Finished));
    // A stranger to the call, the other agent, learns nothing and stops nothing.
    assert_eq!(soon(world.provider.cancel(id)).await, Ok(CancelState::Unknown));
}

#[tokio::test]
async fn an_agent_of_several_versions_learns_which_one_a_call_without_an_id_was_given_to() {
    let handler = |invocation: Invocation| -> Answer {
        Box::pin(async move { Ok(cbor(&json!(invocation.capability.to_string()))) })
    };
    let world = World::new(&["org.example.which:1.0.0", "org.example.which:2.0.0"], handler).await;
    let name: CapabilityName = "org.example.which".parse().unwrap();
    let old = Negotiate { range: Some("<2.0.0".parse().unwrap()), ..Negotiate::default() };
    let session = soon(world.caller.negotiate(&name, &old, None)).await.unwrap();
    let pinned = Target::Name { name: name.clone(), version: None, negotiate: None };
    let answer = world.outcome(CallRequest::new(pinned).session(session.id)).await.unwrap();
    assert_eq!(answer, json!("org.example.which:1.0.0"));
    let newest = world.outcome(CallRequest::new(Target::newest(name))).await.unwrap();
    assert_eq!(newest, json!("org.example.which:2.0.0"));
}

#[tokio::test]
async fn the_same_id_runs_once_and_gets_the_same_answer() {
    let runs = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counter = std::sync::Arc::clone(&runs);
    let handler = move |_: Invocation| -> Answer {
        let run = counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Box::pin(async move { Ok(cbor(&json!(run))) })
    };
    let world = World::new(&["org.example.count:1.0.0"], handler).await;
    let first = world.caller.call(call_of("org.example.count:1.0.0").timeout(PATIENCE)).unwrap();
    let id = first.id();
    assert_eq!(soon(first.outcome()).await.unwrap().json(), Some(json!(0)));
    assert_eq!(world.outcome(call_of("org.example.count:1.0.0").id(id)).await.unwrap(), json!(0));
    assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 1);
    let other = call_of("org.example.count:1.0.0").id(id).params_json(&json!("other"));
    let Err(ClientError::Refused(error)) = world.outcome(other).await else { panic!("not refused") };
    assert_eq!(error.code, Code::BAD_REQUEST);
}

#[tokio::test]
async fn a_session_pins_the_version_that_was_agreed_on() {
    let versions = ["1.0.0", "2.0.0"].map(|version| {
        format!("  - {{name: which, version: {version:?}, command: [sh, -c, 'echo \"\\\"$CAPD_CAPABILITY\\\"\"']}}\n")
    });
    let yaml = format!(
        "version: 1\nagent: agent://test\nnamespace: org.example\ncapabilities:\n{}",
        versions.concat()
    );
    let far = Setup::new().capabilities(&yaml).start();
    let near = Setup::new().peer(&far).start();
    let caller = client_of(&near).await;
    let name: CapabilityName = "org.example.which".parse().unwrap();
    // Calls wait for a peer that is still connecting; a question for a session is answered from what is known.
    let known = async { while caller.query(&Query::new(name.clone())).await.is_err() {} };
    soon(known).await;
    let in_range = |range: &str| Negotiate { range: Some(range.parse().unwrap()), ..Negotiate::default() };
    let session = soon(caller.negotiate(&name, &in_range("<2.0.0"), None)).await.unwrap();
    assert_eq!(session.agreed_version, "1.0.0".parse().unwrap());
    let target = || Target::Name { name: name.clone(), version: None, negotiate: None };
    let call = caller.call(CallRequest::new(target()).session(session.id).timeout(PATIENCE)).unwrap();
    assert_eq!(soon(call.outcome()).await.unwrap().json(), Some(json!("org.example.which:1.0.0")));
    let unpinned = caller.call(CallRequest::new(target()).timeout(PATIENCE)).unwrap();
    let Err(ClientError::Refused(error)) = soon(unpinned.outcome()).await else { panic!("not refused") };
    assert_eq!(error.code, Code::BAD_REQUEST);
    let refused = soon(caller.negotiate(&name, &in_range(">=3.0.0"), None)).await;
    let Err(ClientError::Refused(error)) = refused else { panic!("not refused") };
    assert_eq!(error.code, Code::VERSION_MISMATCH);
}

#[tokio::test]
async fn a_later_declaration_replaces_the_set_and_closing_withdraws_it() {
    let sidecar = Sidecar::start();
    let (asker, provider) = (client_of(&sidecar).await, client_of(&sidecar).await);
    provider.serve(1, echo).unwrap();
    let all = Query::new(CapabilityPattern::Any);
    for id in ["org.example.a:1.0.0", "org.example.b:1.0.0"] {
        provider.declare(&[descriptor(id)]).await.unwrap();
        let offers = asker.query_all(&all).await.unwrap();
        assert_eq!(offers.iter().map(|offer| offer.id().to_string()).collect::<Vec<_>>(), [id]);
        assert!(offers[0].is_local);
        assert_eq!(offers[0].provider.as_deref(), Some(sidecar.did.as_str()));
    }
    soon(provider.close()).await;
    // The sidecar notices the end of the other link in its own time.
    let gone = async { while asker.query_all(&all).await.is_ok() {} };
    soon(gone).await;
    let Err(ClientError::Refused(error)) = asker.query_all(&all).await else { panic!("not refused") };
    assert_eq!(error.code, Code::CAPABILITY_NOT_FOUND);
}

/// Takes an even `n`; writes a JSON Schema that says less, or none.
struct Even {
    writes_schema: bool,
}

impl Validator for Even {
    fn vendor(&self) -> &str {
        "test"
    }

    fn validate(&self, value: &Value) -> Result<(), Vec<Violation>> {
        if value["n"].as_u64().is_some_and(|n| n % 2 == 0) {
            return Ok(());
        }
        let [path, message, keyword] = ["/n", "must be even", "even"].map(str::to_owned);
        Err(vec![Violation { path, message, keyword }])
    }

    fn json_schema(&self) -> Option<Value> {
        self.writes_schema.then(|| json!({"type": "object", "required": ["n"]}))
    }
}

#[tokio::test]
async fn an_agents_own_validators_stand_before_its_handler_and_in_its_contract() {
    let sidecar = Sidecar::start();
    let provider = client_of(&sidecar).await;
    let mut validated = Validated::new(|invocation: Invocation| -> Answer {
        Box::pin(async move {
            let params = capd_proto::cbor::json::to_json(&invocation.params).unwrap();
            Ok(if params["n"] == 4 { cbor(&json!({"n": 5})) } else { invocation.params })
        })
    });
    let even = |writes_schema| -> Option<std::sync::Arc<dyn Validator>> {
        Some(std::sync::Arc::new(Even { writes_schema }))
    };
    let (bare, written) = ("org.example.bare:1.0.0", "org.example.written:1.0.0");
    let draft = |id: &str| DescriptorDraft::new(id.parse().unwrap());
    let sides = Sides { input: even(false), output: even(false) };
    let descriptors = [
        validated.capability(draft(bare), sides).unwrap(),
        validated.capability(draft(written), Sides { input: even(true), output: None }).unwrap(),
    ];
    provider.serve(8, validated).unwrap();
    provider.declare(&descriptors).await.unwrap();

    let caller = client_of(&sidecar).await;
    let outcome = async |id: &str, n: Value| {
        let handle = caller.call(call_of(id).params_json(&n).timeout(PATIENCE)).unwrap();
        soon(handle.outcome()).await
    };
    for id in [bare, written] {
        assert_eq!(outcome(id, json!({"n": 2})).await.unwrap().json().unwrap(), json!({"n": 2}));
        let Err(ClientError::Result(error)) = outcome(id, json!({"n": 3})).await else {
            panic!("{id} takes 3")
        };
        assert_eq!(
            (error.code, error.violations()[0].message.as_str()),
            (Code::SCHEMA_VIOLATION, "must be even")
        );
    }
    let Err(ClientError::Result(error)) = outcome(bare, json!({"n": 4})).await else {
        panic!("5 comes back")
    };
    assert_eq!((error.code, error.violations()[0].path.as_str()), (Code::RESULT_SCHEMA_VIOLATION, "/n"));
    // What the library can write down the sidecar enforces as well.
    let Err(ClientError::Refused(error)) = outcome(written, json!({})).await else { panic!("it needs n") };
    assert_eq!((error.code, error.violations()[0].keyword.as_str()), (Code::SCHEMA_VIOLATION, "required"));

    let vendor = Some(capd::schema::hash::Form::Vendor { vendor: "test", version: 1 });
    let text = even(true).unwrap().json_schema().unwrap().to_string();
    let document = Some(capd::schema::hash::Form::Document(text.as_bytes()));
    for (id, name, input, output) in
        [(bare, "org.example.bare", vendor, vendor), (written, "org.example.written", document, None)]
    {
        let contract = capd::schema::Contract { name, input, output, ..capd::schema::Contract::default() };
        let described = caller.describe(&id.parse().unwrap()).await.unwrap();
        let told = described[0].offer.descriptor.static_hash;
        assert_eq!(told, Some(contract.static_hash().unwrap().0), "{id}");
    }
}
