//! Keeps the calls made over HTTP: their events and their outcome, for every request that asks.
//!
//! A call goes on whether or not its request still waits. Its last events and its outcome are kept for a while, within
//! bounds, so a client that lost its connection can come back for them.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capd_proto::cbor::json::to_json_text;
use capd_proto::envelope::MessageId;
use serde_json::json;
use tokio::sync::Notify;

use super::body::with_member;
use super::keys::Key;
use super::problem::Problem;
use super::sse::{Event, Source};
use super::{Api, call};
use crate::client::{Answer, CallHandle, ClientError, Progress};

/// The calls that are known.
pub(super) struct Calls {
    table: Mutex<Table>,
    running_max: AtomicUsize,
}

#[derive(Default)]
struct Table {
    calls: BTreeMap<MessageId, Arc<Call>>,
    /// Those that have ended, oldest first, and how large their results are.
    ended: VecDeque<(MessageId, usize)>,
    ended_bytes: usize,
}

/// One call.
pub(super) struct Call {
    pub(super) id: MessageId,
    /// What was called, as the request names it.
    pub(super) capability: String,
    said: Mutex<Said>,
    wake: Notify,
}

#[derive(Default)]
struct Said {
    /// Numbered from 1.
    events: VecDeque<(u64, Told)>,
    next: u64,
    end: Option<Arc<Ended>>,
}

/// One thing that a call says.
#[derive(Clone)]
pub(super) enum Told {
    Accepted,
    Progress(Progress),
    End,
}

/// How a call ended.
pub(super) struct Ended {
    pub(super) outcome: Result<Answer, ClientError>,
    /// Whether it is the recorded result of a call that ran before.
    pub(super) replayed: bool,
}

impl Ended {
    /// How much of it is kept.
    pub(super) fn bytes(&self) -> usize {
        self.outcome.as_ref().map_or(0, |answer| answer.result.len())
    }
}

impl Calls {
    pub(super) fn new(running_max: usize) -> Self {
        Self { table: Mutex::default(), running_max: AtomicUsize::new(running_max) }
    }

    /// Lets so many run at most from here on.
    pub(super) fn set_max(&self, running_max: usize) {
        self.running_max.store(running_max, Ordering::Relaxed);
    }

    /// The call of this id.
    pub(super) fn get(&self, id: &MessageId) -> Option<Arc<Call>> {
        self.table().calls.get(id).cloned()
    }

    /// Takes a call in. **Errors:** too many run.
    fn begin(&self, id: MessageId, capability: String) -> Result<Arc<Call>, Problem> {
        let mut table = self.table();
        let running_max = self.running_max.load(Ordering::Relaxed);
        if table.calls.len().saturating_sub(table.ended.len()) >= running_max {
            let detail = format!("{running_max} calls run already (limits.requests_waiting_max)");
            return Err(Problem::refused(capd_proto::code::Code::OVERLOADED, detail));
        }
        let call = Arc::new(Call::new(id, capability));
        // A call that is asked about again under its id takes the place of what was known of it.
        if table.calls.insert(id, Arc::clone(&call)).is_some() {
            table.forget_ended(&id);
        }
        Ok(call)
    }

    /// Keeps an ended call, and lets the oldest go.
    fn ended(&self, call: &Call, bytes: usize) {
        let mut table = self.table();
        // One that was asked about again in the meantime has taken its place.
        if table.calls.get(&call.id).is_none_or(|known| !std::ptr::eq(&**known, call)) {
            return;
        }
        table.ended.push_back((call.id, bytes));
        table.ended_bytes += bytes;
        while table.ended.len() > ENDED_MAX || (table.ended_bytes > ENDED_BYTES_MAX && table.ended.len() > 1)
        {
            let Some((id, bytes)) = table.ended.pop_front() else { break };
            table.ended_bytes -= bytes;
            table.calls.remove(&id);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // What a panic leaves half done is a call that is listed and not counted, or the other way around.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn forget_ended(&mut self, id: &MessageId) {
        if let Some(place) = self.ended.iter().position(|(ended, _)| ended == id)
            && let Some((_, bytes)) = self.ended.remove(place)
        {
            self.ended_bytes -= bytes;
        }
    }
}

impl Api {
    /// Follows a call that was sent to its end.
    pub(super) fn follow(
        self: &Arc<Self>,
        mut handle: CallHandle,
        capability: String,
        key: Option<&Arc<Key>>,
    ) -> Result<Arc<Call>, Problem> {
        let call = self.calls.begin(handle.id(), capability)?;
        call.tell(Told::Accepted);
        let (api, followed) = (Arc::clone(self), Arc::clone(&call));
        let key = key.map(|key| (Arc::clone(key), key.takes_first()));
        self.system.tasks.spawn(async move {
            while let Some(progress) = handle.progress().await {
                followed.tell(Told::Progress(progress));
            }
            let outcome = handle.outcome().await;
            let outcome = match &key {
                Some((key, is_first)) => api.conclude(key, outcome, *is_first).await,
                None => outcome,
            };
            let ended = Ended { outcome, replayed: false };
            let bytes = ended.bytes();
            followed.end(ended);
            api.calls.ended(&followed, bytes);
        });
        Ok(call)
    }

