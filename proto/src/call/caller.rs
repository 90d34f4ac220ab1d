//! Runs the caller's side of a call: answers, lost links, a cancel and the time in; tries, and one result, out
//! (PROTOCOL 8).

mod terms;

use std::sync::Arc;

use smallvec::smallvec;

use crate::code::Code;

use super::{Jitter, Outputs, RetryPolicy, next_output};

pub use terms::{Delivery, Generation, Input, Output, Refused, Time};

/// Where a call stands on the caller's side.
///
/// ```text
///             Idle ──────── Sent ───────► AwaitResult ──┐ Notice: relay
///              │                            ▲   │   ▲───┘ Cancel: tell the executor, try no more
///              │                       Sent │   │ retryable ERROR or link lost: the same id
///              │                            │   │ CAP_RESULT error named in retry_on, if idempotent: a new id
///              │ retryable              Resending│
///              │ ERROR           time came ▲   ▼
///              └────────────────────────── Pausing
///
///   an ERROR about the executor, and another executor is there:
///   any state ── every copy was refused, or repeatable ──► Resending, to the other
///   any state ── a copy is unanswered ──► Releasing ── Released ──► Resending, to the other
///                                             └─ anything else ──► Pausing, then the same executor
///
///   any state ── CAP_RESULT or ERROR that is not tried again, deadline, ─► Done (absorbing)
///                Cancel where no executor can be asked
/// ```
///
/// **Source:** PROTOCOL 8; AMP 001 16.3.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Not out yet: waits for a link.
    Idle(Tries),
    /// Out, and not answered.
    AwaitResult { tries: Tries, cancelled: bool },
    /// Waits for the time of the next try.
    Pausing { tries: Tries, until_ms: u64 },
    /// The next try waits for a link.
    Resending(Tries),
    /// The executor was asked to refuse the call for ever, so that another may have it.
    Releasing(Tries),
    /// The agent has its answer.
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Tries {
    generation: Generation,
    /// Tries asked for so far, by [`Output::Send`].
    attempt: u32,
    /// A copy under the current id was sent and not answered, so an executor may have run it.
    unanswered: bool,
    /// The last ERROR was about the call, not about its executor: no other is asked.
    stays: bool,
    /// An executor has released the call. No other is asked to: with a tombstone everywhere, it could run nowhere.
    released: bool,
    /// Moves to another executor since the last pause.
    moves: u32,
}

/// One call's machine on the caller's side.
#[derive(Debug)]
pub struct Caller {
    policy: Arc<RetryPolicy>,
    idempotent: bool,
    /// Its executors remember its id together: it may move like an idempotent call, and is told like any other.
    by_id: bool,
    /// Whether nobody is asked to release it.
    stays_unreleased: bool,
    time: Time,
    state: State,
    outputs: Outputs<Output>,
    #[cfg(feature = "test-hooks")]
    faults: Faults,
}

/// Faults that tests inject.
#[cfg(feature = "test-hooks")]
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    is_credulous: bool,
    is_restless: bool,
}

impl Caller {
    /// A call to be made; the first output is [`Output::Send`].
    ///
    /// `unanswered` says that the call may already have been executed under its id: an earlier machine or process sent
    /// a copy, and got no answer that rules this out.
    pub fn new(policy: Arc<RetryPolicy>, idempotent: bool, unanswered: bool, time: Time) -> Self {
        let tries = Tries {
            generation: Generation(0),
            attempt: 1,
            unanswered,
            stays: false,
            released: false,
            moves: 0,
        };
        let outputs = smallvec![Output::Send {
            generation: tries.generation,
            attempt: 1,
            proven_unaccepted: !unanswered
        }];
        Self {
            policy,
            idempotent,
            by_id: false,
            stays_unreleased: false,
            time,
            state: State::Idle(tries),
            outputs,
            #[cfg(feature = "test-hooks")]
            faults: Faults::default(),
        }
    }

    /// The same, for a call that an executor has released already: it is released nowhere else.
    pub fn released_before(mut self, is_released: bool) -> Self {
        if let State::Idle(tries) = &mut self.state {
            tries.released = is_released;
        }
        self
    }

    /// The same, for a call that takes effect once under its id, wherever and however often its copies run.
    ///
    /// It moves like an idempotent call and keeps its id; nobody calls it refused while a copy is unanswered. **Source:**
    /// FLEET X9.
    pub const fn by_id(mut self, is_by_id: bool) -> Self {
        self.by_id = is_by_id;
        self
    }

