//! Drives the machine of a running call: events in; the actions that it asks for, done.

use std::sync::Arc;

use capd_proto::call::executor::{CancelState, Input, Output, Surplus};
use capd_proto::envelope::{Ext, MessageId};
use capd_proto::ledger::Status;
use capd_proto::limits::LEDGER_SWEEP_MAX;
use capd_proto::message::{self, TryOutcome, Type};

use super::Executor;
use super::results::Answer;
use super::table::Stage;
use crate::daemon::account::phases::Phase;
use crate::daemon::context::seal::ANSWER_TTL_MS;
use crate::daemon::context::{Inbound, Outbound, lock};
use crate::net::Route;
use crate::provider::CallKey;
use crate::provider::ticket::{Answers, Ticket};
use crate::store::Row;

impl Executor {
    /// Tells a running call's machine what happened, and does what it says. What comes after the end finds no call.
    pub(super) fn drive(self: &Arc<Self>, key: &CallKey, input: Input, answer: Answer<'_>) -> Driven {
        let mut driven = Driven::default();
        let (mut ended, mut told, mut handed) = (None, None, None);
        {
            let mut calls = lock(&self.table.calls);
            let Some(running) = calls.running.get_mut(key) else { return driven };
            if let Stage::Recording { waiting } = &mut running.stage {
                if matches!(input, Input::Cancel { own: true }) {
                    driven.cancel = Some(CancelState::Cancelling);
                }
                waiting.get_or_insert(input);
                return driven;
            }
            let now_ms = self.ctx.clock.monotonic_ms();
            let is_lost = matches!(input, Input::ProviderLost { .. });
            running.machine.handle(input, now_ms);
            while let Some(output) = running.machine.poll_output() {
                // A machine that has ended says nothing: its provider only gives up what was cancelled.
                if is_lost {
                    self.account.end_try(&mut running.timeline, 0, (TryOutcome::Lost, None));
                }
                match output {
                    Output::Execute | Output::TryAnother => {
                        if output == Output::TryAnother
                            && let Some(other) = running.serving.others.pop()
                        {
                            running.serving.provider = other;
                        }
                        running.machine.handle(Input::Start, now_ms);
                        self.account.enter(&mut running.timeline, Phase::Provider);
                        self.account.begin_try(&mut running.timeline, 0, None);
                        handed = Some((Arc::clone(&running.serving.provider), running.hand_over()));
                    }
                    Output::Relay => driven.is_relayed = true,
                    Output::CancelProvider => told = Some(Arc::clone(&running.serving.provider)),
                    Output::Finish(outcome) => ended = Some(outcome),
                    Output::AnswerCancel(state) => driven.cancel = Some(state),
                    Output::RefuseAnswer(surplus) => driven.surplus = Some(surplus),
                    // A call is accepted before it is driven, so nothing refuses it any more.
                    Output::Refuse(_) | Output::Drop => {}
                }
            }
            if let Some(outcome) = ended {
                self.conclude(calls, key, outcome, answer);
            }
        }
        if let Some(provider) = told {
            provider.cancel(key);
        }
        if let Some((provider, invocation)) = handed {
            provider.invoke(invocation, Ticket::new(key.clone(), Arc::clone(self) as Arc<dyn Answers>));
        }
        driven
    }

    /// Cancels a call of `from`'s. **Source:** PROTOCOL 7.6.
    pub(in crate::daemon) fn cancel_execution(self: &Arc<Self>, key: &CallKey) -> message::CancelState {
        if let Some(state) = self.drive(key, Input::Cancel { own: true }, Answer::None).cancel {
            return match state {
                CancelState::Cancelling => message::CancelState::Cancelling,
                CancelState::Finished => message::CancelState::Finished,
                CancelState::Unknown => message::CancelState::Unknown,
            };
        }
        let mut calls = lock(&self.table.calls);
        match calls.ledger.status(key) {
            Status::Finished => message::CancelState::Finished,
            Status::Executing => message::CancelState::Cancelling,
            Status::Unknown => {
                // PROTOCOL 7.6: should the call come after all, it does not run.
                calls.cancelled.leave(key, self.ctx.clock.monotonic_ms());
                message::CancelState::Unknown
            }
        }
    }

    /// Whether this very call of its sender's runs here.
    pub(in crate::daemon) fn is_executing(&self, inbound: &Inbound<'_>) -> bool {
        let key = CallKey { from: inbound.sender.clone(), id: inbound.envelope.id };
        matches!(self.table.status(&key), Status::Executing)
    }

    /// Whether the agent's call of this id runs, or ran, here.
    pub(in crate::daemon) fn executes(&self, id: MessageId) -> bool {
        let key = CallKey { from: self.ctx.did().clone(), id };
        !matches!(self.table.status(&key), Status::Unknown)
    }