    /// A call that ended before, to be told once more.
    pub(super) fn replay(
        &self,
        id: MessageId,
        capability: String,
        ended: Ended,
    ) -> Result<Arc<Call>, Problem> {
        let call = self.calls.begin(id, capability)?;
        let bytes = ended.bytes();
        call.tell_ended(ended);
        self.calls.ended(&call, bytes);
        Ok(call)
    }
}

impl Call {
    pub(super) fn new(id: MessageId, capability: String) -> Self {
        Self { id, capability, said: Mutex::default(), wake: Notify::new() }
    }

    /// Says all that is known of a call that ended before.
    pub(super) fn tell_ended(&self, ended: Ended) {
        self.tell(Told::Accepted);
        self.end(ended);
    }

    fn tell(&self, told: Told) {
        let mut said = self.said();
        said.push(told);
        drop(said);
        self.wake.notify_waiters();
    }

    fn end(&self, ended: Ended) {
        let mut said = self.said();
        said.end = Some(Arc::new(ended));
        said.push(Told::End);
        drop(said);
        self.wake.notify_waiters();
    }

    /// How it ended, once it has.
    pub(super) fn is_ended(&self) -> Option<Arc<Ended>> {
        self.said().end.clone()
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) -> Arc<Ended> {
        loop {
            // Made before the look, so that an end between both is heard.
            let told = self.wake.notified();
            if let Some(ended) = self.is_ended() {
                return ended;
            }
            told.await;
        }
    }

    /// Waits for what it says behind that of this number; the end is said with how it ended. `None` behind the end.
    pub(super) async fn told_after(&self, after: u64) -> Option<(u64, Told, Option<Arc<Ended>>)> {
        loop {
            // Made before the look, so that what is said between both is heard.
            let told = self.wake.notified();
            match self.event_after(after) {
                Next::Told(number, what, ended) => return Some((number, what, ended)),
                Next::Over => return None,
                Next::Nothing => told.await,
            }
        }
    }

    /// Its first event behind that of this number, as far as it is kept.
    fn event_after(&self, after: u64) -> Next {
        let said = self.said();
        let found = said.events.iter().find(|(number, _)| *number > after).cloned();
        match (found, &said.end) {
            (Some((number, told)), end) => Next::Told(number, told, end.clone()),
            (None, Some(_)) => Next::Over,
            (None, None) => Next::Nothing,
        }
    }

    fn event(self: &Arc<Self>, number: u64, told: &Told, ended: Option<Arc<Ended>>) -> Event {
        let event = match (told, ended) {
            (Told::Accepted, _) | (Told::End, None) => {
                let data = json!({"call": self.id.to_string(), "capability": self.capability});
                Event::new("accepted", data.to_string())
            }
            (Told::Progress(progress), _) => {
                let (name, data) = progress_event(progress);
                Event::new(name, data)
            }
            (Told::End, Some(ended)) => {
                let call = Arc::clone(self);
                Event::of(ended.bytes(), move || end_event(&call, &ended))
            }
        };
        event.numbered(number)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        // It changes in single steps, so a panic leaves none half done.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Said {
    fn push(&mut self, told: Told) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.next += 1;
        self.events.push_back((self.next, told));
    }
}

enum Next {
    Told(u64, Told, Option<Arc<Ended>>),
    Nothing,
    Over,
}

/// The events of one call, from some number on.
pub(super) struct Events {
    pub(super) call: Arc<Call>,
    /// The number of the last one that was told.
    pub(super) after: u64,
}

impl Source for Events {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Event>> + Send + '_>> {
        Box::pin(async move {
            let (number, what, ended) = self.call.told_after(self.after).await?;
            self.after = number;
            Some(self.call.event(number, &what, ended))
        })
    }
}

fn progress_event(progress: &Progress) -> (&'static str, String) {
    let (name, data) = match progress {
        Progress::Processing { status_text, eta_ms, cancellable } => {
            ("processing", json!({"status_text": status_text, "eta_ms": eta_ms, "cancellable": cancellable}))
        }
        Progress::Progress { pct } => ("progress", json!({"progress_pct": pct})),
        Progress::InputRequired { prompt } => ("input_required", json!({"prompt": prompt})),
    };
    (name, data.to_string())
}

fn end_event(call: &Call, ended: &Ended) -> (&'static str, String) {
    let answer = match &ended.outcome {
        Ok(answer) => answer,
        Err(error) => return ("error", Problem::of_call(error, call.id).json().to_string()),
    };
    match to_json_text(&answer.result) {
        Err(_) => ("error", call::not_json(call.id).json().to_string()),
        Ok(result) => {
            let mut data = json!({"call": call.id.to_string()});
            data["capability"] = call::chosen(call, answer).into();
            data["execution_ms"] = answer.execution_time_ms.into();
            for (key, is_set) in [("deprecated", answer.is_deprecated), ("replayed", ended.replayed)] {
                if is_set {
                    data[key] = true.into();
                }
            }
            ("result", with_member(data.to_string(), "result", &result))
        }
    }
}

/// Events of one call that are kept; of a call that says more, the oldest go.
const EVENTS_MAX: usize = 256;
/// Ended calls whose outcome is kept, and how many bytes of results.
const ENDED_MAX: usize = 4_096;
const ENDED_BYTES_MAX: usize = 32 * 1024 * 1024;
