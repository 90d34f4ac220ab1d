//! One call with its options in; its events and its one answer out, over as many links as that takes.
//!
//! A call is made again only where it cannot run twice: under its own id, or under its key, when the link was lost on the
//! way, and when its sidecar refused it and says when to come back.

use std::sync::Arc;
use std::time::Duration;

use capd_proto::envelope::MessageId;
use capd_proto::message::CancelState;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::again::{PAUSE_MAX, PAUSE_MIN, later};
use super::handle::Heard;
use super::typed::Event;
use super::{
    Answer, BuiltAgainst, CALL_GRACE, CallHandle, CallOptions, CallRequest, Client, ClientError, Progress,
    Target,
};

type Outcome = Result<Answer, ClientError>;

/// A call until its answer is there.
pub(super) struct Attempts {
    client: Client,
    /// Under one key, or from its first attempt on under one id.
    request: CallRequest,
    name: String,
    deadline: Option<Instant>,
    attempt: Option<CallHandle>,
    /// Whether an attempt was sent: from then on it may run.
    is_sent: bool,
    /// The call's id and what it calls, once they are known; and whether that was told.
    accepted: Option<(MessageId, String)>,
    /// Whether the sidecar has the call. One without a key is known by its id before.
    is_taken_in: bool,
    is_accepted_told: bool,
    /// What was heard before it could be told.
    held: Option<Progress>,
    schemas: Schemas,
    /// When the link was lost, if nothing was heard since.
    failing_since: Option<Instant>,
    pause: Duration,
    /// No attempt before this moment.
    not_before: Option<Instant>,
    end: Option<Outcome>,
    cancels_on_drop: bool,
}

/// Whether the sidecar was given what the call was built against.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Schemas {
    Presumed,
    Asked,
    Put,
}

