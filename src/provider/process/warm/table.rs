//! Keeps the calls of a process that stays: which wait, which it has, and what becomes of each when it dies.
//!
//! ```text
//!            take            fill                    answer
//!   (new) ────────► waiting ───────► with the process ──────► finished
//!                    ▲   │ cancel         │      │ cancel: the call has ended, its place is
//!                    │   ▼                │      ▼         taken until the process answers
//!                    │  finished          │    abandoned
//!                    └────────────────────┘
//!                     the process died: never read, or idempotent and not tried twice
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capd_proto::code::Code;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::WarmSpec;
use super::line::{self, Junk};
use crate::provider::ticket::Ticket;
use crate::provider::{CallKey, Invocation, Outcome};

/// The calls of one capability's process. Tickets are finished outside the lock, because an answer may bring a call.
pub(super) struct Table {
    calls: Mutex<Calls>,
    /// Something changed that the worker acts on.
    pub(super) changed: Notify,
    concurrency: usize,
    waiting_max: usize,
    idempotent: bool,
    answer_within: Duration,
}

struct Calls {
    waiting: VecDeque<Job>,
    /// By the id of their line, which is also their order.
    given: BTreeMap<u64, Given>,
    next_id: u64,
    is_closed: bool,
    /// Why the process does not start, while it does not.
    down: Option<String>,
}

/// A call that is not answered.
struct Job {
    invocation: Invocation,
    ticket: Ticket,
    /// Whether a process died that had read it.
    is_suspect: bool,
}

/// A call that was written to the process.
struct Given {
    /// `None` when the call has ended without the process.
    job: Option<Job>,
    is_suspect: bool,
    /// Where its line begins in all that this process was sent.
    starts_at: u64,
    /// From here on the process is hung.
    hung_at: Instant,
    /// The same, once nobody waits for the answer.
    hung_at_least: Instant,
}

/// How a process ended.
pub(super) struct Death<'a> {
    /// How much of what was sent to it it has read.
    pub(super) read: u64,
    /// Why, for a caller.
    pub(super) reason: &'a str,
    pub(super) now: Instant,
}

/// The calls to answer once nothing is locked.
type Ended = Vec<(Ticket, Outcome)>;

impl Table {
    pub(super) fn new(spec: &WarmSpec) -> Self {
        let calls = Calls {
            waiting: VecDeque::new(),
            given: BTreeMap::new(),
            next_id: 1,
            is_closed: false,
            down: None,
        };
        Self {
            calls: Mutex::new(calls),
            changed: Notify::new(),
            concurrency: spec.process.concurrency,
            waiting_max: spec.process.queue_max,
            idempotent: spec.idempotent,
            answer_within: spec.answer_within,
        }
    }

    /// Takes a call in, or refuses it.
    pub(super) fn take(&self, invocation: Invocation, ticket: Ticket) {
        let mut calls = self.calls();
        let refusal = if calls.is_closed {
            Some(Outcome::Lost)
        } else if let Some(reason) = &calls.down {
            Some(failure(Code::UNAVAILABLE, format!("the provider's process does not start: {reason}")))
        } else if calls.waiting.len() >= self.waiting_max + self.free(&calls) {
            let (running, waiting) = (self.concurrency, self.waiting_max);
            let message = format!("the provider has no capacity: {running} calls run, {waiting} wait");
            Some(failure(Code::OVERLOADED, message))
        } else {
            None
        };
        if let Some(outcome) = refusal {
            drop(calls);
            return ticket.finish(outcome);
        }
        calls.waiting.push_back(Job { invocation, ticket, is_suspect: false });
        drop(calls);
        self.changed.notify_one();
    }

    /// Ends a call that the executor has ended. The process may go on with it, and keeps its place meanwhile.
    pub(super) fn cancel(&self, key: &CallKey) {
        let job = {
            let mut calls = self.calls();
            let waits = calls.waiting.iter().position(|job| job.invocation.key == *key);
            match waits {
                Some(at) => calls.waiting.remove(at),
                None => calls.given.values_mut().find_map(|given| {
                    let is_it = given.job.as_ref().is_some_and(|job| job.invocation.key == *key);
                    if is_it {
                        given.hung_at = given.hung_at_least;
                    }
                    given.job.take_if(|_| is_it)
                }),
            }
        };
        if let Some(job) = job {
            job.ticket.finish(Outcome::Lost);
            self.changed.notify_one();
        }
    }

    /// Calls that wait or run.
    pub(super) fn in_flight(&self) -> usize {
        let calls = self.calls();
        calls.waiting.len() + calls.given.values().filter(|given| given.job.is_some()).count()
    }

    /// Takes no more calls.
    pub(super) fn close(&self) {
        self.calls().is_closed = true;
        self.changed.notify_one();
    }

    /// Whether no more calls are taken, and none is left.
    pub(super) fn is_done(&self) -> bool {
        let calls = self.calls();
        calls.is_closed && calls.waiting.is_empty() && calls.given.is_empty()
    }

