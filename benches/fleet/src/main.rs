//! Sizes in; a fleet of real sidecars and virtual members on one etcd, everything that happens to both, and what came of every
//! call, out.
//!
//! ```text
//! cargo build --release --features etcd --bin capd     # in the project's folder: the sidecars
//! cargo run --release -- run --etcd PATH               # in this one: brings all up, plays every scenario, prints the bars
//! cargo run --release -- run --etcd PATH --real 10 --virtual 200 --names 40 --replicas 5 --minutes 2 --scenario steady,outage
//! cargo run --release -- check out.json                # the bars of a run again; the exit code says whether they are met
//! cargo run --release -- check out.json --write        # the same, and the page with its pictures
//! cargo run --release -- up --etcd PATH                # only brings all up, and waits for Ctrl-C
//! ```
//!
//! Read in this order: [`world`] brings everything up, of [`sidecar`]s, virtual [`members`], [`agents`] that write down what
//! they run, and [`calls`]; [`scenarios`] is what happens to them; [`oracle`] says what may not happen; [`figures`] is what a run
//! has found, and its bars; [`page`] shows it, with the pictures of [`svg`].

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]
#![allow(clippy::disallowed_methods, reason = "real processes are measured in real time")]

mod agents;
mod calls;
mod figures;
mod members;
#[path = "../../journal/number.rs"]
mod number;
mod oracle;
mod page;
mod proc;
#[path = "../../../tests/kills/random.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "tests/kills uses the rest")]
mod random;
mod scenarios;
#[path = "../../../tests/etcd/server.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "the etcd engine's scenarios use the rest")]
mod server;
mod sidecar;
mod svg;
#[path = "../../../tests/etcd/virtuals.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "tests/etcd uses the rest")]
mod virtuals;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use figures::Figures;
use world::World;

/// Runs a fleet of real sidecars and virtual members on one etcd, and everything that happens to both.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Bring everything up, print where it is, and wait for Ctrl-C. Nobody calls.
    Up(Sizes),
    /// Bring everything up, play scenarios beneath calls, and judge what came of it.
    Run {
        #[command(flatten)]
        sizes: Sizes,
        /// Scenarios by name, separated by commas, or `all`.
        #[arg(long, default_value = "all", value_delimiter = ',')]
        scenario: Vec<String>,
        /// Time that the scenarios share; one that needs a time of its own takes that.
        #[arg(long, default_value_t = 15.0)]
        minutes: f64,
        /// Where the figures go.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Write the figures and pictures to docs/evidence/fleet.md.
        #[arg(long)]
        write: bool,
    },
    /// Judge a run again by its figures. The exit code is 1 if a bar is missed.
    Check {
        /// The figures.
        file: PathBuf,
        /// Write the figures and pictures to docs/evidence/fleet.md.
        #[arg(long)]
        write: bool,
    },
    /// Be the virtual members; only this program says so to itself.
    #[command(hide = true)]
    Virtuals(members::Args),
}

/// How large everything is.
#[derive(Clone, Debug, clap::Args)]
struct Sizes {
    /// Real sidecars, each a process with an agent that provides and calls.
    #[arg(long, default_value_t = 200)]
    real: usize,
    /// Virtual members: true keys, memberships, signatures and leases, and no sidecar.
    #[arg(long = "virtual", default_value_t = 9_800)]
    virtual_: u16,
    /// Names in all.
    #[arg(long, default_value_t = 1_000)]
    names: usize,
    /// Real sidecars that serve the same name.
    #[arg(long, default_value_t = 10)]
    replicas: usize,
    /// How long a registration lives without renewal. Units: seconds.
    #[arg(long, default_value_t = 30)]
    ttl: u64,
    /// What repeats the choices.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Calls a second, all callers together.
    #[arg(long, default_value_t = 400.0)]
    rate: f64,
    /// New registrations that a caller waits for, one after the other.
    #[arg(long, default_value_t = 100)]
    joins: usize,
    /// The program etcd.
    #[arg(long)]
    etcd: PathBuf,
    /// The program etcdctl; otherwise the one beside etcd.
    #[arg(long)]
    etcdctl: Option<PathBuf>,
    /// The program capd, built with the feature etcd; otherwise the one in target/release.
    #[arg(long)]
    capd: Option<PathBuf>,
    /// Where files go, on a disk like a sidecar's; otherwise the system's temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl Sizes {
    fn ttl_ms(&self) -> u64 {
        self.ttl * 1_000
    }

    /// Names that real sidecars serve and call.
    fn called(&self) -> usize {
        (self.real / self.replicas.max(1)).max(1)
    }

    fn etcdctl(&self) -> PathBuf {
        self.etcdctl.clone().unwrap_or_else(|| self.etcd.with_file_name("etcdctl"))
    }

    fn capd(&self) -> PathBuf {
        self.capd
            .clone()
            .unwrap_or_else(|| PathBuf::from(ROOT).join("target/release/capd"))
            .canonicalize()
            .unwrap_or_else(|error| {
                panic!("no capd to run: {error}; build it: cargo build --release --features etcd --bin capd")
            })
    }

    fn members(&self) -> usize {
        self.real + usize::from(self.virtual_)
    }
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match Args::parse().command {
        Command::Virtuals(args) => {
            runtime.block_on(members::run(args));
            ExitCode::SUCCESS
        }
        Command::Up(sizes) => {
            runtime.block_on(up(sizes));
            ExitCode::SUCCESS
        }
        Command::Run { sizes, scenario, minutes, json, write } => {
            let figures = runtime.block_on(async {
                tokio::select! {
                    figures = scenarios::run(sizes, &scenario, minutes) => Some(figures),
                    // The first one ends the scenario that is played. Dropping the world ends its processes.
                    () = interrupted_twice() => None,
                }
            });
            let Some(figures) = figures else { return ExitCode::from(130) };
            if let Some(json) = json {
                std::fs::write(json, serde_json::to_string_pretty(&figures).unwrap() + "\n").unwrap();
            }
            told(&figures, write)
        }
        Command::Check { file, write } => {
            let text =
                std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let mut figures: Figures = serde_json::from_str(&text).unwrap();
            figures.judge();
            told(&figures, write)
        }
    }
}

fn told(figures: &Figures, write: bool) -> ExitCode {
    println!("\n{}", page::section(figures));
    for broken in &figures.broken {
        println!("{broken}");
    }
    if write {
        page::write(figures);
    }
    let missed = figures.bars.iter().filter(|bar| bar.is_met() == Some(false)).count();
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn up(sizes: Sizes) {
    let world = World::start(sizes).await;
    for sidecar in &world.real {
        println!("{}  {}  {}", sidecar.name, sidecar.did, sidecar.socket.display());
    }
    println!("Ctrl-C ends all of it.");
    let _interrupted = tokio::signal::ctrl_c().await;
}

async fn interrupted_twice() {
    for _ in 0..2 {
        tokio::signal::ctrl_c().await.unwrap();
    }
}

/// The project's folder.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
