//! A call's end in; the agent's one answer out, checked against its output schema.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::call::caller::Delivery;
use capd_proto::cbor::Writer;
use capd_proto::code::Code;
use capd_proto::envelope::Ext;
use capd_proto::message::{self, CallError, CapResult, SchemaSide, Type};

use super::{Handed, RelayedCall};
use crate::daemon::inbound::Inbound;
use crate::daemon::node::{ANSWER_TTL_MS, Node, Outbound, lock};
use crate::daemon::wire::raw_violation_details;
use crate::net::{Link, Route};
use crate::schema::Side;

impl Node {
    pub(super) fn deliver_call(&self, call: &Arc<RelayedCall>, delivery: Delivery, handed: Handed<'_>) {
        match (delivery, handed) {
            (Delivery::Result, Handed::Message(inbound, _)) => match self.refused_result(call, inbound) {
                Some(body) => self.end_call_with_result(call, &body),
                None => {
                    let envelope = self.towards_agent(call, inbound, Type::CapResult);
                    self.end_call(call, |node, link, route| node.send(link, route, envelope.clone()));
                }
            },
            (Delivery::Error, Handed::Message(inbound, _)) => {
                let envelope = self.towards_agent(call, inbound, Type::Error);
                self.end_call(call, |node, link, route| node.send(link, route, envelope.clone()));
            }
            (Delivery::Error, Handed::Refusal(refusal)) => {
                self.end_call(call, |node, link, route| node.refuse(link, route, Some(call.id), refusal));
            }
            (Delivery::Own(code), _) => {
                self.end_call_with_result(call, &own_error(code, own_reason(code), Some(&not_final())))
            }
            (Delivery::Result | Delivery::Error, _) => {
                let body = own_error(Code::INTERNAL_ERROR, "the answer was lost inside the sidecar", None);
                self.end_call_with_result(call, &body);
            }
        }
    }

    /// The error that takes the place of a result which breaks its schema, with the result in it. **Source:** PROTOCOL 7.4.
    pub(super) fn refused_result(&self, call: &Arc<RelayedCall>, inbound: &Inbound<'_>) -> Option<Vec<u8>> {
        let output = lock(&call.progress).chosen.as_ref()?.output.clone()?;
        let result = CapResult::decode(inbound.body).ok()?;
        let message::Outcome::Success(result) = result.outcome else { return None };
        let violations = match output.validator() {
            Ok(validator) => validator.validate(result, Side::Response).err()?,
            Err(error) => return Some(own_error(error.code(), &error.to_string(), None)),
        };
        let peer = inbound.link.principal();
        self.audit_violations(SchemaSide::Response, call.audited(peer), &violations);
        // The peer's schema may be another by this time.
        self.refresh_later(peer.clone());
        let details = raw_violation_details(SchemaSide::Response, &violations, result);
        let message = "the result does not fit the output schema";
        Some(own_error(Code::RESULT_SCHEMA_VIOLATION, message, Some(&details)))
    }

    /// A peer's message about a call, as the agent gets it: the bytes that came, unless they carry a retry's id.
    pub(super) fn towards_agent(&self, call: &RelayedCall, inbound: &Inbound<'_>, typ: Type) -> Bytes {
        if inbound.envelope.reply_id() == Some(call.id) {
            return self.for_agent(inbound);
        }
        self.about_call(call, typ, inbound.body, inbound.envelope.ext.map_or(Ext::None, Ext::Raw))
    }

    pub(super) fn about_call(&self, call: &RelayedCall, typ: Type, body: &[u8], ext: Ext<'_>) -> Bytes {
        let message = Outbound {
            id: self.fresh_id(self.clock.wall_ms()),
            typ,
            to: self.did().as_str(),
            reply_to: Some(call.id),
            thread_id: None,
            ttl_ms: ANSWER_TTL_MS,
            body,
            ext,
        };
        self.seal_signed(&message, false)
    }

    pub(super) fn end_call_with_result(&self, call: &Arc<RelayedCall>, body: &[u8]) {
        let envelope = self.about_call(call, Type::CapResult, body, Ext::None);
        self.end_call(call, |node, link, route| node.send(link, route, envelope.clone()));
    }

    /// The one answer to everybody who waits; whoever asks again from here on begins anew.
    pub(super) fn end_call(&self, call: &Arc<RelayedCall>, answer: impl Fn(&Self, &Arc<Link>, &Route)) {
        self.relay.remove_call(&call.id);
        call.ended.cancel();
        let waiters = std::mem::take(&mut lock(&call.progress).waiters);
        for (link, route) in waiters {
            answer(self, &link, &route);
        }
    }
}

pub(super) fn own_error(code: Code, message: &str, details: Option<&[u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    CapResult::error(CallError::new(code, message, details)).encode(&mut body);
    body
}

/// The `details` of an answer that this sidecar gives because nobody else did: `{"final": false}`. Whoever asks again
/// under the same id may still learn what became of the call.
pub(super) fn not_final() -> Vec<u8> {
    let mut details = Vec::new();
    Writer::new(&mut details).map(1).text("final").bool(false);
    details
}

fn own_reason(code: Code) -> &'static str {
    match code {
        Code::TIMEOUT => "no answer came in the call's time",
        Code::ENDPOINT_UNREACHABLE => "no link to the peer could be made in the call's time",
        Code::CANCELLED => "the caller cancelled the call",
        _ => "the link to the peer broke; whether the call took effect is unknown",
    }
}
