//! `Idempotency-Key`: one key, one call, whatever is asked again.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::http::{Answer, Http};
use crate::support::{Setup, Sidecar};

fn keyed(sidecar: &Sidecar, key: &str, path: &str, body: &Value) -> Answer {
    let mut http = Http::unix(&sidecar.socket);
    http.post_with(&format!("/v1/call/{path}"), &[("Idempotency-Key", key)], &body.to_string())
}

/// The same on a thread of its own.
fn keyed_later(sidecar: &Sidecar, key: &str, path: &str, body: &Value) -> std::thread::JoinHandle<Answer> {
    let (socket, path, body) = (sidecar.socket.clone(), format!("/v1/call/{path}"), body.to_string());
    let key = key.to_owned();
    std::thread::spawn(move || Http::unix(&socket).post_with(&path, &[("Idempotency-Key", &key)], &body))
}

#[test]
fn a_key_joins_its_call_while_that_runs_and_has_its_result_after() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut agent = Agent::serving_one(&b, "org.example.pay", false);
    let params = json!({"amount": 5, "to": "x"});
    let first = keyed_later(&a, "order-17", "org.example.pay", &params);
    let given = agent.call();
    // The same params in another order are the same params.
    let second = keyed_later(&a, "order-17", "org.example.pay", &json!({"to": "x", "amount": 5}));
    let mut http = Http::unix(&a.socket);
    http.ask(
        "POST",
        "/v1/call/org.example.pay",
        &[("Idempotency-Key", "order-17"), ("Accept", "text/event-stream")],
        Some(&params.to_string()),
    );
    http.head();
    let mut events = http.events();
    assert_eq!(events.expect("accepted").data["call"], given.data["id"]);
    agent.answer(&given.data["id"], &json!("paid"));
    let answers = [first.join().unwrap(), second.join().unwrap()];
    for answer in &answers {
        assert_eq!((answer.status, answer.json()), (200, json!("paid")));
        assert_eq!(answer.field("capd-call"), given.data["id"].as_str());
    }
    assert_eq!(events.expect("result").data["result"], "paid");
    let after = keyed(&a, "order-17", "org.example.pay", &params);
    assert_eq!((after.status, after.json()), (200, json!("paid")));
    assert_eq!(after.field("capd-replayed"), Some("true"));
    assert_eq!(after.field("capd-capability"), answers[0].field("capd-capability"));
    // Another key is another call.
    let other = keyed_later(&a, "order-18", "org.example.pay", &params);
    let next = agent.call();
    assert_ne!(next.data["id"], given.data["id"]);
    agent.answer(&next.data["id"], &json!("again"));
    assert_eq!(other.join().unwrap().json(), json!("again"));
}

#[test]
fn a_key_with_other_params_sends_nothing() {
    let sidecar = Sidecar::start();
    let mut agent = Agent::serving_one(&sidecar, "org.example.pay", false);
    let first = keyed_later(&sidecar, "k", "org.example.pay", &json!(1));
    let id = agent.call().data["id"].clone();
    for (path, body) in [("org.example.pay", json!(2)), ("org.example.other", json!(1))] {
        let problem = keyed(&sidecar, "k", path, &body).problem(422, "refused");
        assert_eq!((&problem["code"], &problem["call"]), (&json!(4001), &id));
        assert_eq!(problem["details"]["reason"], "key_reused");
    }
    agent.answer(&id, &json!(1));
    assert_eq!(first.join().unwrap().status, 200);
    // The next call that comes is the next one that is made.
    let last = keyed_later(&sidecar, "l", "org.example.pay", &json!("last"));
    let given = agent.call();
    assert_eq!(given.data["params"], "last");
    agent.answer(&given.data["id"], &json!(1));
    assert_eq!(last.join().unwrap().status, 200);
    for key in ["", &"k".repeat(256)] {
        keyed(&sidecar, key, "org.example.pay", &json!(1)).problem(400, "refused");
    }
}