    /// The same, for a call whose executor may have left remembering it to its providers: with nothing of it in its journal, it
    /// would release what it has accepted.
    pub const fn unreleased(mut self, is_unreleased: bool) -> Self {
        self.stays_unreleased = is_unreleased;
        self
    }

    /// Injects a fault for tests: takes every ERROR for a refusal, even if a copy is unanswered.
    #[cfg(feature = "test-hooks")]
    pub fn set_credulous(&mut self, is_credulous: bool) {
        self.faults.is_credulous = is_credulous;
    }

    /// Injects a fault for tests: takes a lost link for the proof that the call was not accepted.
    #[cfg(feature = "test-hooks")]
    pub fn set_restless(&mut self, is_restless: bool) {
        self.faults.is_restless = is_restless;
    }

    /// Handles an event. `jitter` is fresh randomness if [`Input::may_pause`], otherwise anything. **Units:**
    /// milliseconds.
    pub fn handle(&mut self, input: Input, now_ms: u64, jitter: Jitter) {
        let mut step = Step {
            policy: &self.policy,
            idempotent: self.idempotent,
            is_repeatable: self.idempotent || self.by_id,
            stays_unreleased: self.stays_unreleased,
            time: self.time,
            now_ms,
            jitter,
            out: &mut self.outputs,
            #[cfg(feature = "test-hooks")]
            faults: self.faults,
        };
        self.state = match self.state {
            State::Idle(tries) => unsent(tries, State::Idle(tries), input, &mut step),
            State::AwaitResult { tries, cancelled: false } => await_result(tries, input, &mut step),
            State::AwaitResult { tries, cancelled: true } => await_cancelled(tries, input, &mut step),
            State::Pausing { tries, until_ms } => pausing(tries, until_ms, input, &mut step),
            State::Resending(tries) => unsent(tries, State::Resending(tries), input, &mut step),
            State::Releasing(tries) => releasing(tries, input, &mut step),
            State::Done => done(input, &mut step),
        };
    }

    /// What to do next, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        next_output(&mut self.outputs)
    }

    /// When to come back with [`Input::Timeout`]. **Units:** milliseconds, on the clock of [`Caller::handle`].
    pub fn poll_timeout(&self) -> Option<u64> {
        match self.state {
            State::Idle(_) | State::Resending(_) | State::Releasing(_) => Some(self.time.ends_ms),
            State::AwaitResult { .. } => Some(self.time.answered_by_ms()),
            State::Pausing { until_ms, .. } => Some(until_ms.min(self.time.ends_ms)),
            State::Done => None,
        }
    }

    /// The current id; answers to an older one are late.
    pub fn generation(&self) -> Option<Generation> {
        match self.state {
            State::Idle(tries) | State::Resending(tries) | State::Releasing(tries) => Some(tries.generation),
            State::AwaitResult { tries, .. } | State::Pausing { tries, .. } => Some(tries.generation),
            State::Done => None,
        }
    }

    /// Whether the invoke was sent and waits for its answer.
    pub fn is_sent(&self) -> bool {
        matches!(self.state, State::AwaitResult { .. })
    }

    /// The latest time at which the agent gets an answer. **Units:** milliseconds, on the clock of [`Caller::handle`].
    pub const fn deadline_ms(&self) -> u64 {
        self.time.answered_by_ms()
    }

    /// Whether the call may have been executed under its current id, as far as this machine knows.
    pub fn may_have_run(&self) -> bool {
        match self.state {
            State::Idle(tries) | State::Resending(tries) | State::Releasing(tries) => tries.unanswered,
            State::Pausing { tries, .. } => tries.unanswered,
            State::AwaitResult { .. } => true,
            State::Done => false,
        }
    }

    /// Whether the next copy may go to another executor: that of a call that may run again there; of any other while no executor has
    /// accepted it or ever will (PROTOCOL 8).
    pub fn may_move(&self) -> bool {
        match self.state {
            State::Idle(tries) | State::Resending(tries) => {
                self.idempotent || self.by_id || self.is_proven(tries)
            }
            State::Releasing(_) | State::Pausing { .. } | State::AwaitResult { .. } | State::Done => false,
        }
    }

    fn is_proven(&self, tries: Tries) -> bool {
        #[cfg(feature = "test-hooks")]
        if self.faults.is_restless {
            return !tries.stays;
        }
        tries.is_proven()
    }

    /// Whether the agent has its answer.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The state's name, for logs and lists.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            State::Idle(_) => "Idle",
            State::AwaitResult { .. } => "AwaitResult",
            State::Pausing { .. } => "Pausing",
            State::Resending(_) => "Resending",
            State::Releasing(_) => "Releasing",
            State::Done => "Done",
        }
    }
}

