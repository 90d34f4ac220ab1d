//! Runs one etcd in a folder of its own, and does to it what happens to etcd: it is killed, stopped, wiped, restored.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// The programs of one version.
#[derive(Clone, Debug)]
pub struct Programs {
    pub etcd: PathBuf,
    pub etcdctl: PathBuf,
}

/// One etcd. Dropping it ends it.
pub struct Server {
    programs: Programs,
    folder: TempDir,
    process: Option<Child>,
    address: Option<SocketAddr>,
    /// What tells clusters apart; the cluster's id follows from it.
    token: String,
    arguments: Vec<String>,
    /// What `etcdctl` needs to be let in.
    pub login: Vec<String>,
    starts: u32,
}

impl Server {
    /// A fresh one that serves.
    pub async fn start(programs: &Programs, arguments: &[&str]) -> Self {
        Self::start_as(programs, arguments, Vec::new()).await
    }

    /// A fresh one whose `etcdctl` needs this to be let in.
    pub async fn start_as(programs: &Programs, arguments: &[&str], login: Vec<String>) -> Self {
        let mut server = Self {
            programs: programs.clone(),
            folder: tempfile::tempdir().unwrap(),
            process: None,
            address: None,
            token: "one".into(),
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
            login,
            starts: 0,
        };
        server.run().await;
        server
    }

    /// Where it is reached; another address after each start.
    pub fn address(&self) -> SocketAddr {
        self.address.expect("it runs")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process, while it runs.
    #[allow(dead_code, reason = "the fleet's benchmark measures it")]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Starts it, and waits until it serves.
    pub async fn run(&mut self) {
        self.starts += 1;
        let log = self.folder().join(format!("log.{}", self.starts));
        let scheme =
            if self.arguments.iter().any(|text| text.starts_with("--cert-file")) { "https" } else { "http" };
        let process = Command::new(&self.programs.etcd)
            .arg(format!("--data-dir={}", self.data().display()))
            .arg(format!("--listen-client-urls={scheme}://127.0.0.1:0"))
            .arg(format!("--advertise-client-urls={scheme}://127.0.0.1:1"))
            // Nobody else is in the cluster, so that this address is only a name.
            .args([
                "--listen-peer-urls=http://127.0.0.1:0",
                "--initial-advertise-peer-urls=http://127.0.0.1:1",
            ])
            .args(["--initial-cluster=default=http://127.0.0.1:1", "--logger=zap", "--log-level=info"])
            .arg(format!("--initial-cluster-token={}", self.token))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        self.process = Some(process);
        let begin = Instant::now();
        loop {
            let said = fs::read_to_string(&log).unwrap();
            if let Some(address) = said.lines().find_map(served) {
                self.address = Some(address);
                break;
            }
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none() && begin.elapsed() < START, "etcd does not start: {said}");
            sleep(Duration::from_millis(20)).await;
        }
        while !self.try_ctl(&["get", "nothing"]).status.success() {
            assert!(begin.elapsed() < START, "etcd does not serve");
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// As an operator stops it: what does not end in time is killed. etcd 3.6 may wait for streams that stay open.
    pub async fn stop(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        let begin = Instant::now();
        while begin.elapsed() < STOP {
            if self.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some()) {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        self.kill();
    }

    /// Lets it stand still, with its connections open; or go on.
    pub fn pause(&mut self, is_paused: bool) {
        let signal = if is_paused { rustix::process::Signal::STOP } else { rustix::process::Signal::CONT };
        self.signal(signal);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(process) = &self.process {
            let pid = rustix::process::Pid::from_child(process);
            rustix::process::kill_process(pid, signal).unwrap();
        }
    }

    /// As a power cut for the process: nothing is flushed.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended already.
            let _ = process.kill();
            process.wait().unwrap();
        }
    }

    /// Removes everything it knows. With another token it comes back as another cluster.
    pub fn wipe(&mut self, token: &str) {
        fs::remove_dir_all(self.data()).unwrap();
        self.token = token.to_owned();
    }

    /// Copies what it knows, as a backup of the folder does. It must not run.
    pub fn backup(&self) {
        copy(&self.data(), &self.folder().join("backup"));
    }

    /// Puts the backup in place. It must not run.
    pub fn restore(&self) {
        fs::remove_dir_all(self.data()).unwrap();
        copy(&self.folder().join("backup"), &self.data());
    }

    /// Runs `etcdctl`; what it says.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let done = self.try_ctl(arguments);
        assert!(done.status.success(), "etcdctl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    pub fn try_ctl(&self, arguments: &[&str]) -> Output {
        self.ctl_as(&self.login, arguments)
    }

    /// Runs `etcdctl` as somebody.
    pub fn ctl_as(&self, login: &[String], arguments: &[&str]) -> Output {
        let scheme = if login.iter().any(|text| text.starts_with("--cacert")) { "https" } else { "http" };
        Command::new(&self.programs.etcdctl)
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={scheme}://{}", self.address()))
            .args(["--command-timeout=10s", "--dial-timeout=3s"])
            .args(login)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// How many changes it has seen.
    pub fn revision(&self) -> u64 {
        let said = self.ctl(&["get", "nothing", "-w", "json"]);
        let (_, rest) = said.split_once("\"revision\":").expect("a revision");
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    fn data(&self) -> PathBuf {
        self.folder().join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.pause(false);
            self.kill();
        }
        if std::thread::panicking() {
            let mut said = String::new();
            let log = self.folder().join(format!("log.{}", self.starts));
            if fs::File::open(log).is_ok_and(|mut file| file.read_to_string(&mut said).is_ok()) {
                let from = said.len().saturating_sub(4_000);
                eprintln!("etcd said at last: {}", String::from_utf8_lossy(&said.as_bytes()[from..]));
            }
        }
    }
}

/// The address that a line of the log says is served.
fn served(line: &str) -> Option<SocketAddr> {
    let is_it = line.contains("serving client traffic");
    let (_, rest) = line.split_once("\"address\":\"").filter(|_| is_it)?;
    rest.split('"').next()?.parse().ok()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(5);
