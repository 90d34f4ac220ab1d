//! Passes CAP_RESULT, ERROR and progress, from peers and local providers, to the machine of their call.

use std::sync::Arc;

use capd_proto::call::caller::{Input, Refused};
use capd_proto::call::executor::Surplus;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::message::{self, CapResult, ErrorBody, TryOutcome, Type};

use super::outgoing::Waiter;
use super::{Caller, Handed, RelayedCall};
use crate::daemon::account::phases::Phase;
use crate::daemon::context::judge::verdict;
use crate::daemon::context::wire::{is_released, not_final, retry_after_ms};
use crate::daemon::context::{Inbound, Refusal, Taken, lock};
use crate::net::Link;
use crate::schema::{Artifact, Side};

impl Caller {
    /// What a peer said of a cancel that this sidecar sent.
    pub(super) fn on_cancel_answer(self: &Arc<Self>, call: &Arc<RelayedCall>, typ: Type, body: &[u8]) {
        let is_unknown = typ == Type::Response
            && matches!(
                message::Response::decode(body),
                Ok(message::Response::Cancel { state: message::CancelState::Unknown, .. })
            );
        if is_unknown {
            self.drive_call(call, Some(Input::CancelUnknown), Handed::Nothing);
        }
    }

    /// CAP_RESULT from a peer.
    pub(in crate::daemon) fn on_result(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        id: MessageId,
    ) -> Result<Taken, Refusal> {
        let result = CapResult::decode_checked(inbound.checked_body()).map_err(Refusal::of)?;
        let (ended, retry_after_ms) = match &result.outcome {
            message::Outcome::Success(result) => (Ok(*result), None),
            message::Outcome::Error(error) => (Err(error.code), error.details.and_then(retry_after_ms)),
        };
        if let Ok(result) = ended
            && let Some(output) = self.unjudged(inbound, &id, result)
        {
            return Ok(Taken::Again(inbound.again_judged(&self.ctx, &output, result, Side::Response)));
        }
        match self.outgoing.requests.take(&id, inbound.link.principal()).map(|waiting| waiting.who) {
            Some(Waiter::Call(call, generation)) => {
                let outcome = if ended.is_ok() { TryOutcome::Success } else { TryOutcome::Error };
                self.end_try(&call, generation, outcome, ended.err());
                self.enter(&call, Phase::Result);
                let input = Input::Result { generation, error: ended.err(), retry_after_ms };
                self.drive_call(&call, Some(input), Handed::Result(inbound, ended));
                Ok(Taken::Done)
            }
            // PROTOCOL 8: it matches nothing pending.
            Some(Waiter::Agent { .. } | Waiter::Cancel(_) | Waiter::Release(_)) | None => {
                let surplus = if self.outgoing.has_ended(&id) { Surplus::Late } else { Surplus::Unasked };
                self.account.audit_surplus(surplus, &id, inbound.link.principal().as_str(), None);
                Err(nothing_waits())
            }
        }
    }

    /// The schema of a call's result, where the verdict over it is still to be come to.
    fn unjudged(&self, inbound: &Inbound<'_>, id: &MessageId, result: &[u8]) -> Option<Arc<Artifact>> {
        let (call, _) = self.outgoing.call_awaiting(id, inbound.link.principal())?;
        self.enter(&call, Phase::Result);
        let output = lock(&call.progress).chosen.as_ref()?.output.clone()?;
        matches!(verdict(&output, result, Side::Response, inbound.judged), Ok(None)).then_some(output)
    }

