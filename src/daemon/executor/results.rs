//! Turns a provider's outcome into the call's one CAP_RESULT, checked and recorded.

use std::sync::{Arc, MutexGuard};

use bytes::Bytes;
use capd_proto::call::executor::{self, Input, Surplus};
use capd_proto::cbor::Writer;
use capd_proto::code::Code;
use capd_proto::envelope::Ext;
use capd_proto::ledger::{Answerer, Kept};
use capd_proto::limits::{EXT_CAPABILITY_ID, MSG_SIZE_BYTES_FLOOR};
use capd_proto::message::{CallError, CapResult, SchemaSide, TryOutcome, Type};

use super::Executor;
use super::drive::Driven;
use super::table::{Calls, Concluded, Running, Stage};
use crate::daemon::account::access::End;
use crate::daemon::account::audit::Audited;
use crate::daemon::account::phases::Phase;
use crate::daemon::context::judge::{Judged, verdict};
use crate::daemon::context::seal::{Unsealed, seals_long};
use crate::daemon::context::wire::{uint, violation_details, with_fields};
use crate::daemon::context::{Outbound, lock};
use crate::provider::ticket::{self, Answers};
use crate::provider::{AgentResult, CallKey, Outcome};
use crate::schema::{Artifact, Side};

impl Answers for Executor {
    fn finish(self: Arc<Self>, answer: ticket::Answer) {
        let (key, outcome) = answer.into_parts();
        let unjudged = self.unjudged(&key, &outcome);
        let seals = self.seals_long(&key, &outcome);
        if unjudged.is_none() && !seals {
            return self.finish_judged(&key, outcome, &[], None);
        }
        if let Some(running) = lock(&self.table.calls).running.get_mut(&key) {
            self.account.enter(&mut running.timeline, Phase::Result);
        }
        let executor = Arc::clone(&self);
        self.ctx.spawn(async move {
            let judged = match unjudged {
                Some((output, result)) => Some(executor.ctx.judge(&output, result, Side::Response).await),
                None => None,
            };
            let fits = judged.as_ref().is_none_or(Judged::fits);
            let sealed = if seals && fits { executor.seal_long(&key, &outcome).await } else { None };
            executor.finish_judged(&key, outcome, judged.as_slice(), sealed);
        });
    }
}

/// A result that is sealed already, should it be the call's.
pub(super) struct SealedResult {
    body: Bytes,
    concluded: Concluded,
}

impl Executor {
    /// Whether to sign a provider's result takes longer than links may wait.
    fn seals_long(&self, key: &CallKey, outcome: &Outcome) -> bool {
        let body = match outcome {
            Outcome::Success(body) | Outcome::Body(AgentResult { body, ended: Ok(_), .. }) => body,
            Outcome::Body(_) | Outcome::Failure { .. } | Outcome::Lost => return false,
        };
        let calls = lock(&self.table.calls);
        calls.running.get(key).is_some_and(|running| seals_long(body, running.signed))
    }

    /// Signs a provider's result on the compute pool. `None` when nobody waits for it any more.
    async fn seal_long(self: &Arc<Self>, key: &CallKey, outcome: &Outcome) -> Option<SealedResult> {
        let (body, now_ms, unsealed) = {
            let calls = lock(&self.table.calls);
            let running = calls.running.get(key)?;
            let body = match outcome {
                Outcome::Success(result) => self.success_body(running, result).into(),
                Outcome::Body(result) => self.timed_body(running, result),
                Outcome::Failure { .. } | Outcome::Lost => return None,
            };
            let now_ms = self.ctx.clock.wall_ms();
            let ext = chosen_ext(running).or_else(|| running.is_deprecated.then(deprecated_ext));
            let unsealed = Unsealed {
                id: self.ctx.fresh_id(now_ms),
                typ: Type::CapResult,
                to: key.from.clone(),
                reply_to: Some(key.id),
                thread_id: None,
                ttl_ms: running.moments.expires_at_ms.saturating_sub(now_ms),
                body: Bytes::clone(&body),
                ext,
            };
            (body, now_ms, unsealed)
        };
        let (envelope, _) = self.ctx.seal_later(unsealed).await;
        Some(SealedResult { body, concluded: Concluded { envelope, finished_at_ms: now_ms, ended: Ok(()) } })
    }

