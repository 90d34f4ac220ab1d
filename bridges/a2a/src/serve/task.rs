//! One call as a task: what the call says in; the task's status, and what came of it, out.
//!
//! ```text
//! SUBMITTED ──► WORKING ◄──► INPUT_REQUIRED
//!     │            │               │
//!     └────────────┴───────┬───────┘
//!                          ▼
//!    COMPLETED · FAILED · CANCELED · REJECTED (refused: nothing was executed)
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use a2a::{
    Artifact, Message, Part, Role, StreamResponse, Task as WireTask, TaskArtifactUpdateEvent, TaskState,
    TaskStatus, TaskStatusUpdateEvent,
};
use capd_bridge::import::served::is_not_executed;
use capd_client::{Answer, ClientError, Event, Outcome, WireError};
use capd_proto::code::Code;
use chrono::DateTime;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::card::JSON;
use super::record::Record;
use crate::extension;

/// A task, and whoever listens to it.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) record: Record,
    pub(super) status: watch::Sender<Status>,
}

/// How a task is at a moment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Status {
    pub(super) state: TaskState,
    /// **Units:** milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
    /// Words for people.
    said: Option<String>,
    /// How much is done. **Units:** percent.
    pct: Option<u8>,
    /// What came of it, once it has ended; none also when it is remembered no longer, and the sidecar is to be asked.
    pub(super) end: Option<Arc<End>>,
}

/// What came of a task.
#[derive(Debug, PartialEq)]
pub(super) struct End {
    state: TaskState,
    said: Option<String>,
    result: Option<Part>,
    /// The extension's part of the metadata.
    facts: Value,
    /// About how much of memory it takes.
    pub(super) bytes: usize,
}

impl Status {
    pub(super) const fn new(state: TaskState, at_ms: u64) -> Self {
        Self { state, at_ms, said: None, pct: None, end: None }
    }

    /// Takes in what the call says.
    pub(super) fn hear(&mut self, event: Event, at_ms: u64) {
        if self.state.is_terminal() {
            return;
        }
        self.at_ms = at_ms;
        (self.state, self.said) = match event {
            Event::Accepted { .. } => return,
            Event::Processing { status_text, .. } => (TaskState::Working, status_text),
            Event::Progress { pct } => {
                self.pct = Some(pct);
                (TaskState::Working, self.said.take())
            }
            Event::InputRequired { prompt } => (TaskState::InputRequired, Some(prompt)),
        };
    }

    /// Takes in how the call ended.
    pub(super) fn end(&mut self, end: End, at_ms: u64) {
        if !self.state.is_terminal() {
            self.at_ms = at_ms;
            self.state = end.state.clone();
        }
        // What is read once more from the sidecar is how it ended, or no word about it.
        if self.state == end.state {
            self.end = Some(Arc::new(end));
        }
    }

    /// Whether nothing more comes before somebody does something.
    pub(super) fn is_settled(&self) -> bool {
        self.state.is_terminal() || self.state == TaskState::InputRequired
    }
}

impl End {
    /// What a call's end says.
    pub(super) fn of(outcome: &Result<Answer, ClientError>) -> Self {
        match outcome {
            Ok(answer) => Self::done(answer),
            Err(error) => Self::failed(error),
        }
    }

    /// The sidecar no longer knows the call.
    pub(super) fn forgotten(error: &WireError) -> Self {
        Self::failed(&ClientError::Closed(error.message.clone()))
    }

    fn done(answer: &Answer) -> Self {
        let result = match answer.json() {
            Some(value) => Part::data(value).with_media_type(JSON),
            None => Part::raw(answer.result.to_vec()).with_media_type("application/cbor"),
        };
        let mut facts = json!({"outcome": "executed", "replayed": answer.is_replayed});
        if let Some(ms) = answer.execution_time_ms {
            facts["executionMs"] = ms.into();
        }
        if answer.is_deprecated {
            facts["deprecated"] = true.into();
        }
        let bytes = answer.result.len();
        Self { state: TaskState::Completed, said: None, result: Some(result), facts, bytes }
    }

