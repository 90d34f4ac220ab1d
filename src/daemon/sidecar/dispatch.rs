//! Messages that have passed the door in, each to the room that deals with its type.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::message::{ErrorBody, Message, Type};

use super::Sidecar;
use super::keyed::is_keyed;
use crate::daemon::asks::Answer;
use crate::daemon::caller::here::Here;
use crate::daemon::context::inbound::Again;
use crate::daemon::context::{Inbound, Refusal, Taken, lock};
use crate::net::{Link, Now, Route};

impl Sidecar {
    /// One message to the room that deals with its type.
    pub(super) fn dispatch(self: &Arc<Self>, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        if let Taken::Again(again) = self.hand_on(inbound)? {
            self.meet_again(inbound, again);
        }
        Ok(())
    }

    fn hand_on(&self, inbound: &Inbound<'_>) -> Result<Taken, Refusal> {
        let Some(typ) = Type::from_code(inbound.envelope.typ) else {
            return Err(Refusal::new(Code::UNKNOWN_TYPE, "message type is not supported here"));
        };
        let is_ours = inbound.is_for(self.ctx.did());
        match typ {
            Type::CapInvoke if is_keyed(inbound) => self.on_keyed(inbound, is_ours)?,
            Type::CapInvoke => return self.on_invoke(inbound),
            Type::CapQuery if is_ours => return self.desk.on_query(inbound),
            Type::Request => return self.on_request(inbound, is_ours),
            Type::CapResult => return self.on_result(inbound),
            Type::Error => self.on_error(inbound),
            Type::Processing | Type::Progress | Type::InputRequired => self.on_progress(inbound, typ)?,
            Type::CapDeclare if inbound.envelope.reply_to.is_none() => self.executor.on_declare(inbound)?,
            Type::DocSend if inbound.link.kind().is_local() && inbound.envelope.reply_to.is_none() => {
                self.on_schema(inbound)?
            }
            Type::CapDeclare | Type::DocSend | Type::Response | Type::Pong => self.on_answer(inbound, typ)?,
            Type::Ping if is_ours => self.ctx.reply(inbound, Type::Pong, inbound.body),
            Type::DocRequest if is_ours => self.desk.on_doc_request(inbound)?,
            Type::Ping | Type::CapQuery | Type::DocRequest => self.caller.forward(inbound, typ)?,
            // PROTOCOL 7: taken, and needs no answer.
            Type::Ack => {}
            Type::Hello | Type::HelloAck | Type::HelloReject => {
                return Err(Refusal::new(Code::BAD_REQUEST, "the link is open already"));
            }
        }
        Ok(Taken::Done)
    }

    /// Meets a message again once what it waits for has ended.
    fn meet_again(self: &Arc<Self>, inbound: &Inbound<'_>, again: Again) {
        let sidecar = Arc::clone(self);
        let (link, route, payload) =
            (Arc::clone(inbound.link), inbound.route.clone(), inbound.payload.clone());
        lock(&self.waiting).push((route.clone(), false));
        self.ctx.spawn(async move {
            let judged = again.await;
            let messages = [(&route, &payload)];
            sidecar.door.take_all(&link, messages.into_iter(), &|inbound| {
                sidecar.dispatch(&Inbound { judged: &judged, ..*inbound })
            });
            if sidecar.stops_waiting(&route) {
                sidecar.executor.cancel_route(&route);
            }
        });
    }

    /// A message has been met again; whether its peer has reset its stream meanwhile.
    fn stops_waiting(&self, route: &Route) -> bool {
        let mut waiting = lock(&self.waiting);
        let at = waiting.iter().position(|(other, _)| other.is_same(route));
        at.is_some_and(|at| waiting.swap_remove(at).1)
    }

    /// PROTOCOL 7.6: a peer that resets the stream of its one call cancels it, also one that is still to be met again.
    pub(super) fn on_reset(&self, route: &Route) {
        for (other, is_reset) in lock(&self.waiting).iter_mut() {
            *is_reset |= other.is_same(route);
        }
        self.executor.cancel_route(route);
    }

    /// CAP_RESULT, from an agent that serves or from a peer.
    fn on_result(&self, inbound: &Inbound<'_>) -> Result<Taken, Refusal> {
        let Some(id) = inbound.envelope.reply_id() else {
            return Err(Refusal::new(Code::BAD_REQUEST, "a CAP_RESULT needs reply_to"));
        };
        if inbound.link.kind().is_local() {
            return self.executor.on_agent_result(inbound, &id).map(|()| Taken::Done);
        }
        self.caller.on_result(inbound, id).inspect_err(|_| {
            // Nothing better will come for a question of ours that it answers.
            self.asks.answered(&id, inbound.link.principal(), None);
        })
    }

    /// ERROR: the answer to a call, to another request of the agent's, or to a question of our own.
    fn on_error(&self, inbound: &Inbound<'_>) {
        let Some(id) = inbound.envelope.reply_id() else { return };
        // An ERROR is never answered by one, or two sides would go on for ever.
        let Ok(error) = ErrorBody::decode(inbound.body) else { return };
        if inbound.link.kind().is_local() {
            return self.executor.on_agent_error(inbound, &id, &error);
        }
        let answer = || Some(Answer { typ: Type::Error, body: inbound.body.clone() });
        if !self.asks.answered(&id, inbound.link.principal(), answer()) {
            self.caller.on_error(inbound, id, &error);
        }
    }

    /// PROCESSING, PROGRESS, INPUT_REQUIRED: to whoever waits for the call. **Source:** PROTOCOL 7.6.
    fn on_progress(&self, inbound: &Inbound<'_>, typ: Type) -> Result<(), Refusal> {
        Message::decode_checked(typ, inbound.checked_body()).map_err(Refusal::of)?;
        let Some(id) = inbound.envelope.reply_id() else { return Ok(()) };
        if inbound.link.kind().is_local() {
            self.executor.on_agent_progress(inbound, &id, typ);
        } else {
            self.caller.on_progress(inbound, id, typ);
        }
        Ok(())
    }

    /// PONG, CAP_DECLARE, DOC_SEND, RESPONSE: to whoever asked; nobody's are dropped.
    fn on_answer(&self, inbound: &Inbound<'_>, typ: Type) -> Result<(), Refusal> {
        let shape = Message::decode_checked(typ, inbound.checked_body()).map(drop).map_err(Refusal::of);
        // Nothing better will come than an answer that cannot be read.
        let answer = shape.is_ok().then(|| Answer { typ, body: inbound.body.clone() });
        let is_ours = |id| self.asks.answered(&id, inbound.link.principal(), answer);
        if !inbound.envelope.reply_id().is_some_and(is_ours) {
            self.caller.on_answer(inbound, typ, shape.is_ok());
        }
        shape
    }
}

impl Here for Sidecar {
    fn meet(self: Arc<Self>, now: Now, link: &Arc<Link>, route: &Route, envelope: &Bytes) {
        self.door.take_again(now, link, route, envelope, &|inbound| self.dispatch(inbound));
    }
}
