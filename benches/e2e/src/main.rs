//! What carries a call, each role of it a process of its own, in; one table of calls per second and times, held against
//! the bars, out.
//!
//! ```text
//! cargo run --release                    # in this folder: builds capd as it is shipped, measures, prints the table
//! cargo run --release -- --write         # the table into docs/evidence/performance.md as well; with --http, that part's alone
//! cargo run --release -- --only channel,grpc --rounds 1
//! cargo run --release -- --large         # or --memory, --fleet, --http: only that part
//! cargo run --release -- --steady 30     # memory, minute by minute
//! cargo run --release -- --test          # every role once, for fractions of a second: nothing worth keeping
//! ```
//!
//! The binary runs itself again with a role. Read in this order: [`payload`] is what travels, [`load`] how a caller
//! keeps calls going and times them, [`role`] how a process of ours is told what to do. The roles: [`agents`] speak to
//! sidecars, [`forward`] is what two proxies that only forward can do, over the connections of [`quic`], [`grpc`] is
//! tonic, [`nats`] a broker, [`http`] what speaks HTTP, and [`dapr`] its sidecars. [`world`] starts the processes that carry one [`subject`], [`sidecar`] those that are
//! `capd`, [`disk`] takes the time of a commit, [`measure`] alternates the rounds; [`fleet`], [`large`], [`memory`] and
//! [`fronts`] are the parts beside the table, [`steady`] is a run of its own. [`bars`] holds the figures against what they must be, [`report`] makes the table.

#![allow(clippy::unwrap_used, reason = "whatever fails here ends the benchmark")]
#![allow(clippy::disallowed_methods, reason = "real processes are measured in real time")]

mod agents;
mod bars;
mod dapr;
#[path = "../../journal/disk.rs"]
mod disk;
mod fleet;
mod forward;
mod fronts;
mod grpc;
mod http;
mod large;
mod load;
mod measure;
mod memory;
mod nats;
#[path = "../../journal/number.rs"]
mod number;
mod payload;
mod quic;
mod report;
mod role;
mod sidecar;
mod steady;
mod subject;
mod world;

use std::path::PathBuf;

use clap::Parser;

/// Measures calls through two capd sidecars beside what else carries a call.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Be one of the processes; only this program says so to itself.
    #[command(subcommand)]
    role: Option<role::Role>,
    /// Only try everything out, for fractions of a second.
    #[arg(long, conflicts_with = "write")]
    test: bool,
    /// Write the table to docs/evidence/performance.md.
    #[arg(long, conflicts_with_all = ["only", "large", "memory", "fleet", "hosts"])]
    write: bool,
    /// Rounds of each kind.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of a round with many calls in flight; one with a single call takes half of it.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Only the subjects whose names begin with one of these; bars without their figures are left open.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The part about 1 MiB both ways, and no part that is not asked for.
    #[arg(long)]
    large: bool,
    /// The part about memory.
    #[arg(long)]
    memory: bool,
    /// The part about many capabilities and peers.
    #[arg(long)]
    fleet: bool,
    /// The part about HTTP: agents in any language, Dapr, bare proxies.
    #[arg(long)]
    http: bool,
    /// Only memory under calls that keep coming, for so many minutes.
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["write", "only", "large", "memory", "fleet", "http"], value_parser = clap::value_parser!(u16).range(1..))]
    steady: Option<u16>,
    /// Each host, the caller's and the provider's, with a core of its own; otherwise the system places the processes.
    #[arg(long)]
    hosts: bool,
    /// The sidecar's program; otherwise it is built, optimised.
    #[arg(long)]
    capd: Option<PathBuf>,
    /// The folder of Dapr's programs; otherwise the one that `dapr.sh` fills, if it has.
    #[arg(long)]
    dapr: Option<PathBuf>,
    /// The broker's program; otherwise the one that is installed, if any.
    #[arg(long)]
    nats_server: Option<PathBuf>,
}

fn main() {
    let mut args = Args::parse();
    match args.role.take() {
        Some(role) => role.run(),
        None if let Some(minutes) = args.steady => measure::steady(&args, minutes.into()),
        None => {
            let figures = measure::measure(&args);
            report::report(&args, &figures);
        }
    }
}