    /// The schema and the result whose verdict takes long.
    fn unjudged(&self, key: &CallKey, outcome: &Outcome) -> Option<(Arc<Artifact>, Bytes)> {
        let result = match outcome {
            Outcome::Success(result) => result.clone(),
            Outcome::Body(AgentResult { body, ended: Ok(result), .. }) => body.slice_ref(result),
            Outcome::Body(_) | Outcome::Failure { .. } | Outcome::Lost => return None,
        };
        let output = lock(&self.table.calls).running.get(key)?.serving.output.clone()?;
        matches!(verdict(&output, &result, Side::Response, &[]), Ok(None)).then_some((output, result))
    }

    /// A provider's outcome, with the verdict over its result if that took long.
    fn finish_judged(
        self: &Arc<Self>,
        key: &CallKey,
        outcome: Outcome,
        judged: &[Judged],
        sealed: Option<SealedResult>,
    ) {
        let is_answer = !matches!(outcome, Outcome::Lost);
        let is_running = lock(&self.table.calls).running.contains_key(key);
        let surplus = if is_running {
            self.answered(key, outcome, judged, sealed).surplus
        } else {
            Some(Surplus::Late)
        };
        if let (Some(surplus), true) = (surplus, is_answer) {
            self.account.audit_surplus(surplus, &key.id, key.from.as_str(), None);
        }
    }

    /// A provider's outcome to the machine, once it is known whether the result fits.
    fn answered(
        self: &Arc<Self>,
        key: &CallKey,
        outcome: Outcome,
        judged: &[Judged],
        sealed: Option<SealedResult>,
    ) -> Driven {
        let fits = Input::ProviderResult { fits: true };
        let sealed = sealed.as_ref().map(Answer::Sealed);
        match outcome {
            Outcome::Success(result) => match self.violations(key, &result, judged) {
                None => self.drive(key, fits, sealed.unwrap_or(Answer::Success(&result))),
                Some(details) => self.answered_unfit(key, &details),
            },
            Outcome::Body(result) => {
                let unfit =
                    result.ended.as_ref().ok().and_then(|result| self.violations(key, result, judged));
                match unfit {
                    None => self.drive(key, fits, sealed.unwrap_or(Answer::Body(&result))),
                    Some(details) => self.answered_unfit(key, &details),
                }
            }
            Outcome::Failure { code, message } => self.answered_failure(key, code, &message),
            Outcome::Lost => {
                let another = lock(&self.table.calls)
                    .running
                    .get(key)
                    .is_some_and(|call| !call.serving.others.is_empty());
                self.drive(key, Input::ProviderLost { another }, Answer::None)
            }
        }
    }

    fn answered_failure(self: &Arc<Self>, key: &CallKey, code: Code, message: &str) -> Driven {
        let answer = Answer::Failure { message, details: None, is_providers: true };
        self.drive(key, Input::ProviderError(code), answer)
    }

    /// PROTOCOL 7.4: the result stays here; the caller gets the violations.
    fn answered_unfit(self: &Arc<Self>, key: &CallKey, details: &[u8]) -> Driven {
        let message = reason(Code::RESULT_SCHEMA_VIOLATION);
        let answer = Answer::Failure { message, details: Some(details), is_providers: true };
        self.drive(key, Input::ProviderResult { fits: false }, answer)
    }

    /// The `details` of a result that breaks its output schema.
    fn violations(&self, key: &CallKey, result: &[u8], judged: &[Judged]) -> Option<Vec<u8>> {
        let output = lock(&self.table.calls).running.get(key)?.serving.output.clone()?;
        // The schema compiled when the capability was declared. Of a call that has another provider by this time it may be
        // another one, and there is nobody left to wait for a verdict.
        let violations = match verdict(&output, result, Side::Response, judged).ok()? {
            Some(verdict) => verdict,
            None => output.validator().ok()?.validate(result, Side::Response),
        }
        .err()?;
        let (capability, session) = {
            let calls = lock(&self.table.calls);
            let running = calls.running.get(key)?;
            (running.invocation.capability.name.clone(), running.session)
        };
        let call = Audited { capability: capability.as_str(), peer: key.from.as_str(), id: &key.id, session };
        self.account.audit_violations(SchemaSide::Response, call, &violations);
        self.account.audit_raw_result(call, result);
        Some(violation_details(SchemaSide::Response, &violations))
    }

