//! Dispatches each accepted message to the room that handles its type.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::EnvelopeError;
use capd_proto::message::{ErrorBody, Message, Type};

use super::Sidecar;
use super::keyed::is_keyed;
use super::waiting::Place;
use crate::daemon::account::meter::CallLimit;
use crate::daemon::asks::Answer;
use crate::daemon::caller::here::Here;
use crate::daemon::context::inbound::Again;
use crate::daemon::context::judge::Judged;
use crate::daemon::context::vetted::{Unvetted, Vetted};
use crate::daemon::context::{Inbound, Refusal, Taken};
use crate::daemon::door::Meet;
use crate::net::{Link, Now, Route};

/// A sidecar that meets messages, with the verdicts over the payload of one that is met again.
pub(super) struct Meeting<'a> {
    sidecar: &'a Arc<Sidecar>,
    judged: &'a [Judged],
    /// Where a message that is met has waited until here.
    place: Option<&'a Place>,
}

impl Meet for Meeting<'_> {
    fn meet(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        self.sidecar.dispatch(&Inbound { judged: self.judged, ..*inbound }, self.place)
    }

    fn is_behind(&self, route: &Route) -> bool {
        self.sidecar.waiting.has(route)
    }

    fn put_off(&self, link: &Arc<Link>, route: &Route, unvetted: Unvetted) -> Result<(), Box<Unvetted>> {
        let sidecar = self.sidecar;
        let Some(place) = sidecar.waiting.enter(link, route, unvetted.bytes().len(), self.place) else {
            return Err(Box::new(unvetted));
        };
        let (sidecar, link, route) = (Arc::clone(sidecar), Arc::clone(link), route.clone());
        self.sidecar.ctx.spawn(async move {
            let vetted = unvetted.vetted(Arc::clone(&sidecar.ctx)).await;
            place.turn().await;
            sidecar.take_vetted(place, &link, &route, &vetted, &[]);
        });
        Ok(())
    }
}

impl Sidecar {
    /// Messages as they came.
    pub(super) const fn meeting(self: &Arc<Self>) -> Meeting<'_> {
        Meeting { sidecar: self, judged: &[], place: None }
    }

    /// One message to the room that deals with its type.
    fn dispatch(self: &Arc<Self>, inbound: &Inbound<'_>, former: Option<&Place>) -> Result<(), Refusal> {
        match self.hand_on(inbound)? {
            Taken::Done => Ok(()),
            Taken::Again(again) => self.meet_again(inbound, again, former),
        }
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
    ///
    /// **Errors:** 5004 for a peer's call, when as many of its messages wait as may.
    fn meet_again(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        again: Again,
        former: Option<&Place>,
    ) -> Result<(), Refusal> {
        let (link, route, bytes) = (inbound.link, inbound.route, inbound.payload.len());
        let is_asked = !link.kind().is_local() && inbound.envelope.typ == Type::CapInvoke.code();
        let place = match is_asked {
            true => self.waiting.enter(link, route, bytes, former).ok_or_else(|| self.too_many())?,
            // What the agent asks for is its own, and what peers answer was asked for.
            false => self.waiting.admit(link, route, bytes),
        };
        let (sidecar, link, route) = (Arc::clone(self), Arc::clone(link), route.clone());
        let (payload, vetted) = (inbound.payload.clone(), inbound.vetted());
        self.ctx.spawn(async move {
            let judged = again.await;
            match vetted {
                Some(vetted) => sidecar.take_vetted(place, &link, &route, &Ok(vetted), &judged),
                None => {
                    let meeting = Meeting { sidecar: &sidecar, judged: &judged, place: Some(&place) };
                    sidecar.door.take_all(&link, [(&route, &payload)].into_iter(), &meeting);
                    sidecar.leave(place, &route);
                }
            }
        });
        Ok(())
    }

    fn take_vetted(
        self: &Arc<Self>,
        place: Place,
        link: &Arc<Link>,
        route: &Route,
        vetted: &Result<Arc<Vetted>, EnvelopeError>,
        judged: &[Judged],
    ) {
        let meeting = Meeting { sidecar: self, judged, place: Some(&place) };
        self.door.take_vetted(link, route, vetted, &meeting);
        self.leave(place, route);
    }

    /// A message has been met. PROTOCOL 7.6: a peer that has reset the stream of its one call meanwhile has cancelled it.
    fn leave(&self, place: Place, route: &Route) {
        let is_reset = place.is_reset();
        drop(place);
        if is_reset {
            self.on_reset(route);
        }
    }

    fn too_many(&self) -> Refusal {
        self.account.meter.refused(CallLimit::CallsPerPeer);
        Refusal::new(Code::OVERLOADED, "too many calls of yours wait to be checked")
    }

    /// PROTOCOL 7.6: a peer that resets the stream of its one call cancels it, also one that is still to be met.
    pub(super) fn on_reset(&self, route: &Route) {
        self.waiting.reset(route);
        self.executor.cancel_route(route);
    }

    /// A peer's link broke. What came over it before that is met before that is told.
    pub(super) fn on_link_lost(self: &Arc<Self>, link: &Arc<Link>) {
        if !self.waiting.has_of(link.id()) {
            return self.tell_link_lost(link);
        }
        let (sidecar, link) = (Arc::clone(self), Arc::clone(link));
        self.ctx.spawn(async move {
            sidecar.waiting.emptied(link.id()).await;
            sidecar.tell_link_lost(&link);
        });
    }

    fn tell_link_lost(&self, link: &Arc<Link>) {
        self.asks.on_link_lost(link);
        self.caller.on_link_lost(link);
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
        self.door.take_again(now, link, route, envelope, &self.meeting());
    }
}
