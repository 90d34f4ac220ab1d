//! A [`Setup`] in, a running `capd` process out.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::PATIENCE;

/// What a sidecar is started with. By default it listens everywhere on ports that the system hands out, admits any
/// peer, and lets every peer call and serve everything.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    capabilities: Option<String>,
    files: Vec<(String, String)>,
    modes: Vec<(String, u32)>,
    links: Vec<(String, String)>,
    peers: Vec<(String, Vec<String>, Vec<String>)>,
    overrides: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    allow: Option<String>,
    is_at_home: bool,
    meets_file_limits: bool,
    through: Vec<String>,
    pipes_log: bool,
    has_own_level: bool,
    flags: Vec<String>,
}

impl Setup {
    pub fn new() -> Self {
        Self::default()
    }

    /// The text of its `capabilities.yaml`.
    pub fn capabilities(mut self, yaml: &str) -> Self {
        self.capabilities = Some(yaml.to_owned());
        self
    }

    /// A file in its directory, beside `capabilities.yaml`.
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// The mode of a file of [`Setup::file`].
    pub fn mode(mut self, name: &str, mode: u32) -> Self {
        self.modes.push((name.to_owned(), mode));
        self
    }

    /// A symbolic link in its directory, beside `capabilities.yaml`.
    pub fn link(mut self, name: &str, target: &str) -> Self {
        self.links.push((name.to_owned(), target.to_owned()));
        self
    }

    /// A peer that it connects to over QUIC.
    pub fn peer(self, peer: &Sidecar) -> Self {
        let address = format!("quic://{}", peer.quic.expect("the peer listens on QUIC"));
        self.peer_at(&peer.did, &[&address])
    }

    /// A peer that it connects to over TCP with TLS.
    pub fn peer_over_tcp(self, peer: &Sidecar) -> Self {
        let address = format!("tcp://{}", peer.tcp.expect("the peer listens on TCP"));
        self.peer_at(&peer.did, &[&address])
    }

    /// A peer at these addresses, which may serve everything; with none it is only let in.
    pub fn peer_at(self, did: &str, addresses: &[&str]) -> Self {
        self.peer_serving(did, addresses, &["*"])
    }

    /// A peer at these addresses, which may serve these names and namespaces.
    pub fn peer_serving(mut self, did: &str, addresses: &[&str], serves: &[&str]) -> Self {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        self.peers.push((did.to_owned(), texts(addresses), texts(serves)));
        self
    }

