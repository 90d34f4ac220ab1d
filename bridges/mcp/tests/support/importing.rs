//! A scripted server in a folder, imported by a `capd-mcp import` process.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use capd_client::{CallRequest, ClientError, Target};
use serde_json::{Value, json};

#[allow(unused_imports, reason = "each test binary uses its part")]
pub use super::eventually;
use super::{Agent, Sidecar, scripted};

/// The folder of a server, and its lock file outside of it.
pub struct Script {
    pub folder: tempfile::TempDir,
    pub home: tempfile::TempDir,
}

impl Script {
    pub fn new(tools: &Value, era: &str) -> Self {
        let script = Self { folder: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() };
        script.set("era", era);
        script.lists(tools);
        script
    }

    pub fn set(&self, name: &str, text: &str) {
        let (path, temporary) = (self.folder.path().join(name), self.folder.path().join("new"));
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, path).unwrap();
    }

    pub fn lists(&self, tools: &Value) {
        self.set("tools.json", &tools.to_string());
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    pub fn lock(&self) -> PathBuf {
        self.home.path().join("mcp.lock")
    }

    pub fn lock_text(&self) -> String {
        std::fs::read_to_string(self.lock()).unwrap()
    }

    /// Starts the bridge; its log is in the home folder.
    pub fn import(&self, sidecar: &Sidecar, permissions: &str) -> Bridge {
        let mut command = self.bridge(sidecar);
        command.env(scripted::FOLDER, self.folder.path()).args(["--allow-root", "--env", scripted::FOLDER]);
        if !permissions.is_empty() {
            command.args(["--permissions", permissions]);
        }
        command.arg("--").args(scripted::command("scripted_server"));
        Bridge { child: command.spawn().unwrap() }
    }

    /// Starts the bridge to a server at a URL.
    pub fn import_url(&self, sidecar: &Sidecar, url: &str, words: &[&str]) -> Bridge {
        let mut command = self.bridge(sidecar);
        Bridge { child: command.args(["--url", url]).args(words).spawn().unwrap() }
    }

    fn bridge(&self, sidecar: &Sidecar) -> Command {
        let log =
            std::fs::File::options().create(true).append(true).open(self.home.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd-mcp"));
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(self.folder.path());
        command.args(["import", "--namespace", "com.example.tools", "--socket"]).arg(&sidecar.socket);
        command.arg("--lock").arg(self.lock());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    /// `capd-mcp` with the lock file.
    pub fn command(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd-mcp"));
        command.env_clear().args(words).arg("--lock").arg(self.lock());
        command.output().unwrap()
    }
}

/// A running `capd-mcp import`; killed when dropped.
pub struct Bridge {
    pub child: Child,
}

impl Bridge {
    /// Asks it to stop, and waits for that.
    pub fn stop(&mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    pub fn kill(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The newest version and the description that a caller sees of a tool; none where nobody offers it.
pub fn offered(caller: &Agent, tool: &str) -> Option<(String, String)> {
    let query = capd_client::Query::new(
        format!("com.example.tools.{tool}")
            .parse::<capd_client::proto::capability::CapabilityName>()
            .unwrap(),
    );
    let offers = caller.run(caller.client.query_all(&query)).ok()?;
    let offer = offers.first()?;
    Some((offer.id().version.to_string(), offer.descriptor.description.clone().unwrap_or_default()))
}

/// Calls a tool's newest version.
pub fn call(caller: &Agent, tool: &str, params: Value) -> Result<Value, ClientError> {
    let target = Target::newest(format!("com.example.tools.{tool}").parse().unwrap());
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

/// A tool that takes anything.
pub fn tool(name: &str) -> Value {
    json!({"name": name, "description": format!("What {name} does"), "inputSchema": {"type": "object"}})
}
