//! Export: what clients of both bindings are told, and how often a message runs. The requests are bytes: they share no code
//! with the bridge. The scenarios are those of the protocol's specification 1.0, by its section.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use capd_client::proto::code::Code;
use capd_client::proto::identity::PublicKey;
use capd_client::{Invocation, WireError, to_cbor};
use serde_json::{Value, json};
use support::{Agent, EXTENSION, JSON, Serve, Sidecar, VERSION, body_of, declared, eventually, said, send};
use tokio::sync::Notify;

/// What the agent of a test serves, and how often its capabilities ran.
struct World {
    sidecar: Sidecar,
    _agent: Agent,
    state: tempfile::TempDir,
    runs: Arc<AtomicUsize>,
    go_on: Arc<Notify>,
}

const WORDS: &str = "org.example.words:1.2.0";
const SLOW: &str = "org.example.slow:1.0.0";
const FAILS: &str = "org.example.fails:1.0.0";

impl World {
    fn start() -> Self {
        let sidecar = Sidecar::start();
        let (runs, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let shared = (Arc::clone(&runs), Arc::clone(&go_on));
        let handler = move |invocation: Invocation| {
            let (runs, go_on) = shared.clone();
            async move {
                runs.fetch_add(1, Ordering::SeqCst);
                match invocation.capability.name.as_str() {
                    "org.example.words" => {
                        let text = invocation.json()?["text"].as_str().unwrap_or_default().to_owned();
                        Ok::<Bytes, _>(to_cbor(&json!({"count": text.split_whitespace().count()})))
                    }
                    "org.example.slow" => {
                        let _ = invocation.reporter.progress(10);
                        let _ = invocation.reporter.input_required("which one?");
                        tokio::select! {
                            () = go_on.notified() => Ok(to_cbor(&json!({"done": true}))),
                            () = invocation.cancelled.cancelled() => Err(WireError::new(Code::CANCELLED, "stopped")),
                        }
                    }
                    _ => Err(WireError::new(Code::INTERNAL_ERROR, "the disk is full")),
                }
            }
        };
        let text =
            json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let count = json!({"type": "object", "properties": {"count": {"type": "integer"}}});
        let drafts = [
            declared(WORDS, Some(text), Some(count)),
            declared(SLOW, None, None),
            declared(FAILS, None, None),
        ];
        let agent = Agent::serve(&sidecar, &drafts, handler);
        Self { sidecar, _agent: agent, state: tempfile::tempdir().unwrap(), runs, go_on }
    }

    fn serve(&self, args: &[&str]) -> Serve {
        Serve::start(&self.sidecar, self.state.path(), args)
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

fn state_of(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap().trim_start_matches("TASK_STATE_")
}

fn facts(task: &Value) -> &Value {
    &task["metadata"][EXTENSION]
}

#[test]
fn the_card_tells_skills_schemas_and_the_promise_and_is_signed_by_the_bridges_own_key() {
    let world = World::start();
    let serve = world.serve(&["--namespace", "org.example", "--name", "words and more"]);
    let (status, answer) = serve.exchange("GET", "/.well-known/agent-card.json", &[], "");
    let card = body_of(&answer);
    assert_eq!((status, &card["name"]), (200, &json!("words and more")));
    let skills: Vec<_> =
        card["skills"].as_array().unwrap().iter().map(|skill| skill["id"].as_str().unwrap()).collect();
    assert_eq!(skills, [FAILS, SLOW, WORDS]);
    let bindings: Vec<_> = card["supportedInterfaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|interface| {
            (interface["protocolBinding"].as_str().unwrap(), interface["protocolVersion"].as_str().unwrap())
        })
        .collect();
    assert_eq!(bindings, [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")]);
    let extension = &card["capabilities"]["extensions"][0];
    assert_eq!(
        (&extension["uri"], &extension["params"]["agent"]),
        (&json!(EXTENSION), &json!(world.sidecar.did))
    );
    assert_eq!(extension["params"]["promise"]["key"], json!(["caller", "messageId"]));
    let input = &extension["params"]["skills"][WORDS]["input"]["schema"];
    assert_eq!(input["properties"]["text"]["type"], "string");
    // RFC 7515: the signature is over the protected header and the canonical card.
    let signature = &card["signatures"][0];
    let protected = signature["protected"].as_str().unwrap();
    use base64::Engine as _;
    let decode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).unwrap();
    let header: Value = serde_json::from_slice(&decode(protected)).unwrap();
    let did = header["kid"].as_str().unwrap();
    assert_eq!(header["alg"], "EdDSA");
    assert_ne!(did, world.sidecar.did, "the sidecar's key is not the agent's to use");
    let mut signed = card.clone();
    signed.as_object_mut().unwrap().remove("signatures");
    let payload = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .encode(serde_json_canonicalizer::to_vec(&signed).unwrap());
    let bytes = decode(signature["signature"].as_str().unwrap()).try_into().unwrap();
    // This card has no defaults, which the signature leaves out.
    PublicKey::from_did(did).unwrap().verify(format!("{protected}.{payload}").as_bytes(), &bytes).unwrap();
    drop(serve);
    let again = body_of(&world.serve(&[]).exchange("GET", "/.well-known/agent-card.json", &[], "").1);
    let kid = |card: &Value| decode(card["signatures"][0]["protected"].as_str().unwrap());
    assert_eq!(kid(&again), kid(&card), "the key is kept");
}

#[test]
fn a_message_is_one_call_and_the_same_message_never_runs_twice() {
    let world = World::start();
    let serve = world.serve(&[]);
    let task = serve.send("m-1", WORDS, json!({"text": "one two three"}));
    assert_eq!((state_of(&task), &facts(&task)["outcome"]), ("COMPLETED", &json!("executed")));
    assert_eq!(task["artifacts"][0]["parts"][0]["data"], json!({"count": 3}));
    assert_eq!(facts(&task)["capability"], WORDS);
    // Section 3.1: the other binding, the same caller, the same message.
    let (status, again) =
        serve.rest("POST", "/message:send", &send("m-1", WORDS, json!({"text": "one two three"})));
    assert_eq!((status, &again["task"]["id"]), (200, &task["id"]));
    assert_eq!(again["task"]["artifacts"], task["artifacts"]);
    assert_eq!(world.runs(), 1);
    let other = serve.send("m-1", WORDS, json!({"text": "something else"}));
    assert_eq!((state_of(&other), world.runs()), ("REJECTED", 1), "{other}");
    assert!(said(&other).starts_with("Not executed: "), "{other}");
    // A name alone is the version on the card; metadata name a skill as well; text may be JSON.
    for message in [
        json!({"messageId": "m-2", "role": "ROLE_USER", "parts": [{"data": {"capability": "org.example.words", "params": {"text": "a"}}}]}),
        json!({"messageId": "m-3", "role": "ROLE_USER", "parts": [{"data": {"text": "a"}}], "metadata": {"skillId": WORDS}}),
        json!({"messageId": "m-4", "role": "ROLE_USER", "parts": [{"data": {"text": "a"}}], "metadata": {EXTENSION: {"capability": WORDS}}}),
        json!({"messageId": "m-5", "role": "ROLE_USER", "parts": [{"text": format!("{{\"capability\": \"{WORDS}\", \"params\": {{\"text\": \"a\"}}}}")}]}),
    ] {
        let task = serve.result("SendMessage", &json!({"message": message}))["task"].clone();
        assert_eq!((state_of(&task), &facts(&task)["capability"]), ("COMPLETED", &json!(WORDS)), "{task}");
    }
}

#[test]
fn refusals_and_failures_say_what_happened() {
    let world = World::start();
    let serve = world.serve(&["--namespace", "org.example"]);
    let task = serve.send("m-1", WORDS, json!({"text": 7}));
    assert_eq!((state_of(&task), &facts(&task)["code"]), ("REJECTED", &json!(4004)), "{task}");
    assert!(said(&task).starts_with("Not executed: ") && said(&task).contains("- /text: "), "{task}");
    assert_eq!(facts(&task)["details"]["violations"][0]["path"], "/text");
    assert_eq!(serve.result("GetTask", &json!({"id": task["id"]}))["status"], task["status"]);
    assert_eq!(world.runs(), 0);
    let task = serve.send("m-2", FAILS, json!({}));
    assert_eq!(
        (state_of(&task), said(&task)),
        ("FAILED", "Executed, and it failed: the disk is full (5001 INTERNAL_ERROR).")
    );
    let task = serve.send("m-3", "org.example.nothing:1.0.0", json!({}));
    assert_eq!((state_of(&task), &facts(&task)["code"]), ("REJECTED", &json!(4002)), "{task}");
    let parts = |parts: Value| json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}});
    for (params, code, begins) in [
        (
            send("m", "com.example.other:1.0.0", json!({})),
            -32602,
            "message.parts: \"com.example.other:1.0.0\" is not offered",
        ),
        (parts(json!([{"data": {"params": {}}}])), -32602, "message.parts: no skill is named"),
        (
            parts(json!([{"data": {"capability": WORDS, "prams": {}}}])),
            -32602,
            "message.parts: \"prams\" is unknown",
        ),
        (parts(json!([])), -32602, "message.parts: there are 0 parts"),
        (parts(json!([{"text": "count these words"}])), -32005, "a text part is accepted when it is JSON"),
        (parts(json!([{"url": "https://a.example/a.txt"}])), -32005, "a file is not accepted"),
        (json!({"message": {"role": "ROLE_USER", "parts": []}}), -32602, ""),
        (
            json!({"message": {"messageId": "x".repeat(200), "role": "ROLE_USER", "parts": [{"text": "{}"}]}}),
            -32602,
            "message.messageId",
        ),
        (
            json!({"tenant": "t", "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "{}"}]}}),
            -32602,
            "tenant",
        ),
    ] {
        let (found, message) = serve.error("SendMessage", &params);
        assert_eq!(found, code, "{params}: {message}");
        assert!(message.starts_with(begins), "{params}: {message}");
    }
    assert_eq!(world.runs(), 1);
}

#[test]
fn a_stream_tells_each_state_until_the_end_and_a_second_one_joins_it() {
    let world = World::start();
    let serve = world.serve(&[]);
    let request = json!({"jsonrpc": "2.0", "id": "s", "method": "SendStreamingMessage", "params": send("m-1", SLOW, json!({}))});
    let mut updates = serve.stream("POST", "/rpc", &request);
    let first = updates.next().unwrap();
    assert_eq!(first["id"], "s");
    let task = first["result"]["task"].clone();
    let id = task["id"].as_str().unwrap().to_owned();
    // Section 3.1.6: both methods of HTTP, and JSON-RPC.
    let waits = |task: &Value| ["SUBMITTED", "WORKING", "INPUT_REQUIRED"].contains(&state_of(task));
    let mut joined = [
        serve.stream("POST", &format!("/tasks/{id}:subscribe"), &Value::Null),
        serve.stream("GET", &format!("/tasks/{id}:subscribe"), &Value::Null),
    ];
    for stream in &mut joined {
        let task = stream.next().unwrap()["task"].clone();
        assert!(task["id"] == id && waits(&task), "{task}");
    }
    // A blocking send of the same message returns where the task waits for somebody.
    let asked = serve.send("m-1", SLOW, json!({}));
    assert_eq!((&asked["id"], state_of(&asked), said(&asked)), (&json!(id), "INPUT_REQUIRED", "which one?"));
    world.go_on.notify_one();
    let rest: Vec<_> = updates.map(|update| update["result"].clone()).collect();
    let states: Vec<_> = rest.iter().filter_map(|update| update.get("statusUpdate")).map(state_of).collect();
    assert_eq!(states.last(), Some(&"COMPLETED"), "{states:?}");
    let artifact = &rest[rest.len() - 2]["artifactUpdate"];
    assert_eq!(artifact["artifact"]["parts"][0]["data"], json!({"done": true}), "{rest:?}");
    assert_eq!((&artifact["lastChunk"], &artifact["taskId"]), (&json!(true), &json!(id)));
    for stream in joined {
        let last = stream.last().unwrap();
        assert_eq!(state_of(&last["statusUpdate"]), "COMPLETED", "{last}");
    }
    assert_eq!(serve.error("SubscribeToTask", &json!({"id": id})).0, -32004, "it has ended");
    assert_eq!(world.runs(), 1);
}

#[test]
fn a_task_is_cancelled_once_and_takes_no_further_message() {
    let world = World::start();
    let serve = world.serve(&[]);
    let mut request = send("m-1", SLOW, json!({}));
    request["configuration"] = json!({"returnImmediately": true});
    let task = serve.result("SendMessage", &request)["task"].clone();
    let id = task["id"].clone();
    assert!(["SUBMITTED", "WORKING", "INPUT_REQUIRED"].contains(&state_of(&task)), "{task}");
    eventually("it runs", || (world.runs() == 1).then_some(()));
    let mut more = send("m-2", SLOW, json!({}));
    more["message"]["taskId"] = id.clone();
    assert_eq!(serve.error("SendMessage", &more).0, -32004);
    let cancelled = serve.result("CancelTask", &json!({"id": id}));
    assert_eq!(
        (state_of(&cancelled), said(&cancelled)),
        ("CANCELED", "Cancelled. It may have had effects before it was stopped.")
    );
    assert_eq!(serve.error("CancelTask", &json!({"id": id})).0, -32002);
    let (status, answer) = serve.rest("POST", &format!("/tasks/{}:cancel", id.as_str().unwrap()), &json!({}));
    assert_eq!((status, &answer["error"]["status"]), (400, &json!("FAILED_PRECONDITION")), "{answer}");
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        assert_eq!(serve.error(method, &json!({"id": "no-such-task"})).0, -32001, "{method}");
    }
    let (status, answer) = serve.rest("GET", "/tasks/no-such-task", &Value::Null);
    assert_eq!(
        (status, &answer["error"]["details"][0]["reason"]),
        (404, &json!("TASK_NOT_FOUND")),
        "{answer}"
    );
}

#[test]
fn after_a_kill_tasks_are_known_and_messages_run_no_second_time() {
    let world = World::start();
    let mut serve = world.serve(&[]);
    let done = serve.send("m-1", WORDS, json!({"text": "a b"}));
    let mut request = send("m-2", SLOW, json!({}));
    request["configuration"] = json!({"returnImmediately": true});
    let open = serve.result("SendMessage", &request)["task"]["id"].clone();
    eventually("both run", || (world.runs() == 2).then_some(()));
    serve.kill();
    let serve = world.serve(&[]);
    let again = serve.result("GetTask", &json!({"id": done["id"]}));
    assert_eq!(again["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(again["artifacts"][0]["parts"][0]["data"], json!({"count": 2}), "{again}");
    assert_eq!(again["contextId"], done["contextId"]);
    assert_eq!(serve.send("m-1", WORDS, json!({"text": "a b"}))["id"], done["id"]);
    world.go_on.notify_one();
    // The answer is the task as soon as it asks for input, or ends.
    let joined = serve.send("m-2", SLOW, json!({}));
    assert_eq!(joined["id"], open, "{joined}");
    eventually("it ends", || {
        let task = serve.result("GetTask", &json!({"id": open}));
        (task["status"]["state"] == "TASK_STATE_COMPLETED").then_some(())
    });
    let ended = serve.send("m-2", SLOW, json!({}));
    assert_eq!((&ended["id"], state_of(&ended)), (&open, "COMPLETED"), "{ended}");
    let listed = serve.result("ListTasks", &json!({}));
    let ids: Vec<_> = listed["tasks"].as_array().unwrap().iter().map(|task| task["id"].clone()).collect();
    assert_eq!((ids, &listed["totalSize"]), (vec![open, done["id"].clone()], &json!(2)));
    assert_eq!(world.runs(), 2);
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_capd-a2a"))
        .env_clear()
        .args(["serve", "--listen", "127.0.0.1:0", "--socket"])
        .arg(&world.sidecar.socket)
        .arg("--state")
        .arg(world.state.path())
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&second.stderr).contains("another capd-a2a serve uses this folder"));
    assert_eq!(second.status.code(), Some(1));
}

#[test]
fn lists_are_paged_filtered_and_of_one_caller() {
    let world = World::start();
    let callers = world.state.path().join("callers");
    std::fs::write(&callers, "ann ann-has-a-long-token\nbob bob-has-a-long-token\n").unwrap();
    let mut serve = world.serve(&["--callers-file", callers.to_str().unwrap()]);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}).to_string();
    for head in [&[VERSION, JSON][..], &[VERSION, JSON, ("Authorization", "Bearer nobody's token")]] {
        let (status, answer) = serve.exchange("POST", "/rpc", head, &list);
        assert!(
            status == 401 && answer.to_ascii_lowercase().contains("www-authenticate: bearer"),
            "{answer}"
        );
    }
    let card = body_of(&serve.exchange("GET", "/.well-known/agent-card.json", &[], "").1);
    assert_eq!(card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
    serve.token = Some("ann-has-a-long-token".to_owned());
    for number in 0..5 {
        let mut request = send(&format!("m-{number}"), WORDS, json!({"text": "a"}));
        request["message"]["contextId"] = if number % 2 == 0 { "even" } else { "odd" }.into();
        serve.result("SendMessage", &request);
    }
    let failed = serve.send("m-5", FAILS, json!({}));
    let count = |params: Value| serve.result("ListTasks", &params)["totalSize"].as_u64().unwrap();
    assert_eq!(count(json!({"contextId": "even"})), 3);
    assert_eq!(count(json!({"status": "TASK_STATE_FAILED"})), 1);
    assert_eq!(count(json!({"statusTimestampAfter": "2999-01-01T00:00:00Z"})), 0);
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/tasks?pageSize=4&includeArtifacts=true&pageToken={token}");
        let (_, page) = serve.rest("GET", &path, &Value::Null);
        seen.extend(page["tasks"].as_array().unwrap().iter().cloned());
        token = page["nextPageToken"].as_str().unwrap().to_owned();
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((seen.len(), &seen[0]["id"]), (6, &failed["id"]), "the newest first, none twice");
    assert_eq!(seen[5]["artifacts"][0]["parts"][0]["data"], json!({"count": 1}));
    assert_eq!(serve.error("ListTasks", &json!({"pageSize": 0})).0, -32602);
    assert_eq!(serve.error("ListTasks", &json!({"pageToken": "x"})).0, -32602);
    serve.token = Some("bob-has-a-long-token".to_owned());
    assert_eq!(serve.result("ListTasks", &json!({}))["totalSize"], 0);
    assert_eq!(serve.error("GetTask", &json!({"id": failed["id"]})).0, -32001);
    // Each caller has message ids of its own.
    let task = serve.send("m-5", WORDS, json!({"text": "a"}));
    assert_eq!(state_of(&task), "COMPLETED");
}

