//! CAP_RESULT, ERROR and progress in, from peers and from agents that serve; the machine of their call told.

use std::sync::Arc;

use capd_proto::call::caller::Input;
use capd_proto::call::executor::Surplus;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::message::{self, CapResult, ErrorBody, Type};

use super::outgoing::Waiter;
use super::{Handed, RelayedCall};
use crate::daemon::asks::Answer;
use crate::daemon::context::Inbound;
use crate::daemon::context::wire::not_final;
use crate::daemon::context::wire::retry_after_ms;
use crate::daemon::context::{Refusal, lock};
use crate::daemon::node::Node;
use crate::net::Link;

impl Node {
    /// What a peer said of a cancel that this sidecar sent.
    pub(in crate::daemon) fn on_cancel_answer(&self, call: &Arc<RelayedCall>, typ: Type, body: &[u8]) {
        let is_unknown = typ == Type::Response
            && matches!(
                message::Response::decode(body),
                Ok(message::Response::Cancel { state: message::CancelState::Unknown, .. })
            );
        if is_unknown {
            self.drive_call(call, Some(Input::CancelUnknown), Handed::Nothing);
        }
    }

    /// CAP_RESULT, from an agent that serves or from a peer.
    pub(in crate::daemon) fn on_result(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let Some(id) = inbound.envelope.reply_id() else {
            return Err(Refusal::new(Code::BAD_REQUEST, "a CAP_RESULT needs reply_to"));
        };
        if inbound.link.kind().is_local() {
            return self.executor.on_agent_result(inbound, &id);
        }
        let result = CapResult::decode_checked(inbound.checked_body()).map_err(Refusal::of)?;
        let (ended, retry_after_ms) = match &result.outcome {
            message::Outcome::Success(result) => (Ok(*result), None),
            message::Outcome::Error(error) => (Err(error.code), error.details.and_then(retry_after_ms)),
        };
        match self.relay.requests.take(&id, inbound.link.principal()).map(|waiting| waiting.who) {
            Some(Waiter::Call(call, generation)) => {
                let input = Input::Result { generation, error: ended.err(), retry_after_ms };
                self.drive_call(&call, Some(input), Handed::Result(inbound, ended));
                Ok(())
            }
            // PROTOCOL 8: it matches nothing pending.
            Some(Waiter::Agent { .. } | Waiter::Cancel(_)) | None => {
                self.asks.answered(&id, inbound.link.principal(), None);
                let surplus = if self.relay.has_ended(&id) { Surplus::Late } else { Surplus::Unasked };
                self.account.audit_surplus(surplus, &id, inbound.link.principal().as_str(), None);
                Err(nothing_waits())
            }
        }
    }

    /// ERROR: the answer to a request of the agent's, of a call, or of our own.
    pub(in crate::daemon) fn on_error(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let Some(id) = inbound.envelope.reply_id() else { return Ok(()) };
        // An ERROR is never answered by one, or two sides would go on for ever.
        let Ok(error) = ErrorBody::decode(inbound.body) else { return Ok(()) };
        if inbound.link.kind().is_local() {
            self.executor.on_agent_error(inbound, &id, &error);
            return Ok(());
        }
        let answer = Answer { typ: Type::Error, body: inbound.body.clone() };
        if self.asks.answered(&id, inbound.link.principal(), Some(answer)) {
            return Ok(());
        }
        let Some(waiting) = self.relay.requests.take(&id, inbound.link.principal()) else { return Ok(()) };
        let Waiter::Call(call, generation) = waiting.who else {
            self.deliver(waiting, inbound, Type::Error);
            return Ok(());
        };
        // The params fitted what the peer last said of its schema, and it listed what we may call.
        let is_changed = matches!(
            error.code,
            Code::CAPABILITY_NOT_FOUND | Code::VERSION_MISMATCH | Code::SCHEMA_VIOLATION | Code::UNAUTHORIZED
        );
        if is_changed {
            self.refresh_later(inbound.link.principal().clone());
        }
        let retry_after_ms = error.details.and_then(retry_after_ms);
        let input = Input::Error { generation, code: error.code, retry: error.retry, retry_after_ms };
        self.drive_call(&call, Some(input), Handed::Message(inbound, Type::Error));
        Ok(())
    }

    /// What the peer served has changed under us.
    pub(super) fn refresh_later(&self, peer: Did) {
        let directory = Arc::clone(&self.directory);
        self.ctx.spawn(async move { directory.refresh(&peer).await });
    }

    /// PROCESSING, PROGRESS, INPUT_REQUIRED: to whoever waits for the call. **Source:** PROTOCOL 7.6.
    pub(in crate::daemon) fn on_progress(&self, inbound: &Inbound<'_>, typ: Type) -> Result<(), Refusal> {
        message::Message::decode_checked(typ, inbound.checked_body()).map_err(Refusal::of)?;
        let Some(id) = inbound.envelope.reply_id() else { return Ok(()) };
        if inbound.link.kind().is_local() {
            self.executor.on_agent_progress(inbound, &id, typ);
            return Ok(());
        }
        if let Some((call, generation)) = self.relay.call_awaiting(&id, inbound.link.principal()) {
            self.drive_call(&call, Some(Input::Notice { generation }), Handed::Message(inbound, typ));
        }
        Ok(())
    }

    pub(in crate::daemon) fn on_call_deadline(&self, call: &Arc<RelayedCall>) {
        self.drive_call(call, Some(Input::Timeout), Handed::Nothing);
    }

    /// A link broke: calls that went out on it are tried again, other requests are told.
    pub(in crate::daemon) fn on_link_lost(&self, link: &Arc<Link>) {
        for (id, waiting) in self.relay.requests.lost(link) {
            match waiting.who {
                Waiter::Call(call, _) => self.drive_call(&call, Some(Input::LinkLost), Handed::Nothing),
                Waiter::Cancel(call) => self.drive_call(&call, Some(Input::CancelUnknown), Handed::Nothing),
                Waiter::Agent { link, route } => {
                    let refusal = Refusal::new(Code::ENDPOINT_UNREACHABLE, "the link to the peer broke");
                    self.ctx.refuse(&link, &route, Some(id), &refusal);
                }
            }
        }
    }

    /// Cancels a relayed call of the agent's; `false` when there is none of this id.
    pub(in crate::daemon) fn cancel_relayed(&self, id: &MessageId) -> bool {
        let Some(call) = self.relay.call(id) else { return false };
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
