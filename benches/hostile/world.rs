//! A sidecar under attack, an agent that serves, and an honest peer that calls it; the crowd as a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use capd::client::{CallRequest, Client, Endpoint, Invocation, Options, Target, WireError};
use capd_proto::message::DescriptorDraft;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::support::{Setup, Sidecar};

/// The capability that is served.
pub(crate) const ECHO: &str = "org.example.echo:1.0.0";
/// Descriptors that the largest crowd needs, in this process, the sidecar's and its own.
const FILES_NEEDED: u64 = 8_192;
/// Calls that an agent takes at once.
const CALLS_MAX: usize = 16_384;

/// Lets this process, and those it starts, open enough sockets.
pub(crate) fn raise_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    assert!(
        limit.maximum.is_none_or(|maximum| maximum >= FILES_NEEDED),
        "{FILES_NEEDED} descriptors are needed, and the hard limit is {:?}: raise it (ulimit -Hn)",
        limit.maximum
    );
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
}

/// The sidecar under attack and the honest ones.
pub(crate) struct World {
    pub(crate) sidecar: Sidecar,
    /// Of a runtime on a thread of its own: the agent serves whatever this process waits for.
    pub(crate) runtime: Handle,
    /// The thread ends when this is dropped.
    _running: oneshot::Sender<()>,
    honest: Client,
    _provider: Client,
    _honest_sidecar: Sidecar,
}

impl World {
    /// `setup` is the attacked sidecar's; its agent takes `work` for each call.
    pub(crate) fn start(setup: Setup, work: Duration) -> Self {
        let quiet = |setup: Setup| setup.set("log.level", "warn").set("peer.signatures", "channel");
        let sidecar = quiet(setup).start();
        let honest_sidecar = quiet(Setup::new().peer(&sidecar)).start();
        let (runtime, running) = background();
        let (provider, honest) = runtime.block_on(async {
            let provider = client(&sidecar).await;
            let handler = move |invocation: Invocation| async move {
                if !work.is_zero() {
                    tokio::time::sleep(work).await;
                }
                Ok::<_, WireError>(invocation.params)
            };
            provider.serve(CALLS_MAX, handler).unwrap();
            let draft = DescriptorDraft::new(ECHO.parse().unwrap());
            let descriptor = DescriptorDraft { idempotent: Some(true), ..draft }.finish().unwrap();
            provider.declare(&[descriptor]).await.unwrap();
            (provider, client(&honest_sidecar).await)
        });
        Self {
            sidecar,
            runtime,
            _running: running,
            honest,
            _provider: provider,
            _honest_sidecar: honest_sidecar,
        }
    }

    /// Keeps `in_flight` honest calls going for `time`; the time of each that had its result, ascending.
    pub(crate) fn honest_calls(&mut self, in_flight: usize, time: Duration) -> Vec<Duration> {
        let honest = self.honest.clone();
        let mut times = self.runtime.block_on(async move {
            let begin = Instant::now();
            let callers = (0..in_flight).map(|_| {
                let honest = honest.clone();
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    while begin.elapsed() < time {
                        let sent = Instant::now();
                        let request = CallRequest::new(Target::Id(ECHO.parse().unwrap()))
                            .params_cbor(Bytes::from_static(PARAMS))
                            .timeout(CALL_TIMEOUT);
                        let outcome = honest.call(request).unwrap().outcome().await;
                        if outcome.is_ok_and(|answer| answer.result == PARAMS) {
                            times.push(sent.elapsed());
                        }
                    }
                    times
                })
            });
            let mut times = Vec::new();
            for caller in callers.collect::<Vec<_>>() {
                times.extend(caller.await.unwrap());
            }
            times
        });
        times.sort_unstable();
        times
    }

    /// Memory that is resident in the sidecar under attack, in MB of 10^6 bytes, as `/proc` has it.
    pub(crate) fn resident_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.sidecar.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux tells VmRSS");
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1_024.0 / 1e6
    }
}

/// Ends with the number of descriptors that are needed when the hard limit does not allow so many in one process.
pub(crate) fn assert_files(needed: usize) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    assert!(
        limit.maximum.is_none_or(|maximum| maximum >= needed as u64),
        "{needed} descriptors are needed, and the hard limit is {:?}: raise it (ulimit -Hn)",
        limit.maximum
    );
}

/// What a program of the same machine shows on loopback TCP.
pub(crate) fn token(sidecar: &Sidecar) -> String {
    std::fs::read_to_string(sidecar.dir.join("state/token")).unwrap().trim().to_owned()
}

pub(crate) fn background() -> (Handle, oneshot::Sender<()>) {
    let driving = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = driving.handle().clone();
    let (running, stopped) = oneshot::channel();
    std::thread::spawn(move || {
        driving.block_on(async {
            // The sender never sends: it is dropped.
            let _dropped: Result<(), _> = stopped.await;
        });
    });
    (handle, running)
}

pub(crate) async fn client(sidecar: &Sidecar) -> Client {
    Client::connect(Endpoint::Unix(sidecar.socket.clone()), Options::default()).await.unwrap()
}

/// Where a part of ascending times ends.
pub(crate) fn at(times: &[Duration], part: f64) -> Duration {
    assert!(!times.is_empty(), "no call had its result");
    times[((times.len() - 1) as f64 * part).round() as usize]
}

/// The attackers' process: a line in, a line out. It ends when its standard input does.
pub(crate) struct Crowd {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Crowd {
    /// The crowd of a kind, `count` strong, once all of it is there.
    pub(crate) fn gather(kind: &str, world: &World, count: usize) -> Self {
        let (address, whom) = match kind {
            "slow" => (world.sidecar.tcp, world.sidecar.did.clone()),
            "slow-http" => (world.sidecar.local_tcp, token(&world.sidecar)),
            _ => (world.sidecar.quic, world.sidecar.did.clone()),
        };
        let mut crowd = Self::spawn(&mut Command::new(std::env::current_exe().unwrap()), |command| {
            command.args(["--crowd", kind, &address.unwrap().to_string(), &whom, &count.to_string()])
        });
        assert_eq!(crowd.line(), "ready", "{kind}");
        crowd
    }

    /// A crowd of a kind that takes its target later. It stands for another machine, so it has only the time of the processors
    /// that nobody else wants.
    pub(crate) fn elsewhere(kind: &str, most: usize) -> Self {
        Self::spawn(
            Command::new("nice").args(["-n", "19"]).arg(std::env::current_exe().unwrap()),
            |command| command.args(["--crowd", kind, &most.to_string()]),
        )
    }

    fn spawn(command: &mut Command, with: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let mut child = with(command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdin, stdout }
    }

    /// What it answers to a line.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.line()
    }

    /// Says a line whose answer is read later.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("open until it is dropped"), "{line}").unwrap();
    }

    /// The number that it answers to any line.
    pub(crate) fn count(&mut self) -> u64 {
        self.ask("count").parse().unwrap()
    }

    /// Its next line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It has nothing to finish.
        let _ended = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an honest call carries: one CBOR text.
const PARAMS: &[u8] = b"\x6ean honest call";
/// Longer than any honest call should take, shorter than a run.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