    /// Appends the lines of the next calls to `out`; `sent` bytes were appended before. Stops when the process has as many
    /// as it may, or `out` is long.
    pub(super) fn fill(&self, out: &mut Vec<u8>, sent: &mut u64, now: Instant) {
        let mut ended = Ended::new();
        {
            let mut calls = self.calls();
            while out.len() < FILL_BYTES && self.may_give(&calls) {
                let Some(job) = calls.waiting.pop_front() else { break };
                let (id, before) = (calls.next_id, out.len());
                if let Err(error) = line::write(id, &job.invocation, now, out) {
                    out.truncate(before);
                    ended.push((job.ticket, failure(Code::SCHEMA_VIOLATION, error.to_string())));
                    continue;
                }
                calls.next_id += 1;
                let given = Given {
                    is_suspect: job.is_suspect,
                    starts_at: *sent,
                    // A caller that sets a short time must not cost others the process.
                    hung_at: job.invocation.deadline.max(now + self.answer_within),
                    hung_at_least: now + self.answer_within,
                    job: Some(job),
                };
                *sent += (out.len() - before) as u64;
                calls.given.insert(id, given);
            }
        }
        finish(ended);
    }

    /// A line of the process. **Errors:** it answers no call of its.
    pub(super) fn answered(&self, line: &[u8]) -> Result<(), Junk> {
        let (id, outcome) = line::read(line)?;
        let given = self.calls().given.remove(&id).ok_or(Junk::Unknown(id))?;
        if let Some(job) = given.job {
            job.ticket.finish(outcome);
        }
        Ok(())
    }

    /// The id of the one call that the process has; `None` where it has none or several.
    pub(super) fn only_call(&self) -> Option<String> {
        let calls = self.calls();
        let mut given = calls.given.values();
        match (given.next(), given.next()) {
            (Some(Given { job: Some(job), .. }), None) => Some(job.invocation.key.id.to_string()),
            _ => None,
        }
    }

    /// When the next call will have hung.
    pub(super) fn next_hung(&self) -> Option<Instant> {
        self.calls().given.values().map(|given| given.hung_at).min()
    }

    /// Whether every call that the process has has hung.
    pub(super) fn is_all_hung(&self, now: Instant) -> bool {
        self.calls().given.values().all(|given| given.hung_at <= now)
    }

    /// The process answered with junk: the answer to its one call, where it has one only.
    pub(super) fn junk(&self, reason: &str) {
        let given = {
            let mut calls = self.calls();
            if calls.given.len() == 1 { calls.given.pop_first() } else { None }
        };
        if let Some((_, Given { job: Some(job), .. })) = given {
            job.ticket.finish(failure(Code::INTERNAL_ERROR, reason.to_owned()));
        }
    }

    /// The process is gone. A call that it read has ended, or goes to the next one; the others go there.
    pub(super) fn died(&self, death: &Death<'_>) {
        let mut ended = Ended::new();
        {
            let mut calls = self.calls();
            let given = std::mem::take(&mut calls.given);
            for given in given.into_values().rev() {
                let is_read = given.starts_at < death.read;
                let is_hung = given.hung_at <= death.now;
                let Some(mut job) = given.job else { continue };
                if !is_read {
                    calls.waiting.push_front(job);
                } else if is_hung {
                    let message = "the provider did not answer in time".to_owned();
                    ended.push((job.ticket, failure(Code::TIMEOUT, message)));
                } else if !self.idempotent {
                    let message = format!(
                        "{} while it had the call; whether the call took effect is unknown",
                        death.reason
                    );
                    ended.push((job.ticket, failure(Code::INTERRUPTED, message)));
                } else if job.is_suspect {
                    ended.push((job.ticket, Outcome::Lost));
                } else {
                    job.is_suspect = true;
                    calls.waiting.push_front(job);
                }
            }
        }
        ended.reverse();
        finish(ended);
    }

    /// The process ended before it read a call: those that wait are refused, and further ones until it starts.
    pub(super) fn down(&self, reason: &str) {
        let waiting = {
            let mut calls = self.calls();
            calls.down = Some(reason.to_owned());
            std::mem::take(&mut calls.waiting)
        };
        let message = format!("the provider's process does not start: {reason}");
        let refused = |job: Job| (job.ticket, failure(Code::UNAVAILABLE, message.clone()));
        finish(waiting.into_iter().map(refused).collect());
    }

    /// A process was started.
    pub(super) fn up(&self) {
        self.calls().down = None;
    }

    /// Takes no more calls, and gives up those that are left.
    pub(super) fn end(&self) {
        let (waiting, given) = {
            let mut calls = self.calls();
            calls.is_closed = true;
            (std::mem::take(&mut calls.waiting), std::mem::take(&mut calls.given))
        };
        let given = given.into_values().filter_map(|given| given.job);
        finish(given.chain(waiting).map(|job| (job.ticket, Outcome::Lost)).collect());
    }

    /// Whether the next call may go to the process. One that may have killed a process runs alone, so that it takes no
    /// other with it.
    fn may_give(&self, calls: &Calls) -> bool {
        let Some(next) = calls.waiting.front() else { return false };
        if next.is_suspect || calls.given.values().any(|given| given.is_suspect) {
            return calls.given.is_empty();
        }
        self.free(calls) > 0
    }

    fn free(&self, calls: &Calls) -> usize {
        self.concurrency.saturating_sub(calls.given.len())
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        // Each change leaves it whole, so a panic leaves nothing half done.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn finish(ended: Ended) {
    for (ticket, outcome) in ended {
        ticket.finish(outcome);
    }
}

fn failure(code: Code, message: String) -> Outcome {
    Outcome::Failure { code, message }
}

/// Lines made ahead of the pipe: about what a pipe holds.
const FILL_BYTES: usize = 64 * 1024;
