//! Export over stdio: what a client lists, calls, and is told when a call fails.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::sync::Arc;

use bytes::Bytes;
use capd_client::proto::code::Code;
use capd_client::{Invocation, WireError, to_cbor};
use capd_proto::message::DescriptorDraft;
use serde_json::{Value, json};
use support::{Agent, McpClient, Sidecar, declared, text, wait};
use tokio::sync::Notify;

const DIV: &str = "org.example.math.div:1.2.0";

fn div() -> DescriptorDraft {
    let number = json!({"$ref": "#/definitions/number"});
    let input = json!({
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": number, "b": number},
        "additionalProperties": false,
        "definitions": {"number": {"type": "number", "maximum": 1000}},
    });
    let output =
        json!({"type": "object", "required": ["quotient"], "properties": {"quotient": {"type": "number"}}});
    DescriptorDraft { idempotent: Some(true), ..declared(DIV, Some(input), Some(output)) }
}

async fn divide(invocation: Invocation) -> Result<Bytes, WireError> {
    let params = invocation.json()?;
    let (a, b) = (params["a"].as_f64().unwrap(), params["b"].as_f64().unwrap());
    if b == 0.0 {
        return Err(WireError::new(Code::INTERNAL_ERROR, "division by zero"));
    }
    let _ = invocation.reporter.processing(Some("dividing"), None);
    let _ = invocation.reporter.progress(50);
    Ok(to_cbor(&json!({"quotient": a / b})))
}

fn begun(sidecar: &Sidecar, args: &[&str]) -> [McpClient; 2] {
    let mut legacy = McpClient::serve(sidecar, args);
    legacy.initialize();
    [legacy, McpClient::serve(sidecar, args).modern()]
}

#[test]
fn a_capability_is_a_tool_in_both_eras() {
    let sidecar = Sidecar::start();
    let _agent = Agent::serve(&sidecar, &[div()], divide);
    for mut client in begun(&sidecar, &[]) {
        let (tools, pages) = client.tools();
        assert_eq!((tools.len(), pages), (1, 1));
        let tool = &tools[0];
        assert_eq!(tool["name"], "org_example_math_div");
        assert_eq!(tool["title"], DIV);
        assert_eq!(tool["annotations"]["idempotentHint"], true);
        assert!(tool["annotations"].get("readOnlyHint").is_none(), "a hint that nobody declared");
        let a = &tool["inputSchema"]["properties"]["a"];
        assert_eq!(*a, json!({"type": "number", "maximum": 1000}), "references are inlined");
        assert_eq!(tool["outputSchema"]["required"], json!(["quotient"]));
        let result = client.request(
            "tools/call",
            json!({"name": "org_example_math_div", "arguments": {"a": 6, "b": 4}, "_meta": {"progressToken": "p"}}),
        );
        assert_eq!(result["structuredContent"], json!({"quotient": 1.5}));
        assert_eq!(text(&result), r#"{"quotient":1.5}"#);
        assert_eq!(result["isError"], false);
        assert_eq!(result["_meta"]["io.capd/outcome"], "executed");
        let reports: Vec<_> =
            client.seen.iter().filter(|said| said["method"] == "notifications/progress").collect();
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert_eq!(reports[0]["params"]["message"], "dividing");
        assert_eq!(reports[1]["params"]["progress"], 50.0);
        assert!(reports.iter().all(|said| said["params"]["progressToken"] == "p"));
        assert!(client.end());
    }
}

#[test]
fn each_era_is_answered_in_its_own_way() {
    let sidecar = Sidecar::start();
    let mut modern = McpClient::serve(&sidecar, &[]).modern();
    let found = modern.request("server/discover", json!({}));
    assert_eq!(found["supportedVersions"][0], "2026-07-28");
    assert_eq!(found["resultType"], "complete");
    assert!(found["capabilities"]["extensions"].get("io.capd/idempotency-key").is_some());
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "capd-mcp");
    let list = modern.request("tools/list", json!({}));
    assert_eq!((&list["tools"], &list["cacheScope"]), (&json!([]), &json!("private")));
    assert_eq!(modern.error("resources/list", json!({}))["code"], -32601);
    // A client that has discovered may still begin a session.
    let mut both = McpClient::serve(&sidecar, &[]);
    assert_eq!(both.error("tools/list", json!({}))["code"], -32602);
    let begun = both.initialize();
    assert_eq!(begun["protocolVersion"], "2025-11-25");
    assert_eq!(begun["capabilities"]["tools"]["listChanged"], true);
    let list = both.request("tools/list", json!({}));
    assert!(list.get("resultType").is_none(), "a legacy client is told nothing of another era");
    let old = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": "1900-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    let refused = both.error("tools/list", old);
    assert_eq!((&refused["code"], &refused["data"]["requested"]), (&json!(-32022), &json!("1900-01-01")));
}

