//! Implements `capd dev --fleet N`: an etcd in; sidecars that find each other by it, calls that spread, and one kill, out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use capd::client::{CallRequest, Client, Endpoint, Options, Target};
use capd_proto::capability::CapabilityName;
use capd_proto::message::FleetRequest;
use futures_util::future::try_join_all;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::super::Failure;
use super::etcd::{Etcd, Program};
use super::files::Cell;
use super::{Folder, READY_TIMEOUT, Sidecar, capctl, shell_word};

/// Runs the fleet until a signal, and ends all of it.
pub(super) async fn stay(count: u8, etcd: Option<PathBuf>, as_json: bool) -> Result<(), Failure> {
    let program = Program::find(etcd)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::runtime)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::runtime)?;
    let folder = Folder::new(None)?;
    let mut fleet = Fleet::default();
    let tour = async {
        fleet.tour(&folder.path, &program, count, as_json).await?;
        std::future::pending().await
    };
    let outcome = tokio::select! {
        outcome = tour => outcome,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    fleet.stop().await;
    outcome
}

/// All that was started.
#[derive(Default)]
struct Fleet {
    etcd: Option<Etcd>,
    caller: Option<Sidecar>,
    replicas: Vec<Sidecar>,
}

impl Fleet {
    /// Starts everything, makes calls, kills a replica while it makes more, and says what happened.
    async fn tour(
        &mut self,
        folder: &Path,
        program: &Program,
        count: u8,
        as_json: bool,
    ) -> Result<(), Failure> {
        let etcd = Etcd::start(program, &folder.join("etcd")).await?;
        let endpoint = format!("http://{}", etcd.address);
        self.etcd = Some(etcd);
        let cell = Cell::new(folder, &endpoint)?;
        let (caller, links_max) = cell.caller()?;
        let names: Vec<_> = (1..count).map(|number| format!("replica-{number}")).collect();
        let configs: Vec<_> =
            names.iter().map(|name| cell.replica(name, CAPABILITY)).collect::<Result<_, _>>()?;
        let starts = names.iter().zip(&configs).map(|(name, config)| Sidecar::start(name, config, &[]));
        self.replicas = try_join_all(starts).await?;
        let caller = self.caller.insert(Sidecar::start("caller", &caller, &[]).await?);
        if !as_json {
            print_members(program, &endpoint, caller, &self.replicas);
        }

        let socket = Endpoint::Unix(PathBuf::from(caller.text("socket")));
        let client = Client::connect(socket, Options::default()).await.map_err(Failure::runtime)?;
        let spares = self.settled(&client, links_max, None).await?;
        let first = self.round(&client, None).await?;
        if !as_json {
            println!("\n{CALLS} calls from `caller`: {}\n", first.verdict());
            print!("{}", self.table(&first, None, &spares));
            if !spares.is_empty() {
                println!("\nA caller keeps links to {links_max} providers of a name (fleet.links_per_name).");
            }
        }
        let busiest = (0..self.replicas.len()).max_by_key(|at| first.of(self.replicas[*at].text("did")));
        let at = busiest.ok_or_else(|| Failure::runtime("no replica runs"))?;
        let second = self.round(&client, Some((at, &configs[at]))).await?;
        if !as_json {
            self.print_kill(&second, at);
        }
        let mut rounds = vec![first, second];
        if !spares.is_empty() {
            let spares = self.settled(&client, links_max, Some(at)).await?;
            let third = self.round(&client, None).await?;
            if !as_json {
                println!(
                    "\nThe caller has taken a spare replica in its place. {CALLS} more calls: {}\n",
                    third.verdict()
                );
                print!("{}", self.table(&third, Some(at), &spares));
            }
            rounds.push(third);
        }
        client.close().await;
        if as_json {
            println!("{}", self.document(program, &endpoint, &rounds, at));
        } else {
            self.print_lessons();
        }
        Ok(())
    }