    /// ERROR from a peer: the answer to a request of the agent's, or of a call.
    pub(in crate::daemon) fn on_error(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        id: MessageId,
        error: &ErrorBody<'_>,
    ) {
        let Some(waiting) = self.outgoing.requests.take(&id, inbound.link.principal()) else { return };
        let Waiter::Call(call, generation) = waiting.who else {
            return self.deliver(waiting, inbound, Type::Error);
        };
        self.end_try(&call, generation, TryOutcome::Refused, Some(error.code));
        self.enter(&call, Phase::Result);
        // The params fitted what the peer last said of its schema, and it listed what we may call.
        let is_changed = matches!(
            error.code,
            Code::CAPABILITY_NOT_FOUND
                | Code::VERSION_MISMATCH
                | Code::SCHEMA_VIOLATION
                | Code::UNAUTHORIZED
                | Code::UNAVAILABLE
        );
        if is_changed {
            self.refresh_later(inbound.link.principal().clone());
        }
        let retry_after_ms = error.details.and_then(retry_after_ms);
        let released = error.details.is_some_and(is_released);
        if released {
            self.gifts.released(&call.id, inbound.link.principal());
        }
        let another = self.has_another(&call, error.code);
        let refused = Refused { code: error.code, retry: error.retry, retry_after_ms, another, released };
        let is_last = !error.retry.unwrap_or(error.code.is_retryable());
        if is_last && !another && self.may_find_another(&call, error.code) {
            let refusal = Refusal::new(error.code, error.message.as_ref());
            let refusal = match error.details {
                Some(details) => refusal.with_details(details.to_vec()),
                None => refusal,
            };
            return self.refused_later(call, generation, refused, refusal);
        }
        let input = Input::Error { generation, error: refused };
        self.drive_call(&call, Some(input), Handed::Message(inbound, Type::Error));
    }

    /// What the peer served has changed under us.
    pub(super) fn refresh_later(&self, peer: Did) {
        let directory = Arc::clone(&self.directory);
        self.ctx.spawn(async move { directory.refresh(&peer).await });
    }

    /// PROCESSING, PROGRESS, INPUT_REQUIRED from a peer: to whoever waits for the call. **Source:** PROTOCOL 7.6.
    pub(in crate::daemon) fn on_progress(self: &Arc<Self>, inbound: &Inbound<'_>, id: MessageId, typ: Type) {
        if let Some((call, generation)) = self.outgoing.call_awaiting(&id, inbound.link.principal()) {
            self.drive_call(&call, Some(Input::Notice { generation }), Handed::Message(inbound, typ));
        }
    }

    pub(super) fn on_call_deadline(self: &Arc<Self>, call: &Arc<RelayedCall>) {
        self.drive_call(call, Some(Input::Timeout), Handed::Nothing);
    }

    /// A link broke: calls that went out on it are tried again, other requests are told.
    pub(in crate::daemon) fn on_link_lost(self: &Arc<Self>, link: &Arc<Link>) {
        for (id, waiting) in self.outgoing.requests.lost(link) {
            match waiting.who {
                Waiter::Call(call, generation) => {
                    self.end_try(&call, generation, TryOutcome::Lost, None);
                    self.drive_call(&call, Some(Input::LinkLost), Handed::Nothing);
                }
                Waiter::Cancel(call) => self.drive_call(&call, Some(Input::CancelUnknown), Handed::Nothing),
                Waiter::Release(call) => self.drive_call(&call, Some(Input::Unreleased), Handed::Nothing),
                Waiter::Agent { link, route } => {
                    let refusal = Refusal::new(Code::ENDPOINT_UNREACHABLE, "the link to the peer broke");
                    self.ctx.refuse(&link, &route, Some(id), &refusal);
                }
            }
        }
    }

    /// Cancels a relayed call of the agent's; `false` when there is none of this id.
    pub(in crate::daemon) fn cancel_relayed(self: &Arc<Self>, id: &MessageId) -> bool {
        let Some(call) = self.outgoing.call(id) else { return false };
        if lock(&call.progress).chosen.is_some() {
            self.drive_call(&call, Some(Input::Cancel), Handed::Nothing);
        } else {
            let details = not_final();
            let message = "the call was cancelled before it was sent";
            let body = self.own_error(&call, Code::CANCELLED, message, Some(&details));
            self.end_call_with_result(&call, &body);
        }
        true
    }
}

pub(super) fn nothing_waits() -> Refusal {
    Refusal::new(Code::BAD_REQUEST, "no call with this id waits for a result")
}