impl Tries {
    /// PROTOCOL 8: no executor has accepted the call under its current id, and none that had a copy ever will.
    const fn is_proven(self) -> bool {
        !self.unanswered && !self.stays
    }
}

/// Idle and Resending: the invoke waits for a link.
fn unsent(tries: Tries, stay: State, input: Input, step: &mut Step<'_>) -> State {
    match input {
        Input::Sent => State::AwaitResult { tries, cancelled: false },
        Input::Notice { .. } => step.drop(stay),
        // To an earlier copy of the same id, or faster than the word that this one went out.
        Input::Result { generation, error, retry_after_ms } if generation == tries.generation => {
            step.result(tries, error, retry_after_ms)
        }
        Input::Result { .. } => step.refuse(stay),
        Input::Error { generation, error } if generation == tries.generation => step.error(tries, error),
        Input::Error { .. } => step.drop(stay),
        Input::LinkLost | Input::CancelUnknown | Input::Released | Input::Unreleased => stay,
        Input::Cancel => step.cancel_unsent(tries),
        Input::Timeout => step.unsent_timeout(tries, stay),
    }
}

fn await_result(tries: Tries, input: Input, step: &mut Step<'_>) -> State {
    let stay = State::AwaitResult { tries, cancelled: false };
    match input {
        Input::Sent | Input::CancelUnknown | Input::Released | Input::Unreleased => stay,
        Input::Notice { generation } => step.relay(generation == tries.generation, stay),
        Input::Result { generation, error, retry_after_ms } if generation == tries.generation => {
            step.result(tries, error, retry_after_ms)
        }
        Input::Result { .. } => step.refuse(stay),
        Input::Error { generation, error } if generation == tries.generation => step.error(tries, error),
        Input::Error { .. } => step.drop(stay),
        Input::LinkLost => step.lost(Tries { unanswered: true, ..tries }),
        Input::Cancel => {
            step.out.push(Output::SendCancel { generation: tries.generation });
            State::AwaitResult { tries, cancelled: true }
        }
        Input::Timeout => step.timeout(stay),
    }
}

/// The executor was told to cancel: whatever it answers ends the call, and nothing is tried again.
fn await_cancelled(tries: Tries, input: Input, step: &mut Step<'_>) -> State {
    let stay = State::AwaitResult { tries, cancelled: true };
    match input {
        Input::Sent | Input::Cancel | Input::Released | Input::Unreleased => stay,
        Input::Notice { generation } => step.relay(generation == tries.generation, stay),
        Input::Result { generation, .. } if generation == tries.generation => step.deliver(Delivery::Result),
        Input::Result { .. } => step.refuse(stay),
        Input::Error { generation, error } if generation == tries.generation => {
            step.refused(tries, error.code)
        }
        Input::Error { .. } => step.drop(stay),
        Input::LinkLost | Input::CancelUnknown => step.deliver(Delivery::Own(Code::CANCELLED)),
        Input::Timeout if step.now_ms >= step.time.answered_by_ms() => {
            step.deliver(Delivery::Own(Code::CANCELLED))
        }
        Input::Timeout => stay,
    }
}

fn pausing(tries: Tries, until_ms: u64, input: Input, step: &mut Step<'_>) -> State {
    let stay = State::Pausing { tries, until_ms };
    match input {
        Input::Sent | Input::LinkLost | Input::CancelUnknown | Input::Released | Input::Unreleased => stay,
        Input::Notice { .. } => step.drop(stay),
        // An answer to an earlier copy of the same id is the call's answer.
        Input::Result { generation, error, retry_after_ms }
            if generation == tries.generation && tries.unanswered =>
        {
            step.result(tries, error, retry_after_ms)
        }
        Input::Result { .. } => step.refuse(stay),
        // The next try asks again in any case.
        Input::Error { .. } => step.drop(stay),
        Input::Cancel => step.cancel_unsent(tries),
        Input::Timeout if step.now_ms >= until_ms && step.now_ms < step.time.ends_ms => {
            let tries = Tries { attempt: tries.attempt + 1, ..tries };
            let proven_unaccepted = step.is_proven(tries);
            let Tries { generation, attempt, .. } = tries;
            step.out.push(Output::Send { generation, attempt, proven_unaccepted });
            State::Resending(tries)
        }
        Input::Timeout => step.unsent_timeout(tries, stay),
    }
}

