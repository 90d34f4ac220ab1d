//! Runs the executor's side of a call: checks, answers and the time in; one refusal or one result out (PROTOCOL 8).

use super::{Outputs, next_output};
use crate::code::Code;

/// What happened to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Every check passed, and the ledger holds the call.
    Accept,
    /// A check failed.
    Refuse(Code),
    /// The call is about to go to the provider; if it is journaled, its row is on disk. Precedes any answer of the
    /// provider.
    Start,
    /// The provider sent PROCESSING, PROGRESS or INPUT_REQUIRED.
    Notice,
    /// The provider sent CAP_RESULT, success or error.
    ProviderResult {
        /// Whether it fits the output schema, or is an error.
        fits: bool,
    },
    /// The provider answered with ERROR, or failed in a way that has a code.
    ProviderError(Code),
    /// The provider's link broke, or its process went away without an answer.
    ProviderLost {
        /// Whether another provider of the capability is there.
        another: bool,
    },
    /// A cancel came.
    Cancel {
        /// Whether it came from the call's own `from`.
        own: bool,
    },
    /// The ticket was dropped without an answer, which is a bug of capd.
    TicketDropped,
    /// The sidecar stops, and the call did not end in time.
    Shutdown,
    /// The time that [`Executor::poll_timeout`] named may have come.
    Timeout,
}

/// An action for the daemon, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Hand the call to a provider: [`Input::Start`], then the provider.
    Execute,
    /// The same, to a provider other than the lost one.
    TryAnother,
    /// Pass the message just handled on to the caller.
    Relay,
    /// Cancel the call at the provider, or take it out of the provider's queue.
    CancelProvider,
    /// Send ERROR, take the call back out of the ledger; it was not executed.
    Refuse(Code),
    /// Record the call's one result, then send it to everyone who waits.
    Finish(Outcome),
    /// Answer a cancel.
    AnswerCancel(CancelState),
    /// Drop the message just handled; it needs no trace.
    Drop,
    /// Drop the answer just handled, audit it, and send ERROR 4001 to the provider.
    RefuseAnswer(Surplus),
}

/// A call's one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider's CAP_RESULT just handled.
    Provider,
    /// CAP_RESULT error with this code.
    Error(Code),
}

/// The `state` of a cancel's answer. **Source:** PROTOCOL 7.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelState {
    /// The call ends with 4901.
    Cancelling,
    /// Its result was recorded before.
    Finished,
    /// No such call, or none that the sender may know of.
    Unknown,
}

/// Why a provider's answer is surplus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surplus {
    /// The provider was never handed the call.
    Unasked,
    /// The sidecar answered in its place: timeout, cancel, provider lost, shutdown.
    Late,
    /// The provider answered before.
    Second,
}

/// Where a call stands on the executor's side.
///
/// ```text
///   Received ── Accept ──► Accepted ── Start ──► Executing ──┐ Notice: relay
///      │                      │ ▲                  │   │ ▲───┘
///      │                      │ └─ ProviderLost ───┘   │
///      │                      │    (idempotent, and    │ the provider's answer
///      │ Refuse, Cancel,      │     another is there)  │
///      │ deadline, shutdown   │ deadline, Cancel, ProviderLost, TicketDropped, shutdown
///      ▼                      ▼                        ▼
///   Refused                Finished (no exits): exactly one result was recorded
/// ```
///
/// **Source:** PROTOCOL 8; seed revision 7.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Being checked.
    Received,
    /// Accepted; no provider has it, or the last one was lost.
    Accepted,
    /// A provider has it.
    Executing,
    /// The result is recorded.
    Finished { by_provider: bool },
    /// An ERROR went out instead.
    Refused,
}

/// One call's machine on the executor's side.
#[derive(Debug)]
pub struct Executor {
    idempotent: bool,
    deadline_ms: u64,
    state: State,
    outputs: Outbox,
}

