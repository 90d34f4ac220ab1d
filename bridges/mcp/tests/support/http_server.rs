//! A scripted MCP server over HTTP, of either era, in bytes. It shares no code with the bridge.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub verb: String,
    pub path: String,
    pub head: Vec<(String, String)>,
    pub body: Value,
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// What it does with the next calls of tools.
#[derive(Clone, Debug)]
pub enum Reaction {
    /// The effect, then an answer of JSON.
    Answers,
    /// The effect, then a stream with progress and a request before the answer.
    Streams,
    /// The effect, then a stream with an id that ends before the answer; the rest is on another one.
    EndsEarly,
    /// The effect, then a stream without an id that ends before the answer.
    EndsForGood,
    /// The effect, then nothing.
    HangsUp,
    /// No effect, and this status.
    Status(u16),
    /// The session has ended.
    Forgets,
}

#[derive(Default)]
struct State {
    tools: Value,
    reactions: std::collections::VecDeque<Reaction>,
    asked: Vec<Asked>,
    effects: Vec<String>,
    sessions: u32,
    changes: u32,
    pending: Option<Value>,
}

/// The server; it listens until the test ends.
#[derive(Clone)]
pub struct HttpServer {
    pub address: String,
    is_modern: bool,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl HttpServer {
    pub fn start(tools: Value, is_modern: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = State { tools, ..State::default() };
        let server = Self { address, is_modern, state: Arc::new((Mutex::new(state), Condvar::new())) };
        let serving = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, Ok(stream)) = (serving.clone(), stream) else { return };
                std::thread::spawn(move || {
                    // A client may hang up at any moment.
                    let _ = server.serve(stream);
                });
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// What the next calls meet, before answers as usual.
    pub fn react(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.state.0.lock().unwrap().reactions.extend(reactions);
    }

    /// Lists other tools, and tells whoever listens.
    pub fn lists(&self, tools: Value) {
        let mut state = self.state.0.lock().unwrap();
        state.tools = tools;
        state.changes += 1;
        self.state.1.notify_all();
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state.0.lock().unwrap().asked.clone()
    }

    /// The posts of a method.
    pub fn posts(&self, method: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.method() == method).collect()
    }

    pub fn effects(&self) -> Vec<String> {
        self.state.0.lock().unwrap().effects.clone()
    }

    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let asked = read(&stream)?;
        self.state.0.lock().unwrap().asked.push(asked.clone());
        let id = asked.body["id"].clone();
        let is_own = asked.path == "/mcp" && asked.field("host") == Some(self.address.as_str());
        match (asked.verb.as_str(), asked.method()) {
            _ if !is_own => write(&mut stream, 404, "", &json!({})),
            ("GET", _) if asked.field("last-event-id").is_some() => self.resume(stream, &asked),
            ("GET", _) if !self.is_modern => self.tell(stream, None),
            ("POST", "subscriptions/listen") if self.is_modern => self.tell(stream, Some(&id)),
            ("POST", "server/discover") if self.is_modern => {
                let result = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {"listChanged": true}}});
                write(&mut stream, 200, "", &answer(&id, &result))
            }
            ("POST", "initialize") if !self.is_modern => {
                let session = {
                    let mut state = self.state.0.lock().unwrap();
                    state.sessions += 1;
                    format!("Mcp-Session-Id: session-{}\r\n", state.sessions)
                };
                let result = json!({"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "0"},
                    "capabilities": {"tools": {"listChanged": true}}});
                write(&mut stream, 200, &session, &answer(&id, &result))
            }
            ("POST", "tools/list") => {
                let tools = self.state.0.lock().unwrap().tools.clone();
                write(&mut stream, 200, "", &answer(&id, &json!({"tools": tools})))
            }
            ("POST", "tools/call") => self.call(stream, &asked),
            ("POST", _) if id.is_null() || asked.method().is_empty() => {
                write(&mut stream, 202, "", &json!({}))
            }
            ("DELETE", _) => write(&mut stream, 200, "", &json!({})),
            _ => {
                let error = json!({"code": -32601, "message": "no such method"});
                write(&mut stream, 400, "", &json!({"jsonrpc": "2.0", "id": id, "error": error}))
            }
        }
    }

    fn call(&self, mut stream: TcpStream, asked: &Asked) -> std::io::Result<()> {
        let (id, params) = (&asked.body["id"], &asked.body["params"]);
        let reaction = self.state.0.lock().unwrap().reactions.pop_front().unwrap_or(Reaction::Answers);
        let said = json!({"content": [{"type": "text", "text": params.to_string()}]});
        match &reaction {
            Reaction::Status(status) => {
                return write(&mut stream, *status, "Location: /other\r\n", &json!({}));
            }
            Reaction::Forgets => {
                let error = json!({"code": -32001, "message": "Session not found"});
                return write(&mut stream, 404, "", &json!({"jsonrpc": "2.0", "id": null, "error": error}));
            }
            _ => {}
        }
        self.state.0.lock().unwrap().effects.push(params["arguments"]["key"].to_string());
        match reaction {
            Reaction::Answers => write(&mut stream, 200, "", &answer(id, &said)),
            Reaction::Streams => {
                begin(&mut stream)?;
                let progress =
                    json!({"progressToken": params["_meta"]["progressToken"], "progress": 1, "total": 4});
                event(
                    &mut stream,
                    &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}),
                )?;
                event(
                    &mut stream,
                    &json!({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage"}),
                )?;
                event(&mut stream, &answer(id, &said))
            }
            Reaction::EndsEarly => {
                self.state.0.lock().unwrap().pending = Some(answer(id, &said));
                begin(&mut stream)?;
                stream.write_all(b"id: 17\nretry: 10\ndata: \n\n")
            }
            Reaction::EndsForGood => begin(&mut stream),
            Reaction::HangsUp | Reaction::Status(_) | Reaction::Forgets => Ok(()),
        }
    }

    /// The rest of a stream.
    fn resume(&self, mut stream: TcpStream, asked: &Asked) -> std::io::Result<()> {
        let pending = self.state.0.lock().unwrap().pending.take();
        let Some(pending) = pending.filter(|_| asked.field("last-event-id") == Some("17")) else {
            return write(&mut stream, 400, "", &json!({}));
        };
        begin(&mut stream)?;
        event(&mut stream, &pending)
    }

    /// Tells changes for as long as somebody listens.
    fn tell(&self, mut stream: TcpStream, subscription: Option<&Value>) -> std::io::Result<()> {
        begin(&mut stream)?;
        if subscription.is_some() {
            event(
                &mut stream,
                &json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"}),
            )?;
        }
        let mut told = 0;
        loop {
            let state = self.state.0.lock().unwrap();
            let state = self.state.1.wait_while(state, |state| state.changes == told).unwrap();
            told = state.changes;
            drop(state);
            event(&mut stream, &json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))?;
        }
    }
}

fn read(stream: &TcpStream) -> std::io::Result<Asked> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split(' ').map(str::to_owned);
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        head.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let asked = Asked { verb, path, head, body: Value::Null };
    let length = asked.field("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Asked { body: serde_json::from_slice(&body).unwrap_or(Value::Null), ..asked })
}

fn answer(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn write(stream: &mut TcpStream, status: u16, head: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} x\r\n{head}Content-Type: application/json\r\nContent-Length: {length}\r\n"
    );
    stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes())
}

fn begin(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
}

fn event(stream: &mut TcpStream, message: &Value) -> std::io::Result<()> {
    stream.write_all(format!("event: message\ndata: {message}\n\n").as_bytes())
}
