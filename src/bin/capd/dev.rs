//! Implements `capd dev`: runs two sidecars as processes and the example agent, makes a first call, stays until Ctrl-C.
//!
//! With `--fleet`, [`fleet`] runs many of them around an etcd, and kills one. With `--lan`, [`lan`] runs one that finds those of
//! other desks.

mod etcd;
mod files;
mod fleet;
mod lan;
#[path = "../../../examples/code-review/review/mod.rs"]
mod review;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use capd::client::{CallRequest, Client, Endpoint, Options, Target};
use capd_proto::capability::CapabilityName;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;

/// What the first call reviews.
const REVIEWED: &str = include_str!("../../../proto/src/frame.rs");
const CAPABILITY: &str = "org.agentries.code-review";
const READY_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Args)]
pub(super) struct DevArgs {
    /// Print one JSON line about the sidecars instead of the tour, and stay.
    #[arg(long)]
    json: bool,
    /// Keep the sidecars' files here instead of in a temporary folder; files that are there are used as they are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write the files to that folder, print the configurations and how to run them, and start nothing.
    #[arg(long, requires = "dir", conflicts_with_all = ["json", "new_identity"])]
    print_config: bool,
    /// Make new keys if only they are missing in that folder; existing keys are kept.
    #[arg(long, requires = "dir")]
    new_identity: bool,
    /// Run a fleet of this many sidecars, 2 to 16, around an etcd instead: make calls, kill one sidecar, and show what happens.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(2..=16),
        conflicts_with_all = ["dir", "print_config", "new_identity"],
    )]
    fleet: Option<u8>,
    /// The etcd program of the fleet, rather than the first one in PATH.
    #[arg(long, value_name = "PATH", requires = "fleet")]
    etcd: Option<PathBuf>,
    #[command(flatten)]
    lan: lan::LanArgs,
    #[command(subcommand)]
    command: Option<DevCommand>,
}

#[derive(Subcommand)]
enum DevCommand {
    /// The example's provider: JSON params on stdin, a review as JSON on stdout.
    Review {
        /// The version of the capability to answer as: 1.5.0 or 2.0.0.
        #[arg(long, default_value = "2.0.0")]
        api: String,
    },
}

/// Runs `capd dev`.
pub(super) fn dev(args: DevArgs) -> Result<(), Failure> {
    if let Some(DevCommand::Review { api }) = args.command {
        return review::answer(&api, std::io::stdin().lock(), std::io::stdout().lock())
            .map_err(Failure::runtime);
    }
    if let Some(count) = args.fleet {
        if !cfg!(feature = "etcd") {
            return Err(Failure::mistake(
                "--fleet: this capd was built without etcd; use one of the packages, or build it with `--features etcd`",
            ));
        }
        let runtime = capd::net::runtime(Duration::ZERO).map_err(Failure::runtime)?;
        return runtime.block_on(fleet::stay(count, args.etcd, args.json));
    }
    if args.lan.lan {
        let runtime = capd::net::runtime(Duration::ZERO).map_err(Failure::runtime)?;
        return runtime.block_on(lan::stay(args.lan, args.dir, args.json));
    }
    if args.print_config {
        let folder = Folder::new(args.dir)?;
        return files::print(&folder.path);
    }
    capd::net::runtime(Duration::ZERO).map_err(Failure::runtime)?.block_on(stay(args))
}

async fn stay(args: DevArgs) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::runtime)?;
    let folder = Folder::new(args.dir)?;
    let flags: &[&str] = if args.new_identity { &["--new-identity"] } else { &[] };
    let outcome = tokio::select! {
        outcome = tour(&folder, args.json, flags) => outcome,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let sidecars = outcome?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    for sidecar in sidecars {
        sidecar.stop().await;
    }
    Ok(())
}

/// Starts both sidecars, makes the first call, and says what a newcomer can do next.
async fn tour(folder: &Folder, as_json: bool, flags: &[&str]) -> Result<Vec<Sidecar>, Failure> {
    // Files that stay must find each other at the next start.
    let ports = if folder.is_ours { files::Ports::Any } else { files::Ports::Fixed };
    let config = files::provider(&folder.path, ports)?;
    let provider = Sidecar::start("provider", &config, flags).await?;
    let at =
        files::Peer { did: provider.text("did"), quic: provider.text("quic"), tcp: provider.text("tcp") };
    let config = files::caller(&folder.path, ports, &at)?;
    let caller = Sidecar::start("caller", &config, flags).await?;
    let result = first_call(&caller).await?;
    if as_json {
        println!(
            "{}",
            json!({"sidecars": [caller.row(false), provider.row(true)], "capability": CAPABILITY})
        );
    } else {
        print_tour(&caller, &provider, &result);
    }
    Ok(vec![caller, provider])
}

async fn first_call(caller: &Sidecar) -> Result<Value, Failure> {
    let socket = Endpoint::Unix(PathBuf::from(caller.text("socket")));
    let client = Client::connect(socket, Options::default()).await.map_err(Failure::runtime)?;
    let name: CapabilityName = CAPABILITY.parse().map_err(Failure::runtime)?;
    let params = json!({"code": REVIEWED, "language": "rust"});
    let request = CallRequest::new(Target::newest(name)).params_json(&params).timeout(READY_TIMEOUT);
    let answer = client.call(request).map_err(Failure::runtime)?.outcome().await.map_err(Failure::runtime)?;
    client.close().await;
    answer.json().ok_or_else(|| Failure::runtime("the review is not JSON"))
}