#[test]
fn a_model_is_told_what_was_wrong_and_what_happened() {
    let sidecar = Sidecar::start();
    let agent = Agent::serve(&sidecar, &[div()], divide);
    let [mut client, _] = begun(&sidecar, &[]);
    let refused = client.call("org_example_math_div", json!({"a": 2000, "c": 1}));
    assert_eq!(refused["isError"], true);
    let said = text(&refused);
    assert!(said.starts_with("Not executed"), "{said}");
    for part in ["- /a: ", "accepted: {\"maximum\":1000,\"type\":\"number\"}", "- /b: ", "/c", "call again"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert_eq!(
        (&refused["_meta"]["io.capd/outcome"], &refused["_meta"]["io.capd/code"]),
        (&json!("refused"), &json!(4004))
    );
    let failed = client.call("org_example_math_div", json!({"a": 1, "b": 0}));
    assert!(text(&failed).starts_with("Executed, and it failed: division by zero (5001"), "{failed}");
    assert_eq!(failed["_meta"]["io.capd/outcome"], "failed");
    let misspelled = client.error("tools/call", json!({"name": "org_example_math_dvi", "arguments": {}}));
    assert_eq!(misspelled["code"], -32602);
    assert!(misspelled["message"].as_str().unwrap().contains("did you mean \"org_example_math_div\"?"));
    drop(agent);
    let gone = client.call("org_example_math_div", json!({"a": 1, "b": 1}));
    assert!(text(&gone).starts_with("Not executed"), "{gone}");
}

/// Adds one to a count for each call; waits to be let go before it answers.
struct Counter {
    count: std::sync::atomic::AtomicUsize,
    begun: Notify,
    go: tokio::sync::Semaphore,
    cancelled: Notify,
}

fn counting(sidecar: &Sidecar) -> (Arc<Counter>, Agent) {
    let counter = Arc::new(Counter {
        count: 0.into(),
        begun: Notify::new(),
        go: tokio::sync::Semaphore::new(0),
        cancelled: Notify::new(),
    });
    let shared = Arc::clone(&counter);
    let handler = move |invocation: Invocation| {
        let counter = Arc::clone(&shared);
        async move {
            let count = counter.count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            counter.begun.notify_one();
            tokio::select! {
                () = invocation.cancelled.cancelled() => {
                    counter.cancelled.notify_one();
                    return Err(WireError::new(Code::CANCELLED, "cancelled"));
                }
                permit = counter.go.acquire() => permit.unwrap().forget(),
            }
            Ok(to_cbor(&json!({"count": count})))
        }
    };
    let agent = Agent::serve(sidecar, &[declared("org.example.count:1.0.0", None, None)], handler);
    (counter, agent)
}

#[test]
fn a_key_runs_once_however_often_it_is_sent() {
    let sidecar = Sidecar::start();
    let (counter, _agent) = counting(&sidecar);
    counter.go.add_permits(100);
    let [mut client, _] = begun(&sidecar, &[]);
    let keyed = |key: &str, arguments: Value| json!({"name": "org_example_count", "arguments": arguments, "_meta": {"io.capd/idempotency-key": key}});
    for _ in 0..3 {
        let result = client.request("tools/call", keyed("k1", json!({"x": 1})));
        assert_eq!(result["structuredContent"], json!({"count": 1}));
    }
    let other = client.request("tools/call", keyed("k1", json!({"x": 2})));
    assert!(text(&other).starts_with("Not executed") && text(&other).contains("dempotency"), "{other}");
    let second = client.request("tools/call", keyed("k2", json!({"x": 1})));
    assert_eq!(second["structuredContent"], json!({"count": 2}));
}

#[test]
fn a_cancelled_request_stops_the_provider_and_is_not_answered() {
    let sidecar = Sidecar::start();
    let (counter, _agent) = counting(&sidecar);
    let [mut client, _] = begun(&sidecar, &[]);
    let id = client.ask("tools/call", json!({"name": "org_example_count", "arguments": {}}));
    wait(counter.begun.notified());
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    client.send(&cancel);
    wait(counter.cancelled.notified());
    client.request("ping", json!({}));
    assert!(client.seen.iter().all(|said| said["id"] != id), "{:?}", client.seen);
}

#[test]
fn many_capabilities_come_in_pages_of_stable_order_and_new_ones_are_announced() {
    let sidecar = Sidecar::start();
    let long = "x".repeat(60);
    let many = |count: usize| -> Vec<_> {
        let ids = (0..count).map(|number| format!("org.example.n{number}.{long}:1.0.0"));
        ids.map(|id| declared(&id, None, None)).collect()
    };
    let agent = Agent::serve(&sidecar, &many(300), divide);
    let [mut client, mut modern] = begun(&sidecar, &["--namespace", "org.example.*"]);
    let (tools, pages) = client.tools();
    assert_eq!((tools.len(), pages), (300, 3));
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.is_sorted() && names.iter().all(|name| name.len() == 64));
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 300);
    assert_eq!(modern.tools().0, tools);
    assert_eq!(client.error("tools/list", json!({"cursor": "?"}))["code"], -32602);
    let listening = modern.ask("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let first = modern.wait_for(|said| said["method"] == "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({"toolsListChanged": true}));
    agent.declare(&many(301));
    client.wait_for(|said| said["method"] == "notifications/tools/list_changed");
    let told = modern.wait_for(|said| said["method"] == "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listening);
    assert_eq!(client.tools().0.len(), 301);
}

