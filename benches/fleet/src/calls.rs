//! Callers that call at one rate all the while; how each call ended out.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use capd::client::{CallOptions, Client, Endpoint, Options, Outcome as Ended};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, sleep};

use crate::random::Random;

/// Whether a call may run more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Once,
    Again,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    /// Nothing was executed, its sidecar says.
    Refused,
    /// It is not known whether it ran: interrupted, or no answer in time.
    Unknown,
}

/// One call that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) number: u64,
    /// Whose sidecar made it.
    pub(crate) caller: usize,
    pub(crate) kind: Kind,
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
    pub(crate) outcome: Outcome,
    /// For who reads of a call that was lost.
    #[allow(dead_code, reason = "it is told with the whole call")]
    pub(crate) error: Option<String>,
}

/// All callers.
pub(crate) struct Traffic {
    shared: Arc<Shared>,
    callers: JoinSet<()>,
}

struct Shared {
    begin: Instant,
    is_paused: AtomicBool,
    is_over: AtomicBool,
    /// The callers below this number have begun.
    begun: AtomicUsize,
    /// Those of them of whose calls one has ended.
    warm: AtomicUsize,
    next: AtomicU64,
    /// Calls that were due and not made, as their caller had too many in flight.
    held_back: AtomicU64,
    ended: Mutex<Vec<Call>>,
}

/// Who calls what.
pub(crate) struct Caller {
    pub(crate) socket: PathBuf,
    pub(crate) names: Vec<String>,
}

impl Traffic {
    /// Starts callers that together make `rate` calls a second, once they are not paused any more.
    pub(crate) fn start(begin: Instant, callers: Vec<Caller>, rate: f64, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            begin,
            is_paused: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
            warm: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
            ended: Mutex::default(),
        });
        let period = Duration::from_secs_f64(callers.len() as f64 / rate);
        let mut random = Random::new(seed);
        let mut tasks = JoinSet::new();
        for (at, caller) in callers.into_iter().enumerate() {
            let (shared, random) = (Arc::clone(&shared), random.fork());
            tasks.spawn(shared.calls(at, caller, period, random));
        }
        Self { shared, callers: tasks }
    }

    /// Lets callers begin one after the other, a few at a time, as machines that start do: the first call of each name opens
    /// links, which on one machine take the processors of all.
    pub(crate) async fn begin(&self) {
        self.pause(false);
        while self.shared.warm.load(Ordering::Relaxed) < self.callers.len() {
            let most = self.shared.warm.load(Ordering::Relaxed) + BEGIN_AT_ONCE;
            let next = self.shared.begun.load(Ordering::Relaxed) + 1;
            self.shared.begun.store(next.min(most), Ordering::Relaxed);
            sleep(BEGIN_EVERY).await;
        }
    }

    /// Makes no calls, or goes on.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.shared.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Time since the run began.
    pub(crate) fn now(&self) -> Duration {
        self.shared.begin.elapsed()
    }

    /// How many calls were answered so far.
    pub(crate) fn answered(&self) -> usize {
        let ended = self.shared.ended.lock().unwrap();
        ended.iter().filter(|call| call.outcome == Outcome::Answered).count()
    }

    /// Calls answered in each second, over a time.
    pub(crate) async fn rate_during(&self, span: Duration) -> f64 {
        let (before, begin) = (self.answered(), Instant::now());
        sleep(span).await;
        (self.answered() - before) as f64 / begin.elapsed().as_secs_f64()
    }

    /// Makes one call beside the others, under the next number.
    pub(crate) async fn call(&self, client: &Client, name: &str) -> bool {
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        ended(client, name, number).await.0 == Outcome::Answered
    }

    /// Ends the callers once their calls have ended: all of them, and how many were held back.
    pub(crate) async fn stop(mut self) -> (Vec<Call>, u64) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        while let Some(ended) = self.callers.join_next().await {
            ended.unwrap();
        }
        let ended = std::mem::take(&mut *self.shared.ended.lock().unwrap());
        (ended, self.shared.held_back.load(Ordering::Relaxed))
    }
}

impl Shared {
    async fn calls(self: Arc<Self>, at: usize, caller: Caller, period: Duration, mut random: Random) {
        let endpoint = Endpoint::Unix(caller.socket);
        let client = Client::connect_within(endpoint, Options::default()).await.unwrap();
        let micros = u64::try_from(period.as_micros()).expect("it is short").max(1);
        let first = tokio::time::Instant::now() + Duration::from_micros(random.below(micros));
        let mut due = interval_at(first, period);
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut in_flight = JoinSet::new();
        let is_warm = Arc::new(AtomicBool::new(false));
        while !self.is_over.load(Ordering::Relaxed) {
            due.tick().await;
            while let Some(ended) = in_flight.try_join_next() {
                ended.unwrap();
            }
            if self.is_paused.load(Ordering::Relaxed) || at >= self.begun.load(Ordering::Relaxed) {
                continue;
            }
            if in_flight.len() >= IN_FLIGHT_MAX {
                self.held_back.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let kind = if random.once_in(ONCE_IN) { Kind::Once } else { Kind::Again };
            let chosen = random.below(caller.names.len() as u64) as usize;
            let name = name(kind, &caller.names[chosen]);
            let (shared, client) = (Arc::clone(&self), client.clone());
            let is_warm = Arc::clone(&is_warm);
            in_flight.spawn(async move {
                shared.one(at, &client, kind, &name).await;
                if !is_warm.swap(true, Ordering::Relaxed) {
                    shared.warm.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while let Some(ended) = in_flight.join_next().await {
            ended.unwrap();
        }
    }

    async fn one(&self, caller: usize, client: &Client, kind: Kind, name: &str) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let begin = self.begin.elapsed();
        let (outcome, error) = ended(client, name, number).await;
        let end = self.begin.elapsed();
        self.ended.lock().unwrap().push(Call { number, caller, kind, begin, end, outcome, error });
    }
}

async fn ended(client: &Client, name: &str, number: u64) -> (Outcome, Option<String>) {
    let options = CallOptions { timeout: Some(TIMEOUT), ..CallOptions::default() };
    match client.call_typed::<_, u64>(name, &number, options).await {
        Ok(answer) => {
            assert_eq!(answer, number, "the answer is another call's");
            (Outcome::Answered, None)
        }
        Err(error) => {
            let outcome = match error.outcome() {
                Ended::Refused => Outcome::Refused,
                Ended::Failed | Ended::Unknown | Ended::Pending => Outcome::Unknown,
            };
            (outcome, Some(format!("{}: {error}", error.code())))
        }
    }
}

/// A capability of a kind, under a name that it shares with the other kind.
pub(crate) fn name(kind: Kind, of: &str) -> String {
    match kind {
        Kind::Once => format!("org.example.once-{of}"),
        Kind::Again => format!("org.example.again-{of}"),
    }
}

/// How long a call may take: longer than a busy machine stalls.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// One call in so many may run only once.
const ONCE_IN: u64 = 4;
/// Callers whose first call is out at one time.
const BEGIN_AT_ONCE: usize = 16;
/// Between the beginnings of two callers.
const BEGIN_EVERY: Duration = Duration::from_millis(300);
/// Calls of one caller in flight.
const IN_FLIGHT_MAX: usize = 128;
