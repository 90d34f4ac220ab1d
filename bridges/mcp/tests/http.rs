//! Export over HTTP: who is let in, and how requests are answered. The requests are bytes: they share no code with the bridge.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use capd_client::proto::code::Code;
use capd_client::{Invocation, WireError, to_cbor};
use serde_json::{Value, json};
use support::{Agent, PATIENCE, Sidecar, declared, wait};
use tokio::sync::Notify;

struct Http {
    child: Child,
    address: String,
}

impl Http {
    fn start(sidecar: &Sidecar) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd-mcp"));
        command.env_clear().arg("serve").arg("--socket").arg(&sidecar.socket).args(["--http", "127.0.0.1:0"]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        // It must be able to go on logging.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, address }
    }

    /// A connection on which a request was sent.
    fn open(&self, method: &str, head: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text =
            format!("{method} /mcp HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !head.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.address);
        }
        head.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        stream.write_all(format!("{text}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn exchange(&self, method: &str, head: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut answer = String::new();
        self.open(method, head, body).read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    fn post(&self, head: &[(&str, &str)], body: &Value) -> (u16, Value) {
        let head: Vec<_> = [JSON].iter().chain(head).copied().collect();
        let (status, answer) = self.exchange("POST", &head, &body.to_string());
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn modern(method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

#[test]
fn only_requests_of_this_machine_are_let_in() {
    let sidecar = Sidecar::start();
    let http = Http::start(&sidecar);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let status = |method: &str, head: &[(&str, &str)], body: &str| http.exchange(method, head, body).0;
    assert_eq!(status("POST", &[JSON], &list), 200);
    assert_eq!(status("POST", &[JSON, ("Origin", "http://localhost:3000")], &list), 200);
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::2]"] {
        assert_eq!(status("POST", &[JSON, ("Host", host)], &list), 421, "{host}");
    }
    for origin in
        ["http://evil.example", "null", "http://localhost.evil.example", "http://evil.example#localhost"]
    {
        assert_eq!(status("POST", &[JSON, ("Origin", origin)], &list), 403, "{origin}");
    }
    assert_eq!(status("POST", &[("Content-Type", "text/plain")], &list), 415);
    assert_eq!(status("GET", &[], ""), 405);
    assert_eq!(status("DELETE", &[], ""), 405);
    assert_eq!(status("POST", &[JSON], "{"), 400);
    let elsewhere = Command::new(env!("CARGO_BIN_EXE_capd-mcp"))
        .args(["serve", "--http", "0.0.0.0:0", "--socket"])
        .arg(&sidecar.socket)
        .output()
        .unwrap();
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(String::from_utf8(elsewhere.stderr).unwrap().contains("no loopback address"));
}

#[test]
fn headers_that_say_otherwise_than_the_body_are_refused() {
    let sidecar = Sidecar::start();
    let http = Http::start(&sidecar);
    let list = modern("tools/list", json!({}));
    let version = ("MCP-Protocol-Version", "2026-07-28");
    let method = ("Mcp-Method", "tools/list");
    assert_eq!(http.post(&[version, method], &list).0, 200);
    for head in [
        &[method][..],
        &[version],
        &[version, ("Mcp-Method", "tools/call")],
        &[("MCP-Protocol-Version", "2025-11-25"), method],
    ] {
        let (status, answer) = http.post(head, &list);
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32020)), "{head:?}: {answer}");
    }
    let call = modern("tools/call", json!({"name": "straße", "arguments": {}}));
    let named = |name| [version, ("Mcp-Method", "tools/call"), ("Mcp-Name", name)];
    assert_eq!(http.post(&named("strasse"), &call).1["error"]["code"], -32020);
    assert_eq!(
        http.post(&named("=?base64?c3RyYcOfZQ==?="), &call).1["error"]["code"],
        -32602,
        "an unknown tool"
    );
    let (status, answer) =
        http.post(&[version, ("Mcp-Method", "nothing/here")], &modern("nothing/here", json!({})));
    assert_eq!((status, &answer["error"]["code"]), (404, &json!(-32601)));
    let (status, answer) = http.post(
        &[("MCP-Protocol-Version", "1900-01-01")],
        &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
    );
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32022)));
}

#[test]
fn progress_comes_as_events_and_a_modern_client_cancels_by_hanging_up() {
    let sidecar = Sidecar::start();
    let (begun, cancelled) = (std::sync::Arc::new(Notify::new()), std::sync::Arc::new(Notify::new()));
    let shared = (begun.clone(), cancelled.clone());
    let handler = move |invocation: Invocation| {
        let (begun, cancelled) = shared.clone();
        async move {
            let _ = invocation.reporter.progress(10);
            if invocation.json()?["wait"] == true {
                begun.notify_one();
                invocation.cancelled.cancelled().await;
                cancelled.notify_one();
                return Err(WireError::new(Code::CANCELLED, "cancelled"));
            }
            Ok::<Bytes, _>(to_cbor(&json!({"done": true})))
        }
    };
    let _agent = Agent::serve(&sidecar, &[declared("org.example.work:1.0.0", None, None)], handler);
    let http = Http::start(&sidecar);
    let head = [
        JSON,
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "org_example_work"),
    ];
    let call = |wait: bool| {
        let meta = json!({"progressToken": 7});
        modern("tools/call", json!({"name": "org_example_work", "arguments": {"wait": wait}, "_meta": meta}))
            .to_string()
    };
    let (status, answer) = http.exchange("POST", &head, &call(false));
    assert_eq!(status, 200);
    assert!(answer.contains("text/event-stream"), "{answer}");
    let events: Vec<Value> = answer
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(events[0]["params"]["progressToken"], 7);
    assert_eq!(events[1]["result"]["structuredContent"], json!({"done": true}));
    let stream = http.open("POST", &head, &call(true));
    wait(begun.notified());
    drop(stream);
    wait(cancelled.notified());
}
