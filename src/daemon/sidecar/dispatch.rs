//! Messages that have passed the door in, each to the room that deals with its type; links that open and close.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::ledger::JournalId;
use capd_proto::message::{Message, Type};

use crate::daemon::asks::Answer;
use crate::daemon::context::inbound::Again;
use crate::daemon::context::{Inbound, Refusal};
use crate::daemon::node::Node;
use crate::net::dial::{Address, ConnectError};
use crate::net::{CloseReason, Link, Newcomer, Refused, Route, Service};

impl Service for Node {
    fn admit(&self, newcomer: &Newcomer<'_>) -> bool {
        newcomer.kind.is_local() || self.door.admission.admits(newcomer.principal)
    }

    fn journal(&self) -> Option<JournalId> {
        Some(self.journal_id)
    }

    fn on_open(&self, link: &Arc<Link>) {
        if link.kind().is_local() {
            tracing::debug!(link = %link.id(), kind = %link.kind(), "an agent connected");
            return;
        }
        tracing::info!(peer = %link.principal(), remote = link.remote(), kind = %link.kind(), "peer connected");
        self.door.on_open(link);
        self.directory.on_open(link);
    }

    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes) {
        self.on_messages(link, route, &[payload]);
    }

    fn on_messages(&self, link: &Arc<Link>, route: &Route, payloads: &[Bytes]) {
        let messages = payloads.iter().map(|payload| (route, payload));
        self.door.take_all(link, messages, &|inbound| self.dispatch(inbound));
    }

    fn on_gathered(&self, link: &Arc<Link>, messages: &[(Route, Bytes)]) {
        let messages = messages.iter().map(|(route, payload)| (route, payload));
        self.door.take_all(link, messages, &|inbound| self.dispatch(inbound));
    }

    fn on_reset(&self, _link: &Arc<Link>, route: &Route) {
        self.executor.cancel_route(route);
    }

    fn on_refused(&self, refused: &Refused<'_>) {
        self.directory.on_peer_refused(refused);
    }

    fn on_unreachable(&self, peer: &Did, failures: &[(&Address, ConnectError)]) {
        self.directory.on_peer_unreachable(peer, failures);
    }

    fn on_pong(&self, _link: &Arc<Link>) {
        self.directory.peers.answered();
    }

    fn on_close(&self, link: &Arc<Link>, reason: &CloseReason) {
        tracing::debug!(link = %link.id(), peer = %link.principal(), %reason, "link closed");
        if link.kind().is_local() {
            self.executor.withdraw(link);
        } else {
            self.directory.on_close(link);
            self.asks.on_link_lost(link);
            self.on_link_lost(link);
        }
    }
}

impl Node {
    /// One message to the part that deals with its type.
    pub(in crate::daemon) fn dispatch(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        let Some(typ) = Type::from_code(inbound.envelope.typ) else {
            return Err(Refusal::new(Code::UNKNOWN_TYPE, "message type is not spoken here"));
        };
        let is_ours = inbound.is_for(self.ctx.did());
        match typ {
            Type::CapInvoke => self.on_invoke(inbound),
            Type::CapResult => self.on_result(inbound),
            Type::Error => self.on_error(inbound),
            Type::Processing | Type::Progress | Type::InputRequired => self.on_progress(inbound, typ),
            Type::CapDeclare if inbound.envelope.reply_to.is_none() => self.executor.on_declare(inbound),
            Type::CapDeclare | Type::DocSend | Type::Response | Type::Pong => self.on_answer_of(inbound, typ),
            Type::Ping if is_ours => self.on_ping(inbound),
            Type::CapQuery if is_ours => self.on_query(inbound),
            Type::DocRequest if is_ours => self.on_doc_request(inbound),
            Type::Request => self.on_request(inbound, is_ours),
            Type::Ping | Type::CapQuery | Type::DocRequest => self.forward(inbound, typ),
            // PROTOCOL 7: taken, and needs no answer.
            Type::Ack => Ok(()),
            Type::Hello | Type::HelloAck | Type::HelloReject => {
                Err(Refusal::new(Code::BAD_REQUEST, "the link is open already"))
            }
        }
    }

    /// PONG, CAP_DECLARE, DOC_SEND, RESPONSE: to whoever asked.
    fn on_answer_of(&self, inbound: &Inbound<'_>, typ: Type) -> Result<(), Refusal> {
        let shape = Message::decode_checked(typ, inbound.checked_body()).map(drop).map_err(Refusal::of);
        // Nothing better will come than an answer that cannot be read.
        let answer = shape.is_ok().then(|| Answer { typ, body: inbound.body.clone() });
        let is_ours = |id| self.asks.answered(&id, inbound.link.principal(), answer);
        if !inbound.envelope.reply_id().is_some_and(is_ours) {
            self.on_answer(inbound, typ, shape.is_ok());
        }
        shape
    }

    /// Meets a message again once what it waits for has ended.
    pub(in crate::daemon) fn meet_again(&self, inbound: &Inbound<'_>, again: Again) {
        let Some(node) = self.shared() else { return };
        let (link, route, payload) =
            (Arc::clone(inbound.link), inbound.route.clone(), inbound.payload.clone());
        self.ctx.spawn(async move {
            again.await;
            node.on_message(&link, &route, payload);
        });
    }

    fn on_ping(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        self.ctx.reply(inbound, Type::Pong, inbound.body);
        Ok(())
    }
}
