//! Runs one stream: calls in; each as an event to the agent, and its answer to the caller, out.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ahash::HashMap;
use bytes::Bytes;
use capd_proto::cbor::json::to_json;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::super::body::apart;
use super::super::sse::Event;
use crate::client::{Invocation, Reporter, WireError};
use crate::net::Tasks;

/// What names a stream. Nobody can guess it, and only its agent is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SessionId(pub(super) [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for SessionId {
    type Err = <MessageId as std::str::FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // It has the length and the spelling of a message's id.
        text.parse::<MessageId>().map(|id| Self(*id.as_bytes()))
    }
}

/// One stream.
pub(super) struct Session {
    pub(super) id: SessionId,
    events: mpsc::Sender<Event>,
    /// One permit for each call that the agent may have at once.
    slots: Semaphore,
    calls: Mutex<Calls>,
    tasks: Tasks,
}

#[derive(Default)]
struct Calls {
    running: HashMap<MessageId, Running>,
    /// How the last ones ended, oldest first.
    ended: VecDeque<(MessageId, Gone)>,
}

struct Running {
    answer: oneshot::Sender<Answer>,
    reporter: Reporter,
}

/// What an agent answers a call with.
pub(super) type Answer = Result<Bytes, WireError>;

/// Why a call takes no answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It was given one.
    Answered,
    /// It was cancelled, or nobody waits for it any more.
    Cancelled,
    /// Its time ran out.
    Late,
}

impl Gone {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Cancelled => "cancelled",
            Self::Late => "late",
        }
    }
}

impl Session {
    pub(super) fn new(id: SessionId, concurrency: usize, events: mpsc::Sender<Event>, tasks: Tasks) -> Self {
        Self { id, events, slots: Semaphore::new(concurrency), calls: Mutex::default(), tasks }
    }

    /// Gives a call to the agent once it has a place for it, and waits for the answer.
    pub(super) async fn serve(&self, invocation: Invocation) -> Answer {
        let time = invocation.deadline.saturating_duration_since(Instant::now());
        let _slot = self.slot(&invocation).await?;
        let params = invocation.params.clone();
        let params = apart(&self.tasks, params.len(), move || to_json(&params)).await.map_err(|fault| {
            let message = format!("params do not fit JSON: {fault}");
            WireError { code: Code::SCHEMA_VIOLATION, message, details: None }
        })?;
        let (answer, answered) = oneshot::channel();
        let running = Running { answer, reporter: invocation.reporter.clone() };
        self.calls().running.insert(invocation.id, running);
        if self.events.send(call(&invocation, params)).await.is_err() {
            self.end(invocation.id, Gone::Cancelled);
            return Err(error(Code::UNAVAILABLE, "the agent's stream ended"));
        }
        let gone = tokio::select! {
            biased;
            answer = answered => match answer {
                Ok(answer) => return answer,
                // Only `end` drops it unanswered, and that is called below.
                Err(_) => Gone::Cancelled,
            },
            () = invocation.cancelled.cancelled() => gone(&invocation, time),
        };
        self.end(invocation.id, gone);
        let data = json!({"id": invocation.id.to_string(), "reason": gone.as_str()});
        // An agent that does not read fast enough learns it when it answers.
        let _told = self.events.try_send(Event::new("cancel", data));
        Err(match gone {
            Gone::Late => error(Code::TIMEOUT, "the agent did not answer in time"),
            Gone::Cancelled | Gone::Answered => error(Code::CANCELLED, "the call was cancelled"),
        })
    }

    /// A place among the calls that the agent has.
    async fn slot(&self, invocation: &Invocation) -> Result<SemaphorePermit<'_>, WireError> {
        tokio::select! {
            biased;
            () = invocation.cancelled.cancelled() => Err(error(Code::CANCELLED, "the call was cancelled")),
            slot = self.slots.acquire() => slot.map_err(|_closed| error(Code::UNAVAILABLE, "the stream ended")),
            () = sleep_until(invocation.deadline) => Err(error(Code::TIMEOUT, "the agent had no place in time")),
        }
    }

    /// Answers a call. **Errors:** how it ended before; `None` for one that was never given to the agent.
    pub(super) fn answer(&self, id: MessageId, answer: Answer) -> Result<(), Option<Gone>> {
        let mut calls = self.calls();
        let Some(running) = calls.running.remove(&id) else { return Err(calls.gone(id)) };
        calls.note(id, Gone::Answered);
        drop(calls);
        running.answer.send(answer).map_err(|_cancelled| Some(Gone::Cancelled))
    }

    /// What tells the caller of a call how it goes. **Errors:** as [`Session::answer`].
    pub(super) fn reporter(&self, id: MessageId) -> Result<Reporter, Option<Gone>> {
        let calls = self.calls();
        let reporter = calls.running.get(&id).map(|running| running.reporter.clone());
        reporter.ok_or_else(|| calls.gone(id))
    }

    fn end(&self, id: MessageId, gone: Gone) {
        let mut calls = self.calls();
        if calls.running.remove(&id).is_some() {
            calls.note(id, gone);
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // The tables change in single steps, so a panic leaves none half done.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Calls {
    fn gone(&self, id: MessageId) -> Option<Gone> {
        self.ended.iter().rev().find_map(|(ended, gone)| (*ended == id).then_some(*gone))
    }

    fn note(&mut self, id: MessageId, gone: Gone) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((id, gone));
    }
}

fn call(invocation: &Invocation, params: Value) -> Event {
    let left = invocation.deadline.saturating_duration_since(Instant::now());
    let thread = invocation.thread_id.as_deref().map(thread);
    let data = json!({
        "id": invocation.id.to_string(),
        "capability": invocation.capability.name.as_str(),
        "version": invocation.capability.version.to_string(),
        "params": params,
        "deadline_ms": u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        "caller": invocation.from.as_str(),
        "thread": thread,
        "traceparent": invocation.trace.parent,
        "tracestate": invocation.trace.state,
    });
    Event::of(invocation.params.len(), move || ("call", data))
}

/// A thread's name: its text, or, of one that is none, its bytes in hexadecimal.
fn thread(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(text) => text.to_owned(),
        Err(_) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// Why a call of so much `time` was cancelled.
fn gone(invocation: &Invocation, time: Duration) -> Gone {
    // The sidecar cancels a call whose time is up as well, and its clock began before the call came here.
    let is_late = Instant::now() + LATE_MARGIN.min(time / 2) >= invocation.deadline;
    if is_late { Gone::Late } else { Gone::Cancelled }
}

fn error(code: Code, message: &str) -> WireError {
    WireError { code, message: message.to_owned(), details: None }
}

/// Ended calls that are remembered.
const ENDED_MAX: usize = 1_024;
/// How much earlier than it was told to us a call's time may be up.
const LATE_MARGIN: Duration = Duration::from_secs(1);