/// The executor was asked whether it has the call, and to refuse it for ever if it has not.
fn releasing(tries: Tries, input: Input, step: &mut Step<'_>) -> State {
    let stay = State::Releasing(tries);
    match input {
        Input::Sent | Input::CancelUnknown => stay,
        Input::Notice { .. } => step.drop(stay),
        // An answer to an earlier copy of the same id is the call's answer.
        Input::Result { generation, error, retry_after_ms } if generation == tries.generation => {
            step.result(tries, error, retry_after_ms)
        }
        Input::Result { .. } => step.refuse(stay),
        Input::Error { .. } => step.drop(stay),
        // PROTOCOL 8: it has a tombstone for the call on its disk, so no copy of it runs there.
        Input::Released => step.move_on(Tries { unanswered: false, released: true, ..tries }),
        // It has the call, or does not say: nobody else may get it.
        Input::Unreleased | Input::LinkLost => step.lost(tries),
        Input::Cancel => step.cancel_unsent(tries),
        Input::Timeout => step.unsent_timeout(tries, stay),
    }
}

fn done(input: Input, step: &mut Step<'_>) -> State {
    match input {
        // PROTOCOL 8: a CAP_RESULT whose `reply_to` matches nothing pending: ERROR 4001 back, dropped.
        Input::Result { .. } => step.refuse(State::Done),
        Input::Notice { .. } | Input::Error { .. } => step.drop(State::Done),
        Input::Sent | Input::LinkLost | Input::Cancel | Input::CancelUnknown | Input::Timeout => State::Done,
        Input::Released | Input::Unreleased => State::Done,
    }
}

struct Step<'a> {
    policy: &'a RetryPolicy,
    idempotent: bool,
    /// Whether a copy may run at another executor than one that has another copy.
    is_repeatable: bool,
    stays_unreleased: bool,
    time: Time,
    now_ms: u64,
    jitter: Jitter,
    out: &'a mut Outputs<Output>,
    #[cfg(feature = "test-hooks")]
    faults: Faults,
}

