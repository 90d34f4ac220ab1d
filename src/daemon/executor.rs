//! Invokes for our own providers in, one CAP_RESULT or one ERROR each out: the executor's side of a call.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use capd_proto::call::executor::{self, Executor as Machine, Input, Output, Surplus};
use capd_proto::code::Code;
use capd_proto::envelope::{Ext, MessageId};
use capd_proto::identity::Did;
use capd_proto::ledger::{
    Admission, Answerer, BodyDigest, Finish, Invoke as Admitted, Ledger, Limits, Status,
};
use capd_proto::message::{self, CallError, CapResult, Invoke, SchemaSide, Type};
use capd_proto::negotiate::Want;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::node::{Node, Outbound, Refusal, lock, needs_signature};
use super::wire::{mismatch, violation_details};
use crate::net::{Link, Route};
use crate::provider::ticket::{Answers, Ticket};
use crate::provider::{CallKey, Invocation, Outcome, Provider};
use crate::registry::snapshot::{Entry, Origin};
use crate::router::{self, Scope};
use crate::schema::{Artifact, Side};

/// Running calls and the ledger of those that ran.
pub(super) struct Executor {
    calls: Mutex<Calls>,
    /// Wakes the task that keeps deadlines, when an earlier one came in.
    wake: Notify,
    /// Wakes those who wait for the last running call to end.
    idle: Notify,
    calls_max: usize,
    calls_per_peer_max: usize,
}

struct Calls {
    ledger: Ledger<Waiter>,
    running: HashMap<CallKey, Running>,
    /// Calls in flight by caller.
    by_caller: HashMap<Did, usize>,
    deadlines: BTreeSet<(u64, CallKey)>,
}

/// Where a result is to go.
#[derive(Debug)]
pub(super) struct Waiter {
    link: Arc<Link>,
    route: Route,
}

/// A call whose provider has it.
struct Running {
    machine: Machine,
    invocation: Invocation,
    provider: Arc<dyn Provider>,
    /// Other providers of the same capability, for an idempotent call whose provider is lost.
    others: Vec<Arc<dyn Provider>>,
    output: Option<Arc<Artifact>>,
    is_deprecated: bool,
    signed: bool,
    expires_at_ms: u64,
    started_ms: u64,
    deadline_ms: u64,
}

/// A CAP_INVOKE that is to run here.
pub(super) struct Incoming<'a> {
    pub(super) link: &'a Arc<Link>,
    pub(super) route: &'a Route,
    pub(super) from: &'a Did,
    pub(super) id: MessageId,
    /// The envelope that the provider gets.
    pub(super) envelope: Bytes,
    pub(super) body: &'a Bytes,
    pub(super) invoke: &'a Invoke<'a>,
    pub(super) name: &'a str,
    pub(super) want: Want,
    pub(super) expires_at_ms: u64,
}

impl Executor {
    pub(super) fn new(limits: Limits, calls_max: usize, calls_per_peer_max: usize) -> Self {
        let calls = Calls {
            ledger: Ledger::new(limits),
            running: HashMap::new(),
            by_caller: HashMap::new(),
            deadlines: BTreeSet::new(),
        };
        let (wake, idle) = (Notify::new(), Notify::new());
        Self { calls: Mutex::new(calls), wake, idle, calls_max, calls_per_peer_max }
    }

    /// Waits until no call runs.
    pub(super) async fn idle(&self) {
        loop {
            let changed = self.idle.notified();
            if lock(&self.calls).running.is_empty() {
                return;
            }
            changed.await;
        }
    }

    /// Keys of every running call.
    fn running(&self) -> Vec<CallKey> {
        lock(&self.calls).running.keys().cloned().collect()
    }
}

impl Calls {
    fn start(&mut self, key: CallKey, running: Running) {
        *self.by_caller.entry(key.from.clone()).or_default() += 1;
        self.deadlines.insert((running.deadline_ms, key.clone()));
        self.running.insert(key, running);
    }

    fn end(&mut self, key: &CallKey) -> Option<Running> {
        let running = self.running.remove(key)?;
        self.deadlines.remove(&(running.deadline_ms, key.clone()));
        if let Some(count) = self.by_caller.get_mut(&key.from) {
            *count -= 1;
            if *count == 0 {
                self.by_caller.remove(&key.from);
            }
        }
        Some(running)
    }
}