    /// Records the call's one result and sends it to everybody who waits; one that belongs in the journal goes there first.
    pub(super) fn conclude(
        &self,
        mut calls: MutexGuard<'_, Calls>,
        key: &CallKey,
        outcome: executor::Outcome,
        answer: Answer<'_>,
    ) {
        let Calls { ledger, running: all, .. } = &mut *calls;
        let Some(running) = all.get_mut(key) else { return };
        self.account.enter(&mut running.timeline, Phase::Result);
        let running = &*running;
        if !answer.is_providers() && matches!(outcome, executor::Outcome::Error(Code::INTERRUPTED)) {
            self.account.audit_interrupted(key, &running.invocation, "the sidecar shut down while it ran");
        }
        let by = if answer.is_providers() { Answerer::Provider } else { Answerer::Sidecar };
        // PROTOCOL 8: a result that reaches everybody who waits for it.
        let bytes_max = || {
            let links = ledger.waiters(key).map(|waiter| waiter.link.message_bytes_max());
            links.fold(self.message_bytes_max(), usize::min)
        };
        let (concluded, body) = self.result(key, running, outcome, answer, bytes_max);
        self.log_executed(key, running, End::Result(&body, concluded.ended));
        let is_journaled = running.row.is_some();
        if let Some(running) = all.get_mut(key) {
            let end = match concluded.ended {
                _ if !answer.is_providers() => (TryOutcome::Unanswered, None),
                Ok(()) => (TryOutcome::Success, None),
                Err(code) => (TryOutcome::Error, Some(code)),
            };
            self.account.end_try(&mut running.timeline, 0, end);
        }
        if is_journaled {
            if let Some(running) = calls.running.get_mut(key) {
                running.stage = Stage::Concluding { concluded, by };
                self.account.enter(&mut running.timeline, Phase::Journal);
            }
            drop(calls);
            return self.save(key);
        }
        if let Some(running) = calls.end(key) {
            self.keep_timeline(&mut calls, key, running.timeline);
        }
        let envelope = concluded.envelope;
        let kept = Kept::Held(envelope.clone());
        let finish = calls.ledger.finish(key, kept, by);
        drop(calls);
        self.answer_waiters(key, finish, &envelope);
    }

    /// The CAP_RESULT that ends a call, and its body. `bytes_max` is how large it may be, asked only of one that is larger than
    /// what every side takes (PROTOCOL 3).
    fn result(
        &self,
        key: &CallKey,
        running: &Running,
        outcome: executor::Outcome,
        answer: Answer<'_>,
        bytes_max: impl FnOnce() -> usize,
    ) -> (Concluded, Bytes) {
        let lost = "the provider's answer was lost";
        let failure = |code, message: &str, details| {
            (Bytes::from(self.failure_body(running, code, message, details)), Err(code))
        };
        let (body, ended) = match (outcome, answer) {
            (executor::Outcome::Provider, Answer::Body(result)) => {
                (self.timed_body(running, result), result.ended.as_ref().map(drop).map_err(|code| *code))
            }
            (executor::Outcome::Provider, Answer::Sealed(SealedResult { body, concluded })) => {
                return self.within(key, running, (concluded.clone(), body.clone()), bytes_max);
            }
            (executor::Outcome::Provider, Answer::Success(result)) => {
                (self.success_body(running, result).into(), Ok(()))
            }
            (executor::Outcome::Error(code), Answer::Failure { message, details, .. }) => {
                failure(code, message, details)
            }
            (executor::Outcome::Error(code), _) => failure(code, reason(code), None),
            (executor::Outcome::Provider, Answer::None | Answer::Failure { .. }) => {
                failure(Code::INTERNAL_ERROR, lost, None)
            }
        };
        let concluded = self.concluded(key, running, &body, ended);
        self.within(key, running, (concluded, body), bytes_max)
    }

    /// The result, unless it is larger than a message may be.
    fn within(
        &self,
        key: &CallKey,
        running: &Running,
        (concluded, body): (Concluded, Bytes),
        bytes_max: impl FnOnce() -> usize,
    ) -> (Concluded, Bytes) {
        if concluded.envelope.len() < MSG_SIZE_BYTES_FLOOR as usize {
            return (concluded, body);
        }
        let bytes_max = bytes_max();
        if concluded.envelope.len() <= bytes_max {
            return (concluded, body);
        }
        let message = format!("the result is larger than the {bytes_max} bytes that a message may have");
        let code = Code::INTERNAL_ERROR;
        let body = Bytes::from(self.failure_body(running, code, &message, None));
        (self.concluded(key, running, &body, Err(code)), body)
    }