    /// One configuration key, over what the defaults of the tests say.
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.overrides.retain(|(known, _)| known != key);
        self.overrides.push((key.to_owned(), value.to_owned()));
        self
    }

    /// A variable of its environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// What peers may call, as tables of its configuration, in place of everything.
    pub fn allow(mut self, tables: &str) -> Self {
        self.allow = Some(tables.to_owned());
        self
    }

    /// Leaves its state directory to itself: it has its directory as HOME.
    pub fn at_home(mut self) -> Self {
        self.is_at_home = true;
        self
    }

    /// Lets writes past a limit of file sizes fail instead of ending the process, for [`Sidecar::fill_disk`].
    pub fn meets_file_limits(mut self) -> Self {
        self.meets_file_limits = true;
        self
    }

    /// Has it log to a pipe that nobody reads, until [`Sidecar::take_log`].
    pub fn pipes_log(mut self) -> Self {
        self.pipes_log = true;
        self
    }

    /// Logs at the level that its configuration says.
    pub fn logs_as_its_file_says(mut self) -> Self {
        self.has_own_level = true;
        self
    }

    /// A flag of `capd run`.
    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.to_owned());
        self
    }

    /// Starts it through another program, which becomes it.
    pub fn through(mut self, words: &[&str]) -> Self {
        self.through = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Starts the sidecar and waits until it listens.
    pub fn start(self) -> Sidecar {
        let dir = tempfile::tempdir().unwrap();
        Sidecar::start_in(dir, self)
    }

    /// What it says instead of starting.
    pub fn refused_to_start(self) -> String {
        let dir = tempfile::tempdir().unwrap();
        let mut child = command(dir.path(), &self).spawn().unwrap();
        match announcement(&mut child, dir.path()) {
            Ok(announcement) => {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("it starts: {announcement}");
            }
            Err(log) => log,
        }
    }

    fn write(&self, dir: &Path) -> PathBuf {
        // Whatever the mask is, a sidecar must find its files out of the reach of others.
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut text = "[agent]\n".to_owned();
        if !self.is_at_home {
            text += &format!("dir = {:?}\n", dir.join("state"));
        }
        if let Some(capabilities) = &self.capabilities {
            std::fs::write(dir.join("capabilities.yaml"), capabilities).unwrap();
            text += &format!("capabilities = {:?}\n", dir.join("capabilities.yaml"));
        }
        for (name, content) in &self.files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        for (name, mode) in &self.modes {
            std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(*mode)).unwrap();
        }
        for (name, target) in &self.links {
            // After a restart it is there.
            let _ = std::os::unix::fs::symlink(target, dir.join(name));
        }
        text += "[listen]\nquic = \"127.0.0.1:0\"\ntcp = \"127.0.0.1:0\"\nlocal_tcp = \"127.0.0.1:0\"\n";
        // Raw links of the tests show the token; tests/attacks proves it.
        text += "token_plain = \"on\"\n";
        text += "[peer]\nadmit = \"any\"\nserves = [\"*\"]\n";
        for (did, addresses, serves) in &self.peers {
            text += &format!("[[peers]]\ndid = {did:?}\naddresses = {addresses:?}\nserves = {serves:?}\n");
        }
        text += self.allow.as_deref().unwrap_or(ALLOW_ALL);
        let path = dir.join("capd.toml");
        std::fs::write(&path, text).unwrap();
        path
    }
}

/// What a sidecar of the tests lets peers call, unless it is told otherwise.
pub const ALLOW_ALL: &str = "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"*\"]\npermissions = [\"*\"]\n";

/// A running `capd`; killed when dropped.
#[derive(Debug)]
pub struct Sidecar {
    pub did: String,
    pub quic: Option<SocketAddr>,
    pub tcp: Option<SocketAddr>,
    pub local_tcp: Option<SocketAddr>,
    pub socket: PathBuf,
    /// Its configuration, declaration, state and log.
    pub dir: PathBuf,
    /// The line that it announced itself with.
    pub announcement: Value,
    setup: Setup,
    child: Child,
    stdin: Option<ChildStdin>,
    files: Option<tempfile::TempDir>,
}

impl Sidecar {
    /// A sidecar that nobody told anything.
    pub fn start() -> Self {
        Setup::new().start()
    }