impl Node {
    /// Runs a call with one of our own providers, joins it to itself, or replays its result.
    ///
    /// **Errors:** the refusal, in the order of PROTOCOL 7.3.
    pub(super) fn execute(&self, call: &Incoming<'_>) -> Result<(), Refusal> {
        let key = CallKey { from: call.from.clone(), id: call.id };
        let digest = BodyDigest(Sha256::digest(call.body).into());
        let status = lock(&self.executor.calls).ledger.status(&key);
        if !matches!(status, Status::Unknown) {
            // PROTOCOL 8: a known id is joined or replayed whatever is served by now.
            return self.meet(call, key, digest, false).map(drop);
        }
        let snapshot = self.registry.snapshot();
        let choice = router::route(&snapshot, call.name, &call.want, Scope::Local).map_err(mismatch)?;
        let descriptor = &choice.entry.descriptor;
        if let Some(schema) = self.schema(descriptor.input_schema.as_ref())? {
            let params = schema.validator().map_err(refused_artifact)?;
            params.validate(call.invoke.params, Side::Request).map_err(|violations| {
                Refusal::new(Code::SCHEMA_VIOLATION, "the params do not fit the input schema")
                    .with_details(violation_details(SchemaSide::Request, &violations))
            })?;
        }
        let output = self.schema(descriptor.output_schema.as_ref())?;
        let mut others = self.candidates(choice.entry, &choice.alternatives);
        let left = || Refusal::new(Code::UNAVAILABLE, "the provider has just left");
        let provider = others.pop().ok_or_else(left)?;
        let idempotent = descriptor.idempotent;
        self.room_for(call.from)?;
        if !self.meet(call, key.clone(), digest, idempotent)? {
            return Ok(());
        }
        let time_ms = call.invoke.timeout_ms.or(descriptor.timeout_ms).unwrap_or(self.rules.call_timeout_ms);
        let deadline_ms = self.deadline_ms(call.expires_at_ms, time_ms);
        let invocation = Invocation {
            key: key.clone(),
            capability: descriptor.id.clone(),
            envelope: call.envelope.clone(),
            params: call.body.slice_ref(call.invoke.params),
            deadline: self.clock.moment(deadline_ms),
        };
        let running = Running {
            machine: Machine::new(idempotent, deadline_ms),
            invocation,
            provider,
            others,
            output,
            is_deprecated: choice.is_deprecated,
            signed: needs_signature(call.link),
            expires_at_ms: call.expires_at_ms,
            started_ms: self.clock.monotonic_ms(),
            deadline_ms,
        };
        lock(&self.executor.calls).start(key.clone(), running);
        self.executor.wake.notify_one();
        self.drive(&key, Input::Accept, Answer::None);
        Ok(())
    }

    /// Asks the ledger: `true` when the call is new and is to run.
    fn meet(
        &self,
        call: &Incoming<'_>,
        key: CallKey,
        body: BodyDigest,
        idempotent: bool,
    ) -> Result<bool, Refusal> {
        let waiter = Waiter { link: Arc::clone(call.link), route: call.route.clone() };
        let invoke = Admitted { key, body, expires_at_ms: call.expires_at_ms, idempotent };
        let admission = lock(&self.executor.calls).ledger.admit(invoke, waiter);
        match admission {
            Admission::New => Ok(true),
            Admission::Attached { displaced: _ } => Ok(false),
            Admission::Replay { result, waiter } => {
                self.send(&waiter.link, &waiter.route, result);
                Ok(false)
            }
            Admission::Conflict(_) => {
                Err(Refusal::new(Code::BAD_REQUEST, "this id belongs to a call with another body"))
            }
            Admission::Full { .. } => Err(Refusal::new(Code::OVERLOADED, "the memory of calls is full")),
        }
    }

    fn room_for(&self, caller: &Did) -> Result<(), Refusal> {
        let calls = lock(&self.executor.calls);
        if self.draining.is_cancelled() {
            return Err(Refusal::new(Code::UNAVAILABLE, "the sidecar is shutting down"));
        }
        if calls.running.len() >= self.executor.calls_max {
            return Err(Refusal::new(Code::OVERLOADED, "too many calls are in flight"));
        }
        if calls.by_caller.get(caller).copied().unwrap_or(0) >= self.executor.calls_per_peer_max {
            return Err(Refusal::new(Code::OVERLOADED, "this caller has too many calls in flight"));
        }
        Ok(())
    }

