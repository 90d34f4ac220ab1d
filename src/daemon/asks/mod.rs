//! Asks peers on the sidecar's own behalf: questions in; answers, or why there is none, out.

use std::sync::Arc;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::{Ext, MessageId};
use capd_proto::identity::Did;
use capd_proto::message::{ErrorBody, Type};
use tokio::sync::oneshot;

use super::account::Account;
use super::account::meter::CallLimit;
use super::context::requests::{Requests, Unsent};
use super::context::seal::ANSWER_TTL_MS;
use super::context::{Ctx, Outbound, Refusal};
use crate::net::Link;

/// Our own questions that wait for an answer.
pub(in crate::daemon) struct Asks {
    ctx: Arc<Ctx>,
    account: Arc<Account>,
    requests: Requests<oneshot::Sender<Answer>>,
}

/// What a peer answered.
pub(in crate::daemon) struct Answer {
    pub(in crate::daemon) typ: Type,
    pub(in crate::daemon) body: Bytes,
}

/// A question that is on its way.
pub(in crate::daemon) struct Asked(oneshot::Receiver<Answer>);

impl Asked {
    /// Waits for the answer. **Errors:** the refusal that the peer or its absence gave.
    pub(in crate::daemon) async fn answer(self) -> Result<Answer, Refusal> {
        let answer = self.0.await.map_err(|_| {
            Refusal::new(Code::TIMEOUT, "the peer did not answer in time, or its link closed")
        })?;
        if answer.typ == Type::Error {
            let error = ErrorBody::decode(&answer.body)
                .map_err(|error| Refusal::new(Code::INVALID_MESSAGE, error.to_string()))?;
            return Err(Refusal::new(error.code, error.message.into_owned()));
        }
        Ok(answer)
    }
}

impl Asks {
    pub(in crate::daemon) fn new(ctx: Arc<Ctx>, account: Arc<Account>) -> Arc<Self> {
        let requests = Requests::new(Arc::clone(&ctx.slots));
        Arc::new(Self { ctx, account, requests })
    }

    /// Asks a peer. **Errors:** why nothing was sent.
    pub(in crate::daemon) fn ask(
        &self,
        link: &Arc<Link>,
        typ: Type,
        body: &[u8],
        time_ms: u64,
    ) -> Result<Asked, Refusal> {
        let id = self.ctx.fresh_id(self.ctx.clock.wall_ms());
        let message = Outbound {
            id,
            typ,
            to: link.principal().as_str(),
            reply_to: None,
            thread_id: None,
            // Not the time we wait: the peer's clock may be further ahead of ours than that.
            ttl_ms: ANSWER_TTL_MS,
            body,
            ext: Ext::None,
        };
        let envelope = self.ctx.seal(&message, link);
        let (sender, answered) = oneshot::channel();
        let deadline_ms = self.ctx.clock.monotonic_ms().saturating_add(time_ms);
        let send = |link: &Arc<Link>| link.request_in_order(envelope);
        self.requests.send(link, id, deadline_ms, sender, send).map_err(|unsent| {
            if matches!(unsent, Unsent::Full) {
                self.account.meter.refused(CallLimit::RequestsWaiting);
            }
            unsent.refusal()
        })?;
        Ok(Asked(answered))
    }

    /// Hands an answer of `peer`'s to whoever asked, or, for `None`, says that there will be none that can be used; `false`
    /// when it answers no question of ours.
    pub(in crate::daemon) fn answered(&self, id: &MessageId, peer: &Did, answer: Option<Answer>) -> bool {
        let Some(waiting) = self.requests.take(id, peer) else { return false };
        if let Some(answer) = answer {
            // Whoever asked may have stopped waiting.
            let _gone = waiting.who.send(answer);
        }
        true
    }

    /// A link broke: what was asked on it is not answered.
    pub(in crate::daemon) fn on_link_lost(&self, link: &Link) {
        // Dropping what waits says so.
        drop(self.requests.lost(link));
    }

    /// Ends what nobody answered in time, until shutdown.
    pub(in crate::daemon) async fn expire(&self) {
        loop {
            // Dropping what waits says so.
            drop(self.requests.expired(&self.ctx.clock).await);
        }
    }
}