#[test]
fn results_and_errors_of_keys_survive_a_kill() {
    let sidecar = Sidecar::start();
    let mut agent = Agent::serving_one(&sidecar, "org.example.pay", false);
    let paid = keyed_later(&sidecar, "good", "org.example.pay", &json!(1));
    let id = agent.call().data["id"].clone();
    agent.answer(&id, &json!({"paid": 1.5}));
    paid.join().unwrap();
    let failed = keyed_later(&sidecar, "bad", "org.example.pay", &json!(2));
    let id = agent.call().data["id"].clone();
    agent.say(&id, "result", &json!({"error": {"code": 4711, "message": "no", "details": {"why": 1}}}));
    let before = failed.join().unwrap().problem(500, "failed");
    // This one is cut off.
    let cut = keyed_later(&sidecar, "cut", "org.example.pay", &json!(3));
    let cut_id = agent.call().data["id"].clone();
    drop(agent);
    drop(cut.join());
    let sidecar = sidecar.restart();
    // Nobody serves it any more, so an answer can only be what was recorded.
    let again = keyed(&sidecar, "good", "org.example.pay", &json!(1));
    assert_eq!((again.status, again.json()), (200, json!({"paid": 1.5})));
    assert_eq!(again.field("capd-replayed"), Some("true"));
    let after = keyed(&sidecar, "bad", "org.example.pay", &json!(2)).problem(500, "failed");
    assert_eq!(
        (&after["code"], &after["details"], &after["call"]),
        (&before["code"], &before["details"], &before["call"])
    );
    keyed(&sidecar, "good", "org.example.pay", &json!(9)).problem(422, "refused");
    let document = Http::unix(&sidecar.socket).get(&format!("/v1/calls/{}", cut_id.as_str().unwrap())).json();
    assert_eq!(document["state"], "finished", "{document}");
}

#[test]
fn a_key_is_any_utf_8_and_nothing_else() {
    let sidecar = crate::call::with_commands();
    let key = "Auftrag-№17-für-😀";
    assert_eq!(keyed(&sidecar, key, "org.example.echo", &json!(1)).field("capd-replayed"), None);
    let again = keyed(&sidecar, key, "org.example.echo", &json!(1));
    assert_eq!((again.status, again.field("capd-replayed")), (200, Some("true")));
    let mut http = Http::unix(&sidecar.socket);
    let fields = [("Idempotency-Key", "K")];
    let mut bytes = crate::http::request("POST", "/v1/call/org.example.echo", &fields, Some("1"));
    let at = bytes.windows(3).position(|part| part == b" K\r").unwrap();
    bytes[at + 1] = 0xfc;
    http.send(&bytes).unwrap();
    let problem = http.answer().problem(400, "refused");
    assert!(problem["detail"].as_str().unwrap().contains("not UTF-8"), "{problem}");
}

#[test]
fn a_time_to_ask_about_a_call_is_neither_none_nor_beyond_30_days() {
    let sidecar = Sidecar::start();
    for ttl in ["0ms", "999ms", "0d", "31d", "2592001s", "1"] {
        let mut http = Http::unix(&sidecar.socket);
        let fields = [("Idempotency-Key", "k"), ("Capd-Ttl", ttl)];
        let problem = http.post_with("/v1/call/org.example.late", &fields, "1").problem(400, "refused");
        assert_eq!(problem["code"], 4001, "{ttl}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains("1 second to 30 days"), "{problem}");
    }
}

#[test]
fn a_refusal_is_not_recorded() {
    let sidecar = Sidecar::start();
    keyed(&sidecar, "k", "org.example.late", &json!(1)).problem(404, "refused");
    let mut agent = Agent::serving_one(&sidecar, "org.example.late", false);
    let call = keyed_later(&sidecar, "k", "org.example.late", &json!(1));
    let id = agent.call().data["id"].clone();
    agent.answer(&id, &json!(2));
    assert_eq!(call.join().unwrap().json(), json!(2));
}
