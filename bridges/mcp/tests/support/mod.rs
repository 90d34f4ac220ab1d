//! What the tests of the bridge share: a sidecar, an agent with capabilities, an MCP client in lines, a scripted MCP server.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod importing;
pub mod scripted;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use capd_client::proto::message::{DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use capd_client::{Client, Endpoint, Handler, Options};
use serde_json::{Value, json};

/// Longest wait for anything that should come at once; only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program of the other package, which `cargo test --workspace` builds beside this one.
pub fn capd() -> PathBuf {
    if let Some(program) = std::env::var_os("CAPD_BIN") {
        return program.into();
    }
    let program = Path::new(env!("CARGO_BIN_EXE_capd-mcp")).with_file_name("capd");
    assert!(program.exists(), "{} is missing; build it first: cargo build --bin capd", program.display());
    program
}

/// A running sidecar; killed when dropped.
pub struct Sidecar {
    pub did: String,
    pub quic: String,
    pub socket: PathBuf,
    pub dir: PathBuf,
    child: Child,
    files: Option<tempfile::TempDir>,
}

impl Sidecar {
    /// A sidecar that knows nobody.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A sidecar that connects to these.
    pub fn with(peers: &[&Self]) -> Self {
        let files = tempfile::tempdir().unwrap();
        let dir = files.path().to_owned();
        let mut text = format!(
            "[agent]\ndir = {:?}\n[listen]\nquic = \"127.0.0.1:0\"\n[peer]\nadmit = \"any\"\nserves = [\"*\"]\n",
            dir.join("state")
        );
        for peer in peers {
            let address = format!("quic://{}", peer.quic);
            text +=
                &format!("[[peers]]\ndid = {:?}\naddresses = [{address:?}]\nserves = [\"*\"]\n", peer.did);
        }
        text += "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"*\"]\npermissions = [\"*\"]\n";
        std::fs::write(dir.join("capd.toml"), text).unwrap();
        Self::start_in(files, None)
    }

    fn start_in(files: tempfile::TempDir, quic: Option<&str>) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = files.path().to_owned();
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = Command::new(capd());
        command.env_clear().env("HOME", &dir).args(["run", "--announce", "--stop-with-stdin", "--config"]);
        command.arg(dir.join("capd.toml"));
        if let Some(quic) = quic {
            command.args(["--set", &format!("listen.quic={quic}")]);
        }
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = || std::fs::read_to_string(dir.join("log")).unwrap();
        let said: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("capd announced nothing\n{}", log()));
        let text = |key: &str| said[key].as_str().unwrap_or_else(|| panic!("no {key} in {said}")).to_owned();
        Self {
            did: text("did"),
            quic: text("quic"),
            socket: text("socket").into(),
            child,
            dir,
            files: Some(files),
        }
    }

    /// Ends it as if the machine had lost power.
    pub fn kill(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills it if it runs, and starts it again with the same identity, state and addresses.
    pub fn restart(mut self) -> Self {
        self.kill();
        let files = self.files.take().unwrap();
        Self::start_in(files, Some(&self.quic.clone()))
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A declaration with schemas for both sides.
pub fn declared(id: &str, input: Option<Value>, output: Option<Value>) -> DescriptorDraft {
    let schema = |schema: Option<Value>| {
        let document = schema?.to_string();
        Some(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, document.as_bytes()))))
    };
    DescriptorDraft {
        input_schema: schema(input),
        output_schema: schema(output),
        description: Some(format!("What {id} does")),
        ..DescriptorDraft::new(id.parse().unwrap())
    }
}

/// Waits for something of another thread's.
pub fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let within = async { tokio::time::timeout(PATIENCE, future).await.expect("it comes in time") };
    runtime.block_on(within)
}

/// A client of a sidecar that lives in a thread of its own; it is gone when dropped.
pub struct Agent {
    pub client: Client,
    handle: tokio::runtime::Handle,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Agent {
    /// Connects.
    pub fn connect(sidecar: &Sidecar) -> Self {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (out, connected) = mpsc::sync_channel(1);
        let endpoint = Endpoint::Unix(sidecar.socket.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let handle = runtime.handle().clone();
            runtime.block_on(async move {
                let client = Client::connect(endpoint, Options::default()).await.unwrap();
                out.send((client, handle)).unwrap();
                let _ = stopped.await;
            });
        });
        let (client, handle) = connected.recv_timeout(PATIENCE).expect("a connection");
        Self { client, handle, stop: Some(stop), thread: Some(thread) }
    }

    /// Serves these.
    pub fn serve(sidecar: &Sidecar, drafts: &[DescriptorDraft], handler: impl Handler) -> Self {
        let agent = Self::connect(sidecar);
        agent.client.serve(64, handler).unwrap();
        agent.declare(drafts);
        agent
    }

    pub fn declare(&self, drafts: &[DescriptorDraft]) {
        let descriptors: Vec<_> = drafts.iter().map(|draft| draft.finish().unwrap()).collect();
        self.run(self.client.declare(&descriptors)).unwrap();
    }

    /// Runs something of its client.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("it ends in time") })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        let _ = self.thread.take().unwrap().join();
    }
}

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
