//! Delivers a call's end to the agent: one answer, checked against the output schema.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::call::caller::Delivery;
use capd_proto::cbor::Writer;
use capd_proto::code::Code;
use capd_proto::envelope::Ext;
use capd_proto::message::{CallError, CapResult, ErrorBody, SchemaSide, Type};

use super::{Caller, Chosen, Handed, RelayedCall};
use crate::daemon::account::access::End;
use crate::daemon::context::judge::{is_shown, verdict};
use crate::daemon::context::refusal::forgotten;
use crate::daemon::context::seal::ANSWER_TTL_MS;
use crate::daemon::context::wire::{not_final, raw_violation_details, result_end};
use crate::daemon::context::{Inbound, Outbound, Refusal, lock};
use crate::net::{Link, Route};
use crate::schema::Side;

impl Caller {
    pub(super) fn deliver_call(&self, call: &Arc<RelayedCall>, delivery: Delivery, handed: Handed<'_>) {
        match (delivery, handed) {
            (Delivery::Result, Handed::Result(inbound, ended)) => {
                // An agent that is gone asks again.
                if lock(&call.progress).waiters.iter().any(|(link, _)| !link.is_closed()) {
                    self.gifts.fetched(&call.id);
                }
                if let Ok(result) = ended
                    && let Some(body) = self.refused_result(call, inbound, result)
                {
                    return self.end_call_with_result(call, &body);
                }
                let envelope = self.towards_agent(call, inbound, Type::CapResult);
                let end = End::Result(inbound.body, ended.map(drop));
                self.end_call(call, end, |caller, link, route| {
                    caller.ctx.send(link, route, envelope.clone())
                });
            }
            (Delivery::Error, Handed::Message(inbound, _)) => {
                let envelope = self.towards_agent(call, inbound, Type::Error);
                let code = ErrorBody::decode(inbound.body).map_or(Code::INVALID_MESSAGE, |error| error.code);
                self.gifts.refused(&call.id, Some(code));
                let end = End::Refused(code);
                self.end_call(call, end, |caller, link, route| {
                    caller.ctx.send(link, route, envelope.clone())
                });
            }
            (Delivery::Error, Handed::Refusal(refusal)) => self.end_refused(call, refusal),
            (Delivery::Refusal(code), _) => {
                self.end_refused(call, &Refusal::new(code, own_reason(code)));
            }
            (Delivery::Unknown, handed) => self.end_unknown(call, handed.error()),
            (Delivery::Own(code), _) => {
                let body = self.own_error(call, code, &self.own_reason(call, code), Some(&not_final()));
                self.end_call_with_result(call, &body);
            }
            (Delivery::Result | Delivery::Error, _) => {
                let message = "the answer was lost inside the sidecar";
                let body = self.own_error(call, Code::INTERNAL_ERROR, message, None);
                self.end_call_with_result(call, &body);
            }
        }
    }

    /// The call cannot go on, for a reason found here before any copy left in its present course: it is refused, unless it may
    /// have run before.
    pub(super) fn refuse_call(&self, call: &Arc<RelayedCall>, refusal: &Refusal) {
        if self.gifts.may_have_run(&call.id, &call.name) {
            self.end_unknown(call, Some(refusal.body()));
        } else if call.destination.may_have_run_here || self.may_have_forgotten(call.moments.expires_at_ms) {
            self.end_refused(call, &forgotten());
        } else {
            self.end_refused(call, refusal);
        }
    }

    /// PROTOCOL 8: whether the call took effect is unknown, whatever ERROR says that it is refused.
    fn end_unknown(&self, call: &Arc<RelayedCall>, error: Option<Vec<u8>>) {
        let code = Code::INTERRUPTED;
        let body = self.own_error(call, code, own_reason(code), Some(&unknown_after(error.as_deref())));
        self.end_call_with_result(call, &body);
    }

    /// The same for an invoke of the agent's that did not come as far as being a call.
    pub(in crate::daemon) fn answer_unknown(&self, inbound: &Inbound<'_>, refusal: &Refusal) {
        let (code, details) = (Code::INTERRUPTED, unknown_after(Some(&refusal.body())));
        let mut body = Vec::new();
        CapResult::error(CallError::new(code, own_reason(code), Some(&details))).encode(&mut body);
        self.ctx.reply(inbound, Type::CapResult, &body);
    }

    /// Nothing was executed, and the agent is told why.
    fn end_refused(&self, call: &Arc<RelayedCall>, refusal: &Refusal) {
        self.gifts.refused(&call.id, None);
        let refuse =
            |caller: &Self, link: &_, route: &_| caller.ctx.refuse(link, route, Some(call.id), refusal);
        self.end_call(call, End::Refused(refusal.code), refuse);
    }

    /// Why this sidecar ends a call in the peer's place.
    fn own_reason(&self, call: &RelayedCall, code: Code) -> String {
        let peer = lock(&call.progress).chosen.as_ref().map(|chosen| chosen.peer.clone());
        let cause = peer.filter(|_| code == Code::ENDPOINT_UNREACHABLE);
        match cause.and_then(|peer| self.directory.unlinked.cause(&peer)) {
            Some(cause) => format!("{}: {}", own_reason(code), cause.text),
            None => own_reason(code).to_owned(),
        }
    }

