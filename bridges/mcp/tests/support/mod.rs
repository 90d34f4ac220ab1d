//! What the tests of the bridge share: an MCP client in lines, a scripted MCP server, and what tests of all bridges share.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod http_server;
pub mod importing;
pub mod plain;
pub mod scripted;
#[path = "../../../base/tests/support/sidecar.rs"]
pub mod sidecar;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use serde_json::{Value, json};
pub use sidecar::*;

/// A client of a server on stdin and stdout, in plain lines: it shares no code with what it tests.
pub struct McpClient {
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    /// What came while something else was waited for.
    pub seen: Vec<Value>,
    next_id: u64,
    is_modern: bool,
}

impl McpClient {
    /// `capd-mcp serve` of a sidecar, before any message.
    pub fn serve(sidecar: &Sidecar, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd-mcp"));
        command
            .env_clear()
            .env("CAPD_LOG", "warn")
            .arg("serve")
            .arg("--socket")
            .arg(&sidecar.socket)
            .args(args);
        Self::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let stdin = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (out, lines) = mpsc::sync_channel(1_000);
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                let value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                if out.send(value).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines, seen: Vec::new(), next_id: 1, is_modern: false }
    }

    /// Begins a legacy session.
    pub fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "0"},
        });
        let result = self.request("initialize", params);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        result
    }

    /// Asks each request in the modern way from here on.
    pub fn modern(mut self) -> Self {
        self.is_modern = true;
        self
    }

    pub fn send(&mut self, message: &Value) {
        // Whoever was killed does not read.
        let _ = writeln!(self.stdin.as_mut().unwrap(), "{message}");
    }

    /// Sends a request; its id.
    pub fn ask(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if self.is_modern {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The answer to a request, whole.
    pub fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.seen.iter().position(|message| message["id"] == id) {
            return self.seen.remove(at);
        }
        loop {
            let message = self.lines.recv_timeout(PATIENCE).expect("an answer");
            if message["id"] == id {
                return message;
            }
            self.seen.push(message);
        }
    }

    /// The answer to a request; none when the server is gone before.
    pub fn answer_or_end(&mut self, id: u64) -> Option<Value> {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(message) if message["id"] == id => return Some(message),
                Ok(message) => self.seen.push(message),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("neither an answer nor an end"),
            }
        }
    }

    /// The next message that fits.
    pub fn wait_for(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.seen.iter().position(&fits) {
            return self.seen.remove(at);
        }
        loop {
            let message = self.lines.recv_timeout(PATIENCE).expect("a message");
            if fits(&message) {
                return message;
            }
            self.seen.push(message);
        }
    }

    /// The result of a request.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.answer(id);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    pub fn error(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.answer(id);
        assert!(answer["result"].is_null(), "{method}: {answer}");
        answer["error"].clone()
    }

    /// The result of `tools/call`.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Every tool, page by page, and how many pages there were.
    pub fn tools(&mut self) -> (Vec<Value>, usize) {
        let (mut tools, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
        loop {
            let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
            let page = self.request("tools/list", params);
            pages += 1;
            tools.extend(page["tools"].as_array().unwrap().iter().cloned());
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                return (tools, pages);
            }
        }
    }

    /// Ends the server's input, and waits for its end.
    pub fn end(mut self) -> bool {
        drop(self.stdin.take());
        self.child.wait().unwrap().success()
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

/// The text of a tool's result.
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}