impl Attempts {
    /// **Errors:** [`ClientError::Invalid`] for a name, a range or a key that is none.
    pub(super) fn new(
        client: &Client,
        name: &str,
        params: Vec<u8>,
        options: CallOptions,
    ) -> Result<Self, ClientError> {
        let target = target(name, options.version.as_deref())?;
        let mut request = CallRequest::new(target).params_cbor(params);
        request.timeout = options.timeout;
        request.thread_id = options.thread.map(|thread| thread.into_bytes().into());
        request.affinity = options.affinity.map(Into::into);
        let built = options.built_against.filter(|built| !built.is_empty());
        // A key that only this call knows is of use for as long as the call is.
        request.ttl = Some(options.timeout.map_or(OWN_TTL, |timeout| timeout.saturating_add(OWN_TTL_MARGIN)));
        if let Some(key) = options.key {
            if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
                return Err(ClientError::Invalid(format!(
                    "key {key:?}; accepted: 1 to {KEY_BYTES_MAX} bytes"
                )));
            }
            (request.key, request.ttl) = (Some(key.into()), None);
        } else if built.is_some() {
            // Repeated under an id alone, a call that ran could be refused for a drift that came after it.
            request.key = Some(fresh_key(client)?);
        }
        request.built_against = built;
        // What is wrong with them is told before anything is sent.
        request.ext()?;
        let deadline = options.timeout.map(|timeout| later(Instant::now(), timeout));
        Ok(Self { deadline, ..Self::of(client, request, name) })
    }

    /// A call that was made before, perhaps by another program. It is its maker's to cancel.
    pub(super) fn of_known(client: &Client, call: MessageId) -> Self {
        let request = CallRequest::known(call).ttl(OWN_TTL);
        // Its maker has sent it, so nothing that goes wrong here says that it was not executed.
        Self { cancels_on_drop: false, is_sent: true, ..Self::of(client, request, "") }
    }

    fn of(client: &Client, request: CallRequest, name: &str) -> Self {
        Self {
            client: client.clone(),
            request,
            name: name.to_owned(),
            deadline: None,
            attempt: None,
            is_sent: false,
            accepted: None,
            is_taken_in: false,
            is_accepted_told: false,
            held: None,
            schemas: Schemas::Presumed,
            failing_since: None,
            pause: PAUSE_MIN,
            not_before: None,
            end: None,
            cancels_on_drop: true,
        }
    }

    /// What the call says next; `None` once its end is there. Cancelling this future loses nothing.
    pub(super) async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.due() {
                return Some(event);
            }
            if self.end.is_some() {
                return None;
            }
            let Some(attempt) = &mut self.attempt else {
                self.make().await;
                continue;
            };
            let heard = attempt.heard().await;
            self.hear(heard);
        }
    }

    /// The one answer.
    pub(super) async fn answer(mut self) -> Outcome {
        while self.event().await.is_some() {}
        // There is one when no event follows.
        self.end.take().unwrap_or_else(|| Err(ClientError::Closed("the call has ended already".to_owned())))
    }

    /// The call's id, as soon as the sidecar has the call.
    pub(super) async fn accepted(&mut self) -> Result<MessageId, ClientError> {
        loop {
            if let Some((id, _)) = &self.accepted {
                return Ok(*id);
            }
            if let Some(end) = &self.end {
                return Err(end.as_ref().err().cloned().unwrap_or_else(|| {
                    ClientError::Answer("the sidecar names no call for the key".to_owned())
                }));
            }
            let Some(attempt) = &mut self.attempt else {
                self.make().await;
                continue;
            };
            let heard = attempt.heard().await;
            self.hear(heard);
        }
    }

    pub(super) fn id(&self) -> Option<MessageId> {
        self.accepted.as_ref().map(|(id, _)| *id).or(self.request.known_call())
    }

    /// As [`CallHandle::cancel`]; a call of which nothing was sent is unknown.
    pub(super) async fn cancel(&self) -> Result<CancelState, ClientError> {
        match &self.attempt {
            Some(attempt) => attempt.cancel().await,
            None => Ok(CancelState::Unknown),
        }
    }

    pub(super) fn keep_on_drop(&mut self) {
        self.cancels_on_drop = false;
        if let Some(attempt) = &mut self.attempt {
            attempt.keep_on_drop();
        }
    }

    /// What is to be told before anything else is listened for.
    fn due(&mut self) -> Option<Event> {
        if !self.is_accepted_told
            && let Some((call, capability)) = self.accepted.clone()
            && (self.is_taken_in || self.has_run())
        {
            self.is_accepted_told = true;
            return Some(Event::Accepted { call, capability });
        }
        self.held.take().map(Event::from)
    }

    /// Whether it has ended, and not by being refused.
    fn has_run(&self) -> bool {
        self.end.as_ref().is_some_and(|end| match end {
            Ok(_) => true,
            Err(error) => error.outcome() != super::Outcome::Refused,
        })
    }

    fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Accepted(accepted) => {
                (self.failing_since, self.pause, self.is_taken_in) = (None, PAUSE_MIN, true);
                let capability = accepted.capability.unwrap_or_else(|| self.name.clone());
                self.accepted = Some((accepted.call, capability));
            }
            Heard::Progress(progress) => {
                (self.failing_since, self.pause, self.is_taken_in) = (None, PAUSE_MIN, true);
                self.held = Some(progress);
            }
            Heard::End(outcome) => {
                self.attempt = None;
                self.judge(outcome);
            }
        }
    }

    /// Ends the call, or says when it is made again.
    fn judge(&mut self, outcome: Outcome) {
        let error = match outcome {
            Err(error) => error,
            Ok(answer) => return self.end = Some(Ok(answer)),
        };
        let now = Instant::now();
        let pause = match &error {
            // The call was refused, not the question for it.
            ClientError::Refused(_) if self.request.known_call().is_some() && self.is_taken_in => None,
            ClientError::Refused(refusal) => {
                let is_unknown =
                    refusal.details_json().is_some_and(|details| details["unknown_schemas"].is_array());
                if is_unknown && self.request.built_against.is_some() && self.schemas == Schemas::Presumed {
                    return self.schemas = Schemas::Asked;
                }
                refusal.retry_after()
            }
            // Its sidecar says that it runs, and when to ask again.
            ClientError::Result(state) if self.request.known_call().is_some() && !state.is_final() => {
                self.failing_since = None;
                let seconds =
                    state.details_json().and_then(|details| details["retry_after_seconds"].as_u64());
                seconds.map(Duration::from_secs)
            }
            // It runs longer than one question for it waits.
            ClientError::Timeout { .. } if self.request.known_call().is_some() => Some(Duration::ZERO),
            ClientError::Closed(_) => {
                let pause = self.pause;
                self.pause = (pause * 2).min(PAUSE_MAX);
                Some(pause)
            }
            _ => None,
        };
        let since = *self.failing_since.get_or_insert(now);
        match pause.map(|pause| later(now, pause)) {
            Some(at) if at < self.until(since) => self.not_before = Some(at),
            Some(_) | None => self.end = Some(Err(self.said_of(error))),
        }
    }

    /// A link that was lost before anything was sent has refused the call.
    fn said_of(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::Closed(reason) if !self.is_sent => {
                ClientError::Connect { place: self.client.place(), reason, is_refused: false, is_full: false }
            }
            ClientError::Connect { reason, .. } if self.is_sent => ClientError::Closed(reason),
            error => error,
        }
    }

    /// Until when it is tried again: the call's own time, or as long as the client waits for a sidecar.
    fn until(&self, since: Instant) -> Instant {
        self.deadline.unwrap_or_else(|| later(since, self.client.wait()))
    }

    /// Makes the call over a link that is open.
    async fn make(&mut self) {
        if let Some(at) = self.not_before {
            sleep_until(at).await;
            self.not_before = None;
        }
        let until = self.until(self.failing_since.unwrap_or_else(Instant::now));
        let client = match self.client.live(until).await {
            Ok(client) => client,
            Err(error) => return self.end = Some(Err(self.said_of(error))),
        };
        if let (Schemas::Asked, Some(built)) = (self.schemas, self.request.built_against) {
            if let Err(error) = put(&client, &built).await {
                return self.judge(Err(error));
            }
            self.schemas = Schemas::Put;
        }
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.request.wait = left.map(|left| left.saturating_add(CALL_GRACE));
        match client.call(self.request.clone()) {
            Ok(mut attempt) => {
                self.is_sent = true;
                if self.cancels_on_drop {
                    attempt.cancel_on_drop();
                }
                if self.request.key.is_none() && self.request.known_call().is_none() {
                    self.request.id = Some(attempt.id());
                    self.accepted.get_or_insert((attempt.id(), self.name.clone()));
                }
                self.attempt = Some(attempt);
            }
            Err(error) => self.judge(Err(error)),
        }
    }
}

