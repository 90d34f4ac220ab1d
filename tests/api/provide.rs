//! `POST /v1/provide`: an agent that opens no port, its calls, its answers and its end.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::http::{Answer, Http};
use crate::support::{Setup, Sidecar};

/// Makes a call on a thread of its own.
fn calling(sidecar: &Sidecar, path: &str, body: &Value) -> std::thread::JoinHandle<Answer> {
    let (socket, path, body) = (sidecar.socket.clone(), format!("/v1/call/{path}"), body.to_string());
    std::thread::spawn(move || Http::unix(&socket).post(&path, &body))
}

#[test]
fn an_agent_serves_calls_of_its_own_sidecar_and_of_peers() {
    let b = Sidecar::start();
    let a = Setup::new().peer(&b).start();
    let mut agent = Agent::serving(
        &b,
        &json!({"namespace": "org.example", "capabilities": [{
            "name": "greet", "version": "1.4.0", "idempotent": true, "description": "Greets.",
            "instructions": ["be kind"],
            "inputSchema": {"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}}},
            "outputSchema": {"type": "string"},
        }]}),
    );
    for sidecar in [&b, &a] {
        let call = calling(sidecar, "org.example.greet?timeout=20s", &json!({"who": "you"}));
        let given = agent.call();
        assert_eq!((&given.data["params"]["who"], &given.data["version"]), (&json!("you"), &json!("1.4.0")));
        assert_eq!(given.data["caller"], sidecar.did);
        agent.answer(&given.data["id"], &json!("hello you"));
        let answer = call.join().unwrap();
        assert_eq!((answer.status, answer.json()), (200, json!("hello you")));
        assert_eq!(answer.field("capd-capability"), Some("org.example.greet:1.4.0"));
    }
    let described = Http::unix(&a.socket).get("/v1/capabilities/org.example.greet").json();
    assert_eq!(
        (&described["description"], &described["instructions"]),
        (&json!("Greets."), &json!(["be kind"]))
    );
    // What its sidecar checks does not reach it.
    let refused = calling(&a, "org.example.greet", &json!({"who": 1})).join().unwrap();
    refused.problem(422, "refused");
    let call = calling(&a, "org.example.greet", &json!({"who": "x"}));
    let given = agent.call();
    assert_eq!(given.data["params"]["who"], "x");
    let error = json!({"error": {"code": 4711, "message": "no", "details": {"why": [1]}}});
    assert_eq!(agent.say(&given.data["id"], "result", &error).status, 204);
    let problem = call.join().unwrap().problem(500, "failed");
    assert_eq!((&problem["code"], &problem["detail"]), (&json!(4711), &json!("no")));
    assert_eq!(problem["details"]["why"], json!([1]));
}

#[test]
fn an_answer_comes_once_and_in_time() {
    let sidecar = Sidecar::start();
    let mut agent = Agent::serving_one(&sidecar, "org.example.once", false);
    let call = calling(&sidecar, "org.example.once", &json!(null));
    let id = agent.call().data["id"].clone();
    for odd in [json!({}), json!({"result": 1, "error": {}}), json!([]), json!({"error": {"code": "x"}})] {
        agent.say(&id, "result", &odd).problem(400, "refused");
    }
    for odd in [
        json!({}),
        json!({"progress_pct": 101}),
        json!({"progress_pct": 1, "eta_ms": 1}),
        json!({"status_text": "begun", "eta_ms": -1}),
        json!({"status_text": 1, "eta_ms": 1}),
    ] {
        agent.say(&id, "progress", &odd).problem(400, "refused");
    }
    // An integer is one however it is written.
    for fine in [json!({"progress_pct": 40.0}), json!({"eta_ms": 7.0, "status_text": null})] {
        assert_eq!(agent.say(&id, "progress", &fine).status, 204, "{fine}");
    }
    agent.answer(&id, &json!(1));
    assert_eq!(call.join().unwrap().json(), json!(1));
    let again = agent.say(&id, "result", &json!({"result": 2})).problem(409, "refused");
    assert_eq!(again["details"]["reason"], "answered");
    let late = calling(&sidecar, "org.example.once?timeout=1500ms", &json!(null));
    let id = agent.call().data["id"].clone();
    let cancel = agent.events.expect("cancel");
    assert_eq!((&cancel.data["id"], &cancel.data["reason"]), (&id, &json!("late")));
    assert_eq!(late.join().unwrap().problem(504, "failed")["code"], 5003);
    let answer = agent.say(&id, "result", &json!({"result": 2})).problem(409, "refused");
    assert_eq!(answer["details"]["reason"], "late");
    agent.say(&json!("0".repeat(32)), "result", &json!({"result": 2})).problem(404, "refused");
}

#[test]
fn the_end_of_a_stream_withdraws_what_it_declared() {
    let sidecar = Sidecar::start();
    let mut agent = Agent::serving_one(&sidecar, "org.example.gone", false);
    let call = calling(&sidecar, "org.example.gone?timeout=20s", &json!(null));
    let id = agent.call().data["id"].clone();
    let (session, events) = (agent.session, agent.events);
    drop(events);
    // As when a local link breaks: it is not idempotent, so nobody else runs it.
    let problem = call.join().unwrap();
    assert_eq!(problem.problem(503, "failed")["code"], 5002);
    let mut http = Http::unix(&sidecar.socket);
    http.post("/v1/call/org.example.gone", "1").problem(404, "refused");
    let path = format!("/v1/provide/{session}/calls/{}/result", id.as_str().unwrap());
    http.post(&path, "{\"result\": 1}").problem(404, "refused");
}

#[test]
fn calls_beyond_the_concurrency_wait_in_the_sidecar() {
    let sidecar = Sidecar::start();
    let declared =
        json!({"concurrency": 1, "capabilities": [{"name": "org.example.narrow", "idempotent": true}]});
    let mut agent = Agent::serving(&sidecar, &declared);
    let calls = [1, 2].map(|number| calling(&sidecar, "org.example.narrow?timeout=20s", &json!(number)));
    let first = agent.call();
    // Nothing else comes before it is answered.
    agent.say(&first.data["id"], "progress", &json!({"progress_pct": 1}));
    agent.answer(&first.data["id"], &first.data["params"]);
    let second = agent.call();
    assert_ne!(first.data["id"], second.data["id"]);
    agent.answer(&second.data["id"], &second.data["params"]);
    let mut results: Vec<_> = calls.map(|call| call.join().unwrap().json().as_u64().unwrap()).into();
    results.sort_unstable();
    assert_eq!(results, [1, 2]);
}

#[test]
fn a_declaration_with_mistakes_is_refused_with_their_place() {
    let sidecar = Sidecar::start();
    let mut http = Http::unix(&sidecar.socket);
    let mut refused = |declared: Value| {
        let problem = http.post("/v1/provide", &declared.to_string()).problem(400, "refused");
        problem["detail"].as_str().unwrap().to_owned()
    };
    for (declared, part) in [
        (json!([]), "object"),
        (json!({}), "capabilities"),
        (json!({"capabilities": []}), "at least one"),
        (json!({"capabilities": [{"name": "a.b.c", "timeoutMs": "x"}]}), "capabilities[0].timeoutMs"),
        (json!({"capabilities": [{"name": "a.b.c", "inputSchema": {"$file": "/etc/passwd"}}]}), "$file"),
        (json!({"capabilities": [{"name": "a.b.c", "command": ["cat"]}]}), "command"),
        (json!({"capabilities": [{"name": "a.b.c"}], "concurrency": 0}), "concurrency"),
        (json!({"capabilities": [{"name": "a.b.c"}], "other": 0}), "other"),
        (json!({"capabilities": [{"name": "a.b.c", "inputSchema": {"type": "nothing"}}]}), "input_schema"),
    ] {
        let told = refused(declared.clone());
        assert!(told.contains(part), "{declared}: {told}");
    }
}