    /// Waits until the caller knows every replica but the one that was killed, and has the links that it wants. The DIDs of those to
    /// whom it has none.
    async fn settled(
        &self,
        client: &Client,
        links_max: usize,
        killed: Option<usize>,
    ) -> Result<Vec<String>, Failure> {
        let alive = self.replicas.iter().enumerate().filter(|(at, _)| killed != Some(*at));
        let alive: BTreeSet<_> = alive.map(|(_, replica)| replica.text("did")).collect();
        let request = FleetRequest::Why { name: CAPABILITY.into() };
        let asked = async {
            loop {
                let report = client.fleet(&request).await.map_err(Failure::runtime)?;
                let candidates = report.names.into_iter().flat_map(|name| name.candidates);
                let known = candidates.filter(|of| alive.contains(&*of.did));
                let (linked, spare): (Vec<_>, Vec<_>) =
                    known.partition(|of| of.state.as_deref() == Some("linked") && of.reason.is_none());
                if linked.len() >= links_max.min(alive.len()) && linked.len() + spare.len() == alive.len() {
                    return Ok(spare.into_iter().map(|of| of.did.into_owned()).collect());
                }
                sleep(ASK_EVERY).await;
            }
        };
        let late = || format!("the caller did not find {} replicas within {READY_TIMEOUT:?}", alive.len());
        tokio::time::timeout(READY_TIMEOUT, asked).await.map_err(|_| Failure::runtime(late()))?
    }

    /// Makes calls, some at once. In the middle of them, kills the replica that is named, if one is; the only one is started again.
    async fn round(&mut self, client: &Client, kill: Option<(usize, &PathBuf)>) -> Result<Round, Failure> {
        let name: CapabilityName = CAPABILITY.parse().map_err(Failure::runtime)?;
        let one = |_| {
            let request = CallRequest::new(Target::newest(name.clone())).timeout(READY_TIMEOUT);
            async move {
                let begun = Instant::now();
                let ended = match client.call(request.params_json(&json!({}))) {
                    Ok(call) => call.outcome().await,
                    Err(error) => Err(error),
                };
                (ended, begun.elapsed())
            }
        };
        let mut calls = stream::iter(0..CALLS).map(one).buffer_unordered(AT_ONCE);
        let mut round = Round::default();
        let mut kill = kill;
        while let Some((ended, took)) = calls.next().await {
            round.slowest = round.slowest.max(took);
            match ended {
                Ok(answer) => *round.answered.entry(answer.from.to_string()).or_default() += 1,
                Err(error) => *round.failed.entry(error.to_string()).or_default() += 1,
            }
            if round.answered.values().sum::<usize>() < ANSWERS_BEFORE_KILL {
                continue;
            }
            let Some((at, config)) = kill.take() else { continue };
            let sidecar = &mut self.replicas[at];
            sidecar.process.kill().await.map_err(Failure::runtime)?;
            if self.is_alone() {
                let name = self.replicas[at].name.clone();
                self.replicas[at] = Sidecar::start(&name, config, &[]).await?;
            }
        }
        Ok(round)
    }

    /// How many calls each replica answered.
    fn table(&self, round: &Round, killed: Option<usize>, spares: &[String]) -> String {
        let row = |(at, sidecar): (usize, &Sidecar)| {
            let did = sidecar.text("did");
            let note = match killed == Some(at) {
                true if self.is_alone() => "  killed, and started again",
                true => "  killed",
                false if spares.iter().any(|spare| spare == did) => "  spare: registered, not linked",
                false => "",
            };
            format!("  {:<10} {:>3}{note}\n", sidecar.name, round.of(did))
        };
        self.replicas.iter().enumerate().map(row).collect()
    }

    fn print_kill(&self, round: &Round, at: usize) {
        let killed = &self.replicas[at].name;
        println!(
            "\n{CALLS} more calls, and kill -9 of {killed} after answer {ANSWERS_BEFORE_KILL}: {} The slowest took {:.1} s.\n",
            round.verdict(),
            round.slowest.as_secs_f64()
        );
        print!("{}", self.table(round, Some(at), &[]));
        let place = if self.is_alone() { "once it was back" } else { "elsewhere" };
        println!(
            "\nCalls in flight at {killed} waited until its link was given up (timeouts.dead_ms). The caller's sidecar"
        );
        println!("then made them again {place}, because {CAPABILITY} is declared idempotent.");
    }