    fn failed(error: &ClientError) -> Self {
        let (code, details) = match error {
            ClientError::Refused(error) | ClientError::Result(error) => (error.code, error.details_json()),
            error => (error.code(), None),
        };
        let outcome = match error.outcome() {
            // A sidecar says 5002 as well of a provider that left in the middle.
            Outcome::Failed if code == Code::UNAVAILABLE && !is_not_executed(details.as_ref()) => {
                Outcome::Unknown
            }
            outcome => outcome,
        };
        let state = match (outcome, code) {
            (Outcome::Refused, _) => TaskState::Rejected,
            (Outcome::Failed, Code::CANCELLED) => TaskState::Canceled,
            (Outcome::Failed | Outcome::Unknown | Outcome::Pending, _) => TaskState::Failed,
        };
        let said = words(outcome, code, error);
        let mut facts = json!({"outcome": outcome.as_str(), "code": code.0});
        if let Some(details) = details {
            facts["details"] = details;
        }
        let bytes = said.len() + facts.to_string().len();
        Self { state, said: Some(said), result: None, facts, bytes }
    }
}

impl Task {
    pub(super) fn new(record: Record, status: Status) -> Arc<Self> {
        Arc::new(Self { record, status: watch::Sender::new(status) })
    }

    /// The task as the protocol has it.
    pub(super) fn wire(&self, status: &Status, with_artifacts: bool) -> WireTask {
        let artifacts = status.end.as_ref().and_then(|end| self.artifact(end)).filter(|_| with_artifacts);
        WireTask {
            id: self.record.task.clone(),
            context_id: self.record.context.clone(),
            status: self.wire_status(status),
            artifacts: artifacts.map(|artifact| vec![artifact]),
            history: None,
            metadata: Some(self.metadata(status)),
        }
    }

    /// What those who listen are told when the status has changed.
    pub(super) fn updates(&self, before: &Status, status: &Status) -> Vec<StreamResponse> {
        let mut updates = Vec::new();
        let is_news = before.end.is_none();
        if let Some(artifact) = status.end.as_ref().filter(|_| is_news).and_then(|end| self.artifact(end)) {
            updates.push(StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                task_id: self.record.task.clone(),
                context_id: self.record.context.clone(),
                artifact,
                append: Some(false),
                last_chunk: Some(true),
                metadata: None,
            }));
        }
        updates.push(StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id: self.record.task.clone(),
            context_id: self.record.context.clone(),
            status: self.wire_status(status),
            metadata: Some(self.metadata(status)),
        }));
        updates
    }

    fn wire_status(&self, status: &Status) -> TaskStatus {
        let said = status.end.as_ref().map_or(status.said.as_ref(), |end| end.said.as_ref());
        let message = said.map(|text| Message {
            message_id: format!("{}-{}", self.record.task, status.at_ms),
            context_id: Some(self.record.context.clone()),
            task_id: Some(self.record.task.clone()),
            ..Message::new(Role::Agent, vec![Part::text(text.as_str())])
        });
        let timestamp = i64::try_from(status.at_ms).ok().and_then(DateTime::from_timestamp_millis);
        TaskStatus { state: status.state.clone(), message, timestamp }
    }

    fn artifact(&self, end: &End) -> Option<Artifact> {
        Some(Artifact {
            artifact_id: "result".to_owned(),
            name: Some("result".to_owned()),
            description: None,
            parts: vec![end.result.clone()?],
            metadata: None,
            extensions: None,
        })
    }

    fn metadata(&self, status: &Status) -> HashMap<String, Value> {
        let mut facts = status.end.as_ref().map_or_else(|| json!({}), |end| end.facts.clone());
        facts["capability"] = self.record.capability.as_str().into();
        if let Some(pct) = status.pct.filter(|_| status.end.is_none()) {
            facts["pct"] = pct.into();
        }
        HashMap::from([(extension::URI.to_owned(), facts)])
    }
}