fn print_tour(caller: &Sidecar, provider: &Sidecar, result: &Value) {
    println!("Two sidecars run on loopback, each a process of its own:\n");
    for sidecar in [caller, provider] {
        println!("  {:<9} {}", sidecar.name, sidecar.text("did"));
        println!("  {:<9} quic {}  tcp {}", "", sidecar.text("quic"), sidecar.text("tcp"));
        println!("  {:<9} socket {}\n", "", sidecar.text("socket"));
    }
    println!("The agent behind `provider` serves {CAPABILITY} in versions 1.5.0 and 2.0.0.");
    println!("A first call, from `caller`, on this project's own proto/src/frame.rs, gave:\n");
    println!("{}\n", serde_json::to_string_pretty(result).unwrap_or_default());
    println!("Try these in another terminal, in any folder:\n");
    for (purpose, command) in lessons(caller, provider) {
        println!("  # {purpose}\n  {command}\n");
    }
    println!("Ctrl-C ends both.");
}

/// Commands that are worth trying, each as it is pasted into a shell.
fn lessons(caller: &Sidecar, provider: &Sidecar) -> [(&'static str, String); 5] {
    let capctl = format!("{} --socket {}", capctl(), shell_word(caller.text("socket")));
    let call = |params: &str| format!("{capctl} call {CAPABILITY} --params '{params}'");
    let review = call(r#"{"code": "fn main() { x.unwrap() }", "language": "rust"}"#);
    [
        ("Make a call.", review.clone()),
        ("See the contract of a version.", format!("{capctl} describe {CAPABILITY}:2.0.0")),
        (
            "Misspell a param: the call never leaves the caller's sidecar.",
            call(r#"{"code": "fn main() {}", "lang": "rust"}"#),
        ),
        (
            "Go back a version: the check finds params that break callers of 2.0.0.",
            format!("{capctl} check {CAPABILITY}:2.0.0 {CAPABILITY}:1.5.0"),
        ),
        (
            "Kill the provider's sidecar, and call again: the one answer says whether the call may have run.",
            format!("kill -9 {}; {review} --timeout 5s", provider.process.id().unwrap_or_default()),
        ),
    ]
}

/// The `capctl` that was installed with this program, as a shell takes it.
fn capctl() -> String {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("capctl"));
    match beside.filter(|program| program.is_file()) {
        Some(program) => shell_word(&program.display().to_string()),
        None => "capctl".to_owned(),
    }
}

fn shell_word(text: &str) -> String {
    super::init::quoted(Path::new(text))
}

/// One `capd run` of ours, and what it announced.
struct Sidecar {
    name: String,
    process: Child,
    announcement: Value,
}

impl Sidecar {
    async fn start(name: &str, config: &Path, flags: &[&str]) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe().map_err(Failure::runtime)?);
        command.args(["run", "--announce", "--stop-with-stdin", "--config"]).arg(config).args(flags);
        // A group of its own, so that Ctrl-C reaches the sidecars through us, in order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().map_err(Failure::runtime)?;
        let announcement = tokio::time::timeout(READY_TIMEOUT, announced(&mut process))
            .await
            .map_err(|_| Failure::runtime(format!("the sidecar `{name}` did not start in time")))??;
        Ok(Self { name: name.to_owned(), process, announcement })
    }

    fn text(&self, key: &str) -> &str {
        self.announcement[key].as_str().unwrap_or_default()
    }

    fn row(&self, is_agent: bool) -> Value {
        json!({
            "name": self.name,
            "did": self.text("did"),
            "quic": self.text("quic"),
            "tcp": self.text("tcp"),
            "socket": self.text("socket"),
            "dir": self.text("dir"),
            "agent": is_agent,
        })
    }

    /// Lets the sidecar drain: its standard input ends, and it leaves by itself.
    async fn stop(mut self) {
        drop(self.process.stdin.take());
        if tokio::time::timeout(READY_TIMEOUT, self.process.wait()).await.is_err() {
            let _ = self.process.kill().await;
        }
    }
}

async fn announced(process: &mut Child) -> Result<Value, Failure> {
    let stdout =
        process.stdout.take().ok_or_else(|| Failure::runtime("the sidecar has no standard output"))?;
    let line = BufReader::new(stdout).lines().next_line().await.map_err(Failure::runtime)?;
    match line {
        Some(line) => serde_json::from_str(&line).map_err(Failure::runtime),
        None => Err(Failure::runtime("the sidecar ended before it was ready; see its message above")),
    }
}

/// Where the sidecars keep their state; removed at the end unless the user named it.
struct Folder {
    path: PathBuf,
    is_ours: bool,
}

impl Folder {
    fn new(named: Option<PathBuf>) -> Result<Self, Failure> {
        let is_ours = named.is_none();
        let path = match named {
            Some(path) => std::path::absolute(path).map_err(Failure::runtime)?,
            None => std::env::temp_dir().join(format!("capd-dev-{}", std::process::id())),
        };
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(Failure::runtime)?;
        Ok(Self { path, is_ours })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