#[test]
fn only_requests_of_this_machine_and_of_version_1_0_are_let_in() {
    let world = World::start();
    let serve = world.serve(&["--url", "https://agents.example.com/a2a"]);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}).to_string();
    let status = |head: &[(&str, &str)]| serve.exchange("POST", "/rpc", head, &list).0;
    assert_eq!(status(&[VERSION, JSON]), 200);
    assert_eq!(status(&[VERSION, JSON, ("Host", "agents.example.com")]), 200, "the proxy's name");
    for host in ["evil.example", "127.0.0.1.evil.example", "agents.example.com.evil.example"] {
        assert_eq!(status(&[VERSION, JSON, ("Host", host)]), 421, "{host}");
    }
    assert_eq!(status(&[VERSION, JSON, ("Origin", "http://evil.example")]), 403);
    assert_eq!(status(&[VERSION, ("Content-Type", "text/plain")]), 415);
    assert_eq!(serve.exchange("GET", "/rpc", &[VERSION], "").0, 405);
    assert_eq!(serve.exchange("GET", "/elsewhere", &[VERSION], "").0, 404);
    // Section 3.6: a request without a version speaks 0.3.
    for (head, message) in [(&[JSON][..], "\"0.3\""), (&[JSON, ("A2A-Version", "2.0")], "\"2.0\"")] {
        let answer = body_of(&serve.exchange("POST", "/rpc", head, &list).1);
        assert_eq!(answer["error"]["code"], -32009, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(message), "{answer}");
    }
    let (status, answer) = serve.exchange("GET", "/tasks", &[], "");
    assert_eq!(
        (status, &body_of(&answer)["error"]["details"][0]["reason"]),
        (400, &json!("VERSION_NOT_SUPPORTED"))
    );
    assert_eq!(serve.exchange("GET", "/tasks?A2A-Version=1.0", &[], "").0, 200);
    for (text, code) in [("{", -32700), ("[]", -32600), (r#"{"jsonrpc":"2.0","method":"GetTask"}"#, -32600)] {
        let answer = body_of(&serve.exchange("POST", "/rpc", &[VERSION, JSON], text).1);
        assert_eq!(answer["error"]["code"], code, "{text}: {answer}");
    }
    assert_eq!(serve.error("GetTask", &json!({"id": 7})).0, -32602);
    assert_eq!(serve.error("NoSuchMethod", &json!({})).0, -32601);
    assert_eq!(serve.error("CreateTaskPushNotificationConfig", &json!({})).0, -32003);
    assert_eq!(serve.error("GetExtendedAgentCard", &json!({})).0, -32004);
    let mut push = send("m", WORDS, json!({}));
    push["configuration"] = json!({"taskPushNotificationConfig": {"url": "http://127.0.0.1:1/"}});
    assert_eq!(serve.error("SendMessage", &push).0, -32003);
    let large = format!("{{\"jsonrpc\": \"{}\"}}", "x".repeat(32 << 20));
    assert!([0, 413].contains(&serve.exchange("POST", "/rpc", &[VERSION, JSON], &large).0));
    let (_, answer) = serve.exchange("POST", "/rpc", &[VERSION, JSON, ("A2A-Extensions", EXTENSION)], &list);
    assert!(answer.to_ascii_lowercase().contains(&format!("a2a-extensions: {EXTENSION}")), "{answer}");
    let card = body_of(&serve.exchange("GET", "/.well-known/agent-card.json", &[], "").1);
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://agents.example.com/a2a/rpc");
    assert_eq!(world.runs(), 0);
}
