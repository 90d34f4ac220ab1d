//! A sidecar that cannot be reached in; a link to it once it is there, within the time that its caller has, out.
//!
//! One [`Client`] is one link. Typed calls outlive it: they go on over the link that is opened in its place.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

use super::endpoint::Endpoint;
use super::{Client, ClientError, Core, Options};

/// How a client's link is opened anew.
pub(super) struct Again {
    endpoint: Endpoint,
    options: Options,
    /// The link in place of the first one, and of those after it.
    newest: Mutex<Option<Arc<Core>>>,
}

impl Again {
    pub(super) fn new(endpoint: Endpoint, options: Options) -> Arc<Self> {
        Arc::new(Self { endpoint, options, newest: Mutex::default() })
    }
}

impl Client {
    /// As [`connect`](Self::connect), and waits for a sidecar that is not there yet, as long as
    /// [`Options::wait`](super::Options::wait) says.
    ///
    /// **Errors:** those of [`connect`](Self::connect); a sidecar that turns the client away is not waited for.
    pub async fn connect_within(endpoint: Endpoint, options: Options) -> Result<Self, ClientError> {
        let until = later(Instant::now(), options.wait);
        reach(&endpoint, &options, until).await
    }

    /// A client of the sidecar that the environment names, as [`Endpoint::from_env`] finds it.
    ///
    /// **Errors:** those of [`Endpoint::from_env`] and of [`connect_within`](Self::connect_within).
    pub async fn from_env() -> Result<Self, ClientError> {
        Self::connect_within(Endpoint::from_env()?, Options::default()).await
    }

    /// This client, or one whose link was opened in place of its own.
    ///
    /// **Errors:** no sidecar is there until `until`; [`ClientError::Closed`] for a link that cannot be opened anew.
    pub(super) async fn live(&self, until: Instant) -> Result<Self, ClientError> {
        if !self.is_closed() {
            return Ok(self.clone());
        }
        let Some(again) = &self.again else {
            return Err(ClientError::Closed(self.core.dispatch.close_reason()));
        };
        // Whoever comes meanwhile waits for the same link.
        let newest = timeout_at(until, again.newest.lock()).await;
        let mut newest = newest.map_err(|_elapsed| unreachable_in_time(&again.endpoint))?;
        if let Some(core) = newest.as_ref().filter(|core| !core.link.is_closed()) {
            return Ok(Self { core: Arc::clone(core), again: Some(Arc::clone(again)) });
        }
        let client = reach(&again.endpoint, &again.options, until).await?;
        *newest = Some(Arc::clone(&client.core));
        Ok(Self { core: client.core, again: Some(Arc::clone(again)) })
    }

    /// Where its sidecar is.
    pub(super) fn place(&self) -> String {
        self.again.as_ref().map_or_else(|| "a byte stream".to_owned(), |again| again.endpoint.to_string())
    }

    /// How long this client waits for a sidecar that cannot be reached.
    pub(super) fn wait(&self) -> Duration {
        self.again.as_ref().map_or(Duration::ZERO, |again| again.options.wait)
    }
}

/// Connects, again and again with growing pauses, until `until`.
async fn reach(endpoint: &Endpoint, options: &Options, until: Instant) -> Result<Client, ClientError> {
    let mut pause = PAUSE_MIN;
    loop {
        let attempt = Client::connect(endpoint.clone(), options.clone());
        let error = match timeout_at(until, attempt).await {
            Ok(Ok(client)) => return Ok(client),
            Ok(Err(error)) => error,
            Err(_elapsed) => return Err(unreachable_in_time(endpoint)),
        };
        if !is_passing(&error) || Instant::now() + pause >= until {
            return Err(error);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether a sidecar may take the next attempt.
pub(super) const fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Connect { is_refused, .. } => !*is_refused,
        ClientError::Owner { .. }
        | ClientError::Refused(_)
        | ClientError::Result(_)
        | ClientError::Timeout { .. }
        | ClientError::Closed(_)
        | ClientError::Unsent(_)
        | ClientError::Answer(_)
        | ClientError::Invalid(_) => false,
    }
}

fn unreachable_in_time(endpoint: &Endpoint) -> ClientError {
    ClientError::Connect {
        place: endpoint.to_string(),
        reason: "it did not answer in time".to_owned(),
        is_refused: false,
        is_full: false,
    }
}

/// A moment that far off, or as far off as a moment may be.
pub(super) fn later(from: Instant, by: Duration) -> Instant {
    from.checked_add(by).unwrap_or_else(|| from + FAR)
}

/// The first pause between two attempts, and the longest.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(50);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(2);
/// In place of a time that has no end.
const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);
