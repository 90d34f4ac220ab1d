//! What the tests of all bridges share: a sidecar, and an agent with capabilities.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use capd_client::proto::message::{DescriptorDraft, HashAlg, SchemaRef, SchemaSource};
use capd_client::{Client, Endpoint, Handler, Options};
use serde_json::Value;

/// Longest wait for anything that should come at once; only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program of the other package, which `cargo test --workspace` builds beside this one.
pub fn capd() -> PathBuf {
    if let Some(program) = std::env::var_os("CAPD_BIN") {
        return program.into();
    }
    // A test's own program is in the folder `deps` beside it.
    let program = std::env::current_exe().unwrap().parent().unwrap().with_file_name("capd");
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

/// Tries until it works.
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let pause = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if let Some(found) = attempt() {
            return found;
        }
        std::thread::sleep(pause);
    }
    panic!("not in time: {what}");
}