    /// The providers behind the chosen capability, the least loaded last.
    fn candidates(&self, chosen: &Entry, all: &[&Entry]) -> Vec<Arc<dyn Provider>> {
        let mut providers: Vec<_> = all
            .iter()
            .filter(|entry| entry.descriptor == chosen.descriptor)
            .filter_map(|entry| match &entry.origin {
                Origin::Local(id) => self.providers.serving(*id),
                Origin::Peer(_) => None,
            })
            .collect();
        providers.sort_by_key(|provider| std::cmp::Reverse(provider.in_flight()));
        providers
    }

    /// Tells a running call's machine what happened, and does what it says. What comes after the end finds no call.
    fn drive(&self, key: &CallKey, input: Input, answer: Answer<'_>) -> Driven {
        let mut driven = Driven::default();
        let (mut ended, mut told, mut handed) = (None, None, None);
        {
            let mut calls = lock(&self.executor.calls);
            let Some(running) = calls.running.get_mut(key) else { return driven };
            running.machine.handle(input, self.clock.monotonic_ms());
            while let Some(output) = running.machine.poll_output() {
                match output {
                    Output::Execute | Output::TryAnother => {
                        if output == Output::TryAnother
                            && let Some(other) = running.others.pop()
                        {
                            running.provider = other;
                        }
                        running.machine.handle(Input::Start, self.clock.monotonic_ms());
                        handed = Some((Arc::clone(&running.provider), running.invocation.clone()));
                    }
                    Output::Relay => driven.is_relayed = true,
                    Output::CancelProvider => told = Some(Arc::clone(&running.provider)),
                    Output::Finish(outcome) => ended = Some(outcome),
                    Output::AnswerCancel(state) => driven.cancel = Some(state),
                    Output::RefuseAnswer(surplus) => driven.surplus = Some(surplus),
                    // A call is accepted before it is driven, so nothing refuses it any more.
                    Output::Refuse(_) | Output::Drop => {}
                }
            }
            if let Some(outcome) = ended
                && let Some(running) = calls.end(key)
            {
                drop(calls);
                self.conclude(key, &running, outcome, answer);
            }
        }
        if let Some(provider) = told {
            provider.cancel(key);
        }
        if let (Some((provider, invocation)), Some(node)) = (handed, self.shared()) {
            provider.invoke(invocation, Ticket::new(key.clone(), node));
        }
        driven
    }

    /// Records the call's one result and sends it to everybody who waits.
    fn conclude(&self, key: &CallKey, running: &Running, outcome: executor::Outcome, answer: Answer<'_>) {
        let by = if answer.is_providers() { Answerer::Provider } else { Answerer::Sidecar };
        let body = match (outcome, answer) {
            (executor::Outcome::Provider, Answer::Body(body)) => body.to_vec(),
            (executor::Outcome::Provider, Answer::Success(result)) => self.success_body(running, result),
            (executor::Outcome::Error(code), Answer::Failure { message, details, .. }) => {
                self.failure_body(running, code, message, details)
            }
            (executor::Outcome::Error(code), _) => self.failure_body(running, code, reason(code), None),
            (executor::Outcome::Provider, Answer::None | Answer::Failure { .. }) => {
                self.failure_body(running, Code::INTERNAL_ERROR, "the provider's answer was lost", None)
            }
        };
        let limit = self.rules.message_bytes_max;
        let mut envelope = self.result_envelope(key, running, &body);
        if envelope.len() > limit {
            let message = format!("the result is larger than the {limit} bytes that a message may have");
            let body = self.failure_body(running, Code::INTERNAL_ERROR, &message, None);
            envelope = self.result_envelope(key, running, &body);
        }
        let finish =
            lock(&self.executor.calls).ledger.finish(key, envelope.clone(), by, self.clock.wall_ms());
        match finish {
            Finish::Recorded(waiters) => {
                for waiter in waiters {
                    self.send(&waiter.link, &waiter.route, envelope.clone());
                }
            }
            Finish::Late | Finish::Second | Finish::Unknown => {
                tracing::warn!(target: "audit", kind = "duplicate_result", id = %key.id, "an answer was dropped");
            }
        }
        self.executor.idle.notify_waiters();
    }

    fn result_envelope(&self, key: &CallKey, running: &Running, body: &[u8]) -> Bytes {
        let now_ms = self.clock.wall_ms();
        let message = Outbound {
            id: self.fresh_id(now_ms),
            typ: Type::CapResult,
            to: key.from.as_str(),
            reply_to: Some(key.id),
            // PROTOCOL 8: it is good for as long as the invoke is.
            ttl_ms: running.expires_at_ms.saturating_sub(now_ms),
            body,
            ext: Ext::Fields { traceparent: None, deprecated: running.is_deprecated },
        };
        self.seal_signed(&message, running.signed)
    }