impl Executor {
    /// A call that arrived and is new to the ledger.
    ///
    /// `deadline_ms` is when its time to run ends, capped by `ts + ttl`. **Units:** milliseconds, on the clock of
    /// [`Executor::handle`].
    pub fn new(idempotent: bool, deadline_ms: u64) -> Self {
        Self { idempotent, deadline_ms, state: State::Received, outputs: Outbox::default() }
    }

    /// Handles an event. **Units:** milliseconds.
    pub fn handle(&mut self, input: Input, now_ms: u64) {
        if input == Input::Timeout && now_ms < self.deadline_ms {
            return;
        }
        let out = &mut self.outputs;
        self.state = match self.state {
            State::Received => received(input, out),
            State::Accepted => accepted(input, out),
            State::Executing => executing(self.idempotent, input, out),
            State::Finished { by_provider } => finished(by_provider, input, out),
            State::Refused => refused(input, out),
        };
    }

    /// What to do next, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        next_output(&mut self.outputs)
    }

    /// When to come back with [`Input::Timeout`]. **Units:** milliseconds, on the clock of [`Executor::handle`].
    pub fn poll_timeout(&self) -> Option<u64> {
        match self.state {
            State::Received | State::Accepted | State::Executing => Some(self.deadline_ms),
            State::Finished { .. } | State::Refused => None,
        }
    }

    /// Whether the call has its result or its refusal.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Finished { .. } | State::Refused)
    }

    /// The state's name, for logs and lists.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Received => "Received",
            State::Accepted => "Accepted",
            State::Executing => "Executing",
            State::Finished { .. } => "Finished",
            State::Refused => "Refused",
        }
    }
}

type Outbox = Outputs<Output>;

fn received(input: Input, out: &mut Outbox) -> State {
    match input {
        Input::Accept => {
            out.push(Output::Execute);
            State::Accepted
        }
        Input::Refuse(code) => refuse(code, out),
        Input::Start | Input::ProviderLost { .. } => State::Received,
        Input::Notice => drop_notice(State::Received, out),
        Input::ProviderResult { .. } | Input::ProviderError(_) => {
            refuse_answer(Surplus::Unasked, State::Received, out)
        }
        Input::Cancel { own: true } => {
            out.push(Output::AnswerCancel(CancelState::Cancelling));
            refuse(Code::CANCELLED, out)
        }
        Input::Cancel { own: false } => deny_cancel(State::Received, out),
        Input::TicketDropped => refuse(Code::INTERNAL_ERROR, out),
        Input::Shutdown => refuse(Code::UNAVAILABLE, out),
        Input::Timeout => refuse(Code::TIMEOUT, out),
    }
}

fn accepted(input: Input, out: &mut Outbox) -> State {
    match input {
        Input::Accept => State::Accepted,
        // PROTOCOL 8: an accepted call has one result; a refusal found late becomes it.
        Input::Refuse(code) => finish_unasked(code, out),
        Input::Start => State::Executing,
        Input::Notice => drop_notice(State::Accepted, out),
        // PROTOCOL 8: an answer to a call that the provider never got.
        Input::ProviderResult { .. } | Input::ProviderError(_) => {
            refuse_answer(Surplus::Unasked, State::Accepted, out)
        }
        // No provider holds it, so another may have it whether it is idempotent or not.
        Input::ProviderLost { another: true } => {
            out.push(Output::TryAnother);
            State::Accepted
        }
        Input::ProviderLost { another: false } => finish(Code::UNAVAILABLE, out),
        Input::Cancel { own: true } => {
            out.push(Output::AnswerCancel(CancelState::Cancelling));
            finish_unasked(Code::CANCELLED, out)
        }
        Input::Cancel { own: false } => deny_cancel(State::Accepted, out),
        Input::TicketDropped => finish(Code::INTERNAL_ERROR, out),
        Input::Shutdown => finish_unasked(Code::UNAVAILABLE, out),
        Input::Timeout => finish_unasked(Code::TIMEOUT, out),
    }
}