/// What happened, so that a reader can decide whether to repeat it.
fn words(outcome: Outcome, code: Code, error: &ClientError) -> String {
    let wire = match error {
        ClientError::Refused(error) | ClientError::Result(error) => Some(error),
        _ => None,
    };
    let named = named(code, &wire.map_or_else(|| error.to_string(), |error| error.message.clone()));
    let places = wire.map(places).unwrap_or_default();
    match (outcome, code) {
        (Outcome::Refused, _) => format!("Not executed: {named}.{places}"),
        (Outcome::Failed, Code::CANCELLED) => {
            "Cancelled. It may have had effects before it was stopped.".to_owned()
        }
        // The call was accepted, and its provider says that it did not get to it.
        (Outcome::Failed, Code::UNAVAILABLE | Code::OVERLOADED) => {
            format!("Not executed, as its provider says: {named}.")
        }
        (Outcome::Failed, Code::TIMEOUT) => {
            format!("Stopped: {named}. It may have had effects; look before you send another message.")
        }
        (Outcome::Failed, _) => format!("Executed, and it failed: {named}.{places}"),
        (Outcome::Unknown | Outcome::Pending, _) => format!(
            "Unknown whether it was executed: {named}. Look at its effect before you send another message; the same messageId \
             never runs twice."
        ),
    }
}

fn named(code: Code, message: &str) -> String {
    let message = message.trim_end().trim_end_matches('.');
    match code.name() {
        Some(name) => format!("{message} ({} {name})", code.0),
        None => format!("{message} ({})", code.0),
    }
}

fn places(error: &WireError) -> String {
    let violations = error.violations();
    violations.iter().map(|violation| format!("\n- {}: {}", violation.path, violation.message)).collect()
}

#[cfg(test)]
mod tests {
    use capd_bridge::import::served::not_executed;

    use super::*;

    fn failed(error: ClientError) -> (TaskState, String) {
        let end = End::of(&Err(error));
        (end.state, end.said.unwrap())
    }

    #[test]
    fn each_end_of_a_call_is_a_state_and_a_truth() {
        let wire = |code| WireError::new(code, "why");
        for (error, state, begins) in [
            (ClientError::Refused(wire(Code::UNAUTHORIZED)), TaskState::Rejected, "Not executed: why (3001 "),
            (
                ClientError::Unsent("full".to_owned()),
                TaskState::Rejected,
                "Not executed: not sent: full (5004 ",
            ),
            (
                ClientError::Result(wire(Code::INTERNAL_ERROR)),
                TaskState::Failed,
                "Executed, and it failed: why",
            ),
            (
                ClientError::Result(not_executed("why")),
                TaskState::Failed,
                "Not executed, as its provider says: why",
            ),
            (
                ClientError::Result(wire(Code::UNAVAILABLE)),
                TaskState::Failed,
                "Unknown whether it was executed: why (5002 ",
            ),
            (ClientError::Result(wire(Code::TIMEOUT)), TaskState::Failed, "Stopped: why"),
            (ClientError::Result(wire(Code::CANCELLED)), TaskState::Canceled, "Cancelled."),
            (
                ClientError::Result(wire(Code::INTERRUPTED)),
                TaskState::Failed,
                "Unknown whether it was executed: why",
            ),
            (ClientError::Closed("gone".to_owned()), TaskState::Failed, "Unknown whether it was executed"),
        ] {
            let about = format!("{error:?}");
            let (found, said) = failed(error);
            assert_eq!(found, state, "{about}");
            assert!(said.starts_with(begins), "{about}: {said}");
        }
    }

    #[test]
    fn what_a_call_says_moves_the_state_until_its_end() {
        let mut status = Status::new(TaskState::Submitted, 1);
        assert!(!status.is_settled());
        status.hear(Event::Progress { pct: 40 }, 2);
        assert_eq!((&status.state, status.pct), (&TaskState::Working, Some(40)));
        status.hear(Event::InputRequired { prompt: "which one?".to_owned() }, 3);
        assert!(status.is_settled() && !status.state.is_terminal());
        let text = Some("reading".to_owned());
        status.hear(Event::Processing { status_text: text.clone(), eta_ms: None, cancellable: None }, 4);
        assert_eq!((&status.state, &status.said), (&TaskState::Working, &text));
        status.end(End::of(&Err(ClientError::Result(WireError::new(Code::CANCELLED, "stop")))), 5);
        status.hear(Event::Progress { pct: 50 }, 6);
        assert_eq!((&status.state, status.at_ms), (&TaskState::Canceled, 5));
    }
}
