//! Continues calls when the journal has written: hands them to providers, sends results, replays recorded ones.
//!
//! A non-idempotent call is on disk before its provider sees it, and its result before its caller does (PROTOCOL 8).
//! Anything that happens while its row is being written waits for that.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::call::executor::{Input, Surplus};
use capd_proto::code::Code;
use capd_proto::envelope::{Encoded, MessageId};
use capd_proto::ledger::{Answerer, Finish, Kept};
use capd_proto::message::{CallError, CapResult, Type};

use super::Executor;
use super::results::Answer;
use super::table::{Stage, Waiter};
use crate::daemon::account::access::End;
use crate::daemon::context::wire::not_final;
use crate::daemon::context::{Refusal, lock};
use crate::daemon::journal::{untaken, unwritable};
use crate::provider::CallKey;
use crate::store::{Begun, Change, Row, StoreError, Work};

/// What a piece of the journal's work was for.
pub(in crate::daemon) enum Written {
    /// A call's row: it may be given to its provider.
    Begun(CallKey),
    /// A call's result: it may be sent.
    Finished(CallKey),
    /// A call's tombstone: the call may go to another executor.
    Released { key: CallKey, row: Row },
    /// A recorded result was read for somebody who asked again.
    Recalled { id: MessageId, waiter: Waiter },
}

impl Executor {
    /// Acts on what the journal has done.
    pub(in crate::daemon) fn on_execution_written(
        self: &Arc<Self>,
        tag: Written,
        outcome: Result<Option<Bytes>, StoreError>,
    ) {
        match tag {
            Written::Begun(key) => match outcome {
                Ok(_) => self.on_begun(&key),
                Err(error) => self.refuse_unwritten(&key, &error),
            },
            Written::Finished(key) => match outcome {
                Ok(_) => self.on_finished(&key),
                Err(error) => self.keep_unsaved(key, &error),
            },
            Written::Released { key, row } => self.on_released(&key, row, outcome.map(drop)),
            Written::Recalled { id, waiter } => match outcome {
                Ok(Some(result)) => self.ctx.send(&waiter.link, &waiter.route, result),
                Ok(None) => self.answer_unreadable(id, &waiter),
                Err(error) => {
                    tracing::error!(%id, %error, "a recorded result cannot be read");
                    self.answer_unreadable(id, &waiter);
                }
            },
        }
    }

    /// Asks the journal for a call's row. **Errors:** 5004 when its queue is full, 5002 when it has ended.
    pub(super) fn begin(&self, begun: Begun) -> Result<(), Refusal> {
        let key = begun.key.clone();
        self.scribe.submit(Work::Write(Change::Begin(begun)), Written::Begun(key)).map_err(untaken)
    }

    /// PROTOCOL 8: the row is on disk, or none is needed, so the provider may see the call.
    pub(super) fn on_begun(self: &Arc<Self>, key: &CallKey) {
        let waiting = {
            let mut calls = lock(&self.table.calls);
            let Some(running) = calls.running.get_mut(key) else { return };
            let Stage::Recording { waiting } = std::mem::replace(&mut running.stage, Stage::Executing) else {
                return;
            };
            if waiting.is_some() {
                // It ends before any provider has it.
                running.machine.handle(Input::Accept, self.ctx.clock.monotonic_ms());
                while running.machine.poll_output().is_some() {}
            }
            waiting
        };
        self.drive(key, waiting.unwrap_or(Input::Accept), Answer::None);
    }

    /// Never executed without its row: the call is refused, and may be tried again under the same id.
    fn refuse_unwritten(&self, key: &CallKey, error: &StoreError) {
        tracing::error!(id = %key.id, from = %key.from, %error, "a call is refused: the journal cannot be written");
        let (ended, waiters) = {
            let mut calls = lock(&self.table.calls);
            let ended = calls.end(key);
            (ended, calls.ledger.withdraw(key).unwrap_or_default())
        };
        if let Some(running) = &ended {
            self.log_executed(key, running, End::Refused(unwritable().code));
        }
        for waiter in waiters {
            self.ctx.refuse(&waiter.link, &waiter.route, Some(key.id), &unwritable());
        }
        self.table.idle.notify_waiters();
        // The disk may have kept it all the same.
        if let Some(row) = ended.and_then(|running| running.row) {
            self.scribe.forget(row);
        }
    }

