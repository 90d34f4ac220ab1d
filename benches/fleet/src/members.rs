//! The virtual members, in a process of their own that can be stopped: lines that ask and command in, how many are
//! registered out.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::{Interval, interval};

use crate::calls::{Kind, name};
use crate::virtuals::{Plan, Virtuals};

/// What the process is started with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    count: u16,
    #[arg(long)]
    endpoint: String,
    #[arg(long)]
    ttl_ms: u64,
    /// Names that they share.
    #[arg(long)]
    names: usize,
    /// Names that real members serve. Every twentieth virtual one offers one of these as well, and does not answer.
    #[arg(long)]
    called: usize,
}

/// How they are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) registered: usize,
    pub(crate) current: usize,
    pub(crate) lapsed: u64,
    /// How often one left and came back.
    pub(crate) came_back: u64,
}

/// The process: says a line when all are registered, and one for each line that it gets.
pub(crate) async fn run(args: Args) {
    let names = |number: u16| {
        let at = usize::from(number);
        let called =
            number.is_multiple_of(20).then(|| name(Kind::Again, &(at / 20 % args.called).to_string()));
        called.into_iter().chain([format!("org.example.virtual-{}", at % args.names)]).collect()
    };
    let plan = Plan {
        count: args.count,
        endpoint: &args.endpoint,
        ttl_ms: args.ttl_ms,
        connections: CONNECTIONS_MAX,
        at_once: AT_ONCE,
        names: &names,
    };
    let mut virtuals = Virtuals::start(&plan).await;
    virtuals.are_registered().await;
    say(&virtuals, 0);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let (mut churn, mut leaving, mut came_back) = (None, JoinSet::new(), 0);
    let mut next = (0..args.count).cycle();
    let leaving_max = LEAVING_MAX.min(usize::from(args.count / 2));
    loop {
        let due = async {
            match &mut churn {
                Some(due) => Interval::tick(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            line = lines.next_line() => match line.ok().flatten() {
                Some(line) => match line.strip_prefix(CHURN).map(str::parse::<f64>) {
                    Some(per_s) => {
                        let per_s = per_s.unwrap();
                        churn = (per_s > 0.0).then(|| interval(Duration::from_secs_f64(1.0 / per_s)));
                    }
                    None => say(&virtuals, came_back),
                },
                None => break,
            },
            _ = due, if leaving.len() < leaving_max => {
                let Some(number) = next.next() else { continue };
                leaving.spawn(virtuals.leaves(number, &plan));
            }
            Some(back) = leaving.join_next() => {
                virtuals.came_back(back.unwrap());
                came_back += 1;
            }
        }
    }
}

fn say(virtuals: &Virtuals, came_back: u64) {
    let status = Status {
        registered: virtuals.registered(),
        current: virtuals.current(),
        lapsed: virtuals.lapsed(),
        came_back,
    };
    println!("{}", serde_json::to_string(&status).unwrap());
}

/// The process, as its parent sees it. Dropping it kills it.
pub(crate) struct Members {
    process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Members {
    /// Starts it; how long it took until all were registered.
    pub(crate) async fn start(
        count: u16,
        endpoint: &str,
        ttl_ms: u64,
        names: usize,
        called: usize,
    ) -> (Self, Duration) {
        let begin = Instant::now();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("virtuals").args(["--count", &count.to_string(), "--endpoint", endpoint]);
        command.args(["--ttl-ms", &ttl_ms.to_string(), "--names", &names.to_string()]);
        command.args(["--called", &called.to_string()]);
        // Whoever stands still in a group of processes that is left by its shell is woken by the system.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).process_group(0);
        let mut process = command.spawn().unwrap();
        let stdin = process.stdin.take().expect("it is piped");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let mut members = Self { process, stdin, lines };
        members.heard().await;
        (members, begin.elapsed())
    }

    pub(crate) async fn status(&mut self) -> Status {
        self.stdin.write_all(b"?\n").await.unwrap();
        self.heard().await
    }

    /// So many leave and come back in each second from here on; none for 0.
    pub(crate) async fn churn(&mut self, per_s: f64) {
        self.stdin.write_all(format!("{CHURN}{per_s}\n").as_bytes()).await.unwrap();
    }

    async fn heard(&mut self) -> Status {
        let line = self.lines.next_line().await.unwrap().expect("the virtual members' process lives");
        serde_json::from_str(&line).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().expect("it has not ended")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid().cast_signed()).expect("a process"), signal).unwrap();
    }
}

/// Members that register at once: as many machines start one after the other.
const AT_ONCE: usize = 256;
/// Connections to etcd that all of them share, as FLEET 8 has it: what one process pays for thousands of them no machine
/// of a fleet does.
const CONNECTIONS_MAX: usize = 32;
/// Most members that are away at once.
const LEAVING_MAX: usize = 64;
/// How a line begins that says how many leave in each second.
const CHURN: &str = "churn ";