#[test]
fn two_tools_stand_in_for_many() {
    let sidecar = Sidecar::start();
    let mut drafts: Vec<_> =
        (0..40).map(|number| declared(&format!("org.example.n{number}:1.0.0"), None, None)).collect();
    drafts.push(div());
    let _agent = Agent::serve(&sidecar, &drafts, divide);
    let [mut client, _] = begun(&sidecar, &["--search"]);
    let names: Vec<_> = client.tools().0.iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["find_capability", "call_capability"]);
    let found = client.call("find_capability", json!({"query": "math", "limit": 3}));
    assert_eq!(found["structuredContent"]["capabilities"][0]["name"], "org_example_math_div");
    assert_eq!(
        (&found["structuredContent"]["matches"], &found["structuredContent"]["of"]),
        (&json!(1), &json!(41))
    );
    let arguments = json!({"name": "org_example_math_div", "arguments": {"a": 6, "b": 4}});
    let called = client.call("call_capability", arguments);
    assert_eq!(called["structuredContent"], json!({"quotient": 1.5}));
    for (tool, arguments) in [
        ("find_capability", json!({})),
        ("find_capability", json!({"query": "x", "limit": 0})),
        ("call_capability", json!({"name": "org_example_nothing"})),
        ("call_capability", json!({"arguments": {}})),
    ] {
        let refused = client.call(tool, arguments);
        assert!(refused["isError"] == true && text(&refused).starts_with("Not executed"), "{refused}");
    }
}

#[test]
fn a_pin_chooses_a_version_and_the_newest_release_is_chosen_without() {
    let sidecar = Sidecar::start();
    let drafts = ["1.0.0", "1.1.0", "2.0.0-rc.1"].map(|version| {
        let output = json!({"type": "object", "properties": {"version": {"const": version}}});
        declared(&format!("org.example.pinned:{version}"), None, Some(output))
    });
    let deprecated = DescriptorDraft { deprecated: true, ..declared("org.example.pinned:1.2.0", None, None) };
    let drafts: Vec<_> = drafts.into_iter().chain([deprecated]).collect();
    let handler = async |invocation: Invocation| {
        Ok::<_, WireError>(to_cbor(&json!({"version": invocation.capability.version.to_string()})))
    };
    let _agent = Agent::serve(&sidecar, &drafts, handler);
    for (args, version) in [(&[][..], "1.1.0"), (&["--pin", "org.example.pinned:1.0.0"][..], "1.0.0")] {
        let [mut client, _] = begun(&sidecar, args);
        let (tools, _) = client.tools();
        assert_eq!(tools.len(), 1);
        assert_eq!(tools[0]["title"], format!("org.example.pinned:{version}"));
        assert_eq!(
            client.call("org_example_pinned", json!({}))["structuredContent"],
            json!({"version": version})
        );
    }
}

#[test]
fn a_call_whose_sidecar_dies_is_asked_about_until_it_is_back() {
    let sidecar = Sidecar::start();
    let (counter, agent) = counting(&sidecar);
    let [mut client, _] = begun(&sidecar, &[]);
    let id = client.ask("tools/call", json!({"name": "org_example_count", "arguments": {}}));
    wait(counter.begun.notified());
    drop(agent);
    let sidecar = sidecar.restart();
    let answer = client.answer(id);
    let said = text(&answer["result"]);
    assert!(said.starts_with("Unknown whether it was executed"), "{said}");
    assert!(said.contains("Do not repeat"), "{said}");
    assert_eq!(answer["result"]["_meta"]["io.capd/outcome"], "unknown");
    assert_eq!(counter.count.load(std::sync::atomic::Ordering::SeqCst), 1);
    drop(sidecar);
}

#[test]
fn nonsense_is_refused_and_the_next_message_answered() {
    let sidecar = Sidecar::start();
    let mut client = McpClient::serve(&sidecar, &[]);
    client.initialize();
    client.send(&json!([1]));
    assert_eq!(client.wait_for(|said| said["id"].is_null())["error"]["code"], -32600);
    client.send(&json!({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": []}));
    assert_eq!(client.answer(99)["error"]["code"], -32600);
    assert_eq!(client.error("tools/call", json!({"name": 1}))["code"], -32602);
    assert_eq!(client.error("tools/call", json!({"name": "a", "arguments": [1]}))["code"], -32602);
    client.request("ping", json!({}));
}