    /// Hands a result to the journal; one that finds no room is handed over again later.
    pub(super) fn save(&self, key: &CallKey) {
        let change = {
            let mut calls = lock(&self.table.calls);
            calls.unsaved.remove(key);
            let Some(running) = calls.running.get(key) else { return };
            let (Stage::Concluding { concluded, .. }, Some(row)) = (&running.stage, running.row) else {
                return;
            };
            let result = concluded.envelope.clone().into_bytes();
            Change::Finish { row, result, finished_at_ms: self.ctx.clock.wall_ms() }
        };
        if self.scribe.submit(Work::Write(change), Written::Finished(key.clone())).is_err() {
            lock(&self.table.calls).unsaved.insert(key.clone());
            self.table.wake.notify_one();
        }
    }

    /// PROTOCOL 8: the result is on disk, so the caller may see it.
    fn on_finished(&self, key: &CallKey) {
        let (envelope, finish) = {
            let mut calls = lock(&self.table.calls);
            let Some(running) = calls.end(key) else { return };
            self.account.record_saved(&running.traced, &running.timeline);
            self.keep_timeline(&mut calls, key, running.timeline);
            let (Stage::Concluding { concluded, by }, Some(row)) = (running.stage, running.row) else {
                return;
            };
            let envelope = concluded.envelope;
            let kept = Kept::Journaled { row: row.0, bytes: envelope.len() };
            (envelope, calls.ledger.finish(key, kept, by))
        };
        self.answer_waiters(key, finish, &envelope);
    }

    /// A result that could not be written is not sent: it is written again until it can be, or nobody may ask any more.
    fn keep_unsaved(&self, key: CallKey, error: &StoreError) {
        tracing::error!(id = %key.id, from = %key.from, %error, "a result waits: the journal cannot be written");
        lock(&self.table.calls).unsaved.insert(key);
        self.table.wake.notify_one();
    }

    /// Writes again what could not be written, and gives up what has expired; `true` when anything still waits.
    pub(super) fn save_again(&self) -> bool {
        let now_ms = self.ctx.clock.wall_ms();
        let (expired, unsaved): (Vec<_>, Vec<_>) = {
            let calls = lock(&self.table.calls);
            let is_expired = |key: &CallKey| {
                calls.running.get(key).is_none_or(|running| running.moments.expires_at_ms < now_ms)
            };
            calls.unsaved.iter().cloned().partition(is_expired)
        };
        let waits = !unsaved.is_empty();
        for key in unsaved {
            self.save(&key);
        }
        for key in expired {
            let mut calls = lock(&self.table.calls);
            calls.unsaved.remove(&key);
            let Some(running) = calls.end(&key) else { continue };
            let Some(row) = running.row else { continue };
            // Its envelope has expired with it, so nobody who waits could take it. The next sweep forgets it.
            let kept = Kept::Journaled { row: row.0, bytes: 0 };
            let _expired = calls.ledger.finish(&key, kept, Answerer::Sidecar);
            drop(calls);
            let reason = "its result expired before the journal could be written";
            self.account.audit_interrupted(&key, &running.invocation, reason);
            self.table.idle.notify_waiters();
        }
        waits
    }

    /// Sends the one result to everybody who waits for it.
    pub(super) fn answer_waiters(&self, key: &CallKey, finish: Finish<Waiter>, envelope: &Encoded) {
        match finish {
            Finish::Recorded(waiters) => {
                for waiter in waiters {
                    self.ctx.send(&waiter.link, &waiter.route, envelope.clone());
                }
            }
            Finish::Late => self.account.audit_surplus(Surplus::Late, &key.id, key.from.as_str(), None),
            Finish::Second => self.account.audit_surplus(Surplus::Second, &key.id, key.from.as_str(), None),
            Finish::Unknown => self.account.audit_surplus(Surplus::Unasked, &key.id, key.from.as_str(), None),
        }
        self.table.idle.notify_waiters();
    }

    /// Reads a recorded result for somebody who asks again.
    pub(super) fn recall(&self, id: MessageId, row: Row, waiter: Waiter) {
        // What answers if the queue is full is as good as any other.
        let again = waiter.clone();
        if self.scribe.submit(Work::Read(row), Written::Recalled { id, waiter }).is_err() {
            self.answer_unreadable(id, &again);
        }
    }

    /// PROTOCOL 8: an ERROR would say that the call was not executed, so one whose result cannot be had ends as unknown; who
    /// asks again may get it.
    fn answer_unreadable(&self, id: MessageId, waiter: &Waiter) {
        let mut body = Vec::new();
        let message = "the call has its result, which cannot be read from the journal";
        CapResult::error(CallError::new(Code::INTERRUPTED, message, Some(&not_final()))).encode(&mut body);
        let link = &waiter.link;
        let envelope = self.ctx.answer(link, link.principal(), Some(id), Type::CapResult, &body);
        self.ctx.send(link, &waiter.route, envelope);
    }
}
