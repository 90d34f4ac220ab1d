//! What the tests of the bridge share: a bridge that serves, and requests to it in bytes, which share no code with it.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod importing;
#[path = "../../../base/tests/support/sidecar.rs"]
pub mod sidecar;

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
pub use sidecar::*;

/// The URI of the extension, as clients know it.
pub const EXTENSION: &str = "urn:capd:a2a:capabilities:1";

/// A running `capd-a2a serve`; killed when dropped.
pub struct Serve {
    pub child: Child,
    pub address: String,
    /// The token that requests have.
    pub token: Option<String>,
}

impl Serve {
    /// Serves with this state folder.
    pub fn start(sidecar: &Sidecar, state: &Path, args: &[&str]) -> Self {
        Self::listening(sidecar, state, "127.0.0.1:0", args)
    }

    pub fn listening(sidecar: &Sidecar, state: &Path, listen: &str, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd-a2a"));
        command.env_clear().args(["serve", "--listen", listen, "--socket"]).arg(&sidecar.socket);
        command.arg("--state").arg(state).args(args);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("listening for A2A clients") {
            assert_ne!(log.read_line(&mut said).unwrap(), 0, "the bridge ended: {said}");
        }
        let address = said.split("address=").nth(1).unwrap().trim().trim_matches('"').to_owned();
        // It must be able to go on logging.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, address, token: None }
    }

    pub fn kill(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }

    /// A connection on which a request was sent.
    pub fn open(&self, method: &str, path: &str, head: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !head.iter().any(|(name, _)| *name == "Host") {
            text += &format!("Host: {}\r\n", self.address);
        }
        if let Some(token) = &self.token {
            text += &format!("Authorization: Bearer {token}\r\n");
        }
        head.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
        // Whoever was killed does not read.
        let _ = stream.write_all(format!("{text}\r\n{body}").as_bytes());
        stream
    }

    /// The status and the whole answer; 0 for none.
    pub fn exchange(&self, method: &str, path: &str, head: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut answer = Vec::new();
        // A bridge that is killed ends the connection in the middle.
        let _ = self.open(method, path, head, body).read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        (answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), answer)
    }

    /// An answer of JSON over the HTTP+JSON binding.
    pub fn rest(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut head = vec![VERSION];
        head.extend((!body.is_empty()).then_some(("Content-Type", "application/a2a+json")));
        let (status, answer) = self.exchange(method, path, &head, &body);
        (status, body_of(&answer))
    }

    /// The whole answer of JSON-RPC.
    pub fn rpc(&self, method: &str, params: &Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        body_of(&self.exchange("POST", "/rpc", &[VERSION, JSON], &request.to_string()).1)
    }

    /// The result of JSON-RPC.
    pub fn result(&self, method: &str, params: &Value) -> Value {
        let answer = self.rpc(method, params);
        assert!(answer["error"].is_null() && answer["id"] == 7, "{method}: {answer}");
        answer["result"].clone()
    }

    /// The code of an error of JSON-RPC.
    pub fn error(&self, method: &str, params: &Value) -> (i64, String) {
        let error = self.rpc(method, params)["error"].clone();
        let reason =
            error["data"].as_array().into_iter().flatten().find_map(|detail| detail["reason"].as_str());
        assert!(reason.is_some(), "no reason: {error}");
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    /// Sends a message and gives its task.
    pub fn send(&self, message: &str, capability: &str, params: Value) -> Value {
        self.result("SendMessage", &send(message, capability, params))["task"].clone()
    }

    /// The updates of a stream.
    pub fn stream(&self, method: &str, path: &str, body: &Value) -> Updates {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut head = vec![VERSION, ("Accept", "text/event-stream")];
        head.extend((!body.is_empty()).then_some(JSON));
        Updates(BufReader::new(self.open(method, path, &head, &body)).lines())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The updates of a stream, as they come.
pub struct Updates(Lines<BufReader<TcpStream>>);

impl Iterator for Updates {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.0.next()?.ok()?;
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

/// The params of SendMessage.
pub fn send(message: &str, capability: &str, params: Value) -> Value {
    json!({"message": {
        "messageId": message,
        "role": "ROLE_USER",
        "parts": [{"data": {"capability": capability, "params": params}}],
    }})
}

/// The body of an answer, as JSON where it is some.
pub fn body_of(answer: &str) -> Value {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or(Value::Null)
}

/// What a task says in words.
pub fn said(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

pub const VERSION: (&str, &str) = ("A2A-Version", "1.0");
pub const JSON: (&str, &str) = ("Content-Type", "application/json");