impl Step<'_> {
    fn deliver(&mut self, delivery: Delivery) -> State {
        self.out.push(Output::Deliver(delivery));
        State::Done
    }

    fn relay(&mut self, current: bool, stay: State) -> State {
        self.out.push(if current { Output::Relay } else { Output::Drop });
        stay
    }

    fn drop(&mut self, stay: State) -> State {
        self.out.push(Output::Drop);
        stay
    }

    fn refuse(&mut self, stay: State) -> State {
        self.out.push(Output::RefuseResult);
        stay
    }

    fn result(&mut self, tries: Tries, error: Option<Code>, retry_after_ms: Option<u64>) -> State {
        // PROTOCOL 8: under a new id after a CAP_RESULT error that the policy names, and only if idempotent.
        let again = error.is_some_and(|code| self.idempotent && self.policy.names(code));
        let next = Tries { generation: Generation(tries.generation.0 + 1), unanswered: false, ..tries };
        match again.then(|| self.pause(next, retry_after_ms)).flatten() {
            Some(pausing) => pausing,
            None => self.deliver(Delivery::Result),
        }
    }

    fn error(&mut self, tries: Tries, error: Refused) -> State {
        let Refused { code, retry, retry_after_ms, another, released } = error;
        let tries = Tries {
            stays: !is_about_executor(code),
            // PROTOCOL 8: a tombstone refuses every copy, so it answers for those that are unanswered, too.
            unanswered: tries.unanswered && !released,
            released: tries.released || released,
            ..tries
        };
        if another && !tries.stays && tries.moves < MOVES_MAX && self.now_ms < self.time.ends_ms {
            if self.is_repeatable || self.is_proven(tries) {
                return self.move_on(tries);
            }
            if !tries.released && !self.stays_unreleased {
                // PROTOCOL 8: an unanswered copy may have been accepted, or may still arrive.
                self.out.push(Output::AskRelease { generation: tries.generation });
                return State::Releasing(tries);
            }
        }
        // PROTOCOL 8: under the same id after an ERROR marked retryable. An executor that has lost its memory is never asked
        // again, whatever it says.
        let again = retry.unwrap_or(code.is_retryable()) && code != Code::INTERRUPTED;
        match again.then(|| self.pause(tries, retry_after_ms)).flatten() {
            Some(pausing) => pausing,
            None => self.refused(tries, code),
        }
    }

    /// The next copy goes to another executor, at once.
    fn move_on(&mut self, tries: Tries) -> State {
        self.out.push(Output::Move { generation: tries.generation });
        State::Resending(Tries { moves: tries.moves + 1, ..tries })
    }

    fn is_proven(&self, tries: Tries) -> bool {
        #[cfg(feature = "test-hooks")]
        if self.faults.is_restless {
            return !tries.stays;
        }
        tries.is_proven()
    }

    /// PROTOCOL 8: an ERROR says that nothing was executed, which nobody can know of a call with an unanswered copy, nor of
    /// one whose executor has lost its memory of earlier copies (5902).
    fn refused(&mut self, tries: Tries, code: Code) -> State {
        let is_unknown = !self.idempotent && (tries.unanswered || code == Code::INTERRUPTED);
        #[cfg(feature = "test-hooks")]
        let is_unknown = is_unknown && !self.faults.is_credulous;
        self.deliver(if is_unknown { Delivery::Unknown } else { Delivery::Error })
    }

    fn lost(&mut self, tries: Tries) -> State {
        // PROTOCOL 8: under the same id when no answer came.
        match self.pause(tries, None) {
            Some(pausing) => pausing,
            None if self.idempotent => self.deliver(Delivery::Own(Code::ENDPOINT_UNREACHABLE)),
            None => self.deliver(Delivery::Own(Code::INTERRUPTED)),
        }
    }

    /// The pause before the next try, or `None` when none is left within the call's deadline.
    fn pause(&mut self, tries: Tries, retry_after_ms: Option<u64>) -> Option<State> {
        if !self.policy.allows(tries.attempt) {
            return None;
        }
        let delay_ms =
            self.policy.delay_ms(tries.attempt, self.jitter).max(retry_after_ms.unwrap_or_default()).max(1);
        let until_ms = self.now_ms.saturating_add(delay_ms);
        // PROTOCOL 8: retries end with the call's `ts + ttl` and its deadline, whichever is first.
        if until_ms >= self.time.ends_ms {
            return None;
        }
        self.out.push(Output::Pause { until_ms, generation: tries.generation });
        Some(State::Pausing { tries: Tries { moves: 0, ..tries }, until_ms })
    }

    /// A cancel while nothing is out: an executor that lost its link to us may still run an earlier copy.
    fn cancel_unsent(&mut self, tries: Tries) -> State {
        if tries.unanswered {
            self.out.push(Output::SendCancel { generation: tries.generation });
        }
        self.deliver(Delivery::Own(Code::CANCELLED))
    }

    /// The deadline of a call that is out.
    fn timeout(&mut self, stay: State) -> State {
        if self.now_ms < self.time.answered_by_ms() {
            return stay;
        }
        self.deliver(Delivery::Own(Code::TIMEOUT))
    }

    /// The deadline of a call of which no copy is out.
    fn unsent_timeout(&mut self, tries: Tries, stay: State) -> State {
        if self.now_ms < self.time.ends_ms {
            return stay;
        }
        self.deliver(match tries.unanswered {
            false => Delivery::Refusal(Code::ENDPOINT_UNREACHABLE),
            true if self.idempotent => Delivery::Own(Code::TIMEOUT),
            true => Delivery::Own(Code::INTERRUPTED),
        })
    }
}

/// Whether an ERROR of this code says something of the executor rather than of the call, so that another executor may
/// take the call. 2002 is this sidecar's own: the copy did not leave.
const fn is_about_executor(code: Code) -> bool {
    code.is_about_executor() || matches!(code, Code::ENDPOINT_UNREACHABLE)
}

/// Most moves between two pauses. Ours: as many as a call's ids are shared among.
const MOVES_MAX: u32 = 8;

#[cfg(test)]
mod tests;