    /// A provider's outcome to the machine, once it is known whether the result fits.
    fn answered(&self, key: &CallKey, outcome: Outcome) -> Driven {
        match outcome {
            Outcome::Success(result) => match self.violations(key, &result) {
                None => self.drive(key, Input::ProviderResult { fits: true }, Answer::Success(&result)),
                Some(details) => self.answered_unfit(key, &details),
            },
            Outcome::Body(body) => match CapResult::decode(&body) {
                Ok(CapResult { outcome: message::Outcome::Success(result), .. }) => {
                    match self.violations(key, result) {
                        None => self.drive(key, Input::ProviderResult { fits: true }, Answer::Body(&body)),
                        Some(details) => self.answered_unfit(key, &details),
                    }
                }
                Ok(_) => self.drive(key, Input::ProviderResult { fits: true }, Answer::Body(&body)),
                Err(error) => self.answered_failure(key, Code::INTERNAL_ERROR, &error.to_string()),
            },
            Outcome::Failure { code, message } => self.answered_failure(key, code, &message),
            Outcome::Lost => {
                let another =
                    lock(&self.executor.calls).running.get(key).is_some_and(|call| !call.others.is_empty());
                self.drive(key, Input::ProviderLost { another }, Answer::None)
            }
        }
    }

    fn answered_failure(&self, key: &CallKey, code: Code, message: &str) -> Driven {
        let answer = Answer::Failure { message, details: None, is_providers: true };
        self.drive(key, Input::ProviderError(code), answer)
    }

    /// PROTOCOL 7.4: the result stays here; the caller gets the violations.
    fn answered_unfit(&self, key: &CallKey, details: &[u8]) -> Driven {
        let message = reason(Code::RESULT_SCHEMA_VIOLATION);
        let answer = Answer::Failure { message, details: Some(details), is_providers: true };
        self.drive(key, Input::ProviderResult { fits: false }, answer)
    }

    /// The `details` of a result that breaks its output schema.
    fn violations(&self, key: &CallKey, result: &[u8]) -> Option<Vec<u8>> {
        let output = lock(&self.executor.calls).running.get(key)?.output.clone()?;
        // The schema compiled when the capability was declared.
        let violations = output.validator().ok()?.validate(result, Side::Response).err()?;
        tracing::warn!(
            target: "audit",
            kind = "capability_schema_violation",
            side = "response",
            peer = %key.from,
            id = %key.id,
            violations = violations.len(),
            "a result does not fit its output schema"
        );
        Some(violation_details(SchemaSide::Response, &violations))
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
        self.clock.monotonic_ms().saturating_sub(running.started_ms)
    }

    /// Cancels a call of `from`'s. **Source:** PROTOCOL 7.6.
    pub(super) fn cancel_execution(&self, key: &CallKey) -> message::CancelState {
        if let Some(state) = self.drive(key, Input::Cancel { own: true }, Answer::None).cancel {
            return match state {
                executor::CancelState::Cancelling => message::CancelState::Cancelling,
                executor::CancelState::Finished => message::CancelState::Finished,
                executor::CancelState::Unknown => message::CancelState::Unknown,
            };
        }
        match lock(&self.executor.calls).ledger.status(key) {
            Status::Finished => message::CancelState::Finished,
            Status::Executing => message::CancelState::Cancelling,
            Status::Unknown => message::CancelState::Unknown,
        }
    }

    /// Whether the agent's call of this id runs, or ran, here.
    pub(super) fn executes(&self, id: MessageId) -> bool {
        let key = CallKey { from: self.did().clone(), id };
        !matches!(lock(&self.executor.calls).ledger.status(&key), Status::Unknown)
    }

    /// The peer reset the stream of its one call.
    pub(super) fn cancel_route(&self, link: &Arc<Link>, route: &Route) {
        let key = {
            let calls = lock(&self.executor.calls);
            let is_from = |key: &&CallKey| key.from == *link.principal();
            let mut keys = calls.running.keys().filter(is_from);
            keys.find(|key| calls.ledger.waiters(key).any(|waiter| waiter.route.is_same(route))).cloned()
        };
        if let Some(key) = key {
            self.cancel_execution(&key);
        }
    }

