//! Sends answers and refusals on the stream of their message.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::envelope::{Encoded, Ext, MessageId};
use capd_proto::identity::Did;
use capd_proto::message::Type;

use super::seal::{ANSWER_TTL_MS, Outbound};
use super::{Ctx, Inbound, Refusal};
use crate::net::{CloseReason, Link, Route, SendError};

impl Ctx {
    /// A short message of ours to the other side of `link`, which calls itself `to`.
    pub(in crate::daemon) fn answer(
        &self,
        link: &Link,
        to: &Did,
        reply_to: Option<MessageId>,
        typ: Type,
        body: &[u8],
    ) -> Bytes {
        let id = self.fresh_id(self.clock.wall_ms());
        let message = Outbound {
            id,
            typ,
            to: to.as_str(),
            reply_to,
            thread_id: None,
            ttl_ms: ANSWER_TTL_MS,
            body,
            ext: Ext::None,
        };
        self.seal(&message, link)
    }

    /// Answers a message on the stream it came on; a link that takes no more is closing anyway.
    pub(in crate::daemon) fn reply(&self, inbound: &Inbound<'_>, typ: Type, body: &[u8]) {
        let envelope = self.answer(inbound.link, inbound.sender, Some(inbound.envelope.id), typ, body);
        self.send(inbound.link, inbound.route, envelope);
    }

    /// Sends an answer. An answer that does not fit the link's queue is lost with the link: whoever asks again finds
    /// it in the ledger.
    pub(in crate::daemon) fn send(&self, link: &Arc<Link>, route: &Route, envelope: impl Into<Encoded>) {
        match route.send(envelope) {
            Ok(()) | Err(SendError::Closed | SendError::Draining) => {}
            Err(error @ SendError::Full) => {
                tracing::warn!(link = %link.id(), peer = %link.principal(), %error, "closing a link that does not read");
                link.close(CloseReason::Local("its reader is too slow".to_owned()));
            }
            Err(error @ SendError::TooLarge { .. }) => {
                tracing::warn!(link = %link.id(), peer = %link.principal(), %error, "an answer was not sent");
            }
        }
    }

    /// Answers with an ERROR. `reply_to` is the refused message's id, when it could be read (PROTOCOL 9).
    pub(in crate::daemon) fn refuse(
        &self,
        link: &Arc<Link>,
        route: &Route,
        reply_to: Option<MessageId>,
        refusal: &Refusal,
    ) {
        tracing::debug!(link = %link.id(), code = %refusal.code, reason = refusal.message, "refused");
        let envelope = self.answer(link, link.principal(), reply_to, Type::Error, &refusal.body());
        self.send(link, route, envelope);
    }
}
