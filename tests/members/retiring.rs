//! `capctl drain --retire`: a member goes for good once no caller may ask it for a result any more.

use std::time::{Duration, Instant};

use capd::client::{CallRequest, Client, ClientError, Endpoint, Options, Target};
use serde_json::Value;

use crate::cell::{Cell, call, declaring, slow, until};
use crate::support::{Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

/// A provider of `org.example.once`, which may run only once and is quick, and of what [`slow`] declares.
fn provider(cell: &Cell, seed: u8) -> Setup {
    let once = "  - name: once\n    command: [printf, '{\"who\": \"once\"}']\n";
    cell.member(seed, &["org.example.*"]).capabilities(&format!("{}{once}", slow()))
}

/// What `capctl drain --retire` says, and its exit code.
fn retire(sidecar: &Sidecar, timeout: &str) -> (i32, Value, String) {
    let args = ["drain", "--retire", "--json", "--timeout", timeout];
    let output = run_with(capctl(Some(&sidecar.socket)).args(args), b"");
    let said = serde_json::from_str(stdout(&output)).unwrap_or(Value::Null);
    (exit_code(&output), said, stderr(&output).to_owned())
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn client_of(sidecar: &Sidecar) -> Client {
    Client::connect(Endpoint::Unix(sidecar.socket.clone()), Options::default()).await.unwrap()
}

fn request(name: &str) -> CallRequest {
    CallRequest::new(Target::newest(name.parse().unwrap())).params_json(&serde_json::json!({}))
}

/// Has a caller make a call, and kills its sidecar while the provider runs it.
fn left_in_flight(caller: &mut Sidecar, provider: &Sidecar, request: CallRequest) {
    block_on(async {
        let client = client_of(caller).await;
        let call = client.call(request).unwrap();
        let socket = provider.socket.clone();
        let runs = move || {
            let listed = run_with(capctl(Some(&socket)).args(["calls", "--json"]), b"");
            stdout(&listed).contains("org.example.slow")
        };
        tokio::task::spawn_blocking(move || until("the slow call runs", runs)).await.unwrap();
        caller.kill();
        drop(call);
    });
}

#[test]
fn a_member_that_ran_nothing_is_retired_at_once_and_leaves_the_registry() {
    let cell = Cell::in_file();
    let provider = provider(&cell, 1).start();
    Cell::until_registered(&provider, true);
    let (code, said, error) = retire(&provider, "20s");
    assert_eq!(code, 0, "{error}");
    assert_eq!((&said["retired"], &said["remembered"]), (&Value::from(true), &Value::from(0)));
    Cell::until_registered(&provider, false);
}

#[test]
fn a_member_is_retired_once_its_caller_has_the_result() {
    let cell = Cell::in_file();
    let (provider, caller) = (provider(&cell, 1).start(), cell.member(10, &[]).start());
    until("the provider is found", || call(&caller, "org.example.once").is_ok());
    // Its caller would be remembered for more than a minute.
    let (code, said, error) = retire(&provider, "20s");
    assert_eq!(code, 0, "{said} {error}");
    assert_eq!(said["retired"], true);
    let error = call(&caller, "org.example.once").unwrap_err();
    assert!(error.contains("2002") || error.contains("4002") || error.contains("5002"), "{error}");
}

#[test]
fn a_member_is_retired_once_a_call_in_flight_has_ended_and_callers_prefer_others_meanwhile() {
    let cell = Cell::in_file();
    let one = provider(&cell, 1).start();
    let caller = cell.member(10, &[]).start();
    until("the provider is found", || call(&caller, "org.example.quick").is_ok());
    std::thread::scope(|scope| {
        let called = scope.spawn(|| call(&caller, "org.example.slow"));
        Cell::until_executing(&one);
        let (code, said, error) = retire(&one, "100ms");
        assert_eq!(code, 5, "{error}");
        assert_eq!((&said["executing"], &said["remembered"]), (&Value::from(1), &Value::from(1)));
        let why = ["fleet", "why", "org.example.quick", "--json"];
        until("the registry says that it drains", || {
            stdout(&run_with(capctl(Some(&caller.socket)).args(why), b"")).contains("\"draining\"")
        });
        let two = cell.member(2, &["org.example.*"]).capabilities(&declaring("two", &["quick"])).start();
        until("the other is found", || call(&caller, "org.example.quick").is_ok_and(|of| of["who"] == "two"));
        let (code, said, error) = retire(&one, "30s");
        assert_eq!(code, 0, "{said} {error}");
        assert_eq!(called.join().unwrap().unwrap()["who"], "slow");
        drop(two);
    });
}

#[test]
fn a_result_that_nobody_fetched_is_kept_until_the_time_of_its_call_is_over() {
    let cell = Cell::in_file();
    let (provider, mut caller) = (provider(&cell, 1).start(), cell.member(10, &[]).start());
    until("the provider is found", || call(&caller, "org.example.quick").is_ok());
    let begin = Instant::now();
    let ttl = Duration::from_secs(9);
    left_in_flight(&mut caller, &provider, request("org.example.slow").ttl(ttl));
    let (code, said, error) = retire(&provider, "5s");
    assert_eq!(code, 5, "{said} {error}");
    assert_eq!((&said["executing"], &said["remembered"]), (&Value::from(0), &Value::from(1)));
    assert!(said["until"].is_string() && said["retired"] == false, "{said}");
    let args = ["drain", "--retire", "--timeout", "1ms"];
    let told = run_with(capctl(Some(&provider.socket)).args(args), b"");
    assert!(stderr(&told).contains("1 whose results were not fetched, remembered until 2"), "{told:?}");
    let (code, said, error) = retire(&provider, "30s");
    assert_eq!(code, 0, "{said} {error}");
    assert!(begin.elapsed() >= ttl, "after {:?}", begin.elapsed());
}

#[test]
fn a_caller_that_comes_back_fetches_its_result_from_a_member_that_is_to_retire() {
    let cell = Cell::in_file();
    let (provider, mut caller) = (provider(&cell, 1).start(), cell.member(10, &[]).start());
    until("the provider is found", || call(&caller, "org.example.quick").is_ok());
    // Without `limits.ledger_ttl_max_ms` it would be remembered for a day.
    let keyed = || request("org.example.slow").timeout(Duration::from_secs(20)).key("k");
    left_in_flight(&mut caller, &provider, keyed());
    let (code, said, error) = retire(&provider, "4s");
    assert_eq!((code, &said["remembered"]), (5, &Value::from(1)), "{error}");
    let caller = caller.restart();
    let answer = block_on(async { client_of(&caller).await.call(keyed()).unwrap().outcome().await });
    assert_eq!(answer.unwrap().json().unwrap()["who"], "slow");
    let (code, said, error) = retire(&provider, "20s");
    assert_eq!(code, 0, "{said} {error}");
}

#[test]
fn a_call_that_would_be_remembered_for_longer_than_a_member_may_take_to_retire_is_refused() {
    let cell = Cell::in_file();
    let provider = provider(&cell, 1).set("limits.ledger_ttl_max_ms", "120000").start();
    let caller = cell.member(10, &[]).start();
    until("the provider is found", || call(&caller, "org.example.quick").is_ok());
    block_on(async {
        let client = client_of(&caller).await;
        let outcome = async |name: &str, seconds| {
            client.call(request(name).ttl(Duration::from_secs(seconds))).unwrap().outcome().await
        };
        let Err(ClientError::Refused(error)) = outcome("org.example.once", 121).await else {
            panic!("it is not refused")
        };
        assert_eq!(error.code.0, 1003);
        assert!(error.message.contains("limits.ledger_ttl_max_ms"), "{error}");
        assert!(outcome("org.example.once", 120).await.is_ok());
        // What may run again is not remembered for anybody.
        assert!(outcome("org.example.quick", 121).await.is_ok());
    });
    provider.refused("limits.ledger_ttl_max_ms", 1);
}
