//! Import over HTTP: how a server at a URL is asked, and what becomes of calls when it fails.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::net::TcpListener;
use std::process::Command;

use capd_client::{CallRequest, Progress, Target};
use serde_json::{Value, json};
use support::http_server::{HttpServer, Reaction};
use support::importing::{Script, call, eventually, failure, offered, tool};
use support::{Agent, Sidecar};

fn annotated() -> Value {
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    let mut tool = tool("annotated");
    tool["inputSchema"] = json!({"type": "object", "properties": {"region": region}});
    tool
}

#[test]
fn servers_of_both_eras_are_asked_as_their_revisions_say() {
    for is_modern in [false, true] {
        let sidecar = Sidecar::start();
        let server = HttpServer::start(json!([tool("append"), annotated()]), is_modern);
        let script = Script::new(&json!([]), "");
        script.set("token", "sesame\n");
        let token = script.folder.path().join("token");
        let mut bridge =
            script.import_url(&sidecar, &server.url(), &["--token-file", token.to_str().unwrap()]);
        let caller = Agent::connect(&sidecar);
        eventually("the tools are offered", || offered(&caller, "annotated"));
        assert!(call(&caller, "append", json!({"key": "a"})).is_ok());
        assert!(call(&caller, "annotated", json!({"region": "é"})).is_ok());
        let calls = server.posts("tools/call");
        let (version, session) =
            if is_modern { ("2026-07-28", None) } else { ("2025-11-25", Some("session-1")) };
        for call in &calls {
            assert_eq!(call.field("mcp-protocol-version"), Some(version), "{call:?}");
            assert_eq!(call.field("mcp-session-id"), session, "{call:?}");
            assert_eq!(call.field("mcp-method"), Some("tools/call"), "{call:?}");
            let meta = &call.body["params"]["_meta"];
            assert_eq!(meta["io.modelcontextprotocol/protocolVersion"].is_string(), is_modern, "{call:?}");
            assert!(meta["io.capd/call"].is_string(), "{call:?}");
        }
        assert_eq!(calls[0].field("mcp-name"), Some("append"));
        assert_eq!(calls[1].field("mcp-param-region"), Some("=?base64?w6k=?="));
        assert!(
            server.asked().iter().all(|asked| asked.field("authorization") == Some("Bearer sesame")),
            "{:?}",
            server.asked()
        );
        server.lists(json!([tool("append"), tool("later")]));
        eventually("the change is known", || script.lock_text().contains("\"later\"").then_some(()));
        if !is_modern {
            bridge.stop();
            let ended = server.asked().into_iter().find(|asked| asked.verb == "DELETE");
            assert_eq!(ended.unwrap().field("mcp-session-id"), Some("session-1"), "the session is ended");
        }
    }
}

#[test]
fn a_call_is_posted_once_whatever_its_answer_meets() {
    for is_modern in [false, true] {
        let sidecar = Sidecar::start();
        let server = HttpServer::start(json!([tool("append")]), is_modern);
        let script = Script::new(&json!([]), "");
        let _bridge = script.import_url(&sidecar, &server.url(), &[]);
        let caller = Agent::connect(&sidecar);
        eventually("the tool is offered", || offered(&caller, "append"));
        server.react([Reaction::Streams, Reaction::EndsEarly]);
        assert!(call(&caller, "append", json!({"key": "streamed"})).is_ok());
        let refused = server.asked().into_iter().find(|asked| asked.body["id"] == "s1").unwrap();
        assert_eq!(refused.body["error"]["code"], -32601, "no model answers here: {refused:?}");
        assert!(
            call(&caller, "append", json!({"key": "resumed"})).is_ok(),
            "the rest of the stream is asked for"
        );
        for reaction in [Reaction::EndsForGood, Reaction::HangsUp, Reaction::Status(502)] {
            let about = format!("{reaction:?}");
            server.react([reaction]);
            let (code, message) = failure(call(&caller, "append", json!({"key": about})));
            assert_eq!(code, 5902, "{about}: {message}");
            assert!(message.contains("unknown"), "{about}: {message}");
        }
        for status in [307, 401, 429] {
            server.react([Reaction::Status(status)]);
            let (code, message) = failure(call(&caller, "append", json!({"key": "refused"})));
            assert_eq!(code, 5002, "{status}: {message}");
            assert!(message.contains(&status.to_string()), "{status}: {message}");
        }
        let effects = ["\"streamed\"", "\"resumed\"", "\"EndsForGood\"", "\"HangsUp\""];
        assert_eq!(server.effects(), effects, "each ran once, and those that were refused not at all");
        assert_eq!(server.posts("tools/call").len(), 8);
        assert!(server.asked().iter().all(|asked| asked.path == "/mcp"), "redirects are not followed");
        assert!(call(&caller, "append", json!({"key": "after"})).is_ok());
    }
}