    /// The error that takes the place of a result which breaks its schema, with the result in it. **Source:** PROTOCOL 7.4.
    fn refused_result(
        &self,
        call: &Arc<RelayedCall>,
        inbound: &Inbound<'_>,
        result: &[u8],
    ) -> Option<Vec<u8>> {
        let output = lock(&call.progress).chosen.as_ref()?.output.clone()?;
        let violations = match verdict(&output, result, Side::Response, inbound.judged) {
            // Without a verdict, the call was given to another peer meanwhile, whose schema is another.
            Ok(Some(verdict)) => verdict.err()?,
            Ok(None) => output.validator().ok()?.validate(result, Side::Response).err()?,
            Err(error) => return Some(self.own_error(call, error.code(), &error.to_string(), None)),
        };
        let peer = inbound.link.principal();
        self.account.audit_violations(SchemaSide::Response, call.audited(&call.invoked(), peer), &violations);
        // The peer's schema may be another by this time.
        self.refresh_later(peer.clone());
        let room = lock(&call.progress).waiters.iter().map(|(link, _)| link.message_bytes_max()).min();
        let room = room.unwrap_or_default().saturating_sub(ENVELOPE_BYTES);
        let raw = is_shown(&output, result, Side::Response, inbound.judged).then_some(result);
        let details = raw_violation_details(SchemaSide::Response, &violations, raw, room);
        let message = "the result does not fit the output schema";
        Some(self.own_error(call, Code::RESULT_SCHEMA_VIOLATION, message, Some(&details)))
    }

    /// A peer's message about a call, as the agent gets it: the bytes that came, unless they carry a retry's id.
    pub(super) fn towards_agent(&self, call: &RelayedCall, inbound: &Inbound<'_>, typ: Type) -> Bytes {
        if inbound.envelope.reply_id() == Some(call.id) {
            return self.ctx.for_agent(inbound);
        }
        self.about_call(call, typ, inbound.body, inbound.envelope.ext.map_or(Ext::None, Ext::Raw))
    }

    pub(super) fn about_call(&self, call: &RelayedCall, typ: Type, body: &[u8], ext: Ext<'_>) -> Bytes {
        let message = Outbound {
            id: self.ctx.fresh_id(self.ctx.clock.wall_ms()),
            typ,
            to: self.ctx.did().as_str(),
            reply_to: Some(call.id),
            thread_id: None,
            ttl_ms: ANSWER_TTL_MS,
            body,
            ext,
        };
        self.ctx.seal_signed(&message, false)
    }

    pub(super) fn end_call_with_result(&self, call: &Arc<RelayedCall>, body: &[u8]) {
        let envelope = self.about_call(call, Type::CapResult, body, Ext::None);
        let end = End::Result(body, result_end(body).unwrap_or(Ok(())));
        self.end_call(call, end, |caller, link, route| caller.ctx.send(link, route, envelope.clone()));
    }

    /// The one answer to everybody who waits; whoever asks again from here on begins anew.
    pub(super) fn end_call(
        &self,
        call: &Arc<RelayedCall>,
        end: End<'_>,
        answer: impl Fn(&Self, &Arc<Link>, &Route),
    ) {
        self.log_relayed(call, end);
        self.close(call);
        let (ended, is_refused) = match end {
            End::Result(_, ended) => (ended, false),
            End::Refused(code) => (Err(code), true),
        };
        self.outgoing.remove_call(call.past(ended, is_refused, self.ctx.clock.wall_ms()));
        call.ended.set();
        let (waiters, ids) = {
            let mut progress = lock(&call.progress);
            let asked = |chosen: &Chosen| (chosen.ids.clone(), chosen.cancel, chosen.release);
            let ids = progress.chosen.as_ref().map(asked);
            (std::mem::take(&mut progress.waiters), ids)
        };
        if let Some((ids, cancel, release)) = ids {
            self.outgoing.release(ids.into_iter().chain(cancel).chain(release));
        }
        for (link, route) in waiters {
            answer(self, &link, &route);
        }
    }

    /// A result that this sidecar gives in the peer's place, with the time since the call came.
    pub(super) fn own_error(
        &self,
        call: &RelayedCall,
        code: Code,
        message: &str,
        details: Option<&[u8]>,
    ) -> Vec<u8> {
        let mut body = Vec::new();
        let mut error = CapResult::error(CallError::new(code, message, details));
        error.execution_time_ms =
            Some(self.ctx.clock.monotonic_us().saturating_sub(call.moments.started_us) / 1_000);
        error.encode(&mut body);
        body
    }
}

/// The same of an answer in the place of an ERROR, whose body it has: `{"error": {…}, "final": false}`.
fn unknown_after(error: Option<&[u8]>) -> Vec<u8> {
    let Some(error) = error else { return not_final() };
    let mut details = Vec::new();
    Writer::new(&mut details).map(2).text("error").raw(error).text("final").bool(false);
    details
}

/// Room for everything around the `details` of an error: envelope, message, and a signature.
const ENVELOPE_BYTES: usize = 4 * 1024;

fn own_reason(code: Code) -> &'static str {
    match code {
        Code::TIMEOUT => "no answer came in the call's time",
        Code::ENDPOINT_UNREACHABLE => "no link to the peer could be made in the call's time",
        Code::CANCELLED => "the caller cancelled the call",
        _ => "an earlier copy of the call was not answered; whether the call took effect is unknown",
    }
}