fn executing(idempotent: bool, input: Input, out: &mut Outbox) -> State {
    match input {
        Input::Accept | Input::Start => State::Executing,
        Input::Refuse(code) => finish_unasked(code, out),
        Input::Notice => {
            out.push(Output::Relay);
            State::Executing
        }
        Input::ProviderResult { fits: true } => {
            out.push(Output::Finish(Outcome::Provider));
            State::Finished { by_provider: true }
        }
        Input::ProviderResult { fits: false } => {
            // PROTOCOL 7.4: a result that fails its schema becomes CAP_RESULT error 5901.
            out.push(Output::Finish(Outcome::Error(Code::RESULT_SCHEMA_VIOLATION)));
            State::Finished { by_provider: true }
        }
        Input::ProviderError(code) => {
            out.push(Output::Finish(Outcome::Error(code)));
            State::Finished { by_provider: true }
        }
        // PROTOCOL 8: an idempotent capability is tried on another provider if one is connected.
        Input::ProviderLost { another: true } if idempotent => {
            out.push(Output::TryAnother);
            State::Accepted
        }
        Input::ProviderLost { .. } => finish(Code::UNAVAILABLE, out),
        Input::Cancel { own: true } => {
            out.push(Output::AnswerCancel(CancelState::Cancelling));
            finish_unasked(Code::CANCELLED, out)
        }
        Input::Cancel { own: false } => deny_cancel(State::Executing, out),
        Input::TicketDropped => finish(Code::INTERNAL_ERROR, out),
        Input::Shutdown if idempotent => finish_unasked(Code::UNAVAILABLE, out),
        // PROTOCOL 9: whether it took effect is unknown, so nobody is told to try again.
        Input::Shutdown => finish_unasked(Code::INTERRUPTED, out),
        Input::Timeout => finish_unasked(Code::TIMEOUT, out),
    }
}

fn finished(by_provider: bool, input: Input, out: &mut Outbox) -> State {
    let stay = State::Finished { by_provider };
    match input {
        Input::ProviderResult { .. } | Input::ProviderError(_) => {
            refuse_answer(if by_provider { Surplus::Second } else { Surplus::Late }, stay, out)
        }
        Input::Notice => drop_notice(stay, out),
        Input::Cancel { own: true } => {
            out.push(Output::AnswerCancel(CancelState::Finished));
            stay
        }
        Input::Cancel { own: false } => deny_cancel(stay, out),
        Input::Accept
        | Input::Refuse(_)
        | Input::Start
        | Input::ProviderLost { .. }
        | Input::TicketDropped
        | Input::Shutdown
        | Input::Timeout => stay,
    }
}

fn refused(input: Input, out: &mut Outbox) -> State {
    match input {
        Input::ProviderResult { .. } | Input::ProviderError(_) => {
            refuse_answer(Surplus::Unasked, State::Refused, out)
        }
        Input::Notice => drop_notice(State::Refused, out),
        // A refusal is not recorded, so nobody knows the call, its own `from` included.
        Input::Cancel { .. } => deny_cancel(State::Refused, out),
        Input::Accept
        | Input::Refuse(_)
        | Input::Start
        | Input::ProviderLost { .. }
        | Input::TicketDropped
        | Input::Shutdown
        | Input::Timeout => State::Refused,
    }
}

fn refuse(code: Code, out: &mut Outbox) -> State {
    out.push(Output::Refuse(code));
    State::Refused
}

fn finish(code: Code, out: &mut Outbox) -> State {
    out.push(Output::Finish(Outcome::Error(code)));
    State::Finished { by_provider: false }
}

/// Ends a call that a provider has or is about to get.
fn finish_unasked(code: Code, out: &mut Outbox) -> State {
    out.push(Output::CancelProvider);
    finish(code, out)
}

fn drop_notice(stay: State, out: &mut Outbox) -> State {
    out.push(Output::Drop);
    stay
}

fn refuse_answer(surplus: Surplus, stay: State, out: &mut Outbox) -> State {
    out.push(Output::RefuseAnswer(surplus));
    stay
}

/// PROTOCOL 7.6: only the call's own `from` may cancel it; others learn nothing.
fn deny_cancel(stay: State, out: &mut Outbox) -> State {
    out.push(Output::AnswerCancel(CancelState::Unknown));
    stay
}

#[cfg(test)]
mod tests;
