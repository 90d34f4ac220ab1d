//! Posts one call's params as JSON to a listening program, and reads its answer as a result or a typed error.
//!
//! The program is on loopback or behind a unix socket, unless its owner allows another place. Each call has its own
//! connection, and its request is written once: nothing here follows a redirect or sends a request again. If a
//! connection breaks after the request may have been read, the outcome of the call is unknown, unless its capability is
//! idempotent.

mod exchange;
mod headers;
mod place;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capd_proto::code::Code;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::ticket::Ticket;
use super::{CallKey, Invocation, Outcome, Provider};
pub use headers::{HeadersError, load as load_headers};
pub use place::{Place, PlaceError};

/// How a capability's calls are posted, and how many at once.
#[derive(Clone, Debug)]
pub struct HttpSpec {
    /// The program.
    pub place: Place,
    /// Additional fields of every request; they may be secrets.
    pub headers: Vec<(axum::http::HeaderName, axum::http::HeaderValue)>,
    /// Whether running a call again is harmless.
    pub idempotent: bool,
    /// Most requests at once; at least 1 is used.
    pub concurrency: usize,
    /// Most calls waiting for one of them to end.
    pub queue_max: usize,
    /// Largest answer. **Units:** bytes.
    pub answer_bytes_max: usize,
}

/// A capability that a listening program serves.
pub struct HttpProvider {
    shared: Arc<Shared>,
    spawn: Spawn,
}

struct Shared {
    spec: HttpSpec,
    /// One permit for each call that runs or waits.
    admission: Semaphore,
    /// One permit for each call that runs.
    slots: Semaphore,
    running: Mutex<HashMap<CallKey, CancellationToken>>,
}

/// Runs a task to its end.
type Spawn = Box<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

impl HttpProvider {
    /// A provider for `spec`; `spawn` runs a task for each of its calls.
    pub fn new(mut spec: HttpSpec, spawn: Spawn) -> Self {
        spec.concurrency = spec.concurrency.clamp(1, CONCURRENCY_MAX);
        spec.queue_max = spec.queue_max.min(CONCURRENCY_MAX);
        let shared = Shared {
            admission: Semaphore::new(spec.concurrency + spec.queue_max),
            slots: Semaphore::new(spec.concurrency),
            running: Mutex::default(),
            spec,
        };
        Self { shared: Arc::new(shared), spawn }
    }
}

impl Provider for HttpProvider {
    fn invoke(&self, invocation: Invocation, ticket: Ticket) {
        let cancel = CancellationToken::new();
        let shared = Arc::clone(&self.shared);
        lock(&shared.running).insert(invocation.key.clone(), cancel.clone());
        (self.spawn)(Box::pin(async move {
            let outcome = tokio::select! {
                biased;
                // The call has ended already, and what comes of its request is answered by nobody.
                () = cancel.cancelled() => Outcome::Lost,
                outcome = shared.run(&invocation) => outcome,
            };
            lock(&shared.running).remove(&invocation.key);
            ticket.finish(outcome);
        }));
    }

    fn cancel(&self, key: &CallKey) {
        if let Some(cancel) = lock(&self.shared.running).get(key) {
            cancel.cancel();
        }
    }

    fn in_flight(&self) -> usize {
        lock(&self.shared.running).len()
    }
}

impl Shared {
    /// Posts a call once there is a place for it. Its time is the executor's to watch, which cancels it.
    async fn run(&self, invocation: &Invocation) -> Outcome {
        let Ok(_admitted) = self.admission.try_acquire() else {
            let (running, waiting) = (self.spec.concurrency, self.spec.queue_max);
            let message = format!("the provider has no capacity: {running} calls run, {waiting} wait");
            return failure(Code::OVERLOADED, message);
        };
        let Ok(_slot) = self.slots.acquire().await else {
            return failure(Code::UNAVAILABLE, "the provider is gone".to_owned());
        };
        exchange::exchange(&self.spec, invocation).await
    }
}

fn failure(code: Code, message: String) -> Outcome {
    Outcome::Failure { code, message }
}

fn lock(
    running: &Mutex<HashMap<CallKey, CancellationToken>>,
) -> MutexGuard<'_, HashMap<CallKey, CancellationToken>> {
    // The table changes in single steps, so a panic leaves none half done.
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Most requests or waiting calls of one capability; a configuration above it is read as this.
const CONCURRENCY_MAX: usize = 65_536;