    /// Passes a provider's progress on to everybody who waits for the call.
    pub(super) fn relay_progress(&self, key: &CallKey, typ: Type, body: &[u8]) {
        if !self.drive(key, Input::Notice, Answer::None).is_relayed {
            return;
        }
        let calls = lock(&self.executor.calls);
        let Some(running) = calls.running.get(key) else { return };
        let signed = running.signed;
        let waiters: Vec<_> = calls
            .ledger
            .waiters(key)
            .map(|waiter| (Arc::clone(&waiter.link), waiter.route.clone()))
            .collect();
        drop(calls);
        let message = Outbound {
            id: self.fresh_id(self.clock.wall_ms()),
            typ,
            to: key.from.as_str(),
            reply_to: Some(key.id),
            ttl_ms: super::node::ANSWER_TTL_MS,
            body,
            ext: Ext::None,
        };
        let envelope = self.seal_signed(&message, signed);
        for (link, route) in waiters {
            self.send(&link, &route, envelope.clone());
        }
    }

    /// Ends calls whose time is up and forgets what has expired, until shutdown.
    pub(super) async fn keep_deadlines(&self) {
        loop {
            let now_ms = self.clock.monotonic_ms();
            let (due, next_ms) = {
                let mut calls = lock(&self.executor.calls);
                calls.ledger.sweep(self.clock.wall_ms());
                let due: Vec<_> = calls
                    .deadlines
                    .iter()
                    .take_while(|(at, _)| *at <= now_ms)
                    .map(|(_, key)| key.clone())
                    .collect();
                (due, calls.deadlines.iter().find(|(at, _)| *at > now_ms).map(|(at, _)| *at))
            };
            for key in due {
                // PROTOCOL 8: the time's end is the call's result.
                self.drive(&key, Input::Timeout, Answer::None);
            }
            let next_ms = next_ms.unwrap_or(u64::MAX).min(now_ms + SWEEP_INTERVAL_MS);
            tokio::select! {
                () = tokio::time::sleep_until(self.clock.moment(next_ms)) => {}
                () = self.executor.wake.notified() => {}
            }
        }
    }

    /// Ends every call that still runs, at the end of draining.
    pub(super) fn interrupt_calls(&self) {
        for key in self.executor.running() {
            self.drive(&key, Input::Shutdown, Answer::None);
        }
    }
}

impl Answers for Node {
    fn finish(&self, key: &CallKey, outcome: Outcome) {
        let is_answer = !matches!(outcome, Outcome::Lost);
        let is_running = lock(&self.executor.calls).running.contains_key(key);
        let surplus = if is_running { self.answered(key, outcome).surplus } else { Some(Surplus::Late) };
        if let (Some(surplus), true) = (surplus, is_answer) {
            tracing::warn!(target: "audit", kind = "late_result", ?surplus, id = %key.id, from = %key.from, "an answer was dropped");
        }
    }
}

/// What a machine's output may speak of.
#[derive(Clone, Copy)]
enum Answer<'a> {
    /// Nothing: the sidecar ends the call in its provider's place.
    None,
    /// A CAP_RESULT body.
    Body(&'a [u8]),
    /// A result alone.
    Success(&'a [u8]),
    /// Why there is no result.
    Failure { message: &'a str, details: Option<&'a [u8]>, is_providers: bool },
}

impl Answer<'_> {
    const fn is_providers(self) -> bool {
        match self {
            Self::None => false,
            Self::Body(_) | Self::Success(_) => true,
            Self::Failure { is_providers, .. } => is_providers,
        }
    }
}

/// What a machine said that concerns whoever drove it.
#[derive(Default)]
struct Driven {
    is_relayed: bool,
    cancel: Option<executor::CancelState>,
    surplus: Option<Surplus>,
}

/// What a caller reads when the sidecar ends a call in its provider's place.
fn reason(code: Code) -> &'static str {
    match code {
        Code::TIMEOUT => "the call's time ran out",
        Code::CANCELLED => "the caller cancelled the call",
        Code::UNAVAILABLE => "the provider left before it answered",
        Code::INTERRUPTED => "the sidecar shut down while the call ran; whether it took effect is unknown",
        Code::RESULT_SCHEMA_VIOLATION => "the result does not fit the output schema",
        _ => "the provider gave no answer",
    }
}

pub(super) fn refused_artifact(error: crate::schema::ArtifactError) -> Refusal {
    Refusal::new(error.code(), error.to_string())
}

/// Longest pause between two looks for what the ledger may forget, in milliseconds.
const SWEEP_INTERVAL_MS: u64 = 10_000;
