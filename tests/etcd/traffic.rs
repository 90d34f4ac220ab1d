//! Agents that write down what they run, and callers that write down how each call ended.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use capd::client::{
    Agent, CallOptions, Capability, Client, ClientError, Endpoint, Invocation, Options, Outcome as Ended,
};
use tokio::task::JoinSet;

/// Whether a call may run more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Once,
    Idempotent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Refused,
    Unknown,
}

/// How a call ended.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "who reads of a failure wants all of it")]
pub struct Of {
    pub number: u64,
    pub kind: Kind,
    pub outcome: Outcome,
    pub error: Option<String>,
    /// What was going on.
    pub during: String,
}

/// Agents of this process that serve names at their sidecars, and what they ran.
#[derive(Default)]
pub struct Agents {
    ran: Arc<Mutex<HashMap<u64, u32>>>,
    serving: JoinSet<Result<(), ClientError>>,
}

impl Agents {
    /// Serves both kinds of each name, and waits until the sidecar lists them.
    pub async fn serve(&mut self, seed: u8, socket: &Path, names: &[u8]) {
        let mut agent = Agent::new();
        for &number in names {
            for kind in [Kind::Once, Kind::Idempotent] {
                let ran = Arc::clone(&self.ran);
                let handler = move |number: u64, _: Invocation| {
                    *ran.lock().unwrap().entry(number).or_default() += 1;
                    async move { Ok(seed) }
                };
                let capability = Capability::new(&name(kind, number), "1.0.0").unwrap();
                agent = agent.capability(capability.idempotent(kind == Kind::Idempotent), handler).unwrap();
            }
        }
        let endpoint = Endpoint::Unix(socket.to_owned());
        self.serving.spawn(agent.serve(endpoint, Options::default(), std::future::pending()));
        let client = client_of(socket).await;
        let query = capd::client::Query::new(
            name(Kind::Once, names[0]).parse::<capd_proto::capability::CapabilityName>().unwrap(),
        );
        let begin = Instant::now();
        while !client.query(&query).await.is_ok_and(|page| !page.offers.is_empty()) {
            assert!(begin.elapsed() < super::support::PATIENCE, "agent {seed} is not listed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// How often a call ran.
    pub fn executions(&self, number: u64) -> u32 {
        self.ran.lock().unwrap().get(&number).copied().unwrap_or(0)
    }
}

/// Callers that call all the time.
pub struct Traffic {
    shared: Arc<Shared>,
    callers: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    next: AtomicU64,
    during: Mutex<String>,
    ended: Mutex<Vec<Of>>,
}

impl Traffic {
    pub async fn start(sockets: impl Iterator<Item = PathBuf>, names: u8) -> Self {
        let shared = Arc::<Shared>::default();
        let mut callers = JoinSet::new();
        for (seed, socket) in (0_u64..).zip(sockets) {
            for task in 0..TASKS {
                let (shared, client) = (Arc::clone(&shared), client_of(&socket).await);
                callers.spawn(async move { shared.calls(&client, seed * TASKS + task, names).await });
            }
        }
        Self { shared, callers }
    }

    /// Awaits something; prints, and gives, how many calls ended meanwhile.
    pub async fn during(&mut self, what: &str, happens: impl Future<Output = ()>) -> usize {
        what.clone_into(&mut self.shared.during.lock().unwrap());
        let (before, begin) = (self.shared.ended.lock().unwrap().len(), Instant::now());
        happens.await;
        let count = self.shared.ended.lock().unwrap().len() - before;
        println!(
            "  {:6.0} calls/s  {what}",
            f64::from(u32::try_from(count).unwrap()) / begin.elapsed().as_secs_f64()
        );
        count
    }

    /// How the calls that have ended did.
    pub fn outcomes(&self) -> Vec<Of> {
        self.shared.ended.lock().unwrap().clone()
    }

    /// Ends the callers once their calls have ended.
    pub async fn stop(mut self) -> Vec<Of> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.callers.join_next().await {
            ended.unwrap();
        }
        self.outcomes()
    }
}

impl Shared {
    async fn calls(&self, client: &Client, seed: u64, names: u8) {
        let mut dice = seed;
        while !self.is_over.load(Ordering::Relaxed) {
            // The constants of Knuth's MMIX.
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let kind = if dice >> 63 == 0 { Kind::Once } else { Kind::Idempotent };
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let name = name(kind, ((dice >> 33) % u64::from(names)) as u8);
            let during = self.during.lock().unwrap().clone();
            let (outcome, error) = ended(client, &name, number).await;
            self.ended.lock().unwrap().push(Of { number, kind, outcome, error, during });
            tokio::time::sleep(PAUSE).await;
        }
    }
}

pub fn name(kind: Kind, number: u8) -> String {
    match kind {
        Kind::Once => format!("org.example.once-{number}"),
        Kind::Idempotent => format!("org.example.again-{number}"),
    }
}

pub async fn client_of(socket: &Path) -> Client {
    Client::connect(Endpoint::Unix(socket.to_owned()), Options::default()).await.unwrap()
}

/// How one call ends.
pub async fn call(client: &Client, name: &str, number: u64) -> Outcome {
    ended(client, name, number).await.0
}

async fn ended(client: &Client, name: &str, number: u64) -> (Outcome, Option<String>) {
    let options = CallOptions { timeout: Some(Duration::from_secs(20)), ..CallOptions::default() };
    match client.call_typed::<_, u8>(name, &number, options).await {
        Ok(_) => (Outcome::Success, None),
        Err(error) => {
            let outcome = match error.outcome() {
                Ended::Refused => Outcome::Refused,
                _ => Outcome::Unknown,
            };
            (outcome, Some(error.to_string()))
        }
    }
}

/// Calls at once of each caller, and the time between two of them.
const TASKS: u64 = 4;
const PAUSE: Duration = Duration::from_millis(20);