    fn start_in(files: tempfile::TempDir, setup: Setup) -> Self {
        let dir = files.path().to_owned();
        let deadline = Instant::now() + PATIENCE;
        let (mut child, announcement) = loop {
            let mut child = command(&dir, &setup).spawn().unwrap();
            match announcement(&mut child, &dir) {
                Ok(announcement) => break (child, announcement),
                // While it was away, the system gave its port to another test, which will be done with it.
                Err(log) if log.trim_end().ends_with(IN_USE) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(100));
                }
                Err(log) => panic!("capd announced nothing\n{log}"),
            }
        };
        let address = |key: &str| announcement[key].as_str().map(|text| text.parse().unwrap());
        let text = |key: &str| announcement[key].as_str().unwrap_or_else(|| panic!("no {key}")).to_owned();
        Self {
            did: text("did"),
            quic: address("quic"),
            tcp: address("tcp"),
            local_tcp: address("local_tcp"),
            socket: text("socket").into(),
            stdin: child.stdin.take(),
            files: Some(files),
            announcement,
            setup,
            child,
            dir,
        }
    }

    /// The process, for signals.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets its files grow no more, as on a disk that is full; its log among them.
    pub fn fill_disk(&self) {
        self.limit_files(Some(0));
    }

    /// Undoes [`Sidecar::fill_disk`].
    pub fn free_disk(&self) {
        self.limit_files(None);
    }

    fn limit_files(&self, bytes: Option<u64>) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed());
        let limit = rustix::process::Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limit).unwrap();
    }

    /// Memory that the process made itself and that is resident, in KiB. Pages of the program file do not count: which
    /// of them were touched says nothing about what calls or an attack took.
    pub fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line =
            status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells RssAnon");
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Ends it as if the machine had lost power.
    pub fn kill(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it, so that it neither works nor ends, and its sockets stay.
    pub fn stop(&self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }

    /// Has it go on where [`Sidecar::stop`] stopped it.
    pub fn go_on(&self) {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    }

    /// Sends SIGTERM and waits for its end.
    pub fn terminate(&mut self) -> ExitStatus {
        let pid = rustix::process::Pid::from_raw(self.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "capd did not end\n{}", self.log());
            std::thread::yield_now();
        }
    }

    /// Kills it if it runs, and starts it again with the same identity, state and addresses.
    pub fn restart(self) -> Self {
        self.restart_with(|setup| setup)
    }

    /// The same with a setup that has changed.
    pub fn restart_with(mut self, change: impl FnOnce(Setup) -> Setup) -> Self {
        self.kill();
        let setup = change(self.at_its_addresses());
        let files = self.files.take().expect("only restart takes the directory");
        Self::start_in(files, setup)
    }

    /// Kills it if it runs, starts it again as [`Sidecar::restart`] does, and kills it `after` so long, whether it
    /// listens by then or not.
    pub fn start_and_kill(&mut self, after: Duration) {
        self.kill();
        let setup = self.at_its_addresses();
        let mut command = command(&self.dir, &setup);
        self.child = command.stdout(Stdio::null()).spawn().unwrap();
        self.stdin = self.child.stdin.take();
        std::thread::sleep(after);
        self.kill();
    }

    fn at_its_addresses(&self) -> Setup {
        let addresses =
            [("listen.quic", self.quic), ("listen.tcp", self.tcp), ("listen.local_tcp", self.local_tcp)];
        let known = addresses.into_iter().filter_map(|(key, address)| Some((key, address?)));
        known.fold(self.setup.clone(), |setup, (key, address)| setup.set(key, &address.to_string()))
    }

    /// Its audit log, where it is unless it is told otherwise.
    pub fn audit_file(&self) -> PathBuf {
        self.dir.join("state/audit.db")
    }

    /// The audit records that are written.
    pub fn audit(&self) -> Vec<Value> {
        use capd::store::audit::{AuditFile, AuditStorage as _};
        let mut file = AuditFile::read(&self.audit_file()).unwrap();
        let entries = file.read(0, 100_000, usize::MAX).unwrap();
        let records = entries.iter().filter_map(|entry| entry.record.as_deref());
        records.map(|record| serde_json::from_str(record).unwrap()).collect()
    }

    /// The audit records of a kind, once there are `count` of them.
    #[track_caller]
    pub fn audited(&self, kind: &str, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut records = self.audit();
            records.retain(|record| record["kind"] == kind);
            if records.len() >= count {
                return records;
            }
            assert!(Instant::now() < deadline, "not {count} records of {kind}: {:?}", self.audit());
            std::thread::yield_now();
        }
    }

    /// The audit record of a kind about the call or message of this id, once it is there.
    #[track_caller]
    pub fn audited_about(&self, kind: &str, id: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let records = self.audit();
            let is_it = |record: &&Value| record["kind"] == kind && record["correlationId"] == id;
            if let Some(record) = records.iter().find(is_it) {
                return record.clone();
            }
            assert!(Instant::now() < deadline, "no record of {kind} about {id}: {records:?}");
            std::thread::yield_now();
        }
    }

    /// The value of a metric's sample, as `capctl metrics` prints it.
    #[track_caller]
    pub fn metric(&self, sample: &str) -> u64 {
        let output = super::run_with(super::capctl(Some(&self.socket)).arg("metrics"), b"");
        let text = super::stdout(&output);
        let mut values = text.lines().filter_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        let value = values.next().unwrap_or_else(|| panic!("no {sample}: {text}{}", super::stderr(&output)));
        value.parse().unwrap()
    }

    /// Waits until the limit of this key has refused `count` times.
    #[track_caller]
    pub fn refused(&self, key: &str, count: u64) {
        let sample = format!("capd_limit_refusals_total{{limit=\"{key}\"}}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let refused = self.metric(&sample);
            if refused == count {
                return;
            }
            assert!(refused < count && Instant::now() < deadline, "{key}: {refused} of {count}");
            std::thread::yield_now();
        }
    }

    /// Waits until the limit of this key has refused `count` times, or more often.
    #[track_caller]
    pub fn refused_at_least(&self, key: &str, count: u64) {
        let sample = format!("capd_limit_refusals_total{{limit=\"{key}\"}}");
        let deadline = Instant::now() + PATIENCE;
        while self.metric(&sample) < count {
            assert!(Instant::now() < deadline, "{key}: {} of {count}", self.metric(&sample));
            std::thread::yield_now();
        }
    }

    /// The pipe that it logs to.
    pub fn take_log(&mut self) -> ChildStderr {
        self.child.stderr.take().expect("its log is a pipe, and taken once")
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("capd.log")).unwrap_or_default()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- log of {}\n{}", self.did, self.log());
        }
    }
}