    /// Whether a call with this `ts + ttl` may have run here, and was forgotten.
    pub(in crate::daemon) fn may_have_forgotten(&self, expires_at_ms: u64) -> bool {
        let forgotten_ms = lock(&self.table.calls).ledger.forgotten_ms();
        forgotten_ms.is_some_and(|last_ms| expires_at_ms <= last_ms)
    }

    /// The peer reset the stream of its one call.
    pub(in crate::daemon) fn cancel_route(self: &Arc<Self>, route: &Route) {
        let key = {
            let calls = lock(&self.table.calls);
            let mut keys = calls.running.keys();
            keys.find(|key| calls.ledger.waiters(key).any(|waiter| waiter.route.is_same(route))).cloned()
        };
        if let Some(key) = key {
            self.cancel_execution(&key);
        }
    }

    /// Passes a provider's progress on to everybody who waits for the call.
    pub(super) fn relay_progress(self: &Arc<Self>, key: &CallKey, typ: Type, body: &[u8]) {
        if !self.drive(key, Input::Notice, Answer::None).is_relayed {
            return;
        }
        let calls = lock(&self.table.calls);
        let Some(running) = calls.running.get(key) else { return };
        let signed = running.signed;
        let waiters: Vec<_> = calls
            .ledger
            .waiters(key)
            .map(|waiter| (Arc::clone(&waiter.link), waiter.route.clone()))
            .collect();
        drop(calls);
        let message = Outbound {
            id: self.ctx.fresh_id(self.ctx.clock.wall_ms()),
            typ,
            to: key.from.as_str(),
            reply_to: Some(key.id),
            thread_id: None,
            ttl_ms: ANSWER_TTL_MS,
            body,
            ext: Ext::None,
        };
        let envelope = self.ctx.seal_signed(&message, signed);
        for (link, route) in waiters {
            self.ctx.send(&link, &route, envelope.clone());
        }
    }

    /// Ends calls whose time is up and forgets what has expired, until shutdown.
    pub(in crate::daemon) async fn keep_deadlines(self: &Arc<Self>) {
        // What an earlier run forgot last may still stand in the journal's files.
        let mut tidy_ms = Some(self.ctx.clock.monotonic_ms());
        loop {
            let now_ms = self.ctx.clock.monotonic_ms();
            let mut forgotten = Vec::new();
            let (due, next_ms, swept, forgotten_ms) = {
                let mut calls = lock(&self.table.calls);
                let swept = calls.ledger.sweep(self.ctx.clock.wall_ms(), &mut forgotten);
                let due = calls.take_due(now_ms);
                let forgotten_ms = calls.ledger.forgotten_ms().unwrap_or(0);
                (due, calls.deadlines.first().map(|(at_ms, _)| at_ms), swept, forgotten_ms)
            };
            for key in due {
                // PROTOCOL 8: the time's end is the call's result.
                self.drive(&key, Input::Timeout, Answer::None);
            }
            if !forgotten.is_empty() {
                tidy_ms.get_or_insert(now_ms + TIDY_AFTER_MS);
            }
            self.scribe.expire(forgotten.into_iter().map(Row).collect(), forgotten_ms);
            if tidy_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                tidy_ms = None;
                self.scribe.tidy();
            }
            let pause_ms = if self.save_again() { SAVE_AGAIN_MS } else { SWEEP_INTERVAL_MS };
            if swept == LEDGER_SWEEP_MAX {
                // There is more to forget; calls come first.
                tokio::task::yield_now().await;
                continue;
            }
            let next_ms = next_ms.unwrap_or(u64::MAX).min(now_ms + pause_ms).min(tidy_ms.unwrap_or(u64::MAX));
            tokio::select! {
                biased;
                () = self.table.wake.notified() => {}
                () = tokio::time::sleep_until(self.ctx.clock.moment(next_ms)) => {}
            }
        }
    }

    /// Ends every call that still runs, at the end of draining.
    pub(in crate::daemon) fn interrupt_calls(self: &Arc<Self>) {
        for key in self.table.running() {
            self.drive(&key, Input::Shutdown, Answer::None);
        }
    }
}

/// What a machine said that concerns whoever drove it.
#[derive(Default)]
pub(super) struct Driven {
    pub(super) is_relayed: bool,
    pub(super) cancel: Option<CancelState>,
    pub(super) surplus: Option<Surplus>,
}

/// Longest pause between two looks for what the ledger may forget, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 10_000;
/// How long what was forgotten may still stand in the journal's files, in milliseconds: what is forgotten meanwhile is
/// removed with it.
const TIDY_AFTER_MS: u64 = 1_000;
/// Pause before a result that could not be written is written again, in milliseconds.
const SAVE_AGAIN_MS: u64 = 200;
