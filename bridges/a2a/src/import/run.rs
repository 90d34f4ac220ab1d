//! Keeps an agent's skills served: its card, read again and again, and a lock file in; calls served, out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_bridge::http::client::{HttpClient, Place};
use capd_bridge::import::served::{Caller, Import, ImportError, Outcome, Served, ServedOptions};
use capd_bridge::sidecar::Sidecar;
use capd_client::{Invocation, value_of_json};
use hyper::Method;
use hyper::header::ACCEPT;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::KIND;
use super::agent::Agent;
use super::call::{self, Current};
use super::remote::Remote;

/// What is imported, and how.
#[derive(Debug)]
pub struct ImportOptions {
    /// What is served of it.
    pub served: ServedOptions,
    /// The agent, or its card.
    pub place: Place,
    /// How it is asked.
    pub client: HttpClient,
    /// Whether the card may name an interface at another origin.
    pub any_origin: bool,
}

/// Calls the agent as its card was last.
struct Calls(Current);

impl Caller for Calls {
    fn call(&self, served: Arc<Served>, invocation: Invocation) -> Outcome {
        let current = self.0.clone();
        Box::pin(async move { call::call(&served, current, invocation).await })
    }
}

/// Imports until `stopped`.
///
/// **Errors:** [`ImportError`]; an agent that cannot be reached is asked again instead.
pub async fn import(
    sidecar: &Sidecar,
    options: ImportOptions,
    stopped: &CancellationToken,
) -> Result<(), ImportError> {
    let (agent, current) = watch::channel(None);
    let import = Import::new(&KIND, sidecar, options.served, Arc::new(Calls(current)));
    let card = if options.place.path().ends_with(".json") {
        options.place.clone()
    } else {
        options.place.below(CARD)
    };
    let mut bridge = Bridge {
        http: Arc::new(options.client),
        card,
        any_origin: options.any_origin,
        agent,
        import,
        told: String::new(),
    };
    // A wrong socket is told before anything is asked.
    bridge.import.declare_known().await?;
    tokio::select! {
        ended = bridge.run() => ended,
        () = stopped.cancelled() => Ok(()),
    }
}

struct Bridge<'a> {
    http: Arc<HttpClient>,
    card: Place,
    any_origin: bool,
    agent: watch::Sender<Option<Arc<Remote>>>,
    import: Import<'a>,
    /// What was wrong with the card last.
    told: String,
}

impl Bridge<'_> {
    async fn run(&mut self) -> Result<(), ImportError> {
        let mut pause = PAUSE_MIN;
        loop {
            let wait = match self.read().await {
                Ok(agent) => {
                    self.told.clear();
                    self.take(agent).await?;
                    pause = PAUSE_MIN;
                    CARD_EVERY
                }
                Err(why) => {
                    if why != self.told {
                        tracing::error!(card = %self.card, error = why, "the agent's card cannot be used; trying again");
                        self.told = why;
                    }
                    pause = (pause * 2).min(CARD_EVERY);
                    pause
                }
            };
            let until = tokio::time::Instant::now() + wait;
            while timeout_until(until, self.import.changed()).await {
                self.import.renew().await?;
            }
        }
    }

    async fn take(&mut self, agent: Agent) -> Result<(), ImportError> {
        let remote = Remote::new(Arc::clone(&self.http), &agent);
        let is_first = self.agent.borrow().is_none();
        let (listed, signer) = (agent.listed, agent.signer);
        self.import.take(listed, signer.clone()).await?;
        // Only once its signer is known to be the one that was approved.
        self.agent.send_if_modified(|known| {
            let is_same = known.as_ref().is_some_and(|known| known.is_as(&remote));
            if !is_same {
                *known = Some(Arc::new(remote));
            }
            !is_same
        });
        if is_first {
            let signer = signer.unwrap_or_else(|| "nobody".to_owned());
            tracing::info!(skills = self.import.tools_len(), signer, "the agent's skills are served");
        }
        Ok(())
    }

    async fn read(&self) -> Result<Agent, String> {
        let asked = async {
            let head = [(ACCEPT, "application/json")];
            let answer = self.http.exchange(Method::GET, &self.card, &head, Bytes::new()).await?;
            let status = answer.status;
            answer.bytes(CARD_BYTES_MAX).await.map(|body| (status, body))
        };
        let answer = timeout(READ_WAIT, asked).await.map_err(|_| "no answer came in time".to_owned())?;
        let (status, body) = answer.map_err(|error| error.to_string())?;
        if !status.is_success() {
            return Err(format!("the answer is {status}"));
        }
        let card: Value = value_of_json(&body).map_err(|error| format!("it is not JSON: {error}"))?;
        Agent::read(&card, &self.card, self.any_origin)
    }
}

/// Whether the future was ready before the moment.
async fn timeout_until(until: tokio::time::Instant, future: impl Future<Output = ()>) -> bool {
    tokio::select! {
        biased;
        () = future => true,
        () = sleep(until.saturating_duration_since(tokio::time::Instant::now())) => false,
    }
}

/// Where a card is.
const CARD: &str = "/.well-known/agent-card.json";
const CARD_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How often a card is read.
const CARD_EVERY: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const READ_WAIT: Duration = Duration::from_secs(30);