/// The command that runs a sidecar in `dir`, its configuration written.
fn command(dir: &Path, setup: &Setup) -> Command {
    let config = setup.write(dir);
    let log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("capd.log")).unwrap();
    let mut command = if setup.meets_file_limits {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_capd")]);
        shell
    } else if let [program, words @ ..] = &setup.through[..] {
        let mut through = Command::new(program);
        through.args(words).arg(env!("CARGO_BIN_EXE_capd"));
        through
    } else {
        Command::new(env!("CARGO_BIN_EXE_capd"))
    };
    let log = if setup.pipes_log { Stdio::piped() } else { log.into() };
    command.env_clear().current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    for name in ["PATH", "HOME", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if !setup.pipes_log {
        // What it has logged stands in the file once it answers.
        command.env("TEST_HOOK_LOG_IN_STEP", "on");
    }
    command.envs(setup.environment.iter().map(|(name, value)| (name, value)));
    if setup.is_at_home {
        command.env("HOME", dir);
    }
    command.args(["run", "--announce", "--stop-with-stdin", "--config"]).arg(config);
    command.args(&setup.flags);
    if !setup.has_own_level {
        command.args(["--set", "log.level=debug"]);
    }
    let says_whom =
        setup.overrides.iter().any(|(key, _)| key == "process.user" || key == "process.allow_root");
    if rustix::process::geteuid().is_root() && !says_whom {
        command.args(["--set", "process.allow_root=on"]);
    }
    for (key, value) in &setup.overrides {
        command.args(["--set", &format!("{key}={value}")]);
    }
    command
}

/// How the log of a sidecar ends whose port another has.
const IN_USE: &str = "Address already in use (os error 98)";

/// The first line on stdout, read by a thread so that it can be waited for with a bound. **Errors:** the log of one that
/// says nothing, and has ended.
fn announcement(child: &mut Child, dir: &Path) -> Result<Value, String> {
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        // The test may have given up.
        let _ = sender.send(read.map(|_| line));
        // Whatever it prints afterwards must not block it.
        let _ = stdout.read_to_end(&mut Vec::new());
    });
    let line = receiver.recv_timeout(PATIENCE);
    let log = || std::fs::read_to_string(dir.join("capd.log")).unwrap_or_default();
    match line {
        Ok(Ok(line)) if !line.is_empty() => {
            Ok(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}")))
        }
        _ => {
            // It may be dead already.
            let _ = child.kill();
            let _ = child.wait();
            Err(log())
        }
    }
}