impl std::fmt::Debug for Attempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempts").field("name", &self.name).field("call", &self.id()).finish_non_exhaustive()
    }
}

async fn put(client: &Client, built: &BuiltAgainst) -> Result<(), ClientError> {
    for schema in built.sides().iter().flatten() {
        client.put_schema(schema).await?;
    }
    Ok(())
}

/// A name with or without a version, and perhaps a range.
fn target(text: &str, version: Option<&str>) -> Result<Target, ClientError> {
    let invalid = |error: &dyn std::fmt::Display| ClientError::Invalid(format!("{text:?}: {error}"));
    if text.contains(':') {
        if version.is_some() {
            return Err(invalid(&"an id has its version already; give a range with a name only"));
        }
        return Ok(Target::Id(text.parse().map_err(|error| invalid(&error))?));
    }
    let name = text.parse().map_err(|error| invalid(&error))?;
    match version {
        None => Ok(Target::newest(name)),
        Some(range) => {
            let parsed = range.parse();
            let range =
                parsed.map_err(|error| ClientError::Invalid(format!("version {range:?}: {error}")))?;
            Ok(Target::in_range(name, range))
        }
    }
}

/// A key that nobody else has.
fn fresh_key(client: &Client) -> Result<Arc<str>, ClientError> {
    let random: [u8; 16] =
        client.core.system.random.bytes().map_err(|error| ClientError::Unsent(error.to_string()))?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(digits.into())
}

/// The JSON of a result. **Errors:** [`ClientError::Answer`] for one that has no place in JSON.
pub(super) fn json(answer: &Answer) -> Result<Value, ClientError> {
    let json = answer.json();
    json.ok_or_else(|| ClientError::Answer("the result is CBOR that JSON has no form for".to_owned()))
}

/// Longest key. **Units:** bytes. **Source:** AGENT-API 3.
const KEY_BYTES_MAX: usize = 255;
/// How long a call that has no key of its caller's may be asked about: an hour, or its timeout and this.
const OWN_TTL: Duration = Duration::from_secs(3_600);
const OWN_TTL_MARGIN: Duration = Duration::from_secs(300);