    fn concluded(
        &self,
        key: &CallKey,
        running: &Running,
        body: &Bytes,
        ended: Result<(), Code>,
    ) -> Concluded {
        let now_ms = self.ctx.clock.wall_ms();
        let chosen = chosen_ext(running);
        let message = Outbound {
            id: self.ctx.fresh_id(now_ms),
            typ: Type::CapResult,
            to: key.from.as_str(),
            reply_to: Some(key.id),
            thread_id: None,
            // PROTOCOL 8: it is good for as long as the invoke is.
            ttl_ms: running.moments.expires_at_ms.saturating_sub(now_ms),
            body: &[],
            ext: match &chosen {
                Some(chosen) => Ext::Raw(chosen),
                None => Ext::Fields { traceparent: None, deprecated: running.is_deprecated },
            },
        };
        let (envelope, _) = self.ctx.pass_on(message.draft(self.ctx.did()), body, running.signed);
        Concluded { envelope, finished_at_ms: now_ms, ended }
    }

    /// An agent's CAP_RESULT body with the time that its call took, if it does not say that itself.
    fn timed_body(&self, running: &Running, AgentResult { body, is_timed, .. }: &AgentResult) -> Bytes {
        if *is_timed {
            return body.clone();
        }
        let time_ms = uint(self.execution_time_ms(running));
        with_fields(body, &[("execution_time_ms", &time_ms)]).into()
    }

    fn success_body(&self, running: &Running, result: &[u8]) -> Vec<u8> {
        let mut body = Vec::with_capacity(result.len() + 48);
        let mut success = CapResult::success(result);
        success.execution_time_ms = Some(self.execution_time_ms(running));
        success.encode(&mut body);
        body
    }

    fn failure_body(&self, running: &Running, code: Code, message: &str, details: Option<&[u8]>) -> Vec<u8> {
        let mut body = Vec::new();
        let mut error = CapResult::error(CallError::new(code, message, details));
        error.execution_time_ms = Some(self.execution_time_ms(running));
        error.encode(&mut body);
        body
    }

    fn execution_time_ms(&self, running: &Running) -> u64 {
        self.ctx.clock.monotonic_us().saturating_sub(running.moments.started_us) / 1_000
    }
}

/// The `ext` of a call's result that tells which capability was chosen, where the call left that open.
fn chosen_ext(running: &Running) -> Option<Vec<u8>> {
    if running.invocation.names_id {
        return None;
    }
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.map(1 + u64::from(running.is_deprecated));
    if running.is_deprecated {
        writer.text("deprecated").bool(true);
    }
    writer.text(EXT_CAPABILITY_ID).text(&running.invocation.capability.to_string());
    Some(out)
}

/// The `ext` of a result of a deprecated version.
fn deprecated_ext() -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).map(1).text("deprecated").bool(true);
    out
}

/// What a machine's output may speak of.
#[derive(Clone, Copy)]
pub(super) enum Answer<'a> {
    /// Nothing: the sidecar ends the call in its provider's place.
    None,
    /// A CAP_RESULT.
    Body(&'a AgentResult),
    /// A result alone.
    Success(&'a [u8]),
    /// Either of them, sealed.
    Sealed(&'a SealedResult),
    /// Why there is no result.
    Failure { message: &'a str, details: Option<&'a [u8]>, is_providers: bool },
}

impl Answer<'_> {
    const fn is_providers(self) -> bool {
        match self {
            Self::None => false,
            Self::Body(_) | Self::Success(_) | Self::Sealed(_) => true,
            Self::Failure { is_providers, .. } => is_providers,
        }
    }
}

/// What a caller reads when the sidecar ends a call in its provider's place.
fn reason(code: Code) -> &'static str {
    match code {
        Code::TIMEOUT => "the call's time ran out",
        Code::CANCELLED => "the caller cancelled the call",
        Code::UNAVAILABLE => "the provider left before it answered",
        Code::INTERRUPTED => "the sidecar shut down while the call ran; whether it took effect is unknown",
        Code::RESULT_SCHEMA_VIOLATION => "the result does not fit the output schema",
        _ => "the provider sent no answer",
    }
}