    fn print_lessons(&self) {
        println!("\nTry these in another terminal, in any folder:\n");
        for (purpose, command) in self.lessons() {
            println!("  # {purpose}\n  {command}\n");
        }
        println!("Ctrl-C ends all of it.");
    }

    /// Whether nobody is left once a replica is killed.
    fn is_alone(&self) -> bool {
        self.replicas.len() == 1
    }

    /// Commands that are worth trying, each as it is pasted into a shell.
    fn lessons(&self) -> [(&'static str, String); 4] {
        let socket = self.caller.as_ref().map(|caller| shell_word(caller.text("socket"))).unwrap_or_default();
        let capctl = format!("{} --socket {socket}", capctl());
        [
            ("See which names are registered, and by whom.", format!("{capctl} fleet ls")),
            ("See why each replica is called, or is not.", format!("{capctl} fleet why {CAPABILITY}")),
            ("Check the caller's part in the fleet.", format!("{capctl} fleet doctor")),
            ("Make a call.", format!("{capctl} call {CAPABILITY} --params '{{}}'")),
        ]
    }

    fn document(&self, program: &Program, endpoint: &str, rounds: &[Round], killed: usize) -> Value {
        let rows = self.caller.iter().map(|caller| caller.row(false));
        let rows: Vec<_> = rows.chain(self.replicas.iter().map(|replica| replica.row(true))).collect();
        let round = |round: &Round| {
            let count = |of: &Sidecar| (of.name.clone(), round.of(of.text("did")));
            let answered: BTreeMap<_, _> = self.replicas.iter().map(count).collect();
            let slowest_ms = round.slowest.as_millis() as u64;
            json!({"calls": CALLS, "answered": answered, "failed": round.failed, "slowest_ms": slowest_ms})
        };
        json!({
            "etcd": {"program": program.path, "version": program.version, "endpoint": endpoint},
            "sidecars": rows,
            "capability": CAPABILITY,
            "killed": self.replicas[killed].name,
            "rounds": rounds.iter().map(round).collect::<Vec<_>>(),
        })
    }

    /// Lets the sidecars drain, and ends etcd after them.
    async fn stop(self) {
        for sidecar in self.caller.into_iter().chain(self.replicas) {
            sidecar.stop().await;
        }
        if let Some(etcd) = self.etcd {
            etcd.stop().await;
        }
    }
}

/// What came of some calls.
#[derive(Default)]
struct Round {
    /// How many calls each DID answered.
    answered: BTreeMap<String, usize>,
    /// How many calls failed, by their error.
    failed: BTreeMap<String, usize>,
    slowest: Duration,
}

impl Round {
    fn of(&self, did: &str) -> usize {
        self.answered.get(did).copied().unwrap_or(0)
    }

    fn verdict(&self) -> String {
        let answered: usize = self.answered.values().sum();
        if self.failed.is_empty() {
            return format!("{answered} answered, none lost.");
        }
        let failed = self.failed.iter().map(|(error, count)| format!("\n  {count} failed: {error}"));
        format!("{answered} answered.{}\n", failed.collect::<String>())
    }
}

fn print_members(program: &Program, endpoint: &str, caller: &Sidecar, replicas: &[Sidecar]) {
    println!(
        "etcd {} serves at {endpoint} ({}). Cell `{}` has {} members, each a process of its own:\n",
        program.version,
        program.path.display(),
        super::files::CELL,
        replicas.len() + 1
    );
    for sidecar in std::iter::once(caller).chain(replicas) {
        println!("  {:<10} {}", sidecar.name, sidecar.text("did"));
    }
    println!(
        "\nEach replica serves {CAPABILITY}. No configuration lists a peer: etcd says who serves a name, and the"
    );
    println!("membership that the cell's authority signed says who may.");
}

const CAPABILITY: &str = "com.example.hello";
/// Calls of a round, and how many of them are made at once. Above 16 at a replica, a caller would take one more.
const CALLS: usize = 100;
const AT_ONCE: usize = 8;
/// By then, others are in flight.
const ANSWERS_BEFORE_KILL: usize = 30;
/// How often the caller is asked whether it has found everybody.
const ASK_EVERY: Duration = Duration::from_millis(50);
