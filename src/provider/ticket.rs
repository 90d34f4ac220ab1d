//! Represents the right, and the duty, to answer one call.

use std::sync::Arc;

use capd_proto::code::Code;

use super::{CallKey, Outcome};

/// Receives outcomes and progress of calls: the executor's table of running calls.
pub trait Answers: Send + Sync {
    /// The call has ended; a second outcome for one call is dropped there.
    fn finish(self: Arc<Self>, answer: Answer);
}

/// A call and its outcome. Only a ticket makes one, so there is no other way to answer.
#[derive(Debug)]
pub struct Answer {
    key: CallKey,
    outcome: Outcome,
}

impl Answer {
    /// The call, and how it ended.
    pub fn into_parts(self) -> (CallKey, Outcome) {
        (self.key, self.outcome)
    }
}

/// The one answer that an accepted call will get.
///
/// [`finish`](Self::finish) consumes the ticket, so no provider can answer twice; dropping it unanswered (a panic, a
/// lost task) answers with an error result, so no call is left without an answer. **Source:** PROTOCOL 8.
#[must_use = "a ticket that is dropped answers its call with an error result"]
pub struct Ticket {
    key: CallKey,
    answers: Option<Arc<dyn Answers>>,
}

impl Ticket {
    /// The ticket of the call `key`, which reports to `answers`.
    pub fn new(key: CallKey, answers: Arc<dyn Answers>) -> Self {
        Self { key, answers: Some(answers) }
    }

    /// The call that this ticket answers.
    pub fn key(&self) -> &CallKey {
        &self.key
    }

    fn answer(&mut self, outcome: Outcome) {
        if let Some(answers) = self.answers.take() {
            answers.finish(Answer { key: self.key.clone(), outcome });
        }
    }

    /// Answers the call.
    pub fn finish(mut self, outcome: Outcome) {
        self.answer(outcome);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.answers.is_some() {
            let message = "the provider dropped the call without an answer".to_owned();
            self.answer(Outcome::Failure { code: Code::INTERNAL_ERROR, message });
        }
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("key", &self.key).finish_non_exhaustive()
    }
}