#[test]
fn a_session_that_the_server_forgot_begins_anew_and_the_call_runs_once() {
    let sidecar = Sidecar::start();
    let server = HttpServer::start(json!([tool("append")]), false);
    let script = Script::new(&json!([]), "");
    let _bridge = script.import_url(&sidecar, &server.url(), &[]);
    let caller = Agent::connect(&sidecar);
    eventually("the tool is offered", || offered(&caller, "append"));
    server.react([Reaction::Forgets]);
    assert!(call(&caller, "append", json!({"key": "a"})).is_ok());
    let sessions: Vec<_> = server
        .posts("tools/call")
        .iter()
        .map(|call| call.field("mcp-session-id").unwrap().to_owned())
        .collect();
    assert_eq!(sessions, ["session-1", "session-2"]);
    assert_eq!(server.effects(), ["\"a\""]);
}

#[test]
fn progress_passes_through_over_http() {
    let sidecar = Sidecar::start();
    let server = HttpServer::start(json!([tool("append")]), true);
    let script = Script::new(&json!([]), "");
    let _bridge = script.import_url(&sidecar, &server.url(), &[]);
    let caller = Agent::connect(&sidecar);
    eventually("the tool is offered", || offered(&caller, "append"));
    server.react([Reaction::Streams]);
    let said = caller.run(async {
        let target = Target::newest("com.example.tools.append".parse().unwrap());
        let mut handle =
            caller.client.call(CallRequest::new(target).params_json(&json!({"key": "a"}))).unwrap();
        let mut said = Vec::new();
        while let Some(progress) = handle.progress().await {
            said.push(progress);
        }
        handle.outcome().await.unwrap();
        said
    });
    assert!(said.contains(&Progress::Progress { pct: 25 }), "{said:?}");
}

#[test]
fn no_reference_is_fetched_and_no_tool_with_unfit_headers_is_offered() {
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let place = format!("http://{}/schema.json", canary.local_addr().unwrap());
    let with = |name: &str, property: Value| json!({"name": name, "inputSchema": {"type": "object", "properties": {"a": property}}});
    let tools = json!([
        with("refers", json!({"$ref": place})),
        json!({"name": "returns", "inputSchema": {"type": "object"}, "outputSchema": {"$ref": place}}),
        json!({"name": "based", "inputSchema": {"type": "object", "$id": place, "$schema": place}}),
        with("dynamic", json!({"$dynamicRef": place})),
        with("number", json!({"type": "number", "x-mcp-header": "Score"})),
        tool("good"),
    ]);
    for is_modern in [false, true] {
        let sidecar = Sidecar::start();
        let server = HttpServer::start(tools.clone(), is_modern);
        let script = Script::new(&json!([]), "");
        let _bridge = script.import_url(&sidecar, &server.url(), &[]);
        let caller = Agent::connect(&sidecar);
        eventually("the good tool is offered", || offered(&caller, "good"));
        assert!(call(&caller, "good", json!({})).is_ok());
        for unfit in ["refers", "returns", "based", "dynamic", "number"] {
            assert_eq!(offered(&caller, unfit), None, "{unfit}");
            let quarantined = format!("tool \\\"{unfit}\\\" is quarantined");
            assert!(script.log().contains(&quarantined), "{}", script.log());
        }
    }
    assert_eq!(
        canary.accept().map(drop).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock,
        "nobody fetched it"
    );
}

#[test]
fn a_server_that_is_away_is_asked_again() {
    let sidecar = Sidecar::start();
    let script = Script::new(&json!([]), "");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _bridge = script.import_url(&sidecar, &format!("http://{free}/mcp"), &[]);
    eventually("it is asked again", || {
        (script.log().matches("the server cannot be reached").count() >= 2).then_some(())
    });
    assert!(!script.lock().exists());
}

#[test]
fn a_token_never_comes_from_the_command_line_nor_leaves_unencrypted() {
    let refused = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd-mcp"));
        command.env_clear().env("CAPD_REMOTE_TOKEN", "sesame").args(["import", "--namespace", "a.b"]);
        let done = command.args(["--socket", "/nonexistent"]).args(words).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let (code, said) = refused(&["--url", "http://tools.example/mcp"]);
    assert!(code == Some(2) && said.contains("unencrypted"), "{said}");
    let (code, said) = refused(&["--url", "https://me:sesame@tools.example/mcp"]);
    assert!(code == Some(2) && said.contains("tokens come from a file"), "{said}");
    let (code, said) = refused(&["--url", "https://tools.example", "--token", "sesame"]);
    assert!(code == Some(2) && said.contains("unexpected argument '--token'"), "{said}");
    let (code, said) = refused(&["--url", "https://tools.example", "--", "server"]);
    assert!(code == Some(2) && said.contains("cannot be used with"), "{said}");
    let (code, said) = refused(&[]);
    assert!(code == Some(2) && said.contains("required"), "{said}");
}
