//! A `capd-a2a import` process, and a scripted agent to import.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capd_client::{CallRequest, ClientError, Target};
use serde_json::{Value, json};

use super::{Agent, Sidecar};

/// A running `capd-a2a import`; killed when dropped.
pub struct Import {
    pub child: Child,
    pub home: PathBuf,
}

impl Import {
    /// Imports under `com.example.remote`; lock file and log are in `home`.
    pub fn start(sidecar: &Sidecar, home: &std::path::Path, args: &[&str]) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(home.join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd-a2a"));
        command.env_clear().args(["import", "--namespace", "com.example.remote"]);
        command.arg("--socket").arg(&sidecar.socket).arg("--lock").arg(home.join("a2a.lock")).args(args);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { child, home: home.to_owned() }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("log")).unwrap_or_default()
    }

    /// `capd-a2a` with the lock file.
    pub fn command(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd-a2a"));
        command.env_clear().args(words).arg("--lock").arg(self.home.join("a2a.lock"));
        command.output().unwrap()
    }

    pub fn kill(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The newest version that a caller sees of a skill; none where nobody offers it.
pub fn offered(caller: &Agent, skill: &str) -> Option<String> {
    let name: capd_client::proto::capability::CapabilityName =
        format!("com.example.remote.{skill}").parse().unwrap();
    let offers = caller.run(caller.client.query_all(&capd_client::Query::new(name))).ok()?;
    offers.first().map(|offer| offer.id().version.to_string())
}

/// Calls a skill's newest version.
pub fn call(caller: &Agent, skill: &str, params: Value) -> Result<Value, ClientError> {
    let target = Target::newest(format!("com.example.remote.{skill}").parse().unwrap());
    let request = CallRequest::new(target).params_json(&params).timeout(Duration::from_secs(30));
    caller.run(async { caller.client.call(request)?.outcome().await }).map(|answer| answer.json().unwrap())
}

/// The code and the message of a call that failed.
pub fn failure(outcome: Result<Value, ClientError>) -> (u32, String) {
    match outcome {
        Err(ClientError::Result(error) | ClientError::Refused(error)) => (error.code.0, error.message),
        other => panic!("no error: {other:?}"),
    }
}

/// What a scripted agent does with a request.
#[derive(Clone)]
pub enum Reaction {
    /// A result.
    Result(Value),
    /// An error.
    Error(i64, &'static str),
    /// These updates, then the connection ends.
    Updates(Vec<Value>),
    /// The connection ends without an answer.
    HangUp,
}

/// What a scripted agent does with messages that no reaction is left for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It hangs up.
    HangsUp,
    /// It keeps the message's text as the effect, and answers.
    Acts,
    /// As [`Acts`](Self::Acts), and hangs up in place of the answer.
    ActsAndHangsUp,
}

/// An agent of somebody else, over JSON-RPC: a card, and a reaction for each request in turn. It shares no code with the bridge.
pub struct Scripted {
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    card: Mutex<Value>,
    reactions: Mutex<VecDeque<Reaction>>,
    asked: Mutex<Vec<Value>>,
    mode: Mutex<Mode>,
    effects: Mutex<Vec<String>>,
}

impl Scripted {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = json!({
            "name": "scripted", "description": "d", "version": "1",
            "capabilities": {"streaming": true},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "supportedInterfaces": [{"url": format!("{url}/a2a"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "skills": [{"id": "chat", "name": "Chat", "description": "Talks", "tags": ["words"]}],
        });
        let shared = Arc::new(Shared {
            card: Mutex::new(card),
            reactions: Mutex::default(),
            asked: Mutex::default(),
            mode: Mutex::new(Mode::HangsUp),
            effects: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), served) = (stream, Arc::clone(&served)) else { return };
                std::thread::spawn(move || served.serve(stream));
            }
        });
        Self { url, shared }
    }

    pub fn change_card(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.shared.card.lock().unwrap());
    }

    /// What it does next, in turn.
    pub fn reacts(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.shared.reactions.lock().unwrap().extend(reactions);
    }

    /// What it does when no reaction is left.
    pub fn set(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode;
    }

    /// How often a message with this text took effect.
    pub fn effects(&self, text: &str) -> usize {
        self.shared.effects.lock().unwrap().iter().filter(|effect| *effect == text).count()
    }

    /// The requests so far: methods and params.
    pub fn asked(&self) -> Vec<(String, Value)> {
        let asked = self.shared.asked.lock().unwrap();
        asked
            .iter()
            .map(|asked| (asked["method"].as_str().unwrap().to_owned(), asked["params"].clone()))
            .collect()
    }
}

impl Shared {
    fn act(&self, request: &Value) -> Option<Reaction> {
        let mode = *self.mode.lock().unwrap();
        let message = &request["params"]["message"];
        if mode == Mode::HangsUp || message.is_null() {
            return None;
        }
        let text = message["parts"][0]["text"].as_str().unwrap();
        self.effects.lock().unwrap().push(text.to_owned());
        let task = json!({
            "id": format!("task-{text}"), "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "parts": [{"text": text}]}],
        });
        (mode == Mode::Acts).then(|| Reaction::Updates(vec![json!({"task": task})]))
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let lower = head.to_ascii_lowercase();
        if lower.starts_with("get ") {
            let card = self.card.lock().unwrap().to_string();
            let _ = write(&mut stream, "application/json", &card);
            return;
        }
        assert!(lower.contains("a2a-version: 1.0"), "{head}");
        let length = lower.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let request: Value = serde_json::from_slice(&body).unwrap();
        self.asked.lock().unwrap().push(request.clone());
        let reaction = self.reactions.lock().unwrap().pop_front().or_else(|| self.act(&request));
        let wrapped = |result: &Value| json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        let _peer_gone = match reaction {
            Some(Reaction::Result(result)) => {
                write(&mut stream, "application/json", &wrapped(&result).to_string())
            }
            Some(Reaction::Error(code, message)) => {
                let error = json!({"code": code, "message": message});
                let answer = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
                write(&mut stream, "application/json", &answer.to_string())
            }
            Some(Reaction::Updates(updates)) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                let events: String =
                    updates.iter().map(|update| format!("data: {}\n\n", wrapped(update))).collect();
                stream.write_all(format!("{head}{events}").as_bytes())
            }
            Some(Reaction::HangUp) | None => Ok(()),
        };
    }
}

fn write(stream: &mut TcpStream, kind: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes())
}
